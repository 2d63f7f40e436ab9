//! The protocol's messages as vectors, and the JSON in which other languages read them.

pub mod cases;
pub mod fields;
