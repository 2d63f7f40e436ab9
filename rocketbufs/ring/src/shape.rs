//! The configuration of a ring, and the sizes that follow from it, checked when the ring is made.

use crate::Position;
use crate::error::PoolError;
use crate::memory::page_bytes;

/// The configuration of a ring.
#[derive(Debug, Clone)]
pub struct RingConfig {
    /// Bytes that the ring keeps; default 1 MiB. Rounded up to a power of two of at least one page. Costs that
    /// much memory once the log was that long, and two of the process's mappings (`vm.max_map_count`).
    pub capacity_bytes: u64,
    /// Bytes of history that are kept without a hold, for joins, resumes and replay; default half the capacity. The
    /// rest is how far the writer can always be ahead of a hold; at least a page or a 1024th of the capacity must be
    /// left to it. Without flow control the rest is how much may be claimed at once.
    pub retain_bytes: Option<u64>,
    /// Largest delivery; default a quarter of the capacity (or what `retain_bytes` leaves). At most capacity −
    /// retain; raised to a 1024th of the capacity. A small value makes the index of boundaries finer: 16
    /// entries of 8 bytes for each time the value fits into the capacity, and never under 256.
    pub max_delivery_bytes: Option<u64>,
    /// Whether holds and grants keep the writer from overwriting (default). Without, readers are lapped.
    pub flow_control: bool,
    /// Where the log begins; default 0.
    pub start: Position,
}

impl Default for RingConfig {
    fn default() -> Self {
        RingConfig {
            capacity_bytes: 1 << 20,
            retain_bytes: None,
            max_delivery_bytes: None,
            flow_control: true,
            start: 0,
        }
    }
}

/// Part of the capacity that must not be retained, and that a delivery may always have.
const LEAST_PART: u64 = 1024;

#[derive(Debug, Clone, Copy)]
pub(crate) struct Shape {
    /// A power of two; 0 without memory.
    pub(crate) capacity: u64,
    pub(crate) retain: u64,
    pub(crate) max_delivery: u64,
    pub(crate) flow_control: bool,
    pub(crate) start: Position,
}

impl Shape {
    pub(crate) fn new(capacity: u64, config: &RingConfig) -> Result<Shape, PoolError> {
        let least = (capacity / LEAST_PART).max(1);
        let at_most = capacity - least.max(page_bytes().min(capacity / 2));
        let retain = config.retain_bytes.unwrap_or(capacity / 2);
        if retain > at_most {
            return Err(PoolError::Retain { retain, capacity, at_most });
        }
        let free = capacity - retain;
        let max_delivery = config.max_delivery_bytes.unwrap_or((capacity / 4).min(free)).max(least);
        if max_delivery > free {
            return Err(PoolError::MaxDelivery { asked: max_delivery, at_most: free });
        }
        let (flow_control, start) = (config.flow_control, config.start);
        Ok(Shape { capacity, retain, max_delivery, flow_control, start })
    }

    /// The shape of a ring without memory.
    pub(crate) fn unbacked(start: Position) -> Shape {
        Shape { capacity: 0, retain: 0, max_delivery: 1, flow_control: true, start }
    }

    /// How far an overwritable ring's horizon is announced ahead of the head, if the next piece is not longer. Each
    /// announcement costs a fence, and announced bytes are lost to readers.
    pub(crate) fn chunk(&self) -> u64 {
        self.capacity / 8
    }
}
