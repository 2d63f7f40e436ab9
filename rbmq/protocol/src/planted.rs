//! Planted bugs of clusters: a test switches on one at a time, and brokers and clients under faults must then show it. Released builds contain none.

pub use rocketbufs::planted::is;

/// An owner serves on when its term has ended.
pub const NO_FENCE: u32 = 41;
/// A broker confirms as stored what its disk does not have yet.
pub const STORED_EARLY: u32 = 42;
/// An owner that took a topic from another one names that one as the owner.
pub const REDIRECT_LOOP: u32 = 43;
/// A publisher whose broker has died tells the next one that everything was stored.
pub const PLACE_AFTER_DEATH: u32 = 44;
/// The first object of a broker that goes on in an archive has a name of its own, and not that of the next object of the owner before.
pub const NO_ARCHIVE_FENCE: u32 = 45;
