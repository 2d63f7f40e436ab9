//! Planted bugs: one at a time is switched on to see that the simulator catches it. Never in a released build.

pub use rocketring::planted::is;

/// A transfer cut inside a delivery is sent without MORE.
pub const MORE_LOST: u32 = 11;
/// CREDIT says that bytes landed that did not arrive yet.
pub const LANDED_EARLY: u32 = 12;

/// The bugs of this crate: number and what is wrong.
pub const BUGS: &[(u32, &str)] = &[
    (MORE_LOST, "a transfer cut inside a delivery is sent without MORE"),
    (LANDED_EARLY, "CREDIT says that bytes landed that did not arrive yet"),
];
