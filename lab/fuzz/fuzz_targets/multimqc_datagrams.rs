//! See `fuzz_bodies::multimqc_datagrams`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz_bodies::multimqc_datagrams(data));
