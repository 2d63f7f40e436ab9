//! Parts that at least two benches share.
//!
//! * [`stats`]: medians and intervals of a few repetitions;
//! * [`table`]: the repetitions of points, and tables with a line for each;
//! * [`plot`]: SVG from rows;
//! * [`output`]: files for rows and tables, and the format of figures;
//! * [`named`]: names of an enumeration's values;
//! * [`view`]: what is shown of the rows of any bench: its table, and views as data;
//! * [`exchange`]: numbered messages and their answers, the same loop for each system;
//! * [`ends`]: the two processes of an exchange;
//! * [`control`]: the worker's end of the control channel;
//! * [`direct`]: messages between two processes without a broker, one way and back;
//! * [`library`]: messages by way of a client library, one way and back;
//! * [`messages`]: numbered messages whose content both ends know;
//! * [`credit`] and [`pace`]: how far a publisher may be ahead of its subscribers, and how fast it publishes;
//! * [`lines`]: the protocols of Redis and NATS, spoken by hand;
//! * [`fleet`] and [`server`]: started processes, which all end with the bench;
//! * [`folder`]: folders that go with it;
//! * [`netns`]: network namespaces, each with its own congestion control;
//! * [`sys`]: processor time, memory, processor and kernel.
//!
//! A program that uses [`fleet::Process::start`] needs a subcommand `worker`. A program that uses [`server::Group`]
//! needs `worker become-server`, which calls [`server::become_server`].

#![forbid(unsafe_code)]

pub mod control;
pub mod credit;
pub mod direct;
pub mod ends;
pub mod error;
pub mod exchange;
pub mod fleet;
pub mod folder;
pub mod library;
pub mod lines;
pub mod messages;
pub mod named;
pub mod netns;
pub mod output;
pub mod pace;
pub mod plot;
pub mod server;
pub mod stats;
pub mod sys;
pub mod table;
pub mod turns;
pub mod view;

pub use error::Error;
