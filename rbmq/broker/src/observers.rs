//! Observers (`rbmq top`): their connections and requests.
//!
//! Observers have an rOut without buffers, so an observer cannot subscribe to anything, and the data path doesn't know of
//! observers. Each request has one answer of at most one message. The broker's thread makes the answer from a bounded part of its
//! tables (`report.rs`): an observer that wants all of 10,000 topics asks some fifty times, and other events are handled in
//! between. The number of observers and the waiting requests of each are limited. An observer that asks for more, or reads its
//! answers too slowly, is disconnected.

use std::collections::{BTreeMap, HashMap};
use std::ops::Bound;
use std::sync::Arc;
use std::time::{Duration, Instant};

use locks::{Mutex, MutexGuard};
use rbmq_wire::{GatewayStats, Hello};
use rocketbufs::{Conn, Context, OutEvent, ROut};
use tracing::{info, warn};

use super::config::BrokerSettings;
use super::counters::{Counters, Refusal};
use super::gate::AllGatewayCounters;
use super::inbox::{Event, ObserverEvent, Sender};
use super::names::display_name;

/// The number of waiting requests of each observer.
#[derive(Clone, Default)]
struct WaitingRequests(Arc<Mutex<HashMap<u64, usize>>>);

impl WaitingRequests {
    fn lock(&self) -> MutexGuard<'_, HashMap<u64, usize>> {
        self.0.lock()
    }

    /// Counts a request. Returns false for the first request beyond the limit, and none for further requests and for
    /// disconnected observers.
    fn add(&self, conn: u64, max: usize) -> Option<bool> {
        let mut waiting = self.lock();
        let count = waiting.get_mut(&conn)?;
        *count += 1;
        let allowed = *count <= max;
        if !allowed {
            waiting.remove(&conn);
        }
        Some(allowed)
    }

    fn answered(&self, conn: u64) {
        if let Some(count) = self.lock().get_mut(&conn) {
            *count = count.saturating_sub(1);
        }
    }
}

/// The observers of a broker.
pub(super) struct Observers {
    out: ROut,
    /// The connected observers and their names, by connection.
    names: BTreeMap<u64, (Conn, String)>,
    waiting: WaitingRequests,
    /// What gateways count, for reports.
    gateways: AllGatewayCounters,
    started: Instant,
}

impl Observers {
    pub(super) fn new(
        ctx: &Context,
        events: &Sender,
        settings: &BrokerSettings,
        gateways: AllGatewayCounters,
    ) -> Self {
        let (out, waiting) = (ROut::new(ctx), WaitingRequests::default());
        let (requests, count, max) = (events.clone(), waiting.clone(), settings.max_observer_requests);
        out.set_control_msg_cb(move |conn, message| match count.add(conn.id(), max) {
            Some(true) => {
                let (conn, message) = (conn.clone(), message.to_vec());
                requests.event(Event::Observer(ObserverEvent::Request { conn, message }));
            }
            Some(false) => conn.close(&format!(
                "more than {max} requests at once (broker.max_observer_requests); wait for answers"
            )),
            None => {}
        });
        let ends = events.clone();
        out.set_event_cb(move |event| {
            if let OutEvent::ConnDown { conn, reason: why } = event {
                ends.event(Event::Observer(ObserverEvent::Down { conn, why: why.to_string() }));
            }
        });
        Self { out, names: BTreeMap::new(), waiting, gateways, started: Instant::now() }
    }

    /// The number of connected observers.
    pub(super) fn len(&self) -> usize {
        self.names.len()
    }

    /// The observers behind a connection and their names, by the numbers of their connections.
    pub(super) fn after(&self, conn: Option<u64>) -> impl Iterator<Item = (&Conn, &str)> {
        let begin = conn.map_or(Bound::Unbounded, Bound::Excluded);
        self.names.range((begin, Bound::Unbounded)).map(|(_, (conn, name))| (conn, name.as_str()))
    }

    /// The observer of a connection, and its name.
    pub(super) fn get(&self, conn: u64) -> Option<(&Conn, &str)> {
        self.names.get(&conn).map(|(conn, name)| (conn, name.as_str()))
    }

    /// The time since the start of the broker.
    pub(super) fn uptime(&self) -> Duration {
        self.started.elapsed()
    }

    /// The gateways of the broker.
    pub(super) fn gateways(&self) -> impl Iterator<Item = GatewayStats> {
        self.gateways.all().into_iter().map(|gateway| gateway.stats())
    }

    /// An observer connects. Returns whether it is accepted.
    pub(super) fn connected(
        &mut self,
        settings: &BrokerSettings,
        counters: &mut Counters,
        conn: &Conn,
        hello: Hello,
    ) -> bool {
        let (open, max) = (self.len(), settings.max_observers);
        if open >= max {
            counters.refused(Refusal::Observers);
            let why = format!("the broker has {open} observers; its limit (broker.max_observers) is {max}");
            warn!("refused observer at {}: {why}", conn.peer_addr());
            conn.reject(&why);
            return false;
        }
        info!("observer {} at {} is up", display_name(&hello.name), conn.peer_addr());
        self.names.insert(conn.id(), (conn.clone(), hello.name));
        self.waiting.lock().insert(conn.id(), 0);
        self.out.add_conn(conn);
        true
    }

    /// Whether a connection is that of an observer.
    pub(super) fn is_connected(&self, conn: &Conn) -> bool {
        self.names.contains_key(&conn.id())
    }

    /// Disconnects an observer, if the connection is one.
    pub(super) fn expel(&self, conn: u64, why: &str) {
        if let Some((conn, name)) = self.names.get(&conn) {
            warn!("observer {} is disconnected: {why}", display_name(name));
            conn.close(why);
        }
    }

    /// A request was answered.
    pub(super) fn answered(&self, conn: &Conn) {
        self.waiting.answered(conn.id());
    }

    /// An observer is disconnected.
    pub(super) fn disconnected(&mut self, conn: u64, why: &str) {
        self.waiting.lock().remove(&conn);
        if let Some((_, name)) = self.names.remove(&conn) {
            info!("observer {} is down: {why}", display_name(&name));
        }
    }
}
