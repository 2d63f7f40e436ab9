//! The settings of the reliable mode.

use cmq::Reliable;

use crate::raw::{Versioned, options, set};
use crate::status::Failure;

/// The settings of the reliable mode, which docs/CMQ.md explains. Zeros are defaults: `cmq_reliable reliable = {.size = sizeof
/// reliable};`
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct cmq_reliable {
    /// `sizeof(cmq_reliable)`.
    pub size: usize,
    /// Bytes that may be sent for a key before the receiver's mailbox has taken them; 0: 1 MiB. 64 KiB to 1 GiB.
    pub window: usize,
    /// Bytes that wait for a confirmation, over all keys; 0: 64 MiB.
    pub send_bytes: usize,
    /// Bytes that a receiver keeps because earlier ones are missing, or a mailbox is full; 0: 64 MiB. At least `window`.
    /// A host may have eight times what is then free, or one window.
    pub receive_bytes: usize,
    /// A key whose messages were not confirmed for this long gives them up, in nanoseconds; 0: 30 s. 100 ms to 1 h.
    pub give_up_ns: i64,
    /// A receiver forgets a sender that is silent for this long, in nanoseconds; 0: 10 min. 3 s to 1 day, and at least three times
    /// `give_up_ns`.
    pub idle_ns: i64,
    /// Keys that are sent to, and keys of senders that are received for, about 300 bytes each; 0: 65,536.
    pub max_keys: usize,
    /// Senders that are remembered, about 1 KiB each; 0: 16,384.
    pub max_links: usize,
}

// SAFETY: integers, and the first field is the size.
unsafe impl Versioned for cmq_reliable {}

/// The settings of the caller; NULL turns the mode off.
pub(crate) fn reliable(given: *const cmq_reliable) -> Result<Option<Reliable>, Failure> {
    if given.is_null() {
        return Ok(None);
    }
    let given = options(given, "the reliable mode")?;
    let mut made = Reliable::default();
    set!(made, given: window, send_bytes, receive_bytes, max_keys, max_links; give_up = give_up_ns, idle = idle_ns);
    Ok(Some(made))
}
