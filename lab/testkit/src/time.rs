//! How long tests wait.

use std::time::{Duration, Instant};

/// Nothing in a test takes longer unless it hangs.
pub const LONG: Duration = Duration::from_secs(60);

/// Waits until something is so.
///
/// # Panics
/// It is not so after [`LONG`].
pub fn until(what: &str, so: impl FnMut() -> bool) {
    within(LONG, what, so);
}

/// Waits until something is so that may take longer, or shorter, than other things.
///
/// # Panics
/// It is not so after `limit`.
pub fn within(limit: Duration, what: &str, mut so: impl FnMut() -> bool) {
    awaited(limit, what, || so().then_some(()));
}

/// Waits for a value.
///
/// # Panics
/// It is not there after `limit`.
pub fn awaited<T>(limit: Duration, what: &str, mut value: impl FnMut() -> Option<T>) -> T {
    let started = Instant::now();
    loop {
        if let Some(value) = value() {
            return value;
        }
        assert!(started.elapsed() < limit, "never: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}
