//! SUBSCRIBE and UNSUBSCRIBE.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

use rbmq_wire::TopicFilter;

use crate::protocol::{ConnId, Cx, FilterCount};

use super::codec::{
    Answer, Packet, Properties, Property, Request, SubscribeOptions, Version, WantedFilter, reason,
};
use super::session::Subscription;
use super::settings::{MAX_MEMBERS, MAX_WALK, MAX_WILD_LEVELS};
use super::shares::Target;
use super::state::{Coming, Fault, Mqtt, RetainedWish, Route, Step, Subscriber, Subscribing};

/// The topics of the gateway itself. They never go over the bus.
pub(super) const OWN_TOPICS: &str = "$SYS";

impl Mqtt {
    /// Begins SUBSCRIBE. SUBACK goes out when all filters are in force, and the retained messages behind it.
    pub(super) fn subscribe(
        &mut self,
        conn: ConnId,
        slot: usize,
        request: Request<'_>,
        cx: &mut Cx<'_>,
    ) -> Result<Step, Fault> {
        let id = request.properties.iter().find_map(|property| match property {
            Property::SubscriptionId(id) => Some(id),
            _ => None,
        });
        let mut subscribing = Subscribing {
            packet_id: request.packet_id,
            reasons: Vec::new(),
            fresh: Vec::new(),
            waits: Vec::new(),
            retained: BTreeMap::new(),
        };
        for (at, wanted) in request.filters.iter().enumerate() {
            let granted = match at < self.settings.max_subscriptions {
                true => self.subscribe_to(conn, slot, wanted, id, &mut subscribing, cx)?,
                false => reason::QUOTA,
            };
            subscribing.reasons.push(granted);
        }
        if subscribing.waits.is_empty() {
            self.send_suback(conn, slot, &mut subscribing, cx);
        }
        if let Some(client) = self.clients.get_mut(&conn) {
            client.subscribing = Some(Box::new(subscribing));
        }
        Ok(self.go_on_subscribing(conn, slot, cx))
    }

    /// Goes on with a SUBSCRIBE.
    pub(super) fn go_on_subscribing(&mut self, conn: ConnId, slot: usize, cx: &mut Cx<'_>) -> Step {
        let client = self.clients.get_mut(&conn);
        let Some(mut subscribing) = client.and_then(|client| client.subscribing.take()) else {
            return Step::Done;
        };
        let step = match subscribing.waits.is_empty() {
            true => self.serve_retained(conn, slot, &mut subscribing, cx),
            false => Step::Waits,
        };
        if let Some(client) = self.clients.get_mut(&conn).filter(|_| step != Step::Done) {
            client.subscribing = Some(subscribing);
        }
        step
    }

    /// Sends retained messages, until the search has cost much.
    fn serve_retained(
        &mut self,
        conn: ConnId,
        slot: usize,
        subscribing: &mut Subscribing,
        cx: &mut Cx<'_>,
    ) -> Step {
        let mut walked = 0;
        while walked < MAX_WALK {
            let Some((filter, wish)) = subscribing.retained.pop_first() else { return Step::Done };
            // What the gateway tells of itself is in all sessions.
            walked += if is_own(&filter) { self.sessions.len() } else { self.retained.len() };
            self.send_retained(conn, slot, &filter, wish, cx);
        }
        Step::Later
    }

    /// Subscribes to one filter. Returns the reason code.
    fn subscribe_to(
        &mut self,
        conn: ConnId,
        slot: usize,
        wanted: WantedFilter<'_>,
        id: Option<u32>,
        subscribing: &mut Subscribing,
        cx: &mut Cx<'_>,
    ) -> Result<u8, Fault> {
        let (Some(target), Ok(filter)) = (Target::of(wanted.filter), wanted.filter.parse::<TopicFilter>())
        else {
            return Ok(reason::FILTER_INVALID);
        };
        if target.group.is_some() && wanted.options.no_local {
            return Err(Fault::protocol("a shared subscription without own messages"));
        }
        if wanted.filter.contains(['+', '#']) && filter.levels().count() > MAX_WILD_LEVELS {
            return Ok(reason::FILTER_INVALID);
        }
        // Topics of the broker itself: as for PUBLISH.
        let is_own = target.group.is_none() && is_own(&target.filter);
        let is_the_brokers = target.filter.as_str().starts_with('$') && !is_own;
        if is_the_brokers || !cx.door.may_subscribe_to_some(conn, &target.filter) {
            return Ok(reason::NOT_AUTHORIZED);
        }
        let is_new = !self.sessions[slot].is_subscribed(&filter);
        if is_new && (!self.has_room_for(slot, &target) || !self.may_have(conn, slot, &filter, cx)) {
            return Ok(reason::QUOTA);
        }
        let session = &mut self.sessions[slot];
        session.subscribe(filter.clone(), Subscription { options: wanted.options, id });
        let subscriber = Subscriber { slot, options: wanted.options, id, since: self.retained_so_far };
        let is_shared = target.group.is_some();
        if !self.join_route(subscriber, &target, cx) {
            subscribing.await_filter(&filter, target.filter);
        }
        if is_shared {
            // Retained messages are for one subscriber, and these are several.
            return Ok(wanted.options.qos);
        }
        if is_new {
            subscribing.fresh.push(filter.clone());
        }
        let SubscribeOptions { qos, retain_handling, .. } = wanted.options;
        let wish = RetainedWish { qos, id };
        if retain_handling == 0 || (retain_handling == 1 && is_new) {
            subscribing.retained.insert(filter, wish);
        } else if let Some(wanted) = subscribing.retained.get_mut(&filter) {
            *wanted = wish;
        }
        Ok(qos)
    }

    /// Whether the quotas of a client allow one more subscription.
    fn may_have(&self, conn: ConnId, slot: usize, filter: &TopicFilter, cx: &mut Cx<'_>) -> bool {
        let FilterCount { all, patterns } = self.sessions[slot].filter_count();
        let patterns = patterns + usize::from(filter.has_wildcards());
        cx.door.ask_for_filters(conn, FilterCount { all: all + 1, patterns }).is_ok()
    }

    /// Whether a session may have one more subscription, and its group one more member.
    fn has_room_for(&self, slot: usize, target: &Target) -> bool {
        let route = target.group.as_deref().zip(self.routes.get(target.filter.as_str()));
        let members = route.map_or(0, |(group, route)| route.members(Some(group)).len());
        self.sessions[slot].filters().len() < self.settings.max_subscriptions
            && members < MAX_MEMBERS
            && self.held.load(Ordering::Relaxed) <= self.settings.max_session_bytes
    }

    /// Adds a subscription to the table, or replaces it. Returns whether messages arrive.
    pub(super) fn join_route(&mut self, subscriber: Subscriber, target: &Target, cx: &mut Cx<'_>) -> bool {
        let Target { filter, group } = target;
        if self.routes.get(filter.as_str()).is_none() {
            let own = is_own(filter);
            self.own_routes += usize::from(own);
            let in_force = own || cx.bus.subscribe(filter);
            self.routes.insert(filter.as_str(), Route::new(in_force));
        }
        let Some(route) = self.routes.get_mut(filter.as_str()) else { return true };
        // It may have been refused to others, of whom some sessions keep it.
        route.in_force = route.in_force || cx.bus.ask_again(filter);
        let members = route.members_mut(group.as_deref());
        match members.binary_search_by_key(&subscriber.slot, |known| known.slot) {
            Ok(at) => {
                let since = members[at].since;
                members[at] = Subscriber { since, ..subscriber };
            }
            Err(at) => members.insert(at, subscriber),
        }
        route.in_force
    }

    /// Removes a subscription from the table. The session's own list is the caller's.
    pub(super) fn leave_route(&mut self, slot: usize, filter: &TopicFilter, cx: &mut Cx<'_>) {
        let Some(Target { filter, group }) = Target::of(filter.as_str()) else { return };
        let Some(route) = self.routes.get_mut(filter.as_str()) else { return };
        if route.remove(slot, group.as_deref()) {
            self.routes.remove(filter.as_str());
            self.has_left_route = true;
            match is_own(&filter) {
                true => self.own_routes -= 1,
                false => cx.bus.unsubscribe(&filter),
            }
        }
    }

    /// Messages of a filter arrive from now on; or never, for this reason.
    pub(super) fn in_force(&mut self, filter: &TopicFilter, refusal: Option<u8>, cx: &mut Cx<'_>) {
        let Some(route) = self.routes.get_mut(filter.as_str()) else { return };
        // Sessions that had the filter before keep it: the bus asks for it again over its next connection.
        route.in_force = refusal.is_none();
        let slots: Vec<usize> = route.all().map(|subscriber| subscriber.slot).collect();
        for slot in slots {
            let Some(conn) = self.sessions[slot].link.as_ref().map(|link| link.conn) else { continue };
            let Some(client) = self.clients.get_mut(&conn) else { continue };
            let Some(mut subscribing) = client.subscribing.take() else { continue };
            let waited = !subscribing.waits.is_empty();
            let is_it = |coming: &mut Coming| coming.of_bus == *filter;
            for coming in subscribing.waits.extract_if(.., is_it) {
                if let Some(reason) = refusal {
                    subscribing.reasons[coming.at] = reason;
                    subscribing.fresh.retain(|fresh| *fresh != coming.filter);
                    subscribing.retained.remove(&coming.filter);
                    self.end_subscription(conn, slot, &coming.filter, cx);
                }
            }
            if waited && subscribing.waits.is_empty() {
                self.send_suback(conn, slot, &mut subscribing, cx);
                // The rest follows when the connection gives the packet again.
                self.serve_retained(conn, slot, &mut subscribing, cx);
                cx.out.resume(conn);
            }
            if let Some(client) = self.clients.get_mut(&conn) {
                client.subscribing = Some(subscribing);
            }
        }
    }

    fn send_suback(&mut self, conn: ConnId, slot: usize, subscribing: &mut Subscribing, cx: &mut Cx<'_>) {
        for filter in subscribing.fresh.drain(..) {
            let Some(route) = self.routes.get_mut(filter.as_str()) else { continue };
            if let Ok(at) = route.subscribers.binary_search_by_key(&slot, |known| known.slot) {
                route.subscribers[at].since = self.retained_so_far;
            }
        }
        let (packet_id, mut reasons) = (subscribing.packet_id, std::mem::take(&mut subscribing.reasons));
        let Some(version) = self.clients.get(&conn).map(|client| client.version) else { return };
        if version == Version::V311 {
            reasons.iter_mut().filter(|reason| **reason > 2).for_each(|reason| *reason = reason::UNSPECIFIED);
        }
        let answer = Answer { packet_id, properties: Properties::default(), reasons: &reasons };
        cx.out.send(conn, &Packet::Suback(answer).encode(version));
    }

    /// The bus refuses what a client has subscribed to.
    fn end_subscription(&mut self, conn: ConnId, slot: usize, filter: &TopicFilter, cx: &mut Cx<'_>) {
        if self.sessions[slot].unsubscribe(filter) {
            self.leave_route(slot, filter, cx);
            cx.door.set_filters(conn, self.sessions[slot].filter_count());
        }
    }

    /// Executes UNSUBSCRIBE.
    pub(super) fn unsubscribe(
        &mut self,
        conn: ConnId,
        slot: usize,
        request: Request<'_>,
        cx: &mut Cx<'_>,
    ) -> Result<Step, Fault> {
        let mut reasons = Vec::new();
        for wanted in request.filters.iter() {
            let filter = wanted.filter.parse::<TopicFilter>().ok();
            let filter = filter.filter(|f| self.sessions[slot].unsubscribe(f));
            reasons.push(match filter {
                None => reason::NO_SUBSCRIPTION,
                Some(filter) => {
                    self.leave_route(slot, &filter, cx);
                    reason::SUCCESS
                }
            });
        }
        cx.door.set_filters(conn, self.sessions[slot].filter_count());
        let answer =
            Answer { packet_id: request.packet_id, properties: Properties::default(), reasons: &reasons };
        self.reply(conn, Packet::Unsuback(answer), cx);
        Ok(Step::Done)
    }
}

/// Whether the topics of a filter are the gateway's own.
pub(super) fn is_own(filter: &TopicFilter) -> bool {
    filter.levels().next() == Some(OWN_TOPICS)
}
