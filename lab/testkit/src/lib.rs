//! What the tests of several packages share. Everything waits at most [`LONG`], and leaves nothing behind.
#![forbid(unsafe_code)]

#[cfg(feature = "broker")]
mod broker;
mod ends;
mod etcd;
mod modes;
mod port;
mod process;
mod proxy;
mod random;
#[cfg(feature = "broker")]
mod raw;
mod skip;
mod strangers;
mod time;

#[cfg(feature = "broker")]
pub use broker::{broker_with, patient, rule};
pub use ends::{Kind, Row, check_ends, row};
pub use etcd::Etcd;
pub use modes::files_for_their_user;
pub use port::{own_addr, own_port};
pub use process::{Outcome, Process};
pub use proxy::Proxy;
pub use random::Random;
#[cfg(feature = "broker")]
pub use raw::{Raw, introduction};
pub use skip::{has, skip};
pub use strangers::{Door, connect_from, is_in_own_network, resident_kib};
pub use time::{LONG, awaited, until, within};
