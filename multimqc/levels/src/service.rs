//! The effects of datagrams, without sockets: pushes into the stack, and replies out of it.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use locks::Mutex;

use crate::functions::{Decision, InputFunction, OutputFunction};
use crate::log::{Batch, Hole};
use crate::senders::{SenderReport, Senders};
use crate::stack::{Stack, Tail};
use crate::topic::{Epoch, TopicId};
use crate::wire::{
    self, Datagram, HEADER_BYTES, Header, Kind, MAX_PAYLOAD_BYTES, MTU_PAYLOAD_BYTES, Malformed, PullRequest,
    Status,
};

/// The settings of a [`Service`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServiceConfig {
    /// Whether a reply may be longer than its request. Only for networks in which nobody forges addresses: a small request gets a
    /// large reply to whatever address it names. Default: false.
    pub trusted: bool,
    /// The most bytes of a reply, with its header; default 1,472, the payload of an Ethernet frame.
    pub max_reply_bytes: usize,
    /// Senders whose losses are counted; default 65,536. Each costs about 24 bytes.
    pub max_senders: usize,
    /// Whether batches of other machines are stored ([`Kind::Batch`]): only where the level below sends them. A batch decides on
    /// offsets, so a forged one can make a hole of any size. Default: false.
    pub accept_batches: bool,
}

impl Default for ServiceConfig {
    fn default() -> Self {
        ServiceConfig {
            trusted: false,
            max_reply_bytes: MTU_PAYLOAD_BYTES,
            max_senders: 1 << 16,
            accept_batches: false,
        }
    }
}

/// The functions of a topic.
#[derive(Default)]
pub struct Functions {
    /// Decides which bytes of each message are stored.
    pub input: Option<Box<dyn InputFunction>>,
    /// Decides which bytes of each range are sent.
    pub output: Option<Box<dyn OutputFunction>>,
}

/// The counters of a service.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ServiceReport {
    /// Datagrams that carried messages.
    pub pushes: u64,
    /// Pushes that were not stored: they have no message, their topic is not open, or the first level refused them.
    pub refused: u64,
    /// Messages that an input function dropped.
    pub filtered: u64,
    /// Pull requests.
    pub pulls: u64,
    /// Replies.
    pub replies: u64,
    /// Replies that the system did not send.
    pub unsent: u64,
    /// Batches from levels below.
    pub batches: u64,
    /// Datagrams that do not have the form of their port.
    pub foreign: u64,
    /// Datagrams of another version.
    pub version: u64,
    /// Datagrams that were cut short or contradict themselves.
    pub broken: u64,
    /// Losses of senders that number their pushes.
    pub senders: SenderReport,
}

/// Handles datagrams. Any number of threads may use it.
pub struct Service {
    stack: Arc<Stack>,
    config: ServiceConfig,
    functions: HashMap<TopicId, Functions>,
    senders: Mutex<Senders>,
    counts: Counts,
}

#[derive(Default)]
struct Counts {
    pushes: AtomicU64,
    refused: AtomicU64,
    filtered: AtomicU64,
    pulls: AtomicU64,
    replies: AtomicU64,
    unsent: AtomicU64,
    batches: AtomicU64,
    foreign: AtomicU64,
    version: AtomicU64,
    broken: AtomicU64,
}

fn add(count: &AtomicU64, n: u64) {
    count.fetch_add(n, Ordering::Relaxed);
}

/// Consecutive pushes to one topic, not yet in the stack.
struct Run<'a> {
    topic: TopicId,
    messages: Vec<&'a [u8]>,
}

impl Service {
    /// A service for a stack with open topics.
    pub fn new(stack: Arc<Stack>, mut config: ServiceConfig) -> Service {
        config.max_reply_bytes = config.max_reply_bytes.min(MAX_PAYLOAD_BYTES);
        let senders = Mutex::new(Senders::new(config.max_senders));
        Service { stack, config, functions: HashMap::new(), senders, counts: Counts::default() }
    }

    /// Sets the functions of a topic.
    pub fn set_functions(&mut self, topic: TopicId, functions: Functions) {
        self.functions.insert(topic, functions);
    }

    /// The counters so far.
    pub fn report(&self) -> ServiceReport {
        let get = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let counts = &self.counts;
        ServiceReport {
            pushes: get(&counts.pushes),
            refused: get(&counts.refused),
            filtered: get(&counts.filtered),
            pulls: get(&counts.pulls),
            replies: get(&counts.replies),
            unsent: get(&counts.unsent),
            batches: get(&counts.batches),
            foreign: get(&counts.foreign),
            version: get(&counts.version),
            broken: get(&counts.broken),
            senders: self.senders.lock().report(),
        }
    }

    /// Stores pushes of the plain form. An empty datagram has no message.
    pub fn push<'a>(&self, topic: TopicId, datagrams: impl Iterator<Item = &'a [u8]>) {
        let mut count = 0;
        let mut datagrams = datagrams.inspect(|_| count += 1).filter(|message| !message.is_empty());
        let stored = self.store(topic, &mut datagrams);
        drop(datagrams);
        add(&self.counts.pushes, count);
        add(&self.counts.refused, count - stored.min(count));
    }

    /// Answers a pull of the plain form. Replaces `reply`, and returns whether it must be sent.
    pub fn pull(&self, topic: TopicId, datagram: &[u8], reply: &mut Vec<u8>) -> bool {
        reply.clear();
        let Some(pull) = PullRequest::parse(datagram) else {
            add(&self.counts.broken, 1);
            return false;
        };
        add(&self.counts.pulls, 1);
        let limit = wire::reply_limit(datagram.len(), self.config.trusted, self.config.max_reply_bytes);
        self.read(topic, pull.start, pull.length, limit, reply);
        add(&self.counts.replies, 1);
        true
    }

    /// Handles datagrams of the header form. `send` gets the number of each datagram that is answered, and the reply.
    pub fn datagrams<'a>(
        &self,
        datagrams: impl Iterator<Item = &'a [u8]>,
        mut send: impl FnMut(usize, &[u8]),
    ) {
        let mut run = Run { topic: TopicId(0), messages: Vec::new() };
        let mut reply = Vec::new();
        for (index, datagram) in datagrams.enumerate() {
            let parsed = match Datagram::parse(datagram) {
                Ok(parsed) => parsed,
                Err(why) => {
                    self.malformed(why);
                    continue;
                }
            };
            let Datagram { header, body } = parsed;
            match header.kind {
                Kind::Push => self.header_push(&header, body, &mut run),
                Kind::Pull => {
                    // A pull sees the pushes that came before it.
                    self.flush(&mut run);
                    self.header_pull(&header, datagram.len(), &mut reply);
                    send(index, &reply);
                }
                Kind::Batch => {
                    self.flush(&mut run);
                    self.batch(&header, body);
                }
                Kind::Reply => add(&self.counts.refused, 1),
            }
        }
        self.flush(&mut run);
    }

    /// Counts replies that the system did not send.
    pub(crate) fn unsent(&self, replies: usize) {
        add(&self.counts.unsent, replies as u64);
    }

    fn malformed(&self, why: Malformed) {
        let count = match why {
            Malformed::Foreign => &self.counts.foreign,
            Malformed::Version(_) => &self.counts.version,
            Malformed::Broken => &self.counts.broken,
        };
        add(count, 1);
    }

    fn header_push<'a>(&self, header: &Header, message: &'a [u8], run: &mut Run<'a>) {
        // A topic that is not open must not take a place among the senders.
        if self.stack.epoch(header.topic).is_none() {
            add(&self.counts.pushes, 1);
            add(&self.counts.refused, 1);
            return;
        }
        let mut senders = self.senders.lock();
        senders.push(header.topic, header.cookie, header.sequence);
        drop(senders);
        if run.topic != header.topic {
            self.flush(run);
            run.topic = header.topic;
        }
        run.messages.push(message);
    }

    fn flush(&self, run: &mut Run<'_>) {
        if !run.messages.is_empty() {
            self.push(run.topic, run.messages.drain(..));
        }
    }

    fn batch(&self, header: &Header, bytes: &[u8]) {
        let known = self.stack.epoch(header.topic).is_some_and(|epoch| header.epoch.admits(epoch));
        let batch = Batch { offset: header.offset, bytes };
        if self.config.accept_batches && known && self.stack.write(header.topic, batch).is_ok() {
            add(&self.counts.batches, 1);
        } else {
            add(&self.counts.refused, 1);
        }
    }

    fn header_pull(&self, header: &Header, request_bytes: usize, reply: &mut Vec<u8>) {
        add(&self.counts.pulls, 1);
        add(&self.counts.replies, 1);
        reply.clear();
        reply.extend_from_slice(&[0; HEADER_BYTES]);
        let limit = wire::reply_limit(request_bytes, self.config.trusted, self.config.max_reply_bytes);
        let limit = limit.saturating_sub(HEADER_BYTES);
        let head = match self.stack.epoch(header.topic) {
            None => header.reply(Status::UnknownTopic, 0, Epoch::ANY),
            Some(epoch) if !header.epoch.admits(epoch) => header.reply(Status::OtherEpoch, 0, epoch),
            Some(epoch) => {
                let rest = self.read(header.topic, header.offset, header.length.into(), limit, reply);
                match (reply.len() - HEADER_BYTES, rest) {
                    (0, Tail::Hole(hole)) => header.reply(Status::Hole, hole.bytes(), epoch),
                    (0, Tail::Gone(first)) => header.reply(Status::Gone, first - header.offset, epoch),
                    (0, _) => {
                        let head = self.stack.head(header.topic).unwrap_or(header.offset);
                        Header { offset: head, ..header.reply(Status::End, 0, epoch) }
                    }
                    (bytes, _) => header.reply(Status::Data, bytes as u64, epoch),
                }
            }
        };
        reply[..HEADER_BYTES].copy_from_slice(&head.encode());
    }

    /// Appends bytes of the log to `reply`, at most `limit`. With an output function, the function's result for the whole range, or
    /// nothing if a part of the range is missing.
    fn read(&self, topic: TopicId, from: u64, length: u64, limit: usize, reply: &mut Vec<u8>) -> Tail {
        let output = self.functions.get(&topic).and_then(|functions| functions.output.as_deref());
        let most = if output.is_some() { self.config.max_reply_bytes } else { limit };
        let length = usize::try_from(length).unwrap_or(usize::MAX).min(most);
        let begin = reply.len();
        reply.resize(begin + length, 0);
        let Some(answer) = self.stack.read(topic, from, &mut reply[begin..]) else {
            reply.truncate(begin);
            return Tail::Later;
        };
        if let Some(output) = output {
            let found = reply.split_off(begin);
            if answer.tail == Tail::Nothing {
                output.send(&found, reply);
                reply.truncate(begin + length.min(limit));
                if reply.len() == begin && length > 0 {
                    // The function's result is empty, so the client continues behind the range.
                    return Tail::Hole(Hole { from, to: from + length as u64 });
                }
            }
        } else {
            reply.truncate(begin + answer.bytes);
        }
        answer.tail
    }

    /// Stores messages, through the topic's input function. Returns how many were stored or dropped by the function.
    fn store(&self, topic: TopicId, messages: &mut dyn Iterator<Item = &[u8]>) -> u64 {
        let Some(input) = self.functions.get(&topic).and_then(|functions| functions.input.as_deref()) else {
            return self.stack.append(topic, messages).map_or(0, |appended| appended.messages);
        };
        // `out` has the results of the function, one after the other, and `places` the location of each message.
        enum Place<'a> {
            AsItCame(&'a [u8]),
            Replaced(Range<usize>),
        }
        let (mut out, mut places, mut filtered) = (Vec::new(), Vec::new(), 0);
        for message in messages {
            let begin = out.len();
            match input.store(message, &mut out) {
                Decision::Keep => places.push(Place::AsItCame(message)),
                Decision::Replace if out.len() > begin => places.push(Place::Replaced(begin..out.len())),
                Decision::Replace | Decision::Drop => filtered += 1,
            }
        }
        add(&self.counts.filtered, filtered);
        let mut stored = places.iter().map(|place| match place {
            Place::AsItCame(message) => *message,
            Place::Replaced(range) => &out[range.clone()],
        });
        filtered + self.stack.append(topic, &mut stored).map_or(0, |appended| appended.messages)
    }
}
