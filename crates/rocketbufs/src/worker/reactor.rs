//! One worker: what happens when something arrives, is written, or time passes.
//!
//! A [`Reactor`] owns a transport and its connections. [`Reactor::turn`] drives it: handle the transport's
//! events, the application's commands and the news of buffers; then give every connection with something to
//! send its turns; then flush. The reactor never waits for a lock that is held across I/O, and reads no
//! clock.

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use rocketnet::{ConnId, Event, Transport};
use rustc_hash::FxHashMap;

use crate::planted;
use crate::proto::{CloseCode, Message};
use crate::state::{Buffer, Command, ContextShared, ListenerShared, Request, Role, Worker};
use crate::types::{Nanos, WireId};

use super::idle::Idle;
use super::incoming::InSub;
use super::io::{Io, Line};
use super::lingering::Lingering;
use super::peer::{OutSub, Turn};
use super::slots::{SlotUse, Slots};

/// The state of one worker. Public only for the simulator, which drives it by hand.
#[doc(hidden)]
pub struct Reactor<T: Transport> {
    pub(super) io: Io<T>,
    pub(super) links: FxHashMap<ConnId, Link>,
    pub(super) by_number: FxHashMap<u64, ConnId>,
    pub(super) listeners: Vec<(u64, String, Weak<ListenerShared>)>,
    pub(super) slots: Slots,
    pub(super) lingering: Lingering,
    pub(super) idle: Idle,
    pub(super) events: Vec<Event>,
    pub(super) stop_at: Option<Nanos>,
    pub(super) stopped: bool,
}

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

impl<T: Transport> Reactor<T> {
    pub(crate) fn new(context: Arc<ContextShared>, shared: Arc<Worker>, transport: T) -> Self {
        let inner = &context.inner;
        let lingering = Lingering::new(inner.config.session.linger_ms);
        let idle = Idle::new(&inner.config, shared.index, inner.workers.len());
        Self {
            io: Io::new(context, shared, transport),
            links: FxHashMap::default(),
            by_number: FxHashMap::default(),
            listeners: Vec::new(),
            slots: Slots::default(),
            lingering,
            idle,
            events: Vec::new(),
            stop_at: None,
            stopped: false,
        }
    }

    /// Returns the transport, for the simulator's faults.
    pub fn transport_mut(&mut self) -> &mut T {
        &mut self.io.transport
    }

    /// Takes one turn that waits for work. Returns false when the worker is done.
    pub(crate) fn run_once(&mut self, clock: &dyn Fn() -> Nanos) -> bool {
        let timeout = if self.io.dirty.is_empty() {
            self.io.shared.token.waker().prepare();
            let until_tick = Duration::from_nanos(self.next_tick().saturating_sub(clock()));
            if self.io.shared.has_work() { Duration::ZERO } else { until_tick }
        } else {
            Duration::ZERO
        };
        let mut events = std::mem::take(&mut self.events);
        self.io.transport.poll(Some(timeout), &mut events);
        self.io.shared.token.waker().woken();
        self.take_turn(clock(), &mut events);
        self.events = events;
        !self.stopped
    }

    /// Takes one turn at time `now` without waiting. Returns whether anything happened or is left to do.
    pub fn turn(&mut self, now: Nanos) -> bool {
        let mut events = std::mem::take(&mut self.events);
        self.io.transport.poll(Some(Duration::ZERO), &mut events);
        let came = !events.is_empty() || self.io.shared.looks.take_took();
        let busy = came || self.io.shared.has_work() || !self.io.dirty.is_empty();
        if busy {
            self.io.busy_at = now;
        }
        self.take_turn(now, &mut events);
        self.events = events;
        self.io.shared.looks.allow(now, self.has_something_to_look_at(now));
        busy
    }

    /// Returns when time alone next causes work.
    pub fn next_tick(&self) -> Nanos {
        self.io.next_tick.min(self.idle.due()).min(self.io.report_at)
    }

    fn take_turn(&mut self, now: Nanos, events: &mut Vec<Event>) {
        self.io.now = now;
        for event in events.drain(..) {
            self.on_event(event);
        }
        for command in self.io.shared.take_mail() {
            self.on_command(command);
        }
        if now >= self.io.report_at {
            self.report_all();
        }
        self.take_news();
        self.pump_all();
        if now >= self.io.next_tick {
            self.tick();
        }
        if now >= self.idle.due() {
            self.sweep();
        }
    }

    fn on_event(&mut self, event: Event) {
        match event {
            Event::Connected(conn) => self.on_connected(conn),
            Event::Incoming(accepted) => self.on_incoming(accepted),
            Event::Arrived(conn, wire) => {
                self.heard(conn);
                self.receive(conn, wire, |turn| turn.on_arrived());
            }
            // A look at the mapped ring says nothing about whether the peer is alive.
            Event::Followed(conn, wire) => {
                if let Some(mut turn) = self.incoming(conn, wire) {
                    turn.on_followed();
                }
            }
            Event::Watched(conn, wire, number, doorbell) => {
                self.heard(conn);
                if let Some(mut turn) = self.out(conn, wire) {
                    turn.watch(number, doorbell);
                }
            }
            Event::Unwatched(conn, wire, number) => {
                if let Some(mut turn) = self.out(conn, wire) {
                    turn.unwatch(number);
                }
            }
            Event::Control(conn, bytes) => {
                self.heard(conn);
                self.on_control(conn, &bytes);
            }
            Event::Offered(conn, wire, offered) => {
                self.heard(conn);
                if let Some(mut turn) = self.incoming(conn, wire) {
                    turn.on_offered(offered);
                }
            }
            Event::Landed(conn, wire, position) => {
                self.heard(conn);
                self.on_landed(conn, wire, position);
            }
            Event::Writable(_) if planted::is(planted::WRITABLE_IGNORED) => {}
            Event::Writable(conn) => self.make_dirty(conn),
            Event::Down(conn, why) => self.on_down(conn, &why),
        }
    }

    pub(super) fn on_command(&mut self, command: Command) {
        match command {
            Command::Listen { listener, addr, reply } => self.listen(listener, &addr, &reply),
            Command::Unlisten { listener } => self.unlisten(listener),
            Command::Connect { conn, addr, hello } => self.connect(conn, &addr, hello),
            Command::Adopt { conn, accepted, listener } => self.adopt(conn, accepted, listener),
            Command::Attach { conn, role } => self.attach(conn, role),
            Command::Subscribe { conn, inbound } => self.subscribe(conn, inbound),
            Command::Unsubscribe { conn, inbound } => self.unsubscribe(conn, &inbound),
            Command::Trim(buffer) => self.idle.trim(buffer),
            Command::Request(request) => self.on_request(request),
        }
    }

    fn on_request(&mut self, request: Request) {
        match request {
            Request::Close { conn, code, why } => self.close_number(conn, code, &why),
            Request::Control { conn, message, cost } => self.send_app(conn, message, cost),
            Request::Leave { conn, wire } => self.leave(conn, wire),
            Request::Resume { conn, bid } => self.resume(conn, bid),
            Request::PassWatchers { slot } => {
                // Without a connection, the watchers are passed on at the resume.
                if let Some(mut turn) = self.incoming_of(slot) {
                    turn.pass_watchers();
                }
            }
            Request::Unpark(parked) => self.unpark(parked),
            Request::Activated(activated) => self.idle.activated(activated, self.io.now),
            Request::Run(job) => job(),
            Request::LookAt(at) => self.io.next_tick = self.io.next_tick.min(at),
            Request::Shutdown { grace } => self.shutdown(grace),
        }
    }

    /// Handles the news of buffers and subscriptions that other threads marked.
    pub(super) fn take_news(&mut self) {
        let shared = self.io.shared.clone();
        shared.pending.drain(|slot| self.on_slot(slot));
    }

    fn on_slot(&mut self, slot: u32) {
        match self.slots.get(slot) {
            None => {}
            Some(&SlotUse::In((conn, wire))) => {
                if let Some(mut turn) = self.incoming(conn, wire) {
                    turn.on_pending();
                }
            }
            Some(SlotUse::Outs(outs)) => {
                match outs[..] {
                    [(conn, wire)] => self.wake_out(conn, wire),
                    _ => outs.clone().into_iter().for_each(|(conn, wire)| self.wake_out(conn, wire)),
                }
                self.suppress_notify(slot);
            }
        }
    }

    fn heard(&mut self, conn: ConnId) {
        if let Some(link) = self.links.get_mut(&conn) {
            link.line.session.heard(self.io.now);
        }
    }

    /// Queues a control message, and has the connection flushed at the end of the turn.
    pub(super) fn send(&mut self, conn: ConnId, message: &Message) {
        if let Some(link) = self.links.get_mut(&conn) {
            self.io.send(&mut link.line, message);
        }
    }

    /// Gives a connection its turn to send at the end of this worker's turn.
    pub(super) fn make_dirty(&mut self, conn: ConnId) {
        if let Some(link) = self.links.get_mut(&conn) {
            self.io.mark_dirty(&mut link.line);
        }
    }

    /// Returns a subscription of the peer, with everything that executing its effects needs.
    pub(super) fn out(&mut self, conn: ConnId, wire: WireId) -> Option<Turn<'_, T>> {
        let Link { line, outs, .. } = self.links.get_mut(&conn)?;
        Some(Turn { io: &mut self.io, line, wire, out: outs.get_mut(&wire)? })
    }

    fn shutdown(&mut self, grace: Duration) {
        let connections: Vec<_> = self.links.keys().copied().collect();
        for conn in connections {
            self.close(conn, CloseCode::ShuttingDown, "shutting down");
        }
        let grace_ns = Nanos::try_from(grace.as_nanos()).unwrap_or(Nanos::MAX);
        self.stop_at = Some(self.io.now.saturating_add(grace_ns));
        if self.links.is_empty() || grace.is_zero() {
            self.stopped = true;
        }
        self.io.next_tick = self.io.now;
    }
}

impl<T: Transport> Drop for Reactor<T> {
    fn drop(&mut self) {
        // Dropped connections notify the worker's shared state, and must not keep it alive.
        self.links.clear();
        self.lingering.clear();
        self.slots.clear();
        self.io.shared.close();
    }
}
