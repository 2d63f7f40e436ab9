//! Planted bugs: one at a time is switched on to see that the simulator catches it. Never in a released build.
//!
//! Numbers below 8 are planted in `rocketring`, 8 to 10 in the simulated network, the rest here.

pub use rocketring::planted::is;

/// A transfer cut inside a delivery is sent without MORE.
pub const MORE_LOST: u32 = 11;
/// CREDIT says that bytes landed that did not arrive yet.
pub const LANDED_EARLY: u32 = 12;
/// A hold moves past the start of a view that is alive.
pub const PIN_IGNORED: u32 = 13;
/// Credit is due only when the whole window was used.
pub const CREDIT_LATE: u32 = 14;
/// A sender that asks how far the receiver is gets no answer.
pub const ASK_IGNORED: u32 = 15;
/// The place of a named subscription is remembered, but not held.
pub const PLACE_NOT_HELD: u32 = 16;
/// Drop gives up its place while the transport still reads there.
pub const NOT_DETACHED: u32 = 17;
/// A subscription skips without LOST.
pub const LOST_NOT_TOLD: u32 = 18;
/// A splice does not pass a hole on.
pub const HOLE_IGNORED: u32 = 19;
/// A position of another writer's log is taken for one of this log.
pub const EPOCH_IGNORED: u32 = 20;
/// A resume names the position one byte too early.
pub const RESUME_OFF_BY_ONE: u32 = 21;
/// Nobody goes on sending when there is place again.
pub const WRITABLE_IGNORED: u32 = 22;
/// The context of a delivery comes back when it was written, not when it landed.
pub const CONTEXT_EARLY: u32 = 23;
/// The end of a log is told before its last bytes are sent.
pub const END_EARLY: u32 = 24;
/// A writer that is gone ends its log inside a delivery.
pub const GONE_AT_HEAD: u32 = 25;
/// One wake-up in eight is dropped.
pub const NOTIFY_LOST: u32 = 26;
/// Space is used again when it was sent, not when it landed.
pub const HOLD_AT_SENT: u32 = 27;

/// A splice confirms as delivered what only landed with those below it.
pub const DELIVERED_EARLY: u32 = 29;

/// The bugs of this crate: number and what is wrong.
pub const BUGS: &[(u32, &str)] = &[
    (MORE_LOST, "a transfer cut inside a delivery is sent without MORE"),
    (LANDED_EARLY, "CREDIT says that bytes landed that did not arrive yet"),
    (PIN_IGNORED, "a hold moves past the start of a view that is alive"),
    (CREDIT_LATE, "credit is due only when the whole window was used"),
    (ASK_IGNORED, "a sender that asks how far the receiver is gets no answer"),
    (PLACE_NOT_HELD, "the place of a named subscription is remembered, but not held"),
    (NOT_DETACHED, "drop gives up its place while the transport still reads there"),
    (LOST_NOT_TOLD, "a subscription skips without LOST"),
    (HOLE_IGNORED, "a splice does not pass a hole on"),
    (EPOCH_IGNORED, "a position of another writer's log is taken for one of this log"),
    (RESUME_OFF_BY_ONE, "a resume names the position one byte too early"),
    (WRITABLE_IGNORED, "nobody goes on sending when there is place again"),
    (CONTEXT_EARLY, "the context of a delivery comes back when it was written, not when it landed"),
    (END_EARLY, "the end of a log is told before its last bytes are sent"),
    (GONE_AT_HEAD, "a writer that is gone ends its log inside a delivery"),
    (NOTIFY_LOST, "one wake-up in eight is dropped"),
    (DELIVERED_EARLY, "a splice confirms as delivered what only landed with those below it"),
    (HOLD_AT_SENT, "space is used again when it was sent, not when it landed"),
];
