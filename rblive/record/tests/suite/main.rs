//! A recorder in a node: what is kept, what is lost, and what is removed.

mod disk;
mod keeps;
mod lab;
mod ladders;
mod returns;
