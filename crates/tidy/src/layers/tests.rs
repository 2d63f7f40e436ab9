//! What breaks a declared order, planted in a small crate.

use super::{Declared, Known, complaints, known};
use crate::circles::{circles, shortest};
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
    let package = Package { name: "small".into(), folder: "crates/small".into(), sources };
    vec![graph(&package).unwrap()]
}

fn sound() -> Vec<Graph> {
    crate_with("pub struct T;", "pub struct A;\nuse crate::types::T;", "pub struct B;\nuse super::a::A;")
}

fn circle() -> Vec<Graph> {
    crate_with("pub struct T;", "pub struct A;\nuse super::b::B;", "pub struct B;\nuse super::a::A;")
}

fn check(graphs: &[Graph], layers: &str, known: &str) -> Vec<String> {
    let declared: Declared = toml::from_str(layers).unwrap();
    let known: Known = toml::from_str(known).unwrap();
    complaints(graphs, &declared, &known)
}

#[test]
fn arrows_down_and_within_a_layer_are_sound() {
    assert_eq!(check(&sound(), LAYERS, ""), [""; 0]);
    assert!(circles(&sound()[0]).is_empty());
    assert!(shortest(&sound()[0], "src/proto/a.rs").is_empty());
}

#[test]
fn an_arrow_that_climbs_is_told_with_its_line_and_layers() {
    let graphs = crate_with("pub struct T;\nuse crate::proto::b::B;", "pub struct A;", "pub struct B;");
    let found = check(&graphs, LAYERS, "");
    let [climb] = &found[..] else { panic!("{found:?}") };
    let text = "crates/small/src/types.rs:2 imports crate::proto::b::B from src/proto/b.rs: this climbs from layer ground to \
                proto";
    assert!(climb.starts_with(text), "{climb}");
    assert_eq!(check(&graphs, LAYERS, "[small]\nclimbs = [\"src/types.rs -> src/proto/b.rs\"]"), [""; 0]);
}

#[test]
fn a_planted_circle_is_told_with_the_way_around_it() {
    let found = circles(&circle()[0]);
    assert_eq!(found.len(), 1);
    assert_eq!(
        (&found[0].files[..], found[0].lines),
        (&["src/proto/a.rs".into(), "src/proto/b.rs".into()][..], 4)
    );
    assert_eq!(found[0].arrows.len(), 2);
    let found = check(&circle(), LAYERS, "");
    let [text] = &found[..] else { panic!("{found:?}") };
    assert!(text.starts_with("crates/small/src/proto/a.rs is in an import circle:\n"), "{text}");
    assert!(
        text.contains("\n      crates/small/src/proto/a.rs:2 imports super::b::B from src/proto/b.rs\n"),
        "{text}"
    );
    assert!(
        text.contains("\n      crates/small/src/proto/b.rs:2 imports super::a::A from src/proto/a.rs\n"),
        "{text}"
    );
}

#[test]
fn a_known_circle_may_not_grow() {
    let two = "[small]\ncircles = [[\"src/proto/a.rs\", \"src/proto/b.rs\"]]";
    assert_eq!(check(&circle(), LAYERS, two), [""; 0]);
    let three = crate_with(
        "pub struct T;\nuse crate::proto::a::A;",
        "pub struct A;\nuse super::b::B;\nuse crate::types::T;",
        "pub struct B;\nuse super::a::A;",
    );
    let found = check(&three, "", two);
    let [text] = &found[..] else { panic!("{found:?}") };
    assert!(
        text.starts_with("crates/small/src/types.rs is now in a circle that was there without it:\n"),
        "{text}"
    );
    assert!(text.contains("src/types.rs:2 imports crate::proto::a::A"), "{text}");
}

#[test]
fn what_is_listed_and_gone_is_told() {
    let listed =
        "[small]\ncircles = [[\"src/proto/a.rs\"]]\nclimbs = [\"src/types.rs -> src/proto/b.rs\"]\n[moved]";
    let found = check(&sound(), LAYERS, listed);
    assert_eq!(found.len(), 3, "{found:?}");
    assert!(found[0].contains("[moved] is no package"), "{found:?}");
    assert!(found[1].contains("src/types.rs -> src/proto/b.rs does not climb any more"), "{found:?}");
    assert!(found[2].contains("src/proto/a.rs is in no circle any more"), "{found:?}");
}

#[test]
fn every_file_has_a_layer_and_every_entry_a_file() {
    let layers = LAYERS.replace("\"src/lib.rs\"", "\"src/gone.rs\", \"src/old/\"");
    let found = check(&sound(), &layers, "");
    assert_eq!(found.len(), 3, "{found:?}");
    assert!(found[0].starts_with("crates/small/src/lib.rs is in no layer"), "{found:?}");
    assert!(
        found[1].contains("src/gone.rs has no file") && found[2].contains("src/old/ has no file"),
        "{found:?}"
    );
}

#[test]
fn what_is_written_down_as_known_is_known() {
    let graphs = crate_with(
        "pub struct T;\nuse crate::proto::b::B;",
        "pub struct A;\nuse super::b::B;",
        "pub struct B;\nuse super::a::A;",
    );
    let declared: Declared = toml::from_str(LAYERS).unwrap();
    assert_eq!(complaints(&graphs, &declared, &toml::from_str(&known(&graphs, &declared)).unwrap()), [""; 0]);
}

#[test]
fn benches_may_import_as_they_like() {
    let mut graphs = circle();
    graphs[0].folder = "bench/small".into();
    assert_eq!(check(&graphs, "", ""), [""; 0]);
}
