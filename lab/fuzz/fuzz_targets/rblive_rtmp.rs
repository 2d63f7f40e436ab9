//! See `fuzz_bodies::rblive_rtmp`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz_bodies::rblive_rtmp(data));
