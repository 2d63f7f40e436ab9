//! Workers of groups at the engine: their rights, and the topics that they need, which somebody else has made.

use rbmq_wire::{GroupAction, GroupJoin, GroupMessage, Space, TopicName};
use rocketbufs::{Bid, Conn};

use super::admission::not_allowed;
use super::engine::Engine;
use super::groups::{Joining, Question, no_group};
use super::inbox::Message;
use super::outgoing::send_bytes;
use super::tables::Denial;

impl Engine {
    /// A subscriber sent a message about groups.
    pub(super) fn on_group_message(&mut self, conn: &Conn, mut message: Message) {
        // The connection may be down already.
        if self.subscribers.get(conn.id()).is_none() {
            return;
        }
        if !message.is_taken_by_groups() {
            return conn.close("too many messages about groups at once; connect again later");
        }
        match GroupMessage::decode(&message) {
            Ok(GroupMessage::Join(join)) => self.on_group_join(conn, join, message),
            Ok(GroupMessage::Marks { .. }) => self.groups.marks(conn.id(), message),
            Ok(GroupMessage::Leave) => self.groups.leave(conn.id(), message),
            Ok(GroupMessage::Ask { request, action, of }) => {
                // Who may not read the topic does not learn what groups it has, and costs nothing but this look.
                if action != GroupAction::List
                    && let Some((topic, group)) = &of
                    && !self.tables.admission.may_read(conn.id(), topic)
                {
                    let reason = no_group(topic, group);
                    return send_bytes(conn, &GroupMessage::Failed { request, reason }.encode());
                }
                let conn = conn.clone();
                self.groups.ask(Question { conn, request, action, of, _message: message });
            }
            Ok(_) => conn.close("a worker sent a message that only brokers send"),
            Err(error) => conn.close(&error.to_string()),
        }
    }

    fn on_group_join(&mut self, conn: &Conn, join: GroupJoin, message: Message) {
        if !self.groups.may_join(conn.id()) {
            return conn.close("a worker asks for one group on a connection");
        }
        match self.check_group_join(conn, &join) {
            Ok(live) => {
                let Some(live) = self.tables.out.buffer(live) else {
                    let reason = format!("topic '{}' ends here", join.topic);
                    return send_bytes(conn, &GroupMessage::Refused { again: true, reason }.encode());
                };
                let bid = self.tables.topics.unused_bid();
                self.tables.admission.replays(conn.id(), live.bid(), bid);
                self.groups.join(Joining { conn: conn.clone(), live, bid, join, _message: message });
            }
            Err((again, reason)) => send_bytes(conn, &GroupMessage::Refused { again, reason }.encode()),
        }
    }

    /// The buffer of a topic whose group a client may join. Otherwise whether it may ask again, and the reason.
    fn check_group_join(&mut self, conn: &Conn, join: &GroupJoin) -> Result<Bid, (bool, String)> {
        let never = |reason: &str| Err((false, reason.to_owned()));
        if !self.tables.admission.may_read(conn.id(), &join.topic) {
            return Err((false, self.denied(conn, "subscribe to", &join.topic)));
        }
        if self.tables.cluster.is_some() {
            return never(
                "this broker is a member of a cluster, and groups do not follow a topic that moves: they need a broker that is alone",
            );
        }
        if join.max_attempts > 0 && join.dead_letter.is_none() {
            return never("a limit of attempts needs a dead-letter topic: where else would the message go?");
        }
        if let Some(letters) = &join.dead_letter {
            if *letters == join.topic {
                return never("the dead-letter topic must be another one than the group's");
            }
            if !self.tables.admission.may_publish(conn.id(), letters) {
                return Err((false, self.denied(conn, "publish", letters)));
            }
            self.kept_topic_of_group(letters)?;
        }
        self.kept_topic_of_group(&join.topic)
    }

    fn denied(&mut self, conn: &Conn, operation: &'static str, topic: &TopicName) -> String {
        let Some((identity, address)) = self.tables.admission.identity(conn.id()) else {
            return String::new();
        };
        let reason = not_allowed(&identity, operation, topic);
        let (address, identity, reason_of) = (&*address, &*identity, &*reason);
        let (conn, topic) = (conn.id(), Some(topic.as_str()));
        self.tables.audit_refusal(&Denial { conn, address, identity, operation, topic, reason: reason_of });
        reason
    }

    /// A kept topic that is open. A worker makes none: it may have no right to, and the disk would hold up the broker's thread.
    fn kept_topic_of_group(&self, topic: &TopicName) -> Result<Bid, (bool, String)> {
        if Space::is_reserved(topic) || self.tables.settings.topics.space_of(topic).is_some() {
            let reason =
                format!("topic '{topic}' is in a space, and groups need a topic with a log of its own");
            return Err((false, reason));
        }
        if !self.tables.settings.topics.of(topic).keep {
            return Err((
                false,
                format!(
                    "topic '{topic}' is not kept on disk, and groups read the disk: it needs a rule with keep = true (broker.topics)"
                ),
            ));
        }
        self.merged.find(topic).ok_or_else(|| {
            (true, format!("topic '{topic}' does not exist yet: it begins with its first publisher"))
        })
    }
}
