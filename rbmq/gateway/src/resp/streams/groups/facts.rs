//! `XINFO GROUPS` and `XINFO CONSUMERS`.

use super::super::super::client::Client;
use super::super::super::machine::{Flow, Resp};
use super::super::super::parse::Command;
use super::super::super::reply::Reply;
use super::super::Stream;
use super::super::ids::Id;
use super::changing::existing;
use super::{names, shown, with};
use crate::protocol::Cx;

/// A group, for people.
struct Facts {
    name: Vec<u8>,
    consumers: usize,
    pending: usize,
    last: Id,
    read: Option<u64>,
    next: Option<u64>,
}

impl Resp {
    /// `XINFO GROUPS key`.
    pub(in crate::resp) fn xinfo_groups(
        &mut self,
        client: &Client,
        command: &Command<'_>,
        cx: &mut Cx<'_>,
    ) -> Result<Flow, String> {
        let stream = existing(command, client, cx)?;
        let mut groups = Vec::new();
        for name in cx.bus.group_names(&stream.topic) {
            let facts = with(&stream.topic, &name, cx, |group, _| Facts {
                name: names::name_of(&name),
                consumers: group.len(),
                pending: group.pending(),
                last: group.last(),
                read: group.read(),
                next: group.next(),
            })?;
            groups.extend(facts);
        }
        let mut rows = Vec::new();
        for facts in &groups {
            let Some(lag) = self.lag(facts, &stream, cx)? else { return Ok(Flow::Later) };
            rows.push(lag);
        }
        let mut reply = Reply::new(&mut self.replies, client.is_resp3);
        reply.array(groups.len());
        for (Facts { name, consumers, pending, last, read, .. }, lag) in groups.iter().zip(rows) {
            reply.map(6);
            reply.bulk("name");
            reply.bulk(name);
            reply.bulk("consumers");
            reply.count(*consumers);
            reply.bulk("pending");
            reply.count(*pending);
            reply.bulk("last-delivered-id");
            reply.bulk(last.to_string());
            reply.bulk("entries-read");
            number(&mut reply, *read);
            reply.bulk("lag");
            number(&mut reply, lag);
        }
        Ok(Flow::Done)
    }

    /// How many entries the group has not delivered, if that is known. None: it is being counted.
    fn lag(
        &mut self,
        facts: &Facts,
        stream: &Stream,
        cx: &mut Cx<'_>,
    ) -> Result<Option<Option<u64>>, String> {
        let next = match (facts.next, facts.last.next()) {
            (Some(next), _) => next,
            (None, Some(id)) => stream.place(id, cx)?,
            (None, None) => stream.end,
        };
        if next >= stream.end {
            return Ok(Some(Some(0)));
        }
        // Where entries were removed, nobody knows how many of them were delivered.
        let read = facts.read.or((facts.last == Id::MIN).then_some(0));
        let Some(read) = read.filter(|_| stream.first == 0) else { return Ok(Some(None)) };
        let Some(count) = self.stream_counts.of(stream, cx)? else { return Ok(None) };
        Ok(Some(count.checked_sub(read)))
    }

    /// `XINFO CONSUMERS key group`.
    pub(in crate::resp) fn xinfo_consumers(
        &mut self,
        client: &Client,
        command: &Command<'_>,
        cx: &mut Cx<'_>,
    ) -> Result<Flow, String> {
        let (stream, now) = (existing(command, client, cx)?, self.now_ms(cx));
        let name = command.get(3).unwrap_or_default();
        let ms = |ms: u64| i64::try_from(ms).unwrap_or(i64::MAX);
        let mut reply = Reply::new(&mut self.replies, client.is_resp3);
        let found = names::group_of(name).map_or(Ok(None), |group| {
            with(&stream.topic, &group, cx, |group, _| {
                reply.array(group.len());
                for consumer in group.consumers() {
                    reply.map(4);
                    reply.bulk("name");
                    reply.bulk(consumer.name());
                    reply.bulk("pending");
                    reply.count(consumer.pending());
                    reply.bulk("idle");
                    reply.integer(ms(now.saturating_sub(consumer.seen_ms)));
                    reply.bulk("inactive");
                    reply.integer(consumer.active_ms.map_or(-1, |at| ms(now.saturating_sub(at))));
                }
            })
        })?;
        let key = shown(command.get(2).unwrap_or_default());
        found
            .map(|()| Flow::Done)
            .ok_or_else(|| format!("NOGROUP No such consumer group '{}' for key name '{key}'", shown(name)))
    }
}

fn number(reply: &mut Reply<'_>, value: Option<u64>) {
    match value {
        Some(value) => reply.integer(i64::try_from(value).unwrap_or(i64::MAX)),
        None => reply.null(),
    }
}
