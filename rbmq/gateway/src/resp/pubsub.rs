//! Publishing and subscribing.

use std::collections::BTreeSet;

use rbmq_wire::TopicFilter;

use super::client::{Client, Post, Wait};
use super::deliver::SHARD;
use super::glob::{Glob, MAX_PATTERN_BYTES};
use super::machine::{Flow, Resp};
use super::names::has_topic;
use super::parse::Command;
use super::reply::Reply;
use super::routes::Kind;
use super::server::unknown_subcommand;
use super::table::Subscriber;
use crate::protocol::{Cx, FilterCount, PublishError};

/// The most channels and patterns of a client.
const MAX_SUBSCRIPTIONS: usize = 100_000;

/// The most patterns among them.
const MAX_PATTERNS: usize = 1000;

/// The most bytes of names that `PUBSUB CHANNELS` lists, and the steps that it may take to match them with its pattern.
const MAX_LIST_BYTES: usize = 4 << 20;
const MAX_LIST_STEPS: usize = 8 << 20;

const NO_PERMISSION: &str = "NOPERM No permissions to access a channel";

/// A limit of the broker that another process has.
const TOO_MANY: &str =
    "ERR the broker takes no more subscriptions of this gateway: a limit or a quota of its user is reached";

/// A name that no topic can have.
const TOO_LONG: &str = "ERR the name of this channel is too long for a topic, which has 255 bytes at most";

/// The words of replies.
fn words(kind: Kind) -> (&'static str, &'static str) {
    match kind {
        Kind::Channel => ("subscribe", "unsubscribe"),
        Kind::Pattern => ("psubscribe", "punsubscribe"),
        Kind::Shard => ("ssubscribe", "sunsubscribe"),
    }
}

impl Resp {
    /// `PUBLISH` and `SPUBLISH`. The reply is the number of subscriptions at this gateway.
    pub(super) fn publish(&mut self, client: &Client, post: Post<'_>, cx: &mut Cx<'_>) -> Flow {
        let mut reply = Reply::new(&mut self.replies, client.is_resp3);
        let Some(known) = self.routes.of_channel(post.channel) else {
            reply.error(TOO_LONG);
            return Flow::Done;
        };
        if !cx.door.may_publish(client.conn, &known.topic) {
            reply.error(NO_PERMISSION);
            return Flow::Done;
        }
        let attributes = if post.is_sharded { SHARD } else { &[] };
        match cx.bus.publish(&known.topic, attributes, post.payload) {
            Ok(()) => reply.count(self.routes.receivers_of_last(post.is_sharded)),
            Err(PublishError::Full) => return Flow::Blocked,
            Err(PublishError::TooLarge { most }) => {
                reply.error(format_args!(
                    "ERR a message has {most} bytes at most, and this one has {}",
                    post.payload.len()
                ));
            }
            Err(PublishError::NoDisk(text) | PublishError::Refused(text)) => {
                reply.error(format_args!("ERR {text}"))
            }
        }
        Flow::Done
    }

    /// `SUBSCRIBE`, `PSUBSCRIBE` and `SSUBSCRIBE`. The replies come when all filters are in force: whoever publishes after that is heard.
    pub(super) fn subscribe(
        &mut self,
        client: &mut Client,
        kind: Kind,
        command: &Command<'_>,
        cx: &mut Cx<'_>,
    ) -> Flow {
        if let Wait::NotSubscribed(error) = client.wait {
            client.wait = Wait::No;
            Reply::new(&mut self.replies, client.is_resp3).error(error);
            return Flow::Done;
        }
        if client.wait == Wait::No {
            if let Err(error) = self.begin_subscribing(client, kind, command, cx) {
                Reply::new(&mut self.replies, client.is_resp3).error(error);
                return Flow::Done;
            }
            let mut wait = |number| self.routes.wait(kind, number, client.conn);
            let waiting = client.coming.iter().filter(|(_, number)| wait(*number)).count();
            if waiting > 0 {
                client.wait = Wait::Filters(waiting);
                return Flow::Blocked;
            }
        }
        client.wait = Wait::No;
        let subscriber = Subscriber { conn: client.conn, is_resp3: client.is_resp3 };
        for ((_, number), name) in std::mem::take(&mut client.coming).into_iter().zip(command.from(1)) {
            self.routes.end(kind, number, Some(subscriber), cx.bus);
            client.subscribed[kind as usize].insert(number);
            let mut reply = Reply::new(&mut self.replies, client.is_resp3);
            reply.push(3);
            reply.bulk(words(kind).0);
            reply.bulk(name);
            reply.count(client.count_told(kind));
        }
        Flow::Done
    }

    /// Makes entries for what the client may subscribe to, or for nothing.
    fn begin_subscribing(
        &mut self,
        client: &mut Client,
        kind: Kind,
        command: &Command<'_>,
        cx: &mut Cx<'_>,
    ) -> Result<(), String> {
        self.check_counts(client, kind, command)?;
        for name in command.from(1) {
            match kind {
                Kind::Pattern if name.len() > MAX_PATTERN_BYTES => {
                    return Err(format!("ERR a pattern has {MAX_PATTERN_BYTES} bytes at most"));
                }
                // Nothing would ever come, and the name would be kept, whatever its length is.
                Kind::Channel | Kind::Shard if !has_topic(name) => return Err(TOO_LONG.to_owned()),
                _ => {}
            }
        }
        for name in command.from(1) {
            let number = self.routes.begin(kind, name, cx.bus);
            client.coming.push((kind, number));
            if kind == Kind::Pattern && self.routes.pattern_bytes() > self.bounds.pattern_bytes {
                self.abandon(client, cx);
                return Err(format!("ERR all patterns have {} bytes at most", self.bounds.pattern_bytes));
            }
        }
        let refusal = if client.coming.iter().all(|(_, number)| self.may_have(client, kind, *number, cx)) {
            let FilterCount { all, patterns } = client.filter_count();
            let new: BTreeSet<u32> = client.coming.iter().map(|(_, number)| *number).collect();
            let new = new.difference(&client.subscribed[kind as usize]).count();
            let patterns = patterns + if kind == Kind::Pattern { new } else { 0 };
            match cx.door.ask_for_filters(client.conn, FilterCount { all: all + new, patterns }) {
                Ok(()) => return Ok(()),
                Err(text) => format!("ERR {text}"),
            }
        } else {
            NO_PERMISSION.to_owned()
        };
        self.abandon(client, cx);
        Err(refusal)
    }

    /// # Errors
    /// There would be too many subscriptions.
    fn check_counts(&self, client: &Client, kind: Kind, command: &Command<'_>) -> Result<(), String> {
        let (more, bounds) = (command.len() - 1, &self.bounds);
        let count: usize = client.subscribed.iter().map(std::collections::BTreeSet::len).sum();
        if count + more > MAX_SUBSCRIPTIONS {
            return Err(format!("ERR a client has {MAX_SUBSCRIPTIONS} channels and patterns at most"));
        }
        if self.routes.subscriptions() + more > bounds.subscriptions {
            return Err(format!(
                "ERR all clients have {} channels and patterns at most",
                bounds.subscriptions
            ));
        }
        if kind != Kind::Pattern {
            return Ok(());
        }
        if client.count(Kind::Pattern) + more > MAX_PATTERNS {
            return Err(format!("ERR a client has {MAX_PATTERNS} patterns at most"));
        }
        let table = self.routes.table(Kind::Pattern);
        let new = command.from(1).filter(|name| table.find(name).is_none()).count();
        if new > 0 && table.len() + new > bounds.patterns {
            return Err(format!("ERR all clients have {} different patterns at most", bounds.patterns));
        }
        Ok(())
    }

    /// Whether the client's user may subscribe to an entry.
    fn may_have(&self, client: &Client, kind: Kind, number: u32, cx: &mut Cx<'_>) -> bool {
        let filter = self.routes.table(kind).get(number).filter.as_ref();
        // A pattern that no topic can match is nobody's secret.
        filter.is_none_or(|filter| match filter.as_topic() {
            Some(topic) => cx.door.may_subscribe(client.conn, &topic),
            None => cx.door.may_subscribe_to_some(client.conn, filter),
        })
    }

    /// The client has another user now, perhaps. If that one may not have what the client has subscribed to, the connection ends, as it does when
    /// the rights of a user change.
    pub(super) fn check_subscriptions(&mut self, client: &mut Client, cx: &mut Cx<'_>) {
        for kind in Kind::ALL {
            self.cost += client.count(kind);
            if !client.subscribed[kind as usize].iter().all(|number| self.may_have(client, kind, *number, cx))
            {
                client.closing = Some("its new user has no right for what it has subscribed to");
                return;
            }
        }
    }

    /// The broker refuses a filter. Whoever waits for it subscribes to nothing of its command.
    pub(super) fn not_subscribed(&mut self, filter: &TopicFilter, is_limit: bool, cx: &mut Cx<'_>) {
        for conn in self.routes.on_subscribed(filter) {
            let Some(mut client) = self.clients.remove(&conn) else { continue };
            if let Wait::Filters(_) = client.wait {
                client
                    .coming
                    .iter()
                    .for_each(|(kind, number)| self.routes.wait_no_more(*kind, *number, conn));
                self.abandon(&mut client, cx);
                client.wait = Wait::NotSubscribed(if is_limit { TOO_MANY } else { NO_PERMISSION });
                cx.out.resume(conn);
            }
            self.clients.insert(conn, client);
        }
    }

    /// Takes back what the client was about to subscribe to.
    pub(super) fn abandon(&mut self, client: &mut Client, cx: &mut Cx<'_>) {
        for (kind, number) in client.coming.drain(..) {
            self.routes.end(kind, number, None, cx.bus);
        }
    }

    /// `UNSUBSCRIBE`, `PUNSUBSCRIBE` and `SUNSUBSCRIBE`: of these, or of all.
    pub(super) fn unsubscribe(
        &mut self,
        client: &mut Client,
        kind: Kind,
        command: &Command<'_>,
        cx: &mut Cx<'_>,
    ) {
        if command.len() > 1 {
            for name in command.from(1) {
                if let Some(number) = self.routes.table(kind).find(name) {
                    self.unsubscribe_one(client, kind, number, cx);
                }
                self.tell_unsubscribed(client, kind, Some(name));
            }
            return cx.door.set_filters(client.conn, client.filter_count());
        }
        let numbers: Vec<u32> = client.subscribed[kind as usize].iter().copied().collect();
        if numbers.is_empty() {
            self.tell_unsubscribed(client, kind, None);
        }
        for number in numbers {
            let name = self.routes.table(kind).get(number).name.clone();
            self.unsubscribe_one(client, kind, number, cx);
            self.tell_unsubscribed(client, kind, Some(&name));
        }
        cx.door.set_filters(client.conn, client.filter_count());
    }

    fn unsubscribe_one(&mut self, client: &mut Client, kind: Kind, number: u32, cx: &mut Cx<'_>) {
        if client.subscribed[kind as usize].remove(&number) {
            self.routes.remove(kind, number, client.conn, cx.bus);
        }
    }

    fn tell_unsubscribed(&mut self, client: &Client, kind: Kind, name: Option<&[u8]>) {
        let mut reply = Reply::new(&mut self.replies, client.is_resp3);
        reply.push(3);
        reply.bulk(words(kind).1);
        match name {
            Some(name) => reply.bulk(name),
            None => reply.null(),
        }
        reply.count(client.count_told(kind));
    }

    /// Ends all subscriptions of a client without a word.
    pub(super) fn unsubscribe_all(&mut self, client: &mut Client, cx: &mut Cx<'_>) {
        for kind in Kind::ALL {
            for number in std::mem::take(&mut client.subscribed[kind as usize]) {
                self.routes.remove(kind, number, client.conn, cx.bus);
            }
        }
        cx.door.set_filters(client.conn, FilterCount::default());
    }

    /// `PUBSUB`: what clients of this gateway have subscribed to.
    pub(super) fn pubsub(&mut self, client: &Client, command: &Command<'_>, cx: &mut Cx<'_>) {
        let subcommand = command.get(1).unwrap_or_default().to_ascii_lowercase();
        let mut reply = Reply::new(&mut self.replies, client.is_resp3);
        match (&subcommand[..], command.len()) {
            (b"channels", 2 | 3) => self.list_channels(client, Kind::Channel, command.get(2), cx),
            (b"shardchannels", 2 | 3) => self.list_channels(client, Kind::Shard, command.get(2), cx),
            (b"numpat", 2) => {
                let patterns = self.routes.table(Kind::Pattern).iter();
                reply.count(patterns.filter(|(_, entry)| !entry.subscribers().is_empty()).count());
                self.cost += self.routes.table(Kind::Pattern).len();
            }
            (b"numsub" | b"shardnumsub", _) => {
                let kind = if subcommand == b"numsub" { Kind::Channel } else { Kind::Shard };
                let table = self.routes.table(kind);
                reply.array(2 * command.from(2).len());
                for name in command.from(2) {
                    reply.bulk(name);
                    reply.count(table.find(name).map_or(0, |number| table.get(number).subscribers().len()));
                }
            }
            _ => unknown_subcommand(&mut reply, "PUBSUB", command),
        }
    }

    /// The channels with subscribers that the client may receive.
    fn list_channels(&mut self, client: &Client, kind: Kind, pattern: Option<&[u8]>, cx: &mut Cx<'_>) {
        let glob = pattern.map(|pattern| Glob::new(&pattern[..pattern.len().min(MAX_PATTERN_BYTES)]));
        let (mut names, mut bytes, mut steps) = (Vec::new(), 0, MAX_LIST_STEPS);
        for (_, entry) in self.routes.table(kind).iter() {
            let is_wanted = glob.as_ref().is_none_or(|glob| glob.matches_within(&entry.name, &mut steps));
            let topic = entry.filter.as_ref().and_then(rbmq_wire::TopicFilter::as_topic);
            let mut may = || topic.as_ref().is_none_or(|topic| cx.door.may_receive(client.conn, topic));
            if is_wanted && !entry.subscribers().is_empty() && may() {
                bytes += entry.name.len();
                names.push(&entry.name);
            }
            if bytes > MAX_LIST_BYTES || steps == 0 {
                break;
            }
        }
        self.cost += self.routes.table(kind).len() + (MAX_LIST_STEPS - steps);
        let mut reply = Reply::new(&mut self.replies, client.is_resp3);
        if bytes > MAX_LIST_BYTES || steps == 0 {
            return reply.error("ERR too many channels: a pattern that begins with some letters finds fewer");
        }
        reply.array(names.len());
        names.into_iter().for_each(|name| reply.bulk(name));
    }
}
