//! See `fuzz_bodies::tcp_receive`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz_bodies::tcp_receive(data));
