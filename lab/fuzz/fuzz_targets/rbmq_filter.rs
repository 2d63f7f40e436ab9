//! See `fuzz_bodies::rbmq_filter`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz_bodies::rbmq_filter(data));
