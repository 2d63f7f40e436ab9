//! What a machine lacks for a test.

use std::io::Write;

/// Says past the harness, which captures what tests print, that something is not tested here.
pub fn skip(why: &str) {
    // In one piece, since other tests write too. Nobody may read it.
    let _ = std::io::stderr().write_all(format!("SKIPPED: {why}\n").as_bytes());
}

/// Whether a program is installed. Otherwise says that `what` is not tested here.
pub fn has(program: &str, what: &str) -> bool {
    let folders = std::env::var_os("PATH").unwrap_or_default();
    let is_there = std::env::split_paths(&folders).any(|folder| folder.join(program).is_file());
    if !is_there {
        skip(&format!("{what} (there is no {program}; scripts/setup --tests)"));
    }
    is_there
}
