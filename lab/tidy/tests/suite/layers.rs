//! Imports follow the layers that `layers.toml` declares, without cycles, and packages depend on each other as the streets allow.

use std::process::Command;

use serde::Deserialize;
use tidy::{imports, layers, tree};

/// The streets, and those that each may build on:
///
/// ```text
///   lab          may use all, and nothing uses it but tests
///   bindings
///   rbmq ──▶ multimqc     rblive
///   rocketbufs ───────────────────     cmq
///   base
/// ```
const STREETS: [(&str, &[&str]); 8] = [
    ("base", &[]),
    ("rocketbufs", &["base"]),
    ("cmq", &["base"]),
    ("multimqc", &["base", "rocketbufs"]),
    ("rbmq", &["base", "rocketbufs", "multimqc"]),
    ("rblive", &["base", "rocketbufs"]),
    ("bindings", &["base", "rocketbufs", "cmq", "multimqc", "rbmq", "rblive"]),
    ("lab", &["base", "rocketbufs", "cmq", "multimqc", "rbmq", "rblive", "bindings"]),
];
/// Dependencies against the order that exist today. The list only gets shorter.
const KNOWN: [(&str, &str); 0] = [];

/// The parts of `cargo metadata` that matter here.
#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
}

#[derive(Deserialize)]
struct Package {
    name: String,
    manifest_path: String,
    dependencies: Vec<Dependency>,
}

#[derive(Deserialize)]
struct Dependency {
    name: String,
    kind: Option<String>,
    path: Option<String>,
}

/// The street of a file or folder below the root.
fn street(path: &str) -> String {
    let root = tree::root().canonicalize().expect("the root exists");
    let inside = std::path::Path::new(path).strip_prefix(&root).expect("packages lie below the root");
    inside.iter().next().expect("a package has a street").to_string_lossy().into_owned()
}

#[test]
fn packages_depend_as_the_streets_allow() {
    let metadata = Command::new(env!("CARGO"))
        .current_dir(tree::root())
        .args(["metadata", "--format-version", "1", "--no-deps", "--locked"])
        .output()
        .expect("cargo runs");
    let Metadata { packages } =
        serde_json::from_slice(&metadata.stdout).expect("the format of cargo metadata");
    let mut found = Vec::new();
    let mut known = Vec::from(KNOWN);
    for package in &packages {
        let from = street(&package.manifest_path);
        let Some((_, allowed)) = STREETS.iter().find(|(name, _)| *name == from) else {
            found.push(format!("{} lies in no street", package.name));
            continue;
        };
        for dependency in &package.dependencies {
            let Some(to) = dependency.path.as_deref().map(street) else { continue };
            if dependency.kind.as_deref() == Some("dev") || to == from || allowed.contains(&to.as_str()) {
                continue;
            }
            let is_known = |(user, used): &(&str, &str)| *user == package.name && *used == dependency.name;
            match known.iter().position(is_known) {
                Some(index) => drop(known.swap_remove(index)),
                None => found.push(format!("{} ({from}) uses {} ({to})", package.name, dependency.name)),
            }
        }
    }
    found.extend(
        known.iter().map(|(user, used)| format!("{user} no longer uses {used}: remove it from KNOWN")),
    );
    assert!(found.is_empty(), "a street builds only on those below:\n  {}\n", found.join("\n  "));
}

#[test]
fn imports_follow_the_layers_without_cycles() {
    let root = tree::root();
    let packages = imports::packages(&root).expect("the workspace can be read");
    let graphs: Vec<_> = packages
        .iter()
        .map(|package| imports::graph(package).expect("the compiler accepts the sources"))
        .collect();
    let declared = layers::load(&root.join(layers::FILE)).expect(layers::FILE);
    let known = layers::load(&root.join(layers::KNOWN_FILE)).expect(layers::KNOWN_FILE);
    let found = layers::violations(&graphs, &declared, &known);
    assert!(
        found.is_empty(),
        "a file imports from its own layer and the layers below, and no cycle of files exists \
         (`scripts/import-graph --known` prints layers-known.toml with the violations of now):\n  {}\n",
        found.join("\n  ")
    );
}
