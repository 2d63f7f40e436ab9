//! `XRANGE`, `XREVRANGE` and `XREAD`.
//!
//! ```text
//!   ids ─▶ positions: the id of an entry says its position; another id is looked for by its time ─▶ deliveries ─▶ entries
//! ```

use std::ops::ControlFlow;
use std::time::Duration;

use rbmq_broker::KeptRead;
use rocketbufs::Position;

use super::super::client::{Client, Wait};
use super::super::machine::{Flow, Resp};
use super::super::parse::{Command, integer};
use super::super::reply::Reply;
use super::entries::{each, last, write};
use super::ids::{Id, bound, count, id};
use super::{Intent, Reading, Stream};
use crate::protocol::Cx;

/// The most bytes of a reply, beyond its last entry.
const MAX_REPLY_BYTES: usize = 8 << 20;

/// The most streams of one `XREAD`.
const MAX_STREAMS: usize = 1000;

/// The most streams that clients wait for, each client counted.
const MAX_PLACES: usize = 1_000_000;

/// The entries of a delivery that are looked at together when reading backwards.
const BACKWARDS: usize = 4096;

/// The most bytes of a log that are read without finding an entry. Only a publisher that breaks the rules of records makes so many.
const MAX_SILENT_BYTES: u64 = 64 << 20;

const SYNTAX: &str = "ERR syntax error";

/// What a walk along a stream has found.
#[derive(Debug, Default)]
pub(super) struct Walk {
    pub(super) count: usize,
    /// The last entry that was written.
    pub(super) last: Option<Id>,
    /// There are more, but the reply would be too large.
    is_cut: bool,
    /// The bytes that were read since the last entry was found.
    silent: u64,
}

impl Stream {
    /// The lowest position whose entry has this id or a higher one.
    fn place(&self, id: Id, cx: &mut Cx<'_>) -> Result<Position, String> {
        if id == Id::MIN {
            return Ok(self.first);
        }
        if (self.first..self.end).contains(&id.position)
            && let KeptRead::Batch(batch) = cx.bus.read_log(&self.topic, id.position)?
            && batch.time_ms() == id.time
        {
            return Ok(id.position);
        }
        let low = cx.bus.find_time(&self.topic, id.time)?;
        if id.position == 0 {
            return Ok(low);
        }
        let high = match id.time.checked_add(1) {
            Some(next) => cx.bus.find_time(&self.topic, next)?,
            None => self.end,
        };
        Ok(id.position.clamp(low, high.max(low)))
    }

    /// Writes the entries from a position up to another one, at most so many.
    pub(super) fn forward(
        &self,
        from: Position,
        to: Position,
        most: usize,
        out: &mut Vec<u8>,
        cx: &mut Cx<'_>,
    ) -> Result<Walk, String> {
        let (mut walk, mut at, begin) = (Walk::default(), from, out.len());
        while at < to && walk.count < most && !walk.is_cut {
            let batch = match cx.bus.read_log(&self.topic, at)? {
                KeptRead::Batch(batch) => batch,
                KeptRead::Gap(next) => {
                    at = next;
                    continue;
                }
                _ => break,
            };
            let _ = each(&batch, |position, record| {
                if position < from {
                    return ControlFlow::Continue(());
                }
                walk.is_cut = walk.count > 0 && out.len() - begin >= MAX_REPLY_BYTES;
                if position >= to || walk.count == most || walk.is_cut {
                    return ControlFlow::Break(());
                }
                walk.write(out, Id { time: batch.time_ms(), position }, &record);
                ControlFlow::Continue(())
            });
            at = batch.end();
            walk.has_read(at - batch.position(), Id { time: batch.time_ms(), position: at })?;
        }
        Ok(walk)
    }

    /// Writes the entries below a position down to another one, the last first.
    pub(super) fn backward(
        &self,
        from: Position,
        to: Position,
        most: usize,
        out: &mut Vec<u8>,
        cx: &mut Cx<'_>,
    ) -> Result<Walk, String> {
        let (mut walk, mut to, begin) = (Walk::default(), to, out.len());
        while to > from && walk.count < most {
            let Some(batch) = cx.bus.read_log_before(&self.topic, to)? else { break };
            let mut entries = last(&batch, to, BACKWARDS.min(most - walk.count));
            if entries.is_empty() {
                to = batch.position();
                walk.has_read(batch.end() - to, Id { time: batch.time_ms(), position: to })?;
            }
            while let Some((position, record)) = entries.pop_back() {
                to = position;
                if position < from {
                    break;
                }
                walk.is_cut = walk.count > 0 && out.len() - begin >= MAX_REPLY_BYTES;
                if walk.is_cut {
                    return Ok(walk);
                }
                walk.write(out, Id { time: batch.time_ms(), position }, &record);
            }
        }
        Ok(walk)
    }
}

impl Walk {
    fn write(&mut self, out: &mut Vec<u8>, id: Id, record: &rbmq_wire::Record<'_>) {
        write(out, id, record);
        self.count += 1;
        self.last = Some(id);
        self.silent = 0;
    }

    /// # Errors
    /// There was nothing for too long.
    fn has_read(&mut self, bytes: u64, here: Id) -> Result<(), String> {
        self.silent += bytes;
        if self.silent <= MAX_SILENT_BYTES {
            return Ok(());
        }
        Err(format!("ERR {} bytes of this stream are no entries: ask for what is beyond {here}", self.silent))
    }
}

/// What `XREAD` asks for.
#[derive(Debug)]
struct Ask {
    count: usize,
    /// None: it does not wait. `Some(None)`: it waits without end.
    block: Option<Option<Duration>>,
    /// The first key among the arguments.
    keys: usize,
    streams: usize,
}

fn ask(command: &Command<'_>) -> Result<Ask, String> {
    let (mut at, mut most, mut block) = (1, usize::MAX, None);
    loop {
        let word = command.get(at).ok_or(SYNTAX)?.to_ascii_lowercase();
        let value = command.get(at + 1);
        match &word[..] {
            b"streams" => break,
            b"count" => {
                most = match count(value.ok_or(SYNTAX)?)? {
                    0 => usize::MAX,
                    most => most,
                }
            }
            b"block" => {
                let ms = integer(value.ok_or(SYNTAX)?);
                let ms = ms.ok_or("ERR timeout is not an integer or out of range")?;
                let ms = u64::try_from(ms).map_err(|_| "ERR timeout is negative")?;
                block = Some((ms > 0).then(|| Duration::from_millis(ms)));
            }
            _ => return Err(SYNTAX.to_owned()),
        }
        at += 2;
    }
    let rest = command.len() - at - 1;
    if rest == 0 || !rest.is_multiple_of(2) {
        return Err("ERR Unbalanced 'xread' list of streams: for each stream key an ID, '+', or '$' must be specified."
            .to_owned());
    }
    if rest / 2 > MAX_STREAMS {
        return Err(format!("ERR one XREAD has {MAX_STREAMS} streams at most"));
    }
    Ok(Ask { count: most, block, keys: at + 1, streams: rest / 2 })
}

impl Resp {
    /// `XRANGE key start end [COUNT count]`, and `XREVRANGE key end start [COUNT count]`.
    pub(in crate::resp) fn xrange(
        &mut self,
        client: &Client,
        command: &Command<'_>,
        is_reverse: bool,
        cx: &mut Cx<'_>,
    ) {
        let begin = self.replies.len();
        let mut entries = Vec::new();
        let done = range(client, command, is_reverse, &mut entries, cx);
        let mut reply = Reply::new(&mut self.replies, client.is_resp3);
        match done {
            Ok(Some(count)) => {
                reply.array(count);
                reply.raw(&entries);
            }
            Ok(None) => reply.null_array(),
            Err(error) => reply.error(error),
        }
        self.cost += self.replies.len() - begin;
    }

    /// `XREAD [COUNT count] [BLOCK milliseconds] STREAMS key … id …`.
    pub(in crate::resp) fn xread(
        &mut self,
        client: &mut Client,
        command: &Command<'_>,
        cx: &mut Cx<'_>,
    ) -> Flow {
        let before = client.reading.take();
        self.try_xread(client, command, before, cx).unwrap_or_else(|error| {
            Reply::new(&mut self.replies, client.is_resp3).error(error);
            Flow::Done
        })
    }

    fn try_xread(
        &mut self,
        client: &mut Client,
        command: &Command<'_>,
        before: Option<Box<Reading>>,
        cx: &mut Cx<'_>,
    ) -> Result<Flow, String> {
        let ask = ask(command)?;
        let key = |at: usize| command.get(ask.keys + at).unwrap_or_default();
        let open = |cx: &mut Cx<'_>| -> Result<Vec<Stream>, String> {
            (0..ask.streams).map(|at| Stream::of(key(at), client.conn, Intent::Read, cx)).collect()
        };
        let mut streams = open(cx)?;
        let reading = match before {
            Some(reading) => reading,
            None => Box::new(self.begin_reading(command, &ask, &streams, cx)?),
        };
        loop {
            let found = look(&streams, &reading.starts, ask.count, cx)?;
            if !found.is_empty() {
                let found = found.into_iter().map(|(at, count, entries)| (key(at), count, entries));
                self.reply_streams(client, &found.collect::<Vec<_>>());
                return Ok(Flow::Done);
            }
            if ask.block.is_none() || client.is_in_exec || reading.is_over {
                Reply::new(&mut self.replies, client.is_resp3).null_array();
                return Ok(Flow::Done);
            }
            if self.waiting.places() + ask.streams > MAX_PLACES {
                return Err(format!("ERR all clients wait for {MAX_PLACES} streams at most"));
            }
            self.waiting.add(client.conn, &reading, cx.bus);
            // What was stored between the look and this is not told.
            let again = open(cx)?;
            if again.iter().zip(&streams).all(|(now, then)| now.end == then.end) {
                client.wait = Wait::News;
                client.reading = Some(reading);
                return Ok(Flow::Waits);
            }
            self.waiting.remove(client.conn, &reading, cx.bus);
            streams = again;
        }
    }

    /// From where on each stream is read.
    fn begin_reading(
        &self,
        command: &Command<'_>,
        ask: &Ask,
        streams: &[Stream],
        cx: &mut Cx<'_>,
    ) -> Result<Reading, String> {
        let ids = command.from(ask.keys + ask.streams);
        let starts = ids.zip(streams).map(|(text, stream)| match text {
            b"$" => Ok(stream.end),
            b"+" => {
                let last = stream.backward(stream.first, stream.end, 1, &mut Vec::new(), cx)?.last;
                Ok(last.map_or(stream.end, |id| id.position))
            }
            _ => {
                let after =
                    id(text, 0).ok_or("ERR Invalid stream ID specified as stream command argument")?;
                after.next().map_or(Ok(stream.end), |id| stream.place(id, cx))
            }
        });
        let starts = starts.collect::<Result<_, String>>()?;
        let deadline = ask.block.flatten().and_then(|block| cx.now.checked_add(block));
        let topics = streams.iter().map(|stream| stream.topic.clone()).collect();
        Ok(Reading { topics, starts, deadline, is_over: false })
    }

    fn reply_streams(&mut self, client: &Client, found: &[(&[u8], usize, Vec<u8>)]) {
        let begin = self.replies.len();
        let mut reply = Reply::new(&mut self.replies, client.is_resp3);
        if client.is_resp3 {
            reply.map(found.len())
        } else {
            reply.array(found.len())
        }
        for (key, count, entries) in found {
            let mut reply = Reply::new(&mut self.replies, client.is_resp3);
            if !client.is_resp3 {
                reply.array(2);
            }
            reply.bulk(key);
            reply.array(*count);
            reply.raw(entries);
        }
        self.cost += self.replies.len() - begin;
    }

    /// A client that waits looks again.
    pub(in crate::resp) fn wake(&mut self, conn: crate::protocol::ConnId, is_over: bool, cx: &mut Cx<'_>) {
        let Some(client) = self.clients.get_mut(&conn) else { return };
        if client.wait != Wait::News {
            return;
        }
        client.wait = Wait::No;
        if let Some(reading) = &mut client.reading {
            reading.is_over |= is_over;
            self.waiting.remove(conn, reading, cx.bus);
        }
        cx.out.resume(conn);
    }
}

/// Writes the entries of a range. `Ok(None)`: none is asked for.
fn range(
    client: &Client,
    command: &Command<'_>,
    is_reverse: bool,
    out: &mut Vec<u8>,
    cx: &mut Cx<'_>,
) -> Result<Option<usize>, String> {
    let argument = |at: usize| command.get(at).unwrap_or_default();
    let most = match command.len() {
        4 => usize::MAX,
        6 if argument(4).eq_ignore_ascii_case(b"count") => count(argument(5))?,
        _ => return Err(SYNTAX.to_owned()),
    };
    let (start, end) = if is_reverse { (3, 2) } else { (2, 3) };
    let (start, end) = (bound(argument(start), true)?, bound(argument(end), false)?);
    let stream = Stream::of(argument(1), client.conn, Intent::Read, cx)?;
    if most == 0 {
        return Ok(None);
    }
    let mut place = |id: Option<Id>| id.map_or(Ok(stream.end), |id| stream.place(id, cx));
    let (from, to) = (place(start)?, place(end)?);
    let walk = match is_reverse {
        true => stream.backward(from, to, most, out, cx)?,
        false => stream.forward(from, to, most, out, cx)?,
    };
    if walk.is_cut {
        return Err(format!(
            "ERR the entries of this range have more than {MAX_REPLY_BYTES} bytes: ask for fewer with COUNT"
        ));
    }
    Ok(Some(walk.count))
}

/// What is in streams from these positions on: the place of a stream among them, the number of its entries, and the entries. Streams with nothing are
/// left out.
fn look(
    streams: &[Stream],
    starts: &[Position],
    most: usize,
    cx: &mut Cx<'_>,
) -> Result<Vec<(usize, usize, Vec<u8>)>, String> {
    let (mut found, mut left) = (Vec::new(), MAX_REPLY_BYTES);
    for (at, (stream, start)) in streams.iter().zip(starts).enumerate() {
        let mut entries = Vec::new();
        let most = if left > 0 { most } else { 0 };
        let walk = stream.forward(*start, stream.end, most, &mut entries, cx)?;
        left = left.saturating_sub(entries.len());
        if walk.count > 0 {
            found.push((at, walk.count, entries));
        }
    }
    Ok(found)
}
