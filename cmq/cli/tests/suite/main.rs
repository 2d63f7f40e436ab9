//! The command, as a user runs it.

mod command;
mod ends;
mod multicast;
