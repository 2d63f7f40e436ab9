//! Rings: the memory under everything else in RocketBufs.
//!
//! A *buffer* is an endless log of bytes made by one writer and addressed by 64-bit positions. A [`Ring`] is
//! memory that holds the last `capacity` bytes of that log. Every reader is a cursor in the log; nothing here is a
//! queue of messages, and the memory does not grow with the number of readers.
//!
//! ```text
//!    the log      tail        cursors        boundary    head           horizon = tail + capacity
//!   ───┬───────────┬─────────────┬──────┬────────┬─────────┬───────────────┬──────────▶ positions
//!      │  gone     │  h1 ▲    h2 ▲       │        │ part of │  free: the    │  not the writer's yet
//!      │           │ stable, may be read │        │ a del.  │  writer's     │
//!      start       └── read up to ───────┴────────┴─────────┘
//!
//!    the memory   position p lies at offset p & (capacity − 1), and the same pages are mapped twice:
//!                 ┌───────────────┬───────────────┐
//!                 │ first mapping │ second mapping│     so that any range of at most `capacity` bytes is one
//!                 └──────────▲────┴────▲──────────┘     contiguous piece of memory, also across the end
//!                            └─ range ─┘
//! ```
//!
//! * `head` is the end of the written bytes; `boundary` ≤ `head` the end of the last complete delivery.
//! * The *horizon* is how far the writer may write without asking. The horizon never moves back. Bytes below
//!   `tail = horizon − capacity` may be overwritten at any time.
//! * With flow control the horizon is `min(slowest hold + capacity, head + capacity − retain)`: a [`Hold`] keeps
//!   the writer from the bytes above it, and `retain` bytes of history are kept for readers that join.
//! * Without flow control the writer announces the horizon itself before it writes past the old one. A reader
//!   copies and then checks whether the copied bytes were still there ([`View::copy_to`], [`Ring::is_stable`]).
//!
//! * An idle ring returns memory ([`RingReceiver::trim`], [`Ring::trim`]): the tail goes up, as far as holds allow, and the
//!   pages below it return to the system.
//!
//! * Another process can map a ring, without being able to write it (`Pool::shared_ring`, `PeerMapper`). This process
//!   makes a ring of its own over the same memory, with its own head, holds and horizon. The mapped ring follows the
//!   writer by itself, and the writer wakes the process by its `Doorbell`.
//!
//! A ring is filled by a local [`Writer`] or by a [`RingReceiver`] (with the bytes that a transport received), and read
//! through [`View`]s. [`PendingSet`], [`Mailbox`] and [`Waker`] notify the threads that move the bytes; [`ReactorToken`]
//! decides which thread that is. All notifications use one handshake: [`NotifyFlag`].
//!
//! ```
//! use rocketring::{Pool, PoolConfig, RingConfig};
//!
//! let pool = Pool::new(PoolConfig { max_bytes: 1 << 20, ..PoolConfig::default() })?;
//! let ring = pool.ring(RingConfig { capacity_bytes: 64 << 10, ..RingConfig::default() })?;
//! let hold = ring.hold(ring.head())?;
//! let mut writer = ring.writer().expect("the first writer");
//! let end = writer.append(&[b"hello, ", b"ring"])?;
//! assert_eq!(ring.view(hold.position(), end).to_vec()?, b"hello, ring");
//! hold.advance(end);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Files, the lowest layer first (a file imports from its own layer and from those below):
//!
//! | layer | files |
//! |---|---|
//! | ground | notifications (`barrier`, `handshake`, `wake`, `mailbox`, `lazy_cursor`, `reactor_token`, `sleep_word`), `index`, `extent`, `small_payload`, `quota`, `error` |
//! | memory | `memory` (mappings), `arena` (a pool's reservations), `region` (files that other processes map), `backing`, `doorbell`, `shape`, `layout` (memory, sizes and index of one size of a ring) |
//! | ring | `shared` (what all handles share), `control` (its lock), `page_access`, `watch`, `ring` |
//! | handles | `writer`, `receiver`, `view`, `hold`, `grant`, `pin`, `trim`, `grow`, `marks`, `peer`, `pool` |
//!
//! `unsafe` lives in the modules that exist for it: `memory` (mappings, raw copies), `writer` and `receiver`
//! (exclusive access to claimed bytes) and `view` (plain slices of held bytes).

mod arena;
mod backing;
pub mod barrier;
mod control;
#[cfg(not(loom))]
mod doorbell;
mod error;
mod event;
mod extent;
mod grant;
mod grow;
mod handshake;
mod hold;
mod index;
mod layout;
mod lazy_cursor;
mod mailbox;
mod marks;
mod memory;
mod page_access;
#[cfg(not(loom))]
mod peer;
mod pin;
pub mod planted;
mod pool;
#[cfg(not(loom))]
mod quota;
mod reactor_token;
mod receiver;
#[cfg(not(loom))]
mod region;
mod ring;
mod shape;
mod shared;
pub mod sleep_word;
pub mod small_payload;
pub mod sync;
mod trim;
mod view;
mod wake;
#[cfg(not(loom))]
mod watch;
mod writer;

pub use control::{Gap, Growth};
#[cfg(not(loom))]
pub use doorbell::{Doorbell, PeerDoorbell};
#[cfg(not(loom))]
pub use error::MapError;
pub use error::{GrowError, PoolError};
pub use handshake::{Armed, EventCount, NotifyFlag};
pub use hold::{Hold, Overwritten};
pub use lazy_cursor::LazyCursor;
pub use mailbox::Mailbox;
pub use marks::{MARK_HEAD_BYTES, MARK_TAIL_BYTES, MarkError, Payload, verify, write_marks};
#[cfg(not(loom))]
pub use peer::{PeerMapper, PeerRing};
pub use pin::PinGuard;
pub use pool::{Pool, PoolConfig};
pub use reactor_token::ReactorToken;
pub use receiver::RingReceiver;
pub use ring::Ring;
pub use shape::RingConfig;
pub use trim::Trimmed;
pub use view::{Lapped, View};
pub use wake::{PendingSet, Waker};
#[cfg(not(loom))]
pub use watch::{MAX_WATCHERS, WatchKey};
pub use writer::{Claim, ClaimError, DeliverError, Delivered, MAX_OPEN_CLAIMS, Writer};

/// A position in a writer's log, in bytes since that log's position 0. A position has a meaning only with the log's epoch.
pub type Position = u64;
