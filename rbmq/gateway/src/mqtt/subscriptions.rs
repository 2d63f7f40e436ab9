//! SUBSCRIBE and UNSUBSCRIBE.

use rbmq_wire::TopicFilter;

use crate::protocol::{ConnId, Cx};

use super::codec::{
    Answer, Packet, Properties, Property, Request, SubscribeOptions, Version, WantedFilter, reason,
};
use super::state::{Fault, Mqtt, RetainedWish, Route, Step, Subscriber, Subscribing};

/// The topics of the gateway itself. They never go over the bus.
pub(super) const OWN_TOPICS: &str = "$SYS";

impl Mqtt {
    /// Executes SUBSCRIBE. SUBACK goes out when all filters are in force.
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
            waits: Vec::new(),
            retained: Vec::new(),
        };
        for wanted in request.filters.iter() {
            let granted = self.subscribe_to(conn, slot, wanted, id, &mut subscribing, cx)?;
            subscribing.reasons.push(granted);
        }
        match subscribing.waits.is_empty() {
            true => self.answer_subscribe(conn, slot, subscribing, cx),
            false => {
                if let Some(client) = self.clients.get_mut(&conn) {
                    client.subscribing = Some(Box::new(subscribing));
                }
            }
        }
        Ok(Step::Done)
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
        if wanted.filter == "$share" || wanted.filter.starts_with("$share/") {
            if wanted.options.no_local {
                return Err(Fault::protocol("a shared subscription without own messages"));
            }
            return Ok(reason::SHARED_UNSUPPORTED);
        }
        let Ok(filter) = wanted.filter.parse::<TopicFilter>() else { return Ok(reason::FILTER_INVALID) };
        // Topics of the broker itself: as for PUBLISH.
        let is_the_brokers = filter.as_str().starts_with('$') && !is_own(&filter);
        if is_the_brokers || !cx.door.may_subscribe_to_some(conn, &filter) {
            return Ok(reason::NOT_AUTHORIZED);
        }
        let session = &mut self.sessions[slot];
        let is_new = !session.subscriptions.contains_key(&filter);
        if is_new && session.subscriptions.len() >= self.settings.max_subscriptions {
            return Ok(reason::QUOTA);
        }
        session.subscriptions.insert(filter.clone(), wanted.options.no_local);
        if !self.join_route(Subscriber { slot, options: wanted.options, id }, &filter, cx) {
            subscribing.waits.push(filter.clone());
        }
        let SubscribeOptions { qos, retain_handling, .. } = wanted.options;
        if retain_handling == 0 || (retain_handling == 1 && is_new) {
            subscribing.retained.push(RetainedWish { filter, qos, id });
        }
        Ok(qos)
    }

    /// Adds a subscription to the table, or replaces it. Returns whether messages arrive.
    fn join_route(&mut self, subscriber: Subscriber, filter: &TopicFilter, cx: &mut Cx<'_>) -> bool {
        if self.routes.get(filter.as_str()).is_none() {
            let own = is_own(filter);
            self.own_routes += usize::from(own);
            let in_force = own || cx.bus.subscribe(filter);
            let route = Route { filter: filter.clone(), in_force, subscribers: Vec::new() };
            self.routes.insert(filter.as_str(), route);
        }
        let Some(route) = self.routes.get_mut(filter.as_str()) else { return true };
        match route.subscribers.binary_search_by_key(&subscriber.slot, |known| known.slot) {
            Ok(at) => route.subscribers[at] = subscriber,
            Err(at) => route.subscribers.insert(at, subscriber),
        }
        route.in_force
    }

    /// Removes a subscription from the table. The session's own list is the caller's.
    pub(super) fn leave_route(&mut self, slot: usize, filter: &TopicFilter, cx: &mut Cx<'_>) {
        let Some(route) = self.routes.get_mut(filter.as_str()) else { return };
        if let Ok(at) = route.subscribers.binary_search_by_key(&slot, |known| known.slot) {
            route.subscribers.remove(at);
        }
        if route.subscribers.is_empty() {
            self.routes.remove(filter.as_str());
            match is_own(filter) {
                true => self.own_routes -= 1,
                false => cx.bus.unsubscribe(filter),
            }
        }
    }

    /// Messages of a filter arrive from now on.
    pub(super) fn in_force(&mut self, filter: &TopicFilter, cx: &mut Cx<'_>) {
        let Some(route) = self.routes.get_mut(filter.as_str()) else { return };
        route.in_force = true;
        let slots: Vec<usize> = route.subscribers.iter().map(|subscriber| subscriber.slot).collect();
        for slot in slots {
            let Some(conn) = self.sessions[slot].link.as_ref().map(|link| link.conn) else { continue };
            let Some(client) = self.clients.get_mut(&conn) else { continue };
            let Some(mut subscribing) = client.subscribing.take() else { continue };
            subscribing.waits.retain(|waits| waits != filter);
            if subscribing.waits.is_empty() {
                self.answer_subscribe(conn, slot, *subscribing, cx);
                cx.out.resume(conn);
            } else {
                client.subscribing = Some(subscribing);
            }
        }
    }

    /// SUBACK, and the retained messages behind it.
    fn answer_subscribe(&mut self, conn: ConnId, slot: usize, subscribing: Subscribing, cx: &mut Cx<'_>) {
        let Subscribing { packet_id, mut reasons, retained, .. } = subscribing;
        let Some(version) = self.clients.get(&conn).map(|client| client.version) else { return };
        if version == Version::V311 {
            reasons.iter_mut().filter(|reason| **reason > 2).for_each(|reason| *reason = reason::UNSPECIFIED);
        }
        let answer = Answer { packet_id, properties: Properties::default(), reasons: &reasons };
        cx.out.send(conn, &Packet::Suback(answer).encode(version));
        for wish in retained {
            self.send_retained(conn, slot, wish, cx);
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
            let filter = filter.filter(|f| self.sessions[slot].subscriptions.remove(f).is_some());
            reasons.push(match filter {
                None => reason::NO_SUBSCRIPTION,
                Some(filter) => {
                    self.leave_route(slot, &filter, cx);
                    reason::SUCCESS
                }
            });
        }
        let answer =
            Answer { packet_id: request.packet_id, properties: Properties::default(), reasons: &reasons };
        self.reply(conn, Packet::Unsuback(answer), cx);
        Ok(Step::Done)
    }
}

fn is_own(filter: &TopicFilter) -> bool {
    filter.levels().next() == Some(OWN_TOPICS)
}
