//! Nodes in one process.

mod common;
mod nodes;
mod trust;
