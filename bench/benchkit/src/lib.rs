//! What the benches of this project share: only what at least two of them need.
//!
//! * [`stats`]: what a handful of repetitions say;
//! * [`plot`]: SVG from rows;
//! * [`output`]: where rows, tables and plots go, and how figures are written;
//! * [`exchange`]: numbered messages and their answers, the same loop for every system;
//! * [`ends`]: the two processes of it;
//! * [`control`]: a process's side of the talk with the harness;
//! * [`direct`]: messages from one process to another, and there and back;
//! * [`library`]: messages by way of a client library, and there and back;
//! * [`messages`]: numbered messages whose content is known to both ends;
//! * [`credit`] and [`pace`]: how far a publisher may be ahead of its subscribers, and how fast it publishes;
//! * [`fleet`] and [`server`]: processes that are started, talked to, and never left behind;
//! * [`netns`]: network namespaces, each with its own congestion control;
//! * [`sys`]: what the machine says about itself.
//!
//! A program that uses [`fleet::Process::start`] has a command `worker`, and one that uses [`server::Group`] has
//! `worker become-server`, which calls [`server::become_server`].

#![forbid(unsafe_code)]

pub mod control;
pub mod credit;
pub mod direct;
pub mod ends;
pub mod error;
pub mod exchange;
pub mod fleet;
pub mod library;
pub mod messages;
pub mod netns;
pub mod output;
pub mod pace;
pub mod plot;
pub mod server;
pub mod stats;
pub mod sys;
pub mod turns;

pub use error::Error;
