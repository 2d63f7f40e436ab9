//! Ingests with brokers in the test's process: through sockets, and through the kernel level.

mod common;
mod kernel;
mod user;
