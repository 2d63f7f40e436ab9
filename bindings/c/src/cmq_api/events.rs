//! Events and counters of a queue.

use cmq::{Event, ReceiveCounts, Refusal, ReliableCounts, SecurityCounts, SenderInfo};

use crate::cmq_api::message::cmq_key;
use crate::cmq_api::queue::{Queue, cmq_queue};
use crate::cmq_api::reason::cmq_reason;
use crate::cmq_api::security::cmq_public_key;
use crate::raw::{answer, array_mut, copied, get, put};
use crate::status::rb_status::RB_TIMED_OUT;
use crate::status::{Failure, Outcome, call, rb_status};
use crate::table::shared;

/// The kinds of events of a queue. More kinds may be added: ignore those that you do not know.
#[repr(i32)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum cmq_event_kind {
    /// The first datagram of a sender's stream arrived: `count` messages went before it, `restarted`.
    CMQ_EVENT_JOINED = 1,
    /// `count` messages were lost, from number `first` on.
    CMQ_EVENT_LOST = 2,
    /// `count` messages arrived after their loss was reported, and were dropped.
    CMQ_EVENT_LATE = 3,
    /// `count` messages arrived a second time, and were dropped.
    CMQ_EVENT_DUPLICATED = 4,
    /// `count` messages arrived after messages that were sent later.
    CMQ_EVENT_REORDERED = 5,
    /// The sender closed its stream of `count` messages, and each was received or reported; or its link of the reliable mode.
    CMQ_EVENT_CLOSED = 6,
    /// The stream was evicted because there are too many.
    CMQ_EVENT_EVICTED = 7,
    /// A mailbox (`peer.id`) was full: `count` messages were dropped.
    CMQ_EVENT_OVERFLOWED = 8,
    /// A datagram does not follow the protocol.
    CMQ_EVENT_MALFORMED = 9,
    /// The system did not send `count` messages to `peer`: `errno_value`.
    CMQ_EVENT_SEND_FAILED = 10,
    /// An event that this version of the library cannot describe.
    CMQ_EVENT_OTHER = 11,
    /// A handshake with the queue at `peer` succeeded, whose public key is `key`: its datagrams are encrypted and authentic
    /// from here on. `renewed` if a session with it gets new keys.
    CMQ_EVENT_SECURED = 12,
    /// A handshake with the queue at `peer` failed (`why`), and the `count` messages that waited for it are lost.
    CMQ_EVENT_HANDSHAKE_FAILED = 13,
    /// A queue with a key refused a datagram (`why`). `peer` is the source address, which may be forged; `key` is that of a stranger.
    CMQ_EVENT_REFUSED = 14,
    /// `count` messages of the reliable mode to `peer`, from number `first` of that key on, were given up (`why`). They may have
    /// arrived all the same.
    CMQ_EVENT_UNDELIVERED = 15,
    /// The receiving queue at `peer` was restarted, or has forgotten this one. Later messages of the reliable mode go to the new queue.
    CMQ_EVENT_PEER_RESTARTED = 16,
    /// The queue at `peer` has a key and refuses the datagrams of this queue, since this queue has none. The report may be
    /// forged.
    CMQ_EVENT_ENCRYPTION_REQUIRED = 17,
}

/// An event of a queue.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct cmq_event {
    /// The kind of the event.
    pub kind: cmq_event_kind,
    /// The sender, or the destination.
    pub peer: cmq_key,
    /// A number of messages.
    pub count: u64,
    /// The number of the first lost message, or of the first one that was given up.
    pub first: u64,
    /// Whether another run of the sender was known.
    pub restarted: bool,
    /// The system's error number.
    pub errno_value: i32,
    /// The reason.
    pub why: cmq_reason,
    /// The public key of the peer.
    pub key: cmq_public_key,
    /// Whether the session of the peer existed, and got new keys.
    pub renewed: bool,
}

fn event_of(event: &Event) -> cmq_event {
    use cmq_event_kind::*;
    let (why, key) = (cmq_reason::CMQ_REASON_NONE, cmq_public_key::NONE);
    let (first, restarted, errno_value, renewed) = (0, false, 0, false);
    let of = |kind, from, count| {
        let peer = cmq_key::of(from, 0);
        cmq_event { kind, peer, count, first, restarted, errno_value, why, key, renewed }
    };
    match *event {
        Event::Joined { from, missed, restarted } => {
            cmq_event { restarted, ..of(CMQ_EVENT_JOINED, from, missed) }
        }
        Event::Lost { from, first, count } => cmq_event { first, ..of(CMQ_EVENT_LOST, from, count) },
        Event::Late { from, count } => of(CMQ_EVENT_LATE, from, count),
        Event::Duplicated { from, count } => of(CMQ_EVENT_DUPLICATED, from, count),
        Event::Reordered { from, count } => of(CMQ_EVENT_REORDERED, from, count),
        Event::Closed { from, sent } => of(CMQ_EVENT_CLOSED, from, sent),
        Event::Evicted { from } => of(CMQ_EVENT_EVICTED, from, 0),
        Event::Overflowed { from, id, count } => {
            cmq_event { peer: cmq_key::of(from, id), ..of(CMQ_EVENT_OVERFLOWED, from, count) }
        }
        Event::Malformed { from, .. } => of(CMQ_EVENT_MALFORMED, from, 1),
        Event::SendFailed { to, messages, errno } => {
            cmq_event { errno_value: errno, ..of(CMQ_EVENT_SEND_FAILED, to, messages) }
        }
        Event::Undelivered { to, first, count, why } => {
            let peer = cmq_key::of(to.addr, to.id);
            cmq_event { peer, first, why: why.into(), ..of(CMQ_EVENT_UNDELIVERED, to.addr, count) }
        }
        Event::PeerRestarted { to } => of(CMQ_EVENT_PEER_RESTARTED, to, 0),
        Event::Secured { peer, key, renewed } => {
            cmq_event { key: key.into(), renewed, ..of(CMQ_EVENT_SECURED, peer, 0) }
        }
        Event::HandshakeFailed { to, messages, why } => {
            cmq_event { why: why.into(), ..of(CMQ_EVENT_HANDSHAKE_FAILED, to, messages) }
        }
        Event::Refused { from, why } => {
            let key = if let Refusal::Stranger(key) = why { key.into() } else { cmq_public_key::NONE };
            cmq_event { why: why.into(), key, ..of(CMQ_EVENT_REFUSED, from, 1) }
        }
        Event::EncryptionRequired { by } => of(CMQ_EVENT_ENCRYPTION_REQUIRED, by, 0),
        _ => of(CMQ_EVENT_OTHER, std::net::SocketAddr::from(([0, 0, 0, 0], 0)), 0),
    }
}

/// The next event, if there is one: `RB_TIMED_OUT` if there is none. Never waits. Any thread.
#[unsafe(no_mangle)]
pub extern "C" fn cmq_next_event(queue: *const cmq_queue, event: *mut cmq_event) -> rb_status {
    answer(event, "the place for the event", || {
        let next = shared::<Queue>(queue)?.from.next_event().ok_or(Failure::outcome(RB_TIMED_OUT))?;
        Ok(event_of(&next))
    })
}

/// Messages that were received.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct cmq_counts {
    /// Messages that arrived in time, including those that a mailbox dropped as overflowed.
    pub received: u64,
    /// Messages that were lost. After the sender closed, `received + lost + missed` is the number that it sent.
    pub lost: u64,
    /// Messages that were sent before the first one that arrived.
    pub missed: u64,
    /// Messages that arrived a second time.
    pub duplicated: u64,
    /// Messages that arrived after later ones, and in time.
    pub reordered: u64,
    /// Messages that arrived after they were reported as lost.
    pub late: u64,
    /// Messages that a full mailbox dropped.
    pub overflowed: u64,
}

impl From<ReceiveCounts> for cmq_counts {
    fn from(counts: ReceiveCounts) -> Self {
        copied!(counts => Self { received, lost, missed, duplicated, reordered, late, overflowed })
    }
}

/// The counters of a queue with a key.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct cmq_security_counts {
    /// Handshakes that succeeded.
    pub handshakes: u64,
    /// Handshakes that gave a session new keys.
    pub renewals: u64,
    /// Handshakes that this queue began and that got no answer.
    pub failed: u64,
    /// Sessions that exist now.
    pub sessions: u64,
    /// Sessions that made room for others.
    pub evicted: u64,
    /// Plain datagrams, which were refused.
    pub plain: u64,
    /// Datagrams that are not authentic.
    pub forged: u64,
    /// Datagrams that arrived a second time, or too late to tell.
    pub replayed: u64,
    /// Datagrams for sessions that are not known.
    pub unknown_sessions: u64,
    /// Handshakes of queues that are not allowed.
    pub strangers: u64,
    /// Handshakes that were refused because too many of the same host are incomplete.
    pub crowded: u64,
    /// Handshakes that were answered with the demand for a cookie.
    pub cookies: u64,
    /// Reports of peers that do not know a session.
    pub resets: u64,
    /// Encrypted datagrams that do not follow the format.
    pub malformed: u64,
}

impl From<SecurityCounts> for cmq_security_counts {
    fn from(counts: SecurityCounts) -> Self {
        copied!(counts => Self {
            handshakes, renewals, failed, sessions, evicted, plain, forged, replayed, unknown_sessions, strangers, crowded,
            cookies, resets, malformed,
        })
    }
}

/// The counters of a queue with the reliable mode.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct cmq_reliable_counts {
    /// Messages pushed.
    pub pushed: u64,
    /// Messages that their receivers confirmed.
    pub confirmed: u64,
    /// Messages that were given up.
    pub failed: u64,
    /// Segments sent, those that were sent again included.
    pub segments: u64,
    /// Segments that were sent again.
    pub repeated: u64,
    /// Time-outs: nothing was acknowledged for too long. The oldest segments were sent again.
    pub timeouts: u64,
    /// Segments that receivers had no room for. They leave again when there is room.
    pub postponed: u64,
    /// Bytes of messages that are not confirmed now.
    pub unconfirmed_bytes: u64,
    /// Messages received.
    pub received: u64,
    /// Segments that arrived a second time.
    pub duplicated: u64,
    /// Segments that were refused for want of memory or credit. They come again.
    pub refused: u64,
    /// Acknowledgements sent.
    pub acks: u64,
    /// Datagrams for links that are not known, and acknowledgements that are not true.
    pub strange: u64,
    /// Bytes that wait for missing ones, or for room in a mailbox, now.
    pub waiting_bytes: u64,
    /// Senders that are remembered now.
    pub links: u64,
}

impl From<ReliableCounts> for cmq_reliable_counts {
    fn from(counts: ReliableCounts) -> Self {
        copied!(counts => Self {
            pushed, confirmed, failed, segments, repeated, timeouts, postponed, unconfirmed_bytes, received, duplicated, refused,
            acks, strange, waiting_bytes, links,
        })
    }
}

/// The counters of a queue since it was opened.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct cmq_stats {
    /// Messages handed to the network.
    pub sent: u64,
    /// Datagrams sent.
    pub sent_datagrams: u64,
    /// Messages that the system did not send.
    pub send_failed: u64,
    /// Messages received from all senders.
    pub counts: cmq_counts,
    /// Datagrams received.
    pub datagrams: u64,
    /// Received datagrams that do not follow the protocol.
    pub malformed: u64,
    /// Incomplete messages that were dropped.
    pub incomplete: u64,
    /// Events that found no room in the event queue.
    pub events_dropped: u64,
    /// Bytes that wait to be sent now.
    pub pending_bytes: u64,
    /// Streams that are remembered now.
    pub senders: u64,
    /// Encryption. All zero without a key.
    pub security: cmq_security_counts,
    /// The reliable mode. All zero without it.
    pub reliable: cmq_reliable_counts,
}

/// The counters of the queue. Any thread.
#[unsafe(no_mangle)]
pub extern "C" fn cmq_get_stats(queue: *const cmq_queue, stats: *mut cmq_stats) -> rb_status {
    answer(stats, "the place for the counters", || {
        let now = shared::<Queue>(queue)?.from.stats();
        Ok(copied!(now => cmq_stats {
            sent, sent_datagrams, send_failed, counts: now.counts.into(), datagrams, malformed, incomplete, events_dropped,
            pending_bytes, senders, security: now.security.into(), reliable: now.reliable.into(),
        }))
    })
}

/// A stream that the queue receives: the messages of one sender to one address.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct cmq_sender {
    /// The sender's address.
    pub from: cmq_key,
    /// The random name of the sender's run.
    pub epoch: u64,
    /// The sender's number for the destination.
    pub stream: u32,
    /// Whether the sender closed the stream, and each of its messages was received or reported.
    pub closed: bool,
    /// Whether the stream is a link of the reliable mode.
    pub reliable: bool,
    /// Bytes of its datagrams.
    pub bytes: u64,
    /// The messages of the stream.
    pub counts: cmq_counts,
}

fn sender(info: &SenderInfo) -> cmq_sender {
    let (from, counts) = (cmq_key::of(info.from, 0), info.counts.into());
    copied!(info => cmq_sender { from: from, epoch, stream, closed, reliable, bytes, counts: counts })
}

/// Writes streams to the caller's places, as far as there are any.
fn list(all: &[SenderInfo], senders: *mut cmq_sender, capacity: usize, count: *mut usize) -> Outcome {
    let places = array_mut(senders, capacity, "the place for the streams")?;
    places.iter_mut().zip(all).for_each(|(place, info)| *place = sender(info));
    put(count, all.len());
    Ok(())
}

/// Every stream that the queue remembers: at most `capacity` of them into `senders`, and `*count` gets how many there are. `senders`
/// may be NULL if `capacity` is 0. Any thread.
#[unsafe(no_mangle)]
pub extern "C" fn cmq_senders(
    queue: *const cmq_queue,
    senders: *mut cmq_sender,
    capacity: usize,
    count: *mut usize,
) -> rb_status {
    call(|| list(&shared::<Queue>(queue)?.from.senders(), senders, capacity, count))
}

/// The streams of one sender address (the mailbox of `from` counts for nothing), as `cmq_senders`: one for each run of the sender, and
/// for each address and group that it sends to. Any thread.
#[unsafe(no_mangle)]
pub extern "C" fn cmq_senders_at(
    queue: *const cmq_queue,
    from: *const cmq_key,
    senders: *mut cmq_sender,
    capacity: usize,
    count: *mut usize,
) -> rb_status {
    call(|| {
        let from = get(from, "the address")?.addr()?;
        list(&shared::<Queue>(queue)?.from.senders_at(from), senders, capacity, count)
    })
}
