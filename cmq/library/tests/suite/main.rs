//! Queues as an application uses them, with real sockets.

mod common;
mod examples;
mod multicast;
mod network;
mod queue;
mod reliable;
mod secure;
mod strategies;
mod stream;
mod vectors;
