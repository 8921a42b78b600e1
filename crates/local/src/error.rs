//! Turns what the operating system says into errors that name the path and tell what to do.

use std::fmt::Write as _;
use std::io;

use coldframe_core::{ErrorKind, SourceError};

use crate::tree::is_gone;

pub(crate) const CAPTURE: &str = "capture local";

/// The root cannot be opened.
pub(crate) fn root_error(locator: &str, error: io::Error) -> SourceError {
    let refused = match error.kind() {
        io::ErrorKind::NotADirectory => {
            SourceError::contract(CAPTURE, "not a directory; name the directory that holds the files")
        }
        io::ErrorKind::NotFound => {
            SourceError::new(ErrorKind::NotFound, CAPTURE, "there is no such directory")
        }
        _ => SourceError::io(CAPTURE, io::Error::from(error.kind())),
    };
    refused.with_source(error).with_subject(locator)
}

/// Something below the root that a listing named cannot be opened or read.
pub(crate) fn path_error(path: &str, error: io::Error) -> SourceError {
    let subject = if path.is_empty() { "." } else { path };
    let refused = if is_gone(&error) {
        return changed(path, "it vanished or became something else").with_source(error);
    } else if error.kind() == io::ErrorKind::PermissionDenied {
        let detail = "it may not be read; change its mode, ignore it, or capture as its owner";
        SourceError::new(ErrorKind::Denied, CAPTURE, detail)
    } else if is_out_of_handles(&error) {
        let detail = "no file handle is left; raise the limit on open files (ulimit -n) or lower concurrency";
        SourceError::new(ErrorKind::Io, CAPTURE, detail)
    } else {
        SourceError::io(CAPTURE, io::Error::from(error.kind()))
    };
    refused.with_source(error).with_subject(subject)
}

/// EMFILE and ENFILE, which the standard library gives no kind of their own; the numbers are the same on every
/// Unix.
fn is_out_of_handles(error: &io::Error) -> bool {
    cfg!(unix) && matches!(error.raw_os_error(), Some(23 | 24))
}

/// A path did not stay the same long enough to be read.
pub(crate) fn changed(path: &str, detail: &str) -> SourceError {
    let detail = format!("{detail}; capture again when nothing writes there");
    SourceError::new(ErrorKind::Changed, CAPTURE, detail).with_subject(if path.is_empty() {
        "."
    } else {
        path
    })
}

/// The capture was dropped, or the runtime is going away.
pub(crate) fn cancelled() -> SourceError {
    SourceError::new(ErrorKind::Cancelled, CAPTURE, "the capture was dropped")
}

/// A name as text: bytes that are not UTF-8 as `\xNN`.
pub(crate) fn escaped(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        text.push_str(chunk.valid());
        for byte in chunk.invalid() {
            let _ = write!(text, "\\x{byte:02x}");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_that_are_not_text_are_shown_as_numbers() {
        assert_eq!(escaped(b"caf\xe9.txt"), "caf\\xe9.txt");
        assert_eq!(escaped(b"\xff\xfedir"), "\\xff\\xfedir");
        assert_eq!(escaped("caf\u{e9}".as_bytes()), "caf\u{e9}");
    }

    #[test]
    fn each_refusal_of_the_system_has_a_kind_and_names_the_path() {
        let cases = [
            (io::ErrorKind::PermissionDenied.into(), ErrorKind::Denied),
            (io::ErrorKind::NotFound.into(), ErrorKind::Changed),
            (io::ErrorKind::NotADirectory.into(), ErrorKind::Changed),
            (io::Error::from_raw_os_error(24), ErrorKind::Io),
            (io::ErrorKind::Other.into(), ErrorKind::Io),
        ];
        for (error, kind) in cases {
            let refused = path_error("a/b", error);
            assert_eq!((refused.kind(), refused.subject()), (kind, "a/b"));
        }
        assert!(path_error("a", io::Error::from_raw_os_error(24)).to_string().contains("ulimit"));
        assert_eq!(root_error("/x", io::ErrorKind::NotADirectory.into()).kind(), ErrorKind::Contract);
        assert_eq!(root_error("/x", io::ErrorKind::NotFound.into()).kind(), ErrorKind::NotFound);
    }
}
