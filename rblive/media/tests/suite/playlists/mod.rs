//! Playlists and manifests: what an independent parser reads in them, the rules of RFC 8216bis, and random histories.

mod extremes;
mod history;
mod kept;
mod listing;
mod manifests;
mod parsed;
mod rules;
mod servers;
mod windows;

use proptest::test_runner::Config;

/// So many random cases, or as many as the variable `PROPTEST_CASES` says.
fn cases(default: u32) -> Config {
    match std::env::var_os("PROPTEST_CASES") {
        Some(_) => Config::default(),
        None => Config::with_cases(default),
    }
}
