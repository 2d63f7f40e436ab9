//! See `fuzz_bodies::cmq_reliable`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz_bodies::cmq_reliable(data));
