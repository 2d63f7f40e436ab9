//! The kernel level: packets through the programs, real traffic between namespaces of threads, and rings that outlive processes.

#[path = "../common/mod.rs"]
mod common;
mod functions;
mod level;
mod life;
mod objects;
mod packets;
mod repair;
mod traffic;
mod vectors;
mod verifier;
mod writers;
