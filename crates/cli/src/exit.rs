//! The exit codes of the program, as `docs/cli.md` lists them.

use coldframe::Kind;

/// The work itself failed: a step of a run did not reach its end.
pub(crate) const FAILED: u8 = 1;
/// The command line is wrong.
pub(crate) const USAGE: u8 = 2;
/// Stopped by ctrl-c, as shells count it.
pub(crate) const INTERRUPTED: u8 = 130;
/// `exec`: the command's time was over.
pub(crate) const TIMED_OUT: u8 = 124;
/// `exec`: Coldframe itself failed, so there is no exit code of the command.
pub(crate) const EXEC_FAILED: u8 = 125;
/// `exec`: the policy or the host's isolation refused the command.
pub(crate) const EXEC_REFUSED: u8 = 126;
/// `exec`: there is no such program.
pub(crate) const EXEC_NOT_FOUND: u8 = 127;

/// The list that `--help` ends with.
pub(crate) const HELP: &str = "\
Exit codes:
  0  done                            5  a limit was exceeded
  1  the work failed (a step of run) 6  integrity: damaged data or receipts
  2  wrong command line              7  conflict: something changed, or two changes meet
  3  not found                       8  refused by policy, permissions or isolation
  4  input breaks a rule             9  the system failed: I/O, no space
`exec` ends with the command's own code, 128+n for signal n, 124 when its time was over;
125, 126 (refused) and 127 (no such program) are failures of Coldframe itself. 130 after ctrl-c.";

/// The code of an error outside of `exec`.
pub(crate) fn code(kind: Kind) -> u8 {
    match kind {
        Kind::Failed => FAILED,
        Kind::NotFound => 3,
        Kind::Contract => 4,
        Kind::Limit => 5,
        Kind::Integrity => 6,
        Kind::Conflict => 7,
        Kind::Refused => 8,
        Kind::Cancelled => INTERRUPTED,
        _ => 9,
    }
}
