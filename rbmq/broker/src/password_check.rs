//! A password that waits to be checked.

use access::{Check, Login, Refused, Source};

/// A password that waits to be checked, and who is told.
pub(super) struct PasswordCheck {
    pub(super) source: Source,
    pub(super) check: Check,
    /// Whether the client has left, so that nothing is checked.
    pub(super) has_left: Box<dyn Fn() -> bool + Send>,
    /// Called with the result, on the thread that has it.
    pub(super) done: Box<dyn FnOnce(Result<Login, Refused>) + Send>,
}

impl PasswordCheck {
    /// Checks the password, on a thread that may wait. The login of a client that has left costs no check.
    pub(super) fn run(self) {
        let login = if (self.has_left)() { Err(Refused::Left) } else { self.check.run() };
        (self.done)(login);
    }

    /// There is no place for the check.
    pub(super) fn refuse(self) {
        (self.done)(Err(Refused::Busy));
    }
}
