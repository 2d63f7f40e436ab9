//! The framework's events about received logs, and the notices that the application gets of them.

use rocketbufs::error::{RefuseCode, RefusedError};
use rocketbufs::{Bid, Epoch, InEvent, Policy, Position};
use tracing::debug;

use super::Subscriber;
use crate::buffers::{Buffer, Kept, Stage};
use crate::connection::lock;
use crate::event::Notice;
use crate::resume_positions::ResumePosition;

impl Subscriber {
    /// Takes an event of the framework. Returns the notice of it for the application, where there is one.
    pub(super) fn on_event(&mut self, event: InEvent) -> Option<Notice> {
        match event {
            InEvent::Subscribed { bid, epoch, start } => self.on_subscribed(bid, epoch, start),
            InEvent::NotDurable { bid } => lock(&self.set.state).on_no_place(bid),
            InEvent::Lost { bid, from, to } => self.on_lost(bid, from, to),
            InEvent::Closed { bid, end } => self.on_closed(bid, end),
            InEvent::Gone { bid, end } => self.on_gone(bid, end),
            InEvent::Restarted { bid, .. } => self.on_restarted(bid),
            InEvent::Refused { bid, error } => self.on_refused(bid, &error),
            InEvent::ConnDown { reason } => {
                let mut state = lock(&self.set.state);
                state.disconnects += 1;
                state.disconnected = true;
                self.set.settle(&state);
                Some(Notice::Disconnected(reason.to_string()))
            }
            other => {
                debug!("an event without a notice: {other:?}");
                None
            }
        }
    }

    fn on_subscribed(&mut self, bid: Bid, epoch: Epoch, start: Position) -> Option<Notice> {
        let mut state = lock(&self.set.state);
        let Buffer { topic, kept, .. } = state.buffers.get(bid)?.clone();
        let known = state.positions.get(epoch);
        let covered_from = known.map_or(start, |known| known.covered_from.min(start));
        self.covered_from.insert(epoch, covered_from);
        if kept != Kept::No {
            // Another connection goes on here, also if nothing was received.
            self.handed_out.insert(epoch, start);
            // A buffer in which a kept log goes on is no new log.
            if self.joined.insert(epoch, start).is_some() {
                return None;
            }
        }
        // A log that replaces another one is reported before it begins.
        state.notices.push_back(Notice::Joined { topic, epoch, start });
        state.notices.pop_front()
    }

    fn on_lost(&mut self, bid: Bid, from: Position, to: Position) -> Option<Notice> {
        let mut state = lock(&self.set.state);
        let buffer = state.buffers.get(bid)?.clone();
        if buffer.kept == Kept::Yes && self.replays(buffer.policy, buffer.epoch, from) {
            let left = ResumePosition::left_at(&mut self.covered_from, buffer.epoch, from);
            state.positions.leave(buffer.epoch, left);
            drop(state);
            self.set.replay_again(&self.rin, bid);
            return None;
        }
        drop(state);
        self.handed_out.insert(buffer.epoch, to);
        self.covered_from.insert(buffer.epoch, to);
        Some(Notice::Lost { topic: buffer.topic, epoch: buffer.epoch, from, to })
    }

    fn on_closed(&mut self, bid: Bid, end: Position) -> Option<Notice> {
        let mut state = lock(&self.set.state);
        let (topic, epoch) = state.buffers.end(bid)?;
        let left = ResumePosition::left_at(&mut self.covered_from, epoch, end);
        state.positions.leave(epoch, left);
        let replayed = state.buffers.get(bid).is_some_and(|buffer| buffer.kept == Kept::Replay);
        if replayed {
            state.buffers.remove(bid);
        } else {
            self.handed_out.remove(&epoch);
            self.joined.remove(&epoch);
        }
        drop(state);
        self.set.on_ended(&self.rin, epoch);
        (!replayed).then_some(Notice::Closed { topic, epoch, end })
    }

    /// Whether a loss of a kept log is none for this subscriber, which reads the disk instead: a blocking subscriber never lags
    /// behind a ring that it reads, and no subscriber does before its first message.
    fn replays(&self, policy: Policy, epoch: Epoch, from: Position) -> bool {
        policy == Policy::Block || self.joined.get(&epoch) == Some(&from)
    }

    fn on_restarted(&mut self, bid: Bid) -> Option<Notice> {
        let (topic, epoch) = lock(&self.set.state).buffers.end(bid)?;
        self.handed_out.remove(&epoch);
        self.covered_from.remove(&epoch);
        self.joined.remove(&epoch);
        let reason = "its publisher began a new log".into();
        Some(Notice::Refused { topic: Some(topic), reason })
    }

    /// A subscription was refused, or ended by the broker. If the log is announced again, it resumes.
    fn on_refused(&mut self, bid: Bid, error: &RefusedError) -> Option<Notice> {
        if let Some(allowed) = error.allowed_policies()
            && self.set.subscribe_as_allowed(&self.rin, bid, allowed)
        {
            return lock(&self.set.state).clamped.reports.pop_front().map(Notice::OptionClamped);
        }
        let mut state = lock(&self.set.state);
        let Buffer { topic, epoch, stage, .. } = state.buffers.remove(bid)?;
        let removed = matches!(error, RefusedError::Peer { code: RefuseCode::NoSuchBuffer, .. });
        let continues = removed && state.on_removed(bid, epoch);
        let joined_at = self.covered_from.get(&epoch).copied();
        let handed_out = self.handed_out.remove(&epoch);
        if let Some(position) = handed_out {
            let left = ResumePosition::left_at(&mut self.covered_from, epoch, position);
            state.positions.leave(epoch, left);
        }
        let known = handed_out.or(joined_at).or_else(|| state.positions.get(epoch).map(|left| left.position));
        drop(state);
        self.set.on_ended(&self.rin, epoch);
        match known {
            _ if !removed => Some(Notice::Refused { topic: Some(topic), reason: error.to_string() }),
            // The log ended while this subscriber was offline, and nobody knows how much of it is missing here.
            Some(end) if stage == Stage::Open && !continues => Some(Notice::Gone { topic, epoch, end }),
            // Nothing of the log was received or asked for by position, or nothing is missing.
            _ => None,
        }
    }

    /// The publisher of a buffer is gone. The publisher may return with the same log under another id, or the log may
    /// already be announced by way of another broker.
    fn on_gone(&mut self, bid: Bid, end: Position) -> Option<Notice> {
        let mut state = lock(&self.set.state);
        let (topic, epoch) = state.buffers.end(bid)?;
        let left = ResumePosition::left_at(&mut self.covered_from, epoch, end);
        state.positions.leave(epoch, left);
        self.handed_out.remove(&epoch);
        let continues = state.await_log(bid, topic.clone(), epoch, end);
        drop(state);
        self.set.on_ended(&self.rin, epoch);
        (!continues).then_some(Notice::Gone { topic, epoch, end })
    }
}
