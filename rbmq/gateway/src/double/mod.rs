//! Outlets, a bus and a door in memory, and the floor's part between them: protocols run in tests without a socket, a broker or a clock.
//!
//! ```text
//!   test ── feed ──▶ World: unused bytes, blocked connections ──▶ protocol
//!        ◀─ got ──   Outlets: bytes of each connection        ◀──
//!                    Bus: published messages, filters             deliver() brings them back
//! ```

mod bus;
mod door;
mod logs;
mod outlets;
mod world;

pub(crate) use bus::MemoryBus;
pub(crate) use door::MemoryUser;
pub(crate) use logs::MemoryLog;
pub(crate) use world::World;
