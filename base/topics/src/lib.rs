//! Names of topics, and filters with wildcards.
//!
//! Levels between slashes make a tree of names. Filters select branches of it, for subscribers and for rules of access. [`Levels`] is a table of
//! either, which finds matches without visiting the rest.
#![forbid(unsafe_code)]

mod filter;
mod levels;
mod topic;

pub use filter::{FilterError, TopicFilter};
pub use levels::{Levels, OWN_LEVEL};
pub use topic::{MAX_TOPIC_BYTES, TopicError, TopicName};
