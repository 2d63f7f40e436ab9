//! The entries of the journal, and their bytes. Numbers are little endian, and before a text or bytes is the length (4 bytes).

/// An entry. Sessions have their serial, and messages a number that counts from the last snapshot on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::mqtt) enum Entry<'a> {
    /// A message, for entries behind this one that name its number.
    Message { number: u64, topic: &'a str, attributes: &'a [u8], payload: &'a [u8] },
    /// A retained message takes the place of the former one of its topic.
    Retained { message: u64, qos: u8 },
    /// A topic has no retained message any more.
    Forgotten { topic: &'a str },
    /// A change of a session.
    Of { serial: u64, change: Change<'a> },
}

/// A change of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::mqtt) enum Change<'a> {
    /// It begins, or gets or loses its connection.
    Lives { key: &'a str, life: Life, last_id: u16 },
    /// It has ended.
    Ended,
    /// It subscribes to a filter, or has other options for it.
    Subscribed { filter: &'a str, options: u8, id: u32 },
    /// It leaves a filter.
    Unsubscribed { filter: &'a str },
    /// A message is at the end of its queue.
    Queued(Parcel<'a>),
    /// The first message of its queue is not there any more.
    Popped,
    /// A message was sent with a packet id.
    Sent { packet_id: u16, parcel: Parcel<'a> },
    /// The client has recorded a message of QoS 2: only its PUBREL is owed.
    Recorded { packet_id: u16 },
    /// A message that was sent is done.
    Finished { packet_id: u16 },
    /// A message of QoS 2 of the client has arrived.
    Received { packet_id: u16 },
    /// The client has released it.
    Released { packet_id: u16 },
    /// It has a will, in the place of a former one.
    Will(Testament<'a>),
    /// It has no will any more.
    NoWill,
    /// Its will is to be published at this time, in ms since 1970. Without this, its connection has to be lost first.
    WillAt { at: u64 },
}

/// A will.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::mqtt) struct Testament<'a> {
    pub(in crate::mqtt) topic: &'a str,
    pub(in crate::mqtt) qos: u8,
    pub(in crate::mqtt) retain: bool,
    pub(in crate::mqtt) delay_ms: u64,
    pub(in crate::mqtt) properties: &'a [u8],
    pub(in crate::mqtt) payload: &'a [u8],
}

/// How long a session lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::mqtt) struct Life {
    /// Its life without a connection, in ms; none: no limit.
    pub(in crate::mqtt) expiry_ms: Option<u64>,
    /// Whether it has a connection.
    pub(in crate::mqtt) connected: bool,
    /// When it ends, in ms since 1970; none: it has a connection, or does not end.
    pub(in crate::mqtt) ends_at: Option<u64>,
    /// When its will is published, in the same way ([`Change::WillAt`]).
    pub(in crate::mqtt) will_at: Option<u64>,
}

/// A message for a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::mqtt) struct Parcel<'a> {
    pub(in crate::mqtt) message: u64,
    pub(in crate::mqtt) qos: u8,
    pub(in crate::mqtt) retain: bool,
    /// It is for a new subscription.
    pub(in crate::mqtt) for_new: bool,
    /// It is not sent if another retained message takes its place.
    pub(in crate::mqtt) replaceable: bool,
    pub(in crate::mqtt) ids: Ids<'a>,
}

/// Subscription ids, as numbers or as bytes of the journal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::mqtt) enum Ids<'a> {
    Numbers(&'a [u32]),
    Bytes(&'a [u8]),
}

impl Ids<'_> {
    pub(in crate::mqtt) fn to_box(self) -> Box<[u32]> {
        match self {
            Self::Numbers(ids) => ids.into(),
            Self::Bytes(bytes) => {
                bytes.as_chunks::<4>().0.iter().map(|chunk| u32::from_le_bytes(*chunk)).collect()
            }
        }
    }
}

const MESSAGE: u8 = 1;
const RETAINED: u8 = 2;
const FORGOTTEN: u8 = 3;
const LIVES: u8 = 4;
const ENDED: u8 = 5;
const SUBSCRIBED: u8 = 6;
const UNSUBSCRIBED: u8 = 7;
const QUEUED: u8 = 8;
const POPPED: u8 = 9;
const SENT: u8 = 10;
const RECORDED: u8 = 11;
const FINISHED: u8 = 12;
const RECEIVED: u8 = 13;
const RELEASED: u8 = 14;
const WILL: u8 = 15;
const NO_WILL: u8 = 16;
const WILL_AT: u8 = 17;

const RETAIN: u8 = 4;
const FOR_NEW: u8 = 8;
const REPLACEABLE: u8 = 16;
const NEVER: u64 = u64::MAX;

impl Entry<'_> {
    /// Appends the bytes of the entry.
    pub(super) fn put(&self, to: &mut Vec<u8>) {
        match *self {
            Self::Message { number, topic, attributes, payload } => {
                to.push(MESSAGE);
                to.extend_from_slice(&number.to_le_bytes());
                [topic.as_bytes(), attributes, payload].into_iter().for_each(|part| put_bytes(part, to));
            }
            Self::Retained { message, qos } => {
                to.push(RETAINED);
                to.extend_from_slice(&message.to_le_bytes());
                to.push(qos);
            }
            Self::Forgotten { topic } => {
                to.push(FORGOTTEN);
                put_bytes(topic.as_bytes(), to);
            }
            Self::Of { serial, change } => {
                to.push(change.kind());
                to.extend_from_slice(&serial.to_le_bytes());
                change.put(to);
            }
        }
    }
}

impl Change<'_> {
    fn kind(&self) -> u8 {
        match self {
            Self::Lives { .. } => LIVES,
            Self::Ended => ENDED,
            Self::Subscribed { .. } => SUBSCRIBED,
            Self::Unsubscribed { .. } => UNSUBSCRIBED,
            Self::Queued(_) => QUEUED,
            Self::Popped => POPPED,
            Self::Sent { .. } => SENT,
            Self::Recorded { .. } => RECORDED,
            Self::Finished { .. } => FINISHED,
            Self::Received { .. } => RECEIVED,
            Self::Released { .. } => RELEASED,
            Self::Will(_) => WILL,
            Self::NoWill => NO_WILL,
            Self::WillAt { .. } => WILL_AT,
        }
    }

    fn put(&self, to: &mut Vec<u8>) {
        match *self {
            Self::Lives { key, life, last_id } => {
                put_bytes(key.as_bytes(), to);
                for time in [life.expiry_ms, life.ends_at] {
                    to.extend_from_slice(&time.unwrap_or(NEVER).to_le_bytes());
                }
                to.push(u8::from(life.connected));
                to.extend_from_slice(&last_id.to_le_bytes());
            }
            Self::Ended | Self::Popped | Self::NoWill => {}
            Self::Subscribed { filter, options, id } => {
                put_bytes(filter.as_bytes(), to);
                to.push(options);
                to.extend_from_slice(&id.to_le_bytes());
            }
            Self::Unsubscribed { filter } => put_bytes(filter.as_bytes(), to),
            Self::Will(will) => will.put(to),
            Self::WillAt { at } => to.extend_from_slice(&at.to_le_bytes()),
            Self::Queued(parcel) => parcel.put(to),
            Self::Sent { packet_id, parcel } => {
                to.extend_from_slice(&packet_id.to_le_bytes());
                parcel.put(to);
            }
            Self::Recorded { packet_id }
            | Self::Finished { packet_id }
            | Self::Received { packet_id }
            | Self::Released { packet_id } => to.extend_from_slice(&packet_id.to_le_bytes()),
        }
    }
}

impl Testament<'_> {
    fn put(&self, to: &mut Vec<u8>) {
        to.push(self.qos | if self.retain { RETAIN } else { 0 });
        to.extend_from_slice(&self.delay_ms.to_le_bytes());
        [self.topic.as_bytes(), self.properties, self.payload]
            .into_iter()
            .for_each(|part| put_bytes(part, to));
    }
}

impl Parcel<'_> {
    fn put(&self, to: &mut Vec<u8>) {
        to.extend_from_slice(&self.message.to_le_bytes());
        let flag = |is_set: bool, flag: u8| if is_set { flag } else { 0 };
        to.push(
            self.qos
                | flag(self.retain, RETAIN)
                | flag(self.for_new, FOR_NEW)
                | flag(self.replaceable, REPLACEABLE),
        );
        match self.ids {
            Ids::Bytes(bytes) => put_bytes(bytes, to),
            Ids::Numbers(ids) => {
                to.extend_from_slice(&(size_of_val(ids) as u32).to_le_bytes());
                ids.iter().for_each(|id| to.extend_from_slice(&id.to_le_bytes()));
            }
        }
    }
}

fn put_bytes(bytes: &[u8], to: &mut Vec<u8>) {
    // Topics, filters, and payloads of at most 128 MiB.
    to.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
    to.extend_from_slice(bytes);
}

/// Reads entries.
#[derive(Debug, Clone, Copy)]
pub(super) struct Entries<'a>(&'a [u8]);

impl<'a> Entries<'a> {
    pub(super) fn of(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// Whether everything was read.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The next entry. None: the bytes are none, or there are no more.
    pub(super) fn next(&mut self) -> Option<Entry<'a>> {
        let kind = self.u8()?;
        let number = match kind {
            FORGOTTEN => return Some(Entry::Forgotten { topic: self.text()? }),
            _ => self.u64()?,
        };
        match kind {
            MESSAGE => {
                let (topic, attributes, payload) = (self.text()?, self.bytes()?, self.bytes()?);
                Some(Entry::Message { number, topic, attributes, payload })
            }
            RETAINED => Some(Entry::Retained { message: number, qos: self.u8()? }),
            kind => Some(Entry::Of { serial: number, change: self.change(kind)? }),
        }
    }

    fn change(&mut self, kind: u8) -> Option<Change<'a>> {
        Some(match kind {
            LIVES => {
                let key = self.text()?;
                let time = |time: u64| (time != NEVER).then_some(time);
                let (expiry_ms, ends_at) = (time(self.u64()?), time(self.u64()?));
                let life = Life { expiry_ms, connected: self.u8()? != 0, ends_at, will_at: None };
                Change::Lives { key, life, last_id: self.u16()? }
            }
            ENDED => Change::Ended,
            SUBSCRIBED => {
                let (filter, options) = (self.text()?, self.u8()?);
                Change::Subscribed { filter, options, id: self.u32()? }
            }
            UNSUBSCRIBED => Change::Unsubscribed { filter: self.text()? },
            QUEUED => Change::Queued(self.parcel()?),
            POPPED => Change::Popped,
            SENT => Change::Sent { packet_id: self.u16()?, parcel: self.parcel()? },
            RECORDED => Change::Recorded { packet_id: self.u16()? },
            FINISHED => Change::Finished { packet_id: self.u16()? },
            RECEIVED => Change::Received { packet_id: self.u16()? },
            RELEASED => Change::Released { packet_id: self.u16()? },
            WILL => Change::Will(self.testament()?),
            NO_WILL => Change::NoWill,
            WILL_AT => Change::WillAt { at: self.u64()? },
            _ => return None,
        })
    }

    fn testament(&mut self) -> Option<Testament<'a>> {
        let (bits, delay_ms) = (self.u8()?, self.u64()?);
        Some(Testament {
            topic: self.text()?,
            qos: bits & 3,
            retain: bits & RETAIN != 0,
            delay_ms,
            properties: self.bytes()?,
            payload: self.bytes()?,
        })
    }

    fn parcel(&mut self) -> Option<Parcel<'a>> {
        let (message, bits) = (self.u64()?, self.u8()?);
        Some(Parcel {
            message,
            qos: bits & 3,
            retain: bits & RETAIN != 0,
            for_new: bits & FOR_NEW != 0,
            replaceable: bits & REPLACEABLE != 0,
            ids: Ids::Bytes(self.bytes()?),
        })
    }

    fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(taken)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }

    fn u8(&mut self) -> Option<u8> {
        self.array::<1>().map(|[byte]| byte)
    }

    fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_le_bytes)
    }

    fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    fn bytes(&mut self) -> Option<&'a [u8]> {
        let len = self.u32()?;
        self.take(len.try_into().ok()?)
    }

    fn text(&mut self) -> Option<&'a str> {
        std::str::from_utf8(self.bytes()?).ok()
    }
}
