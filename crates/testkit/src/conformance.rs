//! The macro that makes one named test of each clause, and what those tests run on.

use std::time::Duration;

use crate::SourceFixture;

/// One clause: what it found wrong, in words.
pub type Clause = fn(&dyn SourceFixture) -> Result<(), String>;

/// No clause may take longer; a hang is a failure.
const DEADLINE: Duration = Duration::from_secs(60);

/// Runs `work` on a fresh tokio runtime with two threads.
///
/// # Panics
/// Where the runtime cannot start, or the work takes longer than a minute.
pub fn block_on<T>(work: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_time()
        .build()
        .expect("a test needs a runtime");
    let outcome = runtime.block_on(async { tokio::time::timeout(DEADLINE, work).await });
    runtime.shutdown_background();
    outcome.expect("the work took longer than a minute")
}

/// Runs one clause and panics with what it found.
///
/// # Panics
/// Where the clause does not hold.
pub fn check(name: &str, clause: Clause, fixture: &dyn SourceFixture) {
    if let Err(finding) = clause(fixture) {
        panic!("the adapter breaks the clause {name}: {finding}");
    }
}

/// Expands to a module `source_conformance` with one `#[test]` per clause of [`crate::clauses`], each over a
/// fresh value of the given [`crate::SourceFixture`] expression.
///
/// ```
/// # use coldframe_testkit::{FixtureNode, MemorySource, PreparedSource, SourceFixture};
/// # use coldframe_core::SourceRef;
/// struct MemoryFixture;
///
/// impl SourceFixture for MemoryFixture {
///     fn prepare(&self, nodes: &[FixtureNode]) -> PreparedSource {
///         let source = SourceRef::new("memory", MemorySource::LOCATOR, "").unwrap();
///         PreparedSource::new(MemorySource::new(nodes.to_vec()), source)
///     }
///
///     fn missing(&self) -> PreparedSource {
///         PreparedSource::new(MemorySource::default(), SourceRef::new("memory", "nowhere", "").unwrap())
///     }
/// }
///
/// coldframe_testkit::source_conformance!(MemoryFixture);
/// # fn main() {}
/// ```
#[macro_export]
macro_rules! source_conformance {
    ($fixture:expr) => {
        mod source_conformance {
            #[allow(unused_imports, reason = "the fixture's expression decides what it needs")]
            use super::*;

            $crate::source_conformance!(@tests $fixture;
                identity_is_preserved
                bytes_are_exact
                executable_bits_are_kept
                symlinks_are_kept_as_text
                empty_directories_are_kept
                an_empty_source_is_a_snapshot
                too_many_files_are_refused
                a_file_over_its_limit_is_refused
                too_many_bytes_are_refused
                recapture_gives_the_same_id
                recapture_reads_nothing_again
                a_missing_source_is_not_found
                revisions_answer_as_declared
                a_full_store_is_reported
                a_dropped_capture_leaves_nothing
                errors_are_short_and_hold_no_credential
            );
        }
    };
    (@tests $fixture:expr; $($clause:ident)*) => {
        $(
            #[test]
            fn $clause() {
                $crate::check(stringify!($clause), $crate::clauses::$clause, &$fixture);
            }
        )*

        #[test]
        fn every_clause_of_the_kit_is_tested() {
            let tested = [$(stringify!($clause)),*];
            let missing: Vec<&str> = $crate::clauses::ALL
                .iter()
                .map(|(name, _)| *name)
                .filter(|name| !tested.contains(name))
                .collect();
            assert!(missing.is_empty(), "{missing:?}");
        }
    };
}
