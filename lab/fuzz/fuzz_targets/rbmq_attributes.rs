//! See `fuzz_bodies::rbmq_attributes`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz_bodies::rbmq_attributes(data));
