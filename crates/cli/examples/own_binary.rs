//! A binary of one's own: the whole command line with one more source adapter.

use std::process::ExitCode;

use coldframe::core::WorkspacePath;
use coldframe::core::{
    Capabilities, InlineFile, Resolved, SnapshotWriter, SourceAdapter, SourceError, SourceRef,
};

/// `greeting:NAME` holds one file.
struct Greeting;

impl SourceAdapter for Greeting {
    fn provider(&self) -> &str {
        "greeting"
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::new()
    }

    async fn capture(
        &self,
        source: &SourceRef,
        writer: &dyn SnapshotWriter,
    ) -> Result<Resolved, SourceError> {
        let content = format!("Hello, {}!\n", source.locator).into_bytes();
        let path = WorkspacePath::parse("greeting.txt")?;
        writer.files(vec![InlineFile { path, executable: false, content }]).await?;
        Ok(Resolved::new(source.clone(), ""))
    }
}

fn main() -> ExitCode {
    coldframe_cli::run(coldframe::Runner::new().source(Greeting))
}
