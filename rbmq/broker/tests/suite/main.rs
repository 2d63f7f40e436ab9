//! Brokers in the test's process, and clients. `cargo test -p rbmq-broker --test suite kept::` runs one file.

mod archive;
mod archived_level;
mod chains;
mod cluster;
mod gate;
mod groups;
mod halfopen;
mod kept;
mod kept_model;
mod large;
mod memory;
mod merge;
mod merge_confirm;
mod moves;
mod patterns;
mod policies;
mod quotas;
mod rights;
mod sharing;
mod spaces;
mod stops;
mod stored;
