//! The packages of a workspace and their sources.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Deserialize;

use super::Package;

#[derive(Deserialize)]
struct Manifest {
    workspace: Option<Workspace>,
    package: Option<Named>,
}

#[derive(Deserialize)]
struct Workspace {
    members: Vec<String>,
}

#[derive(Deserialize)]
struct Named {
    name: String,
}

/// Reads every member of the workspace at `root`, in the order of its manifest.
///
/// # Errors
/// A manifest or source file cannot be read.
pub fn packages(root: &Path) -> Result<Vec<Package>, String> {
    let Some(workspace) = manifest(root)?.workspace else {
        return Err(format!("{}/Cargo.toml has no [workspace]: name the root of a checkout", root.display()));
    };
    workspace.members.into_iter().map(|member| package(root, member)).collect()
}

fn package(root: &Path, folder: String) -> Result<Package, String> {
    let at = root.join(&folder);
    let Some(Named { name }) = manifest(&at)?.package else {
        return Err(format!("{folder}/Cargo.toml has no [package]"));
    };
    let mut sources = BTreeMap::new();
    read(&at, "src", &mut sources)?;
    Ok(Package { name, folder, sources })
}

fn manifest(folder: &Path) -> Result<Manifest, String> {
    let path = folder.join("Cargo.toml");
    let text = std::fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))?;
    toml::from_str(&text).map_err(|e| format!("{}: {e}", path.display()))
}

/// Reads the Rust files in a folder of the package. Paths are relative to the package.
fn read(package: &Path, folder: &str, sources: &mut BTreeMap<String, String>) -> Result<(), String> {
    let failed = |path: &str, error| format!("{}/{path}: {error}", package.display());
    for entry in std::fs::read_dir(package.join(folder)).map_err(|e| failed(folder, e))?.flatten() {
        let path = format!("{folder}/{}", entry.file_name().to_string_lossy());
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            read(package, &path, sources)?;
        } else if path.ends_with(".rs") {
            let text = std::fs::read_to_string(entry.path()).map_err(|e| failed(&path, e))?;
            sources.insert(path, text);
        }
    }
    Ok(())
}
