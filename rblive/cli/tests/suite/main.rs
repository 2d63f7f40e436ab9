//! The command as its users run it.

mod browser;
mod cluster;
mod command;
mod ends;
mod http;
mod kept;
mod kills;
mod live;
mod operators;
mod players;
mod process;
mod proxies;
mod publish;
mod strangers;
