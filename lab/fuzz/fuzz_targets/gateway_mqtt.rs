//! See `fuzz_bodies::gateway_mqtt`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz_bodies::gateway_mqtt(data));
