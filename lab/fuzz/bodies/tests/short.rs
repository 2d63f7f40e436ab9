//! Runs every fuzz target for a few seconds, on stable Rust and without cargo-fuzz.
//!
//! * `FUZZ_SECONDS` (default 1): how long each target runs after the replay of its corpus; 0 only replays.
//! * `FUZZ_SEED` (default 0): the seed of the inputs.
//! * `FUZZ_REPLAY=FILE`: runs only this input, in the target that its folder is named after.

use std::panic::catch_unwind;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use fuzz_bodies::mutate::Mutator;
use fuzz_bodies::{Body, TARGETS};

/// The number of inputs between two looks at the clock.
const INPUTS_PER_LOOK: u64 = 64;

fn fuzz_folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("bodies lies in fuzz").into()
}

/// A number from the environment.
fn setting(name: &str, default: u64) -> u64 {
    match std::env::var(name) {
        Ok(text) => text.parse().unwrap_or_else(|e| panic!("{name}={text}: {e}")),
        Err(_) => default,
    }
}

/// The corpus in a fixed order, so that a seed gives the same inputs everywhere.
fn corpus(target: &str) -> Vec<Vec<u8>> {
    let folder = fuzz_folder().join("corpus").join(target);
    let entries = std::fs::read_dir(&folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
    let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    paths.sort();
    paths.iter().map(|path| std::fs::read(path).expect("a corpus file is readable")).collect()
}

/// Runs one input. If the body panics, the input is kept and the panic continues.
fn run(target: &str, body: Body, input: &[u8]) {
    let Err(panic) = catch_unwind(|| body(input)) else { return };
    let folder = fuzz_folder().join("artifacts").join(target);
    let name = format!("crash-{:08x}", fingerprint(input));
    std::fs::create_dir_all(&folder).expect("lab/fuzz/artifacts can be made");
    std::fs::write(folder.join(&name), input).expect("the input can be kept");
    eprintln!("{target}: panicked on {} bytes; replay with", input.len());
    eprintln!(
        "  FUZZ_REPLAY=lab/fuzz/artifacts/{target}/{name} cargo test -p fuzz-bodies --test short -- --nocapture"
    );
    std::panic::resume_unwind(panic);
}

/// FNV-1a, which only names inputs.
fn fingerprint(input: &[u8]) -> u32 {
    input.iter().fold(0x811C_9DC5, |hash, &byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}

fn run_for(target: &str, body: Body, time: Duration) {
    let mut mutator = Mutator::new(setting("FUZZ_SEED", 0), corpus(target));
    for input in mutator.corpus() {
        run(target, body, input);
    }
    let replayed = mutator.corpus().len();
    let (began, mut inputs) = (Instant::now(), 0);
    while began.elapsed() < time {
        for _ in 0..INPUTS_PER_LOOK {
            run(target, body, &mutator.next_input());
        }
        inputs += INPUTS_PER_LOOK;
    }
    println!("fuzz {target}: {replayed} inputs of the corpus replayed, {inputs} made from them");
}

#[test]
fn every_target_survives() {
    if let Ok(path) = std::env::var("FUZZ_REPLAY") {
        return replay(Path::new(&path));
    }
    let time = Duration::from_secs(setting("FUZZ_SECONDS", 1));
    let next = AtomicUsize::new(0);
    std::thread::scope(|threads| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            threads.spawn(|| {
                while let Some((target, body)) = TARGETS.get(next.fetch_add(1, Ordering::Relaxed)) {
                    run_for(target, *body, time);
                }
            });
        }
    });
}

/// The path is relative to the repository, as printed.
fn replay(path: &Path) {
    let path = fuzz_folder().parent().expect("fuzz is a folder of the repository").join(path);
    let input = std::fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let target = path.parent().and_then(Path::file_name).expect("the input is in its target's folder");
    let (name, body) = TARGETS.iter().find(|(name, _)| target == *name).expect("the folder names a target");
    println!("replaying {} bytes in {name}", input.len());
    body(&input);
}
