//! Imports follow the layers that `layers.toml` declares, without cycles.

use tidy::{imports, layers, tree};

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
