//! See `fuzz_bodies::access_jwt`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz_bodies::access_jwt(data));
