//! See `fuzz_bodies::rbmq_control`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz_bodies::rbmq_control(data));
