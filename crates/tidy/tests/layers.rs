//! Files build on each other in the order that `layers.toml` declares, and in no circles.

use tidy::{imports, layers, tree};

#[test]
fn imports_follow_the_order_and_make_no_circles() {
    let root = tree::root();
    let packages = imports::packages(&root).expect("the workspace can be read");
    let graphs: Vec<_> =
        packages.iter().map(|package| imports::graph(package).expect("it is Rust")).collect();
    let declared = layers::load(&root.join(layers::FILE)).expect(layers::FILE);
    let known = layers::load(&root.join(layers::KNOWN_FILE)).expect(layers::KNOWN_FILE);
    let found = layers::complaints(&graphs, &declared, &known);
    assert!(
        found.is_empty(),
        "a file imports from its own layer and from those below, and no two files need each other:\n  {}\n",
        found.join("\n  ")
    );
}
