//! How a program of the bench fails.

/// Any failure: the program ends with its text.
pub type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;
