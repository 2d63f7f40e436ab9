//! See `fuzz_bodies::rblive_flv`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz_bodies::rblive_flv(data));
