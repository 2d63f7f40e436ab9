//! See `fuzz_bodies::gateway_websocket`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz_bodies::gateway_websocket(data));
