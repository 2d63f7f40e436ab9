//! Checks the dependencies against `deny.toml`, as cargo-deny does, without installing it.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;
use tidy::cargo::{self, Dependency, Package};
use tidy::{licence, tree};

use crate::none;

/// The parts of deny.toml that are checked here. cargo-deny reads the others.
#[derive(Deserialize)]
struct Deny {
    licenses: Licenses,
    bans: Bans,
    sources: Sources,
}

#[derive(Deserialize)]
struct Licenses {
    allow: Vec<String>,
    /// Packages that only the peers of benches may have.
    exceptions: Vec<LicenceException>,
}

#[derive(Deserialize)]
struct LicenceException {
    #[serde(rename = "crate")]
    package: String,
    allow: Vec<String>,
}

#[derive(Deserialize)]
struct Bans {
    deny: Vec<Banned>,
}

#[derive(Deserialize)]
struct Banned {
    name: String,
    reason: String,
    /// The only packages that may depend on it.
    #[serde(default)]
    wrappers: Vec<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Sources {
    allow_registry: Vec<String>,
}

fn deny() -> Deny {
    let text = std::fs::read_to_string(tree::root().join("deny.toml")).expect("deny.toml");
    toml::from_str(&text).expect("deny.toml holds what this test needs")
}

/// The dependencies of the project.
fn packages() -> Vec<Package> {
    cargo::locked(".").unwrap_or_else(|error| panic!("{error}"))
}

/// The packages of the workspace and of the benches' peers. The peers' dependencies must be fetched; if that fails, the test
/// reports that it skips them.
fn packages_and_peers() -> Vec<Package> {
    let peers = cargo::locked("lab/bench/peers").unwrap_or_else(|error| {
        eprintln!("SKIPPED: {error}");
        Vec::new()
    });
    packages().into_iter().chain(peers).collect()
}

/// The packages of the products: all dependencies of the workspace's members, without dependencies of tests
/// only.
fn linked() -> BTreeSet<(String, String)> {
    let packages = packages();
    let mut names: BTreeSet<&str> =
        packages.iter().filter(|package| package.source.is_none()).map(|own| own.name.as_str()).collect();
    loop {
        let known = names.len();
        let reached = packages.iter().filter(|package| names.contains(package.name.as_str()));
        let more = reached.flat_map(|package| &package.dependencies);
        let more: Vec<&str> = more
            .filter(|dependency| dependency.kind.as_deref() != Some("dev"))
            .map(|dependency| dependency.name.as_str())
            .collect();
        names.extend(more);
        if names.len() == known {
            break;
        }
    }
    let linked = packages.iter().filter(|package| names.contains(package.name.as_str()));
    linked.map(|package| (package.name.clone(), package.version.clone())).collect()
}

#[test]
fn every_licence_is_on_the_list() {
    let Licenses { allow, exceptions } = deny().licenses;
    let linked = linked();
    let mut found = Vec::new();
    let mut counts = BTreeMap::<String, usize>::new();
    for package in packages_and_peers() {
        let expression = package.license.unwrap_or_default();
        let mut allow = allow.clone();
        if !linked.contains(&(package.name.clone(), package.version.clone())) {
            let excepted = exceptions.iter().filter(|exception| exception.package == package.name);
            allow.extend(excepted.flat_map(|exception| exception.allow.clone()));
        }
        if !licence::allowed(&expression, &allow) {
            found.push(format!("{} {}: '{expression}'", package.name, package.version));
        }
        *counts.entry(expression).or_default() += 1;
    }
    println!("licences: {counts:?}");
    none("the licence of every package is allowed by deny.toml", found);
}

#[test]
fn every_source_is_known() {
    let known = deny().sources.allow_registry;
    let mut found = Vec::new();
    for package in packages_and_peers() {
        // `None` is a folder of this repository.
        let Some(source) = package.source else { continue };
        if !known.iter().any(|k| source.strip_prefix("registry+") == Some(k)) {
            found.push(format!("{} {}: {source}", package.name, package.version));
        }
    }
    none("packages come from the registries of deny.toml", found);
}

#[test]
fn nothing_banned_is_used() {
    let banned = deny().bans.deny;
    let mut found = Vec::new();
    let packages = packages();
    for ban in banned {
        if ban.wrappers.is_empty() && packages.iter().any(|package| package.name == ban.name) {
            found.push(format!("{}: {}", ban.name, ban.reason));
        }
        // An optional dependency, or one for a crate's own tests, adds no package.
        let uses = |package: &&Package| {
            let brings =
                |d: &Dependency| d.name == ban.name && d.kind.as_deref() != Some("dev") && !d.optional;
            package.dependencies.iter().any(brings) && !ban.wrappers.contains(&package.name)
        };
        for package in packages.iter().filter(uses).filter(|_| !ban.wrappers.is_empty()) {
            found.push(format!("{} in {}: {}", ban.name, package.name, ban.reason));
        }
    }
    none("banned by deny.toml", found);
}
