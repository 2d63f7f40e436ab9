//! A writer that waits for room.

use std::time::{Duration, Instant};

use crate::Position;
use crate::control::Control;
use crate::ring::{Ring, Shared};
use crate::sync::MutexGuard;

impl Ring {
    /// As [`Ring::grant`], for a writer that wants to write up to `until`: if it may not, others see that it waits.
    pub fn request(&self, until: Position) -> Position {
        self.shared().request(until)
    }

    /// Sleeps until the horizon is at `until`; `true` if it is. `false`: the time was over (`None`: never), or
    /// [`Ring::wake_waiters`] was called, also shortly before this call. Only holds that advance or are dropped, grants and pokes
    /// wake; who keeps a claim open and waits for room behind it waits for ever. Without flow control the answer
    /// is `true` at once.
    pub fn wait_grant(&self, until: Position, timeout: Option<Duration>) -> bool {
        let shared = self.shared();
        if !shared.shape.flow_control {
            return true;
        }
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        let mut control = shared.control();
        let pokes = control.pokes;
        loop {
            if shared.grant_or_wait(&mut control, until) >= until {
                return true;
            }
            if control.pokes != pokes || std::mem::take(&mut control.poked_early) {
                return false;
            }
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            if left.is_some_and(|left| left.is_zero()) {
                return false;
            }
            control.sleepers += 1;
            control = shared.sleep(control, left);
            control.sleepers -= 1;
        }
    }

    /// Wakes everybody in [`Ring::wait_grant`] (the ring is closed or destroyed). If there is nobody, the next
    /// one to come does not sleep: who checks "closed?" and then waits misses nothing.
    pub fn wake_waiters(&self) {
        let mut control = self.shared().control();
        control.pokes += 1;
        control.poked_early = control.sleepers == 0;
        self.shared().granted.notify_all();
    }

    /// Whether somebody wanted more room than there was, and has not been granted it since.
    pub fn writer_waits(&self) -> bool {
        self.shared().waits.peek()
    }
}

impl Shared {
    fn sleep<'a>(&self, control: MutexGuard<'a, Control>, left: Option<Duration>) -> MutexGuard<'a, Control> {
        use std::sync::PoisonError;
        match left {
            None => self.granted.wait(control).unwrap_or_else(PoisonError::into_inner),
            Some(left) => self.granted.wait_timeout(control, left).unwrap_or_else(PoisonError::into_inner).0,
        }
    }
}
