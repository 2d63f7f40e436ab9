//! Walks along a stream.
//!
//! ```text
//!   id ─▶ place ─▶ forward or backward, a delivery at a time ─▶ entries, until there are enough, or too many bytes were read or written
//! ```
//!
//! What is in a log is for its publishers to say, and a delivery need not have any entry. So a walk is bounded by what it reads, too.

use std::ops::ControlFlow;

use rbmq_broker::{KeptBatch, KeptRead};
use rocketbufs::Position;

use super::Stream;
use super::entries::{each, last, write};
use super::ids::Id;
use crate::protocol::Cx;

/// The least bytes of an entry in a reply.
const LEAST_ENTRY: usize = 16;

/// What a step costs beside its delivery, in bytes.
const STEP: u64 = 64;

/// Where a walk ends at the latest.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bound {
    /// The most entries.
    pub(super) entries: usize,
    /// The most bytes that are written, beyond the last entry.
    pub(super) bytes: usize,
    /// The most bytes that are read, beyond the first and the last delivery.
    pub(super) reads: u64,
}

/// What a walk along a stream has found.
#[derive(Debug)]
pub(super) struct Walk {
    pub(super) count: usize,
    /// The last entry that was written.
    pub(super) last: Option<Id>,
    /// There are more, but the reply would be too large.
    pub(super) is_cut: bool,
    /// There may be more, but enough was read.
    pub(super) is_tired: bool,
    /// How far it came.
    pub(super) at: Position,
    /// The time of the last delivery.
    pub(super) time: u64,
    /// The bytes that were read.
    pub(super) read: u64,
    /// Those of the first delivery, which does not count.
    first: u64,
}

impl Stream {
    /// The lowest position whose entry has this id or a higher one.
    pub(super) fn place(&self, id: Id, cx: &mut Cx<'_>) -> Result<Position, String> {
        if id == Id::MIN {
            return Ok(self.first);
        }
        if (self.first..self.end).contains(&id.position) {
            match cx.bus.read_log(&self.topic, id.position)? {
                KeptRead::Batch(batch) if batch.time_ms() == id.time => return Ok(id.position),
                // A crash of the machine has taken the entry of this id. Who has read it goes on behind it, also where the clock was set back
                // meanwhile.
                KeptRead::Gap(to)
                    if let KeptRead::Batch(next) = cx.bus.read_log(&self.topic, to)?
                        && next.time_ms() < id.time =>
                {
                    return Ok(id.position);
                }
                _ => {}
            }
        }
        let low = cx.bus.find_time(&self.topic, id.time)?;
        if id.position <= low {
            return Ok(low);
        }
        let high = match id.time.checked_add(1) {
            Some(next) => cx.bus.find_time(&self.topic, next)?,
            None => self.end,
        };
        Ok(id.position.clamp(low, high.max(low)))
    }

    /// Writes the entries from a position up to another one.
    pub(super) fn forward(
        &self,
        from: Position,
        to: Position,
        bound: Bound,
        out: &mut Vec<u8>,
        cx: &mut Cx<'_>,
    ) -> Result<Walk, String> {
        self.forward_with(from, to, bound, out, cx, &mut |_| ())
    }

    /// The same, and says the id of each entry.
    pub(super) fn forward_with(
        &self,
        from: Position,
        to: Position,
        bound: Bound,
        out: &mut Vec<u8>,
        cx: &mut Cx<'_>,
        with: &mut dyn FnMut(Id),
    ) -> Result<Walk, String> {
        let (mut walk, begin) = (Walk::new(from), out.len());
        while walk.at < to && walk.goes_on(&bound) {
            let batch = match cx.bus.read_log(&self.topic, walk.at)? {
                KeptRead::Batch(batch) => batch,
                KeptRead::Gap(next) => {
                    walk.step(0);
                    walk.at = next;
                    continue;
                }
                _ => break,
            };
            walk.step(batch.bytes().len());
            walk.time = batch.time_ms();
            let _ = each(&batch, |position, record| {
                if position < from {
                    return ControlFlow::Continue(());
                }
                walk.is_cut = walk.count > 0 && out.len() - begin >= bound.bytes;
                if position >= to || walk.count == bound.entries || walk.is_cut {
                    return ControlFlow::Break(());
                }
                let id = Id { time: batch.time_ms(), position };
                walk.write(out, id, &record);
                with(id);
                ControlFlow::Continue(())
            });
            walk.at = batch.end();
        }
        Ok(walk)
    }

    /// Writes the entries below a position down to another one, the last first.
    pub(super) fn backward(
        &self,
        from: Position,
        to: Position,
        bound: Bound,
        out: &mut Vec<u8>,
        cx: &mut Cx<'_>,
    ) -> Result<Walk, String> {
        let (mut walk, begin) = (Walk::new(to), out.len());
        while walk.at > from && walk.goes_on(&bound) {
            let Some(batch) = cx.bus.read_log_before(&self.topic, walk.at)? else { break };
            walk.step(batch.bytes().len());
            walk.time = batch.time_ms();
            walk.back(&batch, from, bound, begin, out);
        }
        Ok(walk)
    }
}

impl Walk {
    fn new(at: Position) -> Self {
        Self { count: 0, last: None, is_cut: false, is_tired: false, at, time: 0, read: 0, first: 0 }
    }

    /// Something was read, of so many bytes.
    fn step(&mut self, bytes: usize) {
        let bytes = bytes as u64 + STEP;
        if self.read == 0 {
            self.first = bytes;
        }
        self.read += bytes;
    }

    fn goes_on(&mut self, bound: &Bound) -> bool {
        let is_open = self.count < bound.entries && !self.is_cut;
        self.is_tired = is_open && self.read - self.first > bound.reads;
        is_open && !self.is_tired
    }

    /// Writes entries of a delivery, the last first.
    fn back(&mut self, batch: &KeptBatch, from: Position, bound: Bound, begin: usize, out: &mut Vec<u8>) {
        // More are not written.
        let most = (bound.entries - self.count).min(bound.bytes / LEAST_ENTRY + 1);
        let mut entries = last(batch, self.at, most);
        if entries.len() < most {
            self.at = batch.position();
        }
        while let Some((position, record)) = entries.pop_back() {
            if position < from {
                return;
            }
            self.is_cut = self.count > 0 && out.len() - begin >= bound.bytes;
            if self.is_cut {
                return;
            }
            self.at = self.at.min(position);
            self.write(out, Id { time: batch.time_ms(), position }, &record);
        }
    }

    fn write(&mut self, out: &mut Vec<u8>, id: Id, record: &rbmq_wire::Record<'_>) {
        write(out, id, record);
        self.count += 1;
        self.last = Some(id);
    }
}
