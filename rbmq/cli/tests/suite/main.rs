//! The command with real processes, and what it does for its users. `cargo test -p rbmq-cli --test suite top::` runs one file.

mod attacks;
mod away;
mod chain_kills;
mod chains;
mod cluster;
mod cluster_gateways;
mod command;
#[path = "../common/mod.rs"]
mod common;
mod confirm;
mod console;
mod endings;
mod ends;
#[path = "../../../client/tests/suite/event_loop.rs"]
mod event_loop;
mod events;
mod faults;
mod files;
mod from;
mod gateway_beside;
mod gateway_kills;
mod gateway_rules;
mod gateways;
mod groups;
mod hostile_broker;
mod http;
#[cfg(feature = "tls")]
mod https;
mod ingest;
mod kept;
mod kills;
mod least;
mod merge;
mod merge_restart;
mod mesh;
mod mqtt_kills;
mod operations;
mod other_user;
mod patterns;
mod policies;
mod rates;
#[cfg(feature = "tls")]
mod reload_load;
mod s3;
mod scale;
mod spaces;
#[cfg(feature = "tls")]
mod tls;
mod top;
mod users;
