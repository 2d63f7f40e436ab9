//! The contract between the floor and a protocol.
//!
//! ```text
//!              on_bytes, on_message, on_tick …
//!   floor ───────────────────────────────────▶ protocol
//!         ◀───────────────────────────────────
//!           Outlets: send, frame, push, close    Bus: publish, subscribe    Door: log in, rights
//! ```
//!
//! A protocol never does I/O and reads no clock: the floor calls it with events and the time, and it acts through [`Cx`]. So a protocol runs in
//! tests with outlets in memory.

use std::time::Instant;

use rbmq_broker::{Consumers, GroupChange, GroupCharge, GroupRoom, KeptBatch, KeptRead};
use rbmq_wire::{GroupName, TopicFilter, TopicName};
use rocketbufs::Position;

/// A connection of a client. The id is not used again while the gateway runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct ConnId(pub(crate) u64);

/// Bytes in the log of frames, which several connections may send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Range {
    /// The position of the first byte in the log of frames.
    pub(crate) position: u64,
    /// The number of bytes.
    pub(crate) len: u32,
}

/// A message of a topic, borrowed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Message<'a> {
    /// The topic.
    pub(crate) topic: &'a TopicName,
    /// Encoded attributes, as in a record; empty without.
    pub(crate) attributes: &'a [u8],
    /// The content.
    pub(crate) payload: &'a [u8],
}

/// What the protocol made of the bytes of a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Taken {
    /// So many bytes were used; the others are the beginning of a command, and come again with more behind them.
    Bytes(usize),
    /// So many bytes were used, and the next command cannot be executed yet, because the bus has no room or an answer is missing. The floor reads
    /// nothing more from this connection, and calls again with the same bytes after [`Bus`] has room or [`Outlets::resume`].
    Blocked(usize),
    /// So many bytes were used, and the client has to read what is queued for it before more is. The floor calls again when everything is sent. For
    /// protocols whose replies are larger than their commands: a piece of input must not become any number of bytes in memory.
    Later(usize),
    /// So many bytes were used, and the next command waits for news, for any time, until [`Outlets::resume`]. Unlike [`Taken::Blocked`] the client
    /// may leave meanwhile: its connection ends then, whatever it has sent.
    Waits(usize),
}

/// Sending to connections.
pub(crate) trait Outlets {
    /// Appends bytes for one connection, in order with everything else that it gets.
    fn send(&mut self, conn: ConnId, bytes: &[u8]);
    /// Appends pieces to the log of frames, for any number of connections. The range stays valid for all [`Outlets::push`] of the same event.
    fn frame(&mut self, pieces: &[&[u8]]) -> Range;
    /// Whether a range is still in the log: later frames of the same event may have taken its place.
    fn is_there(&self, range: Range) -> bool;
    /// Queues a range of the log of frames for a connection, in order with everything else that it gets. `false`: the connection is too slow, and
    /// its policy dropped the range; if the policy is to disconnect, it is closed. Or the range is not there any more.
    fn push(&mut self, conn: ConnId, range: Range) -> bool;
    /// Queues bytes for this connection alone and a range behind them, which are dropped together.
    fn push_with(&mut self, conn: ConnId, head: &[u8], range: Range) -> bool;
    /// Closes a connection after what is queued. The reason is for the log.
    fn close(&mut self, conn: ConnId, reason: &str);
    /// Reads a blocked connection again.
    fn resume(&mut self, conn: ConnId);
    /// The client has shown who it is: it is no stranger any more, and makes room for nobody.
    fn known(&mut self, conn: ConnId);
    /// The number of bytes that are queued for a connection.
    fn queued_bytes(&self, conn: ConnId) -> u64;
    /// The bytes that may still wait for clients of the gateway, before one of them is disconnected for it.
    fn room(&self) -> usize;
    /// Counts messages that were queued for clients, each client once.
    fn delivered(&mut self, messages: u64);
    /// Counts messages that clients lost in queues of the protocol.
    fn dropped(&mut self, messages: u64);
    /// Counts a client that broke the protocol.
    fn fault(&mut self);
}

/// Why a message was not published.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum PublishError {
    /// There is no room now: block the connection ([`Taken::Blocked`]).
    Full,
    /// The message exceeds the largest size, in bytes.
    TooLarge {
        /// The largest message.
        most: u64,
    },
    /// The disk that keeps the topic takes nothing now, and nothing was stored. The text is for people. Blocked connections are read again
    /// from time to time meanwhile.
    NoDisk(String),
    /// The broker refuses the topic. The text is for people.
    Refused(String),
}

/// What the broker keeps of a topic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kept {
    /// Nothing: no rule says so.
    No,
    /// It is kept among others, in the log of a space.
    InSpace,
    /// Nobody knows here: the broker is another process, and its logs are there.
    Elsewhere,
    /// It has a log of its own, with these positions: the same ones if nobody has published yet, or nothing is left.
    Yes {
        /// The first position.
        first: Position,
        /// The position behind the last delivery.
        end: Position,
    },
}

/// By this a protocol knows its message again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ticket {
    /// The client.
    pub(crate) conn: ConnId,
    /// The number that the protocol gave the message.
    pub(crate) number: u64,
}

/// What is done about a part of a log that may not be in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fetch {
    /// Nothing: no call has failed because of it.
    Nothing,
    /// It is read: [`Protocol::on_fetched`] follows.
    Waits,
    /// Too much is being read. The next call waits for the disk itself.
    Now,
}

/// Logs of topics that the broker keeps on disk. Errors are texts for people.
pub(crate) trait Logs {
    /// What is kept of a topic.
    fn kept(&mut self, topic: &TopicName) -> Kept;
    /// Whether the broker is another process. A message is then only here when it was published, and [`Logs::append`] says when the broker has it.
    fn is_beside(&self) -> bool {
        false
    }
    /// Whether messages of a topic come back from the broker, if a filter that is in force matches it. Of another process nobody knows whether
    /// it refuses a filter.
    fn comes_back(&self, _topic: &TopicName) -> bool {
        true
    }
    /// Publishes a message to a topic with a log of its own. [`Protocol::on_stored`] follows when it is in the file: it survives the broker. Beside
    /// the broker ([`Logs::is_beside`]) any topic will do: [`Protocol::on_stored`] follows when the broker has the message, in the file if it keeps
    /// the topic, at a position that means nothing.
    ///
    /// # Errors
    /// As [`Bus::publish`].
    fn append(
        &mut self,
        topic: &TopicName,
        attributes: &[u8],
        payload: &[u8],
        ticket: Ticket,
    ) -> Result<(), PublishError>;
    /// [`Protocol::on_grown`] follows each time that something was stored of a topic; false: not any more. The log may not be there yet.
    fn follow_log(&mut self, topic: &TopicName, follow: bool);
    /// The whole delivery at a position of a topic's log.
    fn read_log(&mut self, topic: &TopicName, position: Position) -> Result<KeptRead, String>;
    /// The last delivery that begins before a position of a topic's log.
    fn read_log_before(&mut self, topic: &TopicName, position: Position)
    -> Result<Option<KeptBatch>, String>;
    /// The bytes of logs that were read so far, by whatever call: what a command has cost is more than its reply.
    fn read_bytes(&self) -> u64;
    /// The position of the first delivery of this time, in milliseconds since 1970, or later; the end of the log if there is none.
    fn find_time(&mut self, topic: &TopicName, time_ms: u64) -> Result<Position, String>;
    /// Whether a call has failed since the last one of this because the disk may have to be waited for. Then so many bytes from there on are read
    /// elsewhere for the client, and the call succeeds afterwards.
    fn fetch(&mut self, conn: ConnId, bytes: u64) -> Fetch;
    /// Calls wait for the disk themselves, up to the next [`Logs::fetch`].
    fn read_in_place(&mut self);
    /// A client has left: nothing is read for it any more.
    fn forget_fetch(&mut self, conn: ConnId);
}

/// Groups of named consumers of the topics that the broker keeps on disk. Errors are texts for people.
pub(crate) trait Groups {
    /// Calls `act` with a group of a topic. False: there is none.
    fn with_group(
        &mut self,
        topic: &TopicName,
        group: &GroupName,
        act: &mut dyn FnMut(&mut Consumers, GroupRoom),
    ) -> Result<bool, String>;
    /// The names of the groups of a topic, in order.
    fn group_names(&mut self, topic: &TopicName) -> Vec<GroupName>;
    /// Writes what [`Groups::with_group`] has done: it survives the broker then.
    fn write_groups(&mut self) -> Result<(), String>;
    /// Makes or removes a group for a client: [`Protocol::on_fetched`] follows when [`Groups::changed_group`] says what came of it, unless
    /// [`Logs::forget_fetch`] forgets the client.
    fn change_group(&mut self, conn: ConnId, change: GroupChange);
    /// What came of the last change for a client: whether there was something to do. This is told once. None: nothing yet.
    fn changed_group(&mut self, conn: ConnId) -> Option<Result<bool, String>>;
    /// [`Protocol::on_grown`] follows for those who follow the topic.
    fn tell_of(&mut self, topic: &TopicName);
    /// Makes the log of a topic, if it has none.
    ///
    /// # Errors
    /// As [`Bus::publish`].
    fn open_log(&mut self, topic: &TopicName) -> Result<(), PublishError>;
}

/// Topics of the broker.
pub(crate) trait Bus: Logs + Groups {
    /// Publishes a message. `attributes` are encoded, or empty.
    ///
    /// # Errors
    /// Nothing was published.
    fn publish(&mut self, topic: &TopicName, attributes: &[u8], payload: &[u8]) -> Result<(), PublishError>;
    /// Asks for the messages of all topics that the filter matches. Counted: as many [`Bus::unsubscribe`] end it. `true`: every message that is
    /// published from now on arrives. `false`: [`Protocol::on_subscribed`] follows with the filter when that is so, or [`Protocol::on_not_subscribed`]:
    /// then the next call asks again.
    fn subscribe(&mut self, filter: &TopicFilter) -> bool;
    /// Takes one [`Bus::subscribe`] back.
    fn unsubscribe(&mut self, filter: &TopicFilter);
    /// The same question for a filter that is subscribed to already, by others.
    fn ask_again(&mut self, filter: &TopicFilter) -> bool {
        let is_in_force = self.subscribe(filter);
        self.unsubscribe(filter);
        is_in_force
    }
    /// Whether what is published here to a topic comes back in the log of this name: that of its space, or its own. A topic that comes from elsewhere
    /// has a log of its own beside that of the space.
    fn is_log_of(&self, log: &TopicName, topic: &TopicName) -> bool;
}

/// The outcome of a login.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Entry {
    /// The client is let in.
    In,
    /// The client is refused.
    Refused,
    /// A password is being checked: [`Protocol::on_login`] follows. Block the connection.
    Wait,
}

/// Who a client is, and what it may do. Every refusal is counted and audited here.
pub(crate) trait Door {
    /// Whether clients without credentials are let in, with the rights of everybody.
    fn lets_in_anonymous(&self) -> bool;
    /// Logs a client in with a name and a password, or with a token if there is no name.
    fn log_in(&mut self, conn: ConnId, user: Option<&str>, secret: &str) -> Entry;
    /// Forgets who the client is: it has the rights of everybody again, if there are any.
    fn log_out(&mut self, conn: ConnId);
    /// The name of the client's user; none: it has not logged in.
    fn user(&self, conn: ConnId) -> Option<&str>;
    /// Whether the client may publish to the topic.
    fn may_publish(&mut self, conn: ConnId, topic: &TopicName) -> bool;
    /// Whether a user may publish to the topic who is not connected now: somebody who has logged in before has asked for it. An empty name is that of
    /// clients that need not log in.
    fn may_user_publish(&mut self, user: &str, topic: &TopicName) -> bool;
    /// Whether the client may receive messages of the topic.
    fn may_subscribe(&mut self, conn: ConnId, topic: &TopicName) -> bool;
    /// The same for one message of a subscription with wildcards. Nobody asked for this topic: to withhold the message is no refusal, and is neither
    /// counted nor audited.
    fn may_receive(&mut self, conn: ConnId, topic: &TopicName) -> bool;
    /// The same for a user who is not connected, as far as that is known.
    fn may_user_receive(&mut self, user: &str, topic: &TopicName) -> bool;
    /// Whether the client may subscribe to the filter at all: it has a right for some topic that the filter matches. Messages of other topics are
    /// withheld one by one ([`Door::may_receive`]).
    fn may_subscribe_to_some(&mut self, conn: ConnId, filter: &TopicFilter) -> bool;
    /// The client asks for filters, and would have so many then, for the quotas of its user and its address.
    ///
    /// # Errors
    /// That is more than a quota allows. The text is for the client.
    fn ask_for_filters(&mut self, conn: ConnId, count: FilterCount) -> Result<(), String>;
    /// The client makes a group, which counts in the quotas of its user and its address as long as somebody has the result.
    ///
    /// # Errors
    /// A quota does not allow it. The text is for the client.
    fn charge_group(&mut self, conn: ConnId) -> Result<Option<GroupCharge>, String>;
    /// The client has so many filters: fewer than before.
    fn set_filters(&mut self, conn: ConnId, count: FilterCount);
}

/// The filters of a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct FilterCount {
    /// All of them.
    pub(crate) all: usize,
    /// Those with wildcards.
    pub(crate) patterns: usize,
}

/// What a protocol acts through.
pub(crate) struct Cx<'a> {
    /// Sending to connections.
    pub(crate) out: &'a mut dyn Outlets,
    /// Topics of the broker.
    pub(crate) bus: &'a mut dyn Bus,
    /// Logins and rights.
    pub(crate) door: &'a mut dyn Door,
    /// The present time.
    pub(crate) now: Instant,
}

/// A protocol: the state of all its connections.
pub(crate) trait Protocol {
    /// The gateway begins, before the first client. The filters that are subscribed to here are in force then.
    fn on_start(&mut self, _cx: &mut Cx<'_>) {}
    /// What was queued for connections is sent next. Returns a time if nothing may be sent before it: what the protocol has to write first
    /// cannot be written. The call comes again, at that time or before.
    fn before_sending(&mut self, _cx: &mut Cx<'_>) -> Option<Instant> {
        None
    }
    /// The broker does not take a topic any more, after messages were published to it, or messages of the topic cannot be received.
    fn on_refused(&mut self, _topic: &TopicName, _cx: &mut Cx<'_>) {}
    /// A client has connected, from the given address.
    fn on_open(&mut self, conn: ConnId, address: &str, cx: &mut Cx<'_>);
    /// A client has sent bytes: all that it sent and the protocol has not used yet.
    fn on_bytes(&mut self, conn: ConnId, bytes: &[u8], cx: &mut Cx<'_>) -> Taken;
    /// A connection has ended, whoever ended it. Nothing more is sent to it.
    fn on_closed(&mut self, conn: ConnId, cx: &mut Cx<'_>);
    /// A message has arrived, of a topic that some filter of [`Bus::subscribe`] matches. Each message arrives once.
    fn on_message(&mut self, message: Message<'_>, cx: &mut Cx<'_>);
    /// The filter is in force ([`Bus::subscribe`]).
    fn on_subscribed(&mut self, filter: &TopicFilter, cx: &mut Cx<'_>);
    /// The broker refuses the filter, which [`Bus::subscribe`] said is not in force yet: nothing comes of it. For a limit, or as the gateway's user has
    /// no right.
    fn on_not_subscribed(&mut self, filter: &TopicFilter, is_limit: bool, cx: &mut Cx<'_>);
    /// A message of [`Logs::append`] is stored, at this position of its topic's log and this time in milliseconds since 1970; or it is not, for this
    /// reason. Messages to one topic are told in order.
    fn on_stored(&mut self, _ticket: Ticket, _stored: Result<(Position, u64), String>, _cx: &mut Cx<'_>) {}
    /// A topic that is followed ([`Logs::follow_log`]) has grown.
    fn on_grown(&mut self, _topic: &TopicName, _cx: &mut Cx<'_>) {}
    /// What a client wants to read can be read now ([`Logs::fetch`]). It may have left.
    fn on_fetched(&mut self, _conn: ConnId, _cx: &mut Cx<'_>) {}
    /// A password was checked.
    fn on_login(&mut self, conn: ConnId, accepted: bool, cx: &mut Cx<'_>);
    /// Messages of a log were lost on the way to this gateway: so many bytes. [`Bus::is_log_of`] says whether a topic has this log.
    fn on_lost(&mut self, log: &TopicName, bytes: u64, cx: &mut Cx<'_>);
    /// Everything that was queued for a connection has been sent. Called for connections that were full.
    fn on_drained(&mut self, conn: ConnId, cx: &mut Cx<'_>);
    /// The time that was asked for has come. Returns when to call next; none: never.
    fn on_time(&mut self, cx: &mut Cx<'_>) -> Option<Instant>;
    /// Whether something waits until the bus or the broker has it: a gateway that stops calls [`Protocol::on_time`] for a while.
    fn has_unpublished(&self) -> bool {
        false
    }
    /// The gateway stops: clients are told where the protocol has a word for it. Connections are closed after what is queued.
    fn on_stop(&mut self, cx: &mut Cx<'_>);
}
