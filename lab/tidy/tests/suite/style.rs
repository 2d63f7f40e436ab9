//! The style rules of the repository, one test each. The limits are here, the exceptions in
//! `exceptions.toml`.

use std::collections::BTreeSet;
use std::process::Command;

use tidy::exceptions::{self, Allowed};
use tidy::rust;
use tidy::signatures;
use tidy::tree::{self, File};

use crate::none;

/// The most lines of a file.
const FILE_LINES: usize = 1000;
/// The most lines of code of a function without an exception.
const FUNCTION_LINES: usize = 50;
/// The most lines of code of a function with an exception.
const FUNCTION_LINES_HARD: usize = 70;
/// Crates that restrict `unsafe`, by folder, and their lint level: `forbid` without any `unsafe`, `deny` if a listed file has
/// some.
const SAFE_CRATES: &[(&str, &str)] = &[
    ("rocketbufs/framework", "deny"),
    ("rbmq/protocol", "forbid"),
    ("rbmq/client", "forbid"),
    ("rbmq/broker", "forbid"),
    ("rbmq/s3", "forbid"),
    ("rbmq/cli", "forbid"),
    ("cmq/library", "forbid"),
    ("cmq/cli", "forbid"),
    ("base/seglog", "deny"),
    ("base/settings", "forbid"),
    ("base/web", "forbid"),
    ("multimqc/levels", "forbid"),
    ("multimqc/kafka", "forbid"),
    ("multimqc/cli", "forbid"),
    ("rblive/nodes", "deny"),
    ("rblive/media", "forbid"),
    ("rblive/ingest", "forbid"),
    ("rblive/deliver", "deny"),
    ("rblive/record", "deny"),
    ("rblive/webrtc", "forbid"),
    ("rblive/cli", "forbid"),
    ("lab/bench/cmq-bench", "forbid"),
    ("lab/bench/benchkit", "forbid"),
    ("lab/chromium", "forbid"),
    ("lab/bench/rbmq-bench", "forbid"),
    ("lab/bench/live-bench", "deny"),
    ("lab/bench/multimqc-bench", "deny"),
    ("lab/bench/reproduce", "forbid"),
    ("lab/load/nic-sim", "forbid"),
    ("lab/sim/levels", "forbid"),
    ("lab/sim/net", "deny"),
    ("lab/sim/seglog", "forbid"),
    ("lab/load/rblive", "forbid"),
    ("lab/faults", "forbid"),
    ("lab/testkit", "forbid"),
    ("lab/tidy", "forbid"),
    ("lab/fuzz/bodies", "forbid"),
    ("bindings/python", "deny"),
];
/// The crate that has the handshakes of all others.
const RING: &str = "rocketbufs/ring/src/";
/// Words that must not be left behind, in halves, so that this file passes its own test.
const LEFTOVERS: [(&str, &str); 5] = [("TO", "DO"), ("FIX", "ME"), ("X", "XX"), ("HA", "CK"), ("WI", "P")];
/// Macros that must not be left behind, in halves for the same reason.
const LEFTOVER_MACROS: [(&str, &str); 3] = [("to", "do!"), ("db", "g!"), ("unimplemented", "!")];
/// Folders of a single machine, in halves for the same reason.
const MACHINE_FOLDERS: [(&str, &str); 4] =
    [("/ho", "me/"), ("/wo", "rk/"), ("/Use", "rs/"), ("/tmp/con", "tracts")];

/// How a program in Python asks for a port, in halves for the same reason.
const ASKED_IN_PYTHON: [&str; 2] = ["getsockname", "()[1]"];

fn rust_files() -> Vec<File> {
    tree::files().into_iter().filter(File::is_rust).collect()
}

#[test]
fn files_are_short() {
    let files = tree::files();
    let long = files.iter().filter(|f| f.is_rust() || f.is_script()).filter_map(|file| {
        let lines = file.text.lines().count();
        (lines > FILE_LINES).then(|| format!("{}: {lines} lines", file.path))
    });
    none(&format!("a file follows its subject, and has at most {FILE_LINES} lines"), long.collect());
}

#[test]
fn functions_are_short() {
    let allowed = exceptions::load().function;
    let mut found = Vec::new();
    let mut needed = BTreeSet::new();
    for file in rust_files() {
        for function in rust::functions(&rust::code_only(&file.text)) {
            if function.code_lines <= FUNCTION_LINES {
                continue;
            }
            let listed = allowed.iter().any(|e| e.path == file.path && e.name == function.name);
            needed.insert((file.path.clone(), function.name.clone()));
            if function.code_lines > FUNCTION_LINES_HARD || !listed {
                let (line, lines) = (function.line, function.code_lines);
                found.push(format!("{}:{line}: fn {} has {lines} lines", file.path, function.name));
            }
        }
    }
    for entry in allowed.iter().filter(|e| !needed.contains(&(e.path.clone(), e.name.clone()))) {
        found.push(format!(
            "{}: fn {}: the exception is not needed ({})",
            entry.path, entry.name, entry.reason
        ));
    }
    none(
        &format!(
            "a function has at most {FUNCTION_LINES} lines of code, {FUNCTION_LINES_HARD} with an exception"
        ),
        found,
    );
}

#[test]
fn nothing_is_left_behind() {
    let words: Vec<String> = LEFTOVERS.iter().map(|(a, b)| format!("{a}{b}")).collect();
    let macros: Vec<String> = LEFTOVER_MACROS.iter().map(|(a, b)| format!("{a}{b}")).collect();
    let mut found = Vec::new();
    for file in tree::files() {
        for (at, word) in rust::words(&file.text) {
            let called = file.text[at + word.len()..].starts_with('!')
                && macros.iter().any(|m| m.strip_suffix('!') == Some(word));
            if words.iter().any(|w| w == word) || (file.is_rust() && called) {
                found.push(format!("{}:{}: {word}", file.path, rust::line_of(&file.text, at)));
            }
        }
    }
    none("finish it, or do not begin it", found);
}

/// A port that the system chose and that no socket holds is given to whoever asks next.
#[test]
fn no_port_is_asked_for_and_let_go() {
    let mut found = Vec::new();
    for file in tree::files() {
        let line = |at: usize| format!("{}:{}", file.path, rust::line_of(&file.text, at));
        if file.is_rust() {
            found.extend(rust::ports_let_go(&rust::code_only(&file.text)).into_iter().map(line));
        } else {
            found.extend(file.text.match_indices(ASKED_IN_PYTHON.concat().as_str()).map(|(at, _)| line(at)));
        }
    }
    none("a test has its port from testkit's `own_port`, or from lab/testkit/own_port.py", found);
}

#[test]
fn no_path_of_one_machine() {
    let folders: Vec<String> = MACHINE_FOLDERS.iter().map(|(a, b)| format!("{a}{b}")).collect();
    let mut found = Vec::new();
    for file in tree::files() {
        for folder in &folders {
            for (at, _) in file.text.match_indices(folder.as_str()) {
                found.push(format!("{}:{}: {folder}", file.path, rust::line_of(&file.text, at)));
            }
        }
    }
    none("paths are relative, or come from the environment", found);
}

#[test]
fn text_is_clean() {
    let mut found = Vec::new();
    for file in
        tree::files().iter().filter(|f| f.path != "LICENSE" && !f.path.starts_with("lab/fuzz/corpus/"))
    {
        for (index, line) in file.text.lines().enumerate() {
            let tab = file.is_rust() && line.contains('\t');
            if line.ends_with([' ', '\t', '\r']) || tab {
                found.push(format!("{}:{}: a tab or space too many", file.path, index + 1));
            }
        }
        if !file.text.is_empty() && (!file.text.ends_with('\n') || file.text.ends_with("\n\n")) {
            found.push(format!("{}: does not end with one newline", file.path));
        }
    }
    none("as .editorconfig says", found);
}

/// Files at `places` whose code uses a name from `names` without an entry, and entries without such a file.
fn outside(
    rule: &str,
    places: impl Fn(&str) -> bool,
    allowed: &[Allowed],
    names: impl Fn(&str) -> Option<usize>,
) {
    let mut found = Vec::new();
    let mut used = BTreeSet::new();
    for file in rust_files().iter().filter(|f| places(&f.path)) {
        let code = rust::code_only(&file.text);
        let Some(at) = names(&code) else { continue };
        match allowed.iter().position(|e| e.covers(&file.path)) {
            Some(index) => drop(used.insert(index)),
            None => found.push(format!("{}:{}", file.path, rust::line_of(&code, at))),
        }
    }
    for (_, entry) in allowed.iter().enumerate().filter(|(index, _)| !used.contains(index)) {
        found.push(format!("{}: the exception is not needed ({})", entry.path, entry.reason));
    }
    none(rule, found);
}

#[test]
fn unsafe_is_where_it_is_expected() {
    outside(
        "`unsafe` only in the files listed in exceptions.toml",
        |_| true,
        &exceptions::load().unsafe_code,
        |code| first_of(code, &["unsafe"]),
    );
}

#[test]
fn atomics_come_through_one_module() {
    outside(
        "the standard library's atomics only in the files listed in exceptions.toml",
        |path| path.starts_with(RING),
        &exceptions::load().std_atomics,
        |code| ["std::sync::atomic", "core::sync::atomic"].iter().find_map(|path| code.find(path)),
    );
}

/// The first of these words in the code.
fn first_of(code: &str, wanted: &[&str]) -> Option<usize> {
    rust::words(code).find(|(_, word)| wanted.contains(word)).map(|(at, _)| at)
}

#[test]
fn one_hand_shake_serves_all() {
    outside(
        "a store is ordered before a later load by the handshake of rocketbufs/ring alone, which loom has checked",
        |path| path.starts_with(RING),
        &exceptions::load().seq_cst,
        |code| first_of(code, &["SeqCst", "compiler_fence"]),
    );
    outside(
        "fences and SeqCst are for rocketbufs/ring: take a handshake from there, or say what Acquire and Release pair with",
        |path| path.contains("/src/") && !path.starts_with(RING),
        &[],
        |code| first_of(code, &["SeqCst", "fence", "compiler_fence"]),
    );
}

/// The locks of the standard library are poisoned by a panic, and every use of them has to say that this does not matter.
#[test]
fn locks_are_never_poisoned() {
    outside(
        "Mutex, RwLock and Condvar are those of the crate locks",
        |path| path.contains("/src/") && !path.starts_with("lab/"),
        &exceptions::load().std_locks,
        std_lock,
    );
}

/// The first path of the standard library that leads to a lock.
fn std_lock(code: &str) -> Option<usize> {
    let locks = ["Mutex", "RwLock", "Condvar", "PoisonError"];
    let names = |path: &str| -> String {
        let end = if path.starts_with('{') { ";" } else { ":;<>(){}, \n" };
        path.chars().take_while(|letter| !end.contains(*letter)).collect()
    };
    let paths = code.match_indices("std::sync::").map(|(at, path)| (at, names(&code[at + path.len()..])));
    let mut found = paths.filter(|(_, names)| rust::words(names).any(|(_, word)| locks.contains(&word)));
    found.next().map(|(at, _)| at)
}

#[test]
fn crates_that_need_no_unsafe_refuse_it() {
    let files = rust_files();
    let mut found = Vec::new();
    for (folder, level) in SAFE_CRATES {
        let roots = [format!("{folder}/src/lib.rs"), format!("{folder}/src/main.rs")];
        let present: Vec<&File> = files.iter().filter(|f| roots.contains(&f.path)).collect();
        if present.is_empty() {
            found.push(format!("{folder}: no lib.rs or main.rs"));
        }
        let attribute = format!("#![{level}(unsafe_code)]");
        let lax = present.iter().filter(|f| !f.text.contains(&attribute));
        found.extend(lax.map(|f| format!("{}: {attribute}", f.path)));
    }
    none("the root of a crate refuses unsafe code", found);
}

#[test]
fn every_crate_takes_the_lints_of_the_workspace() {
    let manifests = tree::files()
        .into_iter()
        .filter(|f| f.path.ends_with("/Cargo.toml") && f.path != "lab/fuzz/Cargo.toml");
    let lax = manifests.filter(|f| !f.text.contains("[lints]\nworkspace = true"));
    none("[lints] workspace = true", lax.map(|f| f.path).collect());
}

#[test]
fn links_resolve() {
    let root = tree::root();
    let mut found = Vec::new();
    for file in tree::files().iter().filter(|f| f.path.ends_with(".md")) {
        let folder = root.join(&file.path).parent().expect("a file has a folder").to_owned();
        for link in tidy::links::paths(&file.text) {
            if !folder.join(&link).exists() {
                found.push(format!("{}: {link}", file.path));
            }
        }
    }
    none("links point at files that exist", found);
}

#[test]
fn nothing_built_is_committed() {
    let listed = Command::new("git").arg("-C").arg(tree::root()).args(["ls-files", "-z"]).output();
    let Ok(output) = listed.map_err(|e| e.to_string()).and_then(|o| {
        if o.status.success() { Ok(o) } else { Err(String::from_utf8_lossy(&o.stderr).into_owned()) }
    }) else {
        println!("skipped: this is no git repository, or there is no git");
        return;
    };
    let listed = String::from_utf8_lossy(&output.stdout);
    let built = |path: &&str| path.split('/').any(|part| part == "target") || path.ends_with(".profraw");
    none("build outputs are not committed", listed.split('\0').filter(built).map(str::to_owned).collect());
}

/// A fuzz target has parts in four places. Only `cargo fuzz run` would notice a missing one.
#[test]
fn every_fuzz_target_is_complete() {
    let files = tree::files();
    let named = |prefix: &'static str, suffix: &'static str| -> BTreeSet<String> {
        let inside = files.iter().filter_map(move |f| f.path.strip_prefix(prefix)?.strip_suffix(suffix));
        inside.map(str::to_owned).collect()
    };
    let targets = named("lab/fuzz/fuzz_targets/", ".rs");
    let manifest =
        std::fs::read_to_string(tree::root().join("lab/fuzz/Cargo.toml")).expect("lab/fuzz/Cargo.toml");
    let bodies =
        std::fs::read_to_string(tree::root().join("lab/fuzz/bodies/src/lib.rs")).expect("fuzz bodies");
    let mut found = Vec::new();
    for target in &targets {
        let corpus = tree::root().join("lab/fuzz/corpus").join(target);
        if !std::fs::read_dir(&corpus).is_ok_and(|mut entries| entries.next().is_some()) {
            found.push(format!("{target}: lab/fuzz/corpus/{target} is empty"));
        }
        if !manifest.contains(&format!("name = \"{target}\"")) {
            found.push(format!("{target}: no [[bin]] in lab/fuzz/Cargo.toml"));
        }
        if !bodies.contains(&format!("(\"{target}\", ")) {
            found.push(format!("{target}: not in TARGETS of lab/fuzz/bodies/src/lib.rs"));
        }
    }
    let table = bodies.split("TARGETS: ").nth(1).and_then(|rest| rest.split("];").next()).unwrap_or_default();
    let listed = table.matches("(\"").count();
    if listed != targets.len() {
        found.push(format!("{listed} targets in TARGETS, {} in lab/fuzz/fuzz_targets", targets.len()));
    }
    none("a fuzz target has a body, a file, a [[bin]] and a corpus", found);
}

/// Values that belong together have a type with a name: a function that needs eight of them lacks a type.
#[test]
fn no_function_takes_a_tuple() {
    let mut found = Vec::new();
    for file in rust_files() {
        let functions = signatures::with_tuple_parameters(&file.text);
        let functions = functions.unwrap_or_else(|error| panic!("{}: {error}", file.path));
        found.extend(functions.iter().map(|(line, name)| format!("{}:{line}: fn {name}", file.path)));
    }
    none("make a type of the values that belong together", found);
}
