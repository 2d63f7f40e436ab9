//! Subscribers.

use std::ffi::{c_char, c_int, c_void};
use std::mem::ManuallyDrop;
use std::os::fd::AsRawFd;
use std::ptr::NonNull;
use std::time::{Duration, UNIX_EPOCH};

use rbmq::wire::{Piece, Unpack, UnpackError};
use rbmq::{Batch, DeferredBatch, Event, Framing, Notice, SlowPolicy, StartFrom, Subscriber};
use rocketbufs::{Config, Context, Epoch};

use crate::handles::{rb_config, rb_context};
use crate::kept::{Kept, with_kept};
use crate::raw::{
    Versioned, array, array_mut, duration, optional_text, options, place, put, rb_bool, rb_id128, text,
    timeout,
};
use crate::status::rb_status::{RB_END, RB_ERR_ARGUMENT, RB_ERR_BUSY, RB_ERR_MALFORMED, RB_TIMED_OUT};
use crate::status::{Failure, Outcome, call, call_number, rb_status};
use crate::table::{exclusive, insert, kinds, shared, take};

/// Receives topics from a broker, and reconnects by itself. One thread uses it at a time.
pub struct rbmq_subscriber(());
/// A received batch that is not consumed yet. One thread uses it at a time.
pub struct rbmq_deferred(());

kinds! {
    rbmq_subscriber => Receiver, 23, "subscriber";
    rbmq_deferred => DeferredBatch, 24, "deferred batch";
}

type RecordsOf<'a> = Box<dyn Iterator<Item = Result<Piece<'a>, UnpackError>> + Send + 'a>;

/// A subscriber, and its batch that is open.
pub(crate) struct Receiver {
    /// Borrows the bytes of `batch`, and is dropped before it.
    records: Option<RecordsOf<'static>>,
    /// Borrows what `subscriber` points at: it is dropped before, and while it is there nothing else uses the subscriber.
    batch: Option<Batch<'static>>,
    /// The position of the batch's first byte when it was opened.
    begin: u64,
    /// Owned.
    subscriber: NonNull<Subscriber>,
}

// SAFETY: the subscriber is owned, and is Send; the others borrow it.
unsafe impl Send for Receiver {}

impl Receiver {
    fn new(subscriber: Subscriber) -> Self {
        Self {
            records: None,
            batch: None,
            begin: 0,
            subscriber: NonNull::from(Box::leak(Box::new(subscriber))),
        }
    }

    /// Drops the open batch, which consumes it.
    #[inline]
    fn consume(&mut self) {
        if self.batch.is_some() {
            self.records = None;
            self.batch = None;
        }
    }

    /// The subscriber, for calls that receive: the open batch is consumed before.
    #[inline]
    fn receiving(&mut self) -> &mut Subscriber {
        self.consume();
        // SAFETY: owned, and no batch borrows it.
        unsafe { self.subscriber.as_mut() }
    }

    /// The subscriber, for calls that must not consume an open batch.
    fn subscriber(&mut self) -> Result<&mut Subscriber, Failure> {
        if self.batch.is_some() {
            return Err(Failure::new(RB_ERR_BUSY, "a batch of the subscriber is open; consume it first"));
        }
        Ok(self.receiving())
    }

    /// As [`Receiver::receiving`], for a batch that stays open after the call.
    fn receiving_batch(&mut self) -> &'static mut Subscriber {
        self.consume();
        // SAFETY: owned, and no batch borrows it. A batch that borrows it from here on is kept in `batch`, which `consume`,
        // `into_subscriber` and `Drop` drop before anything else uses the subscriber.
        unsafe { self.subscriber.as_mut() }
    }

    fn open(&mut self, batch: Batch<'static>) -> rbmq_batch {
        let (topic, bytes) = (batch.topic().as_str(), batch.as_slice());
        let opened = rbmq_batch {
            data: bytes.as_ptr().cast(),
            len: bytes.len(),
            topic: topic.as_ptr().cast(),
            topic_len: topic.len(),
            framing: framing(batch.framing()),
            epoch: batch.epoch().0.into(),
            position: batch.position(),
            end: batch.end(),
        };
        (self.batch, self.begin) = (Some(batch), opened.position);
        opened
    }

    fn batch(&mut self) -> Result<&mut Batch<'static>, Failure> {
        self.batch.as_mut().ok_or(Failure::new(RB_ERR_ARGUMENT, "no batch of the subscriber is open"))
    }

    fn take_batch(&mut self) -> Result<Batch<'static>, Failure> {
        self.batch()?;
        self.records = None;
        self.batch.take().ok_or(Failure::outcome(RB_END))
    }

    /// The iterator over the records of the open batch.
    fn records(&mut self) -> Result<&mut RecordsOf<'static>, Failure> {
        let batch = self.batch.as_ref();
        let batch = batch.ok_or(Failure::new(RB_ERR_ARGUMENT, "no batch of the subscriber is open"))?;
        let made = || {
            let bytes: *const [u8] = batch.as_slice();
            // SAFETY: the bytes stay where they are until the batch is dropped, and the iterator is dropped before. It reads
            // no bytes that a part that was consumed had.
            let bytes: &'static [u8] = unsafe { &*bytes };
            let unpack = match batch.framing() {
                Framing::Merged => Unpack::merged(bytes),
                Framing::Records => Unpack::records(bytes),
                Framing::Raw => Unpack::records(&[]),
            };
            let records: RecordsOf<'static> = Box::new(unpack.checked());
            records
        };
        Ok(self.records.get_or_insert_with(made))
    }

    fn into_subscriber(mut self) -> Subscriber {
        self.consume();
        // Nothing is left to drop but the subscriber.
        let subscriber = ManuallyDrop::new(self).subscriber;
        // SAFETY: made by `new` from a box, and `self` is not dropped.
        *unsafe { Box::from_raw(subscriber.as_ptr()) }
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.consume();
        // SAFETY: made by `new` from a box, and the batch that borrowed it is gone.
        drop(unsafe { Box::from_raw(self.subscriber.as_ptr()) });
    }
}

fn framing(framing: Framing) -> u32 {
    match framing {
        Framing::Records => super::topic::RBMQ_FRAMING_RECORDS,
        Framing::Raw => super::topic::RBMQ_FRAMING_RAW,
        Framing::Merged => super::topic::RBMQ_FRAMING_MERGED,
    }
}

/// Publishers wait for the subscriber, and nothing is lost.
pub const RBMQ_SLOW_BLOCK: u32 = 0;
/// The subscriber skips messages, and learns how many bytes it lost.
pub const RBMQ_SLOW_DROP: u32 = 1;
/// The broker ends the subscription.
pub const RBMQ_SLOW_DISCONNECT: u32 = 2;

/// Options of a subscriber. Zeros are defaults: `rbmq_subscriber_options options = {.size = sizeof options};`
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct rbmq_subscriber_options {
    /// `sizeof(rbmq_subscriber_options)`.
    pub size: usize,
    /// The name in the broker's log and in `rbmq top`; NULL: none.
    pub name: *const c_char,
    /// Makes the subscriber durable: the broker keeps its place under `name` for this long while it is offline, in nanoseconds.
    /// 0: not durable.
    pub hold_ns: i64,
    /// The broker keeps everything that was not consumed. Durable subscribers always have this set.
    pub confirm_consumed: rb_bool,
    /// Calls that wait for messages return `RB_END` as soon as every topic has ended.
    pub until_ended: rb_bool,
    /// What the broker does when the subscriber is slow: `RBMQ_SLOW_…`.
    pub slow: u32,
    /// With `RBMQ_SLOW_BLOCK`: the longest time without progress in nanoseconds; 0: the broker's, below 0: without a limit.
    pub block_timeout_ns: i64,
    /// With the other policies: the lag in bytes at which they act; 0: the broker's default.
    pub max_lag_bytes: u64,
    /// The capacity of the ring of each buffer in this process, in bytes; 0: `buffers.size_bytes`.
    pub ring_bytes: u64,
    /// The largest batch in bytes; 0: a quarter of the ring.
    pub batch_bytes: u64,
    /// The memory in bytes for the rings of all topics that only patterns match; 0: 64 MiB.
    pub budget_bytes: u64,
    /// The configuration for a context of the subscriber's own; NULL: the default. Read during the call.
    pub config: *const rb_config,
    /// Shares the memory and the threads of this context; NULL: a context of the subscriber's own.
    pub context: *const rb_context,
}

// SAFETY: integers, pointers and `rb_bool`s, and the first field is the size.
unsafe impl Versioned for rbmq_subscriber_options {}

/// With the next published message.
pub const RBMQ_START_NEWEST: u32 = 0;
/// With the oldest message that the broker still has.
pub const RBMQ_START_OLDEST: u32 = 1;
/// With the last delivery: a subscriber that joins late gets the last value.
pub const RBMQ_START_LAST: u32 = 2;
/// With the first message that reached the broker at `unix_ns` or later.
pub const RBMQ_START_TIME: u32 = 3;
/// At `position` of any log.
pub const RBMQ_START_POSITION: u32 = 4;
/// At the positions of the logs in `positions`; other logs begin with their oldest message.
pub const RBMQ_START_POSITIONS: u32 = 5;

/// A position of a log.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct rbmq_position {
    /// The log.
    pub epoch: rb_id128,
    /// The position.
    pub position: u64,
}

/// Where a subscription begins. Zeros are the next published message.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct rbmq_start {
    /// `sizeof(rbmq_start)`.
    pub size: usize,
    /// `RBMQ_START_…`.
    pub kind: u32,
    /// With `RBMQ_START_TIME`: nanoseconds since 1970.
    pub unix_ns: u64,
    /// With `RBMQ_START_POSITION`.
    pub position: u64,
    /// With `RBMQ_START_POSITIONS`. Read during the call.
    pub positions: *const rbmq_position,
    /// The number of positions.
    pub positions_count: usize,
}

// SAFETY: integers and pointers, and the first field is the size.
unsafe impl Versioned for rbmq_start {}

fn start_of(given: *const rbmq_start) -> Result<StartFrom, Failure> {
    let given = options(given, "the start")?;
    Ok(match given.kind {
        RBMQ_START_NEWEST => StartFrom::Newest,
        RBMQ_START_OLDEST => StartFrom::Oldest,
        RBMQ_START_LAST => StartFrom::Last,
        RBMQ_START_TIME => StartFrom::Time(UNIX_EPOCH + Duration::from_nanos(given.unix_ns)),
        RBMQ_START_POSITION => StartFrom::Position(given.position),
        RBMQ_START_POSITIONS => {
            let positions = array(given.positions, given.positions_count, "the positions")?;
            let each = |at: &rbmq_position| (Epoch(at.epoch.into()), at.position);
            StartFrom::Positions(positions.iter().map(each).collect())
        }
        other => return Err(Failure::of(RB_ERR_ARGUMENT, format!("{other} is no start"))),
    })
}

fn slow_policy(given: &rbmq_subscriber_options) -> Result<SlowPolicy, Failure> {
    let max_lag_bytes = (given.max_lag_bytes != 0).then_some(given.max_lag_bytes);
    Ok(match given.slow {
        RBMQ_SLOW_BLOCK if given.block_timeout_ns == 0 => SlowPolicy::Block,
        RBMQ_SLOW_BLOCK => SlowPolicy::BlockFor { timeout: timeout(given.block_timeout_ns) },
        RBMQ_SLOW_DROP => SlowPolicy::Drop { max_lag_bytes },
        RBMQ_SLOW_DISCONNECT => SlowPolicy::Disconnect { max_lag_bytes },
        other => return Err(Failure::of(RB_ERR_ARGUMENT, format!("{other} is no policy"))),
    })
}

/// A message in the memory where it landed: valid until the next call on the subscriber.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct rbmq_message {
    /// The content: a record, or in a raw topic the bytes that arrived together.
    pub data: *const c_void,
    /// The number of bytes.
    pub len: usize,
    /// The topic, without a zero at its end: print it with `%.*s`.
    pub topic: *const c_char,
    /// The bytes of the topic.
    pub topic_len: usize,
    /// The log of its publisher.
    pub epoch: rb_id128,
    /// The position at which to resume behind this message.
    pub end: u64,
    /// In a merged topic: the number of the publisher; -1 otherwise.
    pub publisher: i64,
}

/// Whole deliveries of one buffer, in the memory where they landed: valid until the batch is consumed.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct rbmq_batch {
    /// All bytes, including the headers of records.
    pub data: *const c_void,
    /// The number of bytes.
    pub len: usize,
    /// The topic, without a zero at its end: print it with `%.*s`.
    pub topic: *const c_char,
    /// The bytes of the topic.
    pub topic_len: usize,
    /// `RBMQ_FRAMING_…`.
    pub framing: u32,
    /// The log of the publisher.
    pub epoch: rb_id128,
    /// The position of the first byte.
    pub position: u64,
    /// The position behind the last byte, at which to resume.
    pub end: u64,
}

/// A record of a batch.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct rbmq_record {
    /// The content.
    pub data: *const c_void,
    /// The number of bytes.
    pub len: usize,
    /// The position behind the record, for `rbmq_subscriber_batch_consume_part`.
    pub end: u64,
    /// In a merged topic: the number of the publisher; -1 otherwise.
    pub publisher: i64,
}

/// Connects to a broker, such as "127.0.0.1:7411". Waits until it accepts, at most `session.connect_timeout_ms`. `options` may be
/// NULL.
///
/// `*out` is the caller's, until `rbmq_subscriber_close` or `rbmq_subscriber_free`. Any thread. Fails with `RB_ERR_DOWN`,
/// `RB_ERR_REFUSED`, `RB_ERR_NAME`, `RB_ERR_CONFIG` or `RB_ERR_SYSTEM`; the text has the reason.
#[unsafe(no_mangle)]
pub extern "C" fn rbmq_subscriber_connect(
    address: *const c_char,
    given: *const rbmq_subscriber_options,
    out: *mut *mut rbmq_subscriber,
) -> rb_status {
    call(|| {
        place(out, "the place for the subscriber")?;
        let given = options(given, "the subscriber's options")?;
        let mut builder = Subscriber::builder()
            .confirm_consumed(given.confirm_consumed.is_set())
            .until_ended(given.until_ended.is_set())
            .slow(slow_policy(&given)?);
        let name = optional_text(given.name, "the name")?.unwrap_or("");
        builder = match duration(given.hold_ns, "hold_ns")? {
            Duration::ZERO => builder.name(name),
            hold => builder.durable(name, hold),
        };
        if given.ring_bytes != 0 {
            builder = builder.ring_bytes(given.ring_bytes);
        }
        if given.batch_bytes != 0 {
            builder = builder.batch_bytes(given.batch_bytes);
        }
        if given.budget_bytes != 0 {
            builder = builder.budget_bytes(given.budget_bytes);
        }
        if !given.config.is_null() {
            builder = builder.config(exclusive::<Config>(given.config)?.clone());
        }
        if !given.context.is_null() {
            builder = builder.context(&*shared::<Context>(given.context)?);
        }
        put(out, insert(Receiver::new(builder.connect(text(address, "the address")?)?))?);
        Ok(())
    })
}

/// Subscribes to a topic, or to every topic that a filter matches (`+` is any one level, `#` the rest). `start` may be NULL: from
/// the next message on. Topics need not exist yet. Returns without waiting for the broker.
///
/// One thread uses a subscriber at a time. Fails with `RB_ERR_NAME`, or `RB_ERR_BUSY` while a batch is open.
#[unsafe(no_mangle)]
pub extern "C" fn rbmq_subscriber_subscribe(
    subscriber: *mut rbmq_subscriber,
    topics: *const c_char,
    start: *const rbmq_start,
) -> rb_status {
    call(|| {
        let mut receiver = exclusive::<Receiver>(subscriber)?;
        Ok(receiver.subscriber()?.subscribe_from(text(topics, "the topic or filter")?, start_of(start)?)?)
    })
}

/// Ends the subscription of a topic or filter, exactly as it was subscribed. Does nothing if there is none. One thread uses a
/// subscriber at a time. Fails with `RB_ERR_NAME`, or `RB_ERR_BUSY` while a batch is open.
#[unsafe(no_mangle)]
pub extern "C" fn rbmq_subscriber_unsubscribe(
    subscriber: *mut rbmq_subscriber,
    topics: *const c_char,
) -> rb_status {
    call(|| Ok(exclusive::<Receiver>(subscriber)?.subscriber()?.unsubscribe(text(topics, "the topic")?)?))
}

/// Nothing came: because every topic ended, or in time.
#[cold]
fn nothing(subscriber: &Subscriber) -> Failure {
    Failure::outcome(if subscriber.ended() { RB_END } else { RB_TIMED_OUT })
}

/// The next message in the memory where it landed, waiting at most `timeout_ns`. Consumes an open batch. The messages of a batch
/// are consumed by the call that follows the last one.
///
/// `*message` is valid until the next call on the subscriber. One thread uses a subscriber at a time. `RB_TIMED_OUT` if nothing
/// came, `RB_END` if nothing came and every topic has ended. Fails with `RB_ERR_LOST`, `RB_ERR_GONE`, `RB_ERR_REFUSED` or
/// `RB_ERR_MALFORMED`, once each, and the next call continues; with `RB_ERR_TAKEN_OVER` for good.
#[unsafe(no_mangle)]
pub extern "C" fn rbmq_subscriber_recv(
    subscriber: *mut rbmq_subscriber,
    message: *mut rbmq_message,
    timeout_ns: i64,
) -> rb_status {
    call(|| {
        place(message, "the place for the message")?;
        let mut receiver = exclusive::<Receiver>(subscriber)?;
        let subscriber = receiver.receiving();
        let Some(received) = subscriber.recv_ref(timeout(timeout_ns))? else {
            return Err(nothing(subscriber));
        };
        let topic = received.topic.as_str();
        let filled = rbmq_message {
            data: received.bytes.as_ptr().cast(),
            len: received.bytes.len(),
            topic: topic.as_ptr().cast(),
            topic_len: topic.len(),
            epoch: received.epoch.0.into(),
            end: received.end,
            publisher: received.publisher.map_or(-1, i64::from),
        };
        put(message, filled);
        Ok(())
    })
}

/// The next messages, several at once and in the memory where they landed, waiting at most `timeout_ns`. Consumes the batch before.
/// `rbmq_subscriber_batch_records` has its records. Messages of a batch of which `rbmq_subscriber_recv` has handed out some come
/// only with that call.
///
/// `*batch` is valid until the batch is consumed: by `rbmq_subscriber_batch_consume`, or by the next call that receives. One thread
/// uses a subscriber at a time. Outcomes and errors as of `rbmq_subscriber_recv`.
#[unsafe(no_mangle)]
pub extern "C" fn rbmq_subscriber_next_batch(
    subscriber: *mut rbmq_subscriber,
    batch: *mut rbmq_batch,
    timeout_ns: i64,
) -> rb_status {
    call(|| {
        place(batch, "the place for the batch")?;
        let mut receiver = exclusive::<Receiver>(subscriber)?;
        match receiver.receiving_batch().next_batch(timeout(timeout_ns))? {
            Some(next) => put(batch, receiver.open(next)),
            None => return Err(nothing(receiver.receiving())),
        }
        Ok(())
    })
}

/// The next records of the open batch: at most `max` of them into `records`, and `*count` gets how many. `RB_END` if there are no
/// more. A raw topic has none: use the bytes of the batch.
///
/// The records are valid as long as the batch. One thread uses a subscriber at a time. Fails with `RB_ERR_MALFORMED`, once for each
/// malformed piece, after the records before it; the next call continues behind it.
#[unsafe(no_mangle)]
pub extern "C" fn rbmq_subscriber_batch_records(
    subscriber: *mut rbmq_subscriber,
    records: *mut rbmq_record,
    max: usize,
    count: *mut usize,
) -> rb_status {
    call(|| {
        place(count, "the place for the number of records")?;
        put(count, 0);
        let mut receiver = exclusive::<Receiver>(subscriber)?;
        let begin = receiver.begin;
        let places = array_mut(records, max, "the place for the records")?;
        let mut filled = 0;
        let pieces = receiver.records()?;
        for place in &mut *places {
            let Some(piece) = pieces.next() else { break };
            let piece = piece.map_err(|error| Failure::of(RB_ERR_MALFORMED, error))?;
            let (data, len) = (piece.record.as_ptr().cast(), piece.record.len());
            let publisher = piece.publisher.map_or(-1, i64::from);
            *place = rbmq_record { data, len, end: begin + piece.to as u64, publisher };
            filled += 1;
            put(count, filled);
        }
        if filled == 0 && max > 0 { Err(Failure::outcome(RB_END)) } else { Ok(()) }
    })
}

/// Consumes the open batch: its space returns to the publisher. Does nothing if none is open. One thread uses a subscriber at a
/// time.
#[unsafe(no_mangle)]
pub extern "C" fn rbmq_subscriber_batch_consume(subscriber: *mut rbmq_subscriber) -> rb_status {
    call(|| {
        exclusive::<Receiver>(subscriber)?.consume();
        Ok(())
    })
}

/// Consumes the open batch's messages below `position`, which must be the end of a record. The others stay valid. One thread uses a
/// subscriber at a time.
#[unsafe(no_mangle)]
pub extern "C" fn rbmq_subscriber_batch_consume_part(
    subscriber: *mut rbmq_subscriber,
    position: u64,
) -> rb_status {
    call(|| {
        let mut receiver = exclusive::<Receiver>(subscriber)?;
        // The records count from the beginning of the batch.
        receiver.records()?;
        receiver.batch()?.consume_part(position);
        Ok(())
    })
}

/// Ends the open batch, and consumes only its messages below `position`, which must be the end of a record. A durable subscriber
/// that returns later resumes there. One thread uses a subscriber at a time.
#[unsafe(no_mangle)]
pub extern "C" fn rbmq_subscriber_batch_consume_up_to(
    subscriber: *mut rbmq_subscriber,
    position: u64,
) -> rb_status {
    call(|| {
        exclusive::<Receiver>(subscriber)?.take_batch()?.consume_up_to(position);
        Ok(())
    })
}

/// Ends the open batch without consuming it: no space from here on returns to the publisher before `rbmq_deferred_consume`. The
/// bytes of the batch are not valid any more.
///
/// `*out` is the caller's, until `rbmq_deferred_consume` or `rbmq_deferred_free`. One thread uses a subscriber at a time.
#[unsafe(no_mangle)]
pub extern "C" fn rbmq_subscriber_batch_defer(
    subscriber: *mut rbmq_subscriber,
    out: *mut *mut rbmq_deferred,
) -> rb_status {
    call(|| {
        place(out, "the place for the deferred batch")?;
        put(out, insert(exclusive::<Receiver>(subscriber)?.take_batch()?.defer())?);
        Ok(())
    })
}

/// Consumes a deferred batch and all earlier ones of its buffer, and frees it. Any thread, one at a time.
#[unsafe(no_mangle)]
pub extern "C" fn rbmq_deferred_consume(deferred: *mut rbmq_deferred) -> rb_status {
    call(|| {
        take::<DeferredBatch>(deferred)?.consume();
        Ok(())
    })
}

/// Frees a deferred batch without consuming it: consuming a later batch of the buffer consumes it too. NULL does nothing.
#[unsafe(no_mangle)]
pub extern "C" fn rbmq_deferred_free(deferred: *mut rbmq_deferred) -> rb_status {
    call(|| if deferred.is_null() { Ok(()) } else { take::<DeferredBatch>(deferred).map(drop) })
}

/// What a subscriber gets. More kinds may be added: ignore those that you do not know.
#[repr(i32)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum rbmq_event_kind {
    /// Messages: `batch`, as of `rbmq_subscriber_next_batch`.
    RBMQ_EVENT_BATCH = 1,
    /// The subscription of a buffer is active: `topic`, `epoch`, `from` (the first position that will come).
    RBMQ_EVENT_JOINED = 2,
    /// Messages are lost: `topic`, `epoch`, `from`, `to`.
    RBMQ_EVENT_LOST = 3,
    /// The publisher closed the topic: `topic`, `epoch`, `to` (the end of its log).
    RBMQ_EVENT_CLOSED = 4,
    /// The publisher died, or was offline for too long: `topic`, `epoch`, `to` (the end of the last complete delivery).
    RBMQ_EVENT_GONE = 5,
    /// The broker refused a request or ended a subscription: `topic` (NULL if it is about several), `text`.
    RBMQ_EVENT_REFUSED = 6,
    /// The broker limits an option: `text`.
    RBMQ_EVENT_OPTION_CLAMPED = 7,
    /// The connection is lost; the subscriber reconnects by itself: `text`.
    RBMQ_EVENT_DISCONNECTED = 8,
    /// The connection is back.
    RBMQ_EVENT_RECONNECTED = 9,
    /// An event that this version of the library cannot describe.
    RBMQ_EVENT_OTHER = 10,
    /// A merged topic has another log after a restart of its broker, from which messages may be missing: `topic`, `epoch`.
    RBMQ_EVENT_LOG_REPLACED = 11,
}

/// An event of a subscriber. Its texts are valid until this thread's next call that receives something.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct rbmq_event {
    /// What happened.
    pub kind: rbmq_event_kind,
    /// Messages.
    pub batch: rbmq_batch,
    /// The topic; NULL if the event is about none. Of a batch, see there.
    pub topic: *const c_char,
    /// A reason, for people; NULL if there is none.
    pub text: *const c_char,
    /// A publisher's log.
    pub epoch: rb_id128,
    /// A position.
    pub from: u64,
    /// One past the last position of a range.
    pub to: u64,
}

const NO_BATCH: rbmq_batch = rbmq_batch {
    data: std::ptr::null(),
    len: 0,
    topic: std::ptr::null(),
    topic_len: 0,
    framing: 0,
    epoch: rb_id128 { high: 0, low: 0 },
    position: 0,
    end: 0,
};

const fn empty(kind: rbmq_event_kind) -> rbmq_event {
    rbmq_event {
        kind,
        batch: NO_BATCH,
        topic: std::ptr::null(),
        text: std::ptr::null(),
        epoch: rb_id128 { high: 0, low: 0 },
        from: 0,
        to: 0,
    }
}

fn notice_event(notice: Notice, kept: &mut Kept) -> rbmq_event {
    use rbmq_event_kind::*;
    let mut about = |kind, topic: &rbmq::TopicName, epoch: Epoch, from, to| rbmq_event {
        topic: kept.text(topic.as_str()),
        epoch: epoch.0.into(),
        from,
        to,
        ..empty(kind)
    };
    match notice {
        Notice::Joined { topic, epoch, start } => about(RBMQ_EVENT_JOINED, &topic, epoch, start, 0),
        Notice::Lost { topic, epoch, from, to } => about(RBMQ_EVENT_LOST, &topic, epoch, from, to),
        Notice::Closed { topic, epoch, end } => about(RBMQ_EVENT_CLOSED, &topic, epoch, 0, end),
        Notice::Gone { topic, epoch, end } => about(RBMQ_EVENT_GONE, &topic, epoch, 0, end),
        Notice::LogReplaced { topic, epoch } => about(RBMQ_EVENT_LOG_REPLACED, &topic, epoch, 0, 0),
        Notice::Refused { topic, reason } => rbmq_event {
            topic: topic.map_or(std::ptr::null(), |topic| kept.text(topic.as_str())),
            text: kept.text(&reason),
            ..empty(RBMQ_EVENT_REFUSED)
        },
        Notice::OptionClamped(text) => {
            rbmq_event { text: kept.text(&text), ..empty(RBMQ_EVENT_OPTION_CLAMPED) }
        }
        Notice::Disconnected(why) => rbmq_event { text: kept.text(&why), ..empty(RBMQ_EVENT_DISCONNECTED) },
        Notice::Reconnected => empty(RBMQ_EVENT_RECONNECTED),
        _ => empty(RBMQ_EVENT_OTHER),
    }
}

/// The next batch or other event, waiting at most `timeout_ns`; `RB_TIMED_OUT` if nothing came. Consumes the batch before.
///
/// One thread uses a subscriber at a time. Fails with `RB_ERR_TAKEN_OVER`.
#[unsafe(no_mangle)]
pub extern "C" fn rbmq_subscriber_next_event(
    subscriber: *mut rbmq_subscriber,
    event: *mut rbmq_event,
    timeout_ns: i64,
) -> rb_status {
    call(|| {
        place(event, "the place for the event")?;
        let mut receiver = exclusive::<Receiver>(subscriber)?;
        match receiver.receiving_batch().next_event(timeout(timeout_ns))? {
            None => return Err(Failure::outcome(RB_TIMED_OUT)),
            Some(Event::Batch(batch)) => {
                let batch = receiver.open(batch);
                put(event, rbmq_event { batch, ..empty(rbmq_event_kind::RBMQ_EVENT_BATCH) });
            }
            Some(Event::Notice(notice)) => put(event, with_kept(|kept| notice_event(notice, kept))),
            Some(_) => put(event, empty(rbmq_event_kind::RBMQ_EVENT_OTHER)),
        }
        Ok(())
    })
}

/// A descriptor that is readable while a call that receives would return something, for an event loop, which only polls it. When it
/// is readable, receive with the time-out 0 until `RB_TIMED_OUT`. Returns a status below 0 if it fails.
///
/// The descriptor belongs to the library and lives as long as the subscriber. One thread uses a subscriber at a time.
#[unsafe(no_mangle)]
pub extern "C" fn rbmq_subscriber_fd(subscriber: *mut rbmq_subscriber) -> c_int {
    call_number(|| Ok(exclusive::<Receiver>(subscriber)?.subscriber()?.pollable()?.as_raw_fd()))
}

/// 1 if all subscribed topics have ended and were received, 0 if not; below 0 is a status. One thread uses a subscriber at a time.
#[unsafe(no_mangle)]
pub extern "C" fn rbmq_subscriber_ended(subscriber: *mut rbmq_subscriber) -> c_int {
    call_number(|| Ok(exclusive::<Receiver>(subscriber)?.subscriber()?.ended().into()))
}

/// 1 if the connection to the broker is up, 0 if not; below 0 is a status. One thread uses a subscriber at a time.
#[unsafe(no_mangle)]
pub extern "C" fn rbmq_subscriber_is_connected(subscriber: *mut rbmq_subscriber) -> c_int {
    call_number(|| Ok(exclusive::<Receiver>(subscriber)?.subscriber()?.is_connected().into()))
}

/// Closes the connection, waiting at most `timeout_ns`, and frees the handle. The messages that were handed out count as consumed.
#[unsafe(no_mangle)]
pub extern "C" fn rbmq_subscriber_close(subscriber: *mut rbmq_subscriber, timeout_ns: i64) -> rb_status {
    call(|| -> Outcome {
        take::<Receiver>(subscriber)?.into_subscriber().close_timeout(timeout(timeout_ns));
        Ok(())
    })
}

/// Closes the connection without waiting, and frees the handle. The remaining messages of the current batch count as not consumed.
/// NULL does nothing.
#[unsafe(no_mangle)]
pub extern "C" fn rbmq_subscriber_free(subscriber: *mut rbmq_subscriber) -> rb_status {
    call(|| if subscriber.is_null() { Ok(()) } else { take::<Receiver>(subscriber).map(drop) })
}
