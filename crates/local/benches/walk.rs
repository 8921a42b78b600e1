//! Times a first capture and a recapture of a tree; `cargo bench -p coldframe-local` makes one of 30,000 files.
//!
//! `COLDFRAME_BENCH_TREE` names another tree, `COLDFRAME_BENCH_ROUNDS` another number of recaptures. The writer drops every byte, so the numbers are those of the
//! reading side alone.

use std::path::{Path, PathBuf};
use std::time::Instant;

use coldframe_core::{
    BoxFuture, ByteStream, Digest, DynSourceAdapter, InlineFile, KnownFile, NewFile, Omission,
    SnapshotLimits, SnapshotWriter, SourceError, SourceRef, Stored, WorkspacePath,
};
use coldframe_local::LocalSource;
use futures_util::StreamExt as _;

/// Takes everything and keeps nothing.
struct Sink;

impl SnapshotWriter for Sink {
    fn limits(&self) -> SnapshotLimits {
        SnapshotLimits::workstation()
    }

    fn file<'a>(
        &'a self,
        _file: NewFile,
        mut content: ByteStream<'a>,
    ) -> BoxFuture<'a, Result<Stored, SourceError>> {
        Box::pin(async move {
            let mut size = 0;
            while let Some(chunk) = content.next().await {
                size += chunk?.len() as u64;
            }
            Ok(Stored { digest: Digest::of(&size.to_le_bytes()), size })
        })
    }

    fn files<'a>(&'a self, files: Vec<InlineFile>) -> BoxFuture<'a, Result<Vec<Stored>, SourceError>> {
        let stored = |file: &InlineFile| Stored { digest: Digest::of(b""), size: file.content.len() as u64 };
        let answers = files.iter().map(stored).collect();
        Box::pin(async move { Ok(answers) })
    }

    fn known<'a>(&'a self, files: Vec<KnownFile>) -> BoxFuture<'a, Result<Vec<bool>, SourceError>> {
        Box::pin(async move { Ok(vec![true; files.len()]) })
    }

    fn symlink(&self, _path: WorkspacePath, _target: String) -> Result<(), SourceError> {
        Ok(())
    }

    fn directory(&self, _path: WorkspacePath) -> Result<(), SourceError> {
        Ok(())
    }

    fn omit(&self, _omission: Omission) {}
}

fn make_tree(root: &Path) {
    for index in 0..30_000u32 {
        let folder = root.join(format!("package-{}/module-{}", index % 60, index % 1_000));
        std::fs::create_dir_all(&folder).expect("the tree can be made");
        let length = if index % 100 == 0 { 1_500_000 } else { 8_000 };
        std::fs::write(folder.join(format!("file-{index}.rs")), vec![index as u8; length])
            .expect("room for it");
    }
    std::fs::write(root.join(".gitignore"), "*.log\n/target/\nnode_modules/\n*.tmp\n").expect("room for it");
    std::thread::sleep(std::time::Duration::from_millis(50));
}

fn main() {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let root = std::env::var_os("COLDFRAME_BENCH_TREE").map_or_else(
        || {
            let root = folder.path().join("tree");
            make_tree(&root);
            root
        },
        PathBuf::from,
    );
    let text = root.to_str().expect("a tree whose path is text");
    let source = SourceRef::new(LocalSource::PROVIDER, text, "").expect("a locator");
    let runtime = tokio::runtime::Builder::new_multi_thread().build().expect("a runtime");
    let cached = LocalSource::new().with_cache(folder.path().join("cache"));
    let time = |name: &str, adapter: &LocalSource| {
        let adapter: &dyn DynSourceAdapter = adapter;
        let start = Instant::now();
        runtime.block_on(adapter.capture(&source, &Sink)).expect("the tree can be captured");
        println!("{name}: {:.1} ms", start.elapsed().as_secs_f64() * 1000.0);
    };
    time("first capture, cold cache of the disk perhaps", &LocalSource::new());
    time("first capture, warm", &LocalSource::new());
    time("first capture that fills the stat cache", &cached);
    let rounds = std::env::var("COLDFRAME_BENCH_ROUNDS").ok().and_then(|text| text.parse().ok()).unwrap_or(5);
    for _ in 0..rounds {
        time("recapture of the unchanged tree", &cached);
    }
}
