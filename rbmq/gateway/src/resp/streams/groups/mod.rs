//! Consumer groups: consumers with names share a stream, and what one has got is its own until it says that it is done.
//!
//! ```text
//!   XREADGROUP > ─▶ last id of the group ─▶ log ─▶ entries ──▶ pending at the consumer, and the last id goes on
//!   XREADGROUP id, XCLAIM, XAUTOCLAIM ─▶ pending ─▶ log ─▶ entries, or what the log has no more
//!   XACK ─▶ pending no more                                     all of it is in the journal before the reply is sent
//! ```
//!
//! The gateway is no worker of the broker: it looks into the group under a lock, as it reads the log itself (`protocol::Groups`). A group has
//! no clock, as in Redis: an entry stays with its consumer until another one claims it. So groups of native workers, whose messages come back by
//! themselves, and these are two kinds, and a name is of one of them.

mod changing;
mod claiming;
mod facts;
mod looking;
pub mod names;
mod pending;
mod reading;

use rbmq_broker::{Consumers, GroupRoom, MAX_CONSUMER_NAME_BYTES};
use rbmq_wire::{GroupName, TopicName};

use super::super::parse::Command;
use super::ids::{Id, id};
use super::{Intent, Stream};
use crate::protocol::{ConnId, Cx};

const NO_ID: &str = "ERR Invalid stream ID specified as stream command argument";
const SYNTAX: &str = "ERR syntax error";
const NO_INTEGER: &str = "ERR value is not an integer or out of range";

/// A group of a stream, as a command names it.
struct Place {
    stream: Stream,
    /// The name, if a group can have it.
    group: Option<GroupName>,
}

impl Place {
    /// The group that two arguments name, for a client that may read the stream.
    fn of(command: &Command<'_>, key: usize, conn: ConnId, cx: &mut Cx<'_>) -> Result<Self, String> {
        let stream = Stream::of(command.get(key).unwrap_or_default(), conn, Intent::Read, cx)?;
        Ok(Self { stream, group: names::group_of(command.get(key + 1).unwrap_or_default()) })
    }

    /// Calls `act` with the group. None: there is none.
    fn with<T>(
        &self,
        cx: &mut Cx<'_>,
        act: impl FnOnce(&mut Consumers, GroupRoom) -> T,
    ) -> Result<Option<T>, String> {
        self.group.as_ref().map_or(Ok(None), |group| with(&self.stream.topic, group, cx, act))
    }
}

/// Calls `act` with a group. None: there is none.
fn with<T>(
    topic: &TopicName,
    group: &GroupName,
    cx: &mut Cx<'_>,
    act: impl FnOnce(&mut Consumers, GroupRoom) -> T,
) -> Result<Option<T>, String> {
    let (mut act, mut result) = (Some(act), None);
    let mut once = |group: &mut Consumers, room: GroupRoom| result = act.take().map(|act| act(group, room));
    cx.bus.with_group(topic, group, &mut once).map_err(|error| format!("ERR {error}"))?;
    Ok(result)
}

/// The consumer of a name, which is made if there is none. The second value: it was made.
fn consumer(group: &mut Consumers, room: GroupRoom, name: &[u8], now: u64) -> Result<(u32, bool), String> {
    if name.len() > MAX_CONSUMER_NAME_BYTES {
        return Err(format!("ERR the name of a consumer has {MAX_CONSUMER_NAME_BYTES} bytes at most"));
    }
    group.consumer(name, now, room.consumers).map_err(|error| {
        format!("ERR {error} (broker.max_group_workers): remove some with XGROUP DELCONSUMER")
    })
}

/// An argument for an error, which is cut.
fn shown(bytes: &[u8]) -> String {
    const MOST: usize = 128;
    String::from_utf8_lossy(&bytes[..bytes.len().min(MOST)]).into_owned()
}

/// The error for a group that does not exist, as most commands have it.
fn no_such_group(command: &Command<'_>, key: usize) -> String {
    let argument = |at: usize| shown(command.get(at).unwrap_or_default());
    format!("NOGROUP No such key '{}' or consumer group '{}'", argument(key), argument(key + 1))
}

/// All arguments from one on, as ids.
fn ids_from(command: &Command<'_>, from: usize) -> Result<Vec<Id>, &'static str> {
    command.from(from).map(|text| id(text, 0).ok_or(NO_ID)).collect()
}
