//! What the rights of a user say about topics and the logs of spaces, and the reasons for refusals.

use std::sync::Arc;

use access::{Grants, Identity, Rights};
use rbmq_wire::{Space, TopicName};
use rocketbufs::{Policy, PolicySet};

/// The rights of a user. None: it may do everything.
pub(crate) fn grants(rights: Option<&Arc<Rights>>, identity: &Identity) -> Option<Arc<Grants>> {
    rights.filter(|_| !identity.is_own()).map(|rights| Arc::new(rights.of(identity)))
}

/// The rights of a client before and after a change.
pub(crate) struct Changed {
    pub(crate) identity: Arc<Identity>,
    before: Option<Arc<Grants>>,
    after: Option<Arc<Grants>>,
}

impl Changed {
    /// The change from one to the other; none: they are the same.
    pub(super) fn between(
        identity: &Arc<Identity>,
        before: Option<Arc<Grants>>,
        after: Option<Arc<Grants>>,
    ) -> Option<Self> {
        let is_same = match (&before, &after) {
            (Some(before), Some(after)) => before.is_same(after),
            (None, None) => true,
            _ => false,
        };
        (!is_same).then(|| Self { identity: identity.clone(), before, after })
    }

    fn reads(grants: Option<&Arc<Grants>>, topic: &TopicName) -> bool {
        grants.is_none_or(|grants| may_subscribe(grants, topic))
    }

    /// Whether the client may read a topic now.
    pub(crate) fn may_read(&self, topic: &TopicName) -> bool {
        Self::reads(self.after.as_ref(), topic)
    }

    /// Whether the client could read a topic before, and may not now.
    pub(crate) fn lost(&self, topic: &TopicName) -> bool {
        Self::reads(self.before.as_ref(), topic) && !self.may_read(topic)
    }

    /// Whether the client may read a topic now, and could not before.
    pub(crate) fn gained(&self, topic: &TopicName) -> bool {
        !Self::reads(self.before.as_ref(), topic) && self.may_read(topic)
    }
}

/// Whether a user may publish a topic; of the log of a space, everything that may be in it.
pub(super) fn may_publish(grants: &Grants, topic: &TopicName) -> bool {
    match Space::of_log(topic) {
        Some(space) => grants.may_publish_all(space.pattern()),
        None => grants.may_publish(topic),
    }
}

/// Whether a user may read a topic; of the log of a space, everything that may be in it.
pub(super) fn may_subscribe(grants: &Grants, topic: &TopicName) -> bool {
    match Space::of_log(topic) {
        Some(space) => !grants.policies_for_all(space.pattern()).is_empty(),
        None => grants.may_subscribe(topic),
    }
}

/// The policies of RocketBufs with which a user may read a topic, or the log of a space.
pub(super) fn policies(grants: &Grants, topic: &TopicName) -> PolicySet {
    let allowed = match Space::of_log(topic) {
        Some(space) => grants.policies_for_all(space.pattern()),
        None => grants.policies(topic),
    };
    let policy = |allowed| match allowed {
        access::Policy::Block => Policy::Block,
        access::Policy::Drop => Policy::Drop,
        access::Policy::Disconnect => Policy::Disconnect,
        access::Policy::Overwrite => Policy::Overwrite,
    };
    allowed.iter().map(policy).collect()
}

/// The reason for a refusal: the user, the operation and the topic, and how the operator learns the rule.
pub(crate) fn not_allowed(identity: &Identity, operation: &str, topic: impl std::fmt::Display) -> String {
    let user = called(identity);
    let topic = topic.to_string();
    if let Some(space) = topic.parse().ok().and_then(|name| Space::of_log(&name)) {
        return format!(
            "{user} may not {operation} everything of '{}', which is a space: its topics share one log, and the broker does not \
             look inside (access.rules; one pattern of a rule must have all of it)",
            space.pattern()
        );
    }
    format!(
        "{user} may not {operation} topic '{topic}' (access.rules; the operator sees why with rbmq acl check)"
    )
}

/// The same for an operation without a topic.
pub(crate) fn not_allowed_at_all(identity: &Identity, operation: &str, right: &str) -> String {
    let user = called(identity);
    format!("{user} may not {operation}: it needs a rule with {right} = true (access.rules)")
}

fn called(identity: &Identity) -> String {
    match identity.user.as_str() {
        "" => "a client without a user".to_owned(),
        user => format!("user '{user}'"),
    }
}
