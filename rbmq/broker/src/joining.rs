//! Workers of groups at the engine: their rights, and the topics that they need.

use rbmq_wire::{GroupJoin, GroupMessage, Space, TopicName};
use rocketbufs::{Bid, Conn};

use super::admission::not_allowed;
use super::cluster::Owner;
use super::effects::Effects;
use super::engine::Engine;
use super::groups::{Joining, Question};
use super::inbox::Message;
use super::outgoing::send_bytes;
use super::tables::Denial;

impl Engine {
    /// A subscriber sent a message about groups.
    pub(super) fn on_group_message(&mut self, conn: &Conn, message: Message) {
        // The connection may be down already.
        if self.subscribers.get(conn.id()).is_none() {
            return;
        }
        match GroupMessage::decode(&message) {
            Ok(GroupMessage::Join(join)) => self.on_group_join(conn, join),
            Ok(GroupMessage::Marks(_)) => self.groups.marks(conn.id(), message),
            Ok(GroupMessage::Ask { request, action, of }) => {
                let conn = conn.clone();
                self.groups.ask(Question { conn, request, action, of, _message: message });
            }
            Ok(_) => conn.close("a worker sent a message that only brokers send"),
            Err(error) => conn.close(&error.to_string()),
        }
    }

    fn on_group_join(&mut self, conn: &Conn, join: GroupJoin) {
        match self.check_group_join(conn, &join) {
            Ok(live) => {
                let Some(live) = self.tables.out.buffer(live) else { return };
                let bid = self.tables.topics.unused_bid();
                self.tables.admission.replays(conn.id(), live.bid(), bid);
                self.groups.join(Joining { conn: conn.clone(), live, bid, join });
            }
            Err(reason) => send_bytes(conn, &GroupMessage::Refused { again: false, reason }.encode()),
        }
    }

    /// The buffer of a topic whose group a client may join.
    fn check_group_join(&mut self, conn: &Conn, join: &GroupJoin) -> Result<Bid, String> {
        if !self.tables.admission.may_read(conn.id(), &join.topic) {
            return Err(self.denied(conn, "subscribe to", &join.topic));
        }
        if join.max_attempts > 0 && join.dead_letter.is_none() {
            return Err(
                "a limit of attempts needs a dead-letter topic: where else would the message go?".into()
            );
        }
        if let Some(letters) = &join.dead_letter {
            if *letters == join.topic {
                return Err("the dead-letter topic must be another one than the group's".into());
            }
            if !self.tables.admission.may_publish(conn.id(), letters) {
                return Err(self.denied(conn, "publish", letters));
            }
            self.open_for_group(letters)?;
        }
        self.open_for_group(&join.topic)
    }

    fn denied(&mut self, conn: &Conn, operation: &'static str, topic: &TopicName) -> String {
        let Some((identity, address)) = self.tables.admission.identity(conn.id()) else {
            return String::new();
        };
        let reason = not_allowed(&identity, operation, topic);
        let (address, identity, reason_of) = (&*address, &*identity, &*reason);
        let topic = Some(topic.as_str());
        self.tables.audit_refusal(&Denial { address, identity, operation, topic, reason: reason_of });
        reason
    }

    /// Opens a kept topic, if it is not open.
    fn open_for_group(&mut self, topic: &TopicName) -> Result<Bid, String> {
        if Space::is_reserved(topic) || self.tables.settings.topics.space_of(topic).is_some() {
            return Err(format!(
                "topic '{topic}' is in a space, and groups need a topic with a log of its own"
            ));
        }
        if !self.tables.settings.topics.of(topic).keep {
            return Err(format!(
                "topic '{topic}' is not kept on disk, and groups read the disk: it needs a rule with keep = true (broker.topics)"
            ));
        }
        if let Owner::Elsewhere { addresses } = self.tables.owner(topic) {
            return Err(format!(
                "topic '{topic}' is at another member of the cluster, and so are its groups: connect to {}",
                addresses.join(",")
            ));
        }
        let mut fx = Effects::new();
        let opened = self.merged.open_kept_topic(&mut self.tables, topic, &mut fx);
        self.execute(fx);
        opened.map_err(|refused| refused.reason)
    }
}
