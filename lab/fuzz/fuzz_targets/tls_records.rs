//! See `fuzz_bodies::tls_records`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz_bodies::tls_records(data));
