//! The command `multimqc` as a user runs it, and its server when something fails.

mod command;
mod common;
mod ends;
mod faults;
