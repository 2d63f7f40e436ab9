//! RESP2 and RESP3: clients of Redis publish to topics and subscribe to them.
//!
//! The parts that read bytes of strangers are public, for those who test them.

pub mod glob;
pub mod names;
pub mod parse;
