//! A connection of a worker, and the execution of the effects that its messages, its role and time ask for.
//!
//! A [`Connection`] is a link with the worker's transport, time and schedule, found with one look-up for each
//! event. Effects on other connections, or on the connection's own existence, are left to the reactor
//! ([`ReactorAction`]).

use std::collections::HashMap;
use std::sync::Weak;

use peers::HostAddress;
use rocketnet::{ConnId, Event, Transport};
use rustc_hash::FxHashMap;

use super::in_effects::{IncomingEntry, IncomingSubscription, Received};
use super::out_effects::{OutgoingEntry, OutgoingSubscription, wire_of_pong};
use super::reactor_action::{Outcome, ReactorAction};
use super::worker_context::{LinkPhase, SendState, WorkerContext};
use crate::ground::fields::printable;
use crate::ground::types::WireId;
use crate::proto::{CloseCode, End, Message, ReceiveError};
use crate::state::error::DownReason;
use crate::state::{Buffer, Command, ListenerShared, Request, Role};

/// Bytes of the application's control messages between two flushes. Each flush shows whether the peer still
/// reads.
pub(super) const APP_BYTES_PER_FLUSH: usize = 64 << 10;

/// Writes to a connection between two flushes, and flushes of one connection before others have their turn.
const WRITES_PER_FLUSH: usize = 256;
const FLUSHES_PER_TURN: usize = 4;

/// What the worker knows of the peer of a connection.
pub(super) enum Standing {
    /// The peer has sent HELLO, or this end connects, or the connection counts nowhere any more.
    Known,
    /// The place of the connection among the strangers of the worker.
    Stranger { host: Option<HostAddress>, number: u64 },
    /// The connection counts in the worker's refusals.
    Refused,
}

/// One connection. Maps with keys that the peer chooses use a hash that the peer cannot predict.
pub(super) struct Link {
    pub(super) line: SendState,
    pub(super) role: Option<Role>,
    /// The HELLO to send when the connection is up (connecting end), or the listener that accepted it.
    pub(super) hello: Vec<u8>,
    pub(super) listener: Option<Weak<ListenerShared>>,
    pub(super) standing: Standing,
    /// The protocol version that was chosen from those of both ends.
    pub(super) version: u16,
    pub(super) outs: HashMap<WireId, OutgoingEntry>,
    /// Parked subscriptions of the peer, which wait for their buffer's log.
    pub(super) parked: HashMap<WireId, Weak<Buffer>>,
    pub(super) ins: FxHashMap<WireId, IncomingEntry>,
    pub(super) next_wire: WireId,
    /// Commands that wait until the connection is up.
    pub(super) early: Vec<Command>,
    /// Messages that arrived together with WELCOME, before the application gave the connection a role. At
    /// most one read of the transport.
    pub(super) unheard: Vec<Message>,
}

/// A connection with everything that executing its effects needs, see [the module](self).
pub(super) struct Connection<'a, T: Transport> {
    pub(super) io: &'a mut WorkerContext<T>,
    pub(super) link: &'a mut Link,
}

impl Link {
    /// Returns whether commands wait until the connection is up.
    pub(super) fn is_early(&self) -> bool {
        matches!(
            self.line.phase,
            LinkPhase::Connecting | LinkPhase::Fresh | LinkPhase::Greeting | LinkPhase::Offered
        )
    }
}

impl<'a, T: Transport> Connection<'a, T> {
    /// Finds a connection among those of a worker.
    pub(super) fn find(
        io: &'a mut WorkerContext<T>,
        links: &'a mut FxHashMap<ConnId, Link>,
        conn: ConnId,
    ) -> Option<Self> {
        Some(Self { io, link: links.get_mut(&conn)? })
    }
}

impl<T: Transport> Connection<'_, T> {
    pub(super) fn id(&self) -> ConnId {
        self.link.line.id
    }

    /// Records that the peer is alive.
    fn heard(&mut self) {
        self.link.line.session.heard(self.io.now);
    }

    /// Queues a control message, and has the connection flushed at the end of the turn.
    pub(super) fn send(&mut self, message: &Message) {
        self.io.send(&mut self.link.line, message);
    }

    /// Returns a subscription of the peer, with everything that executing its effects needs.
    pub(super) fn out(&mut self, wire: WireId) -> Option<OutgoingSubscription<'_, T>> {
        let Link { line, outs, .. } = &mut *self.link;
        Some(OutgoingSubscription { io: self.io, line, wire, out: outs.get_mut(&wire)? })
    }

    /// Returns a subscription of this end, with everything that executing its effects needs.
    pub(super) fn incoming(&mut self, wire: WireId) -> Option<IncomingSubscription<'_, T>> {
        let Link { line, ins, .. } = &mut *self.link;
        Some(IncomingSubscription { io: self.io, line, wire, sub: ins.get_mut(&wire)? })
    }

    /// Handles an event of the transport.
    pub(super) fn on_event(&mut self, event: Event) -> Outcome {
        // A look at a mapped ring says nothing about whether the peer is alive, and neither does the state of
        // this end's queue.
        if !matches!(
            event,
            Event::Connected(_) | Event::Followed(..) | Event::Unwatched(..) | Event::Writable(_)
        ) {
            self.heard();
        }
        match event {
            Event::Connected(_) => self.on_connected(),
            Event::Arrived(_, wire) => self.with(wire, |incoming| incoming.on_arrived())?,
            Event::Followed(_, wire) => self.with(wire, |incoming| incoming.on_followed())?,
            Event::Control(_, bytes) => return self.on_control(&bytes),
            Event::Offered(_, wire, offered) => {
                if let Some(mut incoming) = self.incoming(wire) {
                    incoming.on_offered(offered);
                }
            }
            Event::Landed(_, wire, position) => {
                if let Some(mut outgoing) = self.out(wire) {
                    outgoing.on_landed(position);
                }
            }
            Event::Watched(_, wire, number, doorbell) => {
                if let Some(mut outgoing) = self.out(wire) {
                    outgoing.watch(number, doorbell);
                }
            }
            Event::Unwatched(_, wire, number) => {
                if let Some(mut outgoing) = self.out(wire) {
                    outgoing.unwatch(number);
                }
            }
            Event::Writable(_) => self.io.mark_dirty(&mut self.link.line),
            Event::Incoming(_) | Event::Down(..) => {}
        }
        Ok(())
    }

    fn on_control(&mut self, bytes: &[u8]) -> Outcome {
        let message = Message::decode(bytes).map_err(|error| {
            ReactorAction::protocol(format!("a message of this peer is not valid: {error}"))
        })?;
        match (self.link.line.phase, message) {
            (_, Message::Bye { code, text }) => {
                Err(ReactorAction::Down(DownReason::Peer { code, text: printable(&text) }))
            }
            (LinkPhase::Closing, _) => Ok(()),
            (LinkPhase::Fresh, Message::Hello(hello)) => self.on_hello(hello),
            (LinkPhase::Greeting, Message::Welcome(hello)) => self.on_welcome(hello),
            (LinkPhase::Up, message) if self.link.role.is_none() => {
                self.link.unheard.push(message);
                Ok(())
            }
            (LinkPhase::Up, message) => self.on_message(message, false),
            (phase, message) => {
                let kind = format!("{message:?}");
                let kind = kind.split([' ', '(']).next().unwrap_or_default();
                Err(ReactorAction::protocol(format!("{kind} does not belong here ({phase:?})")))
            }
        }
    }

    /// Handles a message of a connection that has a role. `forwarded`: confirmations that must precede its
    /// effects were forwarded, see [`ReactorAction::Forward`].
    pub(super) fn on_message(&mut self, message: Message, forwarded: bool) -> Outcome {
        match message {
            Message::Ping(token) => self.send(&Message::Pong(token)),
            Message::Pong(token) => {
                if let Some(mut outgoing) = wire_of_pong(token).and_then(|wire| self.out(wire)) {
                    outgoing.on_end_heard();
                }
            }
            Message::App(bytes) => return self.on_app(bytes),
            Message::Hello(_) | Message::Welcome(_) => {
                return Err(ReactorAction::protocol("a second greeting"));
            }
            Message::Bye { .. } => {}
            Message::Subscribe(subscribe) => return self.on_subscribe(subscribe),
            Message::Unsubscribe(wire) => return self.on_unsubscribe(message, wire, forwarded),
            Message::Refused { wire, .. } if matches!(self.link.role, Some(Role::Out(_))) => {
                return self.on_unsubscribe(message, wire, forwarded);
            }
            Message::Credit { wire, credit } => {
                // Credit for a subscription that just ended may still be in flight.
                let Some(mut outgoing) = self.out(wire) else { return Ok(()) };
                // Earlier confirmations are forwarded before departed downstream receivers are counted.
                if !forwarded && let Some(source) = outgoing.upstream_of_departed(&credit) {
                    return Err(ReactorAction::Forward(source, Box::new(Message::Credit { wire, credit })));
                }
                return outgoing.on_credit(&credit);
            }
            Message::Recall(wire) => {
                // A subscription that just ended has no grant.
                if let Some(mut outgoing) = self.out(wire) {
                    outgoing.on_recall();
                }
            }
            message => return self.on_own_message(message),
        }
        Ok(())
    }

    /// Handles a message about a subscription of this end.
    fn on_own_message(&mut self, message: Message) -> Outcome {
        let handled = match message {
            Message::Subscribed(subscribed) => match self.incoming(subscribed.wire) {
                Some(mut incoming) => incoming.on_subscribed(&subscribed),
                None => Err(ReceiveError::NotAsked),
            },
            Message::Refused { wire, code, a, b } => {
                self.on_refused(wire, code, a, b);
                Ok(())
            }
            Message::Unsubscribed(wire) => self.on_unsubscribed(wire),
            Message::Ask { wire, wanted } => self.with(wire, |incoming| incoming.on_ask(wanted)),
            Message::Recalled { wire, at } => self.with(wire, |incoming| incoming.on_recalled(at)),
            Message::Grown { wire, max_delivery } => {
                self.with(wire, |incoming| incoming.on_grown(max_delivery))
            }
            Message::Lost { wire, from, to } => self.with(wire, |incoming| incoming.on_lost(from, to)),
            Message::Closed { wire, end } => self.with(wire, |incoming| incoming.on_end(End::Closed(end))),
            Message::Gone { wire, end } => self.with(wire, |incoming| incoming.on_end(End::Gone(end))),
            _ => Ok(()),
        };
        Ok(handled?)
    }

    /// Handles a message about a subscription of this end. A message about an unknown id is ignored.
    fn with(
        &mut self,
        wire: WireId,
        handle: impl FnOnce(&mut IncomingSubscription<'_, T>) -> Received,
    ) -> Received {
        self.incoming(wire).map_or(Ok(()), |mut incoming| handle(&mut incoming))
    }

    fn on_app(&mut self, bytes: Vec<u8>) -> Outcome {
        let taken = match &self.link.role {
            Some(Role::In(rin)) => rin.on_control(bytes),
            Some(Role::Out(out)) => {
                out.on_control(&self.link.line.shared, &bytes);
                true
            }
            None => true,
        };
        let why = || "too many control messages that nobody reads".to_owned();
        taken.then_some(()).ok_or_else(|| ReactorAction::Close(CloseCode::Limit, why()))
    }
}

/// Sending.
impl<T: Transport> Connection<'_, T> {
    /// Handles news of the buffer for this subscription.
    pub(super) fn wake_out(&mut self, wire: WireId) -> Outcome {
        self.out(wire).map_or(Ok(()), |mut outgoing| outgoing.on_news())
    }

    /// Sends the deferred report of a subscription.
    pub(super) fn report(&mut self, wire: WireId) -> Outcome {
        if let Some(mut outgoing) = self.out(wire) {
            outgoing.report();
        }
        Ok(())
    }

    /// Sends waiting messages, as far as there is room.
    pub(super) fn pump(&mut self) -> Outcome {
        self.link.line.dirty = false;
        let (conn, idle) = (self.id(), self.io.inline_idle());
        for _ in 0..FLUSHES_PER_TURN {
            // Data follows the control messages that were queued before it.
            let wrote = self.send_waiting_app() && self.write_some()?;
            let all_left = self.io.transport.flush(conn);
            let line = &mut self.link.line;
            line.app_unflushed = 0;
            line.pauses.end_of_worker(self.io.now, idle);
            if !wrote || !all_left {
                break;
            }
        }
        let line = &mut self.link.line;
        let waits = line.app.is_empty() && (line.ready.is_empty() || line.delays_sending(self.io.now));
        if !waits && self.io.transport.room(conn) > 0 {
            self.io.mark_dirty(line);
        }
        Ok(())
    }

    /// Sends one transfer of each subscription in turn, until the queue is full. Returns whether anything was
    /// written.
    pub(super) fn write_some(&mut self) -> Result<bool, ReactorAction> {
        if self.link.line.limiting.is_some() {
            return self.write_within_limits();
        }
        self.write_turns::<false>(u64::MAX)
    }

    /// Sends one transfer of each subscription in turn, until the queue is full. `LIMITED`: until `most` bytes were sent.
    pub(super) fn write_turns<const LIMITED: bool>(&mut self, most: u64) -> Result<bool, ReactorAction> {
        let Link { line, outs, .. } = &mut *self.link;
        let ordered = self.io.transport.promises_to(line.id).ordered;
        let before = line.pauses.written();
        let mut wrote = false;
        for _ in 0..WRITES_PER_FLUSH {
            let mut room = self.io.transport.room(line.id);
            if LIMITED {
                let sent = line.pauses.written() - before;
                let left = most.saturating_sub(sent);
                if sent > 0 && line.is_rest_too_small(outs, left) {
                    break;
                }
                room = room.min(left);
            }
            if room == 0 {
                break;
            }
            let Some(wire) = line.ready.pop_front() else { break };
            let Some(out) = outs.get_mut(&wire) else { continue };
            if LIMITED {
                out.machine.delayed(self.io.now);
            }
            wrote |= OutgoingSubscription { io: self.io, line, wire, out }.take(room, ordered)?;
        }
        Ok(wrote)
    }

    /// Queues a control message of the application.
    pub(super) fn send_app(&mut self, message: Vec<u8>, cost: usize) {
        if self.link.is_early() {
            let conn = self.link.line.shared.id;
            return self.link.early.push(Request::Control { conn, message, cost }.into());
        }
        self.link.line.app.push_back((message, cost));
        self.send_waiting_app();
    }

    /// Sends queued control messages of the application while the peer reads. They must not use up the
    /// reserve for the protocol's own messages. Returns whether the queue is empty.
    pub(super) fn send_waiting_app(&mut self) -> bool {
        let Self { io, link } = self;
        let line = &mut link.line;
        while io.transport.room(line.id) > 0
            && let Some((message, cost)) = line.app.pop_front()
        {
            line.shared.control_left(cost);
            line.app_unflushed += cost;
            io.send(line, &Message::App(message));
            if line.app_unflushed >= APP_BYTES_PER_FLUSH {
                line.app_unflushed = 0;
                io.transport.flush(line.id);
            }
        }
        line.app.is_empty()
    }
}
