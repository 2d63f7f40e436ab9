//! The barriers of handshakes ([`crate::NotifyFlag`]): the one place of this workspace that orders a store before a later load.
//!
//! Both sides of a handshake write, make a barrier, and read what the other side wrote. Two pairs of barriers do that:
//!
//! ```text
//!   one side      the other side     cost
//!   full          full               a fence each
//!   light         heavy              light: none; heavy: an interrupt to every core that runs a thread of the process
//! ```
//!
//! A full fence waits until the stores before it have reached the other core, which halves the rate of small messages to a
//! reader that spins. So where one side runs for every message and the other a few hundred times a second, the rare side
//! makes the barrier for both (Linux's membarrier; Folly calls the pair asymmetric fences), and the frequent side only keeps
//! the compiler from changing the order. Where the system has no membarrier both are full fences.
//!
//! A barrier returns a proof of itself, and functions that must run after a barrier take the proof as an argument. One barrier
//! serves all that comes after it. The proof says that there was a barrier, not that it came after what was published: the
//! caller ensures that.

#[cfg(not(loom))]
use rustix::thread::{MembarrierCommand, membarrier};

#[cfg(not(loom))]
use crate::sync::{AtomicBool, OnceLock, compiler_fence};
use crate::sync::{Ordering, fence};

/// The calling thread made a full fence, or a heavy barrier.
#[derive(Debug, Clone, Copy)]
pub struct Full(());

/// The calling thread made a light barrier, or a full fence.
#[derive(Debug, Clone, Copy)]
pub struct Light {
    fenced: bool,
}

/// A barrier of the publishing side, and the barrier of the other side that it meets.
pub trait Barrier: Copy {
    /// Makes the barrier of the other side.
    fn meet() -> Full;
}

impl Barrier for Full {
    #[inline]
    fn meet() -> Full {
        full()
    }
}

impl Barrier for Light {
    fn meet() -> Full {
        heavy()
    }
}

impl Light {
    /// A full fence, unless this was one.
    #[inline]
    pub fn full(self) -> Full {
        if self.fenced { Full(()) } else { full() }
    }
}

impl From<Full> for Light {
    fn from(Full(()): Full) -> Self {
        Light { fenced: true }
    }
}

/// A full fence. Meets another one.
#[inline]
pub fn full() -> Full {
    #[cfg(loom)]
    if LEFT_OUT.with(|left_out| left_out.get()) {
        return Full(());
    }
    fence(Ordering::SeqCst);
    Full(())
}

/// The frequent side's barrier. Meets [`heavy`].
#[cfg(not(loom))]
#[inline]
pub fn light() -> Light {
    // Acquire orders later reads after the registration of this process with the system. An acquire load costs nothing on x86-64.
    light_if(LIGHT.load(Ordering::Acquire))
}

/// A barrier that meets [`heavy_for_all`] if it is `light`, and a full fence otherwise.
#[cfg(not(loom))]
#[inline]
pub(crate) fn light_if(light: bool) -> Light {
    if light {
        compiler_fence(Ordering::SeqCst);
        Light { fenced: false }
    } else {
        full().into()
    }
}

/// The rare side's barrier, for itself and for all threads of this process. Meets [`light`] and [`full`].
#[cfg(not(loom))]
pub fn heavy() -> Full {
    let full = full();
    if LIGHT.load(Ordering::Relaxed) {
        // Cannot fail: `prepare` registered the process.
        let _ = membarrier(MembarrierCommand::PrivateExpedited);
    }
    full
}

/// Loom has no membarrier. The system guarantees that a light and a heavy barrier are as good as two fences.
#[cfg(loom)]
pub fn light() -> Light {
    full().into()
}

/// As [`light`].
#[cfg(loom)]
pub fn heavy() -> Full {
    full()
}

/// Threads of this process make light barriers. Set once, after the system was told.
#[cfg(not(loom))]
static LIGHT: AtomicBool = AtomicBool::new(false);

/// Makes [`light`] light from now on, if the system supports it.
#[cfg(not(loom))]
pub fn prepare() {
    if !LIGHT.load(Ordering::Relaxed) && membarrier(MembarrierCommand::RegisterPrivateExpedited).is_ok() {
        // Pairs with the Acquire in `light`.
        LIGHT.store(true, Ordering::Release);
    }
}

/// Whether heavy barriers of other processes reach this one. The first call registers the process with the system.
#[cfg(not(loom))]
pub(crate) fn receives_global() -> bool {
    static REGISTERED: OnceLock<bool> = OnceLock::new();
    *REGISTERED.get_or_init(|| membarrier(MembarrierCommand::RegisterGlobalExpedited).is_ok())
}

/// Whether this process can make heavy barriers for others.
#[cfg(not(loom))]
pub(crate) fn can_send_global() -> bool {
    // Without a registered process this costs little.
    membarrier(MembarrierCommand::GlobalExpedited).is_ok()
}

/// A heavy barrier for every registered process.
#[cfg(not(loom))]
pub(crate) fn heavy_for_all() -> Full {
    let full = full();
    // Cannot fail: the same command worked in `can_send_global`.
    let _ = membarrier(MembarrierCommand::GlobalExpedited);
    full
}

#[cfg(loom)]
loom::thread_local! {
    static LEFT_OUT: std::cell::Cell<bool> = std::cell::Cell::new(false);
}

/// Runs `f` with every barrier of this thread left out: a model that then still passes proves nothing.
#[cfg(loom)]
pub fn left_out<R>(f: impl FnOnce() -> R) -> R {
    LEFT_OUT.with(|left_out| left_out.set(true));
    let result = f();
    LEFT_OUT.with(|left_out| left_out.set(false));
    result
}
