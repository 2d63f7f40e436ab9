//! Levels in user space, stacks of them, and a server over real sockets.

mod device;
mod levels;
mod restart;
mod server;
mod transfer;
mod vectors;

use multimqc_conformance::{Disk, Lab, User};

/// Every level that is here.
fn labs() -> Vec<Box<dyn Lab>> {
    vec![Box::new(User), Box::new(Disk::default())]
}
