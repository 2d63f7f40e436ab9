//! What can be set, each with its unit, default, range and cost.

use std::time::Duration;

use crate::proto::fragments::most;
use crate::wire::MAX_DATAGRAM;

/// The largest `qthresh`: a batch is at most what the kernel cuts into datagrams in one call.
pub const MAX_QTHRESH: usize = 60_000;
/// The smallest payload that every network carries (IPv6's minimum of 1,280, less headers, less room for tunnels).
pub const MIN_DATAGRAM: usize = 1_200;

/// The longest [`Config::spin`].
const MAX_SPIN: Duration = Duration::from_millis(1);

/// What to do with a message that does not fit into one datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Large {
    /// Send it in pieces; it is lost if one of them is.
    Fragment,
    /// Refuse it: [`PushError::TooLarge`](crate::PushError::TooLarge).
    Refuse,
}

/// What to do with a message for a mailbox that is full. Both count it (`overflowed`) and tell it as an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WhenFull {
    /// The message that arrives is dropped.
    DropNewest,
    /// The message that has waited longest is dropped.
    DropOldest,
}

/// What to do with messages that the network turned round.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// Messages of a sender are popped in the order in which they were pushed. What came early waits for what is
    /// missing; what is still missing after `wait`, or once `window` datagrams wait, is lost, also if it comes later.
    Kept {
        /// How long to wait at most; zero does not wait at all: then whatever comes late is lost. Each loss halves it for
        /// its sender, down to a 64th, until something comes late or turned round: a path that only loses holds nobody up.
        /// The same with `window`, down to three datagrams. After 32 losses nothing waits any more, until then: if something
        /// was overtaken, it is lost.
        wait: Duration,
        /// Datagrams of one sender that may wait: 1 to 1,024.
        window: usize,
    },
    /// Messages are popped as they arrive. `wait` and `window` decide when what is missing is reported as lost; what
    /// comes after that is dropped, so that a message is either received or reported.
    AsArrived {
        /// How long what is missing may still come, at most: as with [`Order::Kept`].
        wait: Duration,
        /// Datagrams that may come before it: 1 to 1,024.
        window: usize,
    },
}

/// Everything that can be set. [`Config::default`] is the fastest preset, [`Config::paper`] has the paper's values, and
/// [`Config::immediate`] sends each message at once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// A key's messages leave once they are this many bytes, counted as they travel (with two bytes for each). Default
    /// 60,000, the maximum: what one system call sends. 1 to 60,000; the paper's is 512. Larger batches cost fewer system calls for each message; each key that has
    /// messages waiting holds a buffer of about this size.
    pub qthresh: usize,
    /// A key's messages leave once there are this many. Default 400. In [`Config::paper`] `usize::MAX`: only their bytes
    /// count. Of small messages a batch of `qthresh` bytes has thousands, and the receiver would have
    /// nothing to do while they are pushed. At least 1.
    pub qmessages: usize,
    /// A key's messages leave once the oldest of them has waited this long. Default 5 ms; the paper's is 200 ms. Zero sends every
    /// message at once, from the thread that pushes it: the shortest way, and one system call for each message.
    pub timeout: Duration,
    /// Whether everything pushed leaves when a thread begins to wait for a message of this queue: whoever waits has
    /// nothing more to push for now, and perhaps waits for an answer to it. Batches then are as large as what is pushed
    /// between two waits, and neither `qthresh` nor `timeout` must fit to how many messages are outstanding. Default
    /// true; false in [`Config::paper`].
    pub flush_on_wait: bool,
    /// How long a thread that waits for a message looks for it again and again before it sleeps, if its last wait was not
    /// much longer: a sleep and its end cost 5 to 50 µs, of the message and of the processor. At most 1 ms. Default 0: it
    /// sleeps at once. 50 µs is worth it where cores are free: it costs up to so much processor time for each wait, while messages
    /// come faster than every 200 µs, and on cores that others want messages come later than without.
    pub spin: Duration,
    /// Bytes that may wait to be sent, over all keys; past it a push says [`Full`](crate::PushError::Full). Default
    /// 64 MiB.
    pub pending_bytes: usize,
    /// Messages that may be popped but were not, for each mailbox. Default 1,048,576. At least 1.
    pub mailbox_messages: usize,
    /// Bytes (as they travelled) that these may be. Default 64 MiB.
    pub mailbox_bytes: usize,
    /// What happens past either. Default [`WhenFull::DropNewest`].
    pub when_full: WhenFull,
    /// Whether order is kept. Default: kept, waiting for 2 ms or 16 datagrams.
    pub order: Order,
    /// Bytes that may wait for missing ones, over all senders, with some 70 for each datagram. Default 8 MiB. Past it what is missing is given up.
    pub held_bytes: usize,
    /// Messages that do not fit into one datagram. Default [`Large::Fragment`].
    pub large: Large,
    /// Whether a message that is sent in pieces has a spare one for each 16 of them, or fewer: the exclusive or of these. Of
    /// those and the spare one any may be lost, and the message arrives; else it is lost with any of its pieces. It costs a
    /// datagram more for each 16, of a message of 4 KiB on Ethernet a third more bytes, of 16 KiB a twelfth. Default false.
    /// Receivers need not be told.
    pub spare_pieces: bool,
    /// The largest message, sent or received, in bytes. Default 1 MiB, at most 1 GiB.
    pub max_message: usize,
    /// Bytes of incomplete messages, over all senders, with some for each piece: at least 1.6 times
    /// `max_message` and 64 KiB. Default 32 MiB. Past it the oldest incomplete one is given up.
    pub fragment_bytes: usize,
    /// How long a message may be incomplete. Default 2 s.
    pub fragment_expiry: Duration,
    /// The largest datagram, in bytes of UDP payload: 1,200 to 65,507. Default `None`: what the kernel knows of the path
    /// to each address, asked when a batch is larger than 1,200. Datagrams are never fragmented by IP.
    pub max_datagram: Option<usize>,
    /// Whether the kernel may be asked to cut a batch into datagrams (UDP_SEGMENT), if it can. Default true. Without it
    /// they leave by `sendmmsg`: for devices that say they can cut, and do it wrong.
    pub offload: bool,
    /// Senders (streams) that are remembered, about 500 bytes each, and up to 2 KiB once messages were lost. Default 131,072.
    /// Past it the one that was silent longest is forgotten, or one of an IP address (of IPv6: 64 bits of it) that has more
    /// than its share, whatever ports they have; what it had lost is reported before.
    pub max_senders: usize,
    /// Addresses sent to that are remembered, about 150 bytes each. Default 131,072. Past it the one not sent to for
    /// longest is closed; it begins anew when it is sent to again.
    pub max_destinations: usize,
    /// Events that wait to be read, about 100 bytes each. Default 4,096. Past it new ones are only counted.
    pub max_events: usize,
    /// Size of the socket's receive buffer in bytes (SO_RCVBUF; the kernel doubles it and caps it at `net.core.rmem_max`).
    /// Default 4 MiB. `None`: the system's default, which holds some 160 small datagrams. What comes faster than it is taken
    /// is lost, and reported.
    pub receive_buffer: Option<usize>,
    /// Size of the socket's send buffer in bytes (SO_SNDBUF). Default `None`: the system's default.
    pub send_buffer: Option<usize>,
    /// Several sockets may have the same address (SO_REUSEADDR): receivers of one multicast group on one machine. Default
    /// false. For unicast it lets others on the machine take this queue's messages.
    pub reuse_address: bool,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            qthresh: MAX_QTHRESH,
            qmessages: 400,
            timeout: Duration::from_millis(5),
            flush_on_wait: true,
            spin: Duration::ZERO,
            pending_bytes: 64 << 20,
            mailbox_messages: 1 << 20,
            mailbox_bytes: 64 << 20,
            when_full: WhenFull::DropNewest,
            order: Order::Kept { wait: Duration::from_millis(2), window: 16 },
            held_bytes: 8 << 20,
            large: Large::Fragment,
            spare_pieces: false,
            max_message: 1 << 20,
            fragment_bytes: 32 << 20,
            fragment_expiry: Duration::from_secs(2),
            max_datagram: None,
            offload: true,
            max_senders: 1 << 17,
            max_destinations: 1 << 17,
            max_events: 4096,
            receive_buffer: Some(4 << 20),
            send_buffer: None,
            reuse_address: false,
        }
    }
}

impl Config {
    /// The paper's settings: batches of 512 bytes or 200 ms, and the system's default receive buffer. Few datagrams, with
    /// a delay of up to 200 ms; from messages of 64 bytes on slower than [`Config::default`] by a factor.
    pub fn paper() -> Config {
        Config {
            qthresh: 512,
            qmessages: usize::MAX,
            timeout: Duration::from_millis(200),
            flush_on_wait: false,
            receive_buffer: None,
            ..Config::default()
        }
    }

    /// Every message leaves at once.
    pub fn immediate() -> Config {
        Config { timeout: Duration::ZERO, flush_on_wait: false, ..Config::default() }
    }

    /// Sets [`Config::qthresh`] and [`Config::timeout`].
    #[must_use]
    pub fn batches(mut self, qthresh: usize, timeout: Duration) -> Config {
        (self.qthresh, self.timeout) = (qthresh, timeout);
        self
    }

    /// Sets [`Config::spare_pieces`].
    #[must_use]
    pub fn spare_pieces(mut self) -> Config {
        self.spare_pieces = true;
        self
    }

    /// Sets [`Config::order`].
    #[must_use]
    pub fn order(mut self, order: Order) -> Config {
        self.order = order;
        self
    }

    /// Checks every field.
    ///
    /// # Errors
    /// The first field that is out of its range.
    pub fn check(&self) -> Result<(), ConfigError> {
        let (Order::Kept { window, .. } | Order::AsArrived { window, .. }) = self.order;
        let within = |field, value: usize, least: usize, most: usize| {
            let good = (least..=most).contains(&value);
            good.then_some(()).ok_or(ConfigError { field, value, least, most })
        };
        within("qthresh", self.qthresh, 1, MAX_QTHRESH)?;
        within("qmessages", self.qmessages, 1, usize::MAX)?;
        within(
            "spin (in µs)",
            usize::try_from(self.spin.as_micros()).unwrap_or(usize::MAX),
            0,
            MAX_SPIN.as_micros() as usize,
        )?;
        within("order.window", window, 1, 1024)?;
        within("pending_bytes", self.pending_bytes, 1, usize::MAX)?;
        within("mailbox_messages", self.mailbox_messages, 1, usize::MAX)?;
        within("mailbox_bytes", self.mailbox_bytes, 1, usize::MAX)?;
        within("max_message", self.max_message, 1, 1 << 30)?;
        // Else it would be given up whenever its last pieces come.
        within("fragment_bytes", self.fragment_bytes, most(self.max_message), usize::MAX)?;
        within("max_datagram", self.max_datagram.unwrap_or(MAX_DATAGRAM), MIN_DATAGRAM, MAX_DATAGRAM)?;
        within("max_senders", self.max_senders, 1, 1 << 24)?;
        within("max_destinations", self.max_destinations, 1, 1 << 24)?;
        within("max_events", self.max_events, 0, 1 << 24)
    }
}

/// A field of [`Config`] that is out of its range.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{field} is {value}, it must be from {least} to {most}")]
pub struct ConfigError {
    /// The field.
    pub field: &'static str,
    /// What it was set to.
    pub value: usize,
    /// The least it may be.
    pub least: usize,
    /// The most it may be.
    pub most: usize,
}
