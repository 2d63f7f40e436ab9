//! `XRANGE`, `XREVRANGE` and `XREAD`.
//!
//! ```text
//!   ids ─▶ positions: the id of an entry says its position; another id is looked for by its time ─▶ deliveries ─▶ entries
//! ```

use std::time::Duration;

use rocketbufs::Position;

use super::super::client::{Client, Wait};
use super::super::machine::{Flow, Resp};
use super::super::parse::{Command, integer};
use super::super::reply::Reply;
use super::ids::{Id, bound, count, id};
use super::walk::Bound;
use super::{Intent, Reading, Stream};
use crate::protocol::Cx;

/// The most streams of one `XREAD`.
const MAX_STREAMS: usize = 1000;

/// The most bytes of a log that one `XRANGE` goes through: more has to be something else than entries.
const MAX_READ: u64 = 32 << 20;

/// The most bytes of logs that an `XREAD` goes through before others have their turn.
pub(super) const TURN_BYTES: u64 = 8 << 20;

/// The least reply where many wait.
const LEAST_REPLY: usize = 16 << 10;

const SYNTAX: &str = "ERR syntax error";
const NO_ID: &str = "ERR Invalid stream ID specified as stream command argument";

/// What `XREAD` or `XREADGROUP` asks for.
#[derive(Debug)]
pub(super) struct Ask {
    pub(super) count: usize,
    /// None: it does not wait. `Some(None)`: it waits without end.
    block: Option<Option<Duration>>,
    /// The first key among the arguments.
    pub(super) keys: usize,
    pub(super) streams: usize,
    /// The group among the arguments, before its consumer; 0: none.
    pub(super) group: usize,
    /// Entries need no acknowledgement.
    pub(super) is_quiet: bool,
}

/// Reads `XREAD`, or `XREADGROUP`.
pub(super) fn ask(command: &Command<'_>, is_of_group: bool) -> Result<Ask, String> {
    const NO_GROUPS: &str = "ERR The GROUP option is only supported by XREADGROUP. You called XREAD instead.";
    const NO_ACKS: &str = "ERR The NOACK option is only supported by XREADGROUP. You called XREAD instead.";
    let (mut at, mut most, mut block, mut group, mut is_quiet) = (1, usize::MAX, None, 0, false);
    loop {
        let word = command.get(at).ok_or(SYNTAX)?.to_ascii_lowercase();
        let value = command.get(at + 1);
        match &word[..] {
            b"streams" => break,
            b"group" if !is_of_group => return Err(NO_GROUPS.to_owned()),
            b"group" => {
                command.get(at + 2).ok_or(SYNTAX)?;
                (group, at) = (at + 1, at + 1);
            }
            b"noack" if !is_of_group => return Err(NO_ACKS.to_owned()),
            b"noack" => (is_quiet, at) = (true, at.wrapping_sub(1)),
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
        return Err(match is_of_group {
            true => "ERR Unbalanced 'xreadgroup' list of streams: for each stream key an ID or '>' must be specified.",
            false => "ERR Unbalanced 'xread' list of streams: for each stream key an ID, '+', or '$' must be specified.",
        }
        .to_owned());
    }
    if is_of_group && group == 0 {
        return Err("ERR Missing GROUP option for XREADGROUP".to_owned());
    }
    if rest / 2 > MAX_STREAMS {
        let name = if is_of_group { "XREADGROUP" } else { "XREAD" };
        return Err(format!("ERR one {name} has {MAX_STREAMS} streams at most"));
    }
    Ok(Ask { count: most, block, keys: at + 1, streams: rest / 2, group, is_quiet })
}

impl Ask {
    /// The streams, which the client may read.
    pub(super) fn open(
        &self,
        client: &Client,
        command: &Command<'_>,
        cx: &mut Cx<'_>,
    ) -> Result<Vec<Stream>, String> {
        let keys = (0..self.streams).map(|at| command.get(self.keys + at).unwrap_or_default());
        keys.map(|key| Stream::of(key, client.conn, Intent::Read, cx)).collect()
    }

    pub(super) fn reading(&self, client: &Client, streams: &[Stream], cx: &Cx<'_>) -> Reading {
        let address = client.address.rsplit_once(':').map_or(&*client.address, |(address, _)| address);
        Reading {
            owner: cx.door.user(client.conn).unwrap_or(address).into(),
            topics: streams.iter().map(|stream| stream.topic.clone()).collect(),
            starts: Vec::new(),
            deadline: self.block.flatten().and_then(|block| cx.now.checked_add(block)),
            is_over: false,
        }
    }
}

/// The most bytes of a reply that ends early, beyond its last entry.
pub(super) fn reply_bytes(most: usize, cx: &Cx<'_>) -> usize {
    most.min(cx.out.room() / 8).max(LEAST_REPLY)
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
        let done = range(client, command, is_reverse, self.max_reply_bytes, &mut entries, cx);
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
        self.with_reading(client, |resp, client, reading| resp.try_xread(client, command, reading, cx))
    }

    /// Reads on with what the client has learned before it had to wait, which stays known. An error is the reply.
    pub(super) fn with_reading(
        &mut self,
        client: &mut Client,
        read: impl FnOnce(&mut Self, &mut Client, &mut Option<Box<Reading>>) -> Result<Flow, String>,
    ) -> Flow {
        let mut reading = client.reading.take();
        let done = read(self, client, &mut reading);
        client.reading = reading;
        done.unwrap_or_else(|error| {
            Reply::new(&mut self.replies, client.is_resp3).error(error);
            Flow::Done
        })
    }

    fn try_xread(
        &mut self,
        client: &mut Client,
        command: &Command<'_>,
        reading: &mut Option<Box<Reading>>,
        cx: &mut Cx<'_>,
    ) -> Result<Flow, String> {
        let ask = ask(command, false)?;
        let mut streams = ask.open(client, command, cx)?;
        let reading = reading.get_or_insert_with(|| Box::new(ask.reading(client, &streams, cx)));
        if !self.resolve(command, &ask, &streams, reading, cx)? {
            return Ok(Flow::Later);
        }
        loop {
            let bytes = reply_bytes(self.max_reply_bytes, cx);
            let Found { streams: found, is_all } = look(&streams, &mut reading.starts, ask.count, bytes, cx)?;
            if !found.is_empty() {
                let key = |at: usize| command.get(ask.keys + at).unwrap_or_default();
                let found = found.into_iter().map(|(at, count, entries)| (key(at), count, entries));
                self.reply_streams(client, &found.collect::<Vec<_>>());
                return Ok(Flow::Done);
            }
            if !is_all {
                return Ok(Flow::Later);
            }
            if let Some(flow) = self.wait_for_news(client, command, &ask, &mut streams, reading, cx)? {
                return Ok(flow);
            }
        }
    }

    /// Nothing was found: the client is told, or waits. None: a stream has grown meanwhile.
    pub(super) fn wait_for_news(
        &mut self,
        client: &mut Client,
        command: &Command<'_>,
        ask: &Ask,
        streams: &mut Vec<Stream>,
        reading: &Reading,
        cx: &mut Cx<'_>,
    ) -> Result<Option<Flow>, String> {
        if ask.block.is_none() || client.is_in_exec || reading.is_over {
            Reply::new(&mut self.replies, client.is_resp3).null_array();
            return Ok(Some(Flow::Done));
        }
        self.waiting.add(client.conn, reading, cx.bus)?;
        // What was stored between the look and this is not told.
        let again = match ask.open(client, command, cx) {
            Ok(again) if again.iter().zip(&*streams).all(|(now, then)| now.end == then.end) => {
                client.wait = Wait::News;
                return Ok(Some(Flow::Waits));
            }
            again => again,
        };
        self.waiting.remove(client.conn, reading, cx.bus);
        *streams = again?;
        Ok(None)
    }

    /// Learns from where on each stream is read. False: it goes on in the next turn.
    fn resolve(
        &self,
        command: &Command<'_>,
        ask: &Ask,
        streams: &[Stream],
        reading: &mut Reading,
        cx: &mut Cx<'_>,
    ) -> Result<bool, String> {
        let begin = cx.bus.read_bytes();
        let one = Bound { entries: 1, bytes: self.max_reply_bytes, reads: TURN_BYTES };
        while let Some(stream) = streams.get(reading.starts.len()) {
            if cx.bus.read_bytes() - begin > TURN_BYTES {
                return Ok(false);
            }
            let start = match command.get(ask.keys + ask.streams + reading.starts.len()).unwrap_or_default() {
                b"$" => stream.end,
                b"+" => {
                    let last = stream.backward(stream.first, stream.end, one, &mut Vec::new(), cx)?.last;
                    last.map_or(stream.end, |id| id.position)
                }
                b">" => {
                    return Err("ERR The > ID can be specified only when calling XREADGROUP using the GROUP <group> <consumer> option."
                        .to_owned());
                }
                text => match id(text, 0).ok_or(NO_ID)?.next() {
                    Some(id) => stream.place(id, cx)?,
                    None => stream.end,
                },
            };
            reading.starts.push(start);
        }
        Ok(true)
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
    bytes: usize,
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
    let bound = Bound { entries: most, bytes, reads: MAX_READ };
    let walk = match is_reverse {
        true => stream.backward(from, to, bound, out, cx)?,
        false => stream.forward(from, to, bound, out, cx)?,
    };
    if walk.is_cut {
        return Err(format!(
            "ERR the entries of this range have more than {bytes} bytes: ask for fewer with COUNT"
        ));
    }
    if walk.is_tired {
        let here = Id { time: walk.time, position: walk.at };
        return Err(format!(
            "ERR {} bytes of this stream are no entries: ask for what is beyond {here}",
            walk.read
        ));
    }
    Ok(Some(walk.count))
}

/// What was found in streams.
struct Found {
    /// The place of a stream among those that were asked for, the number of its entries, and the entries. Streams with nothing are left out.
    streams: Vec<(usize, usize, Vec<u8>)>,
    /// Whether all of them were looked at up to their ends, or up to what the reply has room for.
    is_all: bool,
}

/// Looks at streams from these positions on, which move where there is nothing.
fn look(
    streams: &[Stream],
    starts: &mut [Position],
    most: usize,
    bytes: usize,
    cx: &mut Cx<'_>,
) -> Result<Found, String> {
    let (mut found, mut bytes, mut reads) = (Vec::new(), bytes, TURN_BYTES);
    for (at, (stream, start)) in streams.iter().zip(starts).enumerate() {
        if bytes == 0 || reads == 0 {
            return Ok(Found { streams: found, is_all: false });
        }
        let mut entries = Vec::new();
        let walk =
            stream.forward(*start, stream.end, Bound { entries: most, bytes, reads }, &mut entries, cx)?;
        (bytes, reads) = (bytes.saturating_sub(entries.len()), reads.saturating_sub(walk.read));
        if walk.count > 0 {
            found.push((at, walk.count, entries));
            continue;
        }
        *start = walk.at.clamp(*start, stream.end.max(*start));
        if walk.is_tired {
            return Ok(Found { streams: found, is_all: false });
        }
    }
    Ok(Found { streams: found, is_all: true })
}
