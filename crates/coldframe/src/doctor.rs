//! What this host and this home can do, proved by trying.

use std::path::PathBuf;

use coldframe_sandbox::{HostReport, Isolation};
use serde::Serialize;

use crate::toolchain::{Surroundings, Toolchains};
use crate::{Config, Error, Home, Runner};

/// The report of `doctor`.
#[derive(Debug, Clone, Serialize)]
pub struct Diagnosis {
    /// The version of this program.
    pub version: &'static str,
    /// The state folder.
    pub home: PathBuf,
    /// The configuration file, where there is one.
    pub config: Option<PathBuf>,
    /// What the host can do.
    pub host: HostReport,
    /// Whether the host gives the isolation that the configuration requires.
    pub isolation_suffices: bool,
    /// What commands see of the caller's programs.
    pub toolchains: Toolchains,
}

impl Runner {
    /// Looks at the host, the home and the configuration. It needs no store, so that it works where one is
    /// damaged.
    ///
    /// # Errors
    ///
    /// Those of [`Runner::settings`].
    pub async fn diagnose(&self) -> Result<Diagnosis, Error> {
        let (home, config) = self.settings()?;
        let host = coldframe_sandbox::probe(&home.cache().join("sandbox")).await;
        let needed = config.policy(&Toolchains::system())?.required_isolation;
        Ok(Diagnosis {
            version: env!("CARGO_PKG_VERSION"),
            isolation_suffices: needed == Isolation::None || host.isolation == needed.to_string(),
            host,
            toolchains: toolchains(&home, &config),
            home: home.root().to_path_buf(),
            config: config.file,
        })
    }
}

fn toolchains(home: &Home, config: &Config) -> Toolchains {
    match config.toolchains {
        crate::ToolchainMode::Off => Toolchains::system(),
        crate::ToolchainMode::Auto => {
            Toolchains::discover(&Surroundings::from_environment().with_off_limits(home.root()))
        }
    }
}
