//! See `fuzz_bodies::rbmq_hello`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz_bodies::rbmq_hello(data));
