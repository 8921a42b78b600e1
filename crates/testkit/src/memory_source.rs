//! A reference source adapter over nodes in memory.

use coldframe_core::{
    Capabilities, ErrorKind, InlineFile, NewFile, Resolved, SnapshotWriter, SourceAdapter, SourceError,
    SourceRef, WorkspacePath, once,
};

use crate::FixtureNode;

/// Files up to this size travel whole, others as a stream.
const INLINE_BYTES: usize = 64 << 10;

/// Serves the nodes it was made with under provider `memory`.
#[derive(Debug, Clone, Default)]
pub struct MemorySource {
    nodes: Vec<FixtureNode>,
}

impl MemorySource {
    /// The one locator that exists.
    pub const LOCATOR: &'static str = "tree";

    /// A source that holds `nodes`.
    pub fn new(nodes: Vec<FixtureNode>) -> Self {
        Self { nodes }
    }
}

impl SourceAdapter for MemorySource {
    fn provider(&self) -> &str {
        "memory"
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::new().with_executable_bits().with_symlinks()
    }

    async fn capture(
        &self,
        source: &SourceRef,
        writer: &dyn SnapshotWriter,
    ) -> Result<Resolved, SourceError> {
        if !source.revision.is_empty() {
            let detail = "a tree in memory has no revisions; leave the revision empty";
            return Err(SourceError::new(ErrorKind::Unsupported, "capture", detail));
        }
        if source.locator != Self::LOCATOR {
            let error = SourceError::new(ErrorKind::NotFound, "capture", "there is no such tree in memory");
            return Err(error.with_subject(&source.locator));
        }
        for node in &self.nodes {
            let path = WorkspacePath::parse(node.path())?;
            match node.clone() {
                FixtureNode::Directory { .. } => writer.directory(path)?,
                FixtureNode::Symlink { target, .. } => writer.symlink(path, target)?,
                FixtureNode::File { content, executable, .. } if content.len() <= INLINE_BYTES => {
                    writer.files(vec![InlineFile { path, executable, content }]).await?;
                }
                FixtureNode::File { content, executable, .. } => {
                    let file = NewFile { path, executable, size: Some(content.len() as u64) };
                    writer.file(file, once(content)).await?;
                }
            }
        }
        Ok(Resolved::new(source.clone(), ""))
    }
}
