//! `$SYS/broker/…`: what the gateway tells of itself, with the names that Mosquitto has.

use std::sync::Arc;
use std::time::Instant;

use rbmq_wire::{TopicFilter, TopicName};

use crate::protocol::{Cx, Message};

use super::message::Stored;
use super::retained::Retained;
use super::state::Mqtt;

impl Mqtt {
    /// The values, by topic.
    fn values(&self, now: Instant) -> [(&'static str, String); 16] {
        let connected = self.sessions.iter().filter(|(_, session)| session.link.is_some()).count();
        let waiting: usize = self.sessions.iter().map(|(_, session)| session.queued()).sum();
        let subscriptions: usize = self.sessions.iter().map(|(_, session)| session.filters().len()).sum();
        let uptime = now.saturating_duration_since(self.clock.at).as_secs();
        let counts = &self.counts;
        [
            ("$SYS/broker/version", format!("RBMQ {}", env!("CARGO_PKG_VERSION"))),
            ("$SYS/broker/uptime", format!("{uptime} seconds")),
            ("$SYS/broker/clients/connected", connected.to_string()),
            ("$SYS/broker/clients/disconnected", (self.sessions.len() - connected).to_string()),
            ("$SYS/broker/clients/total", self.sessions.len().to_string()),
            ("$SYS/broker/clients/expired", counts.sessions_expired.to_string()),
            ("$SYS/broker/messages/received", counts.packets_in.to_string()),
            ("$SYS/broker/bytes/received", counts.bytes_in.to_string()),
            ("$SYS/broker/publish/messages/received", counts.published_in.to_string()),
            ("$SYS/broker/publish/messages/sent", counts.published_out.to_string()),
            ("$SYS/broker/publish/messages/dropped", counts.dropped.to_string()),
            ("$SYS/broker/publish/messages/expired", counts.expired.to_string()),
            ("$SYS/broker/publish/messages/refused", counts.refused.to_string()),
            ("$SYS/broker/store/messages/count", waiting.to_string()),
            ("$SYS/broker/subscriptions/count", subscriptions.to_string()),
            ("$SYS/broker/retained messages/count", self.retained.len().to_string()),
        ]
    }

    /// The values that a filter matches, as retained messages.
    pub(super) fn own_values(&self, filter: &TopicFilter, now: Instant) -> Vec<Retained> {
        if self.own_routes == 0 {
            return Vec::new();
        }
        let named =
            self.values(now).into_iter().filter_map(|(name, value)| Some((name.parse().ok()?, value)));
        let matching = named.filter(|(topic, _): &(TopicName, String)| filter.matches(topic));
        matching
            .map(|(topic, value)| {
                let message = Arc::new(Stored::new(topic, &[], value.as_bytes()));
                Retained { message, qos: 0 }
            })
            .collect()
    }

    /// Publishes the values, if somebody has subscribed to some, and it is time.
    pub(super) fn report(&mut self, cx: &mut Cx<'_>) {
        if self.own_routes == 0 || cx.now < self.next_report {
            return;
        }
        self.next_report = cx.now + self.settings.sys_interval;
        for (name, value) in self.values(cx.now) {
            if let Ok(topic) = name.parse::<TopicName>() {
                self.deliver(Message { topic: &topic, attributes: &[], payload: value.as_bytes() }, cx);
            }
        }
    }
}
