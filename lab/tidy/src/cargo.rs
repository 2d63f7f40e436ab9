//! What cargo knows of packages: the parts of `cargo metadata` that the rules look at.

use std::collections::BTreeMap;
use std::process::Command;

use serde::Deserialize;

/// A package, with what its manifest says.
#[derive(Debug, Clone, Deserialize)]
pub struct Package {
    /// Its name.
    pub name: String,
    /// Its version.
    pub version: String,
    /// The licence expression.
    pub license: Option<String>,
    /// The registry. `None`: a folder of this repository.
    pub source: Option<String>,
    /// The path of the manifest.
    pub manifest_path: String,
    /// The direct dependencies.
    pub dependencies: Vec<Dependency>,
    /// Libraries, programs, tests and examples.
    pub targets: Vec<Target>,
    /// The features, with those that each enables.
    pub features: BTreeMap<String, Vec<String>>,
}

/// A direct dependency.
#[derive(Debug, Clone, Deserialize)]
pub struct Dependency {
    /// The name of the package.
    pub name: String,
    /// `dev` for tests, `build` for build scripts, `None` for all else.
    pub kind: Option<String>,
    /// True if a feature enables it.
    pub optional: bool,
    /// The folder of a package of this repository.
    pub path: Option<String>,
}

/// A library or program of a package.
#[derive(Debug, Clone, Deserialize)]
pub struct Target {
    /// Its name.
    pub name: String,
    /// `lib`, `bin`, `test`, `example`, ...
    pub kind: Vec<String>,
}

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
}

/// The packages of the workspace.
///
/// # Panics
/// Cargo does not accept a manifest.
pub fn members() -> Vec<Package> {
    read(".", &["--no-deps"]).unwrap_or_else(|error| panic!("{error}"))
}

/// Every package of the Cargo.lock in a folder of the repository, for all platforms and features.
///
/// # Errors
/// That of cargo: a manifest is wrong, or a package is not there and cannot be fetched.
pub fn locked(folder: &str) -> Result<Vec<Package>, String> {
    read(folder, &["--all-features"])
}

fn read(folder: &str, options: &[&str]) -> Result<Vec<Package>, String> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .current_dir(crate::tree::root().join(folder))
        .args(["metadata", "--format-version", "1", "--locked"])
        .args(options)
        .output()
        .map_err(|error| format!("cargo metadata in {folder}: {error}"))?;
    if !output.status.success() {
        return Err(format!("cargo metadata in {folder}: {}", String::from_utf8_lossy(&output.stderr)));
    }
    let metadata: Metadata = serde_json::from_slice(&output.stdout).map_err(|error| error.to_string())?;
    Ok(metadata.packages)
}
