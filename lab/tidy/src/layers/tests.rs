//! Violations of declared layers, planted in a small crate.

use super::{Declared, Known, known_violations, violations};
use crate::cycles::{cycles, shortest};
use crate::imports::{Graph, Package, graph};

const LAYERS: &str = "[small]\nlayers = [\n\
    { name = \"ground\", files = [\"src/types.rs\"] },\n\
    { name = \"proto\", files = [\"src/proto/\"] },\n\
    { name = \"api\", files = [\"src/lib.rs\", \"src/proto/shown.rs\"] },\n]";

/// A crate of five files, of which `types.rs`, `proto/a.rs` and `proto/b.rs` say this.
fn crate_with(types: &str, a: &str, b: &str) -> Vec<Graph> {
    let sources = [
        ("lib.rs", "mod proto;\nmod types;\nuse proto::a::A;\n"),
        ("types.rs", types),
        ("proto/mod.rs", "pub mod a;\npub mod b;\npub mod shown;\n"),
        ("proto/a.rs", a),
        ("proto/b.rs", b),
        ("proto/shown.rs", "pub struct Shown;\nuse super::a::A;\n"),
    ];
    let sources = sources.iter().map(|(path, text)| (format!("src/{path}"), (*text).to_owned())).collect();
    let package = Package { name: "small".into(), folder: "base/small".into(), sources };
    vec![graph(&package).unwrap()]
}

fn sound() -> Vec<Graph> {
    crate_with("pub struct T;", "pub struct A;\nuse crate::types::T;", "pub struct B;\nuse super::a::A;")
}

fn cycle() -> Vec<Graph> {
    crate_with("pub struct T;", "pub struct A;\nuse super::b::B;", "pub struct B;\nuse super::a::A;")
}

fn check(graphs: &[Graph], layers: &str, known: &str) -> Vec<String> {
    let declared: Declared = toml::from_str(layers).unwrap();
    let known: Known = toml::from_str(known).unwrap();
    violations(graphs, &declared, &known)
}

#[test]
fn imports_down_and_within_a_layer_are_allowed() {
    assert_eq!(check(&sound(), LAYERS, ""), [""; 0]);
    assert!(cycles(&sound()[0]).is_empty());
    assert!(shortest(&sound()[0], "src/proto/a.rs").is_empty());
}

#[test]
fn an_upward_import_is_reported_with_its_line_and_layers() {
    let graphs = crate_with("pub struct T;\nuse crate::proto::b::B;", "pub struct A;", "pub struct B;");
    let found = check(&graphs, LAYERS, "");
    let [upward] = &found[..] else { panic!("{found:?}") };
    let text = "base/small/src/types.rs:2 imports crate::proto::b::B from src/proto/b.rs: an upward import, from layer \
                ground to proto";
    assert!(upward.starts_with(text), "{upward}");
    assert_eq!(check(&graphs, LAYERS, "[small]\nupward = [\"src/types.rs -> src/proto/b.rs\"]"), [""; 0]);
}

#[test]
fn a_planted_cycle_is_reported_with_its_imports() {
    let found = cycles(&cycle()[0]);
    assert_eq!(found.len(), 1);
    assert_eq!(
        (&found[0].files[..], found[0].lines),
        (&["src/proto/a.rs".into(), "src/proto/b.rs".into()][..], 4)
    );
    assert_eq!(found[0].imports.len(), 2);
    let found = check(&cycle(), LAYERS, "");
    let [text] = &found[..] else { panic!("{found:?}") };
    assert!(text.starts_with("base/small/src/proto/a.rs is in an import cycle:\n"), "{text}");
    assert!(
        text.contains("\n      base/small/src/proto/a.rs:2 imports super::b::B from src/proto/b.rs\n"),
        "{text}"
    );
    assert!(
        text.contains("\n      base/small/src/proto/b.rs:2 imports super::a::A from src/proto/a.rs\n"),
        "{text}"
    );
}

#[test]
fn a_known_cycle_may_not_grow() {
    let two = "[small]\ncycles = [[\"src/proto/a.rs\", \"src/proto/b.rs\"]]";
    assert_eq!(check(&cycle(), LAYERS, two), [""; 0]);
    let three = crate_with(
        "pub struct T;\nuse crate::proto::a::A;",
        "pub struct A;\nuse super::b::B;\nuse crate::types::T;",
        "pub struct B;\nuse super::a::A;",
    );
    let found = check(&three, "", two);
    let [text] = &found[..] else { panic!("{found:?}") };
    assert!(text.starts_with("base/small/src/types.rs has joined a known import cycle:\n"), "{text}");
    assert!(text.contains("src/types.rs:2 imports crate::proto::a::A"), "{text}");
}

#[test]
fn entries_without_a_violation_are_reported() {
    let listed =
        "[small]\ncycles = [[\"src/proto/a.rs\"]]\nupward = [\"src/types.rs -> src/proto/b.rs\"]\n[moved]";
    let found = check(&sound(), LAYERS, listed);
    assert_eq!(found.len(), 3, "{found:?}");
    assert!(found[0].contains("[moved] names no package"), "{found:?}");
    assert!(found[1].contains("src/types.rs -> src/proto/b.rs is no longer an upward import"), "{found:?}");
    assert!(found[2].contains("src/proto/a.rs is no longer in a cycle"), "{found:?}");
}

#[test]
fn every_file_needs_a_layer_and_every_entry_a_file() {
    let layers = LAYERS.replace("\"src/lib.rs\"", "\"src/gone.rs\", \"src/old/\"");
    let found = check(&sound(), &layers, "");
    assert_eq!(found.len(), 3, "{found:?}");
    assert!(found[0].starts_with("base/small/src/lib.rs has no layer"), "{found:?}");
    assert!(
        found[1].contains("src/gone.rs matches no file") && found[2].contains("src/old/ matches no file"),
        "{found:?}"
    );
}

#[test]
fn the_printed_list_of_known_violations_covers_all() {
    let graphs = crate_with(
        "pub struct T;\nuse crate::proto::b::B;",
        "pub struct A;\nuse super::b::B;",
        "pub struct B;\nuse super::a::A;",
    );
    let declared: Declared = toml::from_str(LAYERS).unwrap();
    assert_eq!(
        violations(&graphs, &declared, &toml::from_str(&known_violations(&graphs, &declared)).unwrap()),
        [""; 0]
    );
}

#[test]
fn benches_are_checked_for_cycles() {
    let mut graphs = cycle();
    graphs[0].folder = "lab/bench/small".into();
    let found = check(&graphs, "", "");
    assert!(found[0].starts_with("lab/bench/small/src/proto/a.rs is in an import cycle:\n"), "{found:?}");
}
