//! The protocol: commands of clients are executed one after the other, and messages go to those who have subscribed.

use std::collections::HashMap;
use std::time::{Instant, SystemTime};

use rbmq_wire::{TopicFilter, TopicName};
use rocketbufs::Position;

use super::client::{Client, Post, Wait};
use super::commands::{Spec, Verb, needs_store};
use super::deliver::{Scratch, deliver};
use super::parse::{Arguments, Command, Limits, ProtocolError, Publish, Step, publish};
use super::reads::Reads;
use super::reply::Reply;
use super::routes::{Kind, Routes};
use super::streams;
use crate::protocol::{ConnId, Cx, Fetch, Message, Protocol, Taken, Ticket};

/// Replies that are kept before they are queued. A client that has as much queued reads it first.
const MAX_REPLIES: usize = 64 << 10;

/// The most arguments of a command.
const MAX_ARGUMENTS: usize = 1 << 20;

/// What a command may have beside a message of the largest size.
const MAX_COMMAND_OVERHEAD: u64 = 128 << 10;

/// What the commands of one call may cost before others have their turn: bytes of replies, names and clients that are looked at, and a share of the
/// bytes of logs that are read.
const MAX_COST: usize = 1 << 20;

/// So much of a log is read from the disk at a time at first, and each time that the same command needs more, twice as much, so often.
const FETCH_BYTES: u64 = 256 << 10;
const MAX_DOUBLED: u32 = 5;

/// A command that has waited for the disk so often, and once for each of its words, waits for it in place. What was read for it counts as known for
/// a time only: with many who read, its first part may be forgotten before the last one is there, again and again.
const MAX_FETCHES: usize = 32;

/// So many bytes of logs cost as much as one of a reply.
const READ_SHARE: u64 = 8;

/// Memory of [`Resp`] beyond this is given back after use.
pub(super) const KEPT_BYTES: usize = 1 << 20;

/// What a gateway is set to.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    /// The largest message.
    pub(crate) max_message_bytes: u64,
    /// The most bytes of a reply with entries of streams, beyond its last entry.
    pub(crate) max_reply_bytes: usize,
    /// The version of RBMQ.
    pub(crate) version: &'static str,
    /// When the gateway began.
    pub(crate) began: SystemTime,
}

/// What all clients of a gateway have together.
#[derive(Debug, Clone)]
pub(super) struct Bounds {
    /// Subscriptions, each of which takes up to a kilobyte.
    pub(super) subscriptions: usize,
    /// Different patterns: each new topic is matched with each of them.
    pub(super) patterns: usize,
    /// What these take.
    pub(super) pattern_bytes: usize,
    /// Bytes of transactions, and of their replies while they wait.
    pub(super) transaction_bytes: usize,
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            subscriptions: 1_000_000,
            patterns: 10_000,
            pattern_bytes: 16 << 20,
            transaction_bytes: 64 << 20,
        }
    }
}

/// What came of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Flow {
    /// It is executed, and answered.
    Done,
    /// It cannot be executed yet.
    Blocked,
    /// It is executed in the next turn, or goes on in it.
    Later,
    /// It waits for news, for any time.
    Waits,
}

impl Flow {
    /// What is told to the floor after so many bytes. None: the next command follows.
    fn stops(self, at: usize) -> Option<Taken> {
        match self {
            Self::Done => None,
            Self::Blocked => Some(Taken::Blocked(at)),
            Self::Later => Some(Taken::Later(at)),
            Self::Waits => Some(Taken::Waits(at)),
        }
    }
}

/// What is counted for `INFO`.
#[derive(Debug, Default)]
pub(super) struct Counts {
    pub(super) connections: u64,
    pub(super) commands: u64,
    pub(super) lost_bytes: u64,
}

/// RESP for all connections of a gateway.
pub(crate) struct Resp {
    pub(super) limits: Limits,
    pub(super) bounds: Bounds,
    pub(super) max_reply_bytes: usize,
    pub(super) version: &'static str,
    /// When the gateway began, by both clocks.
    pub(super) began: SystemTime,
    pub(super) began_at: Instant,
    pub(super) clients: HashMap<ConnId, Client>,
    pub(super) routes: Routes,
    /// The bytes of all transactions.
    pub(super) transaction_bytes: usize,
    /// Replies to the client whose bytes are read.
    pub(super) replies: Vec<u8>,
    /// What the commands of this call have cost, beside the replies that are there.
    pub(super) cost: usize,
    reads: Reads,
    arguments: Arguments,
    scratch: Scratch,
    pub(super) counts: Counts,
    /// Clients that wait for entries of streams.
    pub(super) waiting: streams::Waiting,
    pub(super) stream_counts: streams::Counts,
    /// The number of the next entry.
    pub(super) append_number: u64,
    /// The fields of an entry.
    pub(super) payload: Vec<u8>,
    /// A command of this client may have changed consumer groups, which the journal does not have.
    has_changed_groups: bool,
    /// Why the journal has not taken that: its replies were not sent.
    unwritten: Option<String>,
}

impl Resp {
    /// A gateway without connections, which begins now.
    pub(crate) fn new(settings: Settings, now: Instant) -> Self {
        let bulk = u32::try_from(settings.max_message_bytes).unwrap_or(u32::MAX >> 1).min(u32::MAX >> 1);
        let command = u64::from(bulk) + MAX_COMMAND_OVERHEAD;
        Self {
            limits: Limits {
                arguments: MAX_ARGUMENTS,
                bulk: bulk as usize,
                command: u32::try_from(command).expect("half of the range and a little"),
                is_stranger: false,
            },
            bounds: Bounds::default(),
            max_reply_bytes: settings.max_reply_bytes,
            version: settings.version,
            began: settings.began,
            began_at: now,
            clients: HashMap::new(),
            routes: Routes::default(),
            transaction_bytes: 0,
            replies: Vec::new(),
            cost: 0,
            reads: Reads::default(),
            arguments: Arguments::default(),
            scratch: Scratch::default(),
            counts: Counts::default(),
            waiting: streams::Waiting::default(),
            stream_counts: streams::Counts::default(),
            append_number: 0,
            payload: Vec::new(),
            has_changed_groups: false,
            unwritten: None,
        }
    }

    /// Executes what is complete.
    fn read(
        &mut self,
        client: &mut Client,
        bytes: &[u8],
        arguments: &mut Arguments,
        cx: &mut Cx<'_>,
    ) -> Taken {
        let mut at = 0;
        loop {
            if client.closing.is_some() {
                return Taken::Bytes(bytes.len());
            }
            match client.wait {
                Wait::Check | Wait::Disk | Wait::Filters(1..) => return Taken::Blocked(at),
                Wait::News => return Taken::Waits(at),
                Wait::No | Wait::Checked(_) | Wait::Filters(0) | Wait::NotSubscribed(_) => {}
            }
            if self.cost >= MAX_COST || self.replies.len() >= MAX_REPLIES && self.is_full(client, cx) {
                return Taken::Later(at);
            }
            let rest = &bytes[at..];
            let limits = Limits { is_stranger: !client.is_in, ..self.limits };
            if client.is_plain()
                && client.parser.is_at_start()
                && let Some(found) = publish(rest, &limits)
            {
                if self.publish_now(client, found, cx) == Flow::Blocked {
                    return Taken::Blocked(at);
                }
                at += found.used;
                continue;
            }
            match client.parser.parse(rest, &limits, arguments) {
                Step::Command(used) => {
                    let command = arguments.of(rest);
                    let flow = self.command(client, &command, &rest[..used], cx);
                    if let Some(taken) = flow.stops(at) {
                        return taken;
                    }
                    at += used;
                }
                Step::Nothing(used) => at += used,
                // Replies come before the client is read again.
                Step::More | Step::Broken(_) if !client.appends.is_empty() => return Taken::Blocked(at),
                Step::More => return Taken::Bytes(at),
                Step::Broken(error) => self.broken(client, error, cx),
            }
        }
    }

    fn broken(&mut self, client: &mut Client, error: ProtocolError, cx: &mut Cx<'_>) {
        Reply::new(&mut self.replies, client.is_resp3).error(format_args!("ERR {error}"));
        client.closing = Some("its client does not speak RESP");
        cx.out.fault();
    }

    /// Executes a command, or keeps it for `EXEC`. `raw` is what the client sent.
    fn command(&mut self, client: &mut Client, command: &Command<'_>, raw: &[u8], cx: &mut Cx<'_>) -> Flow {
        if !client.appends.is_empty() && !client.is_executing() && !is_append(command) {
            return Flow::Blocked;
        }
        let begin = self.replies.len();
        let (flow, is_subscribing) = match self.admit(client, command, cx) {
            Ok(spec) if client.transaction.is_some() && !spec.is_immediate() => {
                self.keep(client, raw);
                (Flow::Done, false)
            }
            Ok(spec) => {
                client.command = spec.name;
                (self.execute(client, spec, command, cx), spec.is_subscribing())
            }
            Err(()) => (Flow::Done, false),
        };
        if flow != Flow::Done {
            return flow;
        }
        let is_error = self.replies.get(begin) == Some(&b'-');
        self.executed(client, begin, is_subscribing && !is_error, cx);
        flow
    }

    /// A command is executed, whose reply begins here. `is_wanted`: even by a client that wants none.
    fn executed(&mut self, client: &mut Client, begin: usize, is_wanted: bool, cx: &Cx<'_>) {
        self.counts.commands += 1;
        self.cost += self.replies.len() - begin;
        client.used = cx.now;
        // As it is after the command: `CLIENT REPLY ON` is answered.
        if client.is_muted() && !is_wanted {
            self.replies.truncate(begin);
        }
        client.muted.skips = std::mem::take(&mut client.muted.skips_next);
    }

    /// Whether the client may send the command now. If not, it is answered.
    fn admit(
        &mut self,
        client: &mut Client,
        command: &Command<'_>,
        cx: &mut Cx<'_>,
    ) -> Result<&'static Spec, ()> {
        let name = command.get(0).unwrap_or_default();
        let mut reply = Reply::new(&mut self.replies, client.is_resp3);
        let found = Spec::find(name);
        match found {
            None if name.eq_ignore_ascii_case(b"post") || name.eq_ignore_ascii_case(b"host:") => {
                // A page of a browser, whose next lines would be commands.
                client.closing = Some("its client speaks HTTP");
                cx.out.fault();
            }
            None if needs_store(name) => reply.error(format_args!(
                "ERR '{}' needs a key-value store, and this is none: RBMQ's gateway has PUBLISH, SUBSCRIBE and streams",
                name.escape_ascii()
            )),
            None => unknown_command(&mut reply, command),
            // `EXEC`, which goes on, although what it has executed may forbid it.
            Some(spec) if client.is_executing() => return Ok(spec),
            Some(spec) if !spec.takes(command.len()) => {
                reply.error(format_args!("ERR wrong number of arguments for '{}' command", spec.name));
            }
            Some(spec) if !client.is_in && !spec.is_for_strangers() => {
                reply.error("NOAUTH Authentication required.");
            }
            Some(spec) if client.is_restricted() && !spec.is_for_subscribed() => {
                let name = match command.get(1).filter(|_| spec.has_subcommands) {
                    Some(sub) => format!("{}|{}", spec.name, sub.escape_ascii()).to_ascii_lowercase(),
                    None => spec.name.to_owned(),
                };
                reply.error(format_args!(
                    "ERR Can't execute '{name}': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed in this context"
                ));
            }
            Some(spec) => return Ok(spec),
        }
        if let Some(transaction) = &mut client.transaction {
            transaction.is_broken = true;
        }
        Err(())
    }

    /// Executes a command that is allowed.
    pub(super) fn execute(
        &mut self,
        client: &mut Client,
        spec: &'static Spec,
        command: &Command<'_>,
        cx: &mut Cx<'_>,
    ) -> Flow {
        if spec.reads_logs() && !self.reads.has_turn() {
            return Flow::Later;
        }
        let (before, begin) = (cx.bus.read_bytes(), self.replies.len());
        let is_in_place = client.fetches as usize >= MAX_FETCHES + command.len();
        if spec.reads_logs() && is_in_place {
            // Once. What keeps its place waits elsewhere again for what it needs next.
            client.fetches = 0;
            cx.bus.read_in_place();
        }
        let flow = self.run(client, spec, command, cx);
        if !spec.reads_logs() {
            return flow;
        }
        let read = cx.bus.read_bytes() - before;
        self.reads.add(read);
        self.cost += usize::try_from(read / READ_SHARE).unwrap_or(usize::MAX / 2);
        // Who asks for much is not executed again for each little part.
        let fetch = cx.bus.fetch(client.conn, FETCH_BYTES << client.fetches.min(MAX_DOUBLED));
        if fetch != Fetch::Nothing {
            self.replies.truncate(begin);
            client.fetches = client.fetches.saturating_add(1);
            if fetch == Fetch::Now {
                return Flow::Later;
            }
            client.wait = Wait::Disk;
            return Flow::Blocked;
        }
        if flow == Flow::Done {
            (client.fetches, client.reading) = (0, None);
        }
        flow
    }

    fn run(
        &mut self,
        client: &mut Client,
        spec: &'static Spec,
        command: &Command<'_>,
        cx: &mut Cx<'_>,
    ) -> Flow {
        self.has_changed_groups |= spec.changes_groups();
        let post = |is_sharded| Post {
            channel: command.get(1).unwrap_or_default(),
            payload: command.get(2).unwrap_or_default(),
            is_sharded,
        };
        match spec.verb {
            Verb::Publish => return self.publish(client, post(false), cx),
            Verb::Spublish => return self.publish(client, post(true), cx),
            Verb::Subscribe => return self.subscribe(client, Kind::Channel, command, cx),
            Verb::Psubscribe => return self.subscribe(client, Kind::Pattern, command, cx),
            Verb::Ssubscribe => return self.subscribe(client, Kind::Shard, command, cx),
            Verb::Exec => return self.exec(client, cx),
            Verb::Auth => return self.auth(client, command, cx),
            Verb::Hello => return self.hello(client, command, cx),
            Verb::Xadd => return self.xadd(client, command, cx),
            Verb::Xread => return self.xread(client, command, cx),
            Verb::Xreadgroup => return self.xreadgroup(client, command, cx),
            Verb::Xgroup => return self.xgroup(client, command, cx),
            Verb::Xlen => return self.xlen(client, command, cx),
            Verb::Xinfo => return self.xinfo(client, command, cx),
            Verb::Unsubscribe => self.unsubscribe(client, Kind::Channel, command, cx),
            Verb::Punsubscribe => self.unsubscribe(client, Kind::Pattern, command, cx),
            Verb::Sunsubscribe => self.unsubscribe(client, Kind::Shard, command, cx),
            Verb::Pubsub => self.pubsub(client, command, cx),
            Verb::Client => self.client(client, command, cx),
            Verb::Reset => self.reset(client, cx),
            Verb::Info => self.info(client, command, cx),
            Verb::Time => self.time(client, cx),
            Verb::Xrange => self.xrange(client, command, false, cx),
            Verb::Xrevrange => self.xrange(client, command, true, cx),
            Verb::Xtrim => self.xtrim(client, command, cx),
            Verb::Xchange => self.unchangeable(client),
            Verb::Xack | Verb::Xpending | Verb::Xclaim | Verb::Xautoclaim => {
                self.pending(client, spec.verb, command, cx);
            }
            Verb::Type => self.type_of(client, command, cx),
            Verb::Exists => self.exists(client, command, cx),
            Verb::Multi | Verb::Discard | Verb::Watch | Verb::Unwatch => self.transaction(client, spec.verb),
            _ => self.server(client, spec.verb, command, cx),
        }
        Flow::Done
    }

    /// Publishes what came in the usual form.
    fn publish_now(&mut self, client: &mut Client, found: Publish<'_>, cx: &mut Cx<'_>) -> Flow {
        let Publish { channel, payload, .. } = found;
        let begin = self.replies.len();
        client.command = "publish";
        let flow = self.publish(client, Post { channel, payload, is_sharded: false }, cx);
        if flow == Flow::Done {
            self.executed(client, begin, false, cx);
        }
        flow
    }

    /// Queues the replies. Returns whether the client has to read them before there are more.
    fn is_full(&mut self, client: &Client, cx: &mut Cx<'_>) -> bool {
        self.send(client.conn, cx);
        cx.out.queued_bytes(client.conn) >= MAX_REPLIES as u64
    }

    /// Queues the replies. What they say of consumer groups is in the journal then.
    pub(super) fn send(&mut self, conn: ConnId, cx: &mut Cx<'_>) {
        if std::mem::take(&mut self.has_changed_groups)
            && let Err(error) = cx.bus.write_groups()
        {
            self.unwritten = Some(error);
        }
        if self.unwritten.is_some() {
            self.replies.clear();
        }
        if !self.replies.is_empty() {
            cx.out.send(conn, &self.replies);
            self.replies.clear();
            self.replies.shrink_to(KEPT_BYTES);
        }
    }
}

/// Whether a command may follow entries whose replies are not sent yet.
fn is_append(command: &Command<'_>) -> bool {
    command
        .get(0)
        .and_then(Spec::find)
        .is_some_and(|spec| spec.verb == Verb::Xadd && spec.takes(command.len()))
}

/// The answer to a command that Redis does not have either.
fn unknown_command(reply: &mut Reply<'_>, command: &Command<'_>) {
    const MOST: usize = 128;
    let cut = |text: &[u8], most: usize| String::from_utf8_lossy(&text[..text.len().min(most)]).into_owned();
    let mut arguments = String::new();
    for argument in command.from(1) {
        if arguments.len() >= MOST {
            break;
        }
        arguments += &format!("'{}' ", cut(argument, MOST - arguments.len()));
    }
    let name = cut(command.get(0).unwrap_or_default(), MOST);
    reply.error(format_args!("ERR unknown command '{name}', with args beginning with: {arguments}"));
}

impl Protocol for Resp {
    fn on_open(&mut self, conn: ConnId, address: &str, cx: &mut Cx<'_>) {
        self.counts.connections += 1;
        // A certificate may have said who it is.
        let is_in = cx.door.lets_in_anonymous() || cx.door.user(conn).is_some();
        let client = Client::new(conn, self.counts.connections, address, is_in, cx.now);
        self.clients.insert(conn, client);
    }

    fn on_bytes(&mut self, conn: ConnId, bytes: &[u8], cx: &mut Cx<'_>) -> Taken {
        let Some(mut client) = self.clients.remove(&conn) else { return Taken::Bytes(bytes.len()) };
        let mut arguments = std::mem::take(&mut self.arguments);
        let commands = self.counts.commands;
        self.cost = 0;
        let taken = self.read(&mut client, bytes, &mut arguments, cx);
        self.arguments = arguments;
        // What a client waits for is a command too.
        if client.is_in && (self.counts.commands > commands || client.wait == Wait::News) {
            cx.out.known(conn);
        }
        self.send(conn, cx);
        if let Some(error) = self.unwritten.take() {
            // The client cannot know which of its commands count, so it has to begin anew.
            Reply::new(&mut self.replies, client.is_resp3).error(format_args!("ERR {error}"));
            self.send(conn, cx);
            client.closing = Some("the disk does not take what its consumers say");
        }
        if let Some(reason) = client.closing {
            cx.out.close(conn, reason);
        }
        self.clients.insert(conn, client);
        taken
    }

    fn on_closed(&mut self, conn: ConnId, cx: &mut Cx<'_>) {
        if let Some(mut client) = self.clients.remove(&conn) {
            // Also what it has waited for, and did not take.
            cx.bus.forget_fetch(conn);
            self.abandon(&mut client, cx);
            self.end_transaction(&mut client);
            if let Some(reading) = client.reading.take().filter(|_| client.wait == Wait::News) {
                self.waiting.remove(conn, &reading, cx.bus);
            }
            self.unsubscribe_all(&mut client, cx);
        }
    }

    fn on_message(&mut self, message: Message<'_>, cx: &mut Cx<'_>) {
        deliver(&mut self.routes, message, &mut self.scratch, cx);
    }

    fn on_subscribed(&mut self, filter: &TopicFilter, cx: &mut Cx<'_>) {
        for conn in self.routes.on_subscribed(filter) {
            if let Some(client) = self.clients.get_mut(&conn)
                && let Wait::Filters(left) = &mut client.wait
            {
                *left = left.saturating_sub(1);
                if *left == 0 {
                    cx.out.resume(conn);
                }
            }
        }
    }

    fn on_not_subscribed(&mut self, filter: &TopicFilter, is_limit: bool, cx: &mut Cx<'_>) {
        self.not_subscribed(filter, is_limit, cx);
    }

    fn on_login(&mut self, conn: ConnId, accepted: bool, cx: &mut Cx<'_>) {
        if let Some(client) = self.clients.get_mut(&conn)
            && client.wait == Wait::Check
        {
            client.wait = Wait::Checked(accepted);
            cx.out.resume(conn);
        }
    }

    fn on_lost(&mut self, _topic: &TopicName, bytes: u64, _cx: &mut Cx<'_>) {
        // Clients have no word for it: `INFO` and the floor's log have.
        self.counts.lost_bytes += bytes;
    }

    fn on_drained(&mut self, _conn: ConnId, _cx: &mut Cx<'_>) {}

    fn on_stored(&mut self, ticket: Ticket, stored: Result<(Position, u64), String>, cx: &mut Cx<'_>) {
        self.appended(ticket, stored, cx);
    }

    fn on_grown(&mut self, topic: &TopicName, cx: &mut Cx<'_>) {
        for conn in self.waiting.of(topic) {
            self.wake(conn, false, cx);
        }
    }

    fn on_fetched(&mut self, conn: ConnId, cx: &mut Cx<'_>) {
        if let Some(client) = self.clients.get_mut(&conn)
            && client.wait == Wait::Disk
        {
            client.wait = Wait::No;
            cx.out.resume(conn);
        }
    }

    fn on_time(&mut self, cx: &mut Cx<'_>) -> Option<Instant> {
        self.stream_counts.next_round();
        self.reads.next_round();
        while let Some(conn) = self.waiting.pop_due(cx.now) {
            self.wake(conn, true, cx);
        }
        self.waiting.next_due()
    }

    fn on_stop(&mut self, _cx: &mut Cx<'_>) {}
}
