//! See `fuzz_bodies::seglog_recovery`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz_bodies::seglog_recovery(data));
