//! The control messages of a connection, byte for byte (docs/PROTOCOL.md).
//!
//! A message is one octet of type and its fields in order. Integers are little endian; a byte string follows
//! its length. Decoding accepts exactly what encoding produces: a message that is too short, too long, or has
//! a value out of range is an error of the peer, reported with the fault.

use super::codec::{Writer, wire};
use super::coverage::{decode_coverage, encode_coverage};
use super::credit::Credit;
use crate::ground::fields::{FieldError, Reader};
use crate::ground::types::{Bid, Epoch, Policy, Position, WireId};

/// The first four bytes of every connection's first message, which tell a foreign client apart at once.
pub const MAGIC: u32 = u32::from_le_bytes(*b"RKTB");
/// The newest version that this build speaks.
pub const VERSION: u16 = 1;
/// The oldest version that this build speaks.
pub const MIN_VERSION: u16 = 1;
/// A capability: this end understands GROWN.
pub const GROWS: u32 = 1;
/// The most bytes of an application's hello: room for the token of an issuer.
pub const MAX_HELLO_BYTES: usize = 4096;
/// The most bytes of a subscription's name.
pub const MAX_NAME_BYTES: usize = 255;
/// The most bytes of an explaining text (BYE, REFUSED). Longer ones are cut when encoded.
pub const MAX_TEXT_BYTES: usize = 512;

/// The first message of each end. `HELLO` comes from the end that connected, `WELCOME` answers it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hello {
    /// The oldest version spoken (in WELCOME: the version chosen).
    pub min_version: u16,
    /// The newest version spoken (in WELCOME: the version chosen).
    pub max_version: u16,
    /// A bit set of optional features ([`GROWS`]); unknown bits are ignored.
    pub capabilities: u32,
    /// The random name of this process's endpoint.
    pub instance: u128,
    /// The interval at which this end sends something, in milliseconds. After a silence of three times that,
    /// the peer takes this end for dead. 0: never, and this end must not be taken for dead.
    pub heartbeat_ms: u32,
    /// The largest control message that this end accepts, in bytes.
    pub max_control_bytes: u32,
    /// The application's own bytes (role, name, later credentials), at most [`MAX_HELLO_BYTES`].
    pub hello: Vec<u8>,
}

/// Where a subscription begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Start {
    /// At the end of the last complete delivery.
    #[default]
    Newest,
    /// At the oldest delivery that is still retained.
    Oldest,
    /// At the last complete delivery whose start the sender knows and still has; otherwise as
    /// [`Start::Newest`].
    Last,
    /// So many milliseconds ago, by the sender's clock: at the start of a delivery, with nothing missing that
    /// was delivered since then. As [`Start::Oldest`] if the sender no longer knows that time.
    Ago(u64),
    /// With the first byte that the log ever had at the sender. Bytes that are gone are reported as LOST.
    First,
    /// At a position of a log, where an earlier subscription of the same log stopped.
    Position(Epoch, Position),
}

/// A request for a buffer's data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Subscribe {
    /// The id that the receiver chooses for this subscription on this connection.
    pub wire: WireId,
    /// The buffer.
    pub bid: Bid,
    /// The capacity of the receiver's ring, in bytes: the one that it has, or the largest that it takes when deliveries need it.
    pub capacity: u64,
    /// The sender's treatment of a slow receiver.
    pub policy: Policy,
    /// Whether the receiver wants the bytes in its own memory: the sender's ring is not to be offered
    /// (transport `shm`).
    pub own_memory: bool,
    /// Where to begin.
    pub start: Start,
    /// For `drop` and `disconnect`: the lag, in bytes, at which they act. 0: the sender's default.
    pub max_lag: u64,
    /// For `block`: milliseconds without progress while others wait, after which the sender disconnects. 0:
    /// never; `u32::MAX`: the sender's default.
    pub block_timeout_ms: u32,
    /// How long the sender holds a durable subscription's position after its connection is gone, in
    /// milliseconds.
    pub hold_ms: u32,
    /// The name of a durable subscription; empty: none.
    pub name: Vec<u8>,
}

/// The answer to [`Subscribe`]: data comes from `start` on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Subscribed {
    /// The subscription.
    pub wire: WireId,
    /// The log.
    pub epoch: Epoch,
    /// The first position that is sent.
    pub start: Position,
    /// Whether the receiver's credit holds the writer (false: overwritable, deliveries carry markers).
    pub flow_control: bool,
    /// Whether the requested log is another one now: the writer was restarted.
    pub restarted: bool,
    /// Whether a durable slot was asked for (a name and a hold time) and none was free.
    pub without_slot: bool,
    /// The capacity of the sender's ring, in bytes.
    pub capacity: u64,
    /// The largest delivery of this buffer, in bytes.
    pub max_delivery: u64,
}

/// Why a subscription was refused or ended by the sender. The numbers are part of the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u16)]
#[non_exhaustive]
pub enum RefuseCode {
    /// The sender has no such buffer.
    NoSuchBuffer = 1,
    /// The receiver's ring is smaller than twice the largest delivery (`a`: its capacity, `b`: the capacity
    /// that is needed).
    RingTooSmall = 2,
    /// The buffer does not support the policy.
    PolicyNotAllowed = 3,
    /// More subscriptions than configured (`a`: open, `b`: the limit).
    TooMany = 4,
    /// The wire id is in use or out of range on this connection.
    BadWireId = 5,
    /// The end of the connection that was asked sends nothing: it is not an rOut.
    NotAnOut = 6,
    /// The receiver lagged too far under `disconnect`, or made no progress under `block` (`a`: lag in bytes).
    TooSlow = 7,
    /// The sender's application does not let this receiver read the buffer, or not any more.
    NotAllowed = 8,
}

impl RefuseCode {
    fn from_u16(value: u16) -> Option<Self> {
        Some(match value {
            1 => Self::NoSuchBuffer,
            2 => Self::RingTooSmall,
            3 => Self::PolicyNotAllowed,
            4 => Self::TooMany,
            5 => Self::BadWireId,
            6 => Self::NotAnOut,
            7 => Self::TooSlow,
            8 => Self::NotAllowed,
            _ => return None,
        })
    }
}

/// Why an end closes a connection. The numbers are part of the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u16)]
#[non_exhaustive]
pub enum CloseCode {
    /// The application closed the connection.
    Normal = 0,
    /// The ends have no protocol version in common.
    Version = 1,
    /// The other end violated the protocol.
    Protocol = 2,
    /// The application rejected the connection.
    NotAccepted = 3,
    /// The other end was silent or too slow.
    Timeout = 4,
    /// A limit was reached.
    Limit = 5,
    /// The process shuts down.
    ShuttingDown = 6,
    /// Another connection took over: the rIn was resumed over it, or it subscribed under the same name.
    TakenOver = 7,
}

impl CloseCode {
    fn from_u16(value: u16) -> Option<Self> {
        Some(match value {
            0 => Self::Normal,
            1 => Self::Version,
            2 => Self::Protocol,
            3 => Self::NotAccepted,
            4 => Self::Timeout,
            5 => Self::Limit,
            6 => Self::ShuttingDown,
            7 => Self::TakenOver,
            _ => return None,
        })
    }
}

/// A control message.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Message {
    /// First message of the end that connected.
    Hello(Hello),
    /// The answer to HELLO, sent when the application has accepted the connection.
    Welcome(Hello),
    /// The last message of a connection, with the reason.
    Bye {
        /// The reason.
        code: CloseCode,
        /// The reason as text.
        text: String,
    },
    /// Asks the peer for PONG.
    Ping(u64),
    /// The answer to PING, with the same number.
    Pong(u64),
    /// The application's own control message.
    App(Vec<u8>),
    /// Receiver to sender: subscribe.
    Subscribe(Subscribe),
    /// Sender to receiver: the subscription is accepted.
    Subscribed(Subscribed),
    /// Sender to receiver: the subscription is refused, or ended.
    Refused {
        /// The subscription.
        wire: WireId,
        /// The reason.
        code: RefuseCode,
        /// A number that belongs to the code.
        a: u64,
        /// Another number.
        b: u64,
    },
    /// Receiver to sender: end the subscription.
    Unsubscribe(WireId),
    /// Sender to receiver: nothing more is sent for this id, which may be used again.
    Unsubscribed(WireId),
    /// Receiver to sender: the positions that landed, were confirmed and released, and the grant.
    Credit {
        /// The subscription.
        wire: WireId,
        /// The positions.
        credit: Credit,
    },
    /// Sender to receiver: send a CREDIT as soon as one of these positions is reached. With a `landed` beyond
    /// the grant: there is data up to there, for which credit is wanted.
    Ask {
        /// The subscription.
        wire: WireId,
        /// The wanted positions, by [`ProgressLevel`](crate::ProgressLevel); 0: none.
        wanted: [Position; 3],
    },
    /// Receiver to sender: return the unused grant.
    Recall(WireId),
    /// Sender to receiver: the grant ends at `at`. Nothing is sent beyond it before the next grant.
    Recalled {
        /// The subscription.
        wire: WireId,
        /// The end of the grant.
        at: Position,
    },
    /// Sender to receiver: deliveries of up to so many bytes follow, which need a ring of twice that. Sent only to a receiver that
    /// has asked with such a capacity, and has the capability.
    Grown {
        /// The subscription.
        wire: WireId,
        /// The largest delivery, in bytes.
        max_delivery: u64,
    },
    /// Sender to receiver: the log continues at `to`; the range before it is lost.
    Lost {
        /// The subscription.
        wire: WireId,
        /// The end of the last delivery that was sent whole.
        from: Position,
        /// The start of the next delivery.
        to: Position,
    },
    /// Sender to receiver, after all data: the buffer was destroyed, and the log ends here.
    Closed {
        /// The subscription.
        wire: WireId,
        /// The end of the log.
        end: Position,
    },
    /// Sender to receiver, after all complete deliveries: the writer does not return.
    Gone {
        /// The subscription.
        wire: WireId,
        /// The end of the last complete delivery.
        end: Position,
    },
}

const HELLO: u8 = 0x01;
const WELCOME: u8 = 0x02;
const BYE: u8 = 0x03;
const PING: u8 = 0x04;
const PONG: u8 = 0x05;
const APP: u8 = 0x06;
const SUBSCRIBE: u8 = 0x10;
const SUBSCRIBED: u8 = 0x11;
const REFUSED: u8 = 0x12;
const UNSUBSCRIBE: u8 = 0x13;
const UNSUBSCRIBED: u8 = 0x14;
const CREDIT: u8 = 0x15;
const ASK: u8 = 0x16;
const LOST: u8 = 0x17;
const CLOSED: u8 = 0x18;
const GONE: u8 = 0x19;
const RECALL: u8 = 0x1A;
const RECALLED: u8 = 0x1B;
const GROWN: u8 = 0x1C;

impl Message {
    /// Encodes the message, without the transport's header.
    ///
    /// ```
    /// use rocketbufs::proto::Message;
    /// let bytes = Message::Ping(7).encode();
    /// assert_eq!(bytes, [4, 7, 0, 0, 0, 0, 0, 0, 0]);
    /// assert_eq!(Message::decode(&bytes).unwrap(), Message::Ping(7));
    /// ```
    pub fn encode(&self) -> Vec<u8> {
        let mut w = Writer::new();
        match self {
            Self::Hello(hello) => encode_hello(&mut w, HELLO, hello),
            Self::Welcome(hello) => encode_hello(&mut w, WELCOME, hello),
            Self::Bye { code, text } => {
                w.u8(BYE).u16(*code as u16).text(text, MAX_TEXT_BYTES);
            }
            Self::Ping(token) => {
                w.u8(PING).u64(*token);
            }
            Self::Pong(token) => {
                w.u8(PONG).u64(*token);
            }
            Self::App(bytes) => {
                w.u8(APP).raw(bytes);
            }
            Self::Subscribe(subscribe) => encode_subscribe(&mut w, subscribe),
            Self::Subscribed(s) => {
                let [first, second, third] = [s.flow_control, s.restarted, s.without_slot].map(u8::from);
                let flags = first | second << 1 | third << 2;
                w.u8(SUBSCRIBED).u32(s.wire).u128(s.epoch.0).u64(s.start).u8(flags);
                w.u64(s.capacity).u64(s.max_delivery);
            }
            Self::Refused { wire, code, a, b } => {
                w.u8(REFUSED).u32(*wire).u16(*code as u16).u64(*a).u64(*b);
            }
            Self::Unsubscribe(wire) => {
                w.u8(UNSUBSCRIBE).u32(*wire);
            }
            Self::Unsubscribed(wire) => {
                w.u8(UNSUBSCRIBED).u32(*wire);
            }
            Self::Credit { wire, credit } => encode_credit(&mut w, *wire, credit),
            Self::Ask { wire, wanted: [landed, delivered, consumed] } => {
                w.u8(ASK).u32(*wire).u64(*landed).u64(*delivered).u64(*consumed);
            }
            Self::Recall(wire) => {
                w.u8(RECALL).u32(*wire);
            }
            Self::Recalled { wire, at } => {
                w.u8(RECALLED).u32(*wire).u64(*at);
            }
            Self::Grown { wire, max_delivery } => {
                w.u8(GROWN).u32(*wire).u64(*max_delivery);
            }
            Self::Lost { wire, from, to } => {
                w.u8(LOST).u32(*wire).u64(*from).u64(*to);
            }
            Self::Closed { wire, end } => {
                w.u8(CLOSED).u32(*wire).u64(*end);
            }
            Self::Gone { wire, end } => {
                w.u8(GONE).u32(*wire).u64(*end);
            }
        }
        w.finish()
    }

    /// Decodes a message.
    ///
    /// # Errors
    /// Returns the fault of the peer. The connection should be closed with it.
    pub fn decode(bytes: &[u8]) -> Result<Self, FieldError> {
        let mut r = Reader::new(bytes);
        let message = match r.u8()? {
            HELLO => Self::Hello(decode_hello(&mut r)?),
            WELCOME => Self::Welcome(decode_hello(&mut r)?),
            BYE => {
                let code = r.u16()?;
                let code = CloseCode::from_u16(code).ok_or(FieldError::value("bye code", code))?;
                Self::Bye { code, text: r.text16(MAX_TEXT_BYTES, "text")?.to_owned() }
            }
            PING => Self::Ping(r.u64()?),
            PONG => Self::Pong(r.u64()?),
            APP => Self::App(r.rest().to_vec()),
            SUBSCRIBE => Self::Subscribe(decode_subscribe(&mut r)?),
            SUBSCRIBED => Self::Subscribed(decode_subscribed(&mut r)?),
            REFUSED => {
                let wire = wire(&mut r)?;
                let code = r.u16()?;
                let code = RefuseCode::from_u16(code).ok_or(FieldError::value("refuse code", code))?;
                Self::Refused { wire, code, a: r.u64()?, b: r.u64()? }
            }
            UNSUBSCRIBE => Self::Unsubscribe(wire(&mut r)?),
            UNSUBSCRIBED => Self::Unsubscribed(wire(&mut r)?),
            CREDIT => Self::Credit { wire: wire(&mut r)?, credit: decode_credit(&mut r)? },
            ASK => Self::Ask { wire: wire(&mut r)?, wanted: [r.u64()?, r.u64()?, r.u64()?] },
            RECALL => Self::Recall(wire(&mut r)?),
            RECALLED => Self::Recalled { wire: wire(&mut r)?, at: r.u64()? },
            GROWN => Self::Grown { wire: wire(&mut r)?, max_delivery: r.u64()? },
            LOST => Self::Lost { wire: wire(&mut r)?, from: r.u64()?, to: r.u64()? },
            CLOSED => Self::Closed { wire: wire(&mut r)?, end: r.u64()? },
            GONE => Self::Gone { wire: wire(&mut r)?, end: r.u64()? },
            other => return Err(FieldError::value("message type", other)),
        };
        r.end()?;
        Ok(message)
    }
}

fn encode_hello(w: &mut Writer, kind: u8, hello: &Hello) {
    w.u8(kind).u32(MAGIC).u16(hello.min_version).u16(hello.max_version).u32(hello.capabilities);
    w.u128(hello.instance).u32(hello.heartbeat_ms).u32(hello.max_control_bytes).bytes16(&hello.hello);
}

fn decode_hello(r: &mut Reader<'_>) -> Result<Hello, FieldError> {
    let magic = r.u32()?;
    if magic != MAGIC {
        return Err(FieldError::value("magic", magic));
    }
    Ok(Hello {
        min_version: r.u16()?,
        max_version: r.u16()?,
        capabilities: r.u32()?,
        instance: r.u128()?,
        heartbeat_ms: r.u32()?,
        max_control_bytes: r.u32()?,
        hello: r.bytes16(MAX_HELLO_BYTES)?.to_vec(),
    })
}

fn encode_credit(w: &mut Writer, wire: WireId, c: &Credit) {
    w.u8(CREDIT).u32(wire).u64(c.landed).u64(c.delivered).u64(c.consumed).u64(c.grant);
    encode_coverage(w, &c.coverage);
}

fn decode_credit(r: &mut Reader<'_>) -> Result<Credit, FieldError> {
    Ok(Credit {
        landed: r.u64()?,
        delivered: r.u64()?,
        consumed: r.u64()?,
        grant: r.u64()?,
        coverage: decode_coverage(r)?,
    })
}

/// A bit in the octet of the policy: the receiver wants its own memory.
const OWN_MEMORY: u8 = 0x80;

fn encode_subscribe(w: &mut Writer, s: &Subscribe) {
    let policy = s.policy as u8 | if s.own_memory { OWN_MEMORY } else { 0 };
    w.u8(SUBSCRIBE).u32(s.wire).u32(s.bid).u64(s.capacity).u8(policy);
    let (kind, epoch, position) = match s.start {
        Start::Newest => (0, Epoch(0), 0),
        Start::Oldest => (1, Epoch(0), 0),
        Start::Position(epoch, position) => (2, epoch, position),
        Start::Last => (3, Epoch(0), 0),
        Start::Ago(ms) => (4, Epoch(0), ms),
        Start::First => (5, Epoch(0), 0),
    };
    w.u8(kind).u128(epoch.0).u64(position);
    w.u64(s.max_lag).u32(s.block_timeout_ms).u32(s.hold_ms).bytes8(&s.name);
}

fn decode_subscribe(r: &mut Reader<'_>) -> Result<Subscribe, FieldError> {
    let (wire, bid, capacity) = (wire(r)?, r.u32()?, r.u64()?);
    let policy = r.u8()?;
    let own_memory = policy & OWN_MEMORY != 0;
    let policy = Policy::from_u8(policy & !OWN_MEMORY).ok_or(FieldError::value("policy", policy))?;
    let (kind, epoch, position) = (r.u8()?, Epoch(r.u128()?), r.u64()?);
    let start = match kind {
        0 | 1 | 3 | 5 if epoch != Epoch(0) || position != 0 => return Err(FieldError::value("start", kind)),
        4 if epoch != Epoch(0) => return Err(FieldError::value("start", kind)),
        0 => Start::Newest,
        1 => Start::Oldest,
        2 => Start::Position(epoch, position),
        3 => Start::Last,
        4 => Start::Ago(position),
        5 => Start::First,
        other => return Err(FieldError::value("start", other)),
    };
    Ok(Subscribe {
        wire,
        bid,
        capacity,
        policy,
        own_memory,
        start,
        max_lag: r.u64()?,
        block_timeout_ms: r.u32()?,
        hold_ms: r.u32()?,
        name: r.bytes8()?.to_vec(),
    })
}

fn decode_subscribed(r: &mut Reader<'_>) -> Result<Subscribed, FieldError> {
    let (wire, epoch, start, flags) = (wire(r)?, Epoch(r.u128()?), r.u64()?, r.u8()?);
    if flags & !7 != 0 {
        return Err(FieldError::value("flags", flags));
    }
    let [flow_control, restarted, without_slot] = [1, 2, 4].map(|bit| flags & bit != 0);
    let (capacity, max_delivery) = (r.u64()?, r.u64()?);
    Ok(Subscribed { wire, epoch, start, flow_control, restarted, without_slot, capacity, max_delivery })
}
