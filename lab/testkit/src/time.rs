//! How long tests wait.

use std::time::{Duration, Instant};

/// Nothing in a test takes longer unless it hangs.
pub const LONG: Duration = Duration::from_secs(60);

/// Waits until something is so.
///
/// # Panics
/// It is not so after [`LONG`].
pub fn until(what: &str, mut so: impl FnMut() -> bool) {
    let started = Instant::now();
    while !so() {
        assert!(started.elapsed() < LONG, "never: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}
