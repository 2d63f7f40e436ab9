//! The framework's events about received logs, and the notices that the application gets of them.

use rocketbufs::error::{RefuseCode, RefusedError};
use rocketbufs::{Bid, Epoch, InEvent, Policy, Position};
use tracing::debug;

use super::buffers::{Buffer, Stage};
use super::{Effect, Subscriptions};
use crate::state::event::Notice;
use crate::wire::TopicName;

impl Subscriptions {
    /// Takes an event of the rIn that is no data.
    pub(crate) fn on_event(&mut self, event: InEvent) {
        match event {
            InEvent::Subscribed { bid, epoch, start } => self.on_subscribed(bid, epoch, start),
            InEvent::NotDurable { bid } => {
                if let Some(buffer) = self.buffers.get(bid) {
                    self.clamped.on_no_place(buffer.name());
                }
            }
            InEvent::Lost { bid, from, to } => self.on_lost(bid, from, to),
            InEvent::Closed { bid, end } => self.on_closed(bid, end),
            InEvent::Gone { bid, end } => self.on_gone(bid, end),
            InEvent::Restarted { bid, .. } => self.on_restarted(bid),
            InEvent::Refused { bid, error } => self.on_refused(bid, &error),
            InEvent::ConnDown { reason } => {
                if self.link.on_lost() {
                    self.notices.push_back(Notice::Disconnected(reason.to_string()));
                }
                self.check_resumed();
            }
            other => debug!("an event without a notice: {other:?}"),
        }
    }

    fn on_subscribed(&mut self, bid: Bid, epoch: Epoch, start: Position) {
        let Some(buffer) = self.buffers.get(bid).filter(|buffer| buffer.is_open()) else { return };
        // A buffer in which a kept log goes on is no new log.
        if self.logs.begin(epoch, start, buffer.topic.kept) {
            self.notices.push_back(Notice::Joined { topic: buffer.name().clone(), epoch, start });
        }
    }

    fn on_lost(&mut self, bid: Bid, from: Position, to: Position) {
        let Some(buffer) = self.buffers.get(bid).filter(|buffer| buffer.is_open()) else { return };
        let (topic, epoch) = (buffer.name().clone(), buffer.epoch());
        if buffer.topic.kept && !buffer.replay && self.replays(buffer, from) {
            // The ring of a kept log was faster than this subscriber. The log goes on from the disk.
            self.logs.leave_at(epoch, from);
            self.effects.push_back(Effect::Unsubscribe(bid));
            return self.open_again(bid);
        }
        self.logs.skip(epoch, to);
        self.notices.push_back(Notice::Lost { topic, epoch, from, to });
    }

    /// Whether a loss of a kept log is none for this subscriber, which reads the disk instead: a blocking subscriber never lags
    /// behind a ring that it reads, and no subscriber does before its first message.
    fn replays(&self, buffer: &Buffer, from: Position) -> bool {
        matches!(buffer.stage, Stage::Open(Policy::Block, _)) || self.logs.has_joined_at(buffer.epoch(), from)
    }

    /// All data of a buffer was handed out.
    fn end(&mut self, bid: Bid) -> Option<(TopicName, Epoch)> {
        let buffer = self.buffers.get(bid).filter(|buffer| buffer.is_subscribed())?;
        let ended = (buffer.name().clone(), buffer.epoch());
        self.buffers.set_stage(bid, Stage::Ended);
        Some(ended)
    }

    fn on_closed(&mut self, bid: Bid, end: Position) {
        // The log of a replay goes on in the announced buffer.
        if self.buffers.get(bid).is_some_and(|buffer| buffer.replay) {
            return self.on_gone(bid, end);
        }
        let Some((topic, epoch)) = self.end(bid) else { return };
        self.logs.leave_at(epoch, end);
        self.logs.end(epoch);
        self.notices.push_back(Notice::Closed { topic, epoch, end });
        self.buffers.set_stage(bid, Stage::Closed);
        // Nothing more of the log is in the buffers that wait.
        while let Some(waiting) = self.buffers.next_of(epoch).map(|buffer| buffer.topic.bid) {
            self.buffers.set_stage(waiting, Stage::Ended);
        }
    }

    fn on_restarted(&mut self, bid: Bid) {
        let Some((topic, epoch)) = self.end(bid) else { return };
        self.logs.end(epoch);
        self.refused(Some(topic), "its publisher began a new log".into());
    }

    /// A subscription was refused, or ended by the broker. If the log is announced again, it resumes.
    fn on_refused(&mut self, bid: Bid, error: &RefusedError) {
        let Some(buffer) = self.buffers.get(bid).filter(|buffer| buffer.is_subscribed()) else { return };
        let (topic, epoch) = (buffer.name().clone(), buffer.epoch());
        if let (Some(allowed), Stage::Open(Policy::Block, begin)) = (error.allowed_policies(), buffer.stage)
            && !buffer.replay
            && self.clamped.on_no_block(&topic, allowed)
        {
            return self.open(buffer.topic.clone(), false, begin);
        }
        let was_open = buffer.is_open();
        let removed = matches!(error, RefusedError::Peer { code: RefuseCode::NoSuchBuffer, .. });
        let continues = self.buffers.next_of(epoch).is_some();
        let known = self.logs.known(epoch);
        self.buffers.remove(bid);
        self.logs.leave(epoch);
        match known {
            _ if !removed => {
                self.logs.end(epoch);
                self.refused(Some(topic), error.to_string());
            }
            // The log ended while this subscriber was offline, and nobody knows how much of it is missing here.
            Some(end) if was_open && !continues => self.gone(topic, epoch, end),
            // Nothing of the log was received or asked for by position, or nothing is missing.
            _ => {}
        }
        self.go_on(epoch);
    }

    /// The publisher of a buffer is gone. The publisher may return with the same log under another id, or the log may
    /// already be announced by way of another broker.
    fn on_gone(&mut self, bid: Bid, end: Position) {
        let Some((topic, epoch)) = self.end(bid) else { return };
        self.logs.leave_at(epoch, end);
        let (replay, continues) =
            self.buffers.get(bid).map_or((false, false), |buffer| (buffer.replay, buffer.continues));
        if continues || self.buffers.next_of(epoch).is_some() {
            self.buffers.set_stage(bid, Stage::Awaited(end));
        } else {
            self.gone(topic, epoch, end);
        }
        if replay {
            self.buffers.remove(bid);
        }
        self.go_on(epoch);
    }
}
