//! See `fuzz_bodies::rblive_fmp4`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz_bodies::rblive_fmp4(data));
