//! What pages tell readers to type exists: make's targets, scripts, and the packages and targets of cargo.

use std::collections::BTreeSet;

use tidy::cargo::{self, Package, Target};
use tidy::shell::{self, Typed};
use tidy::tree;

use crate::none;

#[test]
fn targets_of_make_exist() {
    let makefile = std::fs::read_to_string(tree::root().join("Makefile")).expect("the Makefile");
    let targets: BTreeSet<&str> = makefile
        .lines()
        .filter_map(|line| Some(line.split_once(": ")?.0))
        .filter(|name| !name.contains(' '))
        .collect();
    let mut found = Vec::new();
    // `make -C` means another Makefile.
    for Typed { place, words } in
        shell::commands_of("make").iter().filter(|typed| !typed.words.contains(&"-C".to_owned()))
    {
        let named = words[1..].iter().filter(|word| !word.starts_with('-') && !word.contains('='));
        found.extend(
            named.filter(|word| !targets.contains(word.as_str())).map(|word| format!("{place}: make {word}")),
        );
    }
    none("the Makefile has the targets that pages name", found);
}

#[test]
fn scripts_and_their_parts_exist() {
    let parts = std::fs::read_to_string(tree::root().join("scripts/test")).expect("scripts/test");
    let mut found = Vec::new();
    for page in tree::files().iter().filter(|file| file.path.ends_with(".md")) {
        // Code in prose is typed too.
        let spans = page.text.split('`').skip(1).step_by(2).filter(|span| span.starts_with("scripts/"));
        for span in spans {
            let mut words = span.split_whitespace();
            let script = words.next().expect("a span is not empty");
            if script.contains(['*', '{']) || script.ends_with('/') {
                continue;
            }
            if !tree::root().join(script).exists() {
                found.push(format!("{}: {script}", page.path));
            }
            if script == "scripts/test" {
                let is_part = |word: &str| parts.contains(&format!("part_{word}()"));
                let unknown =
                    words.filter(|word| !word.starts_with('-') && !word.ends_with('…') && !is_part(word));
                found.extend(unknown.map(|word| format!("{}: scripts/test {word}", page.path)));
            }
        }
    }
    none("scripts that pages name exist", found);
}

/// What `cargo` is told to build or test, and what of it does not exist.
fn unknown_of(words: &[String], packages: &[Package]) -> Option<String> {
    let value = |option: &str| {
        let at = words.iter().position(|word| word == option)?;
        words.get(at + 1).map(String::as_str)
    };
    let package = value("-p").or_else(|| value("--package"))?;
    let Some(package) = packages.iter().find(|known| known.name == package) else {
        return Some(format!("there is no package {package}"));
    };
    for (option, kind) in
        [("--test", "test"), ("--bin", "bin"), ("--example", "example"), ("--bench", "bench")]
    {
        let Some(name) = value(option) else { continue };
        let is_it = |target: &Target| target.name == name && target.kind.iter().any(|own| own == kind);
        if !name.contains('*') && !package.targets.iter().any(is_it) {
            return Some(format!("{} has no {kind} {name}", package.name));
        }
    }
    let features =
        value("--features")?.split(',').map(|name| name.rsplit('/').next().unwrap_or(name).to_owned());
    let own = |name: &String| {
        package.features.contains_key(name) || value("--features").is_some_and(|all| all.contains('/'))
    };
    features.into_iter().find(|name| !own(name)).map(|name| format!("{} has no feature {name}", package.name))
}

#[test]
fn packages_and_targets_of_cargo_exist() {
    let packages = cargo::members();
    let mut typed = shell::commands_of("cargo");
    // Code in prose is typed too.
    for page in tree::files().into_iter().filter(|file| file.path.ends_with(".md")) {
        let spans = page.text.split('`').skip(1).step_by(2);
        for span in spans.filter(|span| span.starts_with("cargo ") || span.contains(" cargo ")) {
            let block = format!("```sh\n{span}\n```");
            let all = shell::commands(&block).into_iter().filter(|(_, words)| words[0] == "cargo");
            typed.extend(all.map(|(_, words)| Typed { place: page.path.clone(), words }));
        }
    }
    let wrong = typed.iter().filter_map(|typed| {
        let problem = unknown_of(&typed.words, &packages)?;
        Some(format!("{}: {}: {problem}", typed.place, typed.words.join(" ")))
    });
    none("pages name packages and programs that exist", wrong.collect());
}
