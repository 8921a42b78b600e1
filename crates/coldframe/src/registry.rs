//! Which adapter answers for which source: explicit registration, and the text forms of a source.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use coldframe_core::{DynSourceAdapter, SourceRef};

use crate::{Error, Kind};

/// Forms that other tools use for sources that this build has no adapter for.
const ARCHIVE_ENDINGS: [&str; 9] =
    [".tar", ".tar.gz", ".tgz", ".tar.zst", ".tar.xz", ".tar.bz2", ".tbz2", ".txz", ".zip"];

/// The adapters of a program, by provider name.
#[derive(Clone, Default)]
pub struct Registry {
    adapters: BTreeMap<String, Arc<dyn DynSourceAdapter>>,
}

impl std::fmt::Debug for Registry {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_set().entries(self.adapters.keys()).finish()
    }
}

impl Registry {
    /// A registry without adapters.
    pub fn new() -> Self {
        Self::default()
    }

    /// Registers an adapter under its provider name; a later one of that name replaces an earlier one.
    pub fn register(&mut self, adapter: impl DynSourceAdapter + 'static) {
        self.adapters.insert(adapter.provider().to_owned(), Arc::new(adapter));
    }

    /// The provider names, sorted.
    pub fn providers(&self) -> impl Iterator<Item = &str> {
        self.adapters.keys().map(String::as_str)
    }

    /// The adapter of a source.
    ///
    /// # Errors
    ///
    /// `Contract` where this build has none of that provider; the message names those it has.
    pub fn adapter(&self, source: &SourceRef) -> Result<&Arc<dyn DynSourceAdapter>, Error> {
        self.adapters.get(&source.provider).ok_or_else(|| self.no_adapter(&source.provider))
    }

    /// Reads a source as a user writes it: a path, `local:PATH`, or `PROVIDER:LOCATOR[@REVISION]` for another
    /// registered provider. A relative path is taken from `directory`. A path that has a colon is written with
    /// a leading `./`.
    ///
    /// # Errors
    ///
    /// `NotFound` for a path that does not exist, `Contract` for a form that this build has no adapter for.
    pub fn parse(&self, text: &str, directory: &Path) -> Result<SourceRef, Error> {
        if text.is_empty() {
            return Err(Error::new(Kind::Contract, "the source is empty; give a path such as `.`"));
        }
        match text.split_once(':') {
            Some(("local", path)) => local(path, directory),
            Some((scheme, rest)) if is_scheme(scheme) => {
                // `git+https://…` names the provider before the plus.
                let provider = scheme.split('+').next().unwrap_or(scheme);
                if !self.adapters.contains_key(provider) {
                    return Err(self.no_adapter(provider));
                }
                let whole = if scheme.contains('+') { &text[provider.len() + 1..] } else { rest };
                let (locator, revision) = parted_revision(whole);
                Ok(SourceRef::new(provider, locator, revision)?)
            }
            _ => local(text, directory),
        }
    }

    fn no_adapter(&self, provider: &str) -> Error {
        let known = self.providers().collect::<Vec<_>>().join(", ");
        let message = format!(
            "this build has no adapter for {provider:?} sources (it has: {known}); for a path that has a colon, write ./PATH"
        );
        Error::new(Kind::Contract, message)
    }
}

/// A scheme as in a URI; a lone letter is none, and a path segment before the colon is none.
fn is_scheme(text: &str) -> bool {
    text.len() > 1
        && text.starts_with(|letter: char| letter.is_ascii_lowercase())
        && text
            .bytes()
            .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"+-".contains(&byte))
}

/// Parts `@REVISION` off, unless the `@` belongs to the authority of a URL (`user@host`).
fn parted_revision(text: &str) -> (&str, &str) {
    match text.rsplit_once('@') {
        Some((locator, revision)) if !locator.is_empty() && !locator.ends_with("://") => {
            let names_user = locator.find("://").is_some_and(|start| !locator[start + 3..].contains('/'));
            if names_user { (text, "") } else { (locator, revision) }
        }
        _ => (text, ""),
    }
}

fn local(path: &str, directory: &Path) -> Result<SourceRef, Error> {
    let path = directory.join(path);
    let real = real_directory(&path)?;
    let locator = real.to_str().ok_or_else(|| {
        let message =
            format!("the source {path:?} has a name that is not UTF-8; rename it or mount it elsewhere");
        Error::new(Kind::Contract, message)
    })?;
    Ok(SourceRef::new("local", locator, "")?)
}

fn real_directory(path: &Path) -> Result<PathBuf, Error> {
    let real = path.canonicalize().map_err(|error| Error::io(format!("open the source {path:?}"), &error))?;
    if real.is_dir() {
        return Ok(real);
    }
    let name = real.to_string_lossy().to_ascii_lowercase();
    let message = if ARCHIVE_ENDINGS.iter().any(|ending| name.ends_with(ending)) {
        format!("the source {path:?} is an archive, and this build has no archive adapter; unpack it first")
    } else {
        format!("the source {path:?} is a file; give the directory that holds it")
    };
    Err(Error::new(Kind::Contract, message))
}

#[cfg(test)]
mod tests {
    use coldframe_core::{Capabilities, Resolved, SnapshotWriter, SourceAdapter, SourceError};

    use super::*;

    struct Feed;

    impl SourceAdapter for Feed {
        fn provider(&self) -> &str {
            "feed"
        }

        fn capabilities(&self) -> Capabilities {
            Capabilities::new()
        }

        async fn capture(&self, source: &SourceRef, _: &dyn SnapshotWriter) -> Result<Resolved, SourceError> {
            Ok(Resolved::new(source.clone(), ""))
        }
    }

    fn parse(text: &str) -> Result<(String, String, String), Error> {
        let mut registry = Registry::new();
        registry.register(Feed);
        let source = registry.parse(text, Path::new("/"))?;
        Ok((source.provider, source.locator, source.revision))
    }

    fn triple(provider: &str, locator: &str, revision: &str) -> (String, String, String) {
        (provider.to_owned(), locator.to_owned(), revision.to_owned())
    }

    #[test]
    fn paths_and_registered_providers_are_read() {
        assert_eq!(parse("/usr").unwrap(), triple("local", "/usr", ""));
        assert_eq!(parse("local:usr").unwrap(), triple("local", "/usr", ""));
        assert_eq!(parse("feed:news@7").unwrap(), triple("feed", "news", "7"));
        assert_eq!(parse("feed+https://a@host/x@main").unwrap(), triple("feed", "https://a@host/x", "main"));
        assert_eq!(parse("feed+https://a@host").unwrap(), triple("feed", "https://a@host", ""));
    }

    #[test]
    fn a_form_without_an_adapter_says_so() {
        for text in ["github:owner/repo", "git+https://example.org/x", "s3://bucket/prefix", "file:///usr"] {
            let error = parse(text).unwrap_err();
            assert_eq!(error.kind(), Kind::Contract, "{text}");
            assert!(error.to_string().contains("no adapter"), "{error}");
        }
    }

    #[test]
    fn a_missing_path_a_file_and_an_archive_are_told_apart() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("x.tar.gz"), "").unwrap();
        std::fs::write(folder.path().join("x.txt"), "").unwrap();
        std::fs::create_dir(folder.path().join("a:b")).unwrap();
        let registry = Registry::new();
        let parse = |text: &str| registry.parse(text, folder.path());
        assert_eq!(parse("none").unwrap_err().kind(), Kind::NotFound);
        assert!(parse("x.tar.gz").unwrap_err().to_string().contains("unpack"));
        assert!(parse("x.txt").unwrap_err().to_string().contains("is a file"));
        assert!(parse("./a:b").is_ok());
        assert_eq!(parse("").unwrap_err().kind(), Kind::Contract);
    }
}
