//! Turns trusted configuration and toolchains into the policy that a workspace runs under.

use std::collections::BTreeMap;
use std::path::Path;

use coldframe_sandbox::{Access, CommandRule, Grant, Isolation, Policy, Strategy};

use crate::config::{MaterializeStrategy, Programs, RequiredIsolation};
use crate::toolchain::{Toolchains, hidden_in, is_system, may_be_bound};
use crate::{Config, Error, Kind};

impl Config {
    /// The policy of this configuration with `toolchains` made visible.
    ///
    /// # Errors
    ///
    /// `Refused` where a cache folder of `[environment]` may not be bound, such as the user's whole home.
    pub fn policy(&self, toolchains: &Toolchains) -> Result<Policy, Error> {
        let defaults = Policy::default();
        let commands = match (&self.programs, defaults.commands.clone()) {
            (Programs::Only(names), _) => CommandRule::Only(names.clone()),
            (Programs::Extended(more), CommandRule::Only(names)) => CommandRule::Only(&names | more),
            (Programs::Extended(_) | Programs::Default, rule) => rule,
        };
        let search_path = match &self.search_path {
            Some(entries) => entries.clone(),
            None if toolchains.search_path.is_empty() => defaults.search_path.clone(),
            None => toolchains.search_path.clone(),
        };
        let mut policy = defaults
            .with_commands(commands)
            .with_search_path(search_path)
            .with_grants(self.grants(toolchains)?)
            .with_environment(self.variables(toolchains))
            .with_timeout(self.timeout)
            .with_required_isolation(match self.required_isolation {
                RequiredIsolation::Full => Isolation::Full,
                RequiredIsolation::None => Isolation::None,
            })
            .with_strategy(match self.strategy {
                MaterializeStrategy::Auto => Strategy::Auto,
                MaterializeStrategy::Overlay => Strategy::Overlay,
                MaterializeStrategy::Copy => Strategy::Copy,
            });
        if let Some(exclude) = &self.exclude {
            policy = policy.with_exclude(exclude.clone());
        }
        if let Some(bytes) = self.max_write_bytes {
            policy = policy.with_max_write_bytes(bytes);
        }
        if let Some(bytes) = self.max_output_bytes {
            policy = policy.with_max_output_bytes(bytes);
        }
        Ok(policy)
    }

    fn grants(&self, toolchains: &Toolchains) -> Result<Vec<Grant>, Error> {
        let mut grants: Vec<Grant> = Vec::new();
        for (name, folder) in &self.environment {
            let refuse = |reason: String| {
                Error::new(
                    Kind::Refused,
                    format!("environment.{name}: {folder:?} may not be bound: {reason}"),
                )
            };
            may_be_bound(folder).map_err(refuse)?;
            // Toolchains are programs: a command that could write to them would choose what the next one runs.
            let access = if name == "RUSTUP_HOME" { Access::ReadOnly } else { Access::ReadWrite };
            grants.push(Grant { path: folder.clone(), access, hidden: hidden_in(folder) });
        }
        // A folder of PATH from the configuration is trusted as it stands; it only has to be visible.
        for folder in self.search_path.iter().flatten().filter(|folder| !is_system(folder)) {
            if !is_covered(&grants, folder) {
                grants.push(Grant { hidden: hidden_in(folder), ..Grant::read_only(folder) });
            }
        }
        for granted in &toolchains.grants {
            if !is_covered(&grants, &granted.path) {
                grants.push(Grant { hidden: granted.hidden.clone(), ..Grant::read_only(&granted.path) });
            }
        }
        // An outer folder is bound before the ones in it.
        grants.sort_by_key(|grant| grant.path.components().count());
        Ok(grants)
    }

    fn variables(&self, toolchains: &Toolchains) -> BTreeMap<String, String> {
        let given =
            self.environment.iter().map(|(name, folder)| (name.clone(), folder.display().to_string()));
        toolchains.environment.clone().into_iter().chain(given).collect()
    }
}

fn is_covered(grants: &[Grant], path: &Path) -> bool {
    grants.iter().any(|grant| path.starts_with(&grant.path))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::toolchain::GrantedFolder;

    fn names(policy: &Policy) -> BTreeSet<String> {
        match &policy.commands {
            CommandRule::Only(names) => names.clone(),
            CommandRule::Any => panic!("every program is allowed"),
        }
    }

    #[test]
    fn the_list_of_programs_is_extended_or_replaced() {
        let policy = |text: &str| Config::parse(text).unwrap().policy(&Toolchains::system()).unwrap();
        let built_in = names(&policy(""));
        let more = names(&policy("[commands]\nextend = ['my-tool']"));
        assert_eq!(&more - &built_in, BTreeSet::from(["my-tool".to_owned()]));
        assert_eq!(names(&policy("[commands]\nallow = ['my-tool']")), ["my-tool".to_owned()].into());
    }

    #[test]
    fn a_configured_cache_is_writable_and_covers_what_the_toolchain_needs_of_it() {
        let folder = tempfile::tempdir_in("/var/tmp").unwrap();
        std::fs::create_dir(folder.path().join("registry")).unwrap();
        std::fs::write(folder.path().join("credentials.toml"), "").unwrap();
        let config = Config::parse(&format!("[environment]\nCARGO_HOME = {:?}", folder.path())).unwrap();
        let mut toolchains = Toolchains::system();
        let reason = String::new();
        toolchains.grants.push(GrantedFolder {
            path: folder.path().join("registry"),
            hidden: vec![],
            reason,
        });
        toolchains.environment.insert("CARGO_HOME".into(), "/elsewhere".into());
        let policy = config.policy(&toolchains).unwrap();
        let hidden = vec![folder.path().join("credentials.toml")];
        let path = folder.path().to_path_buf();
        assert_eq!(policy.grants, [Grant { path, access: Access::ReadWrite, hidden }]);
        assert_eq!(policy.environment["CARGO_HOME"], folder.path().display().to_string());
        assert!(policy.check().is_ok());
    }

    #[test]
    fn a_cache_that_is_a_folder_of_the_whole_system_is_refused() {
        for folder in ["/", "/etc", "/usr/.."] {
            let text = format!("[environment]\nGOCACHE = '{folder}'");
            let refused =
                Config::parse(&text).map_or(true, |config| config.policy(&Toolchains::system()).is_err());
            assert!(refused, "{folder}");
        }
    }
}
