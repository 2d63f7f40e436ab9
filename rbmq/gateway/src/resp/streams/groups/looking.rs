//! Looking entries up by their ids.

use std::ops::{ControlFlow, Range};

use rbmq_broker::{KeptBatch, KeptRead};

use super::super::Stream;
use super::super::entries::{each, write};
use super::super::ids::Id;
use crate::protocol::Cx;

/// The most bytes of a log that are read for a command, beyond the first delivery.
pub(super) const MAX_READ: u64 = 8 << 20;

/// An entry that was looked for.
#[derive(Debug)]
pub(super) struct Looked {
    pub(super) id: Id,
    /// Where it is among the bytes that were written; none: the log has it no more.
    pub(super) at: Option<Range<usize>>,
}

/// Looks for entries, whose ids are in order, and writes those that are there. The result is shorter than the ids where more than `bytes` were written,
/// or more than `reads` read. It has one at least.
pub(super) fn look_up(
    stream: &Stream,
    ids: &[Id],
    bytes: usize,
    reads: u64,
    out: &mut Vec<u8>,
    cx: &mut Cx<'_>,
) -> Result<Vec<Looked>, String> {
    let (begin, most) = (cx.bus.read_bytes(), out.len().saturating_add(bytes));
    let mut look = Look { ids, looked: Vec::new(), out, most };
    look.missing_below(stream.first);
    while let Some(id) = ids.get(look.looked.len()) {
        let is_much = look.out.len() >= most || cx.bus.read_bytes() - begin > reads;
        if is_much && !look.looked.is_empty() {
            break;
        }
        match cx.bus.read_log(&stream.topic, id.position)? {
            KeptRead::Batch(batch) => look.through(&batch),
            KeptRead::Gap(to) => {
                look.looked.push(Looked { id: *id, at: None });
                look.missing_below(to);
            }
            _ => {
                let rest = &ids[look.looked.len()..];
                look.looked.extend(rest.iter().map(|id| Looked { id: *id, at: None }));
            }
        }
    }
    Ok(look.looked)
}

/// A look, which is as far as there are results.
struct Look<'a> {
    ids: &'a [Id],
    looked: Vec<Looked>,
    out: &'a mut Vec<u8>,
    /// So many bytes are enough.
    most: usize,
}

impl Look<'_> {
    /// The log has nothing more of what is below a position.
    fn missing_below(&mut self, position: u64) {
        let rest = &self.ids[self.looked.len()..];
        let missing = rest.iter().take_while(|id| id.position < position);
        self.looked.extend(missing.map(|id| Looked { id: *id, at: None }));
    }

    /// Looks through a delivery.
    fn through(&mut self, batch: &KeptBatch) {
        let flow = each(batch, |position, record| {
            self.missing_below(position);
            match self.ids.get(self.looked.len()) {
                Some(id) if id.position == position => {
                    let (from, is_it) = (self.out.len(), id.time == batch.time_ms());
                    if is_it {
                        write(self.out, *id, &record);
                    }
                    self.looked.push(Looked { id: *id, at: is_it.then_some(from..self.out.len()) });
                }
                Some(id) if id.position < batch.end() => {}
                _ => return ControlFlow::Break(()),
            }
            if self.out.len() >= self.most { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        if flow == ControlFlow::Continue(()) {
            self.missing_below(batch.end());
        }
    }
}
