//! Looking entries up by their ids.

use std::ops::{ControlFlow, Range};

use rbmq_broker::KeptRead;

use super::super::Stream;
use super::super::entries::{each, write};
use super::super::ids::Id;
use crate::protocol::Cx;

/// The most bytes of a log that are read for a command, beyond the first delivery.
const MAX_READ: u64 = 8 << 20;

/// An entry that was looked for.
#[derive(Debug)]
pub(super) struct Looked {
    pub(super) id: Id,
    /// Where it is among the bytes that were written; none: the log has it no more.
    pub(super) at: Option<Range<usize>>,
}

/// Looks for entries, whose ids are in order, and writes those that are there. The result is shorter than the ids where more than `bytes` were written,
/// or much was read.
pub(super) fn look_up(
    stream: &Stream,
    ids: &[Id],
    bytes: usize,
    out: &mut Vec<u8>,
    cx: &mut Cx<'_>,
) -> Result<Vec<Looked>, String> {
    let (mut looked, begin, begin_out) = (Vec::new(), cx.bus.read_bytes(), out.len());
    let missing = |id: &Id| Looked { id: *id, at: None };
    let missing_below = |looked: &mut Vec<Looked>, position: u64| {
        let rest = &ids[looked.len()..];
        looked.extend(rest.iter().take_while(|id| id.position < position).map(missing));
    };
    missing_below(&mut looked, stream.first);
    while let Some(id) = ids.get(looked.len()) {
        let is_much = cx.bus.read_bytes() - begin > MAX_READ && !looked.is_empty();
        if out.len() - begin_out >= bytes || is_much {
            break;
        }
        let batch = match cx.bus.read_log(&stream.topic, id.position)? {
            KeptRead::Batch(batch) => batch,
            KeptRead::Gap(to) => {
                looked.push(missing(id));
                missing_below(&mut looked, to);
                continue;
            }
            _ => {
                let rest = &ids[looked.len()..];
                looked.extend(rest.iter().map(missing));
                break;
            }
        };
        let flow = each(&batch, |position, record| {
            missing_below(&mut looked, position);
            match ids.get(looked.len()) {
                Some(id) if id.position == position => {
                    let from = out.len();
                    let is_it = id.time == batch.time_ms();
                    if is_it {
                        write(out, *id, &record);
                    }
                    looked.push(Looked { id: *id, at: is_it.then(|| from..out.len()) });
                    if out.len() - begin_out >= bytes {
                        ControlFlow::Break(())
                    } else {
                        ControlFlow::Continue(())
                    }
                }
                Some(id) if id.position < batch.end() => ControlFlow::Continue(()),
                _ => ControlFlow::Break(()),
            }
        });
        if flow == ControlFlow::Continue(()) {
            missing_below(&mut looked, batch.end());
        }
    }
    Ok(looked)
}
