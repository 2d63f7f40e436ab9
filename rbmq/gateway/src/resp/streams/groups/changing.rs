//! `XGROUP`: groups and their consumers are made and removed.

use rbmq_broker::{Consumers, GroupChange};

use super::super::super::client::{Client, Wait};
use super::super::super::machine::{Flow, Resp};
use super::super::super::parse::{Command, integer};
use super::super::super::reply::Reply;
use super::super::super::server::unknown_subcommand;
use super::super::ids::{Id, id};
use super::super::walk::Bound;
use super::super::{Intent, NO_PERMISSION, Stream};
use super::{NO_ID, NO_INTEGER, Place, SYNTAX, consumer, shown};
use crate::protocol::{Cx, PublishError};

/// The most bytes of a log that are looked through for its last entry.
const MAX_READ: u64 = 4 << 20;

const NO_KEY: &str = "ERR The XGROUP subcommand requires the key to exist. Note that for CREATE you may want to use the MKSTREAM option to create an \
                      empty stream automatically.";
const BUSY: &str = "BUSYGROUP Consumer Group name already exists";

/// What a group is to have delivered.
struct Begin {
    makes_stream: bool,
    read: Option<u64>,
}

fn begin(command: &Command<'_>, is_new: bool) -> Result<Begin, String> {
    let (mut at, mut begin) = (5, Begin { makes_stream: false, read: None });
    while let Some(word) = command.get(at) {
        match (&word.to_ascii_lowercase()[..], command.get(at + 1)) {
            (b"mkstream", _) if is_new => (begin.makes_stream, at) = (true, at + 1),
            (b"entriesread", Some(value)) => {
                let read = integer(value).ok_or(NO_INTEGER)?;
                if read < -1 {
                    return Err("ERR value for ENTRIESREAD must be positive or -1".to_owned());
                }
                (begin.read, at) = (u64::try_from(read).ok(), at + 2);
            }
            _ => return Err(SYNTAX.to_owned()),
        }
    }
    Ok(begin)
}

fn no_group(command: &Command<'_>) -> String {
    let argument = |at: usize| shown(command.get(at).unwrap_or_default());
    format!("NOGROUP No such consumer group '{}' for key name '{}'", argument(3), argument(2))
}

/// Whether a stream has something, or a group that was made with it.
fn exists(stream: &Stream, cx: &mut Cx<'_>) -> bool {
    stream.exists() || !cx.bus.group_names(&stream.topic).is_empty()
}

/// Whether a stream may have a group, and its log is there. Otherwise what the client waits for.
fn may_begin(
    client: &Client,
    stream: &Stream,
    begin: &Begin,
    cx: &mut Cx<'_>,
) -> Result<Option<Flow>, String> {
    if !exists(stream, cx) {
        if !begin.makes_stream {
            return Err(NO_KEY.to_owned());
        }
        if !cx.door.may_publish(client.conn, &stream.topic) {
            return Err(NO_PERMISSION.to_owned());
        }
    }
    // A topic that was closed has its log again.
    match cx.bus.open_log(&stream.topic) {
        Ok(()) => Ok(None),
        Err(PublishError::Full) => Ok(Some(Flow::Blocked)),
        Err(PublishError::TooLarge { .. }) => Err(NO_KEY.to_owned()),
        Err(PublishError::NoDisk(text) | PublishError::Refused(text)) => Err(format!("ERR {text}")),
    }
}

impl Resp {
    /// `XGROUP CREATE | SETID | DESTROY | CREATECONSUMER | DELCONSUMER key group …`.
    pub(in crate::resp) fn xgroup(
        &mut self,
        client: &mut Client,
        command: &Command<'_>,
        cx: &mut Cx<'_>,
    ) -> Flow {
        let sub = command.get(1).unwrap_or_default().to_ascii_lowercase();
        let done = match (&sub[..], command.len()) {
            (b"create", 5..) => self.xgroup_create(client, command, cx),
            (b"destroy", 4) => self.xgroup_destroy(client, command, cx),
            (b"setid", 5..) => self.xgroup_set_id(client, command, cx),
            (b"createconsumer", 5) => self.xgroup_consumer(client, command, true, cx),
            (b"delconsumer", 5) => self.xgroup_consumer(client, command, false, cx),
            (b"create" | b"destroy" | b"setid" | b"createconsumer" | b"delconsumer", _) => {
                let sub = String::from_utf8_lossy(&sub);
                Err(format!("ERR wrong number of arguments for 'xgroup|{sub}' command"))
            }
            _ => {
                unknown_subcommand(&mut Reply::new(&mut self.replies, client.is_resp3), "XGROUP", command);
                Ok(Flow::Done)
            }
        };
        done.unwrap_or_else(|error| {
            Reply::new(&mut self.replies, client.is_resp3).error(error);
            Flow::Done
        })
    }

    /// The broker makes or removes a group, and the client waits for that.
    fn change(&self, client: &mut Client, change: GroupChange, cx: &mut Cx<'_>) -> Flow {
        cx.bus.change_group(client.conn, change);
        client.wait = Wait::Disk;
        Flow::Blocked
    }

    fn xgroup_create(
        &mut self,
        client: &mut Client,
        command: &Command<'_>,
        cx: &mut Cx<'_>,
    ) -> Result<Flow, String> {
        if let Some(done) = cx.bus.changed_group(client.conn) {
            done.map_err(|error| format!("ERR {error}"))?.then_some(()).ok_or(BUSY)?;
            Reply::new(&mut self.replies, client.is_resp3).ok();
            return Ok(Flow::Done);
        }
        let begin = begin(command, true)?;
        let Place { stream, group } = Place::of(command, 2, client.conn, cx)?;
        let group = group.ok_or("ERR the name of a group has 1 to 64 bytes, of which those that are no letters, digits or . _ - count as three")?;
        let place = Place { stream, group: Some(group.clone()) };
        if place.with(cx, |_, _| ())?.is_some() {
            return Err(BUSY.to_owned());
        }
        let stream = place.stream;
        let from = command.get(4).unwrap_or_default();
        if from != b"$" {
            id(from, 0).ok_or(NO_ID)?;
        }
        if let Some(flow) = may_begin(client, &stream, &begin, cx)? {
            return Ok(flow);
        }
        let (last, next) = self.place_of(command, &stream, cx)?;
        let mut made = Consumers::new(last, begin.read);
        if let Some(next) = next {
            made.passed(last, next);
        }
        let charge = cx.door.charge_group(client.conn).map_err(|error| format!("ERR {error}"))?;
        let change = GroupChange { topic: stream.topic, group, make: Some(made), charge };
        Ok(self.change(client, change, cx))
    }

    /// The last id that the fifth argument says, and the place behind it, if that is known.
    fn place_of(
        &self,
        command: &Command<'_>,
        stream: &Stream,
        cx: &mut Cx<'_>,
    ) -> Result<(Id, Option<u64>), String> {
        match command.get(4).unwrap_or_default() {
            b"$" => {
                let one = Bound { entries: 1, bytes: self.max_reply_bytes, reads: MAX_READ };
                let walk = stream.backward(stream.first, stream.end, one, &mut Vec::new(), cx)?;
                let last = match walk.last {
                    Some(last) => last,
                    // All of the last deliveries have no entry. Those that come are behind this place.
                    None => cx.bus.read_log_before(&stream.topic, stream.end)?.map_or(Id::MIN, |newest| Id {
                        time: newest.time_ms(),
                        position: stream.end.saturating_sub(1),
                    }),
                };
                Ok((last, Some(stream.end)))
            }
            text => Ok((id(text, 0).ok_or(NO_ID)?, None)),
        }
    }

    fn xgroup_destroy(
        &mut self,
        client: &mut Client,
        command: &Command<'_>,
        cx: &mut Cx<'_>,
    ) -> Result<Flow, String> {
        if let Some(done) = cx.bus.changed_group(client.conn) {
            let is_removed = done.map_err(|error| format!("ERR {error}"))?;
            Reply::new(&mut self.replies, client.is_resp3).integer(is_removed.into());
            return Ok(Flow::Done);
        }
        let place = Place::of(command, 2, client.conn, cx)?;
        if !exists(&place.stream, cx) {
            return Err(NO_KEY.to_owned());
        }
        let is_there = place.with(cx, |_, _| ())?.is_some();
        match place.group.filter(|_| is_there) {
            Some(group) => {
                let change = GroupChange { topic: place.stream.topic, group, make: None, charge: None };
                Ok(self.change(client, change, cx))
            }
            None => {
                Reply::new(&mut self.replies, client.is_resp3).integer(0);
                Ok(Flow::Done)
            }
        }
    }

    fn xgroup_set_id(
        &mut self,
        client: &Client,
        command: &Command<'_>,
        cx: &mut Cx<'_>,
    ) -> Result<Flow, String> {
        let begin = begin(command, false)?;
        let place = Place::of(command, 2, client.conn, cx)?;
        if !exists(&place.stream, cx) {
            return Err(NO_KEY.to_owned());
        }
        let (last, next) = self.place_of(command, &place.stream, cx)?;
        let set = place.with(cx, |group, _| {
            group.set_last(last, begin.read);
            if let Some(next) = next {
                group.passed(last, next);
            }
        })?;
        set.ok_or_else(|| no_group(command))?;
        // Those who wait may have something to read now.
        cx.bus.tell_of(&place.stream.topic);
        Reply::new(&mut self.replies, client.is_resp3).ok();
        Ok(Flow::Done)
    }

    fn xgroup_consumer(
        &mut self,
        client: &Client,
        command: &Command<'_>,
        makes: bool,
        cx: &mut Cx<'_>,
    ) -> Result<Flow, String> {
        let (now, name) = (self.now_ms(cx), command.get(4).unwrap_or_default());
        let place = Place::of(command, 2, client.conn, cx)?;
        if !exists(&place.stream, cx) {
            return Err(NO_KEY.to_owned());
        }
        let done = place.with(cx, |group, room| match makes {
            true => consumer(group, room, name, now).map(|(_, is_new)| usize::from(is_new)),
            false => Ok(group.remove_consumer(name).unwrap_or(0)),
        })?;
        let count = done.ok_or_else(|| no_group(command))??;
        Reply::new(&mut self.replies, client.is_resp3).count(count);
        Ok(Flow::Done)
    }
}

/// Whether a client may have a stream whose groups it asks for.
pub(super) fn existing(command: &Command<'_>, client: &Client, cx: &mut Cx<'_>) -> Result<Stream, String> {
    let stream = Stream::of(command.get(2).unwrap_or_default(), client.conn, Intent::Read, cx)?;
    exists(&stream, cx).then_some(stream).ok_or_else(|| "ERR no such key".to_owned())
}
