//! The command, as a user runs it.

mod command;
mod multicast;
