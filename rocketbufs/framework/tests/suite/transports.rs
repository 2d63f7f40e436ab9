//! The simulator's invariants on TCP and shared memory, with threads, sockets and mapped memory.
//! `INVARIANT_SEED=7` runs one, `INVARIANT_SEEDS=1000` more. Over RDMA: tests/rdma.rs.

use rocketbufs::Config;
use rocketbufs::config::TransportKind;

use crate::invariants;

fn run(transport: TransportKind) {
    invariants::seeds(40, &Config { transport, ..Config::default() }, "127.0.0.1:0");
}

#[test]
fn over_tcp() {
    run(TransportKind::Tcp);
}

#[test]
fn over_shared_memory() {
    run(TransportKind::Shm);
}
