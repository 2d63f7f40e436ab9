//! Brokers of RBMQ that share topics: who is a member, and who owns which group of topics. etcd holds both, and nothing else: no message
//! passes it, and a broker whose etcd is away serves what it owns.
//!
//! ```text
//!   broker ── owner of a topic? ──▶ Membership ◀── commands: move, drain
//!          ◀── something changed ──     │ a thread
//!                                    Machine          decides, without I/O and without a clock
//!                                       │
//!                                   etcd::Client, etcd::Watch
//! ```
//!
//! [`etcd`](mod@etcd) is a client of etcd's JSON gateway over HTTP/1.1, which every etcd since 3.4 has. It blocks, belongs to one thread, and
//! has no runtime.
#![forbid(unsafe_code)]

mod claims;
mod keys;
mod machine;
mod member_settings;
mod membership;
mod memo;

pub use claims::LogClaim;
pub use etcd;
pub use etcd::{MAX_NAME_BYTES, is_name};
pub use keys::{Entry, Keys, Map, Member, group_of};
pub use machine::{Machine, Outcome, Owner, Status, Step};
pub use member_settings::{MemberSettings, OnLoss};
pub use membership::{Hooks, Membership};
