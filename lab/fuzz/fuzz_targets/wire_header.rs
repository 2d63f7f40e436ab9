//! See `fuzz_bodies::wire_header`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz_bodies::wire_header(data));
