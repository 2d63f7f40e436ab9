//! The other end of a connection, as far as an end knows it before it trusts it.
//!
//! Everything that limits or remembers peers by address uses [`HostAddress`], so that all products count the same peers as one.
#![forbid(unsafe_code)]

mod host;

pub use host::HostAddress;
