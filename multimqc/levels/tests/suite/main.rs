//! Levels in user space, stacks of them, and a server over real sockets.

mod device;
mod levels;
mod restart;
mod server;
mod transfer;
mod vectors;

use std::time::{Duration, Instant};

use multimqc_conformance::{Disk, Lab, User};

/// More than any test takes, so that a failure ends.
const PATIENCE: Duration = testkit::LONG;

/// Every level that is here.
fn labs() -> Vec<Box<dyn Lab>> {
    vec![Box::new(User), Box::new(Disk::default())]
}

fn wait_for(what: &str, done: impl Fn() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !done() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}
