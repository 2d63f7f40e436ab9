//! See `fuzz_bodies::config_toml`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz_bodies::config_toml(data));
