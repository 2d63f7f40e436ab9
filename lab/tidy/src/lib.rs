//! The style rules of this repository that rustfmt and clippy cannot check.
//!
//! * [`tree`]: the files of the repository;
//! * [`rust`]: Rust source without its comments and literals, and the functions in it;
//! * [`licence`]: SPDX expressions against an allow-list;
//! * [`links`]: the relative links of a Markdown file;
//! * [`exceptions`]: the exceptions to the rules, with their reasons;
//! * [`imports`]: the import graph of a package; [`cycles`]: its cycles; [`layers`]: the declared layers;
//! * [`report`]: the graph as a table, JSON and a drawing.
//!
//! Each rule is a test in `tests/`, so that a failure names its rule.

#![forbid(unsafe_code)]

pub mod cargo;
pub mod cycles;
pub mod exceptions;
pub mod imports;
pub mod layers;
pub mod licence;
pub mod links;
pub mod report;
pub mod rust;
pub mod shell;
pub mod signatures;
pub mod tree;
