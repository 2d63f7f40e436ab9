//! Style that the compiler does not see.

use std::path::Path;

/// Atomics and locks come through `sync.rs`, so that loom can replace them. Exceptions: the process-wide switch in
/// `planted.rs`, and the type of poison errors, which loom uses too.
#[test]
fn atomics_come_through_one_module() {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    for entry in src.read_dir().unwrap() {
        let path = entry.unwrap().path();
        if path.ends_with("sync.rs") || path.ends_with("planted.rs") {
            continue;
        }
        let text = std::fs::read_to_string(&path).unwrap();
        for (number, line) in text.lines().enumerate() {
            let foreign = line.contains("std::sync::") && !line.contains("std::sync::PoisonError");
            assert!(!foreign, "{}:{}: use crate::sync", path.display(), number + 1);
        }
    }
}
