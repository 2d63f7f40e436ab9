//! Events and counters of a queue.

use cmq::{Event, ReceiveCounts, SenderInfo};

use crate::cmq_api::message::cmq_key;
use crate::cmq_api::queue::{Queue, cmq_queue};
use crate::raw::{array_mut, get, place, put};
use crate::status::rb_status::RB_TIMED_OUT;
use crate::status::{Failure, Outcome, call, rb_status};
use crate::table::shared;

/// What happened to messages. More kinds may be added: ignore those that you do not know.
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
    /// The sender closed its stream of `count` messages, and each was received or reported.
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
}

/// An event of a queue.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct cmq_event {
    /// What happened.
    pub kind: cmq_event_kind,
    /// The sender, or the destination.
    pub peer: cmq_key,
    /// A number of messages.
    pub count: u64,
    /// The number of the first lost message.
    pub first: u64,
    /// Whether another run of the sender was known.
    pub restarted: bool,
    /// The system's error number.
    pub errno_value: i32,
}

fn event_of(event: &Event) -> cmq_event {
    use cmq_event_kind::*;
    let of = |kind, peer, count| cmq_event {
        kind,
        peer: cmq_key::of(peer, 0),
        count,
        first: 0,
        restarted: false,
        errno_value: 0,
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
        _ => of(CMQ_EVENT_OTHER, std::net::SocketAddr::from(([0, 0, 0, 0], 0)), 0),
    }
}

/// The next event, if there is one: `RB_TIMED_OUT` if there is none. Never waits. Any thread.
#[unsafe(no_mangle)]
pub extern "C" fn cmq_next_event(queue: *const cmq_queue, event: *mut cmq_event) -> rb_status {
    call(|| {
        place(event, "the place for the event")?;
        let next = shared::<Queue>(queue)?.from.next_event().ok_or(Failure::outcome(RB_TIMED_OUT))?;
        put(event, event_of(&next));
        Ok(())
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
        let ReceiveCounts { received, lost, missed, duplicated, reordered, late, overflowed, .. } = counts;
        Self { received, lost, missed, duplicated, reordered, late, overflowed }
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
}

/// The counters of the queue. Any thread.
#[unsafe(no_mangle)]
pub extern "C" fn cmq_get_stats(queue: *const cmq_queue, stats: *mut cmq_stats) -> rb_status {
    call(|| {
        place(stats, "the place for the counters")?;
        let now = shared::<Queue>(queue)?.from.stats();
        let filled = cmq_stats {
            sent: now.sent,
            sent_datagrams: now.sent_datagrams,
            send_failed: now.send_failed,
            counts: now.counts.into(),
            datagrams: now.datagrams,
            malformed: now.malformed,
            incomplete: now.incomplete,
            events_dropped: now.events_dropped,
            pending_bytes: now.pending_bytes,
            senders: now.senders,
        };
        put(stats, filled);
        Ok(())
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
    /// Bytes of its datagrams.
    pub bytes: u64,
    /// The messages of the stream.
    pub counts: cmq_counts,
}

fn sender(info: &SenderInfo) -> cmq_sender {
    cmq_sender {
        from: cmq_key::of(info.from, 0),
        epoch: info.epoch,
        stream: info.stream,
        closed: info.closed,
        bytes: info.bytes,
        counts: info.counts.into(),
    }
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
