//! Giving a ring more memory while it is read and written.
//!
//! A ring is made for the deliveries that its writer makes. A larger one, which comes once, needs a larger ring, and neither the
//! readers nor the log may notice.
//!
//! ```text
//!   before    floor = tail      hold   boundary  head        horizon = tail + capacity
//!   ────────────┬────────────────┬────────┬───────┬─────────────┬──▶
//!   old memory  │■■■■■■■■■■■■■■■■■■■■■■■■■■■■■■■■■│             │   stays as it is, for readers that have an address in it
//!   new memory  │■■■■■■■■■■■■■■■■■■■■■■■■■■■■■■■■■│             ┆ ······ larger ······ ┆
//!                 copied                          └─ all new bytes: in the new memory
//! ```
//!
//! The thread that grows a ring is the one that writes it: it has the [`Writer`] without open claims, or the [`RingReceiver`]. So
//! no byte below the head changes meanwhile, and none above it exists. Nothing moves but where positions lie: head, boundary,
//! holes, holds and the horizon stay, and the next grant is of the larger ring.

use std::ops::Range;

use crate::Position;
use crate::backing::Memory;
use crate::control::Control;
use crate::error::{GrowError, PoolError};
use crate::layout::Layout;
use crate::memory::page_bytes;
use crate::pool::{Pool, RingRoom};
use crate::receiver::RingReceiver;
use crate::ring::Ring;
use crate::shape::{RingConfig, Shape};
use crate::shared::Shared;
use crate::sync::{Ordering, lock};
use crate::writer::Writer;

/// The most bytes that are copied at a time.
const COPY_BYTES: u64 = 64 << 10;

impl Writer {
    /// Allows deliveries of `max_delivery` bytes, and gives the ring memory for them where it has too little: at least twice that,
    /// rounded up to a power of two. A quarter of the pool is left to rings that do not grow.
    ///
    /// # Errors
    /// [`GrowError`]; nothing has changed then.
    pub fn grow(&mut self, pool: &Pool, max_delivery: u64) -> Result<(), GrowError> {
        if self.has_open_claims() {
            return Err(GrowError::OpenClaims);
        }
        let ring = self.ring().clone();
        grow(&ring, pool, max_delivery)?;
        self.see_horizon();
        Ok(())
    }
}

impl RingReceiver {
    /// As [`Writer::grow`]. To be called only where all bytes land through this receiver, and while no address of
    /// [`RingReceiver::spare`] is in use.
    ///
    /// # Errors
    /// [`GrowError`]; nothing has changed then.
    pub fn grow(&mut self, pool: &Pool, max_delivery: u64) -> Result<(), GrowError> {
        grow(&self.ring().clone(), pool, max_delivery)
    }
}

impl Ring {
    /// Whether the ring could grow: it has memory of a pool, waits for its readers, and no adapter knows its pages.
    pub fn can_grow(&self) -> bool {
        let shared = self.shared();
        let is_alone = self.capacity() > 0 && shared.origin().can_release_pages();
        is_alone && shared.shape().flow_control && shared.access.lock_unpinned().is_some()
    }

    /// Bytes of the pool that the ring has: its capacity, and what it had before it grew.
    ///
    /// ```
    /// use rocketring::{Pool, PoolConfig, RingConfig};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let pool = Pool::new(PoolConfig::default())?;
    /// let ring = pool.ring(RingConfig { capacity_bytes: 64 << 10, retain_bytes: Some(0), ..RingConfig::default() })?;
    /// let mut writer = ring.writer().expect("the ring is new");
    /// assert_eq!(ring.bytes_to_grow(100_000), 256 << 10);
    /// writer.grow(&pool, 100_000)?;
    /// assert_eq!(ring.memory_bytes(), (64 << 10) + (256 << 10));
    /// # Ok(())
    /// # }
    /// ```
    pub fn memory_bytes(&self) -> u64 {
        self.shared().layout.memory_bytes()
    }

    /// Bytes of a pool that the ring takes to grow for deliveries of `max_delivery` bytes; 0 where it has the room. At most so many
    /// if readers go on meanwhile.
    pub fn bytes_to_grow(&self, max_delivery: u64) -> u64 {
        let Shape { capacity, max_delivery: most, .. } = *self.shared().shape();
        if max_delivery <= most {
            return 0;
        }
        let Needs { bytes, .. } = Needs::of(self, max_delivery);
        let bytes = bytes.max(page_bytes()).checked_next_power_of_two().unwrap_or(u64::MAX);
        if bytes == capacity { 0 } else { bytes }
    }
}

/// The needs of a ring for larger deliveries.
struct Needs {
    /// At least so long.
    bytes: u64,
    /// History that it keeps.
    retain: u64,
    /// Whether that has room for the largest delivery, now and then.
    keeps_one: bool,
}

impl Needs {
    fn of(ring: &Ring, asked: u64) -> Needs {
        let shared = ring.shared();
        let Shape { capacity, retain, max_delivery: before, .. } = *shared.shape();
        let keeps_one = retain >= before;
        let retain = if keeps_one { retain.max(asked) } else { retain };
        let bytes = asked.saturating_mul(2).max(retain.saturating_add(asked)).max(capacity);
        Needs { bytes, retain, keeps_one }
    }
}

fn grow(ring: &Ring, pool: &Pool, asked: u64) -> Result<(), GrowError> {
    let shared = ring.shared();
    if asked <= ring.max_delivery() {
        return Ok(());
    }
    if !ring.can_grow() {
        return Err(GrowError::Fixed);
    }
    if asked > shared.shape().max_delivery {
        make_room(ring, pool, asked)?;
    }
    shared.allow(asked);
    Ok(())
}

/// Replaces the memory by such that has room for deliveries of `asked` bytes.
fn make_room(ring: &Ring, pool: &Pool, asked: u64) -> Result<(), GrowError> {
    let shared = ring.shared();
    let Shape { capacity, max_delivery: before, flow_control, start, .. } = *shared.shape();
    let Needs { bytes, retain, keeps_one } = Needs::of(ring, asked);
    let needed = pool.capacity(bytes)?;
    // Room for twice the former one, as far as there is any: a ring of any size gets other memory a few dozen times at most.
    let most = (needed / 2).min(needed - retain);
    let max_delivery = asked.max(before.saturating_mul(2).min(most));
    // The largest one stays for others, where one did.
    let retain = if keeps_one { retain.max(max_delivery) } else { retain };
    let config = RingConfig {
        capacity_bytes: needed,
        retain_bytes: Some(retain),
        max_delivery_bytes: Some(max_delivery),
        flow_control,
        start,
    };
    let same = if needed == capacity { shared.memory().again() } else { None };
    let is_same = same.is_some();
    let RingRoom { memory, shape } = match same {
        Some(memory) => {
            RingRoom { memory: memory.map_err(PoolError::from)?, shape: Shape::new(needed, &config)? }
        }
        None => pool.room_beside_others(&config)?,
    };
    // No trim of the old memory meanwhile, and no adapter that learns of it.
    let _reach = lock(&shared.reach);
    let _unpinned = shared.access.lock_unpinned().ok_or(GrowError::Fixed)?;
    shared.move_to(memory, shape, is_same);
    Ok(())
}

impl Shared {
    /// The lowest position that readers may still read.
    fn needed_from(&self, control: &mut Control) -> Position {
        let tail = self.tail_of(self.horizon.load(Ordering::Acquire));
        let head = self.published.head.load(Ordering::Acquire);
        tail.min(head).min(control.slowest_hold().unwrap_or(head))
    }

    /// `is_same`: the memory has the bytes already.
    fn move_to(&self, memory: Memory, shape: Shape, is_same: bool) {
        // Holds and grants wait: neither sees a tail of one memory and the bytes of the other.
        let mut control = self.control();
        let old = self.layout.newest();
        let (floor, head) = (self.needed_from(&mut control), self.published.head.load(Ordering::Acquire));
        let piece = old.shape.capacity.min(COPY_BYTES);
        if !is_same {
            // After a hole a hold can lie further back than the ring is long. Nothing is written so far ahead of it: there is only hole.
            let end = head.min(floor.saturating_add(old.shape.capacity));
            copy(&old.memory, &memory, floor..end, piece);
        }
        let larger = Layout::new(memory, shape, floor);
        let known = self.known();
        let mut next = Some(floor);
        while let Some(at) = next.and_then(|from| old.index.at_or_after(from, &known)) {
            larger.index.record(at);
            next = at.checked_add(1);
        }
        old.replace(larger);
        self.grant(&mut control);
    }
}

/// Copies a range that nobody writes, in pieces.
fn copy(of: &Memory, into: &Memory, range: Range<Position>, piece: u64) {
    let mut bytes = vec![0; piece as usize];
    let mut at = range.start;
    while at < range.end {
        let size = (range.end - at).min(piece) as usize;
        of.read(at, &mut bytes[..size]);
        // SAFETY: no other thread knows this memory yet, and a piece is no longer than either ring.
        unsafe { into.write(at, &bytes[..size]) };
        at += size as u64;
    }
}
