//! What an application's own event loop does with the client library. The tests of the command have this file too.

use std::os::fd::BorrowedFd;
use std::time::Duration;

use rbmq::{Event, Publisher, PublisherEvent, Subscriber};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use testkit::LONG;

pub const NO_WAIT: Option<Duration> = Some(Duration::ZERO);

/// Whether the descriptor is readable, waiting at most `timeout`.
pub fn is_readable(descriptor: BorrowedFd<'_>, timeout: Duration) -> bool {
    let timeout = Timespec { tv_sec: timeout.as_secs() as i64, tv_nsec: timeout.subsec_nanos().into() };
    poll(&mut [PollFd::from_borrowed_fd(descriptor, PollFlags::IN)], Some(&timeout)).unwrap() == 1
}

/// The next event that `find` selects, as an event loop takes it.
pub fn wait_event<T>(subscriber: &mut Subscriber, find: impl Fn(Event<'_>) -> Option<T>) -> T {
    loop {
        while let Some(event) = subscriber.next_event(NO_WAIT).unwrap() {
            if let Some(found) = find(event) {
                return found;
            }
        }
        assert!(is_readable(subscriber.pollable().unwrap(), LONG), "no event came");
    }
}

pub fn messages(event: Event<'_>) -> Option<Vec<Vec<u8>>> {
    match event {
        Event::Batch(batch) => Some(batch.records().map(<[u8]>::to_vec).collect()),
        _ => None,
    }
}

pub fn wait_publisher_event(publisher: &Publisher, wanted: impl Fn(&PublisherEvent) -> bool) {
    loop {
        while let Some(event) = publisher.next_event(NO_WAIT) {
            if wanted(&event) {
                return;
            }
        }
        assert!(is_readable(publisher.pollable().unwrap(), LONG), "no event came");
    }
}
