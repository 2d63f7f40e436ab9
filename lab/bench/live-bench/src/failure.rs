//! Errors, which are only ever printed.

pub type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;
