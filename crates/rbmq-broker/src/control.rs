//! The broker's own thread: it alone owns the tables, and does what the callbacks ask for, one thing after the other.

use std::collections::{BTreeSet, HashMap};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use rbmq_wire::{Control, Hello, Role, TopicStats};
use rocketbufs::{Bid, Conn, InEvent, OutEvent, ROut};
use tracing::{debug, info, warn};

use super::away::Away;
use super::chain::{Chain, Hop};
use super::config::BrokerSettings;
use super::counts::Counts;
use super::inbox::{Inbox, Message, Sender};
use super::ledger::{Census, Ledger, Refusal};
use super::merge::{Merges, Wakers};
use super::moves::Moves;
use super::observers::{ObserverEvent, Observers};
use super::session::{Session, SessionKey, display_name};
use super::topics::{Stage, Topics};
use super::watchers::{TRY_AGAIN, Watcher};

/// What happened.
pub(super) enum Event {
    /// Somebody connected; its hello is readable.
    Connection(Conn),
    /// A connection to another broker is up.
    UpstreamUp { index: usize, conn: Conn },
    /// A publisher's control message.
    PublisherControl { key: SessionKey, message: Message },
    /// A subscriber's control message.
    SubscriberControl { conn: Conn, message: Message },
    /// The rIn of a publisher reports.
    Publisher { key: SessionKey, event: InEvent },
    /// The rOut reports.
    Out(OutEvent),
    /// Data came for an id that has no topic.
    InvalidMapping { key: SessionKey, bid: Bid },
    /// Everything of a publisher of a merged topic was moved, and nothing more comes.
    Moved { out_bid: Bid, number: u32, position: u64 },
    /// A publisher is to be disconnected.
    Expel { key: SessionKey, why: &'static str },
    /// An observer asks, or is gone.
    Observer(ObserverEvent),
    /// Somebody wants the table of topics.
    Stats(mpsc::SyncSender<Vec<TopicStats>>),
    /// Somebody wants to know whether this thread answers.
    Alive(mpsc::SyncSender<()>),
    /// Somebody wants to know everything; at most so many topics by name.
    Census { max_own: usize, reply: mpsc::SyncSender<Census> },
    /// Take no more from publishers: the broker is about to end.
    Drain(mpsc::SyncSender<()>),
    /// Other limits and times, from now on.
    Reload(Box<BrokerSettings>),
    /// End the thread.
    Stop,
}

/// The broker's state.
pub(super) struct Broker {
    pub(super) out: ROut,
    pub(super) settings: BrokerSettings,
    pub(super) topics: Topics,
    pub(super) sessions: HashMap<SessionKey, Session>,
    /// How many of them are done: those count no more.
    pub(super) done: usize,
    pub(super) watchers: HashMap<u64, Watcher>,
    /// Subscribers that have more to be told than fits into their connections' queues.
    pub(super) behind: BTreeSet<u64>,
    pub(super) away: Away,
    /// What publishers were not told yet.
    pub(super) counts: Counts,
    pub(super) observers: Observers,
    pub(super) merges: Merges,
    pub(super) wakers: Wakers,
    pub(super) events: Sender,
    pub(super) chain: Chain,
    pub(super) moves: Moves,
    pub(super) draining: bool,
    pub(super) ledger: Ledger,
}

impl Broker {
    /// Works until told to stop.
    pub(super) fn run(mut self, inbox: &Inbox) {
        loop {
            let due = [
                self.topics.next_expiry(),
                self.merges.next_due(),
                self.counts.next_due(),
                self.away.next_due(),
                self.moves.next_due(),
            ];
            let due = due.into_iter().flatten().min();
            let due = due.map(|at| at.saturating_duration_since(Instant::now()));
            let again = (!self.behind.is_empty()).then_some(TRY_AGAIN);
            let wait = due.into_iter().chain(again).min();
            match inbox.events.recv_timeout(wait.unwrap_or(Duration::from_secs(3600))) {
                Ok(Event::Stop) | Err(RecvTimeoutError::Disconnected) => return self.close_merges(),
                Ok(event) => self.handle(event),
                Err(RecvTimeoutError::Timeout) => {}
            }
            self.tell_those_behind();
            for bid in self.topics.expired(Instant::now()) {
                self.remove_buffer(bid);
            }
            self.away.expire(Instant::now());
            self.look_at_moves(Instant::now());
            self.merged_due(Instant::now());
            self.tell_counts(Instant::now());
        }
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Connection(conn) => self.on_conn(conn),
            Event::UpstreamUp { index, conn } => self.on_upstream_up(index, conn),
            Event::PublisherControl { key, message } => self.on_publisher_control(key, &message),
            Event::SubscriberControl { conn, message } => self.on_subscriber_control(&conn, &message),
            Event::Publisher { key, event } => self.on_publisher_event(key, event),
            Event::Out(event) => {
                self.note_move(&event);
                self.on_out_event(event);
            }
            Event::InvalidMapping { key, bid } => {
                self.expel(key, &format!("data for buffer {bid}, which was not created for any topic"));
            }
            Event::Moved { out_bid, number, position } => self.on_moved(out_bid, number, position),
            Event::Expel { key, why } => self.expel(key, why),
            Event::Observer(event) => self.on_observer(event),
            Event::Stats(reply) => {
                // Whoever asked may have given up.
                let _ = reply.try_send(self.stats());
            }
            Event::Alive(reply) => drop(reply.try_send(())),
            Event::Census { max_own, reply } => {
                let _ = reply.try_send(self.census(max_own));
            }
            Event::Drain(reply) => {
                self.drain();
                let _ = reply.try_send(());
            }
            Event::Reload(settings) => self.settings = *settings,
            Event::Stop => {}
        }
    }

    /// A new connection (paper 1, Listing 3: `on_conn`).
    fn on_conn(&mut self, conn: Conn) {
        let hello = match Hello::decode(&conn.peer_hello()) {
            Ok(hello) => hello,
            Err(error) => {
                info!("refused {}: {error}", conn.peer_addr());
                self.ledger.refused(Refusal::Hello);
                return conn.reject(&error.to_string());
            }
        };
        if self.draining {
            self.ledger.refused(Refusal::Draining);
            return conn.reject("the broker is shutting down");
        }
        match hello.role {
            Role::Publisher => self.on_publisher(conn, hello),
            Role::Subscriber => self.on_watcher(conn, hello, None),
            Role::Broker => {
                let hop = self.chain.hop_to(hello.client);
                self.on_watcher(conn, hello, Some(hop));
            }
            Role::Observer => self.on_observer_conn(&conn, hello),
        }
    }

    /// Somebody who wants to receive.
    fn on_watcher(&mut self, conn: Conn, hello: Hello, hop: Option<Hop>) {
        self.chain.peers += usize::from(hop.is_some());
        let what = if hop.is_some() { "broker" } else { "subscriber" };
        info!("{what} {} at {} is up", display_name(&hello.name), conn.peer_addr());
        self.ledger.counts.subscribers += 1;
        self.watchers.insert(conn.id(), Watcher::new(conn.clone(), hello.name, hop));
        self.out.add_conn(&conn);
    }

    fn on_publisher(&mut self, conn: Conn, hello: Hello) {
        let key = SessionKey { instance: conn.peer_instance(), client: hello.client };
        if key == SessionKey::BROKER {
            return conn.reject("a publisher without a number of its own");
        }
        let (open, max) = (self.sessions.len() - self.done, self.settings.max_publishers);
        // One that is only away has its place.
        if open >= max && self.sessions.get(&key).is_none_or(|session| session.done) {
            let why = format!("the broker has {open} publishers; its limit (broker.max_publishers) is {max}");
            self.ledger.refused(Refusal::Publishers);
            warn!("refused publisher at {}: {why}", conn.peer_addr());
            return conn.reject(&why);
        }
        if let Some(session) = self.sessions.get_mut(&key) {
            session.resume(conn);
            info!("{session} is back");
            self.merged_back(key);
            return self.note_done(key);
        }
        let session = Session::new(key, conn, (hello.name, None), &self.events);
        info!("{session} is up");
        self.ledger.counts.publishers += 1;
        self.sessions.insert(key, session);
    }

    fn on_out_event(&mut self, event: OutEvent) {
        match event {
            OutEvent::Subscribed { conn, bid, name, start, .. } => {
                if let Some(watcher) = self.watchers.get_mut(&conn) {
                    watcher.untaken.remove(&bid);
                }
                debug!("buffer {bid}: subscribed by {} from {start}", display_name(&text(&name)));
                self.tell_subscribers(bid);
            }
            OutEvent::Unsubscribed { bid, name, why, .. } => {
                debug!("buffer {bid}: subscription {} ended: {why}", display_name(&text(&name)));
                self.tell_subscribers(bid);
            }
            OutEvent::Dropped { bid, from, to, policy, .. } => {
                self.ledger.lost(policy, to.saturating_sub(from));
                warn!(
                    "buffer {bid}: a slow subscriber lost {} bytes ({from} to {to})",
                    to.saturating_sub(from)
                );
            }
            OutEvent::TooSlow { policy, .. } => self.ledger.too_slow(policy),
            OutEvent::ConnDown { conn, why } => {
                let watcher = self.watchers.remove(&conn);
                if let Some(watcher) = &watcher {
                    self.keep_away(conn, watcher);
                }
                self.topics.forget(conn);
                if let Some(watcher) = watcher {
                    if watcher.hop.is_some() {
                        self.chain.peers -= 1;
                        self.topics.forget_broker(conn);
                    }
                    let (name, addr) = (display_name(&watcher.name), watcher.conn.peer_addr());
                    info!("subscriber {name} at {addr} is down: {why}");
                }
            }
            OutEvent::Ended { bid } => debug!("buffer {bid}: every subscriber has all of it"),
            _ => {}
        }
    }

    /// Disconnects a publisher, with the reason.
    pub(super) fn expel(&mut self, key: SessionKey, why: &str) {
        self.ledger.refused(Refusal::Expelled);
        if let Some(session) = self.sessions.get(&key) {
            warn!("{session} is disconnected: {why}");
            session.conn.close(why);
        }
    }

    /// Tells a buffer's publisher how many subscribers it has, if that changed.
    pub(super) fn tell_subscribers(&mut self, bid: Bid) {
        let count = self.count_subscribers(bid);
        let Some(buffer) = self.topics.get_mut(bid) else { return };
        if buffer.stage != Stage::Live || buffer.told_subscribers == count {
            return;
        }
        buffer.told_subscribers = count;
        self.tell_merged_subscribers(bid, count);
        self.tell_subscribers_again(bid);
    }

    /// Tells a buffer's publisher what it was told last: it has another connection, or is told for the first time.
    pub(super) fn tell_subscribers_again(&mut self, bid: Bid) {
        let Some(buffer) = self.topics.get(bid) else { return };
        let (key, in_bid, count) = (buffer.session, buffer.in_bid, buffer.told_subscribers);
        self.tell_count(key, in_bid, count);
    }

    fn drain(&mut self) {
        self.draining = true;
        self.chain.stop();
        for session in self.sessions.values() {
            session.conn.close("the broker is shutting down");
        }
    }

    fn census(&mut self, max_own: usize) -> Census {
        let (topics, others_past) = self.ledger.topics(&self.topics, max_own);
        let down = self.sessions.values().filter(|s| s.conn.down_reason().is_some()).count();
        let publishers_away = down.saturating_sub(self.done);
        let limit = |name, limit: usize| (name, limit as u64);
        Census {
            topics,
            others_past,
            counts: self.ledger.counts,
            publishers: self.sessions.len() - down,
            publishers_away,
            subscribers: self.watchers.len(),
            limits: [
                limit("broker.max_topics", self.settings.max_topics),
                limit("broker.max_publishers", self.settings.max_publishers),
            ],
        }
    }

    fn stats(&self) -> Vec<TopicStats> {
        self.topics.after(None).map(|(topic, bids)| self.topic_stats(topic, bids).0).collect()
    }
}

/// Sends a control message; a peer that reads so slowly that none fits any more is disconnected.
pub(super) fn send(conn: &Conn, message: &Control) {
    send_bytes(conn, &message.encode());
}

/// The same of a message that is encoded already.
pub(super) fn send_bytes(conn: &Conn, message: &[u8]) {
    use rocketbufs::ControlError;
    match conn.send_control(message) {
        // A connection that is down has its own event.
        Ok(()) | Err(ControlError::Down) => {}
        Err(error) => conn.close(&error.to_string()),
    }
}

fn text(name: &[u8]) -> String {
    String::from_utf8_lossy(name).into_owned()
}
