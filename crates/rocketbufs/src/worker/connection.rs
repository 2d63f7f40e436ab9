//! One connection of a worker, and the execution of what its messages, its role and time ask for.
//!
//! A [`Connection`] is a link with the worker's transport, time and schedule, found with one look-up for each
//! event. What concerns other connections, or the connection's own existence, is left to the reactor
//! ([`Halt`]).

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use rocketnet::{ConnId, Event, Transport};
use rustc_hash::FxHashMap;

use super::halt::{Halt, Handled};
use super::incoming::{InSub, Incoming, Received};
use super::io::{Io, Line, LinkPhase};
use super::peer::{OutSub, Turn, wire_of_pong};
use crate::error::DownReason;
use crate::events::InEvent;
use crate::fields::printable;
use crate::proto::{CloseCode, End, Hello, MIN_VERSION, Message, ReceiveError, Tick, VERSION};
use crate::state::{Buffer, Command, ForeignReason, ListenerShared, Phase, Role};
use crate::types::WireId;

/// Bytes of the application's control messages between two flushes. Each flush shows whether the peer still
/// reads.
const APP_BYTES_PER_FLUSH: usize = 64 << 10;

/// One connection. Maps with keys that the peer chooses use a hash that the peer cannot predict.
pub(super) struct Link {
    pub(super) line: Line,
    pub(super) role: Option<Role>,
    /// The HELLO to send when the connection is up (connecting end), or the listener that accepted it.
    pub(super) hello: Vec<u8>,
    pub(super) listener: Option<Weak<ListenerShared>>,
    /// The protocol version that was chosen from those of both ends.
    pub(super) version: u16,
    pub(super) outs: HashMap<WireId, OutSub>,
    /// Parked subscriptions of the peer, which wait for their buffer's log.
    pub(super) parked: HashMap<WireId, Weak<Buffer>>,
    pub(super) ins: FxHashMap<WireId, InSub>,
    pub(super) next_wire: WireId,
    /// Commands that wait until the connection is up.
    pub(super) early: Vec<Command>,
    /// Messages that arrived together with WELCOME, before the application gave the connection a role. At
    /// most one read of the transport.
    pub(super) unheard: Vec<Message>,
}

/// A connection with everything that executing its effects needs, see [the module](self).
pub(super) struct Connection<'a, T: Transport> {
    pub(super) io: &'a mut Io<T>,
    pub(super) link: &'a mut Link,
}

impl Link {
    /// Returns whether the application dropped every handle of a connection without a role. No thread can
    /// give the connection a role then, except by a command that the worker has already received.
    fn is_abandoned(&mut self) -> bool {
        let known = !matches!(self.line.phase, LinkPhase::Fresh | LinkPhase::Closing);
        // `get_mut` acquires what the last other handle released, so commands that were sent through that
        // handle are visible.
        known && self.role.is_none() && Arc::get_mut(&mut self.line.shared).is_some()
    }

    /// Returns whether commands wait until the connection is up.
    pub(super) fn is_early(&self) -> bool {
        matches!(
            self.line.phase,
            LinkPhase::Connecting | LinkPhase::Fresh | LinkPhase::Greeting | LinkPhase::Offered
        )
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
    pub(super) fn out(&mut self, wire: WireId) -> Option<Turn<'_, T>> {
        let Link { line, outs, .. } = &mut *self.link;
        Some(Turn { io: self.io, line, wire, out: outs.get_mut(&wire)? })
    }

    /// Returns a subscription of this end, with everything that executing its effects needs.
    pub(super) fn incoming(&mut self, wire: WireId) -> Option<Incoming<'_, T>> {
        let Link { line, ins, .. } = &mut *self.link;
        Some(Incoming { io: self.io, line, wire, sub: ins.get_mut(&wire)? })
    }

    /// Handles an event of the transport.
    pub(super) fn on_event(&mut self, event: Event) -> Handled {
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
            Event::Arrived(_, wire) => self.with(wire, |turn| turn.on_arrived())?,
            Event::Followed(_, wire) => self.with(wire, |turn| turn.on_followed())?,
            Event::Control(_, bytes) => return self.on_control(&bytes),
            Event::Offered(_, wire, offered) => {
                if let Some(mut turn) = self.incoming(wire) {
                    turn.on_offered(offered);
                }
            }
            Event::Landed(_, wire, position) => {
                if let Some(mut turn) = self.out(wire) {
                    turn.on_landed(position);
                }
            }
            Event::Watched(_, wire, number, doorbell) => {
                if let Some(mut turn) = self.out(wire) {
                    turn.watch(number, doorbell);
                }
            }
            Event::Unwatched(_, wire, number) => {
                if let Some(mut turn) = self.out(wire) {
                    turn.unwatch(number);
                }
            }
            Event::Writable(_) => self.io.mark_dirty(&mut self.link.line),
            Event::Incoming(_) | Event::Down(..) => {}
        }
        Ok(())
    }

    fn on_connected(&mut self) {
        self.link.line.phase = LinkPhase::Greeting;
        let hello = std::mem::take(&mut self.link.hello);
        let hello = self.our_hello((MIN_VERSION, VERSION), hello);
        self.send(&Message::Hello(hello));
    }

    fn our_hello(&self, versions: (u16, u16), hello: Vec<u8>) -> Hello {
        Hello {
            min_version: versions.0,
            max_version: versions.1,
            capabilities: 0,
            instance: self.io.inner.instance,
            heartbeat_ms: self.io.inner.config.session.heartbeat_ms,
            max_control_bytes: self.io.inner.config.limits.max_control_bytes,
            hello,
        }
    }

    fn on_control(&mut self, bytes: &[u8]) -> Handled {
        let message = Message::decode(bytes)
            .map_err(|error| Halt::protocol(format!("a message of this peer is not valid: {error}")))?;
        match (self.link.line.phase, message) {
            (_, Message::Bye { code, text }) => {
                Err(Halt::Down(DownReason::Peer { code, text: printable(&text) }))
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
                Err(Halt::protocol(format!("{kind} does not belong here ({phase:?})")))
            }
        }
    }

    fn on_hello(&mut self, hello: Hello) -> Handled {
        let carrier = self.io.transport.carrier(self.id());
        let Some(version) = self.link.line.session.on_hello(&hello, self.io.now) else {
            let (min, max) = (hello.min_version, hello.max_version);
            let why =
                format!("version {min} to {max} was offered; this end speaks {MIN_VERSION} to {VERSION}");
            return Err(Halt::Close(CloseCode::Version, why));
        };
        self.link.version = version;
        self.link.line.phase = LinkPhase::Offered;
        self.link.line.shared.greeted(hello, Phase::Offered, carrier);
        self.io.transport.pause(self.id(), true);
        let Some(listener) = self.link.listener.take().and_then(|listener| listener.upgrade()) else {
            return Err(Halt::Close(CloseCode::ShuttingDown, "no longer listening".to_owned()));
        };
        if let Some(refused) = listener.offer(self.link.line.shared.clone()) {
            let why = "too many connections wait to be accepted";
            listener.turned_away(&refused.peer_addr(), ForeignReason::Limit, why);
            return Err(Halt::Close(CloseCode::Limit, why.to_owned()));
        }
        Ok(())
    }

    fn on_welcome(&mut self, hello: Hello) -> Handled {
        let carrier = self.io.transport.carrier(self.id());
        tracing::debug!(peer = self.id().0, carrier = carrier.name, why = carrier.why, "connected");
        if self.link.line.session.on_hello(&hello, self.io.now).is_none() {
            let why = "the version in WELCOME was not offered".to_owned();
            return Err(Halt::Close(CloseCode::Version, why));
        }
        self.link.line.phase = LinkPhase::Up;
        self.link.line.shared.greeted(hello, Phase::Up, carrier);
        if self.link.role.is_none() {
            // Without a role there is no recipient for incoming messages.
            self.io.transport.pause(self.id(), true);
        }
        Err(Halt::Up(std::mem::take(&mut self.link.early), Vec::new()))
    }

    /// Gives the connection its role, and starts or resumes reading.
    pub(super) fn attach(&mut self, role: Role) -> Handled {
        let number = self.link.line.shared.id;
        if self.link.line.phase == LinkPhase::Closing {
            let reason = self.link.line.shared.down_reason();
            let closing = || DownReason::NotStarted("the connection is closing".into());
            tell_role_down(&role, number, reason.unwrap_or_else(closing));
            return Ok(());
        }
        if let Role::In(rin) = &role {
            let subscribe = |inbound| Command::Subscribe { conn: number, inbound };
            self.link.early.extend(rin.all_inbounds().into_iter().map(subscribe));
        }
        self.link.role = Some(role);
        match self.link.line.phase {
            LinkPhase::Offered => {
                self.link.line.phase = LinkPhase::Up;
                self.link.line.shared.set_phase(Phase::Up);
                let version = self.link.version;
                let welcome = self.our_hello((version, version), Vec::new());
                self.send(&Message::Welcome(welcome));
            }
            LinkPhase::Up => {}
            _ => return Ok(()),
        }
        self.io.transport.pause(self.id(), false);
        let (early, unheard) = (std::mem::take(&mut self.link.early), std::mem::take(&mut self.link.unheard));
        Err(Halt::Up(early, unheard))
    }

    /// Handles a message of a connection that has a role. `forwarded`: confirmations that must precede its
    /// effects were forwarded, see [`Halt::Forward`].
    pub(super) fn on_message(&mut self, message: Message, forwarded: bool) -> Handled {
        match message {
            Message::Ping(token) => self.send(&Message::Pong(token)),
            Message::Pong(token) => {
                if let Some(mut turn) = wire_of_pong(token).and_then(|wire| self.out(wire)) {
                    turn.on_end_heard();
                }
            }
            Message::App(bytes) => return self.on_app(bytes),
            Message::Hello(_) | Message::Welcome(_) => return Err(Halt::protocol("a second greeting")),
            Message::Bye { .. } => {}
            Message::Subscribe(subscribe) => return self.on_subscribe(subscribe),
            Message::Unsubscribe(wire) => return self.on_unsubscribe(wire, forwarded),
            Message::Credit { wire, credit } => {
                // Credit for a subscription that just ended may still be in flight.
                let Some(mut turn) = self.out(wire) else { return Ok(()) };
                // Earlier confirmations are forwarded before departed downstream receivers are counted.
                if !forwarded && let Some(source) = turn.upstream_of_departed(&credit) {
                    return Err(Halt::Forward(source, Box::new(Message::Credit { wire, credit })));
                }
                return turn.on_credit(&credit);
            }
            Message::Recall(wire) => {
                // A subscription that just ended has no grant.
                if let Some(mut turn) = self.out(wire) {
                    turn.on_recall();
                }
            }
            message => return self.on_own_message(message),
        }
        Ok(())
    }

    /// Handles a message about a subscription of this end.
    fn on_own_message(&mut self, message: Message) -> Handled {
        let handled = match message {
            Message::Subscribed(subscribed) => match self.incoming(subscribed.wire) {
                Some(mut turn) => turn.on_subscribed(&subscribed),
                None => Err(ReceiveError::NotAsked),
            },
            Message::Refused { wire, code, a, b } => {
                self.on_refused(wire, (code, a, b));
                Ok(())
            }
            Message::Unsubscribed(wire) => self.on_unsubscribed(wire),
            Message::Ask { wire, wanted } => self.with(wire, |turn| turn.on_ask(wanted)),
            Message::Recalled { wire, at } => self.with(wire, |turn| turn.on_recalled(at)),
            Message::Lost { wire, from, to } => self.with(wire, |turn| turn.on_lost((from, to))),
            Message::Closed { wire, end } => self.with(wire, |turn| turn.on_end(End::Closed(end))),
            Message::Gone { wire, end } => self.with(wire, |turn| turn.on_end(End::Gone(end))),
            _ => Ok(()),
        };
        Ok(handled?)
    }

    /// Handles a message about a subscription of this end. A message about an unknown id is ignored.
    fn with(&mut self, wire: WireId, handle: impl FnOnce(&mut Incoming<'_, T>) -> Received) -> Received {
        self.incoming(wire).map_or(Ok(()), |mut turn| handle(&mut turn))
    }

    fn on_app(&mut self, bytes: Vec<u8>) -> Handled {
        let taken = match &self.link.role {
            Some(Role::In(rin)) => rin.on_control(bytes),
            Some(Role::Out(out)) => {
                out.on_control(&self.link.line.shared, &bytes);
                true
            }
            None => true,
        };
        let why = || "too many control messages that nobody reads".to_owned();
        taken.then_some(()).ok_or_else(|| Halt::Close(CloseCode::Limit, why()))
    }

    /// Queues a control message of the application.
    pub(super) fn send_app(&mut self, message: Vec<u8>, cost: usize) {
        if self.link.is_early() {
            let conn = self.link.line.shared.id;
            return self.link.early.push(Command::Control { conn, message, cost });
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

/// The end of a connection.
impl<T: Transport> Connection<'_, T> {
    /// Closes the connection without BYE, which has no recipient.
    pub(super) fn drop_line(&mut self, reason: DownReason) {
        let why = reason.to_string();
        self.take_down(reason);
        self.io.transport.close(self.id(), &why, Duration::ZERO);
    }

    /// Sends BYE and closes the connection. Queued messages leave first, within `close_linger_ms`.
    pub(super) fn close(&mut self, code: CloseCode, why: &str) {
        if self.link.line.phase == LinkPhase::Closing {
            return;
        }
        let unheard = self.link.line.phase == LinkPhase::Connecting;
        self.tell_stranger(ForeignReason::of_close(code), why);
        if !unheard {
            self.send_last_app();
            self.tell_last_credits();
            self.send(&Message::Bye { code, text: why.to_owned() });
            self.io.transport.flush(self.id());
        }
        self.take_down(DownReason::Local { code, text: why.to_owned() });
        let linger = Duration::from_millis(u64::from(self.io.inner.config.session.close_linger_ms));
        self.io.transport.close(self.id(), why, if unheard { Duration::ZERO } else { linger });
    }

    /// Sends the application's queued control messages ahead of BYE, as far as there is room.
    fn send_last_app(&mut self) {
        let mut bytes = 0;
        for (message, cost) in std::mem::take(&mut self.link.line.app) {
            bytes += cost;
            if bytes > 4 * APP_BYTES_PER_FLUSH {
                break;
            }
            self.send(&Message::App(message));
        }
    }

    /// Reports, once, to the listener why a connection ended before a valid HELLO.
    pub(super) fn tell_stranger(&mut self, reason: Option<ForeignReason>, why: &str) {
        if self.link.line.phase != LinkPhase::Fresh {
            return;
        }
        let listener = self.link.listener.take().and_then(|listener| listener.upgrade());
        if let (Some(reason), Some(listener)) = (reason, listener) {
            listener.turned_away(&self.link.line.shared.peer_addr(), reason, why);
        }
    }

    /// Suspends or drops everything that a connection carried, once, and notifies the application.
    pub(super) fn take_down(&mut self, reason: DownReason) {
        if self.link.line.phase == LinkPhase::Closing {
            return;
        }
        self.link.line.phase = LinkPhase::Closing;
        let shared = self.link.line.shared.clone();
        let role = self.link.role.take();
        let early = std::mem::take(&mut self.link.early);
        shared.set_phase(Phase::Down(reason.clone()));
        self.drop_outs(&reason.to_string());
        self.drop_parked(None);
        self.suspend_ins();
        for command in early {
            if let Command::Subscribe { inbound, .. } = command {
                self.io.begin_linger(&inbound);
            }
        }
        if let Some(role) = role {
            tell_role_down(&role, shared.id, reason);
        }
    }

    /// Checks the timeouts of the connection.
    pub(super) fn tick(&mut self) -> Handled {
        let phase = self.link.line.phase;
        if phase == LinkPhase::Closing {
            return Ok(());
        }
        if self.link.is_abandoned() && !self.io.shared.has_work() {
            let why = "nobody took the connection: its application let go of it";
            return Err(Halt::Close(CloseCode::NotAccepted, why.to_owned()));
        }
        let paused = phase == LinkPhase::Offered || self.link.role.is_none() && phase == LinkPhase::Up;
        match self.link.line.session.tick(self.io.now, paused) {
            Tick::Quiet => {}
            // The first message of this end must be WELCOME.
            Tick::Ping if phase == LinkPhase::Offered => {}
            Tick::Ping => self.send(&Message::Ping(self.io.now)),
            Tick::HandshakeTimeout => {
                return Err(Halt::Close(
                    CloseCode::Timeout,
                    "no answer within the handshake time".to_owned(),
                ));
            }
            Tick::Dead => {
                let text = "the peer was silent for three heartbeats".to_owned();
                return Err(Halt::Down(DownReason::Local { code: CloseCode::Timeout, text }));
            }
            Tick::Silent => {
                let most = self.io.inner.config.session.max_silence_ms;
                let why =
                    format!("nothing came for session.max_silence_ms = {most}, not even an answer to PING");
                return Err(Halt::Close(CloseCode::Timeout, why));
            }
        }
        Ok(())
    }
}

/// Reports the end of a connection to its role.
pub(super) fn tell_role_down(role: &Role, number: u64, reason: DownReason) {
    match role {
        Role::In(rin) if rin.conn().id == number => {
            rin.tell(InEvent::ConnDown { reason });
        }
        Role::In(_) => {}
        Role::Out(out) => out.conn_down(number, reason),
    }
}
