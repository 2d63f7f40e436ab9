//! The bodies of the fuzz targets.
//!
//! The bodies are plain functions, shared by two drivers: cargo-fuzz (`lab/fuzz/fuzz_targets`, for hours) and
//! `tests/short.rs` (for seconds, in every `cargo test`). A body panics if the code under test breaks a
//! promise: received bytes never panic, and accepted bytes mean what they say.

#![forbid(unsafe_code)]

mod access;
mod cmq_reliable;
mod cmq_sealed;
mod cmq_wire;
mod framework;
mod gateway_mqtt;
mod gateway_resp;
mod gateway_websocket;
mod marks;
mod multimqc_service;
pub mod mutate;
mod rblive;
mod rblive_media;
mod rblive_rtmp;
mod rbmq_state;
mod rbmq_wire;
mod rdma;
mod seglog;
mod tcp;
mod tls;

use rocketnet::wire::{HEADER_BYTES, Header, MORE_BIT};

pub use access::{access_certificate, access_jwt, access_rights, access_users};
pub use cmq_reliable::cmq_reliable;
pub use cmq_sealed::cmq_sealed;
pub use cmq_wire::cmq_datagram;
pub use framework::{config_toml, protocol_message};
pub use gateway_mqtt::gateway_mqtt;
pub use gateway_resp::{gateway_resp, gateway_resp_names};
pub use gateway_websocket::gateway_websocket;
pub use marks::marks_verify;
pub use multimqc_service::multimqc_datagrams;
pub use rblive::{rblive_chunk, rblive_description, rblive_request, rblive_wire};
pub use rblive_media::{rblive_flv, rblive_fmp4, rblive_ts};
pub use rblive_rtmp::rblive_rtmp;
pub use rbmq_state::rbmq_state;
pub use rbmq_wire::{
    rbmq_attributes, rbmq_control, rbmq_filter, rbmq_hello, rbmq_observe, rbmq_records, rbmq_runs,
};
pub use rdma::rdma_frame;
pub use seglog::seglog_recovery;
pub use tcp::tcp_receive;
pub use tls::tls_records;

/// A body: takes arbitrary bytes, and panics if a promise is broken.
pub type Body = fn(&[u8]);

/// Every target by name.
pub const TARGETS: &[(&str, Body)] = &[
    ("access_certificate", access_certificate),
    ("access_jwt", access_jwt),
    ("access_rights", access_rights),
    ("access_users", access_users),
    ("cmq_datagram", cmq_datagram),
    ("cmq_reliable", cmq_reliable),
    ("cmq_sealed", cmq_sealed),
    ("config_toml", config_toml),
    ("gateway_resp", gateway_resp),
    ("gateway_resp_names", gateway_resp_names),
    ("gateway_mqtt", gateway_mqtt),
    ("gateway_websocket", gateway_websocket),
    ("marks_verify", marks_verify),
    ("multimqc_datagrams", multimqc_datagrams),
    ("protocol_message", protocol_message),
    ("rblive_chunk", rblive_chunk),
    ("rblive_description", rblive_description),
    ("rblive_flv", rblive_flv),
    ("rblive_fmp4", rblive_fmp4),
    ("rblive_request", rblive_request),
    ("rblive_rtmp", rblive_rtmp),
    ("rblive_ts", rblive_ts),
    ("rblive_wire", rblive_wire),
    ("rbmq_attributes", rbmq_attributes),
    ("rbmq_control", rbmq_control),
    ("rbmq_filter", rbmq_filter),
    ("rbmq_hello", rbmq_hello),
    ("rbmq_observe", rbmq_observe),
    ("rbmq_records", rbmq_records),
    ("rbmq_runs", rbmq_runs),
    ("rbmq_state", rbmq_state),
    ("rdma_frame", rdma_frame),
    ("seglog_recovery", seglog_recovery),
    ("tcp_receive", tcp_receive),
    ("tls_records", tls_records),
    ("wire_header", wire_header),
];

/// Any eight bytes are a header, and the header encodes to the same bytes.
pub fn wire_header(data: &[u8]) {
    for chunk in data.chunks_exact(HEADER_BYTES) {
        let bytes: [u8; HEADER_BYTES] = chunk.try_into().expect("chunks are exact");
        let header = Header::decode(bytes);
        assert_eq!(header.wire & MORE_BIT, 0, "an id has 31 bits");
        assert_eq!(header.encode(), bytes);
    }
}
