//! The C API of RocketBufs, RBMQ's client and CMQ. `bindings/include/rocketbufs.h` is generated from this crate, and its
//! documentation is that of the functions here; `docs/C.md` is the guide.
//!
//! ```text
//!   C program ── handle ──▶ table ──▶ object of the Rust API      the exported functions: rb_, rbmq_, cmq_
//!             ◀─ status ── call ◀─── Result, or a panic           status.rs, failures.rs
//! ```
//!
//! Every exported function is a thin layer: it finds the objects of its handles (module `table`), converts its arguments
//! ([`raw`]), calls the Rust API, and returns a status ([`status`]).

#![allow(non_camel_case_types)]
// Pointers of C are read and written in `raw`, by the contract that stands there.
#![allow(clippy::not_unsafe_ptr_arg_deref)]

pub mod admission;
pub mod buffer;
pub mod cmq_api;
pub mod conn;
pub mod context;
mod failures;
mod fork;
pub mod handles;
pub mod identity;
pub mod in_events;
mod kept;
pub mod options;
pub mod out_events;
pub mod rate_limits;
pub mod raw;
pub mod rbmq;
pub mod rin;
pub mod rout;
pub mod segment;
pub mod status;
mod table;
pub mod view;
