//! The calls that wait in steps, one at a time.
//!
//! A mutex alone would give the next step to the call that has just had one, which locks it again before another thread wakes. So the call that
//! came first has the next step. A call waits for its step for a limited time, and then looks at signals and its deadline; it keeps its
//! number meanwhile, and nobody waits for a call that is away.

use std::collections::BTreeSet;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The calls that wait for a step.
#[derive(Default)]
pub struct Line {
    state: Mutex<State>,
    moved: Condvar,
}

#[derive(Default)]
struct State {
    /// The number of the next call that comes.
    next: u64,
    /// Whether a step runs.
    busy: bool,
    /// The numbers of the calls that wait here now.
    waiting: BTreeSet<u64>,
}

/// The number of a call, from when it comes until it has a step.
#[derive(Default)]
pub struct Number(Option<u64>);

/// A step. Its end lets the next one begin.
pub struct Step<'a>(&'a Line);

impl Line {
    /// Waits for the step of a call, and takes its number back. None, and it keeps the number, if that would take longer than `time`.
    pub fn step(&self, number: &mut Number, time: Duration) -> Option<Step<'_>> {
        let mut state = self.lock();
        let own = *number.0.get_or_insert_with(|| {
            state.next += 1;
            state.next
        });
        state.waiting.insert(own);
        let waits = |state: &mut State| state.busy || state.waiting.first() != Some(&own);
        let waited = self.moved.wait_timeout_while(state, time, waits);
        let mut state = waited.unwrap_or_else(PoisonError::into_inner).0;
        let first = !waits(&mut state);
        state.waiting.remove(&own);
        if !first {
            return None;
        }
        state.busy = true;
        number.0 = None;
        Some(Step(self))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Step<'_> {
    fn drop(&mut self) {
        self.0.lock().busy = false;
        self.0.moved.notify_all();
    }
}
