//! A queue of commands for one worker.

use std::collections::VecDeque;

use crate::sync::{AtomicBool, Mutex, Ordering, lock};

/// Commands that any thread pushes and one worker takes, in order. Checking for commands costs a load.
///
/// The pushing thread wakes the worker after that, and the worker checks between [`Waker::prepare`](crate::Waker::prepare)
/// and its sleep. The waker's barriers order both, and no others are needed here.
#[derive(Debug)]
pub struct Mailbox<T> {
    mail: Mutex<Mail<T>>,
    /// Whether there are commands. Written under the lock.
    any: AtomicBool,
}

#[derive(Debug)]
struct Mail<T> {
    commands: VecDeque<T>,
    closed: bool,
}

impl<T> Default for Mailbox<T> {
    fn default() -> Self {
        let mail = Mail { commands: VecDeque::new(), closed: false };
        Self { mail: Mutex::new(mail), any: AtomicBool::new(false) }
    }
}

impl<T> Mailbox<T> {
    /// Adds a command. The caller wakes the worker.
    ///
    /// # Errors
    /// The mailbox is closed. The command is returned.
    pub fn push(&self, command: T) -> Result<(), T> {
        let mut mail = lock(&self.mail);
        if mail.closed {
            return Err(command);
        }
        mail.commands.push_back(command);
        self.any.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Whether there are commands, or were a moment ago.
    #[inline]
    pub fn has_mail(&self) -> bool {
        self.any.load(Ordering::Relaxed)
    }

    /// Takes all commands.
    pub fn take(&self) -> VecDeque<T> {
        if !self.has_mail() {
            return VecDeque::new();
        }
        let mut mail = lock(&self.mail);
        self.any.store(false, Ordering::Relaxed);
        std::mem::take(&mut mail.commands)
    }

    /// Accepts no command from now on. Returns the commands that the worker has not taken.
    pub fn close(&self) -> VecDeque<T> {
        let mut mail = lock(&self.mail);
        mail.closed = true;
        self.any.store(false, Ordering::Relaxed);
        std::mem::take(&mut mail.commands)
    }
}
