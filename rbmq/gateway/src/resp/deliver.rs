//! A message on its way to clients: each form of it is framed once.
//!
//! ```text
//!   one form          *3 message news hello                         one range, which all get
//!   several, small    *3 message news hello   >3 message news hello a range for each form
//!   several, large    hello                                         one range, behind a head of each client's own
//! ```

use rbmq_wire::Attributes;

use super::reply::{bulk, bulk_header};
use super::routes::{Kind, Routes};
use super::table::Entry;
use crate::protocol::{ConnId, Cx, Message, Range};

/// From this size on a payload is not framed more than once.
const SHARED_BYTES: usize = 512;

/// The property of messages of `SPUBLISH`. Others who receive the topic see it, and lose nothing without it.
const SHARD_PROPERTY: (&str, &str) = ("resp", "shard");

/// The same as attributes.
pub(super) const SHARD: &[u8] = b"\x05\x00\x0b\x00\x04\x00respshard";

/// Whether a message is one of `SPUBLISH`.
fn is_sharded(attributes: &[u8]) -> bool {
    // Malformed ones, of strangers, have a part of what they say.
    Attributes::checked_before(attributes).properties().any(|property| property == SHARD_PROPERTY)
}

/// Memory to work in.
#[derive(Debug, Default)]
pub(super) struct Scratch {
    head: Vec<u8>,
    reached: Vec<ConnId>,
}

/// A message, and what of it is in the log of frames.
struct Frames<'a, 'c, 'o> {
    channel: &'a [u8],
    payload: &'a [u8],
    /// The payload and its end, if it is shared by all forms.
    body: Option<Range>,
    is_shared: bool,
    head: &'a mut Vec<u8>,
    /// Who has got the message, once for each subscription.
    reached: &'a mut Vec<ConnId>,
    cx: &'c mut Cx<'o>,
}

impl Frames<'_, '_, '_> {
    /// Queues the message for all subscribers of an entry. `may` says who gets it.
    fn push(&mut self, kind: Kind, entry: &Entry, mut may: impl FnMut(&mut Cx<'_>, ConnId) -> bool) {
        for is_resp3 in [false, true] {
            if entry.count(is_resp3) == 0 {
                continue;
            }
            self.write_head(kind, entry, is_resp3);
            let mut whole = None;
            for subscriber in entry.subscribers().iter().filter(|found| found.is_resp3 == is_resp3) {
                if !may(self.cx, subscriber.conn) {
                    continue;
                }
                let is_queued = if self.is_shared {
                    let body = *self.body.get_or_insert_with(|| self.cx.out.frame(&[self.payload, b"\r\n"]));
                    self.cx.out.push_with(subscriber.conn, self.head, body)
                } else {
                    let frame =
                        *whole.get_or_insert_with(|| self.cx.out.frame(&[self.head, self.payload, b"\r\n"]));
                    self.cx.out.push(subscriber.conn, frame)
                };
                if is_queued {
                    self.reached.push(subscriber.conn);
                }
            }
        }
    }

    /// Everything before the payload.
    fn write_head(&mut self, kind: Kind, entry: &Entry, is_resp3: bool) {
        self.head.clear();
        self.head.push(if is_resp3 { b'>' } else { b'*' });
        self.head.extend_from_slice(match kind {
            Kind::Channel => b"3\r\n$7\r\nmessage\r\n",
            Kind::Pattern => b"4\r\n$8\r\npmessage\r\n",
            Kind::Shard => b"3\r\n$8\r\nsmessage\r\n",
        });
        if kind == Kind::Pattern {
            bulk(self.head, &entry.name);
        }
        bulk(self.head, self.channel);
        bulk_header(self.head, self.payload.len());
    }
}

/// Queues a message for everybody who gets it: once for each subscription.
pub(super) fn deliver(routes: &mut Routes, message: Message<'_>, scratch: &mut Scratch, cx: &mut Cx<'_>) {
    let is_sharded = !message.attributes.is_empty() && is_sharded(message.attributes);
    routes.of_topic(message.topic);
    let (routes, known) = (&*routes, routes.last());
    let kind = if is_sharded { Kind::Shard } else { Kind::Channel };
    let direct = known.entry(kind).map(|number| routes.table(kind).get(number));
    let patterns = || {
        let matching = if is_sharded { &[][..] } else { &known.patterns[..] };
        matching.iter().map(|number| routes.table(Kind::Pattern).get(*number))
    };
    let forms = |entry: &Entry| usize::from(entry.count(false) > 0) + usize::from(entry.count(true) > 0);
    let is_shared = message.payload.len() >= SHARED_BYTES
        && direct.into_iter().chain(patterns()).map(forms).sum::<usize>() > 1;
    let (channel, payload) = (&*known.channel, message.payload);
    let Scratch { head, reached } = scratch;
    let mut frames = Frames { channel, payload, body: None, is_shared, head, reached, cx };
    if let Some(entry) = direct {
        frames.push(kind, entry, |_, _| true);
    }
    for entry in patterns() {
        // Who subscribed to a pattern has a right for some of its topics.
        frames.push(Kind::Pattern, entry, |cx, conn| cx.door.may_receive(conn, message.topic));
    }
    if usize::from(direct.is_some()) + patterns().len() > 1 {
        // A client counts once, however many of its subscriptions match.
        reached.sort_unstable();
        reached.dedup();
    }
    cx.out.delivered(reached.len() as u64);
    reached.clear();
}

#[cfg(test)]
mod tests {
    use rbmq_wire::AttributesBuf;

    use super::*;

    #[test]
    fn messages_of_spublish_are_told_from_others() {
        let mut encoded = AttributesBuf::new();
        encoded.property(SHARD_PROPERTY.0, SHARD_PROPERTY.1).expect("short texts");
        assert_eq!(encoded.as_bytes(), SHARD);
        assert!(is_sharded(SHARD));
        let topic = b"\x01\x00\x01\x00a";
        assert!(is_sharded(&[topic, SHARD].concat()) && is_sharded(&[SHARD, topic].concat()));
        assert!(!is_sharded(topic) && !is_sharded(b"") && !is_sharded(&SHARD[..SHARD.len() - 1]));
        assert!(!is_sharded(b"\x05\x00\x0b\x00\x04\x00respshare"));
    }
}
