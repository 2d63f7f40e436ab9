//! See `fuzz_bodies::cmq_sealed`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz_bodies::cmq_sealed(data));
