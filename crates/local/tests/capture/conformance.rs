//! The clauses that every adapter meets, with and without a cache.

use std::time::Duration;

use coldframe_testkit::{FixtureNode, PreparedSource, SourceFixture};

use super::{LocalSource, Tree, reference};

#[derive(Default)]
struct LocalFixture {
    with_cache: bool,
}

impl LocalFixture {
    fn adapter(&self, tree: &Tree) -> LocalSource {
        let adapter = LocalSource::new();
        if self.with_cache { adapter.with_cache(tree.folder.path().join("cache")) } else { adapter }
    }
}

impl SourceFixture for LocalFixture {
    fn prepare(&self, nodes: &[FixtureNode]) -> PreparedSource {
        let tree = Tree::new(nodes);
        std::thread::sleep(Duration::from_millis(30));
        let (adapter, source) = (self.adapter(&tree), reference(&tree.root()));
        PreparedSource::new(adapter, source).with_guard(tree.folder)
    }

    fn missing(&self) -> PreparedSource {
        let tree = Tree::new(&[]);
        let (adapter, source) = (self.adapter(&tree), reference(&tree.path("missing")));
        PreparedSource::new(adapter, source).with_guard(tree.folder)
    }
}

mod without_cache {
    use super::*;
    coldframe_testkit::source_conformance!(LocalFixture::default());
}

mod with_cache {
    use super::*;
    coldframe_testkit::source_conformance!(LocalFixture { with_cache: true });
}
