//! A client of etcd: the JSON gateway over HTTP/1.1.
//!
//! ```text
//!   Client ──▶ Connection ──▶ HTTP/1.1, with TLS or without ──▶ one of several endpoints
//!   Watch  ──▶ Connection of its own                            a hint that something has changed, and never the change itself
//! ```
//!
//! What a store answers is data: every body has a limit, every call a time, and an answer that makes no sense is an error that names the
//! endpoint.
#![forbid(unsafe_code)]

mod access;
mod client;
mod connection;
mod endpoint;
mod error;
mod json;
mod presence;
mod watch;

pub use access::{Access, MAX_NAME_BYTES, is_name, password_in, running_system};
pub use client::{Client, ClientSettings};
pub use endpoint::{Endpoint, EndpointError};
pub use error::EtcdError;
pub use json::{Change, Compare, KeyValue, Lease, Snapshot, Txn};
pub use presence::{Presence, PresenceSettings, PresenceStatus, Presented};
pub use rustls::ClientConfig;
pub use watch::{News, Watch};
