//! The other end of a connection, as far as an end knows it before it trusts it: the host it comes from, the place that it has at a listener,
//! and the credentials that it presents.
//!
//! Addresses are looked up by [`resolve`] alone. Everything that limits or remembers peers by address uses [`HostAddress`], so that all
//! products count the same peers as one. Behind [`Proxies`] it is the client that counts. Every listener has [`Places`], or, where a worker owns its connections, [`Strangers`]. Lines of a
//! log that strangers cause are limited ([`LogLimiter`]).
#![forbid(unsafe_code)]

mod address;
mod browser;
mod credentials;
mod host;
mod log_limiter;
mod places;
mod proxies;
mod strangers;

pub use address::{AddressError, resolve, resolve_host, resolve_host_within, resolve_within};
pub use browser::{BrowserFields, ForeignPage, check_known_names};
pub use credentials::{
    Credentials, CredentialsError, MAX_PASSWORD_BYTES, MAX_TOKEN_BYTES, MAX_USER_BYTES, Secret,
};
pub use host::HostAddress;
pub use log_limiter::LogLimiter;
pub use places::{Place, PlaceCounts, PlaceLimits, Places, TurnedAway};
pub use proxies::Proxies;
pub use strangers::Strangers;
