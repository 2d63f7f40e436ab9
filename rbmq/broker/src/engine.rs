//! The engine: the broker's thread, which owns all parts and executes their effects.
//!
//! ```text
//!   callbacks ─▶ inbox ─▶ engine ─▶ publishers, subscribers, federation, path_migration, merge, observers
//!                           ▲                              │
//!                           └────────── effects ───────────┘
//! ```
//!
//! The engine handles one event after the other. The engine holds no lock when it calls the framework.

use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, SyncSender};
use std::time::{Duration, Instant};

use access::{Authenticator, Identity};
use rbmq_wire::{Control, Credentials, GroupMessage, Hello, RefuseCode, ReplayFrom, Role, Space, TopicName};
use rocketbufs::{Bid, Conn, Epoch, InEvent, OutEvent, Position};
use tracing::{debug, info, warn};

use super::admission::{MAX_NEAR_LIMIT, not_allowed};
use super::config::UsersSettings;
use super::counters::{Census, Refusal};
use super::effects::{Effect, Effects};
use super::federation::{Federation, set_continues};
use super::feed::{Feed, FeedError, FeedOptions};
use super::feeds::Feeds;
use super::former;
use super::groups::Groups;
use super::inbox::{Event, Inbox, Message, ObserverEvent, Stopped};
use super::kept::{KeepError, ReplayRequest, Replays, Taken, Wanted};
use super::limits::Refused;
use super::lines::Lines;
use super::login::{AcceptedClient, Logins};
use super::merge::{self, MergedTopics};
use super::names::display_name;
use super::observers::Observers;
use super::outgoing::RETRY_AFTER;
use super::path_migration::PathMigration;
use super::publishers;
use super::report::Report;
use super::rules::InSpace;
use super::session_key::{FormerPlace, SessionKey};
use super::subscribers::Subscribers;
use super::tables::{Create, Denial, LEFT_LINGER, Tables};
use super::topics::Stage;

/// The reason for connections that are closed or refused because the broker stops.
const STOPPING: &str = "the broker is shutting down";

/// All parts of a broker.
pub(super) struct Engine {
    pub(super) tables: Tables,
    pub(super) subscribers: Subscribers,
    pub(super) federation: Federation,
    pub(super) migration: PathMigration,
    pub(super) merged: MergedTopics,
    pub(super) replays: Replays,
    pub(super) groups: Groups,
    pub(super) feeds: Feeds,
    pub(super) observers: Observers,
    pub(super) logins: Logins,
    pub(super) lines: Lines,
    /// Told when the publishers know how far they are, of a broker that stops.
    pub(super) drained: Option<SyncSender<()>>,
}

impl Engine {
    /// Opens the topics that an earlier broker has kept, and the logs of spaces.
    pub(super) fn open_kept(&mut self) -> Result<(), KeepError> {
        let mut fx = Effects::new();
        let opened = self.merged.open_kept(&mut self.tables, &mut fx);
        if opened.is_ok() {
            self.merged.open_spaces(&mut self.tables, &mut fx);
        }
        self.execute(fx);
        opened
    }

    /// Handles events until the broker stops.
    pub(super) fn run(mut self, inbox: &Inbox) {
        loop {
            match inbox.events.recv_timeout(self.next_wait()) {
                Ok(Event::Stop) | Err(RecvTimeoutError::Disconnected) => {
                    return self.merged.close();
                }
                Ok(event) => {
                    if self.tables.traces.is_on() {
                        self.trace(&event);
                    }
                    self.handle(event);
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
            self.expire();
        }
    }

    /// The time until something is due.
    fn next_wait(&self) -> Duration {
        let due = [
            self.tables.topics.next_expiry(),
            self.tables.sessions.next_retry(),
            self.subscribers.next_expiry(),
            self.migration.next_check(),
            self.merged.next_due(),
            self.logins.next_due(),
            self.tables.traces.next_due(),
        ];
        let due = due.into_iter().flatten().min();
        let due = due.map(|at| at.saturating_duration_since(Instant::now()));
        let looks_soon = self.subscribers.is_waiting() || self.merged.is_closing();
        let retry = looks_soon.then_some(RETRY_AFTER);
        due.into_iter().chain(retry).min().unwrap_or(Duration::from_secs(3600))
    }

    /// Handles everything that is due.
    fn expire(&mut self) {
        self.subscribers.send_waiting(&self.tables);
        self.logins.expire(Instant::now(), &mut self.tables.counters);
        for bid in self.tables.topics.expired(Instant::now()) {
            self.remove_buffer(bid);
        }
        self.subscribers.expire(Instant::now());
        self.check_migrations();
        let mut fx = Effects::new();
        self.merged.expire(&self.tables, Instant::now(), &mut fx);
        self.execute(fx);
        let takes_room = self.merged.takes_room(&self.tables);
        if takes_room || self.merged.is_closing() {
            self.settle_shared();
        }
        if takes_room {
            self.take_waiting();
        }
        self.tables.sessions.retry_counts(Instant::now());
        if !self.tables.traces.is_empty() {
            self.sample_traces();
        }
        self.check_drained();
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Connection(conn) => self.on_connection(conn),
            Event::OwnConnection(conn) => self.on_own_connection(conn),
            Event::LoginChecked { conn, login } => {
                if let Some(client) = self.logins.checked(conn, login, &mut self.tables.counters) {
                    self.let_in(client);
                }
            }
            Event::CheckPassword(check) => self.logins.check(*check),
            Event::UpstreamUp { index, conn } => self.on_upstream_up(index, &conn),
            Event::PublisherControl { key, message } => self.on_publisher_control(key, &message),
            Event::SubscriberControl { conn, message } => self.on_subscriber_control(&conn, message),
            Event::Publisher { key, event } => self.on_publisher_event(key, event),
            Event::Out(event) => self.on_out_event(event),
            Event::InvalidMapping { key, bid } => {
                self.tables.expel(key, &format!("data for buffer {bid}, which has no topic"));
            }
            Event::Merged { out_bid, number, position } => self.on_merged(out_bid, number, position),
            Event::TooLarge { out_bid, number } => self.on_too_large(out_bid, number),
            Event::Stopped { out_bid, number, stopped } => self.on_stopped(out_bid, number, stopped),
            Event::Expel { key, why } => self.tables.expel(key, why),
            Event::Observer(ObserverEvent::Request { conn, message }) => {
                if self.observers.is_connected(&conn) {
                    self.report().answer(&conn, &message);
                    self.observers.answered(&conn);
                }
            }
            Event::Observer(ObserverEvent::Down { conn, why }) => {
                self.tables.admission.disconnected(conn);
                self.observers.disconnected(conn, &why);
            }
            // The thread that asked may have given up; then the answer is dropped.
            Event::Stats(reply) => _ = reply.try_send(self.report().topics()),
            Event::Ask(ask) => self.report().tell(ask),
            Event::Trace(ask) => self.on_trace(*ask),
            Event::Alive(reply) => _ = reply.try_send(()),
            Event::Census { max_own, reply } => _ = reply.try_send(self.census(max_own)),
            // The feed of a caller that has given up stays without a writer.
            Event::Feed { options, reply } => _ = reply.try_send(self.open_feed(*options)),
            Event::Local(ask) => self.merged.answer(&self.tables, *ask),
            Event::Drain(reply) => self.drain(reply),
            Event::Reload(reloaded) => self.reload(*reloaded),
            Event::ClusterChanged => self.on_cluster_changed(),
            Event::Listed(topics) => self.on_listed(topics),
            Event::Taken(taken) => self.on_taken(&taken.0, taken.1),
            Event::Users(users) => self.on_users(users.0, &users.1),
            Event::Stop => {}
        }
    }

    fn on_merged(&mut self, out_bid: Bid, number: u32, position: Position) {
        let mut fx = Effects::new();
        self.merged.on_merged(&self.tables, out_bid, number, position, &mut fx);
        self.execute(fx);
    }

    fn on_too_large(&mut self, out_bid: Bid, number: u32) {
        let mut fx = Effects::new();
        self.merged.on_too_large(&mut self.tables, out_bid, number, &mut fx);
        self.execute(fx);
    }

    fn on_stopped(&mut self, out_bid: Bid, number: u32, stopped: Stopped) {
        let mut fx = Effects::new();
        self.merged.on_stopped(&self.tables, out_bid, number, stopped, &mut fx);
        self.execute(fx);
    }

    /// Closes and opens the topics whose log goes on in the archive. What is closed may come back at once, in another term.
    fn settle_shared(&mut self) {
        for _ in 0..2 {
            let mut fx = Effects::new();
            self.merged.settle_shared(&mut self.tables, &mut fx);
            self.execute(fx);
        }
    }

    fn on_listed(&mut self, topics: Vec<TopicName>) {
        self.merged.on_listed(&self.tables, topics);
        self.settle_shared();
    }

    fn on_taken(&mut self, wanted: &Wanted, taken: Taken) {
        let mut fx = Effects::new();
        self.merged.on_taken(&mut self.tables, wanted, taken, &mut fx);
        self.execute(fx);
        self.take_waiting();
    }

    /// Publishers that have waited for an owner of their topics ask again.
    fn take_waiting(&mut self) {
        for (key, create) in self.merged.take_waiting() {
            self.on_create(key, create);
        }
    }

    fn open_feed(&mut self, options: FeedOptions) -> Result<Feed, FeedError> {
        let mut fx = Effects::new();
        let opened = self.feeds.open(&mut self.tables, options, &mut fx);
        self.execute(fx);
        opened
    }

    /// Executes effects in order, each with the effects that follow from it.
    pub(super) fn execute(&mut self, effects: Effects) {
        for effect in effects {
            let mut fx = Effects::new();
            let (tables, fx_of) = (&mut self.tables, &mut fx);
            match effect {
                Effect::Answer { key, message } => {
                    if let Some(session) = tables.sessions.get(key) {
                        session.answer(&message);
                    }
                }
                Effect::AnnounceNew(bid) => self.subscribers.announce_new(tables, bid),
                Effect::AnnounceContinues(bid) => self.subscribers.announce_continues(tables, bid),
                Effect::CountSubscribers(bid) => self.count_subscribers(bid),
                Effect::RepeatCount(bid) => repeat_count(tables, bid),
                Effect::ReportMergedCount { key, bid, out_bid } => {
                    let count = tables.topics.get(out_bid).map_or(0, |buffer| buffer.reported_subscribers);
                    tables.sessions.notify_count(key, bid, count);
                }
                Effect::Remove(bid) => self.remove_buffer(bid),
                Effect::Consider(offer) => self.federation.consider(tables, offer, fx_of),
                Effect::OpenAlternative { topic, epoch } => {
                    self.federation.open_alternative(tables, &topic, epoch, fx_of);
                }
                Effect::ContinueAs { rin, in_bid, remote } => {
                    rin.subscription(in_bid).into_iter().for_each(|sub| sub.continue_as(remote));
                }
                Effect::Leave(bid) => self.leave_buffer(bid),
                Effect::Follow { from, offer } => self.federation.follow(tables, from, offer, fx_of),
                Effect::HasLog { epoch, bid } => self.federation.opened(epoch, bid, None),
                Effect::PreferShorter(bid) => {
                    self.migration.prefer_shorter(tables, bid);
                    self.check_migrations();
                }
                Effect::EndLongPath { from, to } => self.migration.end_long_path(tables, from, to, fx_of),
                Effect::ReleaseSession(key) => self.release_session(key),
            }
            self.execute(fx);
        }
    }

    /// A new connection (paper 1, Listing 3: `on_conn`).
    fn on_connection(&mut self, conn: Conn) {
        let Some((hello, credentials)) = self.greeted(&conn) else { return };
        if let Some(client) = self.logins.arrive(conn, hello, credentials, &mut self.tables.counters) {
            self.let_in(client);
        }
    }

    /// A new connection from a part of this process, which need not log in. With a voucher it is that of a client.
    fn on_own_connection(&mut self, conn: Conn) {
        let Some((hello, credentials)) = self.greeted(&conn) else { return };
        let Credentials::Token(token) = credentials else {
            let (identity, address) = (Arc::new(Identity::own("gateway")), conn.peer_addr().into());
            return self.let_in(AcceptedClient { conn, hello, identity, address });
        };
        let client = self.logins.vouched(conn, hello, token.expose(), &mut self.tables.counters);
        client.into_iter().for_each(|client| self.let_in(client));
    }

    /// Reads the hello of a new connection. None if the connection is refused.
    fn greeted(&mut self, conn: &Conn) -> Option<(Hello, Credentials)> {
        let counters = &mut self.tables.counters;
        let decoded = Hello::decode_with(&conn.take_peer_hello());
        if let Err(error) = &decoded {
            if let Some(more) = self.lines.hello.allow(Instant::now()) {
                info!(more, "refused {}: {error}", conn.peer_addr());
            }
            counters.refused(Refusal::Hello);
            conn.reject(&error.to_string());
        } else if self.tables.stopping.is_some() {
            counters.refused(Refusal::Draining);
            conn.reject(STOPPING);
            return None;
        }
        decoded.ok()
    }

    /// A client has shown who it is.
    fn let_in(&mut self, client: AcceptedClient) {
        if self.tables.stopping.is_some() {
            self.tables.counters.refused(Refusal::Draining);
            return client.conn.reject(STOPPING);
        }
        if let Err(why) = self.admit(&client) {
            return client.conn.reject(&why);
        }
        if self.tables.traces.is_on() {
            self.trace_arrival(&client);
        }
        let tables = &mut self.tables;
        match client.hello.role {
            Role::Publisher => {
                let key = SessionKey { instance: client.conn.peer_instance(), client: client.hello.client };
                if tables.sessions.get(key).is_some_and(|known| known.identity.user == client.identity.user) {
                    self.merged.leave(tables, key, None);
                }
                if let Some(key) = publishers::connected(tables, client) {
                    self.merged.reconnected(tables, key);
                    self.update_finished(key);
                    self.revoke(key);
                }
            }
            Role::Subscriber => self.subscribers.connected(tables, client, None),
            Role::Broker => {
                let hop = self.federation.hop_to(client.hello.client);
                self.subscribers.connected(tables, client, Some(hop));
            }
            Role::Observer => {
                let AcceptedClient { conn, hello, .. } = client;
                if !self.observers.connected(&tables.settings, &mut tables.counters, &conn, hello) {
                    tables.admission.disconnected(conn.id());
                }
            }
        }
    }

    /// Other users are in force.
    fn on_users(&mut self, authenticator: Authenticator, settings: &UsersSettings) {
        match self.logins.reload(authenticator, settings) {
            Ok(identities) => {
                for (conn, identity) in &identities {
                    self.tables.sessions.set_identity(*conn, identity);
                    self.subscribers.set_identity(*conn, identity);
                }
                let changed = self.tables.admission.set_identities(identities);
                self.on_rights(&changed);
            }
            Err(error) => warn!("passwords cannot be checked, so nobody logs in with one: {error}"),
        }
    }

    fn on_upstream_up(&mut self, index: usize, conn: &Conn) {
        if self.tables.stopping.is_some() {
            return conn.close(STOPPING);
        }
        let mut fx = Effects::new();
        self.federation.connected(&mut self.tables, index, conn, &mut fx);
        self.execute(fx);
    }

    fn on_publisher_control(&mut self, key: SessionKey, message: &[u8]) {
        if self.tables.sessions.get(key).is_some_and(|session| session.upstream.is_some()) {
            let mut fx = Effects::new();
            self.federation.on_control(&mut self.tables, key, message, &mut fx);
            return self.execute(fx);
        }
        match Control::decode(message) {
            Ok(Control::Create { bid, framing, ring_bytes, max_delivery_bytes, min_subscribers, topic }) => {
                let place = self.tables.sessions.get_mut(key).and_then(|session| session.place.take());
                let place = place.filter(|(of, _)| *of == bid).map(|(_, place)| place);
                let create =
                    Create { bid, framing, ring_bytes, max_delivery_bytes, min_subscribers, topic, place };
                self.on_create(key, create);
            }
            Ok(Control::Place { bid, epoch, position }) => {
                let session = self.tables.sessions.get_mut(key).filter(|_| self.tables.cluster.is_some());
                if let Some(session) = session {
                    session.place = Some((bid, FormerPlace { epoch: Epoch(epoch), position }));
                }
            }
            Ok(Control::AskStored { bid, position, synced, archived }) => {
                self.on_ask_stored(key, bid, [position, synced, archived]);
            }
            Ok(_) => {
                self.tables.expel(key, "a publisher sent a message that only subscribers or brokers send");
            }
            Err(error) => self.tables.expel(key, &error.to_string()),
        }
    }

    /// A question about the disk that is not about a kept topic, or came before the topic was.
    fn on_ask_stored(&mut self, key: SessionKey, bid: Bid, wanted: [Position; 3]) {
        let Some(session) = self.tables.sessions.get(key) else { return };
        // A publisher whose topic went to another broker of the cluster has not heard of it yet.
        let is_here = self.tables.cluster.is_none()
            || session.mapping.get(bid).is_some()
            || self.merged.is_publisher(key, bid);
        if is_here && !session.merged.ask_disk(bid, wanted) {
            let reason = "the broker does not keep the topic on disk: it has no rule for it (broker.topics) with keep = true";
            session.answer(&Control::NotStored {
                bid,
                is_of_archive: false,
                is_lost: false,
                reason: reason.into(),
            });
        }
    }

    fn on_create(&mut self, key: SessionKey, create: Create) {
        let Some(session) = self.tables.sessions.get(key) else { return };
        let (mut fx, bid, conn, peer) =
            (Effects::new(), create.bid, session.conn.id(), session.conn.peer_addr());
        let (identity, topic) = (session.identity.clone(), create.topic.clone());
        if let Err(Refused { code, reason }) = self.create(key, create, &mut fx) {
            if let Some(more) = self.lines.buffer.allow(Instant::now()) {
                info!(more, "buffer {bid} of {peer} is refused: {reason}");
            }
            self.tables.counters.refused(Refusal::Buffer(code));
            let topic = Some(topic.as_str());
            let (address, identity) = (&*peer, &*identity);
            let denial = Denial { conn, address, identity, operation: "publish", topic, reason: &reason };
            if code != RefuseCode::Elsewhere {
                self.tables.audit_refusal(&denial);
            }
            fx.push(Effect::Answer { key, message: Control::Refused { bid, code, reason } });
        }
        self.execute(fx);
    }

    fn create(&mut self, key: SessionKey, create: Create, fx: &mut Effects) -> Result<(), Refused> {
        let Some(session) = self.tables.sessions.get(key) else { return Ok(()) };
        let (known, conn) = (session.mapping.get(create.bid), session.conn.id());
        let in_space = self.tables.settings.topics.space_of(&create.topic);
        // Who writes the log of a space can write every topic of it.
        let written = in_space.as_ref().map_or(&create.topic, |of| of.space.log());
        if !self.tables.admission.may_publish(conn, written) {
            let why = not_allowed(&session.identity, "publish", written);
            return Err(Refused::new(RefuseCode::NotAllowed, why));
        }
        if let Some(InSpace { space, before }) = &in_space {
            merge::check_form(&create)?;
            let messages = Control::in_space(create.bid, space, before);
            fx.extend(messages.into_iter().map(|message| Effect::Answer { key, message }));
            if create.topic != *space.log() {
                return Ok(());
            }
        } else if Space::is_reserved(&create.topic) {
            let reason = format!(
                "'{}' is the name of the log of a space, and this broker has no such space (broker.topics, space = true)",
                create.topic
            );
            return Err(Refused::new(RefuseCode::Invalid, reason));
        }
        if self.merged.is_responsible(&self.tables, key, &create) {
            return self.merged.create(&mut self.tables, key, &create, fx);
        }
        if let Some(out_bid) = known.filter(|known| !publishers::is_leftover(&self.tables, *known)) {
            publishers::create_again(&mut self.tables, key, out_bid, &create, fx);
            return Ok(());
        }
        known.into_iter().for_each(|out_bid| self.remove_buffer(out_bid));
        publishers::create(&mut self.tables, key, create, fx)
    }

    fn on_publisher_event(&mut self, key: SessionKey, event: InEvent) {
        let mut fx = Effects::new();
        if let InEvent::ConnDown { reason: why } = &event {
            self.on_publisher_down(key, &why.to_string(), &mut fx);
        } else if !self.merged.on_event(&mut self.tables, key, &event, &mut fx) {
            let (federation, migration) = (&mut self.federation, &mut self.migration);
            let routing = publishers::Routing { federation, migration };
            publishers::on_event(&mut self.tables, routing, key, event, &mut fx);
        }
        self.execute(fx);
    }

    fn on_publisher_down(&mut self, key: SessionKey, why: &str, fx: &mut Effects) {
        let Some(session) = self.tables.sessions.get(key) else { return };
        if !session.is_down() {
            // The event is about an older connection.
            return;
        }
        info!("{session} is down: {why}");
        self.tables.admission.disconnected(session.conn.id());
        self.merged.disconnected(&mut self.tables, key);
        self.federation.disconnected(&mut self.tables, key, fx);
        fx.push(Effect::ReleaseSession(key));
    }

    fn on_subscriber_control(&mut self, conn: &Conn, message: Message) {
        if GroupMessage::is(&message) {
            return self.on_group_message(conn, message);
        }
        match Control::decode(&message) {
            Ok(Control::Topics { filters }) => self.subscribers.on_topics(&mut self.tables, conn, filters),
            Ok(Control::Hold { hold_ms }) => self.subscribers.on_hold(&self.tables, conn.id(), hold_ms),
            Ok(Control::Replay { bid, from }) => self.on_replay(conn, bid, from, message.arrived()),
            Ok(Control::Downstream { bid, count }) => {
                if self.subscribers.on_downstream(&mut self.tables, conn, bid, count) {
                    self.count_subscribers(bid);
                }
            }
            Ok(_) => conn.close("a subscriber sent a message that only publishers or brokers send"),
            Err(error) => conn.close(&error.to_string()),
        }
    }

    /// A subscriber has asked where to begin in a kept log. A thread of the replays answers.
    fn on_replay(&mut self, conn: &Conn, bid: Bid, from: ReplayFrom, asked: Instant) {
        // The connection may be down already, or the buffer removed.
        let known = self.subscribers.get(conn.id()).is_some();
        let Some(reader) = self.merged.kept_log(bid).filter(|_| known) else { return };
        let Some(live) = self.tables.out.buffer(bid) else { return };
        let topic = self.tables.topics.get(bid).map(|buffer| &buffer.topic);
        if !topic.is_some_and(|topic| self.tables.admission.may_read(conn.id(), topic)) {
            return;
        }
        let announced = bid;
        let (archived, bid) = (self.merged.archived(bid), self.tables.topics.unused_bid());
        self.tables.admission.replays(conn.id(), announced, bid);
        let conn = conn.clone();
        let admission = self.tables.admission.clone();
        let request =
            ReplayRequest { conn, live, reader, archived, asked, from, bid, admission, waits: false };
        self.replays.ask(request, self.tables.settings.max_replays);
    }

    fn on_out_event(&mut self, event: OutEvent) {
        let mut fx = Effects::new();
        self.migration.on_out_event(&self.tables, &event, &mut fx);
        self.execute(fx);
        match event {
            OutEvent::Subscribed { conn, bid, name, start, .. } => {
                self.subscribers.subscribed(conn, bid);
                former::subscribed(&self.tables, &self.subscribers, conn, bid, &name);
                self.replays.wake(bid);
                self.groups.subscribed(bid);
                debug!("buffer {bid}: subscribed by {} from {start}", display_name(&text(&name)));
                self.count_subscribers(bid);
            }
            OutEvent::Unsubscribed { bid, name, why, .. } => {
                debug!("buffer {bid}: subscription {} ended: {why}", display_name(&text(&name)));
                former::unsubscribed(&self.tables, &self.subscribers, bid, &name);
                self.replays.left(bid);
                self.groups.left(bid);
                self.tables.admission.left(bid);
                self.count_subscribers(bid);
            }
            OutEvent::Dropped { bid, from, to, policy, .. } => {
                let lost = to.saturating_sub(from);
                self.tables.counters.lost(policy, lost);
                warn!("buffer {bid}: a slow subscriber lost {lost} bytes ({from} to {to})");
            }
            OutEvent::TooSlow { policy, .. } => self.tables.counters.too_slow(policy),
            OutEvent::ConnDown { conn, reason: why } => {
                self.replays.disconnected(conn);
                self.groups.disconnected(conn);
                self.subscribers.disconnected(&mut self.tables, conn, &why.to_string());
            }
            OutEvent::Ended { bid } => debug!("buffer {bid}: all subscribers have all of it"),
            _ => {}
        }
    }

    /// Counts the subscribers of a buffer, and reports the number to its publisher if it has changed.
    fn count_subscribers(&mut self, bid: Bid) {
        let count = self.subscribers.count(&self.tables, bid);
        let Some(buffer) = self.tables.topics.get_mut(bid) else { return };
        if buffer.stage != Stage::Live || buffer.reported_subscribers == count {
            return;
        }
        buffer.reported_subscribers = count;
        self.merged.report_count(&mut self.tables, bid, count);
        repeat_count(&mut self.tables, bid);
    }

    fn check_migrations(&mut self) {
        let mut fx = Effects::new();
        self.migration.check(&mut self.tables, &mut self.federation, Instant::now(), &mut fx);
        self.execute(fx);
    }

    /// Removes a buffer from all parts, and reports that to its subscribers.
    fn remove_buffer(&mut self, bid: Bid) {
        let tables = &mut self.tables;
        let Some(buffer) = tables.topics.remove(bid) else { return };
        tables.admission.removed(bid);
        let traffic = tables.info(bid).map(|info| info.traffic).unwrap_or_default();
        let last = tables.topics.of(&buffer.topic).is_empty();
        tables.counters.closed(&buffer.topic, traffic, last);
        debug!("topic '{}': buffer {bid} is removed", buffer.topic);
        let mut fx = Effects::new();
        self.merged.removed(tables, bid, &mut fx);
        self.merged.remember(tables, &buffer.topic);
        self.migration.removed(bid);
        if let Some(epoch) = buffer.epoch {
            self.federation.removed(tables, &buffer.topic, epoch, bid);
        }
        // A buffer that was not spliced yet doesn't exist in the framework.
        let _ = tables.out.destroy_buffer(bid);
        if let Some(session) = tables.sessions.get_mut(buffer.session) {
            session.rin.unsubscribe(buffer.in_bid);
            session.mapping.remove(buffer.in_bid);
            session.upstream_ids.remove(bid);
        }
        self.subscribers.announce_removed(tables, bid, &buffer);
        fx.push(Effect::ReleaseSession(buffer.session));
        self.execute(fx);
    }

    /// The log of a buffer goes on at another broker, from which this one receives it then. Its subscribers learn that before the end.
    fn leave_buffer(&mut self, bid: Bid) {
        let mut fx = Effects::new();
        set_continues(&mut self.tables, bid, true, &mut fx);
        self.execute(fx);
        let (mut fx, tables) = (Effects::new(), &mut self.tables);
        self.merged.removed(tables, bid, &mut fx);
        let end = tables.out.buffer(bid).map_or(0, |buffer| buffer.leave());
        // Who comes now is to begin at the other one.
        let until = Instant::now() + tables.settings.closed_linger().min(LEFT_LINGER);
        tables.topics.end(bid, end, until);
        let Some(buffer) = tables.topics.get_mut(bid) else { return };
        // The other one may not have offered it yet.
        (buffer.gone, buffer.continues_upstream) = (true, true);
        if let Some(epoch) = buffer.epoch {
            self.migration.ended(bid);
            self.federation.reroute(tables, bid, epoch, end, &mut fx);
        }
        self.execute(fx);
    }

    /// Checks whether a publisher is finished, and forgets it if it is disconnected and has no buffer here.
    fn release_session(&mut self, key: SessionKey) {
        self.update_finished(key);
        self.tables.sessions.remove_idle(key);
    }

    fn update_finished(&mut self, key: SessionKey) {
        let Some(session) = self.tables.sessions.get(key) else { return };
        let finished =
            publishers::is_finished(&self.tables, session) && !self.merged.is_publishing(&self.tables, key);
        self.tables.sessions.set_finished(key, finished);
    }

    /// Receives from the other members of the cluster.
    pub(super) fn dial_members(&mut self) {
        if let Some(cluster) = &self.tables.cluster {
            self.federation.set_members(&cluster.members());
        }
    }

    /// Sends the publishers away whose topics went to other members, and takes those that have waited.
    fn on_cluster_changed(&mut self) {
        if self.tables.stopping.is_some() {
            return;
        }
        self.merged.move_away(&self.tables);
        self.dial_members();
        let mut fx = Effects::new();
        self.merged.open_spaces(&mut self.tables, &mut fx);
        self.federation.follow_owners(&self.tables, &mut fx);
        self.execute(fx);
        self.merged.list_shared(&self.tables);
        self.settle_shared();
        self.take_waiting();
    }

    /// Begins to stop. The publishers of a cluster learn how far they are, for the next owner of their topics.
    fn drain(&mut self, drained: SyncSender<()>) {
        self.tables.stopping = Some(STOPPING);
        self.federation.stop();
        self.merged.move_away(&self.tables);
        self.drained = Some(drained);
    }

    /// Disconnects the publishers of a broker that stops, when they have been told.
    fn check_drained(&mut self) {
        if let Some(drained) = self.drained.take_if(|_| !self.merged.is_moving()) {
            self.tables.sessions.after(None).for_each(|(_, session)| session.conn.close(STOPPING));
            // Nobody waits any more if it took too long.
            let _ = drained.try_send(());
        }
    }

    fn census(&mut self, max_own: usize) -> Census {
        let tables = &mut self.tables;
        let (topics, others_removed) = tables.counters.topics(&tables.topics, max_own);
        let sessions = tables.sessions.counts();
        Census {
            topics,
            others_removed,
            totals: tables.counters.totals,
            publishers: sessions.connected,
            publishers_offline: sessions.disconnected,
            subscribers: self.subscribers.len(),
            limits: [
                ("broker.max_topics", tables.settings.max_topics as u64),
                ("broker.max_publishers", tables.settings.max_publishers as u64),
            ],
            near_limit: tables.admission.near_limit(MAX_NEAR_LIMIT),
            rates: tables.admission.rate_uses(MAX_NEAR_LIMIT),
            audit_dropped: tables.audit.dropped(),
        }
    }

    pub(super) fn report(&self) -> Report<'_> {
        Report {
            tables: &self.tables,
            subscribers: &self.subscribers,
            federation: &self.federation,
            merged: &self.merged,
            observers: &self.observers,
            groups: &self.groups,
        }
    }
}

/// Reports the last number of subscribers to the publisher of a buffer, on a new connection or for the first time.
fn repeat_count(tables: &mut Tables, bid: Bid) {
    let Some(buffer) = tables.topics.get(bid) else { return };
    let (key, in_bid, count) = (buffer.session, buffer.in_bid, buffer.reported_subscribers);
    tables.sessions.notify_count(key, in_bid, count);
}

fn text(name: &[u8]) -> String {
    String::from_utf8_lossy(name).into_owned()
}
