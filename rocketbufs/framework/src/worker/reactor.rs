//! A worker: its work when something arrives, is written, or time passes.
//!
//! A [`Reactor`] owns a transport and its connections. [`Reactor::turn`] drives it: handle the transport's
//! events, the application's commands and the news of buffers; then give every connection with something to
//! send its turns; then flush. The reactor never waits for a lock that is held across I/O, and reads no
//! clock.

use std::sync::{Arc, Weak};
use std::time::Duration;

use rocketnet::{ConnId, Event, Transport};
use rustc_hash::FxHashMap;

use super::connection::{Connection, Link};
use super::in_effects::IncomingSubscription;
use super::out_effects::OutgoingEntry;
use super::reactor_action::{Outcome, ReactorAction};
use super::worker_context::{SlotUse, SubscriptionKey, WorkerContext};
use crate::ground::planted;
use crate::ground::types::{Nanos, WireId};
use crate::proto::CloseCode;
use crate::state::{Command, ContextShared, ListenerShared, ROutShared, Request, Worker};

/// The state of one worker. Public only for the simulator, which drives it by hand.
#[doc(hidden)]
pub struct Reactor<T: Transport> {
    pub(super) io: WorkerContext<T>,
    pub(super) links: FxHashMap<ConnId, Link>,
    pub(super) by_number: FxHashMap<u64, ConnId>,
    pub(super) listeners: Vec<(u64, String, Weak<ListenerShared>)>,
    pub(super) events: Vec<Event>,
    pub(super) stop_at: Option<Nanos>,
    pub(super) stopped: bool,
}

impl<T: Transport> Reactor<T> {
    pub(crate) fn new(context: Arc<ContextShared>, shared: Arc<Worker>, transport: T) -> Self {
        Self {
            io: WorkerContext::new(context, shared, transport),
            links: FxHashMap::default(),
            by_number: FxHashMap::default(),
            listeners: Vec::new(),
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
        let came = !events.is_empty() || self.io.shared.busy_polls.take_was_busy();
        let busy = came || self.io.shared.has_work() || !self.io.dirty.is_empty();
        if busy {
            self.io.busy_at = now;
        }
        self.take_turn(now, &mut events);
        self.events = events;
        self.io.shared.busy_polls.allow(now, self.is_worth_polling(now));
        busy
    }

    /// Returns when time alone next causes work.
    pub fn next_tick(&self) -> Nanos {
        self.io.next_tick.min(self.io.idle.due()).min(self.io.deferred.due)
    }

    /// Returns when the next delay by a rate limit ends, for the simulator, which has runs without other timers.
    pub fn next_delay_end(&self) -> Option<Nanos> {
        self.io.deferred.next_delay_end()
    }

    fn take_turn(&mut self, now: Nanos, events: &mut Vec<Event>) {
        self.io.now = now;
        for event in events.drain(..) {
            self.on_event(event);
        }
        for command in self.io.shared.take_mail() {
            self.on_command(command);
        }
        if now >= self.io.deferred.due {
            self.take_deferred();
        }
        self.take_news();
        self.pump_all();
        if now >= self.io.next_tick {
            self.tick();
        }
        if now >= self.io.idle.due() {
            self.sweep();
        }
    }

    /// Executes work that was deferred until now.
    fn take_deferred(&mut self) {
        for SubscriptionKey { conn, wire } in self.io.deferred.take_reports(self.io.now) {
            self.at(conn, |connection| connection.report(wire));
        }
        while let Some(conn) = self.io.deferred.take_delayed(self.io.now) {
            self.at(conn, |connection| {
                connection.on_delay_over();
                Ok(())
            });
        }
    }

    fn on_event(&mut self, event: Event) {
        match event {
            Event::Incoming(accepted) => self.on_incoming(accepted),
            Event::Down(conn, why) => self.on_down(conn, &why),
            Event::Writable(_) if planted::is(planted::WRITABLE_IGNORED) => {}
            Event::Connected(conn)
            | Event::Arrived(conn, _)
            | Event::Followed(conn, _)
            | Event::Watched(conn, ..)
            | Event::Unwatched(conn, ..)
            | Event::Control(conn, _)
            | Event::Offered(conn, ..)
            | Event::Landed(conn, ..)
            | Event::Writable(conn) => self.at(conn, |connection| connection.on_event(event)),
        }
    }

    pub(super) fn on_command(&mut self, command: Command) {
        match command {
            // A connection that begins now would not be closed any more, and a call would wait for it.
            Command::Connect { .. } | Command::Adopt { .. } if self.stop_at.is_some() => command.refuse(),
            Command::Listen { listener, addr, locally, reply } => {
                self.listen(listener, &addr, locally, &reply)
            }
            Command::Unlisten { listener } => self.unlisten(listener),
            Command::Connect { conn, addr, found, hello } => self.connect(conn, &addr, found, hello),
            Command::Adopt { conn, accepted, listener } => self.adopt(conn, accepted, listener),
            Command::Attach { conn, role } => self.attach(conn, role),
            Command::Subscribe { conn, subscription } => match self.numbered(conn) {
                Some(mut connection) => connection.subscribe(subscription),
                None => {
                    subscription.asked_at.get_or_init(|| self.io.now);
                    self.io.begin_linger(&subscription);
                }
            },
            Command::Unsubscribe { conn, subscription } => {
                let wire = subscription.end(conn);
                self.io.lingering.forget(&subscription);
                self.io.idle.forget(&subscription.idle_state);
                if let Some(wire) = wire {
                    self.leave(conn, wire);
                }
            }
            Command::Trim(buffer) => self.io.idle.trim(buffer),
            Command::Review(out) => self.review(&out),
            Command::Request(request) => self.on_request(request),
        }
    }

    fn on_request(&mut self, request: Request) {
        match request {
            Request::Close { conn, code, why } => {
                self.at_number(conn, |_| Err(ReactorAction::Close(code, why)))
            }
            Request::Control { conn, message, cost } => self.at_number(conn, |connection| {
                connection.send_app(message, cost);
                Ok(())
            }),
            Request::SetRateLimits { conn, limits } => self.at_number(conn, |connection| {
                connection.set_rate_limits(limits);
                Ok(())
            }),
            Request::Leave { conn, wire } => self.leave(conn, wire),
            Request::Resume { conn, bid } => self.at_number(conn, |connection| {
                connection.resume(bid);
                Ok(())
            }),
            // Without a connection, the watchers are passed on at the resume.
            Request::PassWatchers { slot } => {
                self.with(slot, |incoming| incoming.pass_watchers());
            }
            Request::Unpark(parked) => self.at_number(parked.conn, |connection| connection.unpark(parked)),
            Request::Activated(activated) => self.io.idle.activated(activated, self.io.now),
            // The writers are asked to wake this worker before it sleeps, as after each turn.
            Request::Unattend => {
                self.io.transport.attend(0);
            }
            Request::Run(job) => job(),
            Request::LookAt(at) => self.io.next_tick = self.io.next_tick.min(at),
            Request::Shutdown { grace } => self.shutdown(grace),
        }
    }

    /// Ends the subscriptions that the application does not allow any more.
    fn review(&mut self, out: &Arc<ROutShared>) {
        let connections: Vec<_> = self.links.keys().copied().collect();
        for conn in connections {
            self.at(conn, |connection| {
                connection.review(out);
                Ok(())
            });
        }
    }

    fn leave(&mut self, number: u64, wire: WireId) {
        if let Some(mut connection) = self.numbered(number)
            && let Some(mut incoming) = connection.incoming(wire)
        {
            incoming.leave();
        }
    }

    /// Handles the news of buffers and subscriptions that other threads marked.
    pub(super) fn take_news(&mut self) {
        let shared = self.io.shared.clone();
        shared.pending.drain(|slot| self.on_slot(slot));
    }

    fn on_slot(&mut self, slot: u32) {
        match self.io.slots.get(slot) {
            None => {}
            Some(&SlotUse::In(SubscriptionKey { conn, wire })) => {
                if let Some(mut connection) = self.connection(conn)
                    && let Some(mut incoming) = connection.incoming(wire)
                {
                    incoming.on_pending();
                }
            }
            Some(SlotUse::Outs(outs)) => {
                match outs[..] {
                    [SubscriptionKey { conn, wire }] => self.at(conn, |connection| connection.wake_out(wire)),
                    _ => {
                        for SubscriptionKey { conn, wire } in outs.clone() {
                            self.at(conn, |connection| connection.wake_out(wire));
                        }
                    }
                }
                self.suppress_notify(slot);
            }
        }
    }

    /// Suppresses marks for a buffer whose subscribers all follow: no delivery needs this worker until the
    /// next report.
    pub(super) fn suppress_notify(&mut self, slot: u32) {
        let outs = self.io.slots.outs(slot);
        let out = |SubscriptionKey { conn, wire }: &SubscriptionKey| {
            self.links.get(conn).and_then(|link| link.outs.get(wire))
        };
        let Some(first) = outs.first().and_then(out).filter(|out| out.machine.is_unreported()) else {
            return;
        };
        let steps = outs.iter().map(|at| out(at).and_then(OutgoingEntry::unreported_to));
        let Some(least) = steps.min().flatten() else { return };
        first.buffer.suppress_notify(least, outs.len());
    }

    /// Returns a connection, with everything that executing its effects needs.
    pub(super) fn connection(&mut self, conn: ConnId) -> Option<Connection<'_, T>> {
        Connection::find(&mut self.io, &mut self.links, conn)
    }

    /// Handles an event of a connection.
    pub(super) fn at(&mut self, conn: ConnId, handle: impl FnOnce(&mut Connection<'_, T>) -> Outcome) {
        if let Some(mut connection) = self.connection(conn)
            && let Err(action) = handle(&mut connection)
        {
            self.execute(conn, action);
        }
    }

    /// Executes effects of the subscription of this end with this slot, if one of the connections carries it.
    pub(super) fn with<R>(
        &mut self,
        slot: u32,
        execute: impl FnOnce(&mut IncomingSubscription<'_, T>) -> R,
    ) -> Option<R> {
        let Some(&SlotUse::In(SubscriptionKey { conn, wire })) = self.io.slots.get(slot) else { return None };
        let mut connection = self.connection(conn)?;
        let mut incoming = connection.incoming(wire)?;
        Some(execute(&mut incoming))
    }

    /// Gives every connection that has something to send its turns.
    pub(super) fn pump_all(&mut self) {
        for _ in 0..self.io.dirty.len() {
            let Some(conn) = self.io.dirty.pop_front() else { break };
            self.at(conn, |connection| connection.pump());
        }
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
        self.io.shared.close();
        self.io.context.worker_ended();
    }
}
