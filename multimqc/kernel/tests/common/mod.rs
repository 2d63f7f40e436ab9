//! Packets, a plain model of what the programs do with them, and a way to say aloud that a test did not run.
#![allow(dead_code, reason = "each test uses a part")]

pub mod labs;
pub mod model;
pub mod net;
pub mod packet;

use std::io::Write;

use multimqc_kernel::{Config, Kernel};

/// XDP's verdicts.
pub const DROP: u32 = 1;
pub const PASS: u32 = 2;
pub const TX: u32 = 3;

/// The level, or None with a message where eBPF cannot be used.
pub fn kernel(config: Config) -> Option<Kernel> {
    match Kernel::new(config) {
        Ok(kernel) => Some(kernel),
        Err(error) if error.is_missing_right() => {
            skip(&format!("eBPF needs root, and a kernel that has it ({error})"));
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// Says past the test harness, which captures what tests print, that a test did not run.
pub fn skip(why: &str) {
    // In one piece, since other tests write too.
    let line = format!("SKIPPED: {why}\n");
    std::io::stderr().write_all(line.as_bytes()).expect("standard error");
}
