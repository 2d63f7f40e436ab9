//! Chains and meshes: buffers that come from other brokers (`[[broker.upstream]]`).
//!
//! ```text
//!   publisher ──▶ A ──▶ B ──▶ subscriber        B is a subscriber of A that passes on what it receives
//!                  ╲──▶ C ──▶ D                 positions and the epoch are the publisher's everywhere
//!                        B ──▶ D                D is offered the buffer twice, and takes it once
//! ```
//!
//! An offer names the brokers that the buffer has passed. A broker that finds itself there ends the loop. Of several
//! offers of one log the first is taken, until there is one that is its beginning (`moves.rs`); the others are kept, and
//! when the one in use is lost the next goes on exactly there, as a position means the same at every broker. A broker that was restarted offers what it has again:
//! a log that came from there goes on in the ring that it has here, and nobody behind hears of it.

use std::collections::HashMap;

use rbmq_wire::connect::random;
use rbmq_wire::{Control, Framing, Hello, Role, Topic, TopicName};
use rocketbufs::fields::printable;
use rocketbufs::{Bid, Conn, Context, Epoch, Policy, Start, SubscribeOptions, SubscriberInfo};
use tracing::{debug, info, warn};

use super::BrokerError;
use super::config::{BrokerSettings, UpstreamSettings};
use super::control::{Broker, send};
use super::inbox::Sender;
use super::session::{Session, SessionKey};
use super::topics::{Buffer, Stage, TooManyTopics};
use super::upstream::Dialer;

/// A buffer that another broker has.
struct Offer {
    key: SessionKey,
    topic: Topic,
    path: Vec<u128>,
}

/// From one broker to the next.
#[derive(Debug, Clone, Copy)]
pub(super) struct Hop {
    from: u128,
    to: u128,
}

impl Hop {
    /// The path of a buffer behind it; none if the buffer has been there, or far enough.
    pub(super) fn extend(self, path: &[u128]) -> Option<Vec<u128>> {
        let far = path.len() >= Control::MAX_HOPS;
        (!far && !path.contains(&self.to)).then(|| [path, &[self.from]].concat())
    }
}

/// Whether a way is the beginning of another one, which leads over its end.
pub(super) fn is_shorter(path: &[u128], than: &[u128]) -> bool {
    path.len() < than.len() && than.starts_with(path)
}

/// What is known of other brokers.
pub(super) struct Chain {
    /// Names this broker's process to others.
    id: u128,
    /// A number that nobody else knows: with it the sessions of other brokers have names under which no client can
    /// come.
    secret: u128,
    upstreams: Vec<UpstreamSettings>,
    /// How many brokers subscribe here.
    pub(super) peers: usize,
    /// They connect as long as they live.
    dialers: Vec<Dialer>,
    /// The newest buffer of each log.
    by_epoch: HashMap<Epoch, Bid>,
    /// Offers of logs that come by another way already. At most one for each upstream broker and buffer there.
    spare: HashMap<Epoch, Vec<Offer>>,
}

impl Chain {
    /// Starts to connect to the other brokers.
    pub(super) fn start(
        ctx: &Context,
        settings: &BrokerSettings,
        events: &Sender,
    ) -> Result<Self, BrokerError> {
        let number = || random().map_err(|e| BrokerError::Random(e.to_string()));
        let (id, secret) = (number()?, number()?);
        let hello = Hello { role: Role::Broker, client: id, name: settings.listen.clone() }.encode();
        let upstreams = settings.upstream.clone();
        let dial = |(index, upstream): (usize, &UpstreamSettings)| {
            Dialer::start(ctx, (index, &upstream.address), hello.clone(), events.clone())
        };
        let dialers = upstreams.iter().enumerate().map(dial).collect::<Result<_, _>>();
        let dialers = dialers.map_err(BrokerError::Thread)?;
        let (by_epoch, spare) = (HashMap::new(), HashMap::new());
        Ok(Self { id, secret, peers: 0, upstreams, dialers, by_epoch, spare })
    }

    /// Connects no more.
    pub(super) fn stop(&mut self) {
        self.dialers.clear();
    }

    /// A buffer of a log is here now; before it was taken for one of another log, if that was known.
    pub(super) fn has(&mut self, epoch: Epoch, bid: Bid, before: Option<Epoch>) {
        if let Some(before) = before {
            self.removed(before, bid);
        }
        self.by_epoch.insert(epoch, bid);
    }

    /// A buffer was removed.
    pub(super) fn removed(&mut self, epoch: Epoch, bid: Bid) {
        if self.by_epoch.get(&epoch) == Some(&bid) {
            self.by_epoch.remove(&epoch);
        }
    }

    /// A log has ended in order, everywhere.
    pub(super) fn closed(&mut self, epoch: Epoch) {
        self.spare.remove(&epoch);
    }

    /// How many other brokers than this one offer the log that comes in a buffer now.
    pub(super) fn spare_ways(&self, epoch: Epoch, bid: Bid, but: SessionKey) -> usize {
        let offers = self.spare.get(&epoch).filter(|_| self.by_epoch.get(&epoch) == Some(&bid));
        offers.map_or(0, |offers| offers.iter().filter(|offer| offer.key != but).count())
    }

    /// Names the session of a configured broker, whatever process it is.
    fn key(&self, index: usize) -> SessionKey {
        SessionKey { instance: self.id, client: self.secret ^ index as u128 }
    }

    fn withdraw(&mut self, gone: impl Fn(&Offer) -> bool) {
        self.spare.retain(|_, offers| {
            offers.retain(|offer| !gone(offer));
            !offers.is_empty()
        });
    }

    fn keep_spare(&mut self, offer: Offer) {
        let offers = self.spare.entry(Epoch(offer.topic.epoch)).or_default();
        offers.retain(|known| known.key != offer.key);
        offers.push(offer);
    }

    fn next_spare(&mut self, epoch: Epoch) -> Option<Offer> {
        let offers = self.spare.get_mut(&epoch)?;
        let shortest = (0..offers.len()).min_by_key(|i| offers[*i].path.len())?;
        let offer = offers.swap_remove(shortest);
        if offers.is_empty() {
            self.spare.remove(&epoch);
        }
        Some(offer)
    }

    /// What lies between this broker and another one that subscribes here.
    pub(super) fn hop_to(&self, to: u128) -> Hop {
        Hop { from: self.id, to }
    }
}

impl Broker {
    /// A connection to another broker is up.
    pub(super) fn on_upstream_up(&mut self, index: usize, conn: Conn) {
        let Some(upstream) = self.chain.upstreams.get(index) else { return };
        if self.draining {
            return conn.close("the broker is shutting down");
        }
        let key = self.chain.key(index);
        let (wanted, name) = (Control::topics(&upstream.topics), upstream.address.clone());
        if self.sessions.get(&key).is_some_and(|session| !session.is_same(&conn)) {
            // What the process before had offered is void.
            self.on_way_lost(key);
        }
        match self.sessions.get_mut(&key) {
            Some(session) => session.resume(conn.clone()),
            None => {
                let session = Session::new(key, conn.clone(), (name, Some(index)), &self.events);
                self.sessions.insert(key, session);
            }
        }
        wanted.iter().for_each(|message| send(&conn, message));
    }

    /// What another broker says.
    pub(super) fn on_upstream_control(&mut self, key: SessionKey, message: &[u8]) {
        match Control::decode(message) {
            Ok(Control::TopicVia { topic, path }) => self.on_topic_via(Offer { key, topic, path }),
            // What is there has been told; what appears is told as it does.
            Ok(Control::Told) => {}
            Ok(Control::TopicGone { bid, .. }) => {
                self.chain.withdraw(|offer| offer.key == key && offer.topic.bid == bid);
            }
            Ok(Control::Continues { bid, yes }) => {
                if let Some(out_bid) = self.sessions.get(&key).and_then(|session| session.theirs.ours(bid)) {
                    self.on_continues(out_bid, yes);
                }
            }
            Ok(Control::Rejected { reason }) => {
                if let Some(session) = self.sessions.get(&key) {
                    warn!("{session} refused: {}", printable(&reason));
                }
            }
            Ok(_) => self.expel(key, "a broker sent a message that is not for brokers"),
            Err(error) => self.expel(key, &error.to_string()),
        }
    }

    fn on_topic_via(&mut self, offer: Offer) {
        let (epoch, in_bid) = (Epoch(offer.topic.epoch), offer.topic.bid);
        if offer.path.contains(&self.chain.id) {
            return debug!("topic '{}': a loop ends here", offer.topic.topic);
        }
        let Some(session) = self.sessions.get(&offer.key) else { return };
        let upstream = session.upstream.and_then(|index| self.chain.upstreams.get(index));
        if !upstream.is_some_and(|upstream| upstream.wants(&offer.topic.topic)) {
            return debug!("topic '{}' of {session} was not asked for", offer.topic.topic);
        }
        // A log of its own that a broker began after it was restarted: what is gone of it was to come here.
        let follows = session.restarted && offer.topic.framing == Framing::Merged && offer.path.len() == 1;
        if let Some(out_bid) = session.theirs.ours(in_bid) {
            let same = |buffer: &Buffer| buffer.epoch == Some(epoch) && !buffer.gone;
            if self.topics.get(out_bid).is_some_and(same) {
                // Told again after a reconnect: the rIn goes on by itself; what was said of subscribers is forgotten.
                return self.tell_subscribers_again(out_bid);
            }
            self.remove_buffer(out_bid);
        }
        let known = self.chain.by_epoch.get(&epoch).and_then(|bid| Some((*bid, self.topics.get(*bid)?)));
        if let Some((bid, _)) = known.filter(|(bid, buffer)| self.waits_for(&offer, *bid, buffer)) {
            return self.on_offered_again(offer, bid);
        }
        let shorter = known.is_some_and(|(_, buffer)| is_shorter(&offer.path, &buffer.path));
        match known.map(|(_, buffer)| (buffer.gone, buffer.stage)) {
            Some((false, _)) if shorter => self.open_offer(offer, Start::Oldest),
            Some((false, _)) => self.on_spare(offer),
            Some((true, Stage::Ended { end, .. })) => self.open_offer(offer, Start::Position(epoch, end)),
            _ if follows => self.open_offer(offer, Start::First),
            _ => self.open_offer(offer, Start::Oldest),
        }
    }

    /// Whether a buffer came from the process that was there before the one that offers its log.
    fn waits_for(&self, offer: &Offer, bid: Bid, buffer: &Buffer) -> bool {
        let ended = matches!(buffer.stage, Stage::Ended { .. });
        let has_way = |session: &Session| session.theirs.of(bid).is_some();
        buffer.session == offer.key && !ended && !self.sessions.get(&offer.key).is_none_or(has_way)
    }

    /// The broker that a log came from was restarted and has it again.
    fn on_offered_again(&mut self, offer: Offer, bid: Bid) {
        let (Some(session), Some(buffer)) = (self.sessions.get_mut(&offer.key), self.topics.get_mut(bid))
        else {
            return;
        };
        info!("topic '{}': buffer {bid} goes on at {session}, which was restarted", buffer.topic);
        session.theirs.insert(offer.topic.bid, bid);
        buffer.path.clone_from(&offer.path);
        let (rin, in_bid, there) = (session.rin.clone(), buffer.in_bid, offer.topic.bid);
        // Where the ring here is memory of the process before, it ends instead, and the log goes on in another one.
        // Subscribers have to know that before.
        self.on_spare(offer);
        rin.continue_as(in_bid, there);
        self.tell_subscribers_again(bid);
    }

    /// Another way to a log that is here.
    fn on_spare(&mut self, offer: Offer) {
        let epoch = Epoch(offer.topic.epoch);
        self.chain.keep_spare(offer);
        if let Some(bid) = self.chain.by_epoch.get(&epoch).copied() {
            self.tell_continues(bid, true);
        }
    }

    /// A buffer gives way to one of another broker that is nearer: how it comes is another way from now on.
    pub(super) fn becomes_spare(&mut self, from: Bid, to: Bid) {
        let (Some(buffer), Some(to)) = (self.topics.get(from), self.topics.get(to)) else { return };
        let key = buffer.session;
        let there = self.sessions.get(&key).and_then(|session| session.theirs.of(from));
        // Where the publisher is here, others have its log from here.
        let (Some(bid), Some(epoch), false) = (there, buffer.epoch, to.path.is_empty() || buffer.gone) else {
            return;
        };
        let topic = Topic {
            bid,
            epoch: epoch.0,
            framing: buffer.framing,
            fresh: false,
            max_delivery_bytes: buffer.max_delivery_bytes,
            topic: buffer.topic.clone(),
        };
        let path = buffer.path.clone();
        self.on_spare(Offer { key, topic, path });
    }

    /// The connection to a publisher or to another broker is lost. What the other one offered it tells again when it
    /// is back.
    pub(super) fn on_way_lost(&mut self, key: SessionKey) {
        self.chain.withdraw(|offer| offer.key == key);
        let Some(session) = self.sessions.get(&key).filter(|session| session.upstream.is_some()) else {
            return;
        };
        for bid in session.mapping.out_bids() {
            self.on_continues(bid, false);
        }
    }

    /// The broker that a buffer comes from tells whether its log goes on there if the buffer ends.
    fn on_continues(&mut self, bid: Bid, yes: bool) {
        let Some(buffer) = self.topics.get_mut(bid) else { return };
        buffer.continues_there = yes;
        let (gone, epoch) = (buffer.gone, buffer.epoch);
        match yes {
            true => self.tell_continues(bid, true),
            // Nothing comes any more.
            false if gone && epoch.is_some_and(|epoch| self.chain.by_epoch.get(&epoch) == Some(&bid)) => {
                self.tell_continues(bid, false);
            }
            false => {}
        }
    }

    /// Tells subscribers whether to give a log up when this buffer ends: there is another way to it, or there is not.
    pub(super) fn tell_continues(&mut self, bid: Bid, yes: bool) {
        let Some(buffer) = self.topics.get_mut(bid) else { return };
        if std::mem::replace(&mut buffer.continues, yes) == yes {
            return;
        }
        let topic = buffer.topic.clone();
        self.announce_continues(bid, &topic);
    }

    /// The way by which a log came is lost: another one, if there is one, goes on where it stopped.
    pub(super) fn go_on(&mut self, bid: Bid, epoch: Epoch, end: u64) {
        self.moves.ended(bid);
        let topic = self.topics.get(bid).map(|buffer| buffer.topic.clone());
        if topic.is_some_and(|topic| self.still_here(&topic, epoch, bid)) {
            // By a shorter way, or by a longer one that was still needed.
            return self.tell_continues(bid, true);
        }
        if let Some(offer) = self.chain.next_spare(epoch) {
            info!("topic '{}': goes on at {end} by another broker", offer.topic.topic);
            return self.open_offer(offer, Start::Position(epoch, end));
        }
        if self.topics.get(bid).is_some_and(|buffer| !buffer.continues_there) {
            self.tell_continues(bid, false);
        }
    }

    /// The way that was taken to a log is refused: another one, if there is one, is taken instead.
    pub(super) fn take_spare(&mut self, topic: &TopicName, epoch: Epoch) {
        if self.chain.by_epoch.contains_key(&epoch) {
            return;
        }
        let Some(offer) = self.chain.next_spare(epoch) else { return };
        // What of it came before, by a way that was lost.
        let buffers = self.topics.of(topic).iter().filter_map(|bid| self.topics.get(*bid));
        let ends =
            buffers.filter(|buffer| buffer.epoch == Some(epoch)).filter_map(|buffer| match buffer.stage {
                Stage::Ended { end, .. } => Some(end),
                _ => None,
            });
        let start = ends.max().map_or(Start::Oldest, |end| Start::Position(epoch, end));
        self.open_offer(offer, start);
    }

    /// A buffer of a log that has not ended, besides one that goes; that is the one of the log then.
    pub(super) fn still_here(&mut self, topic: &TopicName, epoch: Epoch, but: Bid) -> bool {
        let has = |bid: &&Bid| {
            let buffer = self.topics.get(**bid).filter(|buffer| buffer.epoch == Some(epoch));
            **bid != but && buffer.is_some_and(|buffer| !matches!(buffer.stage, Stage::Ended { .. }))
        };
        let other = self.topics.of(topic).iter().find(has).copied();
        if let Some(other) = other {
            self.chain.by_epoch.insert(epoch, other);
        }
        other.is_some()
    }

    fn open_offer(&mut self, offer: Offer, start: Start) {
        let (key, in_bid, name) = (offer.key, offer.topic.bid, offer.topic.topic.clone());
        if let Err(reason) = self.try_offer(offer, start) {
            warn!("topic '{name}': buffer {in_bid} of another broker is not taken: {reason}");
            if let Some(out_bid) = self.sessions.get(&key).and_then(|session| session.theirs.ours(in_bid)) {
                self.remove_buffer(out_bid);
            }
        }
    }

    fn try_offer(&mut self, offer: Offer, start: Start) -> Result<(), String> {
        let Offer { key, topic, path } = offer;
        let Some(session) = self.sessions.get(&key) else { return Ok(()) };
        let upstream = session.upstream.and_then(|index| self.chain.upstreams.get(index));
        let asked = upstream.and_then(|upstream| upstream.ring_bytes);
        let asked = asked.unwrap_or(self.out.context().config().buffers.size_bytes);
        let hold = upstream.map_or(std::time::Duration::ZERO, UpstreamSettings::hold);
        let rule = self.settings.topics.of(&topic.topic);
        let asked = rule.ring_bytes.unwrap_or(asked);
        let size_bytes = self.ring_size(asked, topic.max_delivery_bytes).map_err(|(_, reason)| reason)?;
        let retain_bytes = self.retained(rule, size_bytes);
        let shape = (topic.framing, topic.max_delivery_bytes);
        let buffer = Buffer::opening(topic.topic, (key, topic.bid), shape);
        let buffer = Buffer { epoch: Some(Epoch(topic.epoch)), path, ..buffer };
        let max = self.settings.max_topics;
        let out_bid = self.topics.add(buffer, max).map_err(|TooManyTopics { open }| {
            format!("there are {open} topics; the limit (broker.max_topics) is {max}")
        })?;
        if let Some(session) = self.sessions.get_mut(&key) {
            session.mapping.insert(out_bid, out_bid);
            session.theirs.insert(topic.bid, out_bid);
        }
        if let Some(buffer) = self.topics.get_mut(out_bid) {
            buffer.in_bid = out_bid;
        }
        self.chain.has(Epoch(topic.epoch), out_bid, None);
        let options = SubscribeOptions::new()
            .size_bytes(size_bytes)
            .retain_bytes(Some(retain_bytes))
            .remote_id(Some(topic.bid))
            .start(start)
            .policy(Policy::Block)
            .durable(format!("rbmq-broker {:032x}", self.chain.id).into_bytes(), hold);
        self.splice_in(key, out_bid, out_bid, options).map_err(|(_, reason)| reason)
    }

    /// A broker that subscribes here tells how many subscribers it has.
    pub(super) fn on_downstream(&mut self, conn: &Conn, bid: Bid, count: u32) {
        // The connection may be gone already, or the buffer.
        let Some(watcher) = self.watchers.get(&conn.id()) else { return };
        if watcher.hop.is_none() {
            return conn.close("a subscriber sent a message that only brokers send");
        }
        if let Some(buffer) = self.topics.get_mut(bid) {
            buffer.behind.insert(conn.id(), count);
            self.tell_subscribers(bid);
        }
    }

    /// How many subscribers have a place in a buffer: here, and behind the brokers that subscribe here.
    pub(super) fn count_subscribers(&self, bid: Bid) -> u32 {
        if self.chain.peers == 0 {
            return u32::try_from(self.out.subscriber_count(bid)).unwrap_or(u32::MAX);
        }
        let Some(buffer) = self.topics.get(bid) else { return 0 };
        let behind = |sub: &SubscriberInfo| {
            let is_broker = self.watchers.get(&sub.conn).is_some_and(|watcher| watcher.hop.is_some());
            if is_broker { buffer.behind.get(&sub.conn).copied().unwrap_or(0) } else { 1 }
        };
        self.out.subscribers(bid).iter().map(behind).fold(0, u32::saturating_add)
    }
}
