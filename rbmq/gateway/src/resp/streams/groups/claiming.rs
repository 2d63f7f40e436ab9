//! `XCLAIM` and `XAUTOCLAIM`: a consumer takes what another one has had for long.

use rbmq_broker::{Consumers, Delivered};

use super::super::super::client::Client;
use super::super::super::machine::Resp;
use super::super::super::parse::{Command, integer};
use super::super::super::reply::Reply;
use super::super::ids::{Id, bound, id};
use super::looking::{Looked, MAX_READ, look_up};
use super::pending::LOOK;
use super::{NO_ID, Place, SYNTAX, consumer, no_such_group, shown};
use crate::protocol::Cx;

/// `XAUTOCLAIM` takes so many entries, unless it is asked for others, and looks at so many for each.
const AUTO_COUNT: usize = 100;
const AUTO_LOOKS: usize = 10;

/// The most entries that one `XAUTOCLAIM` looks at.
const AUTO_MOST: usize = 16 << 10;

/// What `XCLAIM` asks for.
struct Claim {
    ids: Vec<Id>,
    min_idle_ms: u64,
    at_ms: u64,
    retries: Option<u32>,
    is_forced: bool,
    just_ids: bool,
    last: Option<Id>,
}

impl Claim {
    /// How often an entry was delivered then; none: it is not claimed.
    fn count(&self, before: Option<Delivered>, now: u64, room: usize) -> Option<u32> {
        let count = match before {
            Some(before) if now.saturating_sub(before.at_ms) < self.min_idle_ms => return None,
            Some(before) => before.count,
            None if room == 0 || !self.is_forced => return None,
            None => 1,
        };
        let more = u32::from(!self.just_ids);
        Some(self.retries.unwrap_or_else(|| count.saturating_add(more)))
    }
}

fn min_idle(text: Option<&[u8]>, command: &str) -> Result<u64, String> {
    let ms = integer(text.unwrap_or_default())
        .ok_or_else(|| format!("ERR Invalid min-idle-time argument for {command}"))?;
    Ok(u64::try_from(ms).unwrap_or(0))
}

fn claim(command: &Command<'_>, now: u64) -> Result<Claim, String> {
    let min_idle_ms = min_idle(command.get(4), "XCLAIM")?;
    let ids: Vec<Id> = command.from(5).map_while(|text| id(text, 0)).collect();
    let mut claim =
        Claim { min_idle_ms, at_ms: now, retries: None, is_forced: false, just_ids: false, last: None, ids };
    let mut at = 5 + claim.ids.len();
    while let Some(word) = command.get(at) {
        let value = command.get(at + 1);
        let number = |what: &str| {
            let number = integer(value.unwrap_or_default());
            number.ok_or_else(|| format!("ERR Invalid {what} option argument for XCLAIM"))
        };
        at += 2;
        match (&word.to_ascii_lowercase()[..], value) {
            (b"force", _) => (claim.is_forced, at) = (true, at - 1),
            (b"justid", _) => (claim.just_ids, at) = (true, at - 1),
            (b"idle", Some(_)) => {
                let idle = u64::try_from(number("IDLE")?).unwrap_or(0);
                claim.at_ms = now.saturating_sub(idle);
            }
            (b"time", Some(_)) => {
                claim.at_ms = u64::try_from(number("TIME")?).map_or(now, |time| time.min(now));
            }
            (b"retrycount", Some(_)) => {
                let retries = number("RETRYCOUNT")?.max(0);
                claim.retries = Some(u32::try_from(retries).unwrap_or(u32::MAX));
            }
            (b"lastid", Some(value)) => claim.last = Some(id(value, 0).ok_or(NO_ID)?),
            _ => return Err(format!("ERR Unrecognized XCLAIM option '{}'", shown(word))),
        }
    }
    Ok(claim)
}

/// What `XAUTOCLAIM` asks for.
struct AutoClaim {
    min_idle_ms: u64,
    from: Id,
    most: usize,
    just_ids: bool,
}

impl AutoClaim {
    /// The entries that may be taken, where the next call goes on, and how many entries were looked at.
    fn candidates(&self, group: &Consumers, now: u64) -> (Vec<Id>, Id, usize) {
        let (mut ids, mut looks) = (Vec::new(), 0);
        let most = self.most.saturating_mul(AUTO_LOOKS).min(AUTO_MOST);
        for (id, at) in group.pending_from(self.from) {
            if looks == most || ids.len() == self.most {
                return (ids, id, looks);
            }
            looks += 1;
            if now.saturating_sub(at.at_ms) >= self.min_idle_ms {
                ids.push(id);
            }
        }
        (ids, Id::MIN, looks)
    }
}

fn auto_claim(command: &Command<'_>) -> Result<AutoClaim, String> {
    let min_idle_ms = min_idle(command.get(4), "XAUTOCLAIM")?;
    let from = bound(command.get(5).unwrap_or_default(), true)?.unwrap_or(Id::MAX);
    let mut auto = AutoClaim { min_idle_ms, from, most: AUTO_COUNT, just_ids: false };
    let mut at = 6;
    while let Some(word) = command.get(at) {
        match (&word.to_ascii_lowercase()[..], command.get(at + 1)) {
            (b"justid", _) => (auto.just_ids, at) = (true, at + 1),
            (b"count", Some(value)) => {
                let most = integer(value).and_then(|most| usize::try_from(most).ok());
                let most = most.filter(|most| *most > 0);
                (auto.most, at) = (most.ok_or("ERR COUNT must be > 0")?, at + 2);
            }
            _ => return Err(SYNTAX.to_owned()),
        }
    }
    Ok(auto)
}

/// Writes entries that were claimed, or their ids.
fn write(reply: &mut Reply<'_>, claimed: &[&Looked], just_ids: bool, entries: &[u8]) {
    reply.array(claimed.len());
    for Looked { id, at } in claimed {
        match at {
            Some(at) if !just_ids => reply.raw(&entries[at.clone()]),
            _ => reply.bulk(id.to_string()),
        }
    }
}

impl Resp {
    /// `XCLAIM key group consumer min-idle id … [IDLE ms] [TIME ms] [RETRYCOUNT n] [FORCE] [JUSTID] [LASTID id]`.
    pub(super) fn xclaim(&mut self, client: &Client, command: &Command<'_>, cx: &mut Cx<'_>) {
        let done = self.try_xclaim(client, command, cx);
        if let Err(error) = done {
            Reply::new(&mut self.replies, client.is_resp3).error(error);
        }
    }

    fn try_xclaim(&mut self, client: &Client, command: &Command<'_>, cx: &mut Cx<'_>) -> Result<(), String> {
        let now = self.now_ms(cx);
        let claim = claim(command, now)?;
        let place = Place::of(command, 1, client.conn, cx)?;
        // Only what is pending, or is to become so, is looked for.
        let wanted = place.with(cx, |group, _| {
            let mut ids = claim.ids.clone();
            ids.sort_unstable();
            ids.dedup();
            ids.retain(|id| claim.is_forced || group.delivered(*id).is_some());
            ids
        })?;
        let wanted = wanted.ok_or_else(|| no_such_group(command, 1))?;
        let mut entries = Vec::new();
        let looked = look_up(&place.stream, &wanted, self.max_reply_bytes, MAX_READ, &mut entries, cx)?;
        let claimed = place.with(cx, |group, room| {
            let (number, _) = consumer(group, room, command.get(3).unwrap_or_default(), now)?;
            if let Some(last) = claim.last.filter(|last| *last > group.last()) {
                group.set_last(last, None);
            }
            let (mut claimed, mut room) = (Vec::new(), room.entries);
            for id in &claim.ids {
                let Ok(at) = looked.binary_search_by_key(id, |looked| looked.id) else { continue };
                let found = &looked[at];
                let before = group.delivered(*id);
                if found.at.is_none() {
                    group.ack(*id);
                    continue;
                }
                let Some(count) = claim.count(before, now, room) else { continue };
                room -= usize::from(before.is_none());
                group.claim(*id, Delivered { consumer: number, count, at_ms: claim.at_ms });
                claimed.push(found);
            }
            if !claimed.is_empty() {
                group.was_active(number, now);
            }
            Ok::<_, String>(claimed)
        })?;
        let claimed = claimed.ok_or_else(|| no_such_group(command, 1))??;
        let mut reply = Reply::new(&mut self.replies, client.is_resp3);
        write(&mut reply, &claimed, claim.just_ids, &entries);
        Ok(())
    }

    /// `XAUTOCLAIM key group consumer min-idle start [COUNT n] [JUSTID]`.
    pub(super) fn xautoclaim(&mut self, client: &Client, command: &Command<'_>, cx: &mut Cx<'_>) {
        let done = self.try_xautoclaim(client, command, cx);
        if let Err(error) = done {
            Reply::new(&mut self.replies, client.is_resp3).error(error);
        }
    }

    fn try_xautoclaim(
        &mut self,
        client: &Client,
        command: &Command<'_>,
        cx: &mut Cx<'_>,
    ) -> Result<(), String> {
        let now = self.now_ms(cx);
        let auto = auto_claim(command)?;
        let place = Place::of(command, 1, client.conn, cx)?;
        let wanted = place.with(cx, |group, _| auto.candidates(group, now))?;
        let (wanted, mut cursor, looks) = wanted.ok_or_else(|| no_such_group(command, 1))?;
        self.cost += LOOK * looks;
        let mut entries = Vec::new();
        let looked = look_up(&place.stream, &wanted, self.max_reply_bytes, MAX_READ, &mut entries, cx)?;
        if let Some(next) = wanted.get(looked.len()) {
            cursor = *next;
        }
        let done = place.with(cx, |group, room| {
            let (number, _) = consumer(group, room, command.get(3).unwrap_or_default(), now)?;
            let (mut claimed, mut deleted) = (Vec::new(), Vec::new());
            for found in &looked {
                // Another gateway may have given it to somebody meanwhile.
                let before = group.delivered(found.id);
                let is_old = |before: &Delivered| now.saturating_sub(before.at_ms) >= auto.min_idle_ms;
                let Some(before) = before.filter(is_old) else { continue };
                if found.at.is_none() {
                    group.ack(found.id);
                    deleted.push(found.id);
                    continue;
                }
                let count = before.count.saturating_add(u32::from(!auto.just_ids));
                group.claim(found.id, Delivered { consumer: number, count, at_ms: now });
                claimed.push(found);
            }
            if !claimed.is_empty() {
                group.was_active(number, now);
            }
            Ok::<_, String>((claimed, deleted))
        })?;
        let (claimed, deleted) = done.ok_or_else(|| no_such_group(command, 1))??;
        let mut reply = Reply::new(&mut self.replies, client.is_resp3);
        reply.array(3);
        reply.bulk(cursor.to_string());
        write(&mut reply, &claimed, auto.just_ids, &entries);
        reply.array(deleted.len());
        deleted.iter().for_each(|id| reply.bulk(id.to_string()));
        Ok(())
    }
}
