//! Compares the dependencies between the packages of the workspace with the one table of allowed edges.

use crate::workspace::Package;

/// Which package may name which others in its normal dependencies. Siblings never name each other; they meet
/// in the facade.
const NORMAL: &[(&str, &[&str])] = &[
    ("coldframe-core", &[]),
    ("coldframe-blob", &["coldframe-core"]),
    ("coldframe-delta", &["coldframe-core"]),
    ("coldframe-evidence", &["coldframe-core"]),
    ("coldframe-local", &["coldframe-core"]),
    ("coldframe-mesh", &["coldframe-core"]),
    ("coldframe-sandbox", &["coldframe-core"]),
    ("coldframe-testkit", &["coldframe-core"]),
    (
        "coldframe",
        &[
            "coldframe-blob",
            "coldframe-core",
            "coldframe-delta",
            "coldframe-evidence",
            "coldframe-local",
            "coldframe-mesh",
            "coldframe-sandbox",
        ],
    ),
    ("coldframe-cli", &["coldframe"]),
    ("xtask", &[]),
];

/// What tests, benchmarks and examples may name besides.
const DEVELOPMENT: &[(&str, &[&str])] = &[("coldframe-e2e", &["coldframe", "coldframe-testkit"])];

/// What the tests of every package but core may name.
const TESTKIT: &str = "coldframe-testkit";

/// The contract crate may have this many direct dependencies.
const MOST_OF_CORE: usize = 5;

/// All edges that the table does not allow, and all packages that lack what a registry asks for.
pub(super) fn check(packages: &[Package]) -> Vec<String> {
    let names: Vec<&str> = packages.iter().map(|package| package.name.as_str()).collect();
    let mut problems = Vec::new();
    for (row, _) in NORMAL {
        if !names.contains(row) {
            problems.push(format!(
                "xtask/src/tidy/edges.rs: the table names {row}, which is not in the workspace"
            ));
        }
    }
    for package in packages {
        problems.extend(check_package(package, &names));
    }
    problems
}

fn check_package(package: &Package, names: &[&str]) -> Vec<String> {
    let mut problems = Vec::new();
    let mut problem = |text: String| problems.push(format!("{}/Cargo.toml: {text}", package.folder));
    let normal = row(NORMAL, &package.name);
    let development = row(DEVELOPMENT, &package.name);
    if normal.is_none() && development.is_none() {
        problem(format!("{} stands in no row of xtask/src/tidy/edges.rs", package.name));
    }
    let (normal, development) = (normal.unwrap_or_default(), development.unwrap_or_default());
    let inside = |name: &&String| names.contains(&name.as_str());
    for name in package.normal.iter().filter(inside) {
        if !normal.contains(&name.as_str()) {
            problem(format!("{} must not depend on {name}", package.name));
        }
    }
    let tests_may_use_testkit = package.name != "coldframe-core";
    for name in package.development.iter().filter(inside) {
        let allowed = normal.contains(&name.as_str())
            || development.contains(&name.as_str())
            || (name == TESTKIT && tests_may_use_testkit);
        if !allowed {
            problem(format!("the tests of {} must not depend on {name}", package.name));
        }
    }
    if package.name == "coldframe-core" && package.normal.len() > MOST_OF_CORE {
        problem(format!("core has {} dependencies, at most {MOST_OF_CORE}", package.normal.len()));
    }
    for field in &package.missing {
        if package.published || *field == "description" || *field == "license" {
            problem(format!("{field} is missing"));
        }
    }
    problems
}

fn row<'a>(table: &'a [(&str, &[&'a str])], name: &str) -> Option<&'a [&'a str]> {
    table.iter().find(|(package, _)| *package == name).map(|(_, allowed)| *allowed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn package(name: &str, normal: &[&str], development: &[&str]) -> Package {
        Package {
            name: name.to_owned(),
            folder: "somewhere".to_owned(),
            published: true,
            normal: normal.iter().map(ToString::to_string).collect(),
            development: development.iter().map(ToString::to_string).collect(),
            ..Package::default()
        }
    }

    fn house() -> Vec<Package> {
        NORMAL.iter().map(|(name, allowed)| package(name, allowed, &[])).collect()
    }

    #[test]
    fn the_table_itself_is_allowed() {
        assert_eq!(check(&house()), Vec::<String>::new());
    }

    #[test]
    fn siblings_the_testkit_and_missing_rows_are_found() {
        let with = |extra: Package| {
            let mut packages = house();
            packages.retain(|package| package.name != extra.name);
            packages.push(extra);
            check(&packages)
        };
        assert_eq!(with(package("coldframe-mesh", &["coldframe-blob"], &[])).len(), 1);
        assert_eq!(with(package("coldframe-mesh", &["coldframe-testkit"], &[])).len(), 1);
        assert_eq!(with(package("coldframe-mesh", &["serde"], &["coldframe-testkit", "serde"])).len(), 0);
        assert_eq!(with(package("coldframe-mesh", &[], &["coldframe-blob"])).len(), 1);
        assert_eq!(with(package("coldframe-core", &[], &["coldframe-testkit"])).len(), 1);
        assert_eq!(with(package("coldframe-core", &["a", "b", "c", "d", "e", "f"], &[])).len(), 1);
        assert_eq!(with(package("coldframe-cli", &["coldframe-core"], &[])).len(), 1);
        assert_eq!(with(package("coldframe-new", &[], &[])).len(), 1);
        let nameless = Package { missing: vec!["description"], ..package("coldframe-blob", &[], &[]) };
        assert_eq!(with(nameless).len(), 1);
    }

    #[test]
    fn a_row_without_a_package_is_found() {
        let packages: Vec<Package> = house().into_iter().filter(|package| package.name != "xtask").collect();
        assert_eq!(check(&packages).len(), 1);
    }
}
