//! Path names in patches, quoted as Git quotes them, and the names that Git refuses.

use coldframe_core::{Node, WorkspacePath};

/// `prefix` and `path` as one name, in quotes where Git's `core.quotePath` would put them: control characters,
/// `"`, `\` and every byte from 0x80 on are escaped as in C.
pub(crate) fn quoted(prefix: &str, path: &str) -> String {
    let needs_quotes = |byte: u8| !(0x20..0x7f).contains(&byte) || byte == b'"' || byte == b'\\';
    if !path.bytes().any(needs_quotes) {
        return format!("{prefix}{path}");
    }
    let mut text = String::with_capacity(path.len() + prefix.len() + 16);
    text.push('"');
    text.push_str(prefix);
    for byte in path.bytes() {
        match byte {
            0x07 => text.push_str("\\a"),
            0x08 => text.push_str("\\b"),
            b'\t' => text.push_str("\\t"),
            b'\n' => text.push_str("\\n"),
            0x0b => text.push_str("\\v"),
            0x0c => text.push_str("\\f"),
            b'\r' => text.push_str("\\r"),
            b'"' => text.push_str("\\\""),
            b'\\' => text.push_str("\\\\"),
            plain if !needs_quotes(plain) => text.push(char::from(plain)),
            other => {
                text.push('\\');
                for shift in [6, 3, 0] {
                    text.push(char::from(b'0' + (other >> shift & 7)));
                }
            }
        }
    }
    text.push('"');
    text
}

/// True where Git refuses the path: a segment that some file system takes for `.git`, or a link named
/// `.gitmodules`.
pub(crate) fn is_refused_by_git(path: &WorkspacePath, node: &Node) -> bool {
    let is_link = matches!(node, Node::Symlink { .. });
    // Git minds that NTFS takes a backslash for a separator, on every system.
    path.as_str().split(['/', '\\']).any(|segment| {
        is_name_on_ntfs(segment, ".git", "git~1")
            || (is_link && is_name_on_ntfs(segment, ".gitmodules", "gitmod~1"))
    })
}

/// NTFS ignores case, dots and spaces at the end, and what follows a colon, and knows short names.
fn is_name_on_ntfs(segment: &str, name: &str, short_name: &str) -> bool {
    let seen = segment.split(':').next().unwrap_or_default().trim_end_matches(['.', ' ']);
    seen.eq_ignore_ascii_case(name) || seen.eq_ignore_ascii_case(short_name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_what_git_quotes() {
        assert_eq!(quoted("a/", "plain name-1.txt"), "a/plain name-1.txt");
        assert_eq!(quoted("a/", "t\tn\n\"q\\"), "\"a/t\\tn\\n\\\"q\\\\\"");
        assert_eq!(quoted("b/", "caf\u{e9}\u{7f}\u{1}"), "\"b/caf\\303\\251\\177\\001\"");
        assert_eq!(quoted("", "\u{7}\u{8}\u{b}\u{c}\r"), "\"\\a\\b\\v\\f\\r\"");
    }

    #[test]
    fn knows_the_names_that_stand_for_the_repository() {
        let refused = |text: &str| is_refused_by_git(&WorkspacePath::parse(text).unwrap(), &Node::Directory);
        for name in [".git", "a/.GIT/config", "GIT~1/x", ".git. ./x", ".git:stream", "a\\.git"] {
            assert!(refused(name), "{name:?}");
        }
        for name in [".gitignore", "git", "x.git", ".github/a", ".gitmodules", ".git-x"] {
            assert!(!refused(name), "{name:?}");
        }
        let link = Node::Symlink { target: "x".to_owned() };
        assert!(is_refused_by_git(&WorkspacePath::parse(".gitmodules").unwrap(), &link));
    }
}
