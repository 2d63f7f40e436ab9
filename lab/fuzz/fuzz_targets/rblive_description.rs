//! See `fuzz_bodies::rblive_description`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz_bodies::rblive_description(data));
