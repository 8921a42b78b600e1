//! Sources, entries and snapshots, with the canonical manifest that gives a snapshot its id.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;

use serde::{Deserialize, Serialize};

use crate::canonical::{Lines, push_entry, push_line};
use crate::{Digest, DigestWriter, SourceError, WorkspacePath};

/// Names a source: who provides it, where it is, and which revision is asked for.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SourceRef {
    /// The adapter's provider name, such as `local`.
    pub provider: String,
    /// Where the source is, in the provider's own form. Never a credential.
    pub locator: String,
    /// The revision asked for; empty for the provider's default.
    #[serde(default)]
    pub revision: String,
}

impl SourceRef {
    /// Checks that provider and locator are there and that no field is longer than 4,096 bytes.
    pub fn new(
        provider: impl Into<String>,
        locator: impl Into<String>,
        revision: impl Into<String>,
    ) -> Result<Self, SourceError> {
        let source = Self { provider: provider.into(), locator: locator.into(), revision: revision.into() };
        source.check()?;
        Ok(source)
    }

    fn check(&self) -> Result<(), SourceError> {
        let provider_is_legal = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        if self.provider.is_empty()
            || self.provider.len() > 64
            || !self.provider.bytes().all(provider_is_legal)
        {
            let detail = "a provider is 1 to 64 of a-z 0-9 and '-'";
            return Err(SourceError::contract("check source", detail).with_subject(&self.provider));
        }
        if self.locator.is_empty() {
            return Err(SourceError::contract("check source", "the locator is empty"));
        }
        if self.locator.len() > 4096 || self.revision.len() > 4096 {
            return Err(SourceError::contract(
                "check source",
                "locator or revision is longer than 4,096 bytes",
            ));
        }
        Ok(())
    }
}

impl fmt::Display for SourceRef {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}:{}", self.provider, self.locator)?;
        if self.revision.is_empty() { Ok(()) } else { write!(formatter, "@{}", self.revision) }
    }
}

/// What stands at a path.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Node {
    /// A regular file.
    File {
        /// BLAKE3 of its bytes.
        digest: Digest,
        /// The number of its bytes.
        size: u64,
        /// Whether its owner may execute it; no other mode bit is kept.
        executable: bool,
    },
    /// A symbolic link, kept as its text.
    Symlink {
        /// The target as written in the link.
        target: String,
    },
    /// A directory without entries. Directories with entries follow from the paths.
    Directory,
}

impl Node {
    /// The bytes of a file; 0 for anything else.
    pub const fn size(&self) -> u64 {
        match self {
            Self::File { size, .. } => *size,
            Self::Symlink { .. } | Self::Directory => 0,
        }
    }

    /// The blob of a file.
    pub const fn blob(&self) -> Option<crate::Stored> {
        match self {
            Self::File { digest, size, .. } => Some(crate::Stored { digest: *digest, size: *size }),
            Self::Symlink { .. } | Self::Directory => None,
        }
    }
}

/// One path of a snapshot.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct SnapshotEntry {
    /// Where it lies.
    pub path: WorkspacePath,
    /// What it is.
    #[serde(flatten)]
    pub node: Node,
}

/// Why a path of the source is not in the snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum OmissionReason {
    /// A socket.
    Socket,
    /// A named pipe.
    Fifo,
    /// A block or character device.
    Device,
    /// The name is not UTF-8.
    NonUtf8Name,
    /// The name breaks a rule of [`WorkspacePath`].
    IllegalName,
    /// The target of a symbolic link is not UTF-8.
    NonUtf8Target,
    /// A submodule.
    Submodule,
    /// Metadata of a version control system, such as `.git`.
    VcsMetadata,
    /// An ignore rule matched.
    Ignored,
    /// The application keeps the folder for itself, such as its own state.
    Reserved,
    /// A mount point of another file system, where the adapter was told to stay on one.
    OtherFileSystem,
    /// An earlier entry of the same path was replaced by a later one.
    Replaced,
}

impl OmissionReason {
    const ALL: [(Self, &'static str); 12] = [
        (Self::Socket, "socket"),
        (Self::Fifo, "fifo"),
        (Self::Device, "device"),
        (Self::NonUtf8Name, "non-utf8-name"),
        (Self::IllegalName, "illegal-name"),
        (Self::NonUtf8Target, "non-utf8-target"),
        (Self::Submodule, "submodule"),
        (Self::VcsMetadata, "vcs-metadata"),
        (Self::Ignored, "ignored"),
        (Self::Reserved, "reserved"),
        (Self::OtherFileSystem, "other-file-system"),
        (Self::Replaced, "replaced"),
    ];

    /// The word that manifests and JSON use.
    pub fn as_str(self) -> &'static str {
        Self::ALL.iter().find(|(reason, _)| *reason == self).map_or("unknown", |(_, word)| word)
    }

    fn parse(word: &str) -> Option<Self> {
        Self::ALL.iter().find(|(_, known)| *known == word).map(|(reason, _)| *reason)
    }
}

impl fmt::Display for OmissionReason {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(self.as_str())
    }
}

/// What was left out, and how often.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Omission {
    /// Why.
    pub reason: OmissionReason,
    /// The path (bytes that are not UTF-8 as `\xNN`), or the rule that matched.
    pub subject: String,
    /// How many paths this stands for. A directory that was not entered counts once.
    pub count: u64,
}

/// A snapshot before it has an id: what its canonical manifest says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SnapshotManifest {
    /// The source as asked.
    pub source: SourceRef,
    /// The revision it resolved to; empty where the tree digest is the revision.
    pub resolved_revision: String,
    /// The entries in any order.
    pub entries: Vec<SnapshotEntry>,
    /// What was left out, in any order; equal reasons and subjects are added up.
    pub omitted: Vec<Omission>,
}

/// An immutable snapshot. Its fields agree with its id; [`SnapshotManifest::seal`] and
/// [`SourceSnapshot::from_manifest`] are the only ways to one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SourceSnapshot {
    id: Digest,
    tree: Digest,
    source: SourceRef,
    resolved_revision: String,
    entries: Vec<SnapshotEntry>,
    omitted: Vec<Omission>,
}

const READ: &str = "read manifest";

impl SnapshotManifest {
    /// Sorts, checks every rule of the contract and computes tree digest and id.
    pub fn seal(self) -> Result<SourceSnapshot, SourceError> {
        self.seal_with_text().map(|(snapshot, _)| snapshot)
    }

    /// [`Self::seal`], with the canonical manifest that was made on the way: what
    /// [`SourceSnapshot::to_manifest`] would make again.
    pub fn seal_with_text(mut self) -> Result<(SourceSnapshot, String), SourceError> {
        self.source.check()?;
        self.entries.sort_unstable_by(|a, b| a.path.cmp(&b.path));
        check_tree(self.entries.iter().map(|entry| (&entry.path, &entry.node)))?;
        let mut sums: BTreeMap<(OmissionReason, String), u64> = BTreeMap::new();
        for omission in std::mem::take(&mut self.omitted) {
            *sums.entry((omission.reason, omission.subject)).or_default() += omission.count;
        }
        let omitted =
            sums.into_iter().map(|((reason, subject), count)| Omission { reason, subject, count }).collect();
        let mut snapshot = SourceSnapshot {
            id: UNKNOWN,
            tree: UNKNOWN,
            source: self.source,
            resolved_revision: self.resolved_revision,
            entries: self.entries,
            omitted,
        };
        let is_tree = snapshot.resolved_revision.is_empty();
        if is_tree {
            snapshot.resolved_revision = format!("tree:{UNKNOWN}");
        }
        let (mut text, lines) = snapshot.write_manifest();
        snapshot.tree = tree_digest(&text.as_bytes()[lines.clone()]);
        // The header stands before what it tells of. Every digest has the same width, so it is filled in.
        if is_tree {
            snapshot.resolved_revision = format!("tree:{}", snapshot.tree);
        }
        let header = snapshot.header();
        text.replace_range(..lines.start, &header);
        snapshot.id = Digest::of(text.as_bytes());
        Ok((snapshot, text))
    }
}

/// Stands where a digest is not computed yet.
const UNKNOWN: Digest = Digest::from_bytes([0; 32]);

/// What a tree digest covers before the lines of the entries.
const TREE_HEADER: &[u8] = b"coldframe-tree\t1\n";

fn tree_digest(entry_lines: &[u8]) -> Digest {
    let mut hash = DigestWriter::default();
    hash.update(TREE_HEADER);
    hash.update(entry_lines);
    hash.finish().0
}

impl SourceSnapshot {
    /// BLAKE3 of the canonical manifest.
    pub fn id(&self) -> Digest {
        self.id
    }

    /// Depends on paths, kinds and contents alone: equal trees of different sources have equal digests.
    pub fn tree(&self) -> Digest {
        self.tree
    }

    /// The source as asked.
    pub fn source(&self) -> &SourceRef {
        &self.source
    }

    /// The revision that the source resolved to; it never changes.
    pub fn resolved_revision(&self) -> &str {
        &self.resolved_revision
    }

    /// The entries, sorted by the bytes of their paths.
    pub fn entries(&self) -> &[SnapshotEntry] {
        &self.entries
    }

    /// What was left out of the source, sorted.
    pub fn omitted(&self) -> &[Omission] {
        &self.omitted
    }

    /// The entry at `path`.
    pub fn entry(&self, path: &str) -> Option<&SnapshotEntry> {
        self.entries
            .binary_search_by(|entry| entry.path.as_str().cmp(path))
            .ok()
            .map(|index| &self.entries[index])
    }

    /// The entries below the directory `path`.
    pub fn entries_below<'a>(&'a self, path: &str) -> &'a [SnapshotEntry] {
        let prefix = format!("{path}/");
        let start = self.entries.partition_point(|entry| entry.path.as_str() < prefix.as_str());
        let length = self.entries[start..].partition_point(|entry| entry.path.as_str().starts_with(&prefix));
        &self.entries[start..start + length]
    }

    /// The bytes of all files.
    pub fn total_bytes(&self) -> u64 {
        self.entries.iter().map(|entry| entry.node.size()).sum()
    }

    /// Groups of paths that differ only in letter case or Unicode form. They are legal; a file system that
    /// folds names must refuse them.
    pub fn twins(&self) -> Vec<Vec<&WorkspacePath>> {
        let mut groups: BTreeMap<String, Vec<&WorkspacePath>> = BTreeMap::new();
        for entry in &self.entries {
            groups.entry(entry.path.fold_key()).or_default().push(&entry.path);
        }
        groups.into_values().filter(|paths| paths.len() > 1).collect()
    }

    /// The canonical manifest, format 1: see `docs/formats/manifest.md`.
    pub fn to_manifest(&self) -> String {
        self.write_manifest().0
    }

    fn header(&self) -> String {
        let mut text = String::new();
        push_line(&mut text, &["coldframe-manifest", "1"]);
        push_line(&mut text, &["provider", &self.source.provider]);
        push_line(&mut text, &["locator", &self.source.locator]);
        push_line(&mut text, &["revision", &self.source.revision]);
        push_line(&mut text, &["resolved", &self.resolved_revision]);
        push_line(&mut text, &["tree", &self.tree.to_string()]);
        text
    }

    /// The manifest, and where in it the lines of the entries stand.
    fn write_manifest(&self) -> (String, Range<usize>) {
        let header = self.header();
        let mut text =
            String::with_capacity(header.len() + self.entries.len() * 160 + self.omitted.len() * 80 + 64);
        text.push_str(&header);
        for entry in &self.entries {
            push_entry(&mut text, &entry.path, &entry.node);
        }
        let lines = header.len()..text.len();
        for omission in &self.omitted {
            push_line(
                &mut text,
                &["o", omission.reason.as_str(), &omission.count.to_string(), &omission.subject],
            );
        }
        push_line(&mut text, &["end", &(self.entries.len() + self.omitted.len()).to_string()]);
        (text, lines)
    }

    /// Reads a canonical manifest. Every other spelling, a cut text, a wrong tree digest and a broken rule are
    /// integrity errors.
    pub fn from_manifest(bytes: &[u8]) -> Result<Self, SourceError> {
        let mut lines = Lines::new(READ, bytes)?;
        let [version] = lines.named("coldframe-manifest")?;
        if version != "1" {
            let detail = format!("format {version:?} is not known to this version; it reads format 1");
            return Err(SourceError::new(crate::ErrorKind::Unsupported, READ, detail));
        }
        let [provider] = lines.named("provider")?;
        let [locator] = lines.named("locator")?;
        let [revision] = lines.named("revision")?;
        let [resolved] = lines.named("resolved")?;
        let [tree] = lines.named("tree")?;
        let source = SourceRef {
            provider: lines.text(provider)?,
            locator: lines.text(locator)?,
            revision: lines.text(revision)?,
        };
        source.check().map_err(breaks_contract)?;
        let (resolved_revision, tree) = (lines.text(resolved)?, lines.digest(tree)?);
        if resolved_revision.is_empty() {
            return Err(lines.wrong("the resolved revision is empty"));
        }
        let first = lines.position();
        let (entries, omitted, last) = read_records(&mut lines)?;
        check_tree(entries.iter().map(|entry| (&entry.path, &entry.node))).map_err(breaks_contract)?;
        if tree_digest(&bytes[first..last]) != tree {
            return Err(SourceError::integrity(READ, "the tree digest does not match the entries"));
        }
        Ok(Self { id: Digest::of(bytes), tree, source, resolved_revision, entries, omitted })
    }
}

fn breaks_contract(error: SourceError) -> SourceError {
    SourceError::integrity(READ, "the manifest breaks the contract").with_source(error)
}

/// Entries, then omissions, each sorted as they are written, and where the lines of the entries end. Each record
/// has one spelling, so with their order checked the text is the canonical one and need not be made again.
fn read_records(lines: &mut Lines<'_>) -> Result<(Vec<SnapshotEntry>, Vec<Omission>, usize), SourceError> {
    let (mut entries, mut omitted): (Vec<SnapshotEntry>, Vec<Omission>) = (Vec::new(), Vec::new());
    let mut end = lines.position();
    // The line of a file is hardly shorter than this, and memory that stays unused costs nothing.
    entries.reserve(lines.bytes_left() / 80);
    loop {
        let fields = lines.next()?;
        if let Some(entry) = lines.entry(&fields)? {
            let follows = omitted.is_empty() && entries.last().is_none_or(|last| last.path < entry.path);
            if !follows {
                return Err(lines.wrong("the entries are not in their canonical order"));
            }
            entries.push(entry);
            end = lines.position();
        } else if fields.first() == Some(&"o") {
            let [reason, count, subject] = lines.expect(&fields, "o")?;
            let reason = OmissionReason::parse(reason).ok_or_else(|| lines.wrong("an unknown reason"))?;
            let omission = Omission { reason, subject: lines.text(subject)?, count: lines.number(count)? };
            let key = (omission.reason, omission.subject.as_str());
            if omitted.last().is_some_and(|last| (last.reason, last.subject.as_str()) >= key) {
                return Err(lines.wrong("the omissions are not in their canonical order"));
            }
            omitted.push(omission);
        } else {
            lines.end(&fields, entries.len() + omitted.len())?;
            return Ok((entries, omitted, end));
        }
    }
}

/// Checks sorted entries: no duplicate, nothing under a file or a link, no entry for a directory that has
/// entries.
pub(crate) fn check_tree<'a>(
    entries: impl Iterator<Item = (&'a WorkspacePath, &'a Node)>,
) -> Result<(), SourceError> {
    let refuse = |path: &WorkspacePath, detail: &str| {
        Err(SourceError::contract("check entries", detail.to_owned()).with_subject(path))
    };
    // Entries that could still be an ancestor of the next one. Sorted by bytes, `a-b` stands between `a` and
    // `a/b`, so a candidate stays until a path is met that no longer starts with it.
    let mut above: Vec<&WorkspacePath> = Vec::new();
    let mut last: Option<&WorkspacePath> = None;
    for (path, _) in entries {
        if last == Some(path) {
            return refuse(path, "the path appears twice");
        }
        while above.last().is_some_and(|candidate| !path.as_str().starts_with(candidate.as_str())) {
            above.pop();
        }
        if above.iter().any(|candidate| path.is_below(candidate)) {
            return refuse(path, "the path lies under an entry that is a file, a link or an empty directory");
        }
        above.push(path);
        last = Some(path);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn file(path: &str, content: &[u8]) -> SnapshotEntry {
        let node = Node::File { digest: Digest::of(content), size: content.len() as u64, executable: false };
        SnapshotEntry { path: WorkspacePath::parse(path).unwrap(), node }
    }

    fn seal(entries: Vec<SnapshotEntry>) -> Result<SourceSnapshot, SourceError> {
        let source = SourceRef::new("fixture", "project", "main").unwrap();
        SnapshotManifest { source, resolved_revision: "commit-1".to_owned(), entries, omitted: vec![] }.seal()
    }

    #[test]
    fn refuses_duplicates_and_entries_under_entries() {
        assert!(seal(vec![file("a", b"1"), file("a", b"2")]).is_err());
        assert!(seal(vec![file("a", b"1"), file("a/b", b"2")]).is_err());
        assert!(seal(vec![file("a", b"1"), file("a-b", b"2"), file("a/b", b"2")]).is_err());
        assert!(seal(vec![file("a-b", b"1"), file("a.b", b"2"), file("a/b", b"2"), file("ab", b"")]).is_ok());
        let directory = SnapshotEntry { path: WorkspacePath::parse("d").unwrap(), node: Node::Directory };
        assert!(seal(vec![directory, file("d/f", b"")]).is_err());
    }

    #[test]
    fn the_tree_digest_ignores_the_source_and_the_id_does_not() {
        let one = seal(vec![file("a", b"1")]).unwrap();
        let source = SourceRef::new("other", "elsewhere", "").unwrap();
        let entries = vec![file("a", b"1")];
        let two = SnapshotManifest { source, resolved_revision: String::new(), entries, omitted: vec![] }
            .seal()
            .unwrap();
        assert_eq!(one.tree(), two.tree());
        assert_ne!(one.id(), two.id());
        assert_eq!(two.resolved_revision(), format!("tree:{}", two.tree()));
    }

    #[test]
    fn twins_are_legal_and_reported() {
        let snapshot = seal(vec![file("README.md", b""), file("Readme.md", b""), file("x", b"")]).unwrap();
        let twins: Vec<Vec<&str>> = snapshot
            .twins()
            .into_iter()
            .map(|group| group.into_iter().map(|path| path.as_str()).collect())
            .collect();
        assert_eq!(twins, [["README.md", "Readme.md"]]);
    }

    #[test]
    fn every_cut_and_every_other_spelling_is_refused() {
        let text = seal(vec![file("a\tb\\\n", b"1"), file("z", b"2")]).unwrap().to_manifest();
        for end in 0..text.len() {
            assert!(SourceSnapshot::from_manifest(&text.as_bytes()[..end]).is_err(), "cut at {end}");
        }
        for (from, to) in [
            ("\tz\n", "\tz\n\n"),
            ("f\t1\t", "f\t01\t"),
            ("f\t1\t", "f\t+1\t"),
            ("end\t2", "end\t3"),
            ("\tz\n", "\t../z\n"),
        ] {
            assert!(text.contains(from), "{from:?}");
            assert!(SourceSnapshot::from_manifest(text.replace(from, to).as_bytes()).is_err(), "{to:?}");
        }
        let newer = text.replace("manifest\t1", "manifest\t2");
        let error = SourceSnapshot::from_manifest(newer.as_bytes()).unwrap_err();
        assert_eq!(error.kind(), crate::ErrorKind::Unsupported);
    }

    #[test]
    fn records_out_of_their_order_are_refused() {
        let left =
            |subject: &str| Omission { reason: OmissionReason::Fifo, subject: subject.to_owned(), count: 1 };
        let source = SourceRef::new("fixture", "project", "main").unwrap();
        let (entries, omitted) = (vec![file("a", b"1"), file("b", b"2")], vec![left("p"), left("q")]);
        let manifest = SnapshotManifest { source, resolved_revision: "r".to_owned(), entries, omitted };
        let text = manifest.seal().unwrap().to_manifest();
        let lines: Vec<&str> = text.split_inclusive('\n').collect();
        let after_header = 6;
        for first in after_header..lines.len() - 1 {
            for second in first + 1..lines.len() {
                let mut moved = lines.clone();
                moved.swap(first, second);
                assert!(
                    SourceSnapshot::from_manifest(moved.concat().as_bytes()).is_err(),
                    "{first} {second}"
                );
            }
            let mut twice = lines.clone();
            twice.insert(first, lines[first]);
            assert!(SourceSnapshot::from_manifest(twice.concat().as_bytes()).is_err(), "{first} twice");
        }
    }

    #[test]
    fn finds_entries_and_what_lies_below() {
        let snapshot =
            seal(vec![file("a-b", b""), file("a/x", b""), file("a/y/z", b""), file("ab", b"")]).unwrap();
        let below: Vec<&str> = snapshot.entries_below("a").iter().map(|entry| entry.path.as_str()).collect();
        assert_eq!(below, ["a/x", "a/y/z"]);
        assert!(snapshot.entry("ab").is_some() && snapshot.entry("a").is_none());
    }

    prop_compose! {
        fn any_entry()(path in "[a-d/\\\\\t\ne\u{301}-]{1,8}", content in 0u8..3, kind in 0u8..4) -> Option<SnapshotEntry> {
            let path = WorkspacePath::parse(path).ok()?;
            let node = match kind {
                0 => Node::Directory,
                1 => Node::Symlink { target: format!("../{}\t", path) },
                _ => Node::File { digest: Digest::of(&[content]), size: u64::from(content), executable: kind == 3 },
            };
            Some(SnapshotEntry { path, node })
        }
    }

    fn any_line() -> impl Strategy<Value = String> {
        let digest = Digest::of(b"x");
        let number = proptest::sample::select(vec!["0", "1", "01", "+1", ""]);
        let path = "[ab]{1,2}(/[ab])?|\\\\[tnrx]|a\r|";
        prop_oneof![
            (number.clone(), path, any::<bool>()).prop_map(move |(number, path, executable)| {
                format!("{}\t{number}\t{digest}\t{path}\n", if executable { 'x' } else { 'f' })
            }),
            (path, path).prop_map(|(target, path)| format!("l\t{target}\t{path}\n")),
            path.prop_map(|path| format!("d\t{path}\n")),
            (number, path).prop_map(|(number, subject)| format!("o\tfifo\t{number}\t{subject}\n")),
        ]
    }

    proptest! {
        #[test]
        fn a_manifest_round_trips_and_order_does_not_matter(entries in proptest::collection::vec(any_entry(), 0..12)) {
            let entries: Vec<_> = entries.into_iter().flatten().collect();
            if let Ok(snapshot) = seal(entries.clone()) {
                let text = snapshot.to_manifest();
                prop_assert_eq!(&SourceSnapshot::from_manifest(text.as_bytes()).unwrap(), &snapshot);
                let reversed = seal(entries.into_iter().rev().collect()).unwrap();
                prop_assert_eq!(reversed.id(), snapshot.id());
            }
        }

        #[test]
        fn one_changed_byte_never_reads_as_the_same_snapshot(position in 0usize..400, byte in any::<u8>()) {
            let snapshot = seal(vec![file("a", b"1"), file("b/c", b"2")]).unwrap();
            let mut text = snapshot.to_manifest().into_bytes();
            let position = position % text.len();
            prop_assume!(text[position] != byte);
            text[position] = byte;
            if let Ok(other) = SourceSnapshot::from_manifest(&text) {
                prop_assert_ne!(other.id(), snapshot.id());
                prop_assert_eq!(other.to_manifest().into_bytes(), text);
            }
        }

        #[test]
        fn whatever_reads_is_the_canonical_text_of_what_it_says(
            lines in proptest::collection::vec(any_line(), 0..5), header in 0usize..8
        ) {
            let mut body: String = lines.concat();
            let tree = tree_digest(body.split_inclusive('\n').filter(|line| !line.starts_with('o')).collect::<String>().as_bytes());
            let [locator, resolved] = [("l", "r"), ("", "r"), ("l", ""), ("\\t", "\\\\"), ("\\x", "r"), ("\r", "r"), ("l", "\\"), ("l", "tree:x")][header].into();
            body = format!("coldframe-manifest\t1\nprovider\tp\nlocator\t{locator}\nrevision\t\nresolved\t{resolved}\ntree\t{tree}\n{body}end\t{}\n", lines.len());
            if let Ok(snapshot) = SourceSnapshot::from_manifest(body.as_bytes()) {
                prop_assert_eq!(snapshot.to_manifest(), body.clone());
                let manifest = SnapshotManifest {
                    source: snapshot.source.clone(), resolved_revision: snapshot.resolved_revision.clone(),
                    entries: snapshot.entries.clone(), omitted: snapshot.omitted.clone(),
                };
                prop_assert_eq!(manifest.seal_with_text().unwrap(), (snapshot, body));
            }
        }
    }
}
