//! Granting room to a writer, and waiting for it.

use std::sync::PoisonError;
use std::time::{Duration, Instant};

use crate::Position;
use crate::control::Control;
use crate::ring::Ring;
use crate::shared::Shared;
use crate::sync::MutexGuard;

impl Ring {
    /// With flow control: moves the horizon as far as holds and history allow, wakes a writer that waits for it, and
    /// returns it. A receiver calls this to tell the sender how far it may write. Without flow control: the horizon.
    pub fn grant(&self) -> Position {
        self.shared().grant(&mut self.shared().control())
    }

    /// As [`Ring::grant`], for a writer that needs room up to `until`. If there is less, the writer counts as waiting from
    /// then on.
    pub fn request(&self, until: Position) -> Position {
        self.shared().request(until)
    }

    /// Sleeps until the horizon is at `until`; `true` if it is. `false`: `timeout` has passed (`None`: there is none), or
    /// [`Ring::wake_waiters`] was called, also shortly before this call. Only advancing or dropped holds, grants and
    /// `wake_waiters` wake. A caller that keeps a claim open and waits for room behind that claim waits for ever. Without
    /// flow control the answer is `true` at once.
    pub fn wait_grant(&self, until: Position, timeout: Option<Duration>) -> bool {
        let shared = self.shared();
        if !shared.flow_control() {
            return true;
        }
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        let mut control = shared.control();
        let wakes = control.wakes;
        loop {
            if shared.grant_or_wait(&mut control, until) >= until {
                return true;
            }
            if control.wakes != wakes || std::mem::take(&mut control.woken_early) {
                return false;
            }
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            if left.is_some_and(|left| left.is_zero()) {
                return false;
            }
            control.sleepers += 1;
            control = sleep(shared, control, left);
            control.sleepers -= 1;
        }
    }

    /// Ends every [`Ring::wait_grant`], as the ring is closed or destroyed. Without a waiting thread the next one does not
    /// sleep: a thread that checks whether the ring is closed and then waits misses nothing.
    pub fn wake_waiters(&self) {
        let mut control = self.shared().control();
        control.wakes += 1;
        control.woken_early = control.sleepers == 0;
        self.shared().granted.notify_all();
    }

    /// Whether a writer needed more room than there was, and has not been granted it since.
    pub fn writer_waits(&self) -> bool {
        self.shared().waits.peek()
    }
}

fn sleep<'a>(
    shared: &Shared,
    control: MutexGuard<'a, Control>,
    left: Option<Duration>,
) -> MutexGuard<'a, Control> {
    match left {
        None => shared.granted.wait(control).unwrap_or_else(PoisonError::into_inner),
        Some(left) => shared.granted.wait_timeout(control, left).unwrap_or_else(PoisonError::into_inner).0,
    }
}
