//! What a ring is: the sizes that never change, checked when it is made.

use crate::Position;
use crate::memory::page_bytes;
use crate::pool::{PoolError, RingConfig};

/// Part of the capacity that must not be retained, and that a delivery may always have.
const LEAST_PART: u64 = 1024;

#[derive(Debug, Clone, Copy)]
pub(crate) struct Shape {
    /// A power of two; 0 of a ring in which nothing can lie.
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

    /// Of a ring in which nothing can lie.
    pub(crate) fn unbacked(start: Position) -> Shape {
        Shape { capacity: 0, retain: 0, max_delivery: 1, flow_control: true, start }
    }

    /// How far an overwritable ring's horizon is announced ahead of what is written, if the next piece is not
    /// longer: each announcement costs a fence, and whatever is announced is lost to readers.
    pub(crate) fn chunk(&self) -> u64 {
        self.capacity / 8
    }
}
