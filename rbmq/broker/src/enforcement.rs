//! Enforcing rights and quotas at connections, and again when they change.

use std::collections::HashMap;
use std::time::Instant;

use access::{AuditEvent, Identity};
use rbmq_wire::{Control, RefuseCode, Role, TopicName};
use rocketbufs::Bid;
use tracing::info;

use super::admission::{Admission, Changed, not_allowed, not_allowed_at_all};
use super::counters::Refusal;
use super::effects::{Effect, Effects};
use super::engine::Engine;
use super::inbox::Reloaded;
use super::limits::Refused;
use super::login::AcceptedClient;
use super::names::display_name;
use super::session_key::SessionKey;
use super::tables::Denial;
use super::topics::Stage;

impl Engine {
    /// Admits a client, or returns the reason for its refusal.
    pub(super) fn admit(
        &mut self,
        AcceptedClient { conn, hello, identity, address }: &AcceptedClient,
    ) -> Result<(), String> {
        let tables = &mut self.tables;
        let allowed =
            may_connect(&tables.admission, hello.role, identity).map_err(|why| (Refusal::Rights, why));
        let admitted = allowed.and_then(|()| {
            let connected = tables.admission.connected(conn.id(), identity, address);
            connected.map_err(|exceeded| (Refusal::Quota, exceeded.to_string()))
        });
        if let Err((refusal, why)) = admitted {
            if let Some(more) = self.lines.connect.allow(Instant::now()) {
                info!(more, "refused {address}: {why}");
            }
            tables.counters.refused(refusal);
            let (conn, address, operation) = (conn.id(), &**address, "connect");
            tables.audit_refusal(&Denial { conn, address, identity, operation, topic: None, reason: &why });
            return Err(why);
        }
        let limits = tables.admission.rate_limits(conn.id(), tables.out.context());
        if !limits.is_empty() {
            conn.set_rate_limits(limits);
        }
        tables.audit.record(&AuditEvent {
            user: Some(&identity.user),
            method: Some(identity.method.as_str()),
            address: Some(address),
            role: Some(role(hello.role)),
            client: Some(&hello.name),
            ..AuditEvent::new("login")
        });
        Ok(())
    }

    /// Applies other settings, rights and limits. A client that lost a right is told and cut off.
    pub(super) fn reload(&mut self, Reloaded { settings, rights, limits, rates }: Reloaded) {
        let tables = &mut self.tables;
        tables.settings = settings;
        tables.admission.set_limits(limits);
        for (conn, limits) in tables.admission.set_rates(rates) {
            self.logins.set_rate_limits(conn, limits);
        }
        let changed = tables.admission.reload(rights);
        let count = Some(changed.len() as u64);
        tables.audit.record(&AuditEvent { count, ..AuditEvent::new("reload") });
        self.on_rights(&changed);
    }

    /// The rights of some clients have changed. A client that lost a right is told and cut off.
    pub(super) fn on_rights(&mut self, changed: &HashMap<u64, Changed>) {
        if changed.is_empty() {
            return;
        }
        let tables = &mut self.tables;
        info!("the rights of {} connections have changed", changed.len());
        tables.out.review_admissions();
        self.subscribers.on_rights(tables, changed);
        for (conn, rights) in changed {
            let user = Some(rights.identity.user.as_str());
            tables.audit.record(&AuditEvent { user, ..AuditEvent::new("rights") });
            if !tables.admission.may_observe(&rights.identity) {
                self.observers
                    .expel(*conn, &not_allowed_at_all(&rights.identity, "observe the broker", "observe"));
            }
        }
        let keys: Vec<SessionKey> = tables.sessions.keys().collect();
        self.tables.admission.set_revoking(true);
        keys.into_iter().for_each(|key| self.revoke(key));
        self.tables.admission.set_revoking(false);
    }

    /// Removes the buffers of a publisher whose topics its user may not publish any more.
    pub(super) fn revoke(&mut self, key: SessionKey) {
        let Some(session) = self.tables.sessions.get(key).filter(|session| session.upstream.is_none()) else {
            return;
        };
        let (conn, address) = (session.conn.id(), session.conn.peer_addr());
        let identity = session.identity.clone();
        let live = |bid: &Bid| {
            let buffer = self.tables.topics.get(*bid)?;
            let ended = matches!(buffer.stage, Stage::Ended { .. });
            (!ended).then(|| (Some(*bid), buffer.in_bid, buffer.topic.clone()))
        };
        let spliced: Vec<_> = session.mapping.out_bids().iter().filter_map(live).collect();
        let merged = self.merged.topics_of(&self.tables, key);
        let all = spliced.into_iter().chain(merged.into_iter().map(|(bid, topic)| (None, bid, topic)));
        let may = |topic: &TopicName| self.tables.admission.user_may_publish(&identity, topic);
        let lost: Vec<_> = all.filter(|(.., topic)| !may(topic)).collect();
        let mut fx = Effects::new();
        for (spliced, bid, topic) in lost {
            let refused = Refused::new(RefuseCode::NotAllowed, not_allowed(&identity, "publish", &topic));
            info!("buffer {bid} of {} is removed: {}", display_name(&identity.user), refused.reason);
            let denial = Denial {
                conn,
                address: &address,
                identity: &identity,
                operation: "publish",
                topic: Some(topic.as_str()),
                reason: &refused.reason,
            };
            self.tables.audit_cut(&denial);
            match spliced {
                Some(out_bid) => {
                    let Refused { code, reason } = refused;
                    self.tables.counters.refused(Refusal::Buffer(code));
                    fx.push(Effect::Answer { key, message: Control::Refused { bid, code, reason } });
                    fx.push(Effect::Remove(out_bid));
                }
                None => self.merged.revoke(&mut self.tables, key, bid, refused, &mut fx),
            }
        }
        self.execute(fx);
    }
}

/// Refuses observers and brokers without the right for it.
fn may_connect(admission: &Admission, role: Role, identity: &Identity) -> Result<(), String> {
    match role {
        Role::Observer if !admission.may_observe(identity) => {
            Err(not_allowed_at_all(identity, "observe the broker", "observe"))
        }
        Role::Broker if !admission.may_chain(identity) => {
            Err(not_allowed_at_all(identity, "connect as a broker", "chain"))
        }
        _ => Ok(()),
    }
}

fn role(role: Role) -> &'static str {
    match role {
        Role::Publisher => "publisher",
        Role::Subscriber => "subscriber",
        Role::Observer => "observer",
        Role::Broker => "broker",
    }
}
