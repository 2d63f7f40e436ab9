//! Packets, a plain model of what the programs do with them, and a way to say aloud that a test did not run.
#![allow(dead_code, reason = "each test uses a part")]

pub mod labs;
pub mod model;
pub mod net;
pub mod packet;

use std::io::Write;
use std::time::{Duration, Instant};

use multimqc_kernel::{Config, Kernel, KernelError};

/// XDP's verdicts.
pub const DROP: u32 = 1;
pub const PASS: u32 = 2;
pub const TX: u32 = 3;

/// The level, or None with a message where eBPF cannot be used.
pub fn kernel(config: Config) -> Option<Kernel> {
    match unlocked(|| Kernel::new(config.clone())) {
        Ok(kernel) => Some(kernel),
        Err(error) if error.is_missing_right() => {
            skip(&format!("eBPF needs root, and a kernel that has it ({error})"));
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// Tries again while the folder is locked: a process that another test starts has a copy of the lock until it runs its program.
pub fn unlocked<T>(mut call: impl FnMut() -> Result<T, KernelError>) -> Result<T, KernelError> {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        match call() {
            Err(KernelError::InUse(_)) if Instant::now() < deadline => std::thread::yield_now(),
            result => return result,
        }
    }
}

/// Says past the test harness, which captures what tests print, that a test did not run.
pub fn skip(why: &str) {
    // In one piece, since other tests write too.
    let line = format!("SKIPPED: {why}\n");
    std::io::stderr().write_all(line.as_bytes()).expect("standard error");
}
