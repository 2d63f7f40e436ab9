//! The client library with brokers in the same process. `cargo test -p rbmq --test suite observe::` runs one file.

mod away;
mod between;
mod elsewhere;
mod event_loop;
mod events;
mod library;
mod observe;
mod over;
mod tasks;
