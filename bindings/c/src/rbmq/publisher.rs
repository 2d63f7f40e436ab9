//! Publishers.

use std::ffi::{c_char, c_int, c_void};
use std::os::fd::AsRawFd;

use rbmq::{Publisher, PublisherEvent};
use rocketbufs::{Config, Context};

use crate::handles::{rb_config, rb_context};
use crate::kept::{Kept, with_kept};
use crate::raw::{Versioned, answer, optional_text, options, place, put, text, timeout};
use crate::rbmq::login::{login_of, rbmq_login};
use crate::status::rb_status::{RB_ERR_CLOSED, RB_ERR_DOWN, RB_TIMED_OUT};
use crate::status::{Failure, call, call_number, rb_status};
use crate::table::{exclusive, free_shared, insert, kinds, shared, take};

/// A connection that publishes to a broker, and reconnects by itself. Any number of threads may use it.
pub struct rbmq_publisher(());

kinds! { rbmq_publisher => Publisher, 20, "publisher"; }

/// Options of a publisher. Zeros are defaults: `rbmq_publisher_options options = {.size = sizeof options};`
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct rbmq_publisher_options {
    /// `sizeof(rbmq_publisher_options)`.
    pub size: usize,
    /// The name in the broker's log and in `rbmq top`; NULL: none.
    pub name: *const c_char,
    /// The configuration for a context of the publisher's own; NULL: the default. Read during the call.
    pub config: *const rb_config,
    /// Shares the memory and the threads of this context; NULL: a context of the publisher's own.
    pub context: *const rb_context,
    /// The login of the client; NULL: none. Read during the call.
    pub login: *const rbmq_login,
}

// SAFETY: integers and pointers, and the first field is the size.
unsafe impl Versioned for rbmq_publisher_options {}

/// The kinds of events of a publisher. More kinds may be added: ignore those that you do not know.
#[repr(i32)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum rbmq_publisher_event_kind {
    /// The connection is lost; the publisher reconnects by itself: `text`.
    RBMQ_PUBLISHER_DISCONNECTED = 1,
    /// The connection is back.
    RBMQ_PUBLISHER_RECONNECTED = 2,
    /// The broker refuses a topic, possibly after a reconnect: `topic`, `text`.
    RBMQ_PUBLISHER_TOPIC_REFUSED = 3,
    /// The number of a topic's subscribers changed: `topic`, `count`.
    RBMQ_PUBLISHER_SUBSCRIBERS = 4,
    /// A topic has room again, after a call with `RB_TIMED_OUT`: `topic`.
    RBMQ_PUBLISHER_ROOM = 5,
    /// `count` events before the next one were dropped, since they were not taken in time.
    RBMQ_PUBLISHER_MISSED = 6,
    /// An event that this version of the library cannot describe.
    RBMQ_PUBLISHER_OTHER = 7,
    /// The broker's disk takes nothing of a kept topic, since it is full or fails: `topic`, `text`. The broker tries again every second.
    RBMQ_PUBLISHER_DISK_FAILED = 8,
    /// The broker's disk works again: `topic`.
    RBMQ_PUBLISHER_DISK_RECOVERED = 9,
}

/// An event of a publisher. Its texts are valid until this thread's next call that receives something.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct rbmq_publisher_event {
    /// The kind of the event.
    pub kind: rbmq_publisher_event_kind,
    /// The topic; NULL if the event is about none.
    pub topic: *const c_char,
    /// The reason, for people; NULL if there is none.
    pub text: *const c_char,
    /// A number.
    pub count: u64,
}

/// Connects to a broker, such as "127.0.0.1:7411". Waits until it accepts, at most `session.connect_timeout_ms`. `options` may be
/// NULL.
///
/// `*out` is the caller's, until `rbmq_publisher_close` or `rbmq_publisher_free`. Any thread. Fails with `RB_ERR_DOWN`,
/// `RB_ERR_REFUSED`, `RB_ERR_CONFIG` or `RB_ERR_SYSTEM`; the text has the reason.
#[unsafe(no_mangle)]
pub extern "C" fn rbmq_publisher_connect(
    address: *const c_char,
    given: *const rbmq_publisher_options,
    out: *mut *mut rbmq_publisher,
) -> rb_status {
    call(|| {
        place(out, "the place for the publisher")?;
        let given = options(given, "the publisher's options")?;
        let mut builder = Publisher::builder();
        if let Some(name) = optional_text(given.name, "the name")? {
            builder = builder.name(name);
        }
        if !given.config.is_null() {
            builder = builder.config(exclusive::<Config>(given.config)?.clone());
        }
        if !given.context.is_null() {
            builder = builder.context(&*shared::<Context>(given.context)?);
        }
        builder = builder.login(login_of(given.login)?);
        put(out, insert(builder.connect(text(address, "the address")?)?)?);
        Ok(())
    })
}

fn publisher_event(event: PublisherEvent, kept: &mut Kept) -> rbmq_publisher_event {
    use rbmq_publisher_event_kind::*;
    let empty =
        |kind| rbmq_publisher_event { kind, topic: std::ptr::null(), text: std::ptr::null(), count: 0 };
    match event {
        PublisherEvent::Disconnected(why) => {
            rbmq_publisher_event { text: kept.text(&why), ..empty(RBMQ_PUBLISHER_DISCONNECTED) }
        }
        PublisherEvent::Reconnected => empty(RBMQ_PUBLISHER_RECONNECTED),
        PublisherEvent::TopicRefused { topic, reason, .. } => rbmq_publisher_event {
            topic: kept.text(topic.as_str()),
            text: kept.text(&reason),
            ..empty(RBMQ_PUBLISHER_TOPIC_REFUSED)
        },
        PublisherEvent::Subscribers { topic, count } => rbmq_publisher_event {
            topic: kept.text(topic.as_str()),
            count: count.into(),
            ..empty(RBMQ_PUBLISHER_SUBSCRIBERS)
        },
        PublisherEvent::Room { topic } => {
            rbmq_publisher_event { topic: kept.text(topic.as_str()), ..empty(RBMQ_PUBLISHER_ROOM) }
        }
        PublisherEvent::DiskFailed { topic, reason } => rbmq_publisher_event {
            topic: kept.text(topic.as_str()),
            text: kept.text(&reason),
            ..empty(RBMQ_PUBLISHER_DISK_FAILED)
        },
        PublisherEvent::DiskRecovered { topic } => {
            rbmq_publisher_event { topic: kept.text(topic.as_str()), ..empty(RBMQ_PUBLISHER_DISK_RECOVERED) }
        }
        PublisherEvent::Missed { events } => {
            rbmq_publisher_event { count: events, ..empty(RBMQ_PUBLISHER_MISSED) }
        }
        _ => empty(RBMQ_PUBLISHER_OTHER),
    }
}

/// The next event, waiting at most `timeout_ns`; `RB_TIMED_OUT` if nothing happened. Events are collected from the first call of
/// this function or of `rbmq_publisher_fd` on, at most 256. A program that ignores events needs neither. Any thread.
#[unsafe(no_mangle)]
pub extern "C" fn rbmq_publisher_next_event(
    publisher: *const rbmq_publisher,
    event: *mut rbmq_publisher_event,
    timeout_ns: i64,
) -> rb_status {
    answer(event, "the place for the event", || {
        let next = shared::<Publisher>(publisher)?.next_event(timeout(timeout_ns));
        let next = next.ok_or(Failure::outcome(RB_TIMED_OUT))?;
        if let PublisherEvent::Ended { shut_down, reason } = next {
            return Err(Failure::of(if shut_down { RB_ERR_DOWN } else { RB_ERR_CLOSED }, reason));
        }
        Ok(with_kept(|kept| publisher_event(next, kept)))
    })
}

/// A descriptor that is readable while `rbmq_publisher_next_event` would return an event, for an event loop, which only polls
/// it. A program that must not wait publishes with the time-out 0, and tries again after `RBMQ_PUBLISHER_ROOM`. Returns a
/// status below 0 if it fails.
///
/// The descriptor belongs to the library and lives as long as the publisher. Any thread.
#[unsafe(no_mangle)]
pub extern "C" fn rbmq_publisher_fd(publisher: *const rbmq_publisher) -> c_int {
    call_number(|| Ok(shared::<Publisher>(publisher)?.pollable()?.as_raw_fd()))
}

/// 1 if the connection to the broker is up, 0 if not; below 0 is a status. Any thread.
#[unsafe(no_mangle)]
pub extern "C" fn rbmq_publisher_is_connected(publisher: *const rbmq_publisher) -> c_int {
    call_number(|| Ok(shared::<Publisher>(publisher)?.is_connected().into()))
}

/// Closes the connection after the queued data, waiting at most `timeout_ns`, and frees the handle. Close the topics before. Any
/// thread; fails with `RB_ERR_BUSY` while another call uses the publisher.
#[unsafe(no_mangle)]
pub extern "C" fn rbmq_publisher_close(publisher: *mut rbmq_publisher, timeout_ns: i64) -> rb_status {
    call(|| take::<Publisher>(publisher).map(|publisher| publisher.close_timeout(timeout(timeout_ns))))
}

/// Frees a publisher's handle without waiting: the connection closes once its topics are freed too, and records that are still
/// on their way may be lost. NULL does nothing. Any thread.
#[unsafe(no_mangle)]
pub extern "C" fn rbmq_publisher_free(publisher: *mut rbmq_publisher) -> rb_status {
    call(|| if publisher.is_null() { Ok(()) } else { free_shared::<Publisher>(publisher) })
}

/// Fills raw bytes of a topic in place: `fill(ctx, to, capacity)` writes up to `capacity` bytes to
/// `to` and returns how many it wrote; below 0 publishes nothing.
pub type rbmq_fill_fn = Option<extern "C" fn(ctx: *mut c_void, to: *mut c_void, capacity: usize) -> isize>;
