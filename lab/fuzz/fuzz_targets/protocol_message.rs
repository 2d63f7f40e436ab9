//! See `fuzz_bodies::protocol_message`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz_bodies::protocol_message(data));
