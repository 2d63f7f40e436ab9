//! How callbacks reach the broker's own thread, and what bounds the queue between them.
//!
//! Callbacks run on the framework's workers and must not wait. They leave what happened here; the broker's thread
//! alone owns its tables. What the framework reports is bounded by the connections and subscriptions that exist; what
//! peers send is counted: a peer whose message finds too many waiting is disconnected instead of served late.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;

use rocketbufs::Conn;

use super::control::Event;
use super::session::SessionKey;
use crate::wire::Control;

/// Messages of peers that may wait at once.
const MAX_WAITING: usize = 4096;

/// The end of the callbacks.
#[derive(Clone)]
pub(super) struct Sender {
    events: mpsc::Sender<Event>,
    waiting: Arc<AtomicUsize>,
}

/// The end of the broker's thread.
pub(super) struct Inbox {
    pub(super) events: mpsc::Receiver<Event>,
    waiting: Arc<AtomicUsize>,
}

/// Both ends of a new queue.
// Not a bounded channel: a worker that waited in it could hold what the broker's thread needs to empty it.
#[allow(clippy::disallowed_methods)]
pub(super) fn inbox() -> (Sender, Inbox) {
    let (events, receiver) = mpsc::channel();
    let waiting = Arc::new(AtomicUsize::new(0));
    (Sender { events, waiting: waiting.clone() }, Inbox { events: receiver, waiting })
}

impl Sender {
    /// Leaves an event. After the broker's end there is nobody to read it, and nothing to do.
    pub(super) fn event(&self, event: Event) {
        let _ = self.events.send(event);
    }

    /// Leaves a publisher's message.
    pub(super) fn publisher_control(&self, key: SessionKey, message: &[u8]) {
        match self.admit(message) {
            Ok(()) => self.event(Event::PublisherControl { key, message: message.to_vec() }),
            Err(why) => self.event(Event::Expel { key, why }),
        }
    }

    /// Leaves a subscriber's message.
    pub(super) fn subscriber_control(&self, conn: &Conn, message: &[u8]) {
        match self.admit(message) {
            Ok(()) => self.event(Event::SubscriberControl { conn: conn.clone(), message: message.to_vec() }),
            Err(why) => conn.close(why),
        }
    }

    fn admit(&self, message: &[u8]) -> Result<(), &'static str> {
        if message.len() > Control::MAX_BYTES {
            return Err("a control message larger than RBMQ's");
        }
        if self.waiting.fetch_add(1, Ordering::Relaxed) >= MAX_WAITING {
            self.waiting.fetch_sub(1, Ordering::Relaxed);
            return Err("too many control messages at once; connect again later");
        }
        Ok(())
    }
}

impl Inbox {
    /// A peer's message was taken out of the queue.
    pub(super) fn taken(&self) {
        self.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}
