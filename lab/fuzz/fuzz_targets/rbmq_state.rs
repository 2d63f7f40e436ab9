//! See `fuzz_bodies::rbmq_state`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz_bodies::rbmq_state(data));
