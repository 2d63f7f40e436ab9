//! A thread that ends the streams of nodes which do not return.

use std::sync::Arc;
use std::time::Duration;

use locks::{Condvar, Mutex};

/// The state that the manager shares with its keeper thread.
#[derive(Default)]
pub struct Keeper {
    /// Whether the thread must end, and whether it must check at once.
    pub woken: Mutex<(bool, bool)>,
    pub changed: Condvar,
}

impl Keeper {
    /// Starts the thread. `look` makes a check, and returns the time until the next one, if one is due. It returns `None` if the manager
    /// is gone.
    pub fn start(
        self: &Arc<Self>,
        mut look: impl FnMut() -> Option<Option<Duration>> + Send + 'static,
    ) -> std::io::Result<()> {
        let keeper = self.clone();
        let run = move || while look().is_some_and(|next| keeper.wait(next)) {};
        threads::spawn("rblive-keeper", run).map(drop)
    }

    /// Waits until the next check. False: the thread ends.
    fn wait(&self, next: Option<Duration>) -> bool {
        let mut woken = self.woken.lock();
        let waits = |woken: &mut (bool, bool)| !woken.0 && !woken.1;
        if let Some(time) = next {
            self.changed.wait_while_for(&mut woken, waits, time);
        } else {
            self.changed.wait_while(&mut woken, waits);
        }
        woken.1 = false;
        !woken.0
    }

    pub fn stop(&self) {
        self.woken.lock().0 = true;
        self.changed.notify_all();
    }
}
