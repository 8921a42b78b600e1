//! Puts a program together: home, configuration and adapters, then opens it.

use std::path::{Path, PathBuf};

use coldframe_blob::Store;
use coldframe_core::DynSourceAdapter;
use coldframe_local::LocalSource;

use crate::toolchain::Surroundings;
use crate::{Coldframe, Config, Error, Home, Registry};

/// Composes a program from its parts. A binary of one's own registers its adapters here and hands the runner to
/// the command line.
#[derive(Debug, Clone, Default)]
pub struct Runner {
    registry: Registry,
    home: Option<PathBuf>,
    config_file: Option<PathBuf>,
    config: Option<Config>,
    surroundings: Option<Surroundings>,
}

impl Runner {
    /// A runner with the adapters of this build: `local`.
    pub fn new() -> Self {
        Self::default()
    }

    /// Registers a source adapter. One with the provider name `local` replaces the built-in one.
    #[must_use]
    pub fn source(mut self, adapter: impl DynSourceAdapter + 'static) -> Self {
        self.registry.register(adapter);
        self
    }

    /// Keeps state in `home` in place of the folder that the environment names.
    #[must_use]
    pub fn with_home(mut self, home: impl Into<PathBuf>) -> Self {
        self.home = Some(home.into());
        self
    }

    /// Reads the trusted configuration from `file` in place of the home's `config.toml`.
    #[must_use]
    pub fn with_config_file(mut self, file: impl Into<PathBuf>) -> Self {
        self.config_file = Some(file.into());
        self
    }

    /// Takes this configuration and reads no file.
    #[must_use]
    pub fn with_config(mut self, config: Config) -> Self {
        self.config = Some(config);
        self
    }

    /// Looks for toolchains in these surroundings in place of the process's own.
    #[must_use]
    pub fn with_surroundings(mut self, surroundings: Surroundings) -> Self {
        self.surroundings = Some(surroundings);
        self
    }

    /// Opens the home and the configuration, and no store yet: for commands that look at the host alone.
    ///
    /// # Errors
    ///
    /// Those of [`Home::at`] and [`Config::load`].
    pub fn settings(&self) -> Result<(Home, Config), Error> {
        let home = match &self.home {
            Some(root) => Home::at(&absolute(root)?)?,
            None => Home::from_environment()?,
        };
        let config = match &self.config {
            Some(config) => config.clone(),
            None => Config::load(self.config_file.as_deref(), &home)?,
        };
        Ok((home, config))
    }

    /// Opens everything.
    ///
    /// # Errors
    ///
    /// Those of [`Runner::settings`], and those of the store.
    pub async fn open(self) -> Result<Coldframe, Error> {
        let (home, config) = self.settings()?;
        let store = Store::open_local(&home.store()).await?;
        let mut registry = self.registry;
        if !registry.providers().any(|provider| provider == "local") {
            registry.register(
                LocalSource::new().with_cache(crate::capture::stat_cache(&home)).with_reserved(home.root()),
            );
        }
        let surroundings = self.surroundings.unwrap_or_else(Surroundings::from_environment);
        Ok(Coldframe::assemble(home, config, store, registry, surroundings))
    }
}

fn absolute(path: &Path) -> Result<PathBuf, Error> {
    std::path::absolute(path).map_err(|error| Error::io(format!("find {path:?}"), &error))
}
