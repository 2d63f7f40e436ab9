//! Subscribers.

use std::ffi::{c_char, c_int, c_void};
use std::mem::ManuallyDrop;
use std::os::fd::AsRawFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::time::Duration;

use rbmq::wire::{Piece, Unpack, UnpackError};
use rbmq::{Batch, DeferredBatch, Event, Framing, Interrupter, Subscriber};
use rocketbufs::{Config, Context};

use crate::conn::function;
use crate::kept::with_kept;
use crate::raw::{
    CallbackContext, answer, array_mut, duration, optional_text, options, place, put, rb_id128, set, text,
    timeout,
};
use crate::rbmq::dispatcher::{Dispatcher, MessageCallback, panicked, rbmq_message_fn};
use crate::rbmq::login::login_of;
use crate::rbmq::received::{
    empty, notice_event, rbmq_batch, rbmq_event, rbmq_event_kind, rbmq_message, rbmq_record,
};
use crate::rbmq::subscriber_options::{rbmq_start, rbmq_subscriber_options, slow_policy, start_of};
use crate::rbmq::topic::framing;
use crate::status::rb_status::{RB_END, RB_ERR_ARGUMENT, RB_ERR_BUSY, RB_ERR_MALFORMED, RB_TIMED_OUT};
use crate::status::{Failure, Outcome, call, call_number, rb_status};
use crate::table::{beside, exclusive, free_shared, insert, kinds, shared, take};

/// Receives topics from a broker, and reconnects by itself. One thread uses it at a time.
pub struct rbmq_subscriber(());
/// A received batch that is not consumed yet. One thread uses it at a time.
pub struct rbmq_deferred(());

/// The handle that ends a wait of a subscriber. The subscriber's slot has it beside the subscriber, where any thread may read it.
pub struct rbmq_interrupter(());

kinds! {
    rbmq_subscriber => Receiver, 23, "subscriber", AtomicPtr<rbmq_interrupter> = AtomicPtr::new(std::ptr::null_mut());
    rbmq_deferred => DeferredBatch, 24, "deferred batch";
    rbmq_interrupter => Interrupter, 27, "subscriber";
}

type RecordsOf<'a> = Box<dyn Iterator<Item = Result<Piece<'a>, UnpackError>> + Send + 'a>;

/// A subscriber, and its batch that is open; or the thread that has the subscriber meanwhile.
pub(crate) struct Receiver {
    /// Borrows the bytes of `batch`, and is dropped before it.
    records: Option<RecordsOf<'static>>,
    /// Borrows what `subscriber` points at: it is dropped before, and while it is there nothing else uses the subscriber.
    batch: Option<Batch<'static>>,
    /// The position of the batch's first byte when it was opened.
    begin: u64,
    /// Owned. None while the dispatcher has it.
    subscriber: Option<NonNull<Subscriber>>,
    dispatcher: Option<Dispatcher>,
    interrupter: *mut rbmq_interrupter,
}

// SAFETY: the subscriber is owned, and is Send; the others borrow it.
unsafe impl Send for Receiver {}

impl Receiver {
    fn new(subscriber: Subscriber) -> Result<Self, Failure> {
        let interrupter = insert(subscriber.interrupter())?;
        let subscriber = Some(NonNull::from(Box::leak(Box::new(subscriber))));
        Ok(Self { records: None, batch: None, begin: 0, subscriber, dispatcher: None, interrupter })
    }

    /// Takes the subscriber back from a dispatcher that was told to end. Fails while a callback is set.
    #[cold]
    fn take_back(&mut self) -> Result<NonNull<Subscriber>, Failure> {
        let ends = self.dispatcher.take_if(|dispatcher| dispatcher.is_told());
        if let Some(dispatcher) = ends {
            return Ok(*self.subscriber.insert(NonNull::from(Box::leak(dispatcher.join()?))));
        }
        if self.dispatcher.is_none() {
            return Err(panicked());
        }
        let text = "a callback gets the subscriber's messages; rbmq_subscriber_unset_message_cb removes it";
        Err(Failure::new(RB_ERR_BUSY, text))
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
    fn receiving(&mut self) -> Result<&mut Subscriber, Failure> {
        self.consume();
        let mut subscriber = self.subscriber.map_or_else(|| self.take_back(), Ok)?;
        // SAFETY: owned, and no batch borrows it.
        Ok(unsafe { subscriber.as_mut() })
    }

    /// The subscriber, for calls that must not consume an open batch.
    fn subscriber(&mut self) -> Result<&mut Subscriber, Failure> {
        if self.batch.is_some() {
            return Err(Failure::new(RB_ERR_BUSY, "a batch of the subscriber is open; consume it first"));
        }
        self.receiving()
    }

    /// As [`Receiver::receiving`], for a batch that stays open after the call.
    fn receiving_batch(&mut self) -> Result<&'static mut Subscriber, Failure> {
        let mut subscriber = NonNull::from(self.receiving()?);
        // SAFETY: owned, and no batch borrows it. A batch that borrows it from here on is kept in `batch`, which `consume`,
        // `end` and `set_callback` drop before anything else uses the subscriber.
        Ok(unsafe { subscriber.as_mut() })
    }

    /// Lends the subscriber to a thread that hands its messages to `each`.
    fn set_callback(&mut self, each: MessageCallback) -> Outcome {
        self.receiving()?;
        let Some(subscriber) = self.subscriber.take() else { return Err(panicked()) };
        // SAFETY: made by `Box::leak`, no batch borrows it, and the pointer is gone.
        match Dispatcher::start(unsafe { Box::from_raw(subscriber.as_ptr()) }, each) {
            Ok(dispatcher) => {
                self.dispatcher = Some(dispatcher);
                Ok(())
            }
            Err((subscriber, error)) => {
                self.subscriber = Some(NonNull::from(Box::leak(subscriber)));
                Err(error.into())
            }
        }
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
        self.batch.as_mut().ok_or_else(|| Failure::new(RB_ERR_ARGUMENT, "no batch of the subscriber is open"))
    }

    fn take_batch(&mut self) -> Result<Batch<'static>, Failure> {
        self.batch()?;
        self.records = None;
        self.batch.take().ok_or(Failure::outcome(RB_END))
    }

    /// The iterator over the records of the open batch.
    fn records(&mut self) -> Result<&mut RecordsOf<'static>, Failure> {
        let batch = self.batch.as_ref();
        let batch =
            batch.ok_or_else(|| Failure::new(RB_ERR_ARGUMENT, "no batch of the subscriber is open"))?;
        let made = || {
            let bytes: *const [u8] = batch.as_slice();
            // SAFETY: the bytes stay where they are until the batch is dropped, and the iterator is dropped before. The
            // iterator reads no bytes of a consumed part.
            let bytes: &'static [u8] = unsafe { &*bytes };
            let unpack = match batch.framing() {
                Framing::Merged => Unpack::merged(bytes),
                Framing::Records => Unpack::records(bytes),
                Framing::Raw => Unpack::records(&[]),
            };
            let Some(places) = batch.places_in_space() else {
                return Box::new(unpack.checked()) as RecordsOf<'static>;
            };
            let records = unpack.checked().map(move |piece| piece.map(|piece| places.place(piece)));
            Box::new(places.fault().map(Err).into_iter().chain(records))
        };
        Ok(self.records.get_or_insert_with(made))
    }

    /// The subscriber; none if its dispatcher drops it, since this call comes from the callback.
    fn into_subscriber(self) -> Option<Box<Subscriber>> {
        // Nothing is left to drop but what `end` takes.
        ManuallyDrop::new(self).end()
    }

    /// Called once, before the receiver is gone.
    fn end(&mut self) -> Option<Box<Subscriber>> {
        self.consume();
        // The table has it as long as the receiver.
        let _ = free_shared::<Interrupter>(self.interrupter);
        if let Some(dispatcher) = self.dispatcher.take() {
            dispatcher.tell();
            return dispatcher.join().ok();
        }
        // SAFETY: made by `Box::leak`, the batch that borrowed it is gone, and so is the pointer.
        self.subscriber.take().map(|subscriber| unsafe { Box::from_raw(subscriber.as_ptr()) })
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        drop(self.end());
    }
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
        set!(builder, given: ring_bytes, batch_bytes, budget_bytes, max_message_bytes);
        if !given.config.is_null() {
            builder = builder.config(exclusive::<Config>(given.config)?.clone());
        }
        if !given.context.is_null() {
            builder = builder.context(&*shared::<Context>(given.context)?);
        }
        builder = builder.login(login_of(given.login)?);
        let receiver = Receiver::new(builder.connect(text(address, "the address")?)?)?;
        let interrupter = receiver.interrupter;
        let subscriber = insert(receiver)?;
        // Before any other thread has the handle. A thread that looks with the handle of a subscriber from before reads either handle.
        beside::<Receiver>(subscriber)?.store(interrupter, Ordering::Release);
        put(out, subscriber);
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
        let subscriber = receiver.receiving()?;
        let Some(received) = subscriber.recv_ref(timeout(timeout_ns))? else {
            return Err(nothing(subscriber));
        };
        put(message, rbmq_message::of(&received));
        Ok(())
    })
}

/// The next messages, several at once and in the memory where they landed, waiting at most `timeout_ns`. Consumes the batch before.
/// `rbmq_subscriber_batch_records` has its records. After `rbmq_subscriber_recv` it begins with the messages that arrived together
/// with the last one; in a merged topic with all messages of its run, at whose start alone a batch begins.
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
        match receiver.receiving_batch()?.next_batch(timeout(timeout_ns))? {
            Some(next) => put(batch, receiver.open(next)),
            None => return Err(nothing(receiver.receiving()?)),
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
            *place = rbmq_record {
                data,
                len,
                end: begin + piece.to as u64,
                publisher: piece.publisher.map_or(-1, i64::from),
                attributes: piece.attributes.as_bytes().as_ptr().cast(),
                attributes_len: piece.attributes.len(),
            };
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
    call(|| exclusive::<Receiver>(subscriber).map(|mut subscriber| subscriber.consume()))
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
    answer(out, "the place for the deferred batch", || {
        insert(exclusive::<Receiver>(subscriber)?.take_batch()?.defer())
    })
}

/// Consumes a deferred batch and all earlier ones of its buffer, and frees it. Any thread, one at a time.
#[unsafe(no_mangle)]
pub extern "C" fn rbmq_deferred_consume(deferred: *mut rbmq_deferred) -> rb_status {
    call(|| take::<DeferredBatch>(deferred).map(|deferred| deferred.consume()))
}

/// Consumes a deferred batch's messages below `position`, which must be the end of a record, and all earlier batches of its buffer,
/// and frees it. Any thread, one at a time.
#[unsafe(no_mangle)]
pub extern "C" fn rbmq_deferred_consume_up_to(deferred: *mut rbmq_deferred, position: u64) -> rb_status {
    call(|| take::<DeferredBatch>(deferred).map(|deferred| deferred.consume_up_to(position)))
}

/// The log of the publisher of a deferred batch. One thread uses a deferred batch at a time.
#[unsafe(no_mangle)]
pub extern "C" fn rbmq_deferred_epoch(deferred: *const rbmq_deferred, epoch: *mut rb_id128) -> rb_status {
    answer(epoch, "the place for the log", || Ok(exclusive::<DeferredBatch>(deferred)?.epoch().0.into()))
}

/// Frees a deferred batch without consuming it: consuming a later batch of the buffer consumes it too. NULL does nothing.
#[unsafe(no_mangle)]
pub extern "C" fn rbmq_deferred_free(deferred: *mut rbmq_deferred) -> rb_status {
    call(|| if deferred.is_null() { Ok(()) } else { take::<DeferredBatch>(deferred).map(drop) })
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
        match receiver.receiving_batch()?.next_event(timeout(timeout_ns))? {
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

/// Ends the wait of another thread in a call that receives on the subscriber: that call, or the next one that has to look for more than the
/// rest of a batch, fails with `RB_ERR_INTERRUPTED`, once. Nothing is lost, and the next call continues. Any thread, at any time; not in a handler
/// of a signal.
#[unsafe(no_mangle)]
pub extern "C" fn rbmq_subscriber_interrupt(subscriber: *const rbmq_subscriber) -> rb_status {
    call(|| {
        let interrupter = beside::<Receiver>(subscriber)?.load(Ordering::Acquire);
        // The slot may have become another subscriber's meanwhile.
        beside::<Receiver>(subscriber)?;
        shared::<Interrupter>(interrupter).map(|interrupter| interrupter.interrupt())
    })
}

/// Calls `callback(ctx, RB_OK, message)` for every message, on a thread of the subscriber alone, one call at a time. The callback may wait:
/// the subscriber's next messages wait too. What `rbmq_subscriber_recv` would return instead of a message is a call too, with its status,
/// NULL as the message, and the text in `rb_last_error`. `RB_END`, `RB_ERR_DOWN` and `RB_ERR_TAKEN_OVER` are the last call.
///
/// The message is valid until the callback returns, and is consumed by the call that follows the last one of its batch. Consumes an open batch.
/// Subscribe before: while a callback is set, other calls on the subscriber fail with `RB_ERR_BUSY`, but `rbmq_subscriber_interrupt`,
/// `rbmq_subscriber_unset_message_cb`, `rbmq_subscriber_close` and `rbmq_subscriber_free`. `ctx` is the caller's, and is used until one of the latter three
/// has returned. One thread uses a subscriber at a time, and a call in the callback counts. Fails with `RB_ERR_BUSY` if a callback is set, and
/// with `RB_ERR_SYSTEM` if the system refuses a thread.
#[unsafe(no_mangle)]
pub extern "C" fn rbmq_subscriber_set_message_cb(
    subscriber: *mut rbmq_subscriber,
    callback: rbmq_message_fn,
    ctx: *mut c_void,
) -> rb_status {
    call(|| {
        let (callback, ctx) = (function(callback)?, CallbackContext(ctx));
        exclusive::<Receiver>(subscriber)?.set_callback(MessageCallback { callback, ctx })
    })
}

/// Removes the callback: later messages wait for `rbmq_subscriber_recv`. When this has returned, no call of it runs and none begins: `ctx`
/// may be freed. Inside the callback itself: once that call has returned. Does nothing if none is set. One thread uses a subscriber at a
/// time.
#[unsafe(no_mangle)]
pub extern "C" fn rbmq_subscriber_unset_message_cb(subscriber: *mut rbmq_subscriber) -> rb_status {
    call(|| {
        let mut receiver = exclusive::<Receiver>(subscriber)?;
        let Some(dispatcher) = &receiver.dispatcher else { return Ok(()) };
        dispatcher.tell();
        if dispatcher.runs_here() { Ok(()) } else { receiver.take_back().map(drop) }
    })
}

/// Closes the connection, waiting at most `timeout_ns`, and frees the handle. The messages that were handed out count as consumed. Waits for a
/// callback that runs; in the callback it closes without waiting, once the callback has returned.
#[unsafe(no_mangle)]
pub extern "C" fn rbmq_subscriber_close(subscriber: *mut rbmq_subscriber, timeout_ns: i64) -> rb_status {
    call(|| -> Outcome {
        if let Some(subscriber) = take::<Receiver>(subscriber)?.into_subscriber() {
            subscriber.close_timeout(timeout(timeout_ns));
        }
        Ok(())
    })
}

/// Closes the connection without waiting, and frees the handle. The remaining messages of the current batch count as not consumed.
/// NULL does nothing. Waits for a callback that runs, unless it is called in the callback.
#[unsafe(no_mangle)]
pub extern "C" fn rbmq_subscriber_free(subscriber: *mut rbmq_subscriber) -> rb_status {
    call(|| if subscriber.is_null() { Ok(()) } else { take::<Receiver>(subscriber).map(drop) })
}
