//! Answers for the sources and folders that the tests use.

use std::future::Future;
use std::path::{Path, PathBuf};

use coldframe_blob::{Store, capture_source};
use coldframe_core::{
    Capabilities, Digest, InlineFile, KnownFile, NewFile, Resolved, SnapshotLimits, SnapshotWriter,
    SourceAdapter, SourceError, SourceRef, SourceSnapshot, Stored, WorkspacePath, once,
};

pub(crate) fn run<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap().block_on(work)
}

pub(crate) fn path(text: &str) -> WorkspacePath {
    WorkspacePath::parse(text).unwrap()
}

pub(crate) fn source() -> SourceRef {
    SourceRef::new("fixture", "project", "main").unwrap()
}

pub(crate) fn stored(content: &[u8]) -> Stored {
    Stored { digest: Digest::of(content), size: content.len() as u64 }
}

/// Bytes that do not repeat and differ by seed.
pub(crate) fn content(seed: u64, length: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    };
    (0..length).map(|_| next()).collect()
}

/// A source of files that asks by digest first, as an incremental adapter does.
#[derive(Clone)]
pub(crate) struct Tree {
    pub(crate) files: Vec<(String, Vec<u8>)>,
    pub(crate) ask_first: bool,
}

impl Tree {
    pub(crate) fn new(files: &[(&str, &[u8])]) -> Self {
        let files = files.iter().map(|(path, content)| ((*path).to_owned(), content.to_vec())).collect();
        Self { files, ask_first: true }
    }

    /// Small files and one that stands alone.
    pub(crate) fn sample(seed: u64) -> Self {
        let mut files: Vec<(String, Vec<u8>)> = (0..12)
            .map(|number| {
                (format!("d{}/f{number}", number % 3), content(seed * 100 + number, 900 + number as usize))
            })
            .collect();
        files.push(("empty".to_owned(), Vec::new()));
        files.push(("large".to_owned(), content(seed * 100 + 99, (1 << 20) + 4321)));
        Self { files, ask_first: true }
    }
}

impl SourceAdapter for Tree {
    fn provider(&self) -> &str {
        "fixture"
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::new().with_incremental_recapture()
    }

    async fn capture(
        &self,
        source: &SourceRef,
        writer: &dyn SnapshotWriter,
    ) -> Result<Resolved, SourceError> {
        let known = |(at, content): &(String, Vec<u8>)| {
            let Stored { digest, size } = stored(content);
            KnownFile { path: path(at), executable: false, digest, size }
        };
        let answers = match self.ask_first {
            true => writer.known(self.files.iter().map(known).collect()).await?,
            false => vec![false; self.files.len()],
        };
        let mut small = Vec::new();
        for ((at, content), _) in self.files.iter().zip(answers).filter(|(_, known)| !known) {
            if content.len() < 1 << 20 {
                small.push(InlineFile { path: path(at), executable: false, content: content.clone() });
            } else {
                let size = Some(content.len() as u64);
                writer
                    .file(NewFile { path: path(at), executable: false, size }, once(content.clone()))
                    .await?;
            }
        }
        writer.files(small).await?;
        Ok(Resolved::new(source.clone(), "commit-1"))
    }
}

pub(crate) async fn capture(store: &Store, tree: &Tree) -> Result<SourceSnapshot, SourceError> {
    capture_source(tree, &source(), store, SnapshotLimits::default()).await
}

/// The files below a folder of a store, sorted.
pub(crate) fn files_below(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            let kind = entry.file_type().unwrap();
            if kind.is_dir() { folders.push(entry.path()) } else { found.push(entry.path()) }
        }
    }
    found.sort();
    found
}

/// The one file below `folder` whose name ends so.
pub(crate) fn only_file(folder: &Path, end: &str) -> PathBuf {
    let mut files = files_below(folder);
    files.retain(|file| file.to_str().unwrap().ends_with(end));
    assert_eq!(files.len(), 1, "{files:?}");
    files.remove(0)
}

/// Unfinished objects of the store.
pub(crate) fn staged(root: &Path) -> Vec<PathBuf> {
    let mut files = files_below(&root.join("staging"));
    files.retain(|file| file.file_name().unwrap() != "lock");
    files
}

/// Waits for what runs in the background.
pub(crate) async fn eventually(holds: impl Fn() -> bool) -> bool {
    for _ in 0..500 {
        if holds() {
            return true;
        }
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    false
}

impl Tree {
    /// The same as the adapter's capture, for adapters that do more.
    pub(crate) async fn capture_into(
        &self,
        source: &SourceRef,
        writer: &dyn SnapshotWriter,
    ) -> Result<Resolved, SourceError> {
        SourceAdapter::capture(self, source, writer).await
    }
}
