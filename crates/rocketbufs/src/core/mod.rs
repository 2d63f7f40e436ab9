//! One worker: what happens when something arrives, is written, or time passes.
//!
//! A [`Core`] owns a transport and its connections. It is driven by [`Core::turn`]: take what the transport tells, the
//! commands of the application's threads and the news of buffers; then give every connection with something to send
//! its turns; then flush. It never waits for a lock that is held across I/O and touches no clock.
//!
//! * `incoming`, `links`: connections, from the first byte to the last;
//! * `admitting`: subscriptions of others to our buffers, until they are answered;
//! * `sending`: the same, from then on;
//! * `asking`: our subscriptions, until they are answered;
//! * `receiving`: the same, from then on;
//! * `following`: the same, where they read what was not told them, and are woken by who writes it;
//! * `lending`: the same, where they share a budget;
//! * `idle`: memory that rings at rest give back;
//! * `inline`: sending from the application's thread;
//! * `ticks`: what happens because time passed.

mod admitting;
mod asking;
mod following;
mod idle;
pub(crate) mod incoming;
pub(crate) mod inline;
mod lending;
mod links;
mod receiving;
mod sending;
mod ticks;

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Weak};
use std::time::Duration;

use rocketnet::{ConnId, Event, Offered, Transport};
use rustc_hash::FxHashMap;

use crate::events::OutEvent;
use crate::proto::{CloseCode, Message, Outbound, Session};
use crate::state::{
    Buffer, Command, ConnShared, ContextInner, InboundShared, ListenerShared, Role, SubShared, WorkerShared,
};
use crate::types::{Nanos, Position, WireId};

use following::Follows;
use idle::Idle;
use inline::Pauses;

/// One worker's state. Public only for the simulator, which drives it by hand.
#[doc(hidden)]
pub struct Core<T: Transport> {
    inner: Arc<ContextInner>,
    shared: Arc<WorkerShared>,
    transport: T,
    links: FxHashMap<ConnId, Link>,
    by_number: FxHashMap<u64, ConnId>,
    listeners: Vec<(u64, String, Weak<ListenerShared>)>,
    slots: FxHashMap<u32, SlotUse>,
    /// Connections that have something to send this turn, in the order in which they came.
    dirty: VecDeque<ConnId>,
    /// Subscriptions without a connection, and when their writers count as gone. Weak: another worker may go on with one,
    /// and let go of it.
    suspended: Vec<(Weak<InboundShared>, Nanos)>,
    idle: Idle,
    next_tick: Nanos,
    /// A subscription had news since the last tick, or holds others.
    stirring: bool,
    events: Vec<Event>,
    now: Nanos,
    /// When there was last something to do.
    busy_at: Nanos,
    /// When those who follow are told of what they were not, and who that is.
    tell_at: Nanos,
    untold: Vec<(ConnId, WireId)>,
    stop_at: Option<Nanos>,
    stopped: bool,
}

/// What is done when a slot is pending.
#[derive(Default)]
struct SlotUse {
    outs: Vec<(ConnId, WireId)>,
    inbound: Option<Arc<InboundShared>>,
}

/// One connection. What its peer chose the ids of has a hash that it cannot aim at.
struct Link {
    shared: Arc<ConnShared>,
    session: Session,
    role: Option<Role>,
    /// The hello to send when it is up (the end that connects), or the listener it came from.
    hello: Vec<u8>,
    listener: Option<Weak<ListenerShared>>,
    phase: LinkPhase,
    /// Chosen of those that both ends speak.
    version: u16,
    outs: HashMap<WireId, OutSub>,
    /// Subscriptions of the peer that wait for their buffer's log.
    parked: HashMap<WireId, Weak<Buffer>>,
    ins: FxHashMap<WireId, InSub>,
    next_wire: WireId,
    /// Subscriptions with something to send, taking turns.
    ready: VecDeque<WireId>,
    dirty: bool,
    /// Between the times when what was to be sent was given to the transport.
    pauses: Pauses,
    /// What waits until the connection is up.
    early: Vec<Command>,
    /// What came together with WELCOME, before the application gave the connection a role. One read of the transport.
    unheard: Vec<Message>,
    /// Control messages of the application that wait until the peer reads, with what each counts in the limit.
    app: VecDeque<(Vec<u8>, usize)>,
    /// Bytes of such messages that were queued since the last flush.
    app_unflushed: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LinkPhase {
    Connecting,
    /// Accepted; its HELLO has not come.
    Fresh,
    /// The application has not given it a role yet; nothing is read.
    Offered,
    /// HELLO was sent; WELCOME has not come.
    Greeting,
    Up,
    Closing,
}

/// A subscription of the peer to one of our buffers.
struct OutSub {
    buffer: Arc<Buffer>,
    outbound: Outbound,
    sub: Arc<SubShared>,
    hold_ms: u32,
    queued: bool,
    /// On a transport that does not promise order: a range is under way.
    in_flight: bool,
    others_wait: bool,
    follows: Follows,
}

/// A subscription of ours.
struct InSub {
    inbound: Arc<InboundShared>,
    answered: bool,
    /// Where it went on, if it was not begun over this connection.
    resumed_at: Option<Position>,
    /// It goes on in other memory than it had.
    moves: bool,
    /// The sender's ring, to be mapped, if it came before the answer.
    offered: Option<Offered>,
    /// UNSUBSCRIBE was sent; what still comes lands in a ring that nobody reads.
    leaving: bool,
}

impl<T: Transport> Core<T> {
    pub(crate) fn new(inner: Arc<ContextInner>, shared: Arc<WorkerShared>, transport: T) -> Self {
        let idle = Idle::new(&inner.config, shared.index, inner.workers.len());
        Self {
            inner,
            shared,
            transport,
            links: FxHashMap::default(),
            by_number: FxHashMap::default(),
            listeners: Vec::new(),
            slots: FxHashMap::default(),
            dirty: VecDeque::new(),
            suspended: Vec::new(),
            idle,
            next_tick: 0,
            stirring: false,
            events: Vec::new(),
            now: 0,
            busy_at: 0,
            tell_at: Nanos::MAX,
            untold: Vec::new(),
            stop_at: None,
            stopped: false,
        }
    }

    /// The transport, for the simulator's faults.
    pub fn transport_mut(&mut self) -> &mut T {
        &mut self.transport
    }

    /// A turn that waits until there is something to do. False when the worker is done.
    pub(crate) fn run_once(&mut self, clock: &dyn Fn() -> Nanos) -> bool {
        let timeout = if self.dirty.is_empty() {
            self.shared.token.waker().prepare();
            let until_tick = Duration::from_nanos(self.next_tick().saturating_sub(clock()));
            if self.shared.has_work() { Duration::ZERO } else { until_tick }
        } else {
            Duration::ZERO
        };
        let mut events = std::mem::take(&mut self.events);
        self.transport.poll(Some(timeout), &mut events);
        self.shared.token.waker().woken();
        self.take_turn(clock(), &mut events);
        self.events = events;
        !self.stopped
    }

    /// One turn that waits for nothing, at time `now`. True if anything happened or is left to do.
    pub fn turn(&mut self, now: Nanos) -> bool {
        let mut events = std::mem::take(&mut self.events);
        self.transport.poll(Some(Duration::ZERO), &mut events);
        let came = !events.is_empty() || self.shared.looks.take_took();
        let busy = came || self.shared.has_work() || !self.dirty.is_empty();
        if busy {
            self.busy_at = now;
        }
        self.take_turn(now, &mut events);
        self.events = events;
        self.shared.looks.allow(now, self.has_something_to_look_at(now));
        busy
    }

    /// When time alone gives it something to do.
    pub fn next_tick(&self) -> Nanos {
        self.next_tick.min(self.idle.due()).min(self.tell_at)
    }

    fn take_turn(&mut self, now: Nanos, events: &mut Vec<Event>) {
        self.now = now;
        for event in events.drain(..) {
            self.on_event(event);
        }
        for command in self.shared.take_mail() {
            self.on_command(command);
        }
        if now >= self.tell_at {
            self.tell_all();
        }
        self.take_news();
        self.pump_all();
        if now >= self.next_tick {
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
                self.on_arrived(conn, wire);
            }
            // Its ring was looked at: that says nothing about whether the peer is there.
            Event::Followed(conn, wire) => self.on_followed(conn, wire),
            Event::Watched(conn, wire, number, doorbell) => {
                self.heard(conn);
                self.on_watched(conn, wire, number, doorbell);
            }
            Event::Unwatched(conn, wire, number) => self.on_unwatched(conn, wire, number),
            Event::Control(conn, bytes) => {
                self.heard(conn);
                self.on_control(conn, &bytes);
            }
            Event::Offered(conn, wire, offered) => {
                self.heard(conn);
                self.on_offered(conn, wire, offered);
            }
            Event::Landed(conn, wire, position) => {
                self.heard(conn);
                self.on_landed(conn, wire, position);
            }
            #[cfg(feature = "planted-bugs")]
            Event::Writable(_) if crate::planted::is(crate::planted::WRITABLE_IGNORED) => {}
            Event::Writable(conn) => self.make_dirty(conn),
            Event::Down(conn, why) => self.on_down(conn, &why),
        }
    }

    fn on_command(&mut self, command: Command) {
        match command {
            Command::Listen { listener, addr, reply } => self.listen(listener, &addr, &reply),
            Command::Unlisten { listener } => self.unlisten(listener),
            Command::Connect { conn, addr, hello } => self.connect(conn, &addr, hello),
            Command::Adopt { conn, accepted, listener } => self.adopt(conn, accepted, listener),
            Command::Attach { conn, role } => self.attach(conn, role),
            Command::Close { conn, code, why } => self.close_number(conn, code, &why),
            Command::Control { conn, message, cost } => self.send_app(conn, message, cost),
            Command::Subscribe { conn, inbound } => self.subscribe(conn, inbound),
            Command::Unsubscribe { conn, inbound } => self.unsubscribe(conn, inbound),
            Command::Backlog(rin) => {
                rin.run_event_backlog();
                rin.run_control_backlog();
            }
            Command::OutBacklog(out) => out.run_control_backlog(self.shared.index),
            Command::Unpark(parked) => self.unpark(parked),
            Command::PassWatchers(inbound) => self.pass_watchers(&inbound),
            Command::DataOut(buffer) => Self::data_out(&buffer),
            Command::Reap(buffer) => {
                if let Some(out) = buffer.out.upgrade() {
                    out.reap(&buffer);
                }
            }
            Command::Progress(buffer) => {
                if let Some(out) = buffer.out.upgrade() {
                    out.tell(OutEvent::Progress { bid: buffer.bid });
                }
            }
            Command::Roused(roused) => self.idle.roused(roused, self.now),
            Command::LookAt(at) => self.next_tick = self.next_tick.min(at),
            Command::Shutdown { grace } => self.shutdown(grace),
        }
    }

    /// Buffers and subscriptions that others said have news.
    fn take_news(&mut self) {
        let shared = self.shared.clone();
        shared.pending.drain(|slot| self.on_slot(slot));
    }

    fn on_slot(&mut self, slot: u32) {
        let Some(used) = self.slots.get(&slot) else { return };
        if let Some(inbound) = used.inbound.clone() {
            self.idle.on_pending(&inbound, self.now);
            if let (true, Some(rin)) = (inbound.is_spliced(), inbound.rin.upgrade()) {
                // What came before it was spliced is held for an application that is not told of it any more.
                rin.on_news(&inbound);
            }
            self.give_credit(&inbound);
        }
        let Some(used) = self.slots.get(&slot) else { return };
        for (conn, wire) in used.outs.clone() {
            self.wake_out(conn, wire);
        }
        self.suppress_notify(slot);
    }

    /// Tells the contexts of deliveries that have landed everywhere.
    fn data_out(buffer: &Buffer) {
        if let Some(out) = buffer.out.upgrade() {
            out.run_data_out(buffer);
        }
    }

    fn heard(&mut self, conn: ConnId) {
        if let Some(link) = self.links.get_mut(&conn) {
            link.session.heard(self.now);
        }
    }

    /// Queues a control message and has the connection flushed at the end of the turn.
    fn send(&mut self, conn: ConnId, message: &Message) {
        self.send_bytes(conn, &message.encode());
    }

    fn send_bytes(&mut self, conn: ConnId, bytes: &[u8]) {
        let Some(link) = self.links.get_mut(&conn) else { return };
        link.session.spoke(self.now);
        // Thousands of subscriptions are answered in one turn: only a queue that the peer does not read is full.
        let full = self.transport.control(conn, bytes).is_err() && {
            self.transport.flush(conn);
            self.transport.control(conn, bytes).is_err()
        };
        if full {
            self.transport.close(conn, "it reads no control messages", Duration::ZERO);
            return;
        }
        self.make_dirty(conn);
    }

    fn make_dirty(&mut self, conn: ConnId) {
        if let Some(link) = self.links.get_mut(&conn)
            && !link.dirty
        {
            link.dirty = true;
            self.dirty.push_back(conn);
        }
    }

    fn shutdown(&mut self, grace: Duration) {
        let connections: Vec<_> = self.links.keys().copied().collect();
        for conn in connections {
            self.close(conn, CloseCode::ShuttingDown, "shutting down");
        }
        let grace_ns = Nanos::try_from(grace.as_nanos()).unwrap_or(Nanos::MAX);
        self.stop_at = Some(self.now.saturating_add(grace_ns));
        if self.links.is_empty() || grace.is_zero() {
            self.stopped = true;
        }
        self.next_tick = self.now;
    }
}

impl<T: Transport> Drop for Core<T> {
    fn drop(&mut self) {
        // What the connections hold says goodbye to the worker when it is dropped, which must not keep it.
        self.links.clear();
        self.suspended.clear();
        self.slots.clear();
        self.shared.close();
    }
}
