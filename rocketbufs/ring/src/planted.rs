//! Bugs on purpose: a simulator switches one on at run time and must then fail.
//!
//! A bug is one expression, `if planted::is(n)`, in the code that it breaks. Without the feature `planted-bugs` [`is`] is a
//! constant `false`, and a [`Memo`] is empty: the compiler leaves nothing of the bugs.

/// The planted bugs of this crate: their numbers and their effects.
pub const BUGS: &[(u32, &str)] = &[
    (1, "credit: the writer's horizon is one byte beyond the limit of the slowest hold"),
    (2, "credit: the horizon ignores the newest hold"),
    (3, "receiver: the boundary of a delivery is recorded at the start of its last transfer"),
    (4, "receiver: a copy across the end of the ring has a wrong last byte"),
    (5, "receiver: a skipped hole does not move the boundary"),
    (6, "pending set: a mark is dropped if its word has another mark"),
    (7, "index: boundary_at_or_before returns the start of the block instead of a boundary"),
    (28, "trim: the memory of held bytes is returned to the system"),
];

/// The bug that is switched on; 0 for none.
#[cfg(feature = "planted-bugs")]
pub static ACTIVE: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);

/// Whether bug `n` is switched on.
#[cfg(feature = "planted-bugs")]
#[inline]
pub fn is(n: u32) -> bool {
    ACTIVE.load(std::sync::atomic::Ordering::Relaxed) == n
}

/// Whether bug `n` is switched on: never, in a build without the feature `planted-bugs`.
#[cfg(not(feature = "planted-bugs"))]
#[inline]
pub const fn is(_n: u32) -> bool {
    false
}

/// A value that only a planted bug needs. Without the feature `planted-bugs` it has no size and is never there.
#[derive(Debug, Clone, Copy)]
pub struct Memo<T>(
    #[cfg(feature = "planted-bugs")] Option<T>,
    #[cfg(not(feature = "planted-bugs"))] std::marker::PhantomData<T>,
);

impl<T: Copy> Memo<T> {
    /// No value.
    pub const fn empty() -> Self {
        Self(
            #[cfg(feature = "planted-bugs")]
            None,
            #[cfg(not(feature = "planted-bugs"))]
            std::marker::PhantomData,
        )
    }

    /// Remembers a value.
    #[inline]
    pub fn set(&mut self, _value: T) {
        #[cfg(feature = "planted-bugs")]
        {
            self.0 = Some(_value);
        }
    }

    /// The value set last.
    #[inline]
    pub fn get(&self) -> Option<T> {
        #[cfg(feature = "planted-bugs")]
        return self.0;
        #[cfg(not(feature = "planted-bugs"))]
        None
    }
}
