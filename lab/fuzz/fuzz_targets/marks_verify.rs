//! See `fuzz_bodies::marks_verify`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz_bodies::marks_verify(data));
