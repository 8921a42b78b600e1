//! A spinner on standard error while something long runs, where a person is watching.

use std::io::IsTerminal;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::output::Output;

/// Shows what is under way until it is dropped; silent unless standard error is a terminal.
pub(crate) struct Progress {
    bar: ProgressBar,
}

impl Progress {
    pub(crate) fn start(output: Output, what: &str) -> Self {
        let is_watched = !output.json && std::io::stderr().is_terminal();
        let target = if is_watched { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
        let bar = ProgressBar::with_draw_target(None, target);
        bar.set_style(ProgressStyle::default_spinner());
        bar.set_message(what.to_owned());
        if is_watched {
            // A quick call should not flicker.
            bar.enable_steady_tick(Duration::from_millis(120));
        }
        Self { bar }
    }

    /// Replaces what is shown.
    pub(crate) fn say(&self, what: &str) {
        self.bar.set_message(crate::text::shown(what).into_owned());
    }

    /// Prints lines above the spinner.
    pub(crate) fn line(&self, output: Output, lines: &str) {
        self.bar.suspend(|| output.remark(lines));
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
