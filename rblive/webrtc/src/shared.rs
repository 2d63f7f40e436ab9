//! What the thread of the peers shares with the threads that answer requests.

use std::collections::{HashMap, HashSet};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use aws_lc_rs::constant_time::verify_slices_are_equal;
use locks::Mutex;
use rustix::event::{EventfdFlags, eventfd};

use crate::counters::Counters;
use crate::session::Joining;

/// The inbox of the thread, and the sessions that exist.
pub(crate) struct Shared {
    inbox: Mutex<Inbox>,
    /// The secrets of the sessions, by their numbers.
    pub(crate) sessions: Mutex<HashMap<u64, [u8; 16]>>,
    wake: OwnedFd,
    pub(crate) counters: Counters,
}

/// What the thread is asked to do. There are no more entries than sessions, and streams that they watch.
#[derive(Default)]
pub(crate) struct Inbox {
    pub(crate) joins: Vec<Joining>,
    pub(crate) leaves: Vec<u64>,
    pub(crate) rung: HashSet<Arc<str>>,
    pub(crate) stops: bool,
}

impl Inbox {
    fn is_empty(&self) -> bool {
        self.joins.is_empty() && self.leaves.is_empty() && self.rung.is_empty() && !self.stops
    }
}

impl Shared {
    pub(crate) fn new() -> std::io::Result<Self> {
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self { inbox: Mutex::default(), sessions: Mutex::default(), wake, counters: Counters::default() })
    }

    /// The descriptor that is readable when something is in the inbox.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }

    /// Changes the inbox. Only the first change after the thread has emptied it costs a system call.
    fn tell(&self, change: impl FnOnce(&mut Inbox)) {
        let was_empty = {
            let mut inbox = self.inbox.lock();
            let was_empty = inbox.is_empty();
            change(&mut inbox);
            was_empty && !inbox.is_empty()
        };
        if was_empty {
            // The write fails only if the counter is full. The thread is being woken then.
            let _ = rustix::io::write(&self.wake, &1_u64.to_ne_bytes());
        }
    }

    /// Empties the inbox.
    pub(crate) fn take(&self) -> Inbox {
        let _ = rustix::io::read(&self.wake, &mut [0_u8; 8]);
        std::mem::take(&mut self.inbox.lock())
    }

    pub(crate) fn ring(&self, stream: &Arc<str>) {
        self.tell(|inbox| {
            if !inbox.rung.contains(stream) {
                inbox.rung.insert(stream.clone());
            }
        });
    }

    /// Gives a session to the thread. False: there are `most` that the thread has not ended yet.
    pub(crate) fn join(&self, joining: Joining, most: usize) -> bool {
        {
            let mut sessions = self.sessions.lock();
            if sessions.len() >= most {
                return false;
            }
            sessions.insert(joining.session.number, joining.session.secret);
        }
        self.tell(|inbox| inbox.joins.push(joining));
        true
    }

    /// Ends the session of this name. False: there is none.
    pub(crate) fn leave(&self, name: &str) -> bool {
        let Some((number, secret)) = parse_name(name) else { return false };
        let is_own = {
            let sessions = self.sessions.lock();
            sessions.get(&number).is_some_and(|own| verify_slices_are_equal(own, &secret).is_ok())
        };
        if is_own {
            self.tell(|inbox| {
                if !inbox.leaves.contains(&number) {
                    inbox.leaves.push(number);
                }
            });
        }
        is_own
    }

    pub(crate) fn stop(&self) {
        self.tell(|inbox| inbox.stops = true);
    }
}

/// The name of a session, which nobody guesses.
pub(crate) fn name_of(number: u64, secret: &[u8; 16]) -> String {
    format!("{number:016x}{:032x}", u128::from_be_bytes(*secret))
}

fn parse_name(name: &str) -> Option<(u64, [u8; 16])> {
    if name.len() != 48 || !name.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    let (number, secret) = name.split_at(16);
    let secret = u128::from_str_radix(secret, 16).ok()?;
    Some((u64::from_str_radix(number, 16).ok()?, secret.to_be_bytes()))
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").field("counters", &self.counters).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_is_ended_by_its_whole_name_alone() {
        let shared = Shared::new().unwrap();
        shared.sessions.lock().insert(7, [9; 16]);
        let name = name_of(7, &[9; 16]);
        let other = name.replace('9', "8");
        for wrong in ["", "7", &name[1..], &other, &format!("+{}", &name[1..]), &format!("{}ä", &name[2..])]
        {
            assert!(!shared.leave(wrong), "{wrong}");
        }
        assert!(shared.leave(&name) && shared.leave(&name));
        assert_eq!(shared.take().leaves, [7]);
    }
}
