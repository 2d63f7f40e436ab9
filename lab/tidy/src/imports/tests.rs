//! Import graphs of small packages.

use super::{Graph, Import, Package, graph};

fn package(sources: &[(&str, &str)]) -> Package {
    let sources = sources.iter().map(|(path, text)| (format!("src/{path}"), (*text).to_owned())).collect();
    Package { name: "small-crate".into(), folder: "base/small".into(), sources }
}

fn read(sources: &[(&str, &str)]) -> Graph {
    graph(&package(sources)).unwrap()
}

/// `a.rs:3 crate::b::B b.rs`.
fn imports(sources: &[(&str, &str)]) -> Vec<String> {
    let short = |path: &str| path.trim_start_matches("src/").to_owned();
    let show = |import: &Import| {
        format!("{}:{} {} {}", short(&import.from), import.line, import.path, short(&import.to))
    };
    read(sources).imports.iter().map(show).collect()
}

const LIB: (&str, &str) = ("lib.rs", "mod a;\nmod b;\npub use a::A;\npub use b::{B, Other as Renamed};\n");
const B: (&str, &str) = ("b.rs", "pub struct B;\npub struct Other;\npub fn make() {}\n");

#[test]
fn declarations_and_re_exports_are_no_imports() {
    assert!(imports(&[LIB, ("a.rs", "pub struct A;"), B]).is_empty());
}

#[test]
fn imports_lead_to_the_file_with_the_definition() {
    for import in ["crate::b::B", "crate::B", "super::b::B", "super::B", "crate::Renamed"] {
        let a = format!("pub struct A;\n\nuse {import};\n");
        assert_eq!(imports(&[LIB, ("a.rs", &a), B]), [format!("a.rs:3 {import} b.rs")]);
    }
}

#[test]
fn paths_in_code_are_imports() {
    for code in [
        "fn f(_: crate::b::B) {}",
        "fn f() { crate::b::make() }",
        "impl crate::B {}",
        "type T = Vec<crate::B>;",
    ] {
        assert_eq!(imports(&[LIB, ("a.rs", code), B]).len(), 1, "{code}");
    }
}

#[test]
fn paths_in_macros_are_imports() {
    for code in ["fn f() { println!(\"{}\", crate::b::make()) }", "macro_rules! m { () => { $crate::b::B } }"]
    {
        assert_eq!(imports(&[LIB, ("a.rs", code), B]).len(), 1, "{code}");
    }
}

#[test]
fn a_macro_belongs_to_the_file_with_its_rules() {
    let lib = ("lib.rs", "#[macro_use]\nmod b;\nmod a;");
    let b = ("b.rs", "macro_rules! ours { () => {} }");
    assert_eq!(imports(&[lib, b, ("a.rs", "ours!();\nmod inner { other!(); }")]), ["a.rs:1 ours b.rs"]);
}

#[test]
fn paths_through_an_imported_module_are_imports() {
    let lib = ("lib.rs", "mod a;\nmod b;");
    let tree = [lib, ("b/mod.rs", "pub mod deep;\npub struct B;"), ("b/deep.rs", "pub fn make() {}")];
    let with = |a| imports(&[&tree[..], &[("a.rs", a)]].concat());
    assert!(with("use crate::b;").is_empty());
    assert_eq!(with("use crate::b;\nfn f() { b::deep::make() }"), ["a.rs:2 b::deep::make b/deep.rs"]);
    assert_eq!(with("use crate::b::*;\nfn f(_: B) {}"), ["a.rs:2 B b/mod.rs"]);
    assert_eq!(
        with("use crate::b::{self as renamed};\nfn f(_: renamed::B) {}"),
        ["a.rs:2 renamed::B b/mod.rs"]
    );
}

#[test]
fn a_parent_may_import_from_its_child() {
    let with = |lib| imports(&[("lib.rs", lib), B]);
    assert_eq!(with("mod b;\nfn f() -> b::B { b::B }"), ["lib.rs:2 b::B b.rs"]);
    assert_eq!(with("mod b;\npub use b::B;\nfn f(_: B) {}"), ["lib.rs:3 B b.rs"]);
}

#[test]
fn tests_comments_literals_and_attributes_are_no_imports() {
    let a = "//! [`crate::b::B`]\n/* crate::b::B */\nconst TEXT: &str = \"crate::b::B\";\n\
             #[cfg(test)]\nuse crate::b::B;\n\
             #[cfg(test)]\nmod tests { use crate::b::B; }\n\
             #[cfg(all(test, feature = \"x\"))]\nfn f() { crate::b::make() }\n\
             struct A;\nimpl A { #[cfg(test)] fn g() { crate::b::make() } }\n\
             #[doc = \"crate::b\"]\npub(in crate::a) fn h() {}\n";
    assert!(imports(&[LIB, ("a.rs", a), B]).is_empty());
    assert_eq!(
        imports(&[LIB, ("a.rs", "#[cfg(not(test))]\nuse crate::b::B;"), B]),
        ["a.rs:2 crate::b::B b.rs"]
    );
}

#[test]
fn inline_modules_belong_to_their_file() {
    let a = "pub struct A;\nmod inner {\n    use super::A;\n    use super::super::b::B;\n}";
    assert_eq!(imports(&[LIB, ("a.rs", a), B]), ["a.rs:4 super::super::b::B b.rs"]);
}

#[test]
fn other_crates_are_no_imports() {
    let a = "use std::fmt;\nuse ::b::B;\nfn f() -> fmt::Result { other::b::make() }";
    assert!(imports(&[LIB, ("a.rs", a), B]).is_empty());
}

#[test]
fn a_program_imports_from_the_library_of_its_package() {
    let main = ("main.rs", "use small_crate::B;");
    assert_eq!(imports(&[LIB, ("a.rs", "pub struct A;"), B, main]), ["main.rs:1 small_crate::B b.rs"]);
}

#[test]
fn cyclic_re_exports_end() {
    assert!(
        imports(&[
            ("lib.rs", "mod a;\nmod b;"),
            ("a.rs", "pub use crate::b::X;"),
            ("b.rs", "use crate::a::X;")
        ])
        .is_empty()
    );
}

#[test]
fn methods_are_counted_over_all_files() {
    let a = "pub struct A { pub x: u8, y: u8 }\nimpl A { pub fn one() {} fn two() {} }\n\
             impl Clone for A { fn clone(&self) -> A { todo() } }\n#[cfg(test)]\nimpl A { fn three() {} }";
    let found = read(&[LIB, ("a.rs", a), ("b.rs", "impl crate::A { fn four() {} }")]);
    let counted = &found.types[0];
    assert_eq!((counted.name.as_str(), counted.file.as_str()), ("A", "src/a.rs"));
    assert_eq!((counted.methods, counted.public_methods, counted.trait_methods), (3, 1, 1));
    assert_eq!((counted.fields, counted.public_fields, counted.files.len()), (2, 1, 2));
}

#[test]
fn exported_names_are_those_of_the_root() {
    let lib = "mod a;\npub mod shown;\n#[doc(hidden)]\npub mod hidden;\npub use a::*;\npub(crate) use a::A as Inner;\npub fn f() {}";
    let a = "pub struct A;\nstruct Hidden;";
    let found = read(&[("lib.rs", lib), ("a.rs", a), ("shown.rs", ""), ("hidden.rs", "")]);
    assert_eq!(found.exported, ["A", "f", "shown"]);
}

#[test]
fn a_syntax_error_is_reported_with_its_line() {
    let error = graph(&package(&[("lib.rs", "mod a;"), ("a.rs", "fn f() {}\nfn {")])).unwrap_err();
    assert!(error.starts_with("base/small/src/a.rs:2: "), "{error}");
}
