//! The numbers of entries, for `XLEN`.
//!
//! A log on disk knows positions and not how many records there are. So they are counted when a client asks, and from then on only what is new. A mark
//! each mebibyte says how many were before it: what retention has removed since can be taken off without reading it.

use std::collections::{HashMap, VecDeque};
use std::ops::ControlFlow;

use rbmq_broker::KeptRead;
use rbmq_wire::TopicName;
use rocketbufs::Position;

use super::Stream;
use super::entries::each;
use crate::protocol::Cx;

/// The bytes between two marks.
const MARK_BYTES: u64 = 1 << 20;

/// The most bytes that are read for all clients before others have their turn, but for a delivery for each.
const TURN_BYTES: u64 = 4 << 20;

/// The most streams whose counts are kept.
const MAX_STREAMS: usize = 1000;

/// A count of a stream.
#[derive(Debug, Default)]
struct Count {
    /// Places, and how many entries are before each. The first is where the counting began.
    marks: VecDeque<(Position, u64)>,
    /// How far it has counted.
    at: Position,
    total: u64,
    /// Whether this is all.
    is_whole: bool,
    /// When it was asked for.
    used: u64,
}

/// The counts of streams.
#[derive(Debug, Default)]
pub(in crate::resp) struct Counts {
    by_topic: HashMap<TopicName, Count>,
    /// How often somebody has asked.
    asked: u64,
    /// How often this was in this round and in the one before: those who ask share what is read.
    rounds: [u64; 2],
}

impl Counts {
    /// The number of entries of a stream. None: the counting goes on in the next turn.
    ///
    /// # Errors
    /// The disk cannot be read.
    pub(super) fn of(&mut self, stream: &Stream, cx: &mut Cx<'_>) -> Result<Option<u64>, String> {
        if stream.first == stream.end {
            self.by_topic.remove(&stream.topic);
            return Ok(Some(0));
        }
        self.asked += 1;
        self.rounds[0] += 1;
        let most = TURN_BYTES / self.rounds[0].max(self.rounds[1]);
        if self.by_topic.len() >= MAX_STREAMS && !self.by_topic.contains_key(&stream.topic) {
            self.forget_one();
        }
        let count = self.by_topic.entry(stream.topic.clone()).or_default();
        // A log that was removed may have begun anew.
        let is_before = count.marks.front().is_none_or(|(at, _)| *at > stream.first);
        if is_before || !(stream.first..=stream.end).contains(&count.at) {
            let at = stream.first;
            *count = Count { marks: [(at, 0)].into(), at, ..Count::default() };
        }
        count.used = self.asked;
        count.is_whole = count.advance(stream, most, cx)?;
        if !count.is_whole {
            return Ok(None);
        }
        count.removed(stream, cx).map(|removed| Some(count.total - removed))
    }

    /// Others ask.
    pub(in crate::resp) fn next_round(&mut self) {
        self.rounds = [0, self.rounds[0]];
    }

    /// Forgets the count that nobody has asked for the longest, and one that is under way only if all are.
    fn forget_one(&mut self) {
        let oldest = self.by_topic.iter().min_by_key(|(_, count)| (!count.is_whole, count.used));
        if let Some(topic) = oldest.map(|(topic, _)| topic.clone()) {
            self.by_topic.remove(&topic);
        }
    }
}

impl Count {
    /// Counts on. Returns whether everything is counted.
    fn advance(&mut self, stream: &Stream, most: u64, cx: &mut Cx<'_>) -> Result<bool, String> {
        let begin = self.at;
        while self.at < stream.end {
            if self.at - begin > most {
                return Ok(false);
            }
            let (more, at) = entries_at(stream, self.at, cx)?;
            let Some(at) = at else { break };
            (self.total, self.at) = (self.total + more, at);
            if self.marks.back().is_none_or(|(last, _)| at - last >= MARK_BYTES) {
                self.marks.push_back((at, self.total));
            }
        }
        Ok(true)
    }

    /// How many of the counted entries are not kept any more. Only what is between what is kept and the next mark is read: about as much as is
    /// between two marks. The marks stay until it was read, as it begins anew if the disk has to be waited for.
    fn removed(&mut self, stream: &Stream, cx: &mut Cx<'_>) -> Result<u64, String> {
        let gone = self.marks.partition_point(|(at, _)| *at < stream.first);
        // At the latest the end of the counting is a mark.
        let next = self.marks.get(gone).copied().unwrap_or((self.at, self.total));
        let (mut at, mut left) = (stream.first, 0);
        while at < next.0 {
            let (more, end) = entries_at(stream, at, cx)?;
            let Some(end) = end else { break };
            (at, left) = (end, left + more);
        }
        let before = next.1.saturating_sub(left);
        self.marks.drain(..gone);
        if self.marks.front().is_none_or(|(at, _)| *at > stream.first) {
            self.marks.push_front((stream.first, before));
        }
        Ok(before)
    }
}

/// The number of entries of the delivery at a position, and its end. No end: the log ends.
fn entries_at(stream: &Stream, at: Position, cx: &mut Cx<'_>) -> Result<(u64, Option<Position>), String> {
    Ok(match cx.bus.read_log(&stream.topic, at)? {
        KeptRead::Batch(batch) => {
            let mut count = 0;
            let _ = each(&batch, |_, _| {
                count += 1;
                ControlFlow::Continue(())
            });
            (count, Some(batch.end()))
        }
        KeptRead::Gap(to) => (0, Some(to)),
        _ => (0, None),
    })
}
