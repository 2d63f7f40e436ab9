//! The tests of rings that share one process; `cargo test -p rocketring --test suite NAME::` runs those of one file. Beside them are the
//! programs `loom` (every interleaving) and `planted` (with the feature `planted-bugs`).
#![cfg(not(loom))]

mod common;
mod doorbell;
mod grow;
mod marks;
mod overwrite;
mod pool;
mod receiver;
mod shared;
mod small_payload;
mod style;
mod trim;
mod wake;
mod writer;
