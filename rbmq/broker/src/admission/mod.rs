//! The rights of the connected clients: of their users, for the broker's thread and for the framework's workers.
//!
//! ```text
//!   engine ── connected, topics, replays, reload ──▶ Admission ◀── SUBSCRIBE: may this connection read this buffer? ── worker
//! ```
//!
//! Ids of buffers are numbers that a client can guess, so the announcements to subscribers are no protection: the framework asks here
//! about each subscription. Rights are looked at when something begins, and again when they change, and never for a message.

mod permissions;

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::time::Instant;

use access::{
    Charge, Exceeded, Grants, Identity, NearLimit, Principal, QuotaLimits, Quotas, Resource, Rights,
};
use locks::{Mutex, MutexGuard};
use rbmq_wire::{TopicFilter, TopicName};
use rocketbufs::{Admitted, Asking, Bid, Context, GrowthCheck, Meter, MeterClock, PolicySet, RateLimits};

use super::rates::{RateSettings, RateUse, Rates};
use super::session_key::SessionKey;
pub(super) use permissions::{Changed, grants, not_allowed, not_allowed_at_all};
use permissions::{may_publish, may_subscribe, policies};

/// Users and addresses at or near a limit that are named.
pub(super) const MAX_NEAR_LIMIT: usize = 100;

/// A connected client.
struct Client {
    identity: Arc<Identity>,
    addr: Arc<str>,
    /// None: there are no rules, or the client is a part of this process; it may do everything.
    grants: Option<Arc<Grants>>,
    /// Whose quotas its objects are charged to.
    whom: Arc<[Principal]>,
    /// The connection itself, and its filters.
    charges: Vec<Charge>,
}

/// A buffer for subscribers.
struct Topic {
    name: TopicName,
    /// None: the broker's own, or that of another broker. Dropped with the buffer.
    charge: Option<Charge>,
}

#[derive(Default)]
struct State {
    /// None: every client may do everything.
    rights: Option<Arc<Rights>>,
    clients: HashMap<u64, Client>,
    topics: HashMap<Bid, Topic>,
    /// The topics of buffers that the last change of rights removed: their readers are looked at again later, and may have lost nothing.
    revoked: HashMap<Bid, TopicName>,
    is_revoking: bool,
    /// The buffers of publishers of merged topics, by their ids at the publishers.
    members: HashMap<(SessionKey, Bid), Charge>,
    quotas: Quotas,
    rates: Rates,
    /// The connection and the announced buffer of each replay.
    replays: HashMap<Bid, (u64, Bid)>,
    /// The newest replay of a connection and a buffer; a newer one ends it.
    newest: HashMap<(u64, Bid), Bid>,
    /// The growth of the rings of replays. A ring grows a few dozen times at most.
    grown: HashMap<Bid, Vec<Charge>>,
}

impl State {
    fn grants(&self, identity: &Identity) -> Option<Arc<Grants>> {
        grants(self.rights.as_ref(), identity)
    }

    fn forget_replay(&mut self, bid: Bid) {
        self.grown.remove(&bid);
        if let Some(of) = self.replays.remove(&bid)
            && self.newest.get(&of) == Some(&bid)
        {
            self.newest.remove(&of);
        }
    }

    /// The policies with which a connection may read a buffer; none if it may not.
    fn admit(&self, conn: u64, bid: Bid) -> Option<PolicySet> {
        if self.rights.is_none() {
            return Some(PolicySet::ALL);
        }
        let replay = self.replays.get(&bid);
        let bid = match replay {
            // A replay is for one connection.
            Some((of, _)) if *of != conn => return None,
            Some((_, live)) => *live,
            None => bid,
        };
        let topic = self.topics.get(&bid).map(|topic| &topic.name).or_else(|| self.revoked.get(&bid))?;
        let policies = self.clients.get(&conn)?.policies(topic);
        // Only its own reader waits for a replay, which holds no publisher back.
        let policies = if replay.is_some() && !policies.is_empty() { PolicySet::ALL } else { policies };
        (!policies.is_empty()).then_some(policies)
    }
}

impl Client {
    fn policies(&self, topic: &TopicName) -> PolicySet {
        self.grants.as_ref().map_or(PolicySet::ALL, |grants| policies(grants, topic))
    }

    /// Gives the client other rights. Returns the change, if there is one.
    fn change(&mut self, after: Option<Arc<Grants>>) -> Option<Changed> {
        let before = std::mem::replace(&mut self.grants, after.clone());
        Changed::between(&self.identity, before, after)
    }
}

/// The rights of all clients. Clones share them.
#[derive(Clone, Default)]
pub(super) struct Admission(Arc<Mutex<State>>);

impl Admission {
    pub(super) fn new(rights: Option<Arc<Rights>>, limits: QuotaLimits, rates: RateSettings) -> Self {
        let (quotas, rates) = (Quotas::new(limits), Rates::new(rates));
        Self(Arc::new(Mutex::new(State { rights, quotas, rates, ..State::default() })))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock()
    }

    /// A client is connected, from an address. Call this before it can ask for anything.
    pub(super) fn connected(&self, conn: u64, identity: &Arc<Identity>, addr: &str) -> Result<(), Exceeded> {
        let mut state = self.lock();
        let (grants, whom) = (state.grants(identity), whom(identity, addr));
        let charges = vec![state.quotas.charge(&whom, &[(Resource::Connections, 1)])?];
        state
            .clients
            .insert(conn, Client { identity: identity.clone(), addr: addr.into(), grants, whom, charges });
        Ok(())
    }

    /// Charges the connection of a client of a gateway with its filters. It counts until the drop of the result.
    pub(super) fn charge_connection(
        &self,
        identity: &Identity,
        addr: &str,
        filters: [(Resource, u64); 2],
    ) -> Result<Charge, Exceeded> {
        let quotas = self.lock().quotas.clone();
        let [names, patterns] = filters;
        quotas.charge(&whom(identity, addr), &[(Resource::Connections, 1), names, patterns])
    }

    /// Charges something to the user and the address of a connection. An unknown connection is charged nothing.
    fn charge(&self, conn: u64, amounts: &[(Resource, u64)]) -> Result<Charge, Exceeded> {
        let state = self.lock();
        let whom = state.clients.get(&conn).map_or_else(|| [].into(), |client| client.whom.clone());
        state.quotas.charge(&whom, amounts)
    }

    /// Charges new filters of a subscriber. They count until [`Admission::keep_filters`] or the drop of the result.
    pub(super) fn charge_filters(&self, conn: u64, filters: u64, patterns: u64) -> Result<Charge, Exceeded> {
        self.charge(conn, &[(Resource::Subscriptions, filters), (Resource::Patterns, patterns)])
    }

    /// Filters were accepted. They count until the connection is down.
    pub(super) fn keep_filters(&self, conn: u64, charge: Charge) {
        if let Some(client) = self.lock().clients.get_mut(&conn) {
            client.charges.push(charge);
        }
    }

    /// Charges the buffer of a publisher, with the broker's ring for it.
    pub(super) fn charge_buffer(&self, conn: u64, ring_bytes: u64) -> Result<Charge, Exceeded> {
        let ring_bytes = ring_bytes.checked_next_power_of_two().unwrap_or(u64::MAX);
        self.charge(conn, &[(Resource::Topics, 1), (Resource::RingBytes, ring_bytes)])
    }

    /// Charges a new group of workers, which counts as a topic of whoever makes it.
    pub(super) fn charge_group(&self, conn: u64) -> Result<Charge, Exceeded> {
        self.charge(conn, &[(Resource::Topics, 1)])
    }

    /// The same for a client of a gateway.
    pub(super) fn charge_group_of(&self, identity: &Identity, addr: &str) -> Result<Charge, Exceeded> {
        let quotas = self.lock().quotas.clone();
        quotas.charge(&whom(identity, addr), &[(Resource::Topics, 1)])
    }

    /// Charges the ring of a worker.
    pub(super) fn charge_worker(&self, conn: u64, ring_bytes: u64) -> Result<Charge, Exceeded> {
        self.charge(conn, &[(Resource::RingBytes, ring_bytes)])
    }

    /// Charges what the ring of a replay takes more to its subscriber. None: it has left the replay.
    pub(super) fn charge_replay(&self, bid: Bid, bytes: u64) -> Result<Option<Charge>, Exceeded> {
        let state = self.lock();
        let client = state.replays.get(&bid).and_then(|(conn, _)| state.clients.get(conn));
        client.map(|client| state.quotas.charge(&client.whom, &[(Resource::RingBytes, bytes)])).transpose()
    }

    /// The ring of a replay has grown. The charge counts until the subscriber has left it.
    pub(super) fn keep_replay(&self, bid: Bid, charge: Charge) {
        let mut state = self.lock();
        if state.replays.contains_key(&bid) {
            state.grown.entry(bid).or_default().push(charge);
        }
    }

    /// The least of the quotas that count the rings of a client.
    pub(super) fn most_ring_bytes(&self, conn: u64) -> Option<u64> {
        let state = self.lock();
        let whom = state.clients.get(&conn).into_iter().flat_map(|client| client.whom.iter());
        whom.filter_map(|who| state.quotas.limit(who, Resource::RingBytes)).min()
    }

    /// Asks the quotas of whoever publishes a buffer before its ring grows.
    pub(super) fn growth_of_buffer(&self, out_bid: Bid) -> GrowthCheck {
        let admission = self.clone();
        GrowthCheck::new(move |bytes| {
            let mut state = admission.lock();
            let charge = state.topics.get_mut(&out_bid).and_then(|topic| topic.charge.as_mut());
            has_ring(charge, bytes)
        })
    }

    /// As [`Admission::growth_of_buffer`], for the ring of a publisher of a merged topic.
    pub(super) fn growth_of_member(&self, key: SessionKey, in_bid: Bid) -> GrowthCheck {
        let admission = self.clone();
        GrowthCheck::new(move |bytes| has_ring(admission.lock().members.get_mut(&(key, in_bid)), bytes))
    }

    /// Charges what the ring of a merged topic takes more, to the publisher for whom it grows. None: to nobody.
    pub(super) fn charge_growth(
        &self,
        key: SessionKey,
        in_bid: Bid,
        bytes: u64,
    ) -> Result<Option<Charge>, Exceeded> {
        let state = self.lock();
        let member = state.members.get(&(key, in_bid));
        member.map(|charge| charge.beside(&[(Resource::RingBytes, bytes)])).transpose()
    }

    /// The buffer of a publisher was accepted. The charge counts until [`Admission::removed`].
    pub(super) fn keep_buffer(&self, out_bid: Bid, charge: Charge) {
        if let Some(topic) = self.lock().topics.get_mut(&out_bid) {
            topic.charge = Some(charge);
        }
    }

    /// The buffer of a publisher of a merged topic was accepted. The charge counts until [`Admission::member_left`].
    pub(super) fn keep_member(&self, key: SessionKey, in_bid: Bid, charge: Charge) {
        let before = self.lock().members.insert((key, in_bid), charge);
        drop(before);
    }

    /// The buffer of a publisher of a merged topic is given up.
    pub(super) fn member_left(&self, key: SessionKey, in_bid: Bid) {
        let charge = self.lock().members.remove(&(key, in_bid));
        drop(charge);
    }

    /// The users and addresses that have used up a quota or nearly so, at most `most`.
    pub(super) fn near_limit(&self, most: usize) -> Vec<NearLimit> {
        let quotas = self.lock().quotas.clone();
        quotas.near_limit(most)
    }

    /// Other limits are in force for later requests.
    pub(super) fn set_limits(&self, limits: QuotaLimits) {
        self.lock().quotas.set_limits(limits);
    }

    /// The limits on a connection's bytes per second.
    pub(super) fn rate_limits(&self, conn: u64, ctx: &Context) -> RateLimits {
        let mut state = self.lock();
        let whom = state.clients.get(&conn).map(|client| client.whom.clone());
        state.rates.forget_unused(ctx.meter_clock());
        state.rates.limits(whom.as_deref().unwrap_or_default())
    }

    /// The meter of a client of a gateway; none: it has no limits on bytes per second.
    pub(super) fn meter(&self, identity: &Identity, addr: &str, clock: MeterClock) -> Option<Meter> {
        let mut state = self.lock();
        if !state.rates.has_limits() {
            return None;
        }
        state.rates.forget_unused(clock);
        let limits = state.rates.limits(&whom(identity, addr));
        (!limits.is_empty()).then(|| Meter::new(limits, clock))
    }

    /// Other limits on bytes per second are in force. Returns the connections that need others than they have.
    pub(super) fn set_rates(&self, settings: RateSettings) -> Vec<(u64, RateLimits)> {
        let mut state = self.lock();
        if !state.rates.set(settings) {
            return Vec::new();
        }
        let State { clients, rates, .. } = &mut *state;
        clients.iter().map(|(conn, client)| (*conn, rates.limits(&client.whom))).collect()
    }

    /// The use of the limits on bytes per second, at most `most` of them, those that delay first.
    pub(super) fn rate_uses(&self, most: usize) -> Vec<RateUse> {
        self.lock().rates.uses(most, Instant::now())
    }

    /// A connection is down.
    pub(super) fn disconnected(&self, conn: u64) {
        let mut state = self.lock();
        state.clients.remove(&conn);
        let of_conn = state.replays.iter().filter(|(_, (of, _))| *of == conn).map(|(bid, _)| *bid);
        for bid in of_conn.collect::<Vec<_>>() {
            state.forget_replay(bid);
        }
    }

    /// A buffer belongs to a topic.
    pub(super) fn added(&self, bid: Bid, topic: &TopicName) {
        self.lock().topics.insert(bid, Topic { name: topic.clone(), charge: None });
    }

    /// A buffer was removed.
    pub(super) fn removed(&self, bid: Bid) {
        let mut state = self.lock();
        let removed = state.topics.remove(&bid);
        if state.is_revoking
            && let Some(topic) = &removed
        {
            state.revoked.insert(bid, topic.name.clone());
        }
    }

    /// Begins or ends the removal of topics that publishers may not publish any more.
    pub(super) fn set_revoking(&self, is_revoking: bool) {
        let mut state = self.lock();
        state.is_revoking = is_revoking;
        if is_revoking {
            state.revoked.clear();
        }
    }

    /// A connection asked for a replay of a buffer.
    pub(super) fn replays(&self, conn: u64, live: Bid, bid: Bid) {
        let mut state = self.lock();
        if let Some(before) = state.newest.insert((conn, live), bid) {
            state.replays.remove(&before);
            state.grown.remove(&before);
        }
        state.replays.insert(bid, (conn, live));
    }

    /// The subscription of a buffer has ended.
    pub(super) fn left(&self, bid: Bid) {
        let mut state = self.lock();
        if !state.replays.is_empty() {
            state.forget_replay(bid);
        }
    }

    /// Whether a connection may do something. With rules, an unknown connection may do nothing.
    fn may(&self, conn: u64, may: impl FnOnce(&Grants) -> bool) -> bool {
        let state = self.lock();
        let Some(client) = state.clients.get(&conn) else { return state.rights.is_none() };
        let grants = client.grants.clone();
        drop(state);
        grants.is_none_or(|grants| may(&grants))
    }

    /// Whether a connection may publish a topic.
    pub(super) fn may_publish(&self, conn: u64, topic: &TopicName) -> bool {
        self.may(conn, |grants| may_publish(grants, topic))
    }

    /// Whether a connection may read a topic.
    pub(super) fn may_read(&self, conn: u64, topic: &TopicName) -> bool {
        self.may(conn, |grants| may_subscribe(grants, topic))
    }

    /// Whether a user may observe the broker.
    pub(super) fn may_observe(&self, identity: &Identity) -> bool {
        self.of(identity).is_none_or(|grants| grants.may_observe())
    }

    /// Whether a user may connect as a broker.
    pub(super) fn may_chain(&self, identity: &Identity) -> bool {
        self.of(identity).is_none_or(|grants| grants.may_chain())
    }

    /// Whether a user may publish a topic, also while it is not connected.
    pub(super) fn user_may_publish(&self, identity: &Identity, topic: &TopicName) -> bool {
        self.of(identity).is_none_or(|grants| may_publish(&grants, topic))
    }

    /// Whether a user may read a topic, also while it is not connected.
    pub(super) fn user_may_read(&self, identity: &Identity, topic: &TopicName) -> bool {
        self.of(identity).is_none_or(|grants| may_subscribe(&grants, topic))
    }

    fn of(&self, identity: &Identity) -> Option<Arc<Grants>> {
        self.lock().grants(identity)
    }

    /// Splits filters into those that a subscriber may have and the names of topics that it may not read. A pattern gives what the
    /// subscriber may read, and is never refused.
    pub(super) fn split(&self, conn: u64, filters: Vec<TopicFilter>) -> (Vec<TopicFilter>, Vec<TopicName>) {
        let mut refused = Vec::new();
        let mut filters = filters;
        filters.retain(|filter| match filter.as_topic() {
            Some(topic) if !self.may_read(conn, &topic) => {
                refused.push(topic);
                false
            }
            _ => true,
        });
        (filters, refused)
    }

    /// The decision about subscriptions, for the framework's workers.
    pub(super) fn decide(&self) -> impl Fn(&Asking<'_>) -> Option<Admitted> + Send + Sync + use<> {
        let (admission, users) = (self.clone(), RandomState::new());
        move |asking| {
            let state = admission.lock();
            let policies = state.admit(asking.conn, asking.bid)?;
            // The name of a subscription belongs to its user: knowing it gives nobody else the place.
            let owner =
                state.clients.get(&asking.conn).map_or(0, |client| users.hash_one(&client.identity.user));
            Some(Admitted { policies, owner })
        }
    }

    /// The user of a connection, and its address.
    pub(super) fn identity(&self, conn: u64) -> Option<(Arc<Identity>, Arc<str>)> {
        self.lock().clients.get(&conn).map(|client| (client.identity.clone(), client.addr.clone()))
    }

    /// The users of some connections have other roles. Returns the clients with other rights than before.
    pub(super) fn set_identities(&self, identities: Vec<(u64, Arc<Identity>)>) -> HashMap<u64, Changed> {
        let mut state = self.lock();
        let mut changed = HashMap::new();
        for (conn, identity) in identities {
            let after = state.grants(&identity);
            let Some(client) = state.clients.get_mut(&conn) else { continue };
            client.identity = identity;
            changed.extend(client.change(after).map(|change| (conn, change)));
        }
        changed
    }

    /// Other rules are in force. Returns the clients with other rights than before.
    pub(super) fn reload(&self, rights: Option<Arc<Rights>>) -> HashMap<u64, Changed> {
        let mut state = self.lock();
        if rights.as_ref().map(|rights| rights.rules()) == state.rights.as_ref().map(|rights| rights.rules())
        {
            return HashMap::new();
        }
        state.rights = rights.clone();
        let mut changed = HashMap::new();
        for (conn, client) in &mut state.clients {
            let after = grants(rights.as_ref(), &client.identity);
            changed.extend(client.change(after).map(|change| (*conn, change)));
        }
        changed
    }
}

/// The ring of a buffer has so many bytes from now on, if the quotas allow it.
fn has_ring(charge: Option<&mut Charge>, bytes: u64) -> Result<(), String> {
    let set = charge.map(|charge| charge.set(&[(Resource::RingBytes, bytes)]));
    set.transpose().map(drop).map_err(|exceeded| exceeded.to_string())
}

/// Whose quotas a client is charged to: its user, if it has one, and its address, if it came over a network. A part of this process
/// is charged to nobody.
fn whom(identity: &Identity, addr: &str) -> Arc<[Principal]> {
    if identity.is_own() {
        return [].into();
    }
    let user = (!identity.user.is_empty()).then(|| Principal::User(identity.user.as_str().into()));
    let address = addr.parse().ok().map(Principal::Address);
    user.into_iter().chain(address).collect()
}

#[cfg(test)]
mod tests {
    use access::{AccessRule, Limits};

    use super::*;

    fn rights(user: &str, topics: &[&str]) -> Option<Arc<Rights>> {
        let mut rule = AccessRule::for_user(user);
        rule.subscribe = topics.iter().map(|topic| topic.parse().unwrap()).collect();
        Some(Arc::new(Rights::new(vec![rule]).unwrap()))
    }

    fn anna() -> Arc<Identity> {
        Arc::new(Identity { user: "anna".into(), ..Identity::anonymous() })
    }

    fn name(topic: &str) -> TopicName {
        topic.parse().unwrap()
    }

    /// Whether the framework is told that a connection may subscribe.
    fn admits(admission: &Admission, conn: u64, bid: Bid) -> bool {
        admission.lock().admit(conn, bid).is_some()
    }

    #[test]
    fn a_subscription_needs_a_client_a_topic_and_a_right() {
        let admission =
            Admission::new(rights("anna", &["a/#"]), QuotaLimits::default(), RateSettings::default());
        admission.added(7, &name("a/x"));
        admission.added(8, &name("b"));
        assert!(!admits(&admission, 1, 7), "the connection is not known");
        admission.connected(1, &anna(), "shm").unwrap();
        admission.connected(2, &Arc::new(Identity::anonymous()), "shm").unwrap();
        assert!(admits(&admission, 1, 7) && !admits(&admission, 1, 8) && !admits(&admission, 1, 9));
        assert!(!admits(&admission, 2, 7));
        assert!(admission.may_read(1, &name("a")) && !admission.may_publish(1, &name("a")));
        // A buffer that goes because of its publisher's rights takes none from its readers.
        admission.set_revoking(true);
        admission.removed(7);
        admission.set_revoking(false);
        assert!(admits(&admission, 1, 7) && !admits(&admission, 2, 7));
        admission.set_revoking(true);
        assert!(!admits(&admission, 1, 7));
        admission.set_revoking(false);
        admission.disconnected(1);
        assert!(!admits(&admission, 1, 7) && !admission.may_read(1, &name("a")));
        let open = Admission::default();
        assert!(admits(&open, 1, 7) && open.may_publish(1, &name("b")) && open.may_chain(&anna()));
    }

    #[test]
    fn a_replay_is_for_the_connection_that_asked_and_follows_its_topic() {
        let admission =
            Admission::new(rights("anna", &["a"]), QuotaLimits::default(), RateSettings::default());
        admission.added(7, &name("a"));
        for conn in [1, 2] {
            admission.connected(conn, &anna(), "shm").unwrap();
        }
        admission.replays(1, 7, 20);
        // Nobody but its reader waits for a replay.
        assert_eq!(admission.lock().admit(1, 20), Some(PolicySet::ALL));
        assert!(admits(&admission, 1, 20) && !admits(&admission, 2, 20));
        admission.replays(1, 7, 21);
        assert!(!admits(&admission, 1, 20) && admits(&admission, 1, 21));
        admission.left(21);
        admission.replays(2, 7, 22);
        admission.disconnected(2);
        let state = admission.lock();
        assert_eq!((state.replays.len(), state.newest.len(), state.clients.len()), (0, 0, 1));
    }

    #[test]
    fn a_reload_tells_which_rights_have_changed() {
        let admission =
            Admission::new(rights("anna", &["a", "b"]), QuotaLimits::default(), RateSettings::default());
        admission.connected(1, &anna(), "shm").unwrap();
        admission.connected(2, &Arc::new(Identity::anonymous()), "shm").unwrap();
        assert!(admission.reload(rights("anna", &["a", "b"])).is_empty(), "nothing has changed");
        let changed = admission.reload(rights("anna", &["b", "c"]));
        assert_eq!(changed.keys().copied().collect::<Vec<_>>(), [1]);
        let changed = &changed[&1];
        let of = |topic: &str| (changed.lost(&name(topic)), changed.gained(&name(topic)));
        assert_eq!(
            ["a", "b", "c", "d"].map(of),
            [(true, false), (false, false), (false, true), (false, false)]
        );
        assert_eq!(admission.reload(None).len(), 2, "without rules everything is allowed");
        assert!(admission.may_publish(2, &name("x")));
    }

    #[test]
    fn names_that_may_not_be_read_are_refused_and_patterns_are_not() {
        let admission =
            Admission::new(rights("anna", &["a/#"]), QuotaLimits::default(), RateSettings::default());
        admission.connected(1, &anna(), "shm").unwrap();
        let filters: Vec<TopicFilter> = ["a/x", "b", "#", "c/+"].map(|text| text.parse().unwrap()).into();
        let (kept, refused) = admission.split(1, filters.clone());
        assert_eq!(kept, ["a/x", "#", "c/+"].map(|text| text.parse().unwrap()));
        assert_eq!(refused, [name("b")]);
        assert_eq!(Admission::default().split(1, filters.clone()), (filters, Vec::new()));
    }

    #[test]
    fn everything_of_a_connection_is_given_back_when_it_is_down() {
        let limit = |resource| Limits::none().with(resource, Some(1));
        let limits = QuotaLimits { user: limit(Resource::Connections), address: limit(Resource::Topics) };
        let admission = Admission::new(None, limits, RateSettings::default());
        admission.connected(1, &anna(), "[2001:db8::1]:9").unwrap();
        let error = admission.connected(2, &anna(), "10.0.0.1:9").unwrap_err().to_string();
        assert_eq!(error, "user 'anna' has 1 connections; the limit (quotas.user_connections) is 1");
        // A client without a user counts for its network alone.
        admission.connected(3, &Arc::new(Identity::anonymous()), "[2001:db8::2]:7").unwrap();
        admission.added(7, &name("a"));
        admission.keep_buffer(7, admission.charge_buffer(1, 1000).unwrap());
        let error = admission.charge_buffer(3, 1).unwrap_err().to_string();
        assert!(error.starts_with("address 2001:db8:: has 1 topics;"), "{error}");
        assert_eq!(admission.near_limit(9).len(), 2);
        admission.removed(7);
        let key = SessionKey { instance: 1, client: 1 };
        admission.keep_member(key, 7, admission.charge_buffer(3, 1).unwrap());
        admission.member_left(key, 7);
        admission.keep_filters(3, admission.charge_filters(3, 5, 2).unwrap());
        admission.disconnected(1);
        admission.disconnected(3);
        assert!(admission.near_limit(9).is_empty());
        admission.connected(2, &anna(), "10.0.0.1:9").unwrap();
    }
}
