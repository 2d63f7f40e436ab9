//! Messages between observers (`rbmq top`) and the broker: one answer for each request.
//!
//! ```text
//!  observer                                   broker
//!     ── GET_SUMMARY{request} ─▶
//!                              ◀─ SUMMARY{request, …} ──
//!     ── GET_TOPICS{request, filter, after} ─▶
//!                              ◀─ TOPICS_PAGE{request, rows, next} ──      again with after = next, until there is none
//!     ── GET_LIMITS{request} ─▶
//!                              ◀─ LIMITS{request, rows} ──                  who is at or near a limit, the first of them
//!     ── GET_GATEWAYS{request} ─▶
//!                              ◀─ GATEWAYS{request, rows} ──
//!     ── GET_GROUPS{request} ─▶
//!                              ◀─ GROUPS{request, rows} ──                  the groups with the largest lag
//! ```
//!
//! Lists come in pages of one message each, and a page has the position of the next one. Therefore the broker keeps no state of
//! an observer between two messages, no answer is longer than a message, and no answer takes long.

mod buffers;
mod fields;
mod gateways;
mod groups;
mod rows;

use rocketbufs::fields::{FieldError, Reader};

pub use buffers::{BlockReason, BufferStage, BufferStats};
use fields::{Row, get_name, put_name};
pub use gateways::GatewayStats;
pub use rows::{
    BrokerSummary, LimitStats, SlowestSubscriber, SubscriptionSortKey, SubscriptionStats, TopicStats,
};

use super::{Control, DecodeError, GroupStats, TopicFilter, TopicName};

/// A message between an observer and the broker. Every message carries the observer's number of the request.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Observe {
    /// Observer → broker: requests the state of the broker as a whole.
    GetSummary {
        /// The number of the request, which the answer repeats.
        request: u32,
    },
    /// Observer → broker: requests the topics, sorted by name.
    GetTopics {
        /// The number of the request, which the answer repeats.
        request: u32,
        /// Only topics that match; none: all topics.
        filter: Option<TopicFilter>,
        /// Only topics behind this name.
        after: Option<TopicName>,
    },
    /// Observer → broker: requests the buffers of a topic, sorted by id.
    GetBuffers {
        /// The number of the request, which the answer repeats.
        request: u32,
        /// The topic.
        topic: TopicName,
        /// Only buffers behind this id.
        after: Option<u32>,
    },
    /// Observer → broker: requests the subscriptions of a buffer, the slowest first.
    GetSubscriptions {
        /// The number of the request, which the answer repeats.
        request: u32,
        /// The broker's id of the buffer.
        bid: u32,
        /// Only subscriptions behind this key.
        after: Option<SubscriptionSortKey>,
    },
    /// Observer → broker: requests the users and addresses at or near a limit.
    GetLimits {
        /// The number of the request, which the answer repeats.
        request: u32,
    },
    /// Observer → broker: requests the gateways.
    GetGateways {
        /// The number of the request, which the answer repeats.
        request: u32,
    },
    /// Observer → broker: requests the groups of workers.
    GetGroups {
        /// The number of the request, which the answer repeats.
        request: u32,
    },
    /// Broker → observer.
    Summary {
        /// The number of the request.
        request: u32,
        /// The broker.
        summary: BrokerSummary,
    },
    /// Broker → observer.
    TopicsPage {
        /// The number of the request.
        request: u32,
        /// By name.
        rows: Vec<TopicStats>,
        /// The position of the next page; none: this is the last page.
        next: Option<TopicName>,
    },
    /// Broker → observer. A topic that does not exist has no buffers.
    BuffersPage {
        /// The number of the request.
        request: u32,
        /// By id.
        rows: Vec<BufferStats>,
        /// The position of the next page; none: this is the last page.
        next: Option<u32>,
    },
    /// Broker → observer. A buffer that does not exist has no subscriptions.
    SubscriptionsPage {
        /// The number of the request.
        request: u32,
        /// The slowest first.
        rows: Vec<SubscriptionStats>,
        /// The position of the next page; none: this is the last page.
        next: Option<SubscriptionSortKey>,
    },
    /// Broker → observer.
    Limits {
        /// The number of the request.
        request: u32,
        /// The users and addresses at their limits first, as many as a message has room for.
        rows: Vec<LimitStats>,
    },
    /// Broker → observer.
    Gateways {
        /// The number of the request.
        request: u32,
        /// In the order in which they were started, as many as a message has room for.
        rows: Vec<GatewayStats>,
    },
    /// Broker → observer.
    Groups {
        /// The number of the request.
        request: u32,
        /// The largest lag first, as many as a message has room for.
        rows: Vec<GroupStats>,
    },
}

const GET_SUMMARY: u8 = 0x30;
const GET_TOPICS: u8 = 0x31;
const GET_BUFFERS: u8 = 0x32;
const GET_SUBSCRIPTIONS: u8 = 0x33;
const SUMMARY: u8 = 0x34;
const TOPICS_PAGE: u8 = 0x35;
const BUFFERS_PAGE: u8 = 0x36;
const SUBSCRIPTIONS_PAGE: u8 = 0x37;
const GET_LIMITS: u8 = 0x38;
const LIMITS: u8 = 0x39;
const GET_GATEWAYS: u8 = 0x3a;
const GATEWAYS: u8 = 0x3b;
const GET_GROUPS: u8 = 0x3c;
const GROUPS: u8 = 0x3d;

/// The most bytes of a page without its rows: type, request, number of rows, and the position of the next page.
const PAGE_HEADER_BYTES: usize = 1 + 4 + 2 + 1 + 20 + 256;

impl Observe {
    /// Encodes the message.
    pub fn encode(&self) -> Vec<u8> {
        let mut b = Vec::with_capacity(64);
        match self {
            Self::GetSummary { request } => put_head(&mut b, GET_SUMMARY, *request),
            Self::GetTopics { request, filter, after } => {
                put_head(&mut b, GET_TOPICS, *request);
                // Filters and topics are never empty, so the empty string stands for none.
                put_name(&mut b, filter.as_ref().map_or("", TopicFilter::as_str));
                put_name(&mut b, after.as_ref().map_or("", TopicName::as_str));
            }
            Self::GetBuffers { request, topic, after } => {
                put_head(&mut b, GET_BUFFERS, *request);
                put_name(&mut b, topic.as_str());
                put_next(&mut b, after);
            }
            Self::GetSubscriptions { request, bid, after } => {
                put_head(&mut b, GET_SUBSCRIPTIONS, *request);
                bid.put(&mut b);
                put_next(&mut b, after);
            }
            Self::GetLimits { request } => put_head(&mut b, GET_LIMITS, *request),
            Self::Limits { request, rows } => {
                put_head(&mut b, LIMITS, *request);
                put_rows(&mut b, rows);
            }
            Self::GetGateways { request } => put_head(&mut b, GET_GATEWAYS, *request),
            Self::Gateways { request, rows } => {
                put_head(&mut b, GATEWAYS, *request);
                put_rows(&mut b, rows);
            }
            Self::GetGroups { request } => put_head(&mut b, GET_GROUPS, *request),
            Self::Groups { request, rows } => {
                put_head(&mut b, GROUPS, *request);
                put_rows(&mut b, rows);
            }
            Self::Summary { request, summary } => {
                put_head(&mut b, SUMMARY, *request);
                summary.put(&mut b);
            }
            Self::TopicsPage { request, rows, next } => put_page(&mut b, TOPICS_PAGE, *request, rows, next),
            Self::BuffersPage { request, rows, next } => put_page(&mut b, BUFFERS_PAGE, *request, rows, next),
            Self::SubscriptionsPage { request, rows, next } => {
                put_page(&mut b, SUBSCRIPTIONS_PAGE, *request, rows, next);
            }
        }
        b
    }

    /// Decodes a message of a peer.
    ///
    /// # Errors
    /// The bytes are not a valid message. Close the connection with the error as the reason.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        if bytes.len() > Control::MAX_BYTES {
            return Err(FieldError::Long { extra: bytes.len() - Control::MAX_BYTES }.into());
        }
        let mut r = Reader::new(bytes);
        let (kind, request) = (r.u8()?, r.u32()?);
        let message = match kind {
            GET_SUMMARY => Self::GetSummary { request },
            GET_TOPICS => {
                let (filter, after) = (get_name(&mut r)?, get_name(&mut r)?);
                let filter = (!filter.is_empty()).then(|| filter.parse::<TopicFilter>()).transpose()?;
                let after = (!after.is_empty()).then(|| after.parse::<TopicName>()).transpose()?;
                Self::GetTopics { request, filter, after }
            }
            GET_BUFFERS => {
                let topic = get_name(&mut r)?.parse::<TopicName>()?;
                Self::GetBuffers { request, topic, after: get_next(&mut r)? }
            }
            GET_SUBSCRIPTIONS => Self::GetSubscriptions { request, bid: r.u32()?, after: get_next(&mut r)? },
            GET_LIMITS => Self::GetLimits { request },
            LIMITS => Self::Limits { request, rows: get_rows(&mut r)? },
            GET_GATEWAYS => Self::GetGateways { request },
            GATEWAYS => Self::Gateways { request, rows: get_rows(&mut r)? },
            GET_GROUPS => Self::GetGroups { request },
            GROUPS => Self::Groups { request, rows: get_rows(&mut r)? },
            SUMMARY => Self::Summary { request, summary: BrokerSummary::get(&mut r)? },
            TOPICS_PAGE => {
                let (rows, next) = get_page(&mut r)?;
                Self::TopicsPage { request, rows, next }
            }
            BUFFERS_PAGE => {
                let (rows, next) = get_page(&mut r)?;
                Self::BuffersPage { request, rows, next }
            }
            SUBSCRIPTIONS_PAGE => {
                let (rows, next) = get_page(&mut r)?;
                Self::SubscriptionsPage { request, rows, next }
            }
            other => return Err(DecodeError::value("type of message", other)),
        };
        r.end()?;
        Ok(message)
    }

    /// The number of the request.
    pub fn request(&self) -> u32 {
        match self {
            Self::GetSummary { request }
            | Self::GetTopics { request, .. }
            | Self::GetBuffers { request, .. }
            | Self::GetSubscriptions { request, .. }
            | Self::Summary { request, .. }
            | Self::TopicsPage { request, .. }
            | Self::BuffersPage { request, .. }
            | Self::SubscriptionsPage { request, .. }
            | Self::GetLimits { request }
            | Self::Limits { request, .. }
            | Self::GetGateways { request }
            | Self::Gateways { request, .. }
            | Self::GetGroups { request }
            | Self::Groups { request, .. } => *request,
        }
    }
}

/// Rows for one message: as many as it has room for.
pub struct Page<T> {
    /// The rows.
    pub rows: Vec<T>,
    left: usize,
    scratch: Vec<u8>,
}

impl<T: Row> Page<T> {
    /// For a peer that takes messages of at most so many bytes.
    pub fn new(max_bytes: usize) -> Self {
        let left = max_bytes.min(Control::MAX_BYTES).saturating_sub(PAGE_HEADER_BYTES);
        Self { rows: Vec::new(), left, scratch: Vec::new() }
    }

    /// The rows of a list that one message has room for. The others are left out.
    pub fn of(max_bytes: usize, rows: impl IntoIterator<Item = T>) -> Vec<T> {
        let mut page = Self::new(max_bytes);
        let _ = rows.into_iter().all(|row| page.add(row));
        page.rows
    }

    /// Adds a row; false if there is no room for it. The first row always fits: every peer takes that much.
    pub fn add(&mut self, row: T) -> bool {
        self.scratch.clear();
        row.put(&mut self.scratch);
        let fits = self.scratch.len() <= self.left && self.rows.len() < usize::from(u16::MAX);
        if fits {
            self.left -= self.scratch.len();
            self.rows.push(row);
        }
        fits
    }
}

fn put_head(b: &mut Vec<u8>, kind: u8, request: u32) {
    b.push(kind);
    request.put(b);
}

fn put_page<T: Row, N: Row>(b: &mut Vec<u8>, kind: u8, request: u32, rows: &[T], next: &Option<N>) {
    put_head(b, kind, request);
    put_next(b, next);
    put_rows(b, rows);
}

fn put_rows<T: Row>(b: &mut Vec<u8>, rows: &[T]) {
    b.extend_from_slice(&u16::try_from(rows.len()).unwrap_or(u16::MAX).to_le_bytes());
    rows.iter().take(usize::from(u16::MAX)).for_each(|row| row.put(b));
}

fn get_page<T: Row, N: Row>(r: &mut Reader<'_>) -> Result<(Vec<T>, Option<N>), DecodeError> {
    let next = get_next(r)?;
    Ok((get_rows(r)?, next))
}

fn get_rows<T: Row>(r: &mut Reader<'_>) -> Result<Vec<T>, DecodeError> {
    // The vector grows with the rows that exist. A false count allocates nothing.
    let count = r.u16()?;
    (0..count).map(|_| T::get(r)).collect()
}

fn put_next<N: Row>(b: &mut Vec<u8>, next: &Option<N>) {
    b.push(u8::from(next.is_some()));
    next.iter().for_each(|next| next.put(b));
}

fn get_next<N: Row>(r: &mut Reader<'_>) -> Result<Option<N>, DecodeError> {
    match r.u8()? {
        0 => Ok(None),
        1 => N::get(r).map(Some),
        other => Err(DecodeError::value("flags", other)),
    }
}

impl Row for u32 {
    fn put(&self, b: &mut Vec<u8>) {
        b.extend_from_slice(&self.to_le_bytes());
    }

    fn get(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(r.u32()?)
    }
}

impl Row for TopicName {
    fn put(&self, b: &mut Vec<u8>) {
        put_name(b, self.as_str());
    }

    fn get(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(get_name(r)?.parse()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_as_documented() {
        assert_eq!(Observe::GetSummary { request: 7 }.encode(), b"\x30\x07\0\0\0");
        let filter = Some("a/#".parse().unwrap());
        let topics = Observe::GetTopics { request: 1, filter, after: Some("a/b".parse().unwrap()) };
        assert_eq!(topics.encode(), b"\x31\x01\0\0\0\x03a/#\x03a/b");
        let buffers = Observe::GetBuffers { request: 1, topic: "a".parse().unwrap(), after: Some(9) };
        assert_eq!(buffers.encode(), b"\x32\x01\0\0\0\x01a\x01\x09\0\0\0");
        let page = Observe::TopicsPage { request: 2, rows: Vec::new(), next: None };
        assert_eq!(page.encode(), b"\x35\x02\0\0\0\0\0\0");
    }

    #[test]
    fn a_full_page_is_a_message_and_the_largest_row_fits_one() {
        let name = "n".repeat(255);
        let slowest = SlowestSubscriber { name: name.clone(), ..SlowestSubscriber::default() };
        let mut topic = TopicStats::new(name.parse().unwrap());
        (topic.boundary, topic.slowest) = (Some(1), Some(slowest));
        let mut page = Page::new(usize::MAX);
        while page.add(topic.clone()) {}
        assert!(page.rows.len() > 20);
        let next = Some(name.parse().unwrap());
        let message = Observe::TopicsPage { request: 0, rows: page.rows, next };
        assert!(message.encode().len() <= Control::MAX_BYTES);

        let (client, address) = (name.clone(), name.clone());
        let row = SubscriptionStats {
            client,
            address,
            name,
            retains_from: Some(1),
            ..SubscriptionStats::default()
        };
        let mut page = Page::new(usize::MAX);
        while page.add(row.clone()) {}
        assert!(page.rows.len() > 10);
        let next = Some(row.sort_key());
        let message = Observe::SubscriptionsPage { request: 0, rows: page.rows, next };
        assert!(message.encode().len() <= Control::MAX_BYTES);

        // The least that a peer may take.
        let mut page = Page::new(Control::SMALL_BYTES);
        assert!(page.add(row.clone()));
        while page.add(row.clone()) {}
        let message = Observe::SubscriptionsPage { request: 0, rows: page.rows, next: Some(row.sort_key()) };
        assert!(message.encode().len() <= Control::SMALL_BYTES);
    }

    #[test]
    fn names_the_fault() {
        assert!(matches!(
            Observe::decode(b"\x3f\0\0\0\0"),
            Err(DecodeError::Field(FieldError::Value { field: "type of message", .. }))
        ));
        assert_eq!(Observe::decode(b""), Err(FieldError::Short { missing: 1 }.into()));
        assert_eq!(Observe::decode(b"\x30\0\0\0\0\0"), Err(FieldError::Long { extra: 1 }.into()));
        // A page that claims to be full of rows, and has none.
        assert_eq!(Observe::decode(b"\x36\0\0\0\0\0\xff\xff"), Err(FieldError::Short { missing: 4 }.into()));
        assert!(matches!(
            Observe::decode(b"\x33\0\0\0\0\0\0\0\0\x02"),
            Err(DecodeError::Field(FieldError::Value { field: "flags", .. }))
        ));
        let long = vec![0; Control::MAX_BYTES + 3];
        assert_eq!(Observe::decode(&long), Err(FieldError::Long { extra: 3 }.into()));
    }
}
