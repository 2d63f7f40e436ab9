//! See `fuzz_bodies::rblive_wire`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz_bodies::rblive_wire(data));
