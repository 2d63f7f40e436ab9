//! What clients ask about streams: `XLEN`, `XINFO`, `TYPE`, `EXISTS`; and what cannot be done to them.

use super::super::client::Client;
use super::super::machine::{Flow, Resp};
use super::super::parse::Command;
use super::super::reply::Reply;
use super::super::server::unknown_subcommand;
use super::appending::trimming;
use super::ids::Id;
use super::walk::Bound;
use super::{Intent, Stream};
use crate::protocol::{Cx, Kept};

/// The most bytes of a log that are looked through for its first or its last entry.
const MAX_READ: u64 = 4 << 20;

impl Resp {
    /// `XLEN key`.
    pub(in crate::resp) fn xlen(&mut self, client: &Client, command: &Command<'_>, cx: &mut Cx<'_>) -> Flow {
        let stream = Stream::of(command.get(1).unwrap_or_default(), client.conn, Intent::Read, cx);
        let counted = stream.and_then(|stream| self.stream_counts.of(&stream, cx));
        let mut reply = Reply::new(&mut self.replies, client.is_resp3);
        match counted {
            Ok(None) => return Flow::Later,
            Ok(Some(count)) => reply.integer(i64::try_from(count).unwrap_or(i64::MAX)),
            Err(error) => reply.error(error),
        }
        Flow::Done
    }

    /// `XINFO STREAM key`, `XINFO GROUPS key` and `XINFO CONSUMERS key group`.
    pub(in crate::resp) fn xinfo(&mut self, client: &Client, command: &Command<'_>, cx: &mut Cx<'_>) -> Flow {
        let begin = self.replies.len();
        let key = command.get(2).unwrap_or_default();
        let sub = command.get(1).unwrap_or_default().to_ascii_lowercase();
        let flow = match (&sub[..], command.len()) {
            (b"stream", 3) => self.xinfo_stream(client, key, cx),
            (b"stream", 4..) => Err("ERR XINFO STREAM is here without FULL".to_owned()),
            (b"groups", 3) => self.xinfo_groups(client, command, cx),
            (b"consumers", 4) => self.xinfo_consumers(client, command, cx),
            (b"stream" | b"groups" | b"consumers", _) => {
                Err("ERR wrong number of arguments for 'xinfo' command".to_owned())
            }
            _ => {
                unknown_subcommand(&mut Reply::new(&mut self.replies, client.is_resp3), "XINFO", command);
                Ok(Flow::Done)
            }
        };
        flow.unwrap_or_else(|error| {
            self.replies.truncate(begin);
            Reply::new(&mut self.replies, client.is_resp3).error(error);
            Flow::Done
        })
    }

    fn xinfo_stream(&mut self, client: &Client, key: &[u8], cx: &mut Cx<'_>) -> Result<Flow, String> {
        let stream = Stream::of(key, client.conn, Intent::Read, cx)?;
        if !stream.exists() {
            return Err(no_such_key());
        }
        let Some(count) = self.stream_counts.of(&stream, cx)? else { return Ok(Flow::Later) };
        let (mut first, mut last) = (Vec::new(), Vec::new());
        let one = Bound { entries: 1, bytes: self.max_reply_bytes, reads: MAX_READ };
        let first_id = stream.forward(stream.first, stream.end, one, &mut first, cx)?.last;
        let last_id = stream.backward(stream.first, stream.end, one, &mut last, cx)?.last;
        let count = i64::try_from(count).unwrap_or(i64::MAX);
        let groups = cx.bus.group_names(&stream.topic).len() as i64;
        let (first_id, last_id) = (first_id.unwrap_or(Id::MIN), last_id.unwrap_or(Id::MIN));
        let mut reply = Reply::new(&mut self.replies, client.is_resp3);
        reply.map(10);
        for (name, value) in [
            ("length", count),
            ("radix-tree-keys", 0),
            ("radix-tree-nodes", 0),
            ("entries-added", count),
            ("groups", groups),
        ] {
            reply.bulk(name);
            reply.integer(value);
        }
        for (name, id) in [
            ("last-generated-id", last_id),
            ("max-deleted-entry-id", Id::MIN),
            ("recorded-first-entry-id", first_id),
        ] {
            reply.bulk(name);
            reply.bulk(id.to_string());
        }
        for (name, entry) in [("first-entry", first), ("last-entry", last)] {
            reply.bulk(name);
            if entry.is_empty() { reply.null_array() } else { reply.raw(&entry) }
        }
        Ok(Flow::Done)
    }

    /// `TYPE key`.
    pub(in crate::resp) fn type_of(&mut self, client: &Client, command: &Command<'_>, cx: &mut Cx<'_>) {
        let found = is_stream(command.get(1).unwrap_or_default(), client, cx);
        let mut reply = Reply::new(&mut self.replies, client.is_resp3);
        match found {
            Ok(is_stream) => reply.word(if is_stream { "stream" } else { "none" }),
            Err(error) => reply.error(error),
        }
    }

    /// `EXISTS key …`.
    pub(in crate::resp) fn exists(&mut self, client: &Client, command: &Command<'_>, cx: &mut Cx<'_>) {
        let found: Result<Vec<bool>, _> = command.from(1).map(|key| is_stream(key, client, cx)).collect();
        self.cost += command.len();
        let mut reply = Reply::new(&mut self.replies, client.is_resp3);
        match found {
            Ok(found) => reply.count(found.into_iter().filter(|is_stream| *is_stream).count()),
            Err(error) => reply.error(error),
        }
    }

    /// `XTRIM key MAXLEN | MINID ~ threshold`: the rule of the topic trims.
    pub(in crate::resp) fn xtrim(&mut self, client: &Client, command: &Command<'_>, cx: &mut Cx<'_>) {
        let is_strategy =
            |word: &[u8]| word.eq_ignore_ascii_case(b"maxlen") || word.eq_ignore_ascii_case(b"minid");
        let key = command.get(1).unwrap_or_default();
        let trimmed = Stream::of(key, client.conn, Intent::Append, cx).and_then(|_| {
            let taken = match command.get(2).is_some_and(is_strategy) {
                true => trimming(command, 2)?,
                false => 0,
            };
            if taken + 2 == command.len() { Ok(()) } else { Err("ERR syntax error".to_owned()) }
        });
        let mut reply = Reply::new(&mut self.replies, client.is_resp3);
        match trimmed {
            Ok(()) => reply.integer(0),
            Err(error) => reply.error(error),
        }
    }

    /// `XDEL`, `XSETID` and others, which change what is stored.
    pub(in crate::resp) fn unchangeable(&mut self, client: &Client) {
        Reply::new(&mut self.replies, client.is_resp3).error(
            "ERR a stream is a log on disk, of which no entry is changed or deleted: keep_bytes and keep_ms of the topic's rule say how long \
             entries are kept",
        );
    }
}

fn no_such_key() -> String {
    "ERR no such key".to_owned()
}

/// Whether a key is a stream that something was stored in.
fn is_stream(key: &[u8], client: &Client, cx: &mut Cx<'_>) -> Result<bool, &'static str> {
    let Some(topic) = super::topic_of(key) else { return Ok(false) };
    if !cx.door.may_subscribe(client.conn, &topic) {
        return Err(super::NO_PERMISSION);
    }
    Ok(matches!(cx.bus.kept(&topic), Kept::Yes { end: 1.., .. }))
}
