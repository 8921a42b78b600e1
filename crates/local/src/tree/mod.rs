//! Opens, lists and stats what lies below one directory, without ever following a symbolic link.
//!
//! The Linux form works through directory handles, so a directory that another process swaps for a link in
//! the middle of a capture is an error and never a way out of the tree. The portable form cannot promise that.

use std::fs::File;
use std::io;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

#[cfg(target_os = "linux")]
mod linux;
#[cfg(any(not(target_os = "linux"), test))]
mod portable;

#[cfg(target_os = "linux")]
pub(crate) use linux::{Directory, Tree, stat_of};
#[cfg(not(target_os = "linux"))]
pub(crate) use portable::{Directory, Tree, stat_of};

/// What stands at a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    File,
    Directory,
    Symlink,
    Fifo,
    Socket,
    Device,
}

/// A point in time as file systems keep it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Moment {
    pub(crate) seconds: i64,
    pub(crate) nanoseconds: u32,
}

impl Moment {
    /// The clock from which the kernel takes its time stamps, only finer.
    pub(crate) fn now() -> Self {
        match SystemTime::now().duration_since(UNIX_EPOCH) {
            Ok(since) => Self { seconds: since.as_secs() as i64, nanoseconds: since.subsec_nanos() },
            Err(_) => Self { seconds: 0, nanoseconds: 0 },
        }
    }

    /// This moment as nanoseconds since 1970, which no file system's stamp can overflow in 128 bits.
    pub(crate) fn nanos(self) -> i128 {
        i128::from(self.seconds) * 1_000_000_000 + i128::from(self.nanoseconds)
    }
}

/// What a capture needs to know of a file before and after it reads it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stat {
    pub(crate) kind: Kind,
    pub(crate) executable: bool,
    pub(crate) size: u64,
    pub(crate) modified: Moment,
    pub(crate) changed: Moment,
    pub(crate) inode: u64,
    pub(crate) device: u64,
}

/// One name: where it stands, and its first bytes, which mostly tell already which name comes first.
#[derive(Debug, Clone, Copy)]
struct Span {
    start: u32,
    end: u32,
    first: u64,
    kind: Option<Kind>,
}

impl Span {
    fn of<'a>(&self, bytes: &'a [u8]) -> &'a [u8] {
        &bytes[self.start as usize..self.end as usize]
    }
}

/// The first eight bytes as a number that sorts as they do; a shorter name is filled up with zeros.
fn first_bytes(name: &[u8]) -> u64 {
    let mut first = [0; 8];
    let length = name.len().min(8);
    first[..length].copy_from_slice(&name[..length]);
    u64::from_be_bytes(first)
}

/// The names of one directory, sorted by their bytes, in one allocation that is used again.
#[derive(Debug, Default)]
pub(crate) struct Names {
    bytes: Vec<u8>,
    spans: Vec<Span>,
    /// Room for what the kernel writes, where the form at hand reads raw entries.
    #[cfg(target_os = "linux")]
    listing: Vec<u8>,
}

impl Names {
    fn clear(&mut self) {
        self.bytes.clear();
        self.spans.clear();
    }

    fn push(&mut self, name: &[u8], kind: Option<Kind>) {
        let start = self.bytes.len() as u32;
        self.bytes.extend_from_slice(name);
        self.spans.push(Span { start, end: self.bytes.len() as u32, first: first_bytes(name), kind });
    }

    fn sort(&mut self) {
        let bytes = &self.bytes;
        // Names have no zero byte, so equal first bytes that are filled up are equal names.
        self.spans.sort_unstable_by(|a, b| a.first.cmp(&b.first).then_with(|| a.of(bytes).cmp(b.of(bytes))));
    }

    /// Each name with its kind, where the directory itself tells it.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&[u8], Option<Kind>)> {
        self.spans.iter().map(|span| (span.of(&self.bytes), span.kind))
    }

    /// The kind of `name`, or `None` where it is not here; the inner `None` is a kind not told.
    pub(crate) fn find(&self, name: &str) -> Option<Option<Kind>> {
        self.spans
            .binary_search_by(|span| span.of(&self.bytes).cmp(name.as_bytes()))
            .ok()
            .map(|index| self.spans[index].kind)
    }
}

/// Reads at most `limit` bytes of an ordinary file, or `None` where `name` is anything else or is not there.
pub(crate) fn read_plain(open: impl FnOnce() -> io::Result<File>, limit: u64) -> io::Result<Option<Vec<u8>>> {
    use std::io::Read as _;
    let file = match open() {
        Ok(file) => file,
        Err(error) if is_gone(&error) => return Ok(None),
        Err(error) => return Err(error),
    };
    if stat_of(&file)?.kind != Kind::File {
        return Ok(None);
    }
    let mut content = Vec::new();
    file.take(limit).read_to_end(&mut content)?;
    Ok(Some(content))
}

/// True where a name is no longer what a listing said: it vanished, or another kind of thing took its place.
pub(crate) fn is_gone(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

/// The canonical text of a root, which names its cache and finds the repository around it.
pub(crate) fn canonical(root: &Path) -> io::Result<std::path::PathBuf> {
    std::fs::canonicalize(root)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    /// Both forms of the module, seen through what they share.
    fn listing(root: &Path) -> (Vec<String>, Vec<String>) {
        let mut names = Names::default();
        let linux = Tree::open(root).unwrap().directory("sub").unwrap();
        linux.names(&mut names).unwrap();
        let describe = |name: &[u8], stat: Stat, target: Option<Vec<u8>>| {
            let name = String::from_utf8_lossy(name);
            format!("{name} {:?} {} {} {target:?}", stat.kind, stat.executable, stat.size)
        };
        let mut first = Vec::new();
        for (name, _) in names.iter() {
            let text = std::str::from_utf8(name).unwrap();
            let target = linux.link(text).ok();
            first.push(describe(name, linux.stat(text).unwrap(), target));
        }
        let plain = portable::Tree::open(root).unwrap().directory("sub").unwrap();
        plain.names(&mut names).unwrap();
        let mut second = Vec::new();
        for (name, _) in names.iter() {
            let text = std::str::from_utf8(name).unwrap();
            let target = plain.link(text).ok();
            second.push(describe(name, plain.stat(text).unwrap(), target));
        }
        (first, second)
    }

    #[test]
    fn the_portable_form_sees_what_the_linux_form_sees() {
        let folder = tempfile::tempdir().unwrap();
        let sub = folder.path().join("sub");
        std::fs::create_dir_all(sub.join("inner")).unwrap();
        std::fs::write(sub.join("b.txt"), "four").unwrap();
        std::fs::write(sub.join("a.txt"), "").unwrap();
        symlink("../elsewhere", sub.join("link")).unwrap();
        let (first, second) = listing(folder.path());
        let without_sizes_of_directories = |lines: Vec<String>| -> Vec<String> {
            lines.into_iter().filter(|line| !line.contains("Directory")).collect()
        };
        let first = without_sizes_of_directories(first);
        assert_eq!(first.len(), 3);
        assert!(first[2].starts_with("link Symlink"), "{first:?}");
        assert_eq!(first, without_sizes_of_directories(second));
    }

    #[test]
    fn neither_form_opens_through_a_link() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("root");
        std::fs::create_dir_all(root.join("real")).unwrap();
        std::fs::write(root.join("real/file"), "inside").unwrap();
        symlink("real", root.join("link")).unwrap();
        symlink("real/file", root.join("file-link")).unwrap();
        let tree = Tree::open(&root).unwrap();
        let plain = portable::Tree::open(&root).unwrap();
        assert!(tree.file("real/file").is_ok() && plain.file("real/file").is_ok());
        for path in ["link/file", "file-link", "missing", "real/file/below"] {
            assert!(is_gone(&tree.file(path).unwrap_err()), "{path}");
            assert!(is_gone(&plain.file(path).unwrap_err()), "{path}");
        }
        assert!(is_gone(&tree.directory("link").err().unwrap()));
        assert!(is_gone(&plain.directory("link").err().unwrap()));
        assert!(stat_of(&tree.file("real/file").unwrap()).unwrap().size == 6);
        let portable_stat = portable::stat_of(&plain.file("real/file").unwrap()).unwrap();
        assert_eq!(portable_stat, stat_of(&tree.file("real/file").unwrap()).unwrap());
    }
}
