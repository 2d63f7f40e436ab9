//! Planted bugs: a test switches on one bug at a time, and the simulator must catch it. Released builds contain none.
//!
//! Bugs 1 to 7 and 28 are in `rocketring`, bugs 8 to 10 in the simulated network, and the others here.

#[cfg(feature = "planted-bugs")]
pub use rocketring::planted::ACTIVE;
pub use rocketring::planted::is;

/// A transfer that ends inside a delivery is sent without the flag MORE.
pub const MORE_LOST: u32 = 11;
/// CREDIT reports bytes as landed before they arrive.
pub const LANDED_EARLY: u32 = 12;
/// A hold moves past the start of a live view.
pub const PIN_IGNORED: u32 = 13;
/// The receiver sends CREDIT only when the whole window is used.
pub const CREDIT_LATE: u32 = 14;
/// The receiver does not answer ASK.
pub const ASK_IGNORED: u32 = 15;
/// The sender keeps the position of a named subscription, and not the bytes behind that position.
pub const PLACE_NOT_HELD: u32 = 16;
/// The policy drop releases bytes that the transport still reads.
pub const NOT_DETACHED: u32 = 17;
/// The sender skips bytes without sending LOST.
pub const LOST_NOT_TOLD: u32 = 18;
/// A splice does not forward a hole.
pub const HOLE_IGNORED: u32 = 19;
/// A position in the log of another writer is accepted as a position in this log.
pub const EPOCH_IGNORED: u32 = 20;
/// A resumed subscription requests its position minus one byte.
pub const RESUME_OFF_BY_ONE: u32 = 21;
/// The sender does not continue when the connection becomes writable.
pub const WRITABLE_IGNORED: u32 = 22;
/// The context of a delivery is returned when the delivery is written, and not when it has landed.
pub const CONTEXT_EARLY: u32 = 23;
/// The sender reports the end of a log before it sends the last bytes.
pub const END_EARLY: u32 = 24;
/// The log of a lost writer ends inside a delivery.
pub const GONE_AT_HEAD: u32 = 25;
/// A wake-up in eight is dropped.
pub const NOTIFY_LOST: u32 = 26;
/// The space of sent bytes is reused before the bytes have landed.
pub const HOLD_AT_SENT: u32 = 27;
/// A splice confirms bytes as delivered that have only landed at its subscribers.
pub const DELIVERED_EARLY: u32 = 29;

/// The planted bugs of this crate: their numbers and their effects.
pub const BUGS: &[(u32, &str)] = &[
    (MORE_LOST, "a transfer that ends inside a delivery is sent without the flag MORE"),
    (LANDED_EARLY, "CREDIT reports bytes as landed before they arrive"),
    (PIN_IGNORED, "a hold moves past the start of a live view"),
    (CREDIT_LATE, "the receiver sends CREDIT only when the whole window is used"),
    (ASK_IGNORED, "the receiver does not answer ASK"),
    (
        PLACE_NOT_HELD,
        "the sender keeps the position of a named subscription, and not the bytes behind that position",
    ),
    (NOT_DETACHED, "the policy drop releases bytes that the transport still reads"),
    (LOST_NOT_TOLD, "the sender skips bytes without sending LOST"),
    (HOLE_IGNORED, "a splice does not forward a hole"),
    (EPOCH_IGNORED, "a position in the log of another writer is accepted as a position in this log"),
    (RESUME_OFF_BY_ONE, "a resumed subscription requests its position minus one byte"),
    (WRITABLE_IGNORED, "the sender does not continue when the connection becomes writable"),
    (
        CONTEXT_EARLY,
        "the context of a delivery is returned when the delivery is written, and not when it has landed",
    ),
    (END_EARLY, "the sender reports the end of a log before it sends the last bytes"),
    (GONE_AT_HEAD, "the log of a lost writer ends inside a delivery"),
    (NOTIFY_LOST, "one of eight wake-ups is dropped"),
    (DELIVERED_EARLY, "a splice confirms bytes as delivered that have only landed at its subscribers"),
    (HOLD_AT_SENT, "the space of sent bytes is reused before the bytes have landed"),
];
