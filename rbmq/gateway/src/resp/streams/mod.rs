//! Streams: the logs of kept topics, as clients of Redis read and write them.
//!
//! ```text
//!   XADD ─▶ appending ─▶ record ─▶ log of the topic ─▶ its place ─▶ id: time of the delivery, position of the record
//!   XREADGROUP, XACK ─▶ groups ─▶ what each consumer has
//!   XRANGE, XREAD ─▶ reading ─▶ ids: a range of ids is a range of positions ─▶ entries: records as fields
//! ```

mod append;
mod appending;
mod counts;
pub mod entries;
mod facts;
pub mod groups;
pub mod ids;
mod reading;
mod waiting;
mod walk;

pub(super) use append::Append;
pub(super) use counts::Counts;
pub(super) use waiting::{Reading, Waiting};

use rbmq_wire::TopicName;
use rocketbufs::Position;

use super::names::topic_of;
use crate::protocol::{ConnId, Cx, Kept};

/// No right for the topic of a key.
pub(super) const NO_PERMISSION: &str = "NOPERM No permissions to access a key";

/// The log of a stream.
#[derive(Debug, Clone)]
pub(super) struct Stream {
    pub(super) topic: TopicName,
    /// The first position that is kept.
    pub(super) first: Position,
    /// The position behind the last entry.
    pub(super) end: Position,
}

/// A gateway beside its broker has no logs.
const ELSEWHERE: &str = "ERR streams are read from the disk of the broker, and this gateway runs beside its broker: connect to a gateway inside of it \
     (rbmq serve --gateway resp)";

/// What a client is about to do with a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Intent {
    Read,
    Append,
}

impl Stream {
    /// The stream of a key, for a client that may have it.
    ///
    /// # Errors
    /// The answer to the client: there is none, or it has no right.
    pub(super) fn of(key: &[u8], conn: ConnId, intent: Intent, cx: &mut Cx<'_>) -> Result<Self, String> {
        const TOO_LONG: &str =
            "ERR the name of this key is too long for a topic, which has 255 bytes at most";
        let topic = topic_of(key).ok_or(TOO_LONG)?;
        let may = match intent {
            Intent::Read => cx.door.may_subscribe(conn, &topic),
            Intent::Append => cx.door.may_publish(conn, &topic),
        };
        if !may {
            return Err(NO_PERMISSION.to_owned());
        }
        match cx.bus.kept(&topic) {
            Kept::Yes { first, end } => Ok(Self { topic, first, end }),
            Kept::No => Err(format!(
                "ERR a stream is a topic that the broker keeps on disk, and '{topic}' is not: add [[broker.topics]] with pattern = \"{topic}\" \
                 and keep = true to its configuration, and broker.keep_dir"
            )),
            Kept::Elsewhere => Err(ELSEWHERE.to_owned()),
            Kept::InSpace => Err(format!(
                "ERR '{topic}' is kept in a space with other topics: as a stream it needs [[broker.topics]] with pattern = \"{topic}\" and \
                 keep = true before the rule of the space"
            )),
        }
    }

    /// Whether anything was ever stored.
    pub(super) fn exists(&self) -> bool {
        self.end > 0
    }
}
