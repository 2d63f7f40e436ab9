//! Control messages between clients and the broker.

use rocketbufs::fields::{FieldError, Reader};

use super::{DecodeError, Framing, Space, TopicFilter, TopicName};

/// The kind of a refusal. The numbers are part of the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
#[non_exhaustive]
pub enum RefuseCode {
    /// The message, or a name in it, is not valid.
    Invalid = 1,
    /// A limit of the broker is reached.
    Limit = 2,
    /// The broker does not allow the requested size.
    Size = 3,
    /// The id belongs to another topic of this connection.
    BidInUse = 4,
    /// The broker failed for a reason of its own.
    Internal = 5,
    /// The user of the connection may not publish the topic, or not any more.
    NotAllowed = 6,
    /// Another broker of the cluster has the topic. On the wire, `Internal` with a text that begins with `elsewhere: `.
    Elsewhere = 7,
}

/// The most bytes of addresses in a text. The rest of the text stays below [`Control::MAX_TEXT_BYTES`].
const MAX_ADDRESSES_BYTES: usize = 512;

impl RefuseCode {
    /// The reason of an [`Elsewhere`](Self::Elsewhere): the addresses of the broker that has the topic, and why, for people. Without
    /// addresses the publisher asks again where it is connected. Addresses beyond 512 bytes are left out.
    pub fn elsewhere(addresses: &[String], why: &str) -> String {
        let mut reason = String::new();
        for address in addresses {
            let comma = if reason.is_empty() { "" } else { "," };
            if !is_one_word(address) || reason.len() + address.len() >= MAX_ADDRESSES_BYTES {
                continue;
            }
            reason.push_str(comma);
            reason.push_str(address);
        }
        format!("{reason} {why}")
    }

    /// The addresses in the reason of an [`Elsewhere`](Self::Elsewhere), joined by commas; empty: there are none.
    pub fn addresses(reason: &str) -> &str {
        reason.split_once(' ').map_or("", |(addresses, _)| addresses)
    }

    fn from_code(code: u8) -> Result<Self, DecodeError> {
        [Self::Invalid, Self::Limit, Self::Size, Self::BidInUse, Self::Internal, Self::NotAllowed]
            .into_iter()
            .find(|known| *known as u8 == code)
            .ok_or(DecodeError::value("reason for refusal", code))
    }
}

/// A buffer of a topic, as the broker announces it to subscribers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Topic {
    /// The broker's id of the buffer, to subscribe to.
    pub bid: u32,
    /// The writer's epoch. A subscriber that knows a position of this log resumes there.
    pub epoch: u128,
    /// The framing of its bytes.
    pub framing: Framing,
    /// Whether the buffer appeared after the request for its topic, or while the durable subscriber was offline (HOLD). All of it is
    /// then new to the subscriber.
    pub fresh: bool,
    /// Whether the broker keeps the log on disk: positions that the buffer has no more can be asked for ([`Control::Replay`]).
    pub kept: bool,
    /// The largest delivery in bytes. The ring of a subscriber has room for at least two.
    pub max_delivery_bytes: u64,
    /// The topic. Of a space, the name of its log.
    pub topic: TopicName,
    /// The space whose log the buffer has: its records name their topics.
    pub space: Option<Space>,
}

impl Topic {
    /// Whether a filter matches the topic, or some topic of the space.
    pub fn is_matched_by(&self, filter: &TopicFilter) -> bool {
        match &self.space {
            None => filter.matches(&self.topic),
            Some(space) => space.is_wanted_by(filter),
        }
    }
}

/// The broker's limits for the options of a subscription.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SubscribeLimits {
    /// The largest lag at which `drop` and `disconnect` act; 0: no limit.
    pub max_lag_bytes: u64,
    /// The longest time for which `block` may hold the publishers; 0: no limit.
    pub block_timeout_ms: u32,
    /// The longest time for which a place is kept; `u32::MAX`: no limit.
    pub max_hold_ms: u32,
}

impl Default for SubscribeLimits {
    fn default() -> Self {
        Self { max_lag_bytes: 0, block_timeout_ms: 0, max_hold_ms: u32::MAX }
    }
}

/// Where a subscriber begins in a kept log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReplayFrom {
    /// At the oldest position that is kept.
    Oldest,
    /// At this position.
    Position(u64),
    /// With what reached the broker so many milliseconds ago or later.
    Age(u64),
}

impl ReplayFrom {
    fn fields(self) -> (u8, u64) {
        match self {
            Self::Oldest => (0, 0),
            Self::Position(position) => (1, position),
            Self::Age(ms) => (2, ms),
        }
    }

    fn from_fields(kind: u8, value: u64) -> Result<Self, DecodeError> {
        match (kind, value) {
            (0, 0) => Ok(Self::Oldest),
            (1, position) => Ok(Self::Position(position)),
            (2, ms) => Ok(Self::Age(ms)),
            (0, other) => Err(DecodeError::value("position of the oldest", other)),
            (other, _) => Err(DecodeError::value("start of a replay", other)),
        }
    }
}

/// A control message of RBMQ. Ids are those of the end that owns the rOut: the publisher's in messages with a
/// publisher, the broker's in messages with a subscriber.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Control {
    /// Publisher → broker: creates a buffer of a topic.
    Create {
        /// The publisher's buffer.
        bid: u32,
        /// The framing of its bytes.
        framing: Framing,
        /// Capacity of the publisher's ring. The broker's ring has the same size, within its limits.
        ring_bytes: u64,
        /// Largest delivery.
        max_delivery_bytes: u64,
        /// While the topic has fewer subscribers, nothing is confirmed as delivered, and the broker keeps its records.
        min_subscribers: u32,
        /// The topic.
        topic: TopicName,
    },
    /// Broker → publisher: the broker takes the buffer, and reads everything that is still in it.
    Created {
        /// The publisher's buffer.
        bid: u32,
    },
    /// Broker → publisher, before `Created`: deliveries of the buffer may be larger than `Create` said, up to so many bytes; the rings grow
    /// when one comes. Only to a publisher whose framework grows rings.
    Largest {
        /// The publisher's buffer.
        bid: u32,
        /// The largest delivery.
        max_delivery_bytes: u64,
    },
    /// Broker → publisher: the broker does not take the buffer.
    Refused {
        /// The publisher's buffer.
        bid: u32,
        /// The kind of the reason.
        code: RefuseCode,
        /// The reason, for people.
        reason: String,
    },
    /// Broker → publisher: the broker has the buffer's whole log, up to its CLOSED.
    Ended {
        /// The publisher's buffer.
        bid: u32,
        /// End of the log.
        end: u64,
    },
    /// Broker → publisher: the number of subscribers that have a place in the buffer.
    Subscribers {
        /// The publisher's buffer.
        bid: u32,
        /// The number.
        count: u32,
    },
    /// Broker → publisher, about a kept topic: everything below a position is in the broker's file. A broker that continues a log
    /// sends it before it subscribes. After `Created` it is the answer to `AskStored`.
    Stored {
        /// The publisher's buffer.
        bid: u32,
        /// The bytes below this position survive the broker.
        position: u64,
        /// The bytes below this position are on the disk, and survive the machine.
        synced: u64,
        /// The bytes below this position are in the archive; 0: none, or nobody asked. On the wire only if it is not 0.
        archived: u64,
    },
    /// Publisher → broker, after `Created`: asks for `Stored` as soon as the log is stored, and again as soon as it is synced, up to
    /// these positions. The question replaces the last `AskStored`. `NotStored` refuses it.
    AskStored {
        /// The publisher's buffer.
        bid: u32,
        /// The position to be stored; 0: none.
        position: u64,
        /// The position to be synced; 0: none.
        synced: u64,
        /// The position to be in the archive; 0: none. On the wire only if it is not 0: brokers of before do not know it.
        archived: u64,
    },
    /// Broker → publisher: `AskStored` will not be answered, because the topic is not kept, or the disk lost a part of the log.
    NotStored {
        /// The publisher's buffer.
        bid: u32,
        /// Whether only the question about the archive has no answer. On the wire the text begins with `archive: ` then.
        is_of_archive: bool,
        /// Whether the disk lost a part of the log, or the archive may lack one. On the wire the text begins, or goes on, with `lost: ` then.
        is_lost: bool,
        /// The reason, for people.
        reason: String,
    },
    /// Broker → publisher, about a kept topic: the disk has no room or fails, and the publisher waits for it; or that has ended.
    Disk {
        /// The publisher's buffer.
        bid: u32,
        /// The reason, for people. Empty: the disk works again.
        failure: String,
    },
    /// Broker → publisher, the answer to `Create` for a topic of a space: the buffer is not taken, and the publisher creates a buffer of
    /// the space's log instead. Also before `Created` of a log.
    InSpace {
        /// The publisher's buffer.
        bid: u32,
        /// Another message with more of `before` follows.
        more: bool,
        /// The space.
        space: Space,
        /// Patterns of earlier rules: the topics that they match are not in the space.
        before: Vec<TopicFilter>,
    },
    /// Publisher → broker of a cluster, before `Create`: the broker that had the topic before has everything below a position.
    Place {
        /// The publisher's buffer.
        bid: u32,
        /// The name of its log.
        epoch: u128,
        /// Where the broker begins.
        position: u64,
    },
    /// Subscriber → broker: requests all buffers, existing and later ones, of the topics that these filters match.
    Topics {
        /// Names, and names with wildcards.
        filters: Vec<TopicFilter>,
    },
    /// Subscriber → broker, before the first TOPICS: the subscriber may return under its name within this time. Buffers that
    /// appeared in between are then announced as fresh.
    Hold {
        /// The time.
        hold_ms: u32,
    },
    /// Broker → subscriber: announces a buffer of a requested topic.
    Topic(Topic),
    /// Subscriber → broker: where to begin in the log of a kept buffer. The answer is `Replayed`.
    Replay {
        /// The announced buffer.
        bid: u32,
        /// The first position.
        from: ReplayFrom,
    },
    /// Broker → subscriber: the buffer that has the first position.
    Replayed {
        /// The announced buffer.
        bid: u32,
        /// A buffer for this subscriber alone, with the kept bytes from the first position on. The buffer ends where the
        /// log goes on in the announced buffer. None: the announced buffer has everything from the first position on.
        replay: Option<u32>,
        /// The first position.
        start: u64,
    },
    /// Broker → broker: as `Topic`, with the brokers that the buffer has passed.
    TopicVia {
        /// The buffer.
        topic: Topic,
        /// Identities of the brokers, the one next to the publisher first, the sender last. At most
        /// [`Control::MAX_HOPS`].
        path: Vec<u128>,
    },
    /// Broker → broker, against the direction of the data: the number of subscribers behind the sender.
    Downstream {
        /// The receiver's buffer.
        bid: u32,
        /// The number.
        count: u32,
    },
    /// Broker → subscriber: whether the log of this buffer continues in another buffer, which will be announced, if its publisher
    /// is gone.
    Continues {
        /// The broker's buffer.
        bid: u32,
        /// Whether it continues. False may also follow after the publisher is gone.
        yes: bool,
    },
    /// Broker → subscriber: a buffer was removed.
    TopicGone {
        /// The broker's buffer.
        bid: u32,
        /// Its topic.
        topic: TopicName,
    },
    /// Broker → subscriber: the limits for subscriptions of the buffers that are announced from now on.
    Limits(SubscribeLimits),
    /// Broker → subscriber: all existing buffers of a TOPICS message have been announced. Each TOPICS gets one, in order.
    TopicsDone,
    /// Broker → subscriber: a TOPICS message was not accepted. Sent instead of TOPICS_DONE, unless rights are withdrawn.
    Rejected {
        /// What is refused.
        what: Rejection,
        /// The reason, for people.
        reason: String,
    },
}

/// Whether an address can be told from what follows it in a text.
fn is_one_word(address: &str) -> bool {
    !address.is_empty() && !address.contains(|c: char| c == ',' || c.is_whitespace() || c.is_control())
}

/// What REJECTED refuses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rejection {
    /// Some topics that the TOPICS names, which the user may not subscribe to. The rest is taken.
    Rights,
    /// All of the TOPICS, since a limit or a quota is reached. On the wire the text begins with `limit: `.
    Limit,
    /// Topics of earlier TOPICS, which the user may not read any more: this is no answer. On the wire the text begins with `withdrawn: `.
    Withdrawn,
}

impl Rejection {
    fn mark(self) -> &'static str {
        match self {
            Self::Rights => "",
            Self::Limit => "limit: ",
            Self::Withdrawn => "withdrawn: ",
        }
    }

    fn of(text: &str) -> Self {
        let marked = [Self::Limit, Self::Withdrawn].into_iter().find(|what| text.starts_with(what.mark()));
        marked.unwrap_or(Self::Rights)
    }
}

/// How texts begin that say more than their message did at first: peers that do not know it show it to people.
const LOST: &str = "lost: ";
const ARCHIVE: &str = "archive: ";
const ELSEWHERE: &str = "elsewhere: ";

const CREATE: u8 = 0x01;
const CREATED: u8 = 0x02;
const REFUSED: u8 = 0x03;
const ENDED: u8 = 0x04;
const SUBSCRIBERS: u8 = 0x05;
const STORED: u8 = 0x06;
const ASK_STORED: u8 = 0x07;
const NOT_STORED: u8 = 0x08;
const DISK: u8 = 0x09;
const IN_SPACE: u8 = 0x0a;
const PLACE: u8 = 0x0b;
const LARGEST: u8 = 0x0c;
const TOPICS: u8 = 0x10;
const TOPIC: u8 = 0x11;
const TOPIC_GONE: u8 = 0x12;
const REJECTED: u8 = 0x13;
const TOPICS_DONE: u8 = 0x14;
const LIMITS: u8 = 0x15;
const HOLD: u8 = 0x16;
const REPLAY: u8 = 0x17;
const REPLAYED: u8 = 0x18;
const TOPIC_VIA: u8 = 0x20;
const DOWNSTREAM: u8 = 0x21;
const CONTINUES: u8 = 0x22;

const FRESH: u8 = 1;
const KEPT: u8 = 2;
const SPACE: u8 = 4;

/// The size of the type and the number of filters.
const TOPICS_HEADER_BYTES: usize = 3;
/// The size of the type, the id, the flag, the length of the pattern, and the number of filters.
const IN_SPACE_HEADER_BYTES: usize = 9;
const _: () = assert!(IN_SPACE_HEADER_BYTES + 1 + 2 * super::MAX_TOPIC_BYTES <= Control::SMALL_BYTES);
const _: () = assert!(TOPICS_HEADER_BYTES <= IN_SPACE_HEADER_BYTES);

impl Control {
    /// The largest control message in bytes. A longer one is a fault of the peer.
    pub const MAX_BYTES: usize = 16 * 1024;
    /// The largest message in bytes that every peer accepts: below the smallest `limits.max_control_bytes`.
    pub const SMALL_BYTES: usize = 2047;
    /// The most brokers that a buffer passes.
    pub const MAX_HOPS: usize = 16;
    /// The longest text for people in bytes. Longer texts are cut when encoded.
    pub const MAX_TEXT_BYTES: usize = 1024;

    /// Encodes the message.
    pub fn encode(&self) -> Vec<u8> {
        let mut b = Vec::with_capacity(64);
        match self {
            Self::Create { .. }
            | Self::Created { .. }
            | Self::Largest { .. }
            | Self::Refused { .. }
            | Self::Ended { .. }
            | Self::Subscribers { .. }
            | Self::InSpace { .. } => self.encode_publishing(&mut b),
            Self::Topics { filters } => {
                b.push(TOPICS);
                put_filters(&mut b, filters);
            }
            Self::Topic(topic) => {
                b.push(TOPIC);
                put_buffer(&mut b, topic);
            }
            Self::TopicVia { .. } | Self::Continues { .. } | Self::Downstream { .. } => {
                self.encode_chain(&mut b)
            }
            Self::Stored { .. } | Self::AskStored { .. } | Self::NotStored { .. } | Self::Disk { .. } => {
                self.encode_stored(&mut b);
            }
            Self::Hold { .. } | Self::Replay { .. } | Self::Replayed { .. } | Self::Place { .. } => {
                self.encode_place(&mut b)
            }
            Self::TopicGone { bid, topic } => {
                b.push(TOPIC_GONE);
                b.extend_from_slice(&bid.to_le_bytes());
                put_topic(&mut b, topic);
            }
            Self::TopicsDone => b.push(TOPICS_DONE),
            Self::Limits(limits) => {
                b.push(LIMITS);
                b.extend_from_slice(&limits.max_lag_bytes.to_le_bytes());
                b.extend_from_slice(&limits.block_timeout_ms.to_le_bytes());
                b.extend_from_slice(&limits.max_hold_ms.to_le_bytes());
            }
            Self::Rejected { what, reason } => {
                b.push(REJECTED);
                put_text(&mut b, &format!("{}{reason}", what.mark()));
            }
        }
        b
    }

    /// Decodes a message of a peer.
    ///
    /// # Errors
    /// The bytes are not a valid message. Close the connection with the error as the reason.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        if bytes.len() > Self::MAX_BYTES {
            return Err(FieldError::Long { extra: bytes.len() - Self::MAX_BYTES }.into());
        }
        let mut r = Reader::new(bytes);
        let message = match r.u8()? {
            CREATE => Self::Create {
                bid: r.u32()?,
                framing: Framing::from_code(r.u8()?)?,
                ring_bytes: r.u64()?,
                max_delivery_bytes: r.u64()?,
                min_subscribers: r.u32()?,
                topic: get_topic(&mut r)?,
            },
            CREATED => Self::Created { bid: r.u32()? },
            LARGEST => Self::Largest { bid: r.u32()?, max_delivery_bytes: r.u64()? },
            REFUSED => get_refused(&mut r)?,
            ENDED => Self::Ended { bid: r.u32()?, end: r.u64()? },
            SUBSCRIBERS => Self::Subscribers { bid: r.u32()?, count: r.u32()? },
            IN_SPACE => Self::InSpace {
                bid: r.u32()?,
                more: get_flag(&mut r)?,
                space: get_space(&mut r)?,
                before: get_filters(&mut r)?,
            },
            PLACE => Self::Place { bid: r.u32()?, epoch: r.u128()?, position: r.u64()? },
            TOPICS => Self::Topics { filters: get_filters(&mut r)? },
            HOLD => Self::Hold { hold_ms: r.u32()? },
            TOPIC => Self::Topic(get_buffer(&mut r)?),
            TOPIC_GONE => Self::TopicGone { bid: r.u32()?, topic: get_topic(&mut r)? },
            TOPICS_DONE => Self::TopicsDone,
            LIMITS => Self::Limits(SubscribeLimits {
                max_lag_bytes: r.u64()?,
                block_timeout_ms: r.u32()?,
                max_hold_ms: r.u32()?,
            }),
            REJECTED => {
                let text = get_text(&mut r)?;
                let what = Rejection::of(&text);
                Self::Rejected { what, reason: text[what.mark().len()..].to_owned() }
            }
            kind @ (STORED | ASK_STORED | NOT_STORED | DISK) => Self::decode_stored(kind, &mut r)?,
            kind @ (REPLAY | REPLAYED) => Self::decode_replay(kind, &mut r)?,
            other => Self::decode_chain(other, &mut r)?,
        };
        r.end()?;
        Ok(message)
    }

    /// Encodes a message about the buffers of a publisher.
    fn encode_publishing(&self, b: &mut Vec<u8>) {
        match self {
            Self::Create { bid, framing, ring_bytes, max_delivery_bytes, min_subscribers, topic } => {
                b.push(CREATE);
                b.extend_from_slice(&bid.to_le_bytes());
                b.push(framing.code());
                b.extend_from_slice(&ring_bytes.to_le_bytes());
                b.extend_from_slice(&max_delivery_bytes.to_le_bytes());
                b.extend_from_slice(&min_subscribers.to_le_bytes());
                put_topic(b, topic);
            }
            Self::Created { bid } => {
                b.push(CREATED);
                b.extend_from_slice(&bid.to_le_bytes());
            }
            Self::Largest { bid, max_delivery_bytes } => {
                b.push(LARGEST);
                b.extend_from_slice(&bid.to_le_bytes());
                b.extend_from_slice(&max_delivery_bytes.to_le_bytes());
            }
            Self::Refused { bid, code, reason } => {
                b.push(REFUSED);
                b.extend_from_slice(&bid.to_le_bytes());
                let (code, mark) = match code {
                    RefuseCode::Elsewhere => (RefuseCode::Internal, ELSEWHERE),
                    code => (*code, ""),
                };
                b.push(code as u8);
                put_text(b, &format!("{mark}{reason}"));
            }
            Self::Ended { bid, end } => {
                b.push(ENDED);
                b.extend_from_slice(&bid.to_le_bytes());
                b.extend_from_slice(&end.to_le_bytes());
            }
            Self::Subscribers { bid, count } => {
                b.push(SUBSCRIBERS);
                b.extend_from_slice(&bid.to_le_bytes());
                b.extend_from_slice(&count.to_le_bytes());
            }
            Self::InSpace { bid, more, space, before } => {
                b.push(IN_SPACE);
                b.extend_from_slice(&bid.to_le_bytes());
                b.push(u8::from(*more));
                put_name(b, space.pattern().as_str());
                put_filters(b, before);
            }
            _ => {}
        }
    }

    /// Encodes a message about chains of brokers.
    fn encode_chain(&self, b: &mut Vec<u8>) {
        match self {
            Self::TopicVia { topic, path } => {
                b.push(TOPIC_VIA);
                put_buffer(b, topic);
                let path = &path[..path.len().min(Self::MAX_HOPS)];
                b.push(path.len() as u8);
                path.iter().for_each(|broker| b.extend_from_slice(&broker.to_le_bytes()));
            }
            Self::Continues { bid, yes } => {
                b.push(CONTINUES);
                b.extend_from_slice(&bid.to_le_bytes());
                b.push(u8::from(*yes));
            }
            Self::Downstream { bid, count } => {
                b.push(DOWNSTREAM);
                b.extend_from_slice(&bid.to_le_bytes());
                b.extend_from_slice(&count.to_le_bytes());
            }
            _ => {}
        }
    }

    fn decode_chain(kind: u8, r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(match kind {
            TOPIC_VIA => {
                let topic = get_buffer(r)?;
                let hops = usize::from(r.u8()?);
                if hops > Self::MAX_HOPS {
                    return Err(DecodeError::value("number of brokers", hops as u64));
                }
                let path = (0..hops).map(|_| r.u128()).collect::<Result<_, _>>()?;
                Self::TopicVia { topic, path }
            }
            CONTINUES => {
                let bid = r.u32()?;
                Self::Continues { bid, yes: get_flag(r)? }
            }
            DOWNSTREAM => Self::Downstream { bid: r.u32()?, count: r.u32()? },
            other => return Err(DecodeError::value("type of message", other)),
        })
    }

    fn decode_stored(kind: u8, r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let bid = r.u32()?;
        Ok(match kind {
            STORED | ASK_STORED => {
                let (position, synced) = (r.u64()?, r.u64()?);
                let archived = match r.end() {
                    Ok(()) => 0,
                    Err(_) => Some(r.u64()?)
                        .filter(|archived| *archived > 0)
                        .ok_or(DecodeError::value("position in the archive", 0_u64))?,
                };
                match kind {
                    STORED => Self::Stored { bid, position, synced, archived },
                    _ => Self::AskStored { bid, position, synced, archived },
                }
            }
            NOT_STORED => {
                let text = get_text(r)?;
                let (is_of_archive, text) = strip(&text, ARCHIVE);
                let (is_lost, text) = strip(text, LOST);
                Self::NotStored { bid, is_of_archive, is_lost, reason: text.to_owned() }
            }
            _ => Self::Disk { bid, failure: get_text(r)? },
        })
    }

    /// Encodes a message about what the broker's disk has of a publisher's log.
    fn encode_stored(&self, b: &mut Vec<u8>) {
        match self {
            Self::Stored { bid, position, synced, archived }
            | Self::AskStored { bid, position, synced, archived } => {
                b.push(if matches!(self, Self::Stored { .. }) { STORED } else { ASK_STORED });
                b.extend_from_slice(&bid.to_le_bytes());
                b.extend_from_slice(&position.to_le_bytes());
                b.extend_from_slice(&synced.to_le_bytes());
                if *archived > 0 {
                    b.extend_from_slice(&archived.to_le_bytes());
                }
            }
            Self::NotStored { bid, is_of_archive, is_lost, reason } => {
                b.push(NOT_STORED);
                b.extend_from_slice(&bid.to_le_bytes());
                let mark = |is_it, mark| if is_it { mark } else { "" };
                put_text(b, &format!("{}{}{reason}", mark(*is_of_archive, ARCHIVE), mark(*is_lost, LOST)));
            }
            Self::Disk { bid, failure } => {
                b.push(DISK);
                b.extend_from_slice(&bid.to_le_bytes());
                put_text(b, failure);
            }
            _ => {}
        }
    }

    /// Encodes a message about the place of a subscriber, or of a broker at a publisher.
    fn encode_place(&self, b: &mut Vec<u8>) {
        match self {
            Self::Place { bid, epoch, position } => {
                b.push(PLACE);
                b.extend_from_slice(&bid.to_le_bytes());
                b.extend_from_slice(&epoch.to_le_bytes());
                b.extend_from_slice(&position.to_le_bytes());
            }
            Self::Hold { hold_ms } => {
                b.push(HOLD);
                b.extend_from_slice(&hold_ms.to_le_bytes());
            }
            Self::Replay { bid, from } => {
                let (kind, value) = from.fields();
                b.push(REPLAY);
                b.extend_from_slice(&bid.to_le_bytes());
                b.push(kind);
                b.extend_from_slice(&value.to_le_bytes());
            }
            Self::Replayed { bid, replay, start } => {
                b.push(REPLAYED);
                b.extend_from_slice(&bid.to_le_bytes());
                b.push(u8::from(replay.is_some()));
                replay.iter().for_each(|replay| b.extend_from_slice(&replay.to_le_bytes()));
                b.extend_from_slice(&start.to_le_bytes());
            }
            _ => {}
        }
    }

    fn decode_replay(kind: u8, r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let bid = r.u32()?;
        if kind == REPLAY {
            let from = ReplayFrom::from_fields(r.u8()?, r.u64()?)?;
            return Ok(Self::Replay { bid, from });
        }
        let replay = match r.u8()? {
            0 => None,
            1 => Some(r.u32()?),
            other => return Err(DecodeError::value("flag", other)),
        };
        Ok(Self::Replayed { bid, replay, start: r.u64()? })
    }

    /// TOPICS messages for any number of filters. Each is small enough for every peer ([`Control::SMALL_BYTES`]).
    pub fn topics(filters: &[TopicFilter]) -> Vec<Self> {
        chunks(filters, TOPICS_HEADER_BYTES).into_iter().map(|filters| Self::Topics { filters }).collect()
    }

    /// IN_SPACE messages for any number of earlier patterns, at least one. Each is small enough for every peer.
    pub fn in_space(bid: u32, space: &Space, before: &[TopicFilter]) -> Vec<Self> {
        let mut chunks = chunks(before, IN_SPACE_HEADER_BYTES + space.pattern().as_str().len());
        if chunks.is_empty() {
            chunks.push(Vec::new());
        }
        let last = chunks.len() - 1;
        let message = |(n, before)| Self::InSpace { bid, more: n < last, space: space.clone(), before };
        chunks.into_iter().enumerate().map(message).collect()
    }
}

/// Filters in parts that fit into small messages behind a header.
fn chunks(filters: &[TopicFilter], header: usize) -> Vec<Vec<TopicFilter>> {
    let (mut chunks, mut size) = (Vec::<Vec<TopicFilter>>::new(), usize::MAX);
    for filter in filters {
        let bytes = 1 + filter.as_str().len();
        size = size.saturating_add(bytes);
        if size > Control::SMALL_BYTES {
            chunks.push(Vec::new());
            size = header + bytes;
        }
        chunks.last_mut().into_iter().for_each(|chunk| chunk.push(filter.clone()));
    }
    chunks
}

fn put_buffer(b: &mut Vec<u8>, topic: &Topic) {
    b.extend_from_slice(&topic.bid.to_le_bytes());
    b.extend_from_slice(&topic.epoch.to_le_bytes());
    b.push(topic.framing.code());
    let flags = [(topic.fresh, FRESH), (topic.kept, KEPT), (topic.space.is_some(), SPACE)];
    b.push(flags.into_iter().filter(|(is, _)| *is).fold(0, |all, (_, flag)| all | flag));
    b.extend_from_slice(&topic.max_delivery_bytes.to_le_bytes());
    put_topic(b, &topic.topic);
}

fn get_buffer(r: &mut Reader<'_>) -> Result<Topic, DecodeError> {
    let (bid, epoch) = (r.u32()?, r.u128()?);
    let framing = Framing::from_code(r.u8()?)?;
    let flags = r.u8()?;
    let (max_delivery_bytes, topic) = (r.u64()?, get_topic(r)?);
    let space = match flags & SPACE {
        0 => None,
        // The name of the log says the pattern.
        _ => Some(Space::of_log(&topic).ok_or(DecodeError::value("flags", flags))?),
    };
    if space.is_some() && framing != Framing::Merged {
        return Err(DecodeError::value("framing of a space", framing.code()));
    }
    let (fresh, kept) = (flags & FRESH != 0, flags & KEPT != 0);
    match flags & !(FRESH | KEPT | SPACE) {
        0 => Ok(Topic { bid, epoch, framing, fresh, kept, max_delivery_bytes, topic, space }),
        _ => Err(DecodeError::value("flags", flags)),
    }
}

fn put_topic(b: &mut Vec<u8>, topic: &TopicName) {
    put_name(b, topic.as_str());
}

/// A topic's name or a filter: both have 1 to 255 bytes.
fn put_name(b: &mut Vec<u8>, name: &str) {
    b.push(name.len() as u8);
    b.extend_from_slice(name.as_bytes());
}

fn get_refused(r: &mut Reader<'_>) -> Result<Control, DecodeError> {
    let (bid, code) = (r.u32()?, RefuseCode::from_code(r.u8()?)?);
    let text = get_text(r)?;
    let elsewhere = text.strip_prefix(ELSEWHERE).filter(|_| code == RefuseCode::Internal);
    Ok(match elsewhere {
        Some(reason) => Control::Refused { bid, code: RefuseCode::Elsewhere, reason: reason.to_owned() },
        None => Control::Refused { bid, code, reason: text },
    })
}

fn get_filter(r: &mut Reader<'_>) -> Result<TopicFilter, DecodeError> {
    let len = usize::from(r.u8()?);
    Ok(r.text(len, "topic filter")?.parse::<TopicFilter>()?)
}

fn put_filters(b: &mut Vec<u8>, filters: &[TopicFilter]) {
    b.extend_from_slice(&u16::try_from(filters.len()).unwrap_or(u16::MAX).to_le_bytes());
    filters.iter().take(usize::from(u16::MAX)).for_each(|filter| put_name(b, filter.as_str()));
}

fn get_filters(r: &mut Reader<'_>) -> Result<Vec<TopicFilter>, DecodeError> {
    let count = r.u16()?;
    (0..count).map(|_| get_filter(r)).collect()
}

fn get_space(r: &mut Reader<'_>) -> Result<Space, DecodeError> {
    Ok(Space::new(&get_filter(r)?)?)
}

fn get_topic(r: &mut Reader<'_>) -> Result<TopicName, DecodeError> {
    let len = usize::from(r.u8()?);
    Ok(r.text(len, "topic's name")?.parse::<TopicName>()?)
}

fn put_text(b: &mut Vec<u8>, text: &str) {
    let text = &text.as_bytes()[..text.floor_char_boundary(Control::MAX_TEXT_BYTES)];
    b.extend_from_slice(&(text.len() as u16).to_le_bytes());
    b.extend_from_slice(text);
}

/// Whether a text begins with a mark, and what follows.
fn strip<'a>(text: &'a str, mark: &str) -> (bool, &'a str) {
    text.strip_prefix(mark).map_or((false, text), |rest| (true, rest))
}

fn get_text(r: &mut Reader<'_>) -> Result<String, DecodeError> {
    let len = usize::from(r.u16()?);
    if len > Control::MAX_TEXT_BYTES {
        return Err(DecodeError::value("length of a text", len as u64));
    }
    Ok(r.text(len, "text")?.to_owned())
}

fn get_flag(r: &mut Reader<'_>) -> Result<bool, DecodeError> {
    match r.u8()? {
        flag @ (0 | 1) => Ok(flag == 1),
        other => Err(DecodeError::value("flag", other)),
    }
}

#[cfg(test)]
mod tests {
    use super::super::{FilterError, TopicError};
    use super::*;

    #[test]
    fn bytes_are_as_documented() {
        let create = Control::Create {
            bid: 3,
            framing: Framing::Raw,
            ring_bytes: 0x10000,
            max_delivery_bytes: 0x4000,
            min_subscribers: 5,
            topic: "ab".parse().unwrap(),
        };
        let expected = b"\x01\x03\0\0\0\x01\0\0\x01\0\0\0\0\0\0\x40\0\0\0\0\0\0\x05\0\0\0\x02ab";
        assert_eq!(create.encode(), expected);
        assert_eq!(Control::Subscribers { bid: 1, count: 2 }.encode(), b"\x05\x01\0\0\0\x02\0\0\0");
        let ask = Control::AskStored { bid: 1, position: 2, synced: 3, archived: 0 };
        assert_eq!(ask.encode(), b"\x07\x01\0\0\0\x02\0\0\0\0\0\0\0\x03\0\0\0\0\0\0\0");
        let not_stored = |is_lost| {
            Control::NotStored { bid: 1, is_of_archive: false, is_lost, reason: "a".into() }.encode()
        };
        assert_eq!(not_stored(false), b"\x08\x01\0\0\0\x01\0a");
        assert_eq!(not_stored(true), b"\x08\x01\0\0\0\x07\0lost: a");
        let rejected = |what| Control::Rejected { what, reason: "a".into() }.encode();
        assert_eq!(rejected(Rejection::Rights), b"\x13\x01\0a");
        assert_eq!(rejected(Rejection::Limit), b"\x13\x08\0limit: a");
        assert_eq!(rejected(Rejection::Withdrawn), b"\x13\x0c\0withdrawn: a");
        assert_eq!(Control::Disk { bid: 1, failure: String::new() }.encode(), b"\x09\x01\0\0\0\0\0");
        let replay = Control::Replay { bid: 1, from: ReplayFrom::Position(0x0203) };
        assert_eq!(replay.encode(), b"\x17\x01\0\0\0\x01\x03\x02\0\0\0\0\0\0");
        let replayed = Control::Replayed { bid: 1, replay: Some(2), start: 3 };
        assert_eq!(replayed.encode(), b"\x18\x01\0\0\0\x01\x02\0\0\0\x03\0\0\0\0\0\0\0");
        let space = Space::new(&"a/#".parse().unwrap()).unwrap();
        let (bid, before) = (1, vec!["a/b".parse().unwrap()]);
        let in_space = Control::InSpace { bid, more: true, space, before };
        assert_eq!(in_space.encode(), b"\x0a\x01\0\0\0\x01\x03a/#\x01\0\x03a/b");
    }

    #[test]
    fn the_log_of_a_space_is_announced_with_a_flag() {
        let log: TopicName = "$space/a".parse().unwrap();
        let topic = Topic {
            bid: 1,
            epoch: 2,
            framing: Framing::Merged,
            fresh: true,
            kept: false,
            max_delivery_bytes: 3,
            space: Space::of_log(&log),
            topic: log,
        };
        assert!(
            topic.is_matched_by(&"+/b".parse().unwrap()) && !topic.is_matched_by(&"b/#".parse().unwrap())
        );
        let mut bytes = Control::Topic(topic.clone()).encode();
        assert_eq!(&bytes[21..], b"\x02\x05\x03\0\0\0\0\0\0\0\x08$space/a");
        assert_eq!(Control::decode(&bytes), Ok(Control::Topic(topic)));
        // The name of an ordinary topic is that of no log.
        bytes[32] = b'x';
        assert_eq!(Control::decode(&bytes), Err(DecodeError::value("flags", 5_u8)));
    }

    #[test]
    fn many_topics_are_split() {
        let names: Vec<TopicFilter> = (0..1000).map(|i| format!("{i:0>255}").parse().unwrap()).collect();
        let messages = Control::topics(&names);
        assert!(messages.iter().all(|m| m.encode().len() <= Control::SMALL_BYTES));
        let back: Vec<TopicFilter> = messages
            .into_iter()
            .flat_map(|m| match m {
                Control::Topics { filters } => filters,
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(back, names);
        let space = Space::new(&names[0].as_str()[7..].to_owned().parse().unwrap());
        assert!(space.is_err(), "a name is no pattern");
        let space = Space::new(&format!("{:0>246}/#", 7).parse().unwrap()).unwrap();
        let messages = Control::in_space(3, &space, &names);
        assert!(messages.iter().all(|m| m.encode().len() <= Control::SMALL_BYTES));
        let (mut back, mut more) = (Vec::new(), Vec::new());
        for message in messages {
            let Control::InSpace { more: follows, before, .. } = message else { panic!("{message:?}") };
            more.push(follows);
            back.extend(before);
        }
        assert_eq!(back, names);
        assert_eq!(more.iter().position(|more| !more), Some(more.len() - 1));
        let one = Control::InSpace { bid: 3, more: false, space: space.clone(), before: Vec::new() };
        assert_eq!(Control::in_space(3, &space, &[]), [one]);
    }

    #[test]
    fn invalid_messages_are_refused() {
        assert!(matches!(
            Control::decode(&[0xee]),
            Err(DecodeError::Field(FieldError::Value { field: "type of message", .. }))
        ));
        assert_eq!(Control::decode(&[]), Err(FieldError::Short { missing: 1 }.into()));
        let topics = b"\x10\x01\0\x02a#";
        assert!(matches!(Control::decode(topics), Err(DecodeError::Filter(FilterError::PartOfLevel { .. }))));
        let gone = b"\x12\x01\0\0\0\x01#";
        assert_eq!(Control::decode(gone), Err(DecodeError::Topic(TopicError::Character { character: '#' })));
    }
}
