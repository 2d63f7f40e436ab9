//! Control messages between clients and the broker.

use rocketbufs::fields::{FieldError, Reader};

use super::{DecodeError, Framing, TopicFilter, TopicName};

/// Why the broker refused a buffer. The numbers are part of the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
#[non_exhaustive]
pub enum RefuseCode {
    /// The message or a name in it is not valid.
    Invalid = 1,
    /// A limit of the broker was reached.
    Limit = 2,
    /// The size asked for is outside of what the broker allows.
    Size = 3,
    /// The id already belongs to another topic of this connection.
    BidInUse = 4,
    /// The broker could not do it; nobody's fault but its own.
    Internal = 5,
}

impl RefuseCode {
    fn from_code(code: u8) -> Result<Self, DecodeError> {
        [Self::Invalid, Self::Limit, Self::Size, Self::BidInUse, Self::Internal]
            .into_iter()
            .find(|known| *known as u8 == code)
            .ok_or(DecodeError::value("reason for refusal", code))
    }
}

/// A buffer of a topic, as the broker tells it to subscribers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Topic {
    /// The broker's id of the buffer, to subscribe to.
    pub bid: u32,
    /// The writer's epoch: a subscriber that knows a position of it goes on there.
    pub epoch: u128,
    /// How its bytes are to be read.
    pub framing: Framing,
    /// Whether it appeared after the subscriber asked for the topic, or while it was away (HOLD), so that all of it is new to the subscriber.
    pub fresh: bool,
    /// Largest delivery, in bytes; a subscriber's ring has at least twice as many.
    pub max_delivery_bytes: u64,
    /// The topic.
    pub topic: TopicName,
}

/// What a subscription gets at most, whatever it asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Terms {
    /// The lag at which `drop` and `disconnect` act; 0: as asked for.
    pub max_lag_bytes: u64,
    /// How long `block` may hold the publishers; 0: as asked for.
    pub block_timeout_ms: u32,
    /// How long a place is kept; `u32::MAX`: as asked for.
    pub max_hold_ms: u32,
}

impl Default for Terms {
    fn default() -> Self {
        Self { max_lag_bytes: 0, block_timeout_ms: 0, max_hold_ms: u32::MAX }
    }
}

/// A control message of RBMQ. Ids are those of the end that owns the rOut: the publisher's in messages with a
/// publisher, the broker's in messages with a subscriber.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Control {
    /// Publisher → broker: a buffer of a topic exists; take it.
    Create {
        /// The publisher's buffer.
        bid: u32,
        /// How its bytes are to be read.
        framing: Framing,
        /// Capacity of the publisher's ring; the broker's will be as large, within its limits.
        ring_bytes: u64,
        /// Largest delivery.
        max_delivery_bytes: u64,
        /// While it has fewer subscribers nothing is confirmed as delivered, and the broker keeps what it took.
        min_subscribers: u32,
        /// The topic.
        topic: TopicName,
    },
    /// Broker → publisher: the buffer is taken; everything that is still kept in it will be read.
    Created {
        /// The publisher's buffer.
        bid: u32,
    },
    /// Broker → publisher: the buffer is not taken.
    Refused {
        /// The publisher's buffer.
        bid: u32,
        /// Why.
        code: RefuseCode,
        /// The same for people, with numbers.
        reason: String,
    },
    /// Broker → publisher: the broker has the buffer's whole log, up to its CLOSED.
    Ended {
        /// The publisher's buffer.
        bid: u32,
        /// End of the log.
        end: u64,
    },
    /// Broker → publisher: how many subscribers have a place in the buffer now.
    Subscribers {
        /// The publisher's buffer.
        bid: u32,
        /// How many.
        count: u32,
    },
    /// Subscriber → broker: tell of every buffer of the topics that these match, those that exist and those that will.
    Topics {
        /// Names, and names with wildcards.
        filters: Vec<TopicFilter>,
    },
    /// Subscriber → broker, before it asks for topics: under its name it may come back within this time, and is then told
    /// of what appeared meanwhile as fresh.
    Hold {
        /// How long.
        hold_ms: u32,
    },
    /// Broker → subscriber: a buffer of a wanted topic.
    Topic(Topic),
    /// Broker → broker: as `Topic`, and which brokers the buffer has passed.
    TopicVia {
        /// The buffer.
        topic: Topic,
        /// Identities of the brokers, the one next to the publisher first, the sender last. At most
        /// [`Control::MAX_HOPS`].
        path: Vec<u128>,
    },
    /// Broker → broker, against the data: how many subscribers have a place in the buffer behind the sender.
    Downstream {
        /// The receiver's buffer.
        bid: u32,
        /// How many.
        count: u32,
    },
    /// Broker → subscriber: whether, if this buffer's publisher is told to be gone, its log goes on in another buffer,
    /// which will be told.
    Continues {
        /// The broker's buffer.
        bid: u32,
        /// Whether it does; false may also follow when the publisher was told to be gone.
        yes: bool,
    },
    /// Broker → subscriber: a buffer was removed.
    TopicGone {
        /// The broker's buffer.
        bid: u32,
        /// Its topic.
        topic: TopicName,
    },
    /// Broker → subscriber: what subscriptions of the buffers told from here on get at most.
    Terms(Terms),
    /// Broker → subscriber: every buffer that was there for a TOPICS has been told; one for each, in order.
    Told,
    /// Broker → subscriber: a TOPICS was not accepted; in the place of TOLD.
    Rejected {
        /// Why, for people.
        reason: String,
    },
}

const CREATE: u8 = 0x01;
const CREATED: u8 = 0x02;
const REFUSED: u8 = 0x03;
const ENDED: u8 = 0x04;
const SUBSCRIBERS: u8 = 0x05;
const TOPICS: u8 = 0x10;
const TOPIC: u8 = 0x11;
const TOPIC_GONE: u8 = 0x12;
const REJECTED: u8 = 0x13;
const TOLD: u8 = 0x14;
const TERMS: u8 = 0x15;
const HOLD: u8 = 0x16;
const TOPIC_VIA: u8 = 0x20;
const DOWNSTREAM: u8 = 0x21;
const CONTINUES: u8 = 0x22;

const FRESH: u8 = 1;

/// Type and number of filters.
const TOPICS_HEADER_BYTES: usize = 3;
const _: () = assert!(TOPICS_HEADER_BYTES + 1 + super::MAX_TOPIC_BYTES <= Control::SMALL_BYTES);

impl Control {
    /// Most bytes of a control message; a longer one is a fault of the peer.
    pub const MAX_BYTES: usize = 16 * 1024;
    /// Most bytes of a message that every peer takes: less than the least that its `limits.max_control_bytes` may be.
    pub const SMALL_BYTES: usize = 2047;
    /// Most brokers that a buffer passes; further on it is not offered.
    pub const MAX_HOPS: usize = 16;
    /// Most bytes of a text for people; longer ones are cut when encoded.
    pub const MAX_TEXT_BYTES: usize = 1024;

    /// The bytes of the message.
    pub fn encode(&self) -> Vec<u8> {
        let mut b = Vec::with_capacity(64);
        match self {
            Self::Create { bid, framing, ring_bytes, max_delivery_bytes, min_subscribers, topic } => {
                b.push(CREATE);
                b.extend_from_slice(&bid.to_le_bytes());
                b.push(framing.code());
                b.extend_from_slice(&ring_bytes.to_le_bytes());
                b.extend_from_slice(&max_delivery_bytes.to_le_bytes());
                b.extend_from_slice(&min_subscribers.to_le_bytes());
                put_topic(&mut b, topic);
            }
            Self::Created { bid } => {
                b.push(CREATED);
                b.extend_from_slice(&bid.to_le_bytes());
            }
            Self::Refused { bid, code, reason } => {
                b.push(REFUSED);
                b.extend_from_slice(&bid.to_le_bytes());
                b.push(*code as u8);
                put_text(&mut b, reason);
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
            Self::Topics { filters } => {
                b.push(TOPICS);
                b.extend_from_slice(&u16::try_from(filters.len()).unwrap_or(u16::MAX).to_le_bytes());
                filters.iter().take(usize::from(u16::MAX)).for_each(|f| put_name(&mut b, f.as_str()));
            }
            Self::Hold { hold_ms } => {
                b.push(HOLD);
                b.extend_from_slice(&hold_ms.to_le_bytes());
            }
            Self::Topic(topic) => {
                b.push(TOPIC);
                put_buffer(&mut b, topic);
            }
            Self::TopicVia { .. } | Self::Continues { .. } | Self::Downstream { .. } => {
                self.encode_chain(&mut b)
            }
            Self::TopicGone { bid, topic } => {
                b.push(TOPIC_GONE);
                b.extend_from_slice(&bid.to_le_bytes());
                put_topic(&mut b, topic);
            }
            Self::Told => b.push(TOLD),
            Self::Terms(terms) => {
                b.push(TERMS);
                b.extend_from_slice(&terms.max_lag_bytes.to_le_bytes());
                b.extend_from_slice(&terms.block_timeout_ms.to_le_bytes());
                b.extend_from_slice(&terms.max_hold_ms.to_le_bytes());
            }
            Self::Rejected { reason } => {
                b.push(REJECTED);
                put_text(&mut b, reason);
            }
        }
        b
    }

    /// Reads a message of a peer.
    ///
    /// # Errors
    /// What the peer did wrong; its connection should be closed with it.
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
            REFUSED => {
                let (bid, code) = (r.u32()?, RefuseCode::from_code(r.u8()?)?);
                Self::Refused { bid, code, reason: get_text(&mut r)? }
            }
            ENDED => Self::Ended { bid: r.u32()?, end: r.u64()? },
            SUBSCRIBERS => Self::Subscribers { bid: r.u32()?, count: r.u32()? },
            TOPICS => {
                let count = r.u16()?;
                let filters = (0..count).map(|_| get_filter(&mut r)).collect::<Result<_, _>>()?;
                Self::Topics { filters }
            }
            HOLD => Self::Hold { hold_ms: r.u32()? },
            TOPIC => Self::Topic(get_buffer(&mut r)?),
            TOPIC_GONE => Self::TopicGone { bid: r.u32()?, topic: get_topic(&mut r)? },
            TOLD => Self::Told,
            TERMS => Self::Terms(Terms {
                max_lag_bytes: r.u64()?,
                block_timeout_ms: r.u32()?,
                max_hold_ms: r.u32()?,
            }),
            REJECTED => Self::Rejected { reason: get_text(&mut r)? },
            other => Self::decode_chain(other, &mut r)?,
        };
        r.end()?;
        Ok(message)
    }

    /// The bytes of a message that brokers tell of other brokers.
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
                let yes = match r.u8()? {
                    flag @ (0 | 1) => flag == 1,
                    other => return Err(DecodeError::value("flag", other)),
                };
                Self::Continues { bid, yes }
            }
            DOWNSTREAM => Self::Downstream { bid: r.u32()?, count: r.u32()? },
            other => return Err(DecodeError::value("type of message", other)),
        })
    }

    /// TOPICS messages for any number of filters, each small enough for every peer ([`Control::SMALL_BYTES`]).
    pub fn topics(filters: &[TopicFilter]) -> Vec<Self> {
        let mut messages = Vec::new();
        let (mut chunk, mut size) = (Vec::new(), TOPICS_HEADER_BYTES);
        for filter in filters {
            let bytes = 1 + filter.as_str().len();
            if size + bytes > Self::SMALL_BYTES {
                messages.push(Self::Topics { filters: std::mem::take(&mut chunk) });
                size = TOPICS_HEADER_BYTES;
            }
            size += bytes;
            chunk.push(filter.clone());
        }
        if !chunk.is_empty() {
            messages.push(Self::Topics { filters: chunk });
        }
        messages
    }
}

fn put_buffer(b: &mut Vec<u8>, topic: &Topic) {
    b.extend_from_slice(&topic.bid.to_le_bytes());
    b.extend_from_slice(&topic.epoch.to_le_bytes());
    b.push(topic.framing.code());
    b.push(if topic.fresh { FRESH } else { 0 });
    b.extend_from_slice(&topic.max_delivery_bytes.to_le_bytes());
    put_topic(b, &topic.topic);
}

fn get_buffer(r: &mut Reader<'_>) -> Result<Topic, DecodeError> {
    Ok(Topic {
        bid: r.u32()?,
        epoch: r.u128()?,
        framing: Framing::from_code(r.u8()?)?,
        fresh: get_flags(r)?,
        max_delivery_bytes: r.u64()?,
        topic: get_topic(r)?,
    })
}

fn put_topic(b: &mut Vec<u8>, topic: &TopicName) {
    put_name(b, topic.as_str());
}

/// A topic's name or a filter: both have 1 to 255 bytes.
fn put_name(b: &mut Vec<u8>, name: &str) {
    b.push(name.len() as u8);
    b.extend_from_slice(name.as_bytes());
}

fn get_filter(r: &mut Reader<'_>) -> Result<TopicFilter, DecodeError> {
    let len = usize::from(r.u8()?);
    Ok(r.text(len, "topic filter")?.parse::<TopicFilter>()?)
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

fn get_text(r: &mut Reader<'_>) -> Result<String, DecodeError> {
    let len = usize::from(r.u16()?);
    if len > Control::MAX_TEXT_BYTES {
        return Err(DecodeError::value("length of a text", len as u64));
    }
    Ok(r.text(len, "text")?.to_owned())
}

fn get_flags(r: &mut Reader<'_>) -> Result<bool, DecodeError> {
    match r.u8()? {
        flags if flags & !FRESH == 0 => Ok(flags & FRESH != 0),
        other => Err(DecodeError::value("flags", other)),
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
    }

    #[test]
    fn says_what_is_wrong() {
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
