//! See `fuzz_bodies::rbmq_records`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz_bodies::rbmq_records(data));
