//! See `fuzz_bodies::rdma_frame`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz_bodies::rdma_frame(data));
