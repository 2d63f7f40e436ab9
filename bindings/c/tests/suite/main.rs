//! The C API beside the Rust crates, and the committed headers of both C libraries beside their sources.

mod api;
mod header;
