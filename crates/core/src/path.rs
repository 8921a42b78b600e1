//! Paths inside a source or a workspace: relative, `/`-separated, UTF-8.

use std::fmt;

use serde::{Deserialize, Serialize};
use unicode_normalization::UnicodeNormalization;

/// The longest path in bytes.
pub const MAX_PATH_BYTES: usize = 4096;
/// The longest segment in bytes.
pub const MAX_SEGMENT_BYTES: usize = 255;

/// A relative path: `/`-separated UTF-8, no empty, `.` or `..` segment, no NUL, at most 4,096 bytes and 255
/// bytes a segment. Every other byte is legal and kept, backslash and control characters included.
///
/// Paths sort by their bytes.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct WorkspacePath(String);

/// Why a text is not a [`WorkspacePath`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PathError {
    /// The path is empty.
    #[error("the path is empty")]
    Empty,
    /// The path starts with `/`.
    #[error("the path is absolute; use a path relative to the workspace root")]
    Absolute,
    /// A segment is `..`.
    #[error("the path has a '..' segment, which could leave the workspace")]
    Parent,
    /// A segment is empty or `.`.
    #[error("the path has an empty or '.' segment")]
    NotNormal,
    /// The path has a NUL byte.
    #[error("the path has a NUL byte")]
    Nul,
    /// The path or a segment is too long.
    #[error("the path is longer than 4,096 bytes or a segment is longer than 255")]
    TooLong,
    /// The name is not UTF-8.
    #[error("the path is not UTF-8")]
    NotUtf8,
}

impl WorkspacePath {
    /// Takes a path that already has the canonical form; changes nothing.
    pub fn parse(text: impl Into<String>) -> Result<Self, PathError> {
        let text = text.into();
        if text.is_empty() {
            return Err(PathError::Empty);
        }
        if text.starts_with('/') {
            return Err(PathError::Absolute);
        }
        if text.len() > MAX_PATH_BYTES {
            return Err(PathError::TooLong);
        }
        if text.as_bytes().iter().fold(false, |found, byte| found | (*byte == 0)) {
            return Err(PathError::Nul);
        }
        for segment in text.as_bytes().split(|byte| *byte == b'/') {
            match segment {
                b"" | b"." => return Err(PathError::NotNormal),
                b".." => return Err(PathError::Parent),
                _ if segment.len() > MAX_SEGMENT_BYTES => return Err(PathError::TooLong),
                _ => {}
            }
        }
        Ok(Self(text))
    }

    /// Takes what a person or a model typed: `./a//b/` means `a/b`. `..` and absolute paths are refused, never
    /// resolved. `None` is the root (`.`, `./`, the empty text).
    pub fn parse_lenient(text: &str) -> Result<Option<Self>, PathError> {
        if text.starts_with('/') {
            return Err(PathError::Absolute);
        }
        let segments: Vec<&str> = text.split('/').filter(|segment| !matches!(*segment, "" | ".")).collect();
        if segments.is_empty() {
            return Ok(None);
        }
        Self::parse(segments.join("/")).map(Some)
    }

    /// The path as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The segments, from the root.
    pub fn segments(&self) -> std::str::Split<'_, char> {
        self.0.split('/')
    }

    /// The last segment.
    pub fn name(&self) -> &str {
        self.0.rsplit_once('/').map_or(&self.0, |(_, name)| name)
    }

    /// The directory that holds this path, or `None` at the top.
    pub fn parent(&self) -> Option<Self> {
        self.0.rsplit_once('/').map(|(parent, _)| Self(parent.to_owned()))
    }

    /// Every directory above this path as text, nearest first, without the root.
    pub fn ancestors(&self) -> impl Iterator<Item = &str> {
        let text = self.as_str();
        text.rmatch_indices('/').map(move |(index, _)| &text[..index])
    }

    /// True where `self` lies below the directory `other`.
    pub fn is_below(&self, other: &Self) -> bool {
        self.0.strip_prefix(other.as_str()).is_some_and(|rest| rest.starts_with('/'))
    }

    /// The path of `segment` in this directory.
    pub fn join(&self, segment: &str) -> Result<Self, PathError> {
        if segment.contains('/') {
            return Err(PathError::NotNormal);
        }
        Self::parse(format!("{}/{segment}", self.0))
    }

    /// The key under which paths that differ only in letter case or Unicode form meet: NFC of the lower case.
    pub fn fold_key(&self) -> String {
        if self.0.is_ascii() {
            self.0.to_ascii_lowercase()
        } else {
            self.0.nfc().flat_map(char::to_lowercase).nfc().collect()
        }
    }
}

impl fmt::Display for WorkspacePath {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(&self.0)
    }
}

impl fmt::Debug for WorkspacePath {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:?}", self.0)
    }
}

impl TryFrom<String> for WorkspacePath {
    type Error = PathError;

    fn try_from(text: String) -> Result<Self, PathError> {
        Self::parse(text)
    }
}

impl From<WorkspacePath> for String {
    fn from(path: WorkspacePath) -> Self {
        path.0
    }
}

impl AsRef<str> for WorkspacePath {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

impl std::borrow::Borrow<str> for WorkspacePath {
    fn borrow(&self) -> &str {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn refuses_what_could_leave_the_root_or_has_two_spellings() {
        let cases = [
            ("", PathError::Empty),
            ("/a", PathError::Absolute),
            ("a/../b", PathError::Parent),
            ("..", PathError::Parent),
            ("a//b", PathError::NotNormal),
            ("a/", PathError::NotNormal),
            ("./a", PathError::NotNormal),
            ("a\0b", PathError::Nul),
        ];
        for (text, error) in cases {
            assert_eq!(WorkspacePath::parse(text), Err(error), "{text:?}");
        }
        assert_eq!(WorkspacePath::parse("x".repeat(256)), Err(PathError::TooLong));
        assert!(WorkspacePath::parse(format!("{}/{}", "x".repeat(255), "y".repeat(255))).is_ok());
        assert_eq!(WorkspacePath::parse("a/".repeat(2048) + "b"), Err(PathError::TooLong));
    }

    #[test]
    fn keeps_every_other_byte() {
        for text in
            ["a\\b", "C:evil", "end ", "end.", "NUL", "new\nline", "caf\u{e9}", "cafe\u{301}", "-e", "~"]
        {
            assert_eq!(WorkspacePath::parse(text).unwrap().as_str(), text);
        }
    }

    #[test]
    fn lenient_form_normalizes_but_never_resolves() {
        assert_eq!(WorkspacePath::parse_lenient("./sub//f.txt").unwrap().unwrap().as_str(), "sub/f.txt");
        assert_eq!(WorkspacePath::parse_lenient("sub/").unwrap().unwrap().as_str(), "sub");
        assert_eq!(WorkspacePath::parse_lenient("."), Ok(None));
        assert_eq!(WorkspacePath::parse_lenient("sub/../x"), Err(PathError::Parent));
        assert_eq!(WorkspacePath::parse_lenient("/x"), Err(PathError::Absolute));
    }

    #[test]
    fn twins_in_case_or_form_share_a_fold_key() {
        let key = |text: &str| WorkspacePath::parse(text).unwrap().fold_key();
        assert_eq!(key("README.md"), key("Readme.MD"));
        assert_eq!(key("caf\u{e9}"), key("CAFE\u{301}"));
        assert_ne!(key("a/b"), key("a-b"));
    }

    proptest! {
        #[test]
        fn a_parsed_path_is_its_own_text_and_stays_inside(text in "\\PC{0,40}") {
            if let Ok(path) = WorkspacePath::parse(text.clone()) {
                prop_assert_eq!(path.as_str(), text.as_str());
                prop_assert!(path.segments().all(|s| !s.is_empty() && s != "." && s != ".."));
                prop_assert_eq!(WorkspacePath::parse_lenient(path.as_str()).unwrap(), Some(path.clone()));
                for ancestor in path.ancestors() {
                    prop_assert!(path.is_below(&WorkspacePath::parse(ancestor).unwrap()));
                }
            }
        }

        #[test]
        fn lenient_never_yields_a_path_that_strict_refuses(text in "[./a-c]{0,12}") {
            if let Ok(Some(path)) = WorkspacePath::parse_lenient(&text) {
                prop_assert!(WorkspacePath::parse(path.as_str()).is_ok());
            }
        }
    }
}
