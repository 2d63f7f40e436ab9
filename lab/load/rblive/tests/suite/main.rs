//! The command as its users run it.

mod node;
mod watch;
