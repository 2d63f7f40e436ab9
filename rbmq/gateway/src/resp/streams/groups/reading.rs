//! `XREADGROUP`: what is new, for one consumer of the group, and what a consumer has already.
//!
//! ```text
//!   look at all streams ─▶ nothing to wait for in the disk? ─▶ note what the consumer gets ─▶ reply
//!     ▲                                                          │ another gateway was faster in all of them
//!     └──────────────────────────────────────────────────────────┘
//! ```
//!
//! Nothing is noted before everything was read: where the disk has to be waited for, the command is executed again.

use rbmq_broker::Delivered;
use rbmq_wire::GroupName;
use rocketbufs::Position;

use super::super::super::client::Client;
use super::super::super::machine::{Flow, Resp};
use super::super::super::parse::Command;
use super::super::super::reply::Reply;
use super::super::ids::{Id, id};
use super::super::reading::{Ask, TURN_BYTES, ask, reply_bytes};
use super::super::walk::Bound;
use super::super::{Reading, Stream};
use super::looking::{Looked, look_up};
use super::{NO_ID, consumer, names, shown, with};
use crate::protocol::Cx;

/// The bytes of an entry in a reply of which the log has nothing more; others have more.
const LEAST_ENTRY: usize = 64;

/// What was found of a stream.
struct Part {
    /// The place of the stream among those that were asked for.
    at: usize,
    found: Found,
    /// The entries as the client gets them.
    entries: Vec<u8>,
}

enum Found {
    /// New entries, behind the last one of the group; and where the next ones begin.
    New { after: Id, ids: Vec<Id>, next: Position },
    /// Entries that the consumer has.
    History(Vec<Looked>),
}

/// What a look at a stream has to know of the group.
#[derive(Clone, Copy)]
struct Start {
    last: Id,
    next: Option<Position>,
    room: usize,
}

/// What came of a look at all streams.
enum Look {
    Parts(Vec<Part>),
    /// The next turn goes on.
    Later,
}

/// A command, as it is executed now.
struct Call<'a> {
    ask: &'a Ask,
    group: &'a GroupName,
    consumer: &'a [u8],
    /// From where on the consumer's own entries are wanted; none: new ones are.
    starts: Vec<Option<Id>>,
    now_ms: u64,
}

fn starts(command: &Command<'_>, ask: &Ask) -> Result<Vec<Option<Id>>, String> {
    const DOLLAR: &str = "ERR The $ ID is meaningless in the context of XREADGROUP: you want to read the history of this consumer by specifying a proper ID, \
                          or use the > ID to get new messages. The $ ID would just return an empty result set.";
    const PLUS: &str = "ERR The + ID is meaningless in the context of XREADGROUP: you want to read the history of this consumer by specifying a proper ID, \
                        or use the > ID to get new messages. The + ID would just return an empty result set.";
    let texts = (0..ask.streams).map(|at| command.get(ask.keys + ask.streams + at).unwrap_or_default());
    let start = |text: &[u8]| match text {
        b">" => Ok(None),
        b"$" => Err(DOLLAR.to_owned()),
        b"+" => Err(PLUS.to_owned()),
        text => Ok(Some(id(text, 0).ok_or(NO_ID)?.next().unwrap_or(Id::MAX))),
    };
    texts.map(start).collect()
}

impl Start {
    /// A stream that is named again goes on where the part before it ends.
    fn behind(&mut self, stream: &Stream, streams: &[Stream], parts: &[Part]) {
        for part in parts.iter().filter(|part| streams[part.at].topic == stream.topic) {
            if let Found::New { ids, next, .. } = &part.found
                && let Some(last) = ids.last()
            {
                *self = Self { last: *last, next: Some(*next), room: self.room.saturating_sub(ids.len()) };
            }
        }
    }
}

impl Call<'_> {
    /// The consumer asks: it is made where it is new. None: the stream has no such group.
    fn begin(&self, stream: &Stream, cx: &mut Cx<'_>) -> Result<Option<Start>, String> {
        with(&stream.topic, self.group, cx, |group, room| {
            consumer(group, room, self.consumer, self.now_ms)?;
            Ok(Start { last: group.last(), next: group.next(), room: room.entries })
        })?
        .transpose()
    }

    /// Before anything is read: a stream without the group is an error of the whole command.
    fn begin_all(
        &self,
        streams: &[Stream],
        none: impl Fn(usize) -> String,
        cx: &mut Cx<'_>,
    ) -> Result<Vec<Start>, String> {
        let begun = streams.iter().enumerate().map(|(at, stream)| {
            let begun = self.begin(stream, cx)?;
            begun.ok_or_else(|| none(at))
        });
        begun.collect()
    }

    /// Looks at all streams. Histories are found also where they are empty, new entries only where there are some. What is behind too much has no part.
    fn look(
        &self,
        streams: &[Stream],
        none: impl Fn(usize) -> String,
        bytes: usize,
        cx: &mut Cx<'_>,
    ) -> Result<Look, String> {
        let (mut parts, mut left, mut reads) = (Vec::new(), bytes, TURN_BYTES);
        let begun = self.begin_all(streams, none, cx)?;
        for (at, (stream, mut start)) in streams.iter().zip(begun).enumerate() {
            let mut entries = Vec::new();
            if reads == 0 {
                return Ok(if parts.is_empty() { Look::Later } else { Look::Parts(parts) });
            }
            if let Some(from) = self.starts[at] {
                let before = cx.bus.read_bytes();
                let looked = self.history(
                    stream,
                    from,
                    Bound { entries: self.ask.count, bytes: left, reads },
                    &mut entries,
                    cx,
                )?;
                left = left.saturating_sub(entries.len());
                reads = reads.saturating_sub(cx.bus.read_bytes() - before);
                parts.push(Part { at, found: Found::History(looked), entries });
                continue;
            }
            if left == 0 {
                break;
            }
            if start.room == 0 && !self.ask.is_quiet {
                return Err(self.no_room());
            }
            start.behind(stream, streams, &parts);
            let most = if self.ask.is_quiet { usize::MAX } else { start.room };
            if most == 0 {
                continue;
            }
            let bound = Bound { entries: self.ask.count.min(most), bytes: left, reads };
            let (found, read, is_tired) = self.new_entries(stream, &start, bound, &mut entries, cx)?;
            (left, reads) = (left.saturating_sub(entries.len()), reads.saturating_sub(read));
            match found {
                Some(found) => parts.push(Part { at, found, entries }),
                None if is_tired && parts.is_empty() => return Ok(Look::Later),
                None => {}
            }
        }
        Ok(Look::Parts(parts))
    }

    fn no_room(&self) -> String {
        format!(
            "ERR group '{}' has as many pending entries as it may have (broker.max_group_pending, max_group_pending_bytes): acknowledge some first",
            self.group
        )
    }

    /// New entries of a stream; none: there are none. Also how much was read, and whether there may be more.
    fn new_entries(
        &self,
        stream: &Stream,
        start: &Start,
        bound: Bound,
        entries: &mut Vec<u8>,
        cx: &mut Cx<'_>,
    ) -> Result<(Option<Found>, u64, bool), String> {
        let after = start.last;
        let from = match (start.next, after.next()) {
            (Some(next), _) => next,
            (None, Some(id)) => stream.place(id, cx)?,
            (None, None) => stream.end,
        };
        let mut ids = Vec::new();
        let walk = stream.forward_with(from, stream.end, bound, entries, cx, &mut |id| ids.push(id))?;
        let is_cut = walk.is_cut || walk.count == bound.entries;
        let next = walk.last.filter(|_| is_cut).map_or(walk.at, |last| last.position + 1);
        if ids.is_empty() {
            // The next entry may be below an id of the future.
            let is_ahead = after.time > self.now_ms || after.position >= next;
            if is_ahead && after >= (Id { time: walk.time, position: next }) && !walk.is_tired {
                return Ok((None, walk.read, walk.is_tired));
            }
            with(&stream.topic, self.group, cx, |group, _| group.passed(after, next))?;
            return Ok((None, walk.read, walk.is_tired));
        }
        Ok((Some(Found::New { after, ids, next }), walk.read, walk.is_tired))
    }

    /// What the consumer has, from an id on.
    fn history(
        &self,
        stream: &Stream,
        from: Id,
        bound: Bound,
        entries: &mut Vec<u8>,
        cx: &mut Cx<'_>,
    ) -> Result<Vec<Looked>, String> {
        let most = bound.entries.min(bound.bytes / LEAST_ENTRY + 1);
        let ids = with(&stream.topic, self.group, cx, |group, _| {
            let number = group.find(self.consumer);
            let held = number.into_iter().flat_map(|number| group.pending_of(number, from));
            held.map(|(id, _)| id).take(most).collect::<Vec<Id>>()
        })?;
        look_up(stream, &ids.unwrap_or_default(), bound.bytes, bound.reads, entries, cx)
    }

    /// Notes what the consumer gets. Parts whose stream others have read meanwhile, or whose group is gone, are taken out.
    fn note(&self, streams: &[Stream], parts: &mut Vec<Part>, cx: &mut Cx<'_>) -> Result<(), String> {
        let mut noted = Vec::new();
        for part in parts.drain(..) {
            match self.note_one(&streams[part.at], &part.found, cx) {
                Ok(true) => noted.push(part),
                Ok(false) => {}
                // Noted entries are the consumer's, so the client gets them. The next call gets the error.
                Err(_) if !noted.is_empty() => break,
                Err(error) => return Err(error),
            }
        }
        *parts = noted;
        Ok(())
    }

    fn note_one(&self, stream: &Stream, found: &Found, cx: &mut Cx<'_>) -> Result<bool, String> {
        let noted = with(&stream.topic, self.group, cx, |group, room| {
            let (number, _) = consumer(group, room, self.consumer, self.now_ms)?;
            match found {
                Found::New { after, ids, next } => {
                    if *after == Id::MIN && stream.first == 0 {
                        group.has_read_nothing();
                    }
                    if !group.deliver(number, *after, ids, self.now_ms, !self.ask.is_quiet) {
                        return Ok(false);
                    }
                    group.passed(group.last(), *next);
                }
                Found::History(looked) => {
                    for Looked { id, .. } in looked.iter().filter(|looked| looked.at.is_some()) {
                        let before = group.delivered(*id).filter(|before| before.consumer == number);
                        let Some(Delivered { count, .. }) = before else { continue };
                        let count = count.saturating_add(1);
                        group.claim(*id, Delivered { consumer: number, count, at_ms: self.now_ms });
                    }
                }
            }
            Ok::<_, String>(true)
        })?;
        Ok(noted.transpose()?.unwrap_or(false))
    }
}

impl Resp {
    /// `XREADGROUP GROUP group consumer [COUNT count] [BLOCK milliseconds] [NOACK] STREAMS key … id …`.
    pub(in crate::resp) fn xreadgroup(
        &mut self,
        client: &mut Client,
        command: &Command<'_>,
        cx: &mut Cx<'_>,
    ) -> Flow {
        self.with_reading(client, |resp, client, reading| resp.try_xreadgroup(client, command, reading, cx))
    }

    fn try_xreadgroup(
        &mut self,
        client: &mut Client,
        command: &Command<'_>,
        reading: &mut Option<Box<Reading>>,
        cx: &mut Cx<'_>,
    ) -> Result<Flow, String> {
        let ask = ask(command, true)?;
        let starts = starts(command, &ask)?;
        let mut streams = ask.open(client, command, cx)?;
        let name = command.get(ask.group).unwrap_or_default();
        let none = |at: usize| {
            let key = shown(command.get(ask.keys + at).unwrap_or_default());
            let name = shown(name);
            format!("NOGROUP No such key '{key}' or consumer group '{name}' in XREADGROUP with GROUP option")
        };
        let group = names::group_of(name).ok_or_else(|| none(0))?;
        let consumer = command.get(ask.group + 1).unwrap_or_default();
        let call = Call { ask: &ask, group: &group, consumer, starts, now_ms: self.now_ms(cx) };
        let reading = reading.get_or_insert_with(|| Box::new(ask.reading(client, &streams, cx)));
        loop {
            let bytes = reply_bytes(self.max_reply_bytes, cx);
            let Look::Parts(mut parts) = call.look(&streams, none, bytes, cx)? else {
                return Ok(Flow::Later);
            };
            if !parts.is_empty() {
                call.note(&streams, &mut parts, cx)?;
                if parts.is_empty() {
                    return Ok(Flow::Later);
                }
                self.reply_parts(client, command, &ask, &parts);
                return Ok(Flow::Done);
            }
            if let Some(flow) = self.wait_for_news(client, command, &ask, &mut streams, reading, cx)? {
                return Ok(flow);
            }
        }
    }

    fn reply_parts(&mut self, client: &Client, command: &Command<'_>, ask: &Ask, parts: &[Part]) {
        let begin = self.replies.len();
        let mut reply = Reply::new(&mut self.replies, client.is_resp3);
        if client.is_resp3 {
            reply.map(parts.len());
        } else {
            reply.array(parts.len());
        }
        for Part { at, found, entries } in parts {
            if !client.is_resp3 {
                reply.array(2);
            }
            reply.bulk(command.get(ask.keys + at).unwrap_or_default());
            match found {
                Found::New { ids, .. } => {
                    reply.array(ids.len());
                    reply.raw(entries);
                }
                Found::History(looked) => {
                    reply.array(looked.len());
                    for Looked { id, at } in looked {
                        if let Some(at) = at {
                            reply.raw(&entries[at.clone()]);
                        } else {
                            reply.array(2);
                            reply.bulk(id.to_string());
                            reply.null_array();
                        }
                    }
                }
            }
        }
        self.cost += self.replies.len() - begin;
    }
}
