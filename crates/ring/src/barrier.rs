//! Barriers of which one side is nearly free: for hand-shakes where one side comes by with every message and the other a few
//! hundred times a second.
//!
//! Both sides of such a hand-shake "write mine, barrier, read yours". The rare side makes the barrier for the others too, by
//! an interrupt to whatever core runs them (membarrier); the frequent one then only keeps the compiler from changing the
//! order. Where the system has no such thing both sides use a fence. A fence for each message waits until the stores before
//! it have reached the other core, which halves the rate of small messages to a reader that keeps looking.

use rustix::thread::{MembarrierCommand, membarrier};

use crate::sync::{AtomicBool, OnceLock, Ordering, compiler_fence, fence};

/// Threads of this process make light barriers. Set once, after the system was told.
static LIGHT: AtomicBool = AtomicBool::new(false);

/// Whether this process can be told by others of their heavy barriers; tells the system when it is first asked.
pub(crate) fn hears_others() -> bool {
    static HEARS: OnceLock<bool> = OnceLock::new();
    *HEARS.get_or_init(|| membarrier(MembarrierCommand::RegisterGlobalExpedited).is_ok())
}

/// Whether this process can make heavy barriers for others.
pub(crate) fn can_tell_others() -> bool {
    // Without anybody to hear it costs little.
    membarrier(MembarrierCommand::GlobalExpedited).is_ok()
}

/// A heavy barrier for every process that said that it hears them.
pub(crate) fn heavy_for_all() {
    fence(Ordering::SeqCst);
    // It worked before.
    let _ = membarrier(MembarrierCommand::GlobalExpedited);
}

/// From here on [`light`] is light, if the system can do that.
pub fn prepare() {
    if !LIGHT.load(Ordering::Relaxed) && membarrier(MembarrierCommand::RegisterPrivateExpedited).is_ok() {
        LIGHT.store(true, Ordering::SeqCst);
    }
}

/// The frequent side's barrier, between what it writes and what it reads. True if it was a fence.
#[inline]
pub fn light() -> bool {
    // Acquire: what is read from here on is read after the system was told of this process. It costs nothing on x86-64.
    let fences = !LIGHT.load(Ordering::Acquire);
    if fences {
        fence(Ordering::SeqCst)
    } else {
        compiler_fence(Ordering::SeqCst)
    }
    fences
}

/// The rare side's barrier, for itself and for all threads of this process.
pub fn heavy() {
    fence(Ordering::SeqCst);
    if LIGHT.load(Ordering::Relaxed) {
        // It was prepared, and cannot fail since.
        let _ = membarrier(MembarrierCommand::PrivateExpedited);
    }
}
