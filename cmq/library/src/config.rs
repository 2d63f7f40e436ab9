//! The settings of a queue, each with its unit, default, range and cost.

use std::time::Duration;

use crate::security::Security;
use crate::wire::{MAX_DATAGRAM, MIN_FRAGMENT, PARITY_GROUP};

/// The largest `qthresh`: the most bytes that the kernel cuts into datagrams in one call.
pub const MAX_QTHRESH: usize = 60_000;
/// The smallest payload that every network carries: IPv6's minimum MTU of 1,280 bytes, less headers, less room for tunnels.
pub const MIN_DATAGRAM: usize = 1_200;

/// The longest [`Config::spin`].
const MAX_SPIN: Duration = Duration::from_millis(1);
/// The bytes that an incomplete message costs for each of its fragments, so that many small fragments count too.
pub(crate) const FRAGMENT_OVERHEAD: usize = 128;

/// The most memory that an incomplete message of this size costs: its fragments and parity fragments.
pub(crate) const fn reassembly_bytes(message: usize) -> usize {
    let group = PARITY_GROUP as usize;
    let fragments = message.div_ceil(MIN_FRAGMENT);
    message
        + message / group
        + u16::MAX as usize
        + (fragments + fragments.div_ceil(group)) * FRAGMENT_OVERHEAD
}

/// The handling of a message that does not fit into one datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Oversize {
    /// The message is sent in fragments. The message is lost if one of them is.
    Fragment,
    /// The push fails with [`PushError::TooLarge`](crate::PushError::TooLarge).
    Reject,
}

/// Which message a full mailbox drops. Each drop is counted (`overflowed`) and reported as an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum OverflowPolicy {
    /// The arriving message.
    DropNewest,
    /// The message that has waited longest.
    DropOldest,
}

/// The handling of messages that the network reordered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Delivery {
    /// Messages of one sender are popped in the order in which they were pushed. A message that arrives early waits
    /// for the missing messages before it. Missing messages are lost after `wait`, or once `window` datagrams wait; if
    /// they arrive later, they are dropped.
    Ordered {
        /// The longest time to wait. Zero does not wait: each datagram that arrives late is lost.
        ///
        /// The wait adapts to the path. Each loss halves it for that sender, down to a 64th, and `window` too, down to
        /// three datagrams. After 32 losses in a row the receiver does not wait at all: a datagram that was only
        /// overtaken is then lost. A late or reordered datagram restores both. A path that only loses therefore
        /// causes no delay.
        wait: Duration,
        /// The datagrams of one sender that may wait: 1 to 1,024.
        window: usize,
    },
    /// Messages are popped as they arrive. `wait` and `window` decide when a missing message is reported as lost. A
    /// message that arrives after its loss was reported is dropped, so that each message is either received or
    /// reported.
    Unordered {
        /// The longest time in which a missing message may still arrive, as with [`Delivery::Ordered`].
        wait: Duration,
        /// The datagrams that may arrive before it: 1 to 1,024.
        window: usize,
    },
}

/// The settings of the reliable mode: [`Cmq::push_reliable`](crate::Cmq::push_reliable) and the messages that it sends.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Reliable {
    /// Bytes that may be sent for a key before the receiver's mailbox has taken them. Default 1 MiB; 64 KiB to 1 GiB.
    ///
    /// The receiver's value counts, beyond the first window of a stream. A window divided by the round trip time is the most that a key
    /// can have for each second.
    pub window: usize,
    /// Bytes that wait for a confirmation, over all keys. A push beyond it fails with [`PushError::Full`](crate::PushError::Full).
    /// Default 64 MiB.
    pub send_bytes: usize,
    /// Bytes that a receiver keeps because earlier ones are missing, or a mailbox is full. Beyond it segments are refused, and come again
    /// when there is room; one key at a time may exceed it, to complete a message. Default 64 MiB; at least `window`.
    ///
    /// At the limit the keys of a receiver go on one after the other. So choose at least `window` for each key that receives large
    /// messages, or loses segments, at the same time. A host may have eight times what is then free, or one window: eight ninths, if it is
    /// alone. So no host keeps the others waiting.
    pub receive_bytes: usize,
    /// A key whose messages were not confirmed for this long gives them up. Default 30 s; 100 ms to 1 h.
    pub give_up: Duration,
    /// A receiver forgets a sender that is silent for this long, and a sender begins anew after a third of it. Both ends need about the
    /// same. Default 10 min; 3 s to 1 day, and at least three times `give_up`.
    pub idle: Duration,
    /// Keys that are sent to, and keys of senders that are received for: about 300 bytes each. Default 65,536, of which
    /// the senders of one host may have eight ninths, and less the more the others have.
    pub max_keys: usize,
    /// Senders that are remembered: about 1 KiB each. Default 16,384. Beyond it one is forgotten, of an IP address with more than its
    /// share, or else the one that was silent longest.
    pub max_links: usize,
}

impl Default for Reliable {
    fn default() -> Reliable {
        Reliable {
            window: 1 << 20,
            send_bytes: 64 << 20,
            receive_bytes: 64 << 20,
            give_up: Duration::from_secs(30),
            idle: Duration::from_secs(600),
            max_keys: 1 << 16,
            max_links: 1 << 14,
        }
    }
}

option_setters::setters! { fields of Reliable:
    window: usize,
    send_bytes: usize,
    receive_bytes: usize,
    give_up: Duration,
    idle: Duration,
    max_keys: usize,
    max_links: usize,
}

/// The settings of a queue.
///
/// [`Config::default`] is the fastest preset, [`Config::paper`] has the paper's values, and [`Config::immediate`] sends each
/// message at once. Each field has a setter of the same name:
///
/// ```
/// use cmq::{Config, OverflowPolicy};
///
/// let config = Config::default().mailbox_messages(1000).overflow(OverflowPolicy::DropOldest);
/// assert_eq!(config.mailbox_messages, 1000);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Config {
    /// A batch leaves once its messages have this many bytes on the wire, which includes two bytes for each message.
    ///
    /// Default 60,000, the maximum: the most that one system call sends. Range 1 to 60,000; the paper's value is 512. A
    /// larger batch costs fewer system calls for each message. Each key with pending messages holds a buffer of about
    /// this size.
    pub qthresh: usize,
    /// A batch leaves once it has this many messages.
    ///
    /// Default 400. `None` is no limit, as in [`Config::paper`]: only bytes count. A batch of `qthresh` bytes has
    /// thousands of small messages, and the receiver has nothing to do while they are pushed. At least 1.
    pub qmessages: Option<usize>,
    /// A batch leaves once its oldest message has waited this long.
    ///
    /// Default 5 ms; the paper's value is 200 ms. Zero sends every message at once, from the thread that pushes it: the
    /// lowest latency, for one system call each.
    pub timeout: Duration,
    /// Sends all pending messages when a thread of this queue begins to wait for a message.
    ///
    /// A waiting thread has nothing more to push for now, and may wait for an answer to a pushed message. A batch then has all
    /// messages that are pushed between two waits, and neither `qthresh` nor `timeout` needs tuning for the number of
    /// outstanding messages. Default true; false in [`Config::paper`].
    pub flush_on_wait: bool,
    /// How long a thread that waits for a message polls the socket before it sleeps.
    ///
    /// Default 0: it sleeps at once. At most 1 ms. A sleep and its end cost 5 to 50 µs of latency and of processor time. A
    /// value of 50 µs pays off on free cores: it costs up to that much processor time for each wait while messages
    /// arrive more often than every 200 µs, and nothing otherwise. On cores that other threads need, messages arrive
    /// later than without it.
    pub spin: Duration,
    /// Bytes that may wait to be sent, over all keys. A push beyond it fails with
    /// [`PushError::Full`](crate::PushError::Full). Default 64 MiB.
    pub pending_bytes: usize,
    /// Messages that each mailbox may hold. Default 1,048,576. At least 1.
    pub mailbox_messages: usize,
    /// Bytes of messages, as encoded, that each mailbox may hold. Default 64 MiB.
    pub mailbox_bytes: usize,
    /// Which message is dropped when a mailbox is full. Default [`OverflowPolicy::DropNewest`].
    pub overflow: OverflowPolicy,
    /// Whether messages are popped in order. Default: ordered, with a wait of at most 2 ms or 16 datagrams.
    pub delivery: Delivery,
    /// Memory for messages that arrived before a missing one, over all senders; each datagram costs about 70 bytes more
    /// than its messages. Beyond it missing messages are reported as lost. Default 8 MiB.
    pub reorder_bytes: usize,
    /// The handling of a message that does not fit into one datagram. Default [`Oversize::Fragment`].
    pub oversize: Oversize,
    /// Sends a parity fragment for each 16 or fewer fragments of a message.
    ///
    /// The parity fragment is the exclusive or of its group, so the message survives the loss of any one fragment of each
    /// group; without it the loss of any fragment loses the message. A parity fragment costs one more datagram for each
    /// group: a third more bytes for a message of 4 KiB on Ethernet, a twelfth for 16 KiB. Default false. Receivers need no
    /// setting.
    pub parity_fragments: bool,
    /// The largest message, sent or received, in bytes. Default 1 MiB, at most 1 GiB.
    pub max_message: usize,
    /// Memory for incomplete messages, over all senders. Beyond it the oldest incomplete message is dropped. Default
    /// 32 MiB; at least 1.6 times `max_message` plus 64 KiB.
    pub fragment_bytes: usize,
    /// How long a message may stay incomplete. Default 2 s.
    pub fragment_timeout: Duration,
    /// The largest datagram, in bytes of UDP payload: 1,200 to 65,507. Datagrams are never fragmented by IP.
    ///
    /// Default `None`: the kernel's path MTU for each address, which is asked for when a batch exceeds 1,200 bytes.
    pub max_datagram: Option<usize>,
    /// Lets the kernel cut a batch into datagrams (UDP_SEGMENT) where it can. Default true. False sends them with
    /// `sendmmsg`, for devices that announce segmentation and get it wrong.
    pub segmentation_offload: bool,
    /// Streams of senders that are remembered: about 500 bytes each, up to 2 KiB after losses. Default 131,072.
    ///
    /// Beyond it one stream is evicted, after its losses were reported: a stream of an IP address (the upper 64 bits for
    /// IPv6) that has more than its share, or else the stream that was silent longest.
    pub max_senders: usize,
    /// Destination addresses that are remembered: about 150 bytes each. Default 131,072. Beyond it the least recently
    /// used stream is closed. The next message to that address begins a new stream.
    pub max_destinations: usize,
    /// Events that wait to be read: about 100 bytes each. Default 4,096. Further events are only counted.
    pub max_events: usize,
    /// The socket's receive buffer in bytes (SO_RCVBUF); the kernel doubles it and caps it at `net.core.rmem_max`.
    ///
    /// Default 4 MiB. `None`: the system's default, which holds some 160 small datagrams. Datagrams that arrive faster than
    /// the queue reads them are lost, and reported.
    pub receive_buffer: Option<usize>,
    /// The socket's send buffer in bytes (SO_SNDBUF). Default `None`: the system's default.
    pub send_buffer: Option<usize>,
    /// Lets several sockets share the address (SO_REUSEADDR), as receivers of one multicast group on one machine do.
    /// Default false. For unicast it lets other programs of this machine take the messages of this queue.
    pub reuse_address: bool,
    /// Encrypts and authenticates every datagram, with these keys. Default `None`: datagrams are plain.
    ///
    /// A queue with keys and a queue without refuse each other's datagrams. Encryption costs 32 bytes for each datagram, a
    /// round trip before the first message to an address, and about 2.5 KiB of memory for each address. Groups (multicast)
    /// cannot be sent to.
    pub security: Option<Security>,
    /// Turns the reliable mode on, for sending and for receiving. Default `None`: its datagrams are refused, and nothing is answered.
    ///
    /// A queue with it answers segments, never with more bytes than it received until the sender has shown that it can be reached.
    pub reliable: Option<Reliable>,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            qthresh: MAX_QTHRESH,
            qmessages: Some(400),
            timeout: Duration::from_millis(5),
            flush_on_wait: true,
            spin: Duration::ZERO,
            pending_bytes: 64 << 20,
            mailbox_messages: 1 << 20,
            mailbox_bytes: 64 << 20,
            overflow: OverflowPolicy::DropNewest,
            delivery: Delivery::Ordered { wait: Duration::from_millis(2), window: 16 },
            reorder_bytes: 8 << 20,
            oversize: Oversize::Fragment,
            parity_fragments: false,
            max_message: 1 << 20,
            fragment_bytes: 32 << 20,
            fragment_timeout: Duration::from_secs(2),
            max_datagram: None,
            segmentation_offload: true,
            max_senders: 1 << 17,
            max_destinations: 1 << 17,
            max_events: 4096,
            receive_buffer: Some(4 << 20),
            send_buffer: None,
            reuse_address: false,
            security: None,
            reliable: None,
        }
    }
}

option_setters::setters! { fields of Config:
    qthresh: usize,
    qmessages: Option<usize>,
    timeout: Duration,
    flush_on_wait: bool,
    spin: Duration,
    pending_bytes: usize,
    mailbox_messages: usize,
    mailbox_bytes: usize,
    overflow: OverflowPolicy,
    delivery: Delivery,
    reorder_bytes: usize,
    oversize: Oversize,
    parity_fragments: bool,
    max_message: usize,
    fragment_bytes: usize,
    fragment_timeout: Duration,
    max_datagram: Option<usize>,
    segmentation_offload: bool,
    max_senders: usize,
    max_destinations: usize,
    max_events: usize,
    receive_buffer: Option<usize>,
    send_buffer: Option<usize>,
    reuse_address: bool,
    security: Option<Security>,
    reliable: Option<Reliable>,
}

impl Config {
    /// The paper's settings: batches of 512 bytes or 200 ms, and the system's default receive buffer.
    ///
    /// They send few datagrams, with a delay of up to 200 ms. From messages of 64 bytes on they are several times slower than
    /// [`Config::default`].
    pub fn paper() -> Config {
        Config {
            qthresh: 512,
            qmessages: None,
            timeout: Duration::from_millis(200),
            flush_on_wait: false,
            receive_buffer: None,
            ..Config::default()
        }
    }

    /// Sends every message at once.
    pub fn immediate() -> Config {
        Config { timeout: Duration::ZERO, flush_on_wait: false, ..Config::default() }
    }

    /// Checks every field.
    ///
    /// # Errors
    /// The first field that is out of its range.
    pub fn check(&self) -> Result<(), ConfigError> {
        let (Delivery::Ordered { window, .. } | Delivery::Unordered { window, .. }) = self.delivery;
        let within = |field, value: usize, min: usize, max: usize| {
            let good = (min..=max).contains(&value);
            good.then_some(()).ok_or(ConfigError { field, value, min, max })
        };
        within("qthresh", self.qthresh, 1, MAX_QTHRESH)?;
        within("qmessages", self.qmessages.unwrap_or(usize::MAX), 1, usize::MAX)?;
        within(
            "spin (in µs)",
            usize::try_from(self.spin.as_micros()).unwrap_or(usize::MAX),
            0,
            MAX_SPIN.as_micros() as usize,
        )?;
        within("delivery.window", window, 1, 1024)?;
        within("pending_bytes", self.pending_bytes, 1, usize::MAX)?;
        within("mailbox_messages", self.mailbox_messages, 1, usize::MAX)?;
        within("mailbox_bytes", self.mailbox_bytes, 1, usize::MAX)?;
        within("max_message", self.max_message, 1, 1 << 30)?;
        // With less memory a message of the largest size would be dropped before its last fragments arrive.
        within("fragment_bytes", self.fragment_bytes, reassembly_bytes(self.max_message), usize::MAX)?;
        within("max_datagram", self.max_datagram.unwrap_or(MAX_DATAGRAM), MIN_DATAGRAM, MAX_DATAGRAM)?;
        within("max_senders", self.max_senders, 1, 1 << 24)?;
        within("max_destinations", self.max_destinations, 1, 1 << 24)?;
        within("max_events", self.max_events, 0, 1 << 24)?;
        let ms = |time: Duration| usize::try_from(time.as_millis()).unwrap_or(usize::MAX);
        if let Some(reliable) = &self.reliable {
            within("window", reliable.window, 1 << 16, 1 << 30)?;
            within("send_bytes", reliable.send_bytes, 1, usize::MAX)?;
            within("receive_bytes", reliable.receive_bytes, reliable.window, usize::MAX)?;
            within("give_up (in ms)", ms(reliable.give_up), 100, 3_600_000)?;
            within("idle (in ms)", ms(reliable.idle), 3000.max(3 * ms(reliable.give_up)), 86_400_000)?;
            within("max_keys", reliable.max_keys, 1, 1 << 24)?;
            within("max_links", reliable.max_links, 1, 1 << 24)?;
        }
        let Some(security) = &self.security else { return Ok(()) };
        within("rekey_after (in ms)", ms(security.rekey_after), 1000, 3_600_000)?;
        within(
            "rekey_bytes",
            usize::try_from(security.rekey_bytes).unwrap_or(usize::MAX),
            1 << 16,
            usize::MAX,
        )?;
        within("handshake_timeout (in ms)", ms(security.handshake_timeout), 100, 60_000)?;
        within("max_sessions", security.max_sessions, 1, 1 << 24)?;
        within("max_half_open", security.max_half_open, 16, 1 << 20)
    }
}

/// A field of [`Config`] that is out of its range.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[error("{field} is {value}; it must be between {min} and {max}")]
pub struct ConfigError {
    /// The name of the field.
    pub field: &'static str,
    /// Its value.
    pub value: usize,
    /// The smallest allowed value.
    pub min: usize,
    /// The largest allowed value.
    pub max: usize,
}
