//! What each fuzz target does with its bytes.
//!
//! The bodies are plain functions, so that two drivers share them: cargo-fuzz (`fuzz/fuzz_targets`, for hours) and
//! `tests/short.rs` (for seconds, with every `cargo test`). Each panics if the code under test breaks a promise:
//! no bytes from outside may panic it, and what it accepts must be what it says.

#![forbid(unsafe_code)]

mod cmq_wire;
mod framework;
mod marks;
pub mod mutate;
mod rbmq_state;
mod rbmq_wire;
mod rdma;
mod tcp;

use rocketnet::wire::{HEADER_BYTES, Header, MORE_BIT};

pub use cmq_wire::cmq_datagram;
pub use framework::{config_toml, protocol_message};
pub use marks::marks_verify;
pub use rbmq_state::rbmq_state;
pub use rbmq_wire::{rbmq_control, rbmq_filter, rbmq_hello, rbmq_observe, rbmq_records, rbmq_runs};
pub use rdma::rdma_frame;
pub use tcp::tcp_receive;

/// A body: takes any bytes, and panics if a promise was broken.
pub type Body = fn(&[u8]);

/// Every target by name.
pub const TARGETS: &[(&str, Body)] = &[
    ("cmq_datagram", cmq_datagram),
    ("config_toml", config_toml),
    ("marks_verify", marks_verify),
    ("protocol_message", protocol_message),
    ("rbmq_control", rbmq_control),
    ("rbmq_filter", rbmq_filter),
    ("rbmq_hello", rbmq_hello),
    ("rbmq_observe", rbmq_observe),
    ("rbmq_records", rbmq_records),
    ("rbmq_runs", rbmq_runs),
    ("rbmq_state", rbmq_state),
    ("rdma_frame", rdma_frame),
    ("tcp_receive", tcp_receive),
    ("wire_header", wire_header),
];

/// Every eight bytes are a header, and a header is written as it was read.
pub fn wire_header(data: &[u8]) {
    for chunk in data.chunks_exact(HEADER_BYTES) {
        let bytes: [u8; HEADER_BYTES] = chunk.try_into().expect("chunks are exact");
        let header = Header::decode(bytes);
        assert_eq!(header.wire & MORE_BIT, 0, "an id has 31 bits");
        assert_eq!(header.encode(), bytes);
    }
}
