//! Imports follow the layers that `layers.toml` declares, without cycles, and packages depend on each other as the streets allow.

use tidy::{cargo, imports, layers, tree};

use crate::none;

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

/// The street of a file or folder below the root.
fn street(path: &str) -> String {
    let root = tree::root().canonicalize().expect("the root exists");
    let inside = std::path::Path::new(path).strip_prefix(&root).expect("packages lie below the root");
    inside.iter().next().expect("a package has a street").to_string_lossy().into_owned()
}

#[test]
fn packages_depend_as_the_streets_allow() {
    let mut found = Vec::new();
    for package in &cargo::members() {
        let from = street(&package.manifest_path);
        let Some((_, allowed)) = STREETS.iter().find(|(name, _)| *name == from) else {
            found.push(format!("{} lies in no street", package.name));
            continue;
        };
        for dependency in &package.dependencies {
            let Some(to) = dependency.path.as_deref().map(street) else { continue };
            let is_for_tests = dependency.kind.as_deref() == Some("dev");
            if !is_for_tests && to != from && !allowed.contains(&to.as_str()) {
                found.push(format!("{} ({from}) uses {} ({to})", package.name, dependency.name));
            }
        }
    }
    none("a street builds only on those below", found);
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
