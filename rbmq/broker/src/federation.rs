//! Federation: topics that come from other brokers (`[[broker.upstream]]`).
//!
//! ```text
//!   publisher ──▶ A ──▶ B ──▶ subscriber        B subscribes at A, and splices what it receives
//!                  ╲──▶ C ──▶ D                 positions and epoch are the publisher's at every broker
//!                        B ──▶ D                D gets two offers of the buffer, and receives it once
//! ```
//!
//! An offer names the brokers that the buffer has passed. A broker that finds itself in this path ends the loop. A broker
//! receives a log by the first route that is offered, until it is offered a prefix of this route (`path_migration.rs`), and keeps
//! the other offers as alternatives (`routes.rs`). When the current route is lost, an alternative continues at the same
//! position. A restarted broker offers its logs again: a log that came from there continues in its ring at this broker, and
//! subscribers don't notice.

use std::sync::Arc;
use std::time::Instant;

use access::Identity;
use rbmq_wire::connect::{is_encrypted, random};
use rbmq_wire::{Control, Framing, Hello, Role, Space, Topic, TopicName};
use rocketbufs::fields::printable;
use rocketbufs::{Bid, Conn, Context, Epoch, Policy, Start, SubscribeOptions};
use tracing::{debug, info, warn};

use super::cluster::{ClusterMember, Owner};
use super::config::{BrokerSettings, MAX_UPSTREAMS, UpstreamSettings};
use super::dialer::Dialer;
use super::effects::{Effect, Effects};
use super::error::BrokerError;
use super::former::place_name;
use super::inbox::Sender;
use super::limits::{largest_ring_bytes, ring_bytes};
use super::outgoing::send;
use super::routes::{Choice, Hop, Known, Offer, Routes, choose};
use super::session_key::{SessionKey, SourceBuffer};
use super::sessions::Session;
use super::tables::{LEFT_LINGER, Tables};
use super::topics::{Buffer, Stage};

/// The upstream brokers, and the routes to their logs.
pub(super) struct Federation {
    /// Identifies this process at other brokers.
    id: u128,
    /// A random number that makes the session keys of upstream brokers unpredictable, so that no client can use them.
    secret: u128,
    upstreams: Vec<Upstream>,
    routes: Routes,
    dialing: Dialing,
    /// The name of the places that other brokers keep for this process.
    place_name: Vec<u8>,
}

/// A broker that this one receives from.
struct Upstream {
    settings: UpstreamSettings,
    /// The member of the cluster that it is, or was. None: it is in the configuration.
    member: Option<String>,
    /// Keeps one connection until it is dropped. None: the member has another address now.
    dialer: Option<Dialer>,
}

/// How other brokers are dialed.
struct Dialing {
    ctx: Context,
    hello: Hello,
    events: Sender,
}

impl Dialing {
    fn dial(&self, index: usize, settings: &UpstreamSettings) -> Result<Dialer, BrokerError> {
        let credentials = settings.credentials(is_encrypted(&self.ctx)).map_err(BrokerError::Upstream)?;
        let hello = self.hello.encode_with(&credentials);
        Dialer::start(&self.ctx, index, &settings.address, hello, self.events.clone())
            .map_err(BrokerError::Thread)
    }
}

impl Federation {
    /// Starts to connect to the upstream brokers of the configuration. `member`: the name of this broker in its cluster.
    pub(super) fn start(
        ctx: &Context,
        settings: &BrokerSettings,
        member: Option<&str>,
        events: &Sender,
    ) -> Result<Self, BrokerError> {
        let number = || random().map_err(|e| BrokerError::Random(e.to_string()));
        let (id, secret) = (number()?, number()?);
        let hello = Hello { role: Role::Broker, client: id, name: settings.listen.clone() };
        let dialing = Dialing { ctx: ctx.clone(), hello, events: events.clone() };
        let mut upstreams = Vec::with_capacity(settings.upstream.len());
        for (index, settings) in settings.upstream.iter().enumerate() {
            let (settings, dialer) = (settings.clone(), Some(dialing.dial(index, settings)?));
            upstreams.push(Upstream { settings, member: None, dialer });
        }
        let (routes, place_name) = (Routes::default(), place_name(member, id));
        Ok(Self { id, secret, upstreams, routes, dialing, place_name })
    }

    /// Receives from these members of the cluster. One that is missing is received from as before until its place is needed: the store of the
    /// map may be what does not see it.
    pub(super) fn set_members(&mut self, members: &[ClusterMember]) {
        for upstream in &mut self.upstreams {
            let listed = members.iter().find(|member| upstream.member.as_ref() == Some(&member.id));
            if listed.is_some_and(|member| member.address() != upstream.settings.address) {
                upstream.dialer = None;
            }
        }
        for member in members {
            let address = member.address();
            let is_known = |upstream: &Upstream| {
                upstream.dialer.is_some()
                    && (upstream.member.as_ref() == Some(&member.id) || upstream.settings.address == address)
            };
            if !address.is_empty() && !self.upstreams.iter().any(is_known) {
                self.add_member(&member.id, &address, members);
            }
        }
    }

    /// Dials a member, which gets the number that it had, or that of a member that has left; if there is no room, that of one that is missing.
    fn add_member(&mut self, id: &str, address: &str, members: &[ClusterMember]) {
        let left = |upstream: &Upstream| upstream.member.is_some() && upstream.dialer.is_none();
        let missing = |upstream: &Upstream| {
            let member = upstream.member.as_ref();
            member.is_some_and(|id| members.iter().all(|listed| listed.id != *id))
        };
        let upstreams = &self.upstreams;
        let had = upstreams.iter().position(|one| left(one) && one.member.as_deref() == Some(id));
        let free = had.or_else(|| upstreams.iter().position(left));
        let new = (upstreams.len() < MAX_UPSTREAMS).then_some(upstreams.len());
        let place = free.or(new).or_else(|| upstreams.iter().position(missing)).unwrap_or(MAX_UPSTREAMS);
        if place >= MAX_UPSTREAMS {
            return warn!(
                "member '{id}' of the cluster is one too many: {MAX_UPSTREAMS} upstream brokers are the most"
            );
        }
        // Members log in as the first upstream broker of the configuration wants it.
        let first = self.upstreams.iter().find(|upstream| upstream.member.is_none());
        let settings = match first {
            Some(first) => UpstreamSettings { address: address.to_owned(), ..first.settings.clone() },
            None => UpstreamSettings::new(address),
        };
        // Two dialers would report connections by one number.
        self.upstreams.get_mut(place).into_iter().for_each(|before| before.dialer = None);
        let dialer = match self.dialing.dial(place, &settings) {
            Ok(dialer) => Some(dialer),
            Err(error) => return warn!("member '{id}' of the cluster is not dialed: {error}"),
        };
        let upstream = Upstream { settings, member: Some(id.to_owned()), dialer };
        match self.upstreams.get_mut(place) {
            Some(free) => *free = upstream,
            None => self.upstreams.push(upstream),
        }
    }

    /// Closes the connections to upstream brokers for good.
    pub(super) fn stop(&mut self) {
        self.upstreams.iter_mut().for_each(|upstream| upstream.dialer = None);
    }

    /// The hop from this broker to another one that subscribes here.
    pub(super) fn hop_to(&self, to: u128) -> Hop {
        Hop { from: self.id, to }
    }

    /// The number of alternative routes to the log of a buffer, besides the session that it comes from.
    pub(super) fn alternatives(&self, epoch: Epoch, bid: Bid, except: SessionKey) -> usize {
        self.routes.alternatives(epoch, bid, except)
    }

    /// The session key of a configured upstream broker. The key is the same for each process at the address.
    fn key(&self, index: usize) -> SessionKey {
        SessionKey { instance: self.id, client: self.secret ^ index as u128 }
    }

    fn settings_of(&self, session: &Session) -> Option<&UpstreamSettings> {
        session.upstream.and_then(|index| self.upstreams.get(index)).map(|upstream| &upstream.settings)
    }

    /// A connection to an upstream broker is up.
    pub(super) fn connected(&mut self, tables: &mut Tables, index: usize, conn: &Conn, fx: &mut Effects) {
        let Some(upstream) = self.upstreams.get(index).filter(|upstream| upstream.dialer.is_some()) else {
            return conn.close("this broker receives from here no more");
        };
        let (key, settings) = (self.key(index), &upstream.settings);
        let (wanted, name) = (Control::topics(&settings.topics), settings.address.clone());
        if tables.sessions.get(key).is_some_and(|session| !session.is_same_process(conn)) {
            // The offers of the process before are void.
            self.disconnected(tables, key, fx);
        }
        match tables.sessions.get_mut(key) {
            Some(session) => session.resume(conn.clone()),
            None => {
                let identity = Arc::new(Identity::anonymous());
                let session = Session::new(key, conn.clone(), identity, name, Some(index), &tables.events);
                tables.sessions.insert(key, session);
            }
        }
        wanted.iter().for_each(|message| send(conn, message));
    }

    /// The connection to a publisher or an upstream broker is lost. An upstream broker repeats its offers when it is back.
    pub(super) fn disconnected(&mut self, tables: &mut Tables, key: SessionKey, fx: &mut Effects) {
        self.routes.withdraw(|offer| offer.key == key);
        let Some(session) = tables.sessions.get(key).filter(|session| session.upstream.is_some()) else {
            return;
        };
        for bid in session.mapping.out_bids() {
            self.on_continues(tables, bid, false, fx);
        }
    }

    /// A control message from an upstream broker.
    pub(super) fn on_control(
        &mut self,
        tables: &mut Tables,
        key: SessionKey,
        message: &[u8],
        fx: &mut Effects,
    ) {
        match Control::decode(message) {
            Ok(Control::TopicVia { topic, path }) => self.consider(tables, Offer { key, topic, path }, fx),
            // A broker doesn't wait for the end of the first offers.
            Ok(Control::TopicsDone) => {}
            Ok(Control::TopicGone { bid, .. }) => {
                self.routes.withdraw(|offer| offer.key == key && offer.topic.bid == bid);
            }
            Ok(Control::Continues { bid, yes }) => {
                let local = tables.sessions.get(key).and_then(|session| session.upstream_ids.local(bid));
                if let Some(local) = local {
                    self.on_continues(tables, local, yes, fx);
                }
            }
            Ok(Control::Rejected { reason, .. }) => {
                if let Some(session) = tables.sessions.get(key) {
                    warn!("{session} refused the topics: {}", printable(&reason));
                }
            }
            Ok(_) => tables.expel(key, "a broker sent a message that is not for brokers"),
            Err(error) => tables.expel(key, &error.to_string()),
        }
    }

    /// Decides about an offer.
    pub(super) fn consider(&mut self, tables: &mut Tables, offer: Offer, fx: &mut Effects) {
        let (epoch, in_bid) = (offer.epoch(), offer.topic.bid);
        if offer.path.contains(&self.id) {
            return debug!("topic '{}': the path of the offer contains this broker", offer.topic.topic);
        }
        let Some(session) = tables.sessions.get(offer.key) else { return };
        if Space::is_reserved(&offer.topic.topic) && offer.topic.space.is_none() {
            return debug!("topic '{}' of {session} is the log of no space", offer.topic.topic);
        }
        if !self.settings_of(session).is_some_and(|upstream| upstream.wants(&offer.topic.topic)) {
            if let Some(space) = &offer.topic.space {
                warn!(
                    "the space '{}' of {session} is not received: its log has all of its topics, and the filters for this broker \
                     (broker.upstream.topics) are for some of them",
                    space.pattern()
                );
            }
            return debug!("topic '{}' of {session} was not requested", offer.topic.topic);
        }
        // A merged log that a restarted broker writes itself. This broker needs it from its first byte.
        let follows_merged =
            session.restarted && offer.topic.framing == Framing::Merged && offer.path.len() == 1;
        if let Some(out_bid) = session.upstream_ids.local(in_bid) {
            let same = |buffer: &Buffer| buffer.epoch == Some(epoch) && !buffer.gone;
            if tables.topics.get(out_bid).is_some_and(same) {
                // The offer is repeated after a reconnection. The rIn continues by itself, but the upstream broker has
                // forgotten the number of subscribers.
                return fx.push(Effect::RepeatCount(out_bid));
            }
            fx.extend([Effect::Remove(out_bid), Effect::Consider(offer)]);
            return;
        }
        let known = self.routes.current(epoch).and_then(|bid| Some((bid, tables.topics.get(bid)?)));
        if let Some((bid, buffer)) = known.filter(|(bid, buffer)| waits_for(tables, &offer, *bid, buffer)) {
            if buffer.stage == Stage::Live && tables.is_shared(&buffer.topic) {
                // Another owner may have written meanwhile, so the ring of the one before ends, and another ring begins.
                return fx.push(Effect::Follow { from: bid, offer });
            }
            return self.resume(tables, offer, bid, fx);
        }
        let known =
            known.map(|(_, buffer)| Known { path: &buffer.path, gone: buffer.gone, stage: buffer.stage });
        match choose(&offer.path, epoch, known, follows_merged) {
            Choice::Open(start) => self.open(tables, offer, start, fx),
            Choice::KeepAsAlternative => self.keep_alternative(tables, offer, fx),
        }
    }

    /// The upstream broker of a log was restarted and has the log again.
    fn resume(&mut self, tables: &mut Tables, offer: Offer, bid: Bid, fx: &mut Effects) {
        let (Some(session), Some(buffer)) = (tables.sessions.get_mut(offer.key), tables.topics.get_mut(bid))
        else {
            return;
        };
        info!("topic '{}': buffer {bid} continues at {session}, which was restarted", buffer.topic);
        session.upstream_ids.insert(offer.topic.bid, bid);
        buffer.path.clone_from(&offer.path);
        let (rin, in_bid, remote) = (session.rin.clone(), buffer.in_bid, offer.topic.bid);
        // If the ring at this broker is memory of the old process, the buffer ends and the log continues in another buffer.
        // The framework reports that after this call, and subscribers have to learn before that the log continues.
        self.keep_alternative(tables, offer, fx);
        fx.push(Effect::ContinueAs { rin, in_bid, remote });
        fx.push(Effect::RepeatCount(bid));
    }

    fn keep_alternative(&mut self, tables: &mut Tables, offer: Offer, fx: &mut Effects) {
        let epoch = offer.epoch();
        self.routes.add(offer);
        if let Some(bid) = self.routes.current(epoch) {
            set_continues(tables, bid, true, fx);
        }
        self.follow_owner(tables, epoch, fx);
    }

    /// Receives the logs that go on in the archive from their owners.
    pub(super) fn follow_owners(&mut self, tables: &Tables, fx: &mut Effects) {
        let epochs = if tables.shares { self.routes.epochs() } else { Vec::new() };
        epochs.into_iter().for_each(|epoch| self.follow_owner(tables, epoch, fx));
    }

    /// The owner before may stand still, so its log is received from the owner as soon as that offers it.
    pub(super) fn follow_owner(&mut self, tables: &Tables, epoch: Epoch, fx: &mut Effects) {
        let Some(from) = self.routes.current(epoch) else { return };
        let Some(buffer) = tables.topics.get(from).filter(|buffer| buffer.stage == Stage::Live) else {
            return;
        };
        if buffer.path.is_empty() || !tables.is_shared(&buffer.topic) {
            return;
        }
        let Owner::Elsewhere { addresses } = tables.owner(&buffer.topic) else { return };
        let address = addresses.join(",");
        let upstreams = &self.upstreams;
        let is_owner = |key| {
            let index = tables.sessions.get(key).and_then(|session| session.upstream);
            index
                .and_then(|index| upstreams.get(index))
                .is_some_and(|upstream| upstream.settings.address == address)
        };
        if buffer.path.len() == 1 && is_owner(buffer.session) {
            return;
        }
        let offer = self.routes.take(epoch, |offer| offer.path.len() == 1 && is_owner(offer.key));
        fx.extend(offer.map(|offer| Effect::Follow { from, offer }));
    }

    /// A log that came in a buffer is received from its owner.
    pub(super) fn follow(&mut self, tables: &mut Tables, from: Bid, offer: Offer, fx: &mut Effects) {
        // Subscribers hear that the log goes on before they hear of the end.
        set_continues(tables, from, true, fx);
        let Some(end) = tables.out.buffer(from).and_then(|buffer| buffer.end_as_gone().ok()) else {
            return self.routes.add(offer);
        };
        info!("topic '{}': buffer {from} ends at {end}: its log goes on at its owner", offer.topic.topic);
        tables.topics.end(from, end, Instant::now() + tables.settings.closed_linger().min(LEFT_LINGER));
        tables.topics.get_mut(from).into_iter().for_each(|buffer| buffer.gone = true);
        let start = Start::Position(offer.epoch(), end);
        self.open(tables, offer, start, fx);
    }

    /// A buffer gives way to a buffer with a shorter path. Its own route becomes an alternative.
    pub(super) fn becomes_alternative(&mut self, tables: &mut Tables, from: Bid, to: Bid, fx: &mut Effects) {
        let (Some(buffer), Some(to)) = (tables.topics.get(from), tables.topics.get(to)) else { return };
        let key = buffer.session;
        let remote = tables.sessions.get(key).and_then(|session| session.upstream_ids.remote(from));
        // If the publisher is connected here, the other broker can only have the log from this one.
        let (Some(bid), Some(epoch), false) = (remote, buffer.epoch, to.path.is_empty() || buffer.gone)
        else {
            return;
        };
        let topic = Topic {
            bid,
            epoch: epoch.0,
            framing: buffer.framing,
            fresh: false,
            kept: false,
            max_delivery_bytes: buffer.max_delivery_bytes,
            topic: buffer.topic.clone(),
            space: Space::of_log(&buffer.topic),
        };
        let path = buffer.path.clone();
        self.keep_alternative(tables, Offer { key, topic, path }, fx);
    }

    /// The upstream broker of a buffer reports whether the log continues there when the buffer ends.
    fn on_continues(&self, tables: &mut Tables, bid: Bid, yes: bool, fx: &mut Effects) {
        let Some(buffer) = tables.topics.get_mut(bid) else { return };
        buffer.continues_upstream = yes;
        let is_over =
            buffer.gone && buffer.epoch.is_some_and(|epoch| self.routes.current(epoch) == Some(bid));
        if yes || is_over {
            set_continues(tables, bid, yes, fx);
        }
    }

    /// A buffer of a log is live. `before`: the log for which the buffer was taken until now.
    pub(super) fn opened(&mut self, epoch: Epoch, bid: Bid, before: Option<Epoch>) {
        self.routes.set_current(epoch, bid, before);
    }

    /// A log was closed by its publisher, at all brokers.
    pub(super) fn closed(&mut self, epoch: Epoch) {
        self.routes.closed(epoch);
    }

    /// A buffer was removed.
    pub(super) fn removed(&mut self, tables: &Tables, topic: &TopicName, epoch: Epoch, bid: Bid) {
        self.routes.remove_current(epoch, bid);
        self.use_other_buffer(tables, topic, epoch, bid);
    }

    /// The route of a buffer is lost. Another route continues where the log stopped.
    pub(super) fn reroute(
        &mut self,
        tables: &mut Tables,
        bid: Bid,
        epoch: Epoch,
        end: u64,
        fx: &mut Effects,
    ) {
        let topic = tables.topics.get(bid).map(|buffer| buffer.topic.clone());
        if topic.is_some_and(|topic| self.use_other_buffer(tables, &topic, epoch, bid)) {
            // A migration is under way: the log has another buffer already.
            return set_continues(tables, bid, true, fx);
        }
        if let Some(offer) = self.routes.take_shortest(epoch) {
            info!("topic '{}': continues at {end} by another broker", offer.topic.topic);
            return self.open(tables, offer, Start::Position(epoch, end), fx);
        }
        if tables.topics.get(bid).is_some_and(|buffer| !buffer.continues_upstream) {
            set_continues(tables, bid, false, fx);
        }
    }

    /// The current route to a log was refused. An alternative is opened instead.
    pub(super) fn open_alternative(
        &mut self,
        tables: &mut Tables,
        topic: &TopicName,
        epoch: Epoch,
        fx: &mut Effects,
    ) {
        if self.routes.current(epoch).is_some() {
            return;
        }
        let Some(offer) = self.routes.take_shortest(epoch) else { return };
        // Continue behind the bytes that came by a lost route.
        let buffers = tables.topics.of(topic).iter().filter_map(|bid| tables.topics.get(*bid));
        let ends =
            buffers.filter(|buffer| buffer.epoch == Some(epoch)).filter_map(|buffer| match buffer.stage {
                Stage::Ended { end, .. } => Some(end),
                _ => None,
            });
        let start = ends.max().map_or(Start::Oldest, |end| Start::Position(epoch, end));
        self.open(tables, offer, start, fx);
    }

    /// Makes another buffer of a log, which has not ended, the current one. Returns whether there is one.
    fn use_other_buffer(&mut self, tables: &Tables, topic: &TopicName, epoch: Epoch, except: Bid) -> bool {
        let is_other = |bid: &&Bid| {
            let buffer = tables.topics.get(**bid).filter(|buffer| buffer.epoch == Some(epoch));
            **bid != except && buffer.is_some_and(|buffer| !matches!(buffer.stage, Stage::Ended { .. }))
        };
        let other = tables.topics.of(topic).iter().find(is_other).copied();
        if let Some(other) = other {
            self.routes.set_current(epoch, other, None);
        }
        other.is_some()
    }

    /// Receives a log by the route of an offer.
    fn open(&mut self, tables: &mut Tables, offer: Offer, start: Start, fx: &mut Effects) {
        // Behind a hole, a ring does not know where deliveries begin. So one that goes on behind positions that were left out begins there.
        let start = if tables.is_shared(&offer.topic.topic) { Start::Oldest } else { start };
        let (key, in_bid, name) = (offer.key, offer.topic.bid, offer.topic.topic.clone());
        if let Err(reason) = self.try_open(tables, offer, start) {
            warn!("topic '{name}': buffer {in_bid} of another broker is not received: {reason}");
            let local = tables.sessions.get(key).and_then(|session| session.upstream_ids.local(in_bid));
            fx.extend(local.map(Effect::Remove));
        }
    }

    fn try_open(&mut self, tables: &mut Tables, offer: Offer, start: Start) -> Result<(), String> {
        let Offer { key, topic, path } = offer;
        let Some(session) = tables.sessions.get(key) else { return Ok(()) };
        let upstream = self.settings_of(session);
        let requested = upstream.and_then(|upstream| upstream.ring_bytes);
        let requested = requested.unwrap_or(tables.out.context().config().buffers.size_bytes);
        let hold = upstream.map_or(std::time::Duration::ZERO, UpstreamSettings::hold);
        let rule = tables.settings.topics.of(&topic.topic);
        let requested = rule.ring_bytes.unwrap_or(requested);
        let size_bytes = ring_bytes(requested, topic.max_delivery_bytes, &tables.settings);
        let size_bytes = size_bytes.map_err(|refused| refused.reason)?;
        let (first, most) = tables.first_and_most(requested, size_bytes);
        let retain_bytes = tables.retained_bytes(rule, first);
        let source = SourceBuffer { session: key, bid: topic.bid };
        let buffer = Buffer::opening(topic.topic, source, topic.framing, topic.max_delivery_bytes);
        let buffer = Buffer { epoch: Some(Epoch(topic.epoch)), path, ..buffer };
        let out_bid = tables.add_buffer(buffer).map_err(|refused| refused.reason)?;
        if let Some(session) = tables.sessions.get_mut(key) {
            session.mapping.insert(out_bid, out_bid);
            session.upstream_ids.insert(topic.bid, out_bid);
        }
        if let Some(buffer) = tables.topics.get_mut(out_bid) {
            buffer.in_bid = out_bid;
        }
        self.routes.set_current(Epoch(topic.epoch), out_bid, None);
        let options = SubscribeOptions::new()
            .size_bytes(first)
            // The deliveries may have become larger since the other broker has told of the topic.
            .max_size_bytes(most.max(largest_ring_bytes(&tables.settings)))
            .retain_bytes(Some(retain_bytes))
            .remote_id(Some(topic.bid))
            .start(start)
            .policy(Policy::Block)
            .durable(self.place_name.clone(), hold);
        tables.splice(key, out_bid, out_bid, options).map_err(|refused| refused.reason)
    }
}

/// Whether a buffer came from an earlier process of the broker that offers its log now, and waits for this offer.
fn waits_for(tables: &Tables, offer: &Offer, bid: Bid, buffer: &Buffer) -> bool {
    let ended = matches!(buffer.stage, Stage::Ended { .. });
    let has_route = |session: &Session| session.upstream_ids.remote(bid).is_some();
    buffer.session == offer.key && !ended && !tables.sessions.get(offer.key).is_none_or(has_route)
}

/// Sets whether the log of a buffer continues in another buffer, and announces a change to subscribers.
pub(super) fn set_continues(tables: &mut Tables, bid: Bid, yes: bool, fx: &mut Effects) {
    let Some(buffer) = tables.topics.get_mut(bid) else { return };
    if std::mem::replace(&mut buffer.continues, yes) != yes {
        fx.push(Effect::AnnounceContinues(bid));
    }
}
