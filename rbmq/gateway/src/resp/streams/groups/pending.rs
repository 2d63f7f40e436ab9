//! `XACK` and `XPENDING`.

use super::super::super::client::Client;
use super::super::super::commands::Verb;
use super::super::super::machine::Resp;
use super::super::super::parse::{Command, integer};
use super::super::super::reply::Reply;
use super::super::ids::{Id, bound, count};
use super::{NO_INTEGER, Place, SYNTAX, ids_from, no_such_group};
use crate::protocol::Cx;

/// An entry that is looked at costs so much, in bytes of replies.
pub(super) const LOOK: usize = 16;

/// What the long form of `XPENDING` asks for.
struct Range {
    idle_ms: u64,
    from: Id,
    /// The end, if anything can be before it.
    to: Option<Id>,
    most: usize,
    /// The place of the consumer among the arguments.
    consumer: Option<usize>,
}

fn range(command: &Command<'_>) -> Result<Range, String> {
    let is_idle = command.get(3).is_some_and(|word| word.eq_ignore_ascii_case(b"idle"));
    let mut at = 3;
    let mut idle_ms = 0;
    if is_idle {
        let ms = integer(command.get(4).ok_or(SYNTAX)?).ok_or(NO_INTEGER)?;
        idle_ms = u64::try_from(ms).unwrap_or(0);
        at = 5;
    }
    let [Some(start), Some(end), Some(most)] = [at, at + 1, at + 2].map(|at| command.get(at)) else {
        return Err(SYNTAX.to_owned());
    };
    if command.len() > at + 4 {
        return Err(SYNTAX.to_owned());
    }
    let most = count(most)?;
    let (from, to) = (bound(start, true)?.unwrap_or(Id::MAX), bound(end, false)?);
    Ok(Range { idle_ms, from, to, most, consumer: (command.len() > at + 3).then_some(at + 3) })
}

impl Resp {
    /// The command XPENDING.
    pub(in crate::resp) fn pending(
        &mut self,
        client: &Client,
        verb: Verb,
        command: &Command<'_>,
        cx: &mut Cx<'_>,
    ) {
        match verb {
            Verb::Xack => self.xack(client, command, cx),
            Verb::Xclaim => self.xclaim(client, command, cx),
            Verb::Xautoclaim => self.xautoclaim(client, command, cx),
            _ => self.xpending(client, command, cx),
        }
    }

    /// `XACK key group id …`.
    fn xack(&mut self, client: &Client, command: &Command<'_>, cx: &mut Cx<'_>) {
        let done = ids_from(command, 3).map_err(str::to_owned).and_then(|ids| {
            let place = Place::of(command, 1, client.conn, cx)?;
            let acked = place.with(cx, |group, _| ids.iter().filter(|id| group.ack(**id)).count())?;
            Ok(acked.unwrap_or(0))
        });
        self.cost += LOOK * command.len();
        let mut reply = Reply::new(&mut self.replies, client.is_resp3);
        match done {
            Ok(acked) => reply.count(acked),
            Err(error) => reply.error(error),
        }
    }

    /// `XPENDING key group [[IDLE ms] start end count [consumer]]`.
    fn xpending(&mut self, client: &Client, command: &Command<'_>, cx: &mut Cx<'_>) {
        let begin = self.replies.len();
        let done = match command.len() {
            3 => self.xpending_summary(client, command, cx),
            _ => range(command).and_then(|range| self.xpending_range(client, command, &range, cx)),
        };
        if let Err(error) = done {
            self.replies.truncate(begin);
            Reply::new(&mut self.replies, client.is_resp3).error(error);
        }
    }

    fn xpending_summary(
        &mut self,
        client: &Client,
        command: &Command<'_>,
        cx: &mut Cx<'_>,
    ) -> Result<(), String> {
        let mut reply = Reply::new(&mut self.replies, client.is_resp3);
        let found = Place::of(command, 1, client.conn, cx)?.with(cx, |group, _| {
            reply.array(4);
            reply.count(group.pending());
            let mut all = group.pending_from(Id::MIN).map(|(id, _)| id);
            let first = all.next();
            let Some((first, last)) = first.map(|first| (first, all.next_back().unwrap_or(first))) else {
                reply.null();
                reply.null();
                return reply.null_array();
            };
            reply.bulk(first.to_string());
            reply.bulk(last.to_string());
            let holders = || group.consumers().filter(|consumer| consumer.pending() > 0);
            reply.array(holders().count());
            for consumer in holders() {
                reply.array(2);
                reply.bulk(consumer.name());
                reply.bulk(consumer.pending().to_string());
            }
        })?;
        found.ok_or_else(|| no_such_group(command, 1))
    }

    fn xpending_range(
        &mut self,
        client: &Client,
        command: &Command<'_>,
        range: &Range,
        cx: &mut Cx<'_>,
    ) -> Result<(), String> {
        let (now, bytes) = (self.now_ms(cx), self.max_reply_bytes);
        let place = Place::of(command, 1, client.conn, cx)?;
        let (mut rows, mut count, mut looked) = (Vec::new(), 0, 0);
        let found = place.with(cx, |group, _| {
            let mut reply = Reply::new(&mut rows, client.is_resp3);
            let mut add = |(id, at): (Id, rbmq_broker::Delivered)| {
                looked += 1;
                if range.to.is_some_and(|to| id >= to) || count == range.most || reply.len() > bytes {
                    return false;
                }
                let idle = now.saturating_sub(at.at_ms);
                let name = group.get(at.consumer).map_or(&b""[..], |consumer| consumer.name());
                if idle >= range.idle_ms {
                    count += 1;
                    reply.array(4);
                    reply.bulk(id.to_string());
                    reply.bulk(name);
                    reply.integer(i64::try_from(idle).unwrap_or(i64::MAX));
                    reply.integer(at.count.into());
                }
                true
            };
            match range.consumer.map(|at| group.find(command.get(at).unwrap_or_default())) {
                Some(Some(consumer)) => _ = group.pending_of(consumer, range.from).all(&mut add),
                Some(None) => {}
                None => _ = group.pending_from(range.from).all(&mut add),
            }
        })?;
        self.cost += LOOK * looked + rows.len();
        found.ok_or_else(|| no_such_group(command, 1))?;
        if rows.len() > bytes {
            return Err(format!("ERR these entries take more than {bytes} bytes: ask for fewer"));
        }
        let mut reply = Reply::new(&mut self.replies, client.is_resp3);
        reply.array(count);
        reply.raw(&rows);
        Ok(())
    }
}
