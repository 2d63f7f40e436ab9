//! How callbacks reach the broker's own thread, and what bounds the queue between them.
//!
//! Callbacks run on the framework's workers and must not wait. They leave what happened here; the broker's thread
//! alone owns its tables. What the framework reports is bounded by the connections and subscriptions that exist; what
//! peers send is counted, for each and for all of them: a peer that says too much at once is disconnected instead of
//! served late, and does not take the place of the others. A publisher that names ten thousand topics, or thousands
//! that come back at the same moment when a broker was restarted, are not too much.

use std::collections::HashMap;
use std::ops::Deref;
use std::sync::mpsc;
use std::sync::{Arc, Mutex, MutexGuard};

use rbmq_wire::Control;
use rocketbufs::Conn;

use super::control::Event;
use super::session::SessionKey;

/// Bytes of one peer's messages that may wait at once: about 20,000 CREATEs.
const MAX_WAITING_OF_PEER: usize = 4 << 20;

/// Bytes of all peers' messages that may wait at once.
const MAX_WAITING: usize = 256 << 20;

/// What a message costs besides its bytes.
const COST: usize = 128;

const _: () = assert!(Control::MAX_BYTES + COST <= MAX_WAITING_OF_PEER && MAX_WAITING_OF_PEER <= MAX_WAITING);

/// The end of the callbacks.
#[derive(Clone)]
pub(super) struct Sender {
    events: mpsc::Sender<Event>,
    waiting: Waiting,
}

/// The end of the broker's thread.
pub(super) struct Inbox {
    pub(super) events: mpsc::Receiver<Event>,
}

/// A peer's message. It counts as waiting until it is dropped.
pub(super) struct Message {
    bytes: Vec<u8>,
    conn: u64,
    waiting: Waiting,
}

impl Deref for Message {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Message {
    fn drop(&mut self) {
        self.waiting.lock().remove(self.conn, self.bytes.len() + COST);
    }
}

/// What waits of each connection, and of all.
#[derive(Clone, Default)]
struct Waiting(Arc<Mutex<Counts>>);

#[derive(Default)]
struct Counts {
    of_peers: HashMap<u64, usize>,
    all: usize,
}

impl Waiting {
    fn lock(&self) -> MutexGuard<'_, Counts> {
        self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

impl Counts {
    /// Counts a message, if it is not one too many.
    fn add(&mut self, conn: u64, cost: usize) -> bool {
        let of_peer = self.of_peers.get(&conn).copied().unwrap_or(0) + cost;
        if of_peer > MAX_WAITING_OF_PEER || self.all + cost > MAX_WAITING {
            return false;
        }
        self.of_peers.insert(conn, of_peer);
        self.all += cost;
        true
    }

    fn remove(&mut self, conn: u64, cost: usize) {
        self.all -= cost;
        if let Some(of_peer) = self.of_peers.get_mut(&conn) {
            *of_peer -= cost;
            if *of_peer == 0 {
                self.of_peers.remove(&conn);
            }
        }
    }
}

/// Both ends of a new queue.
// Not a bounded channel: a worker that waited in it could hold what the broker's thread needs to empty it.
#[allow(clippy::disallowed_methods)]
pub(super) fn inbox() -> (Sender, Inbox) {
    let (events, receiver) = mpsc::channel();
    (Sender { events, waiting: Waiting::default() }, Inbox { events: receiver })
}

impl Sender {
    /// Leaves an event. After the broker's end there is nobody to read it, and nothing to do.
    pub(super) fn event(&self, event: Event) {
        let _ = self.events.send(event);
    }

    /// Leaves a publisher's message, which came over this connection.
    pub(super) fn publisher_control(&self, key: SessionKey, conn: &Conn, message: &[u8]) {
        match self.admit(conn.id(), message) {
            Ok(message) => self.event(Event::PublisherControl { key, message }),
            Err(why) => {
                // Here, not when the broker's thread comes to it: until then it could leave as many of these.
                conn.close(why);
                self.event(Event::Expel { key, why });
            }
        }
    }

    /// Leaves a subscriber's message.
    pub(super) fn subscriber_control(&self, conn: &Conn, message: &[u8]) {
        match self.admit(conn.id(), message) {
            Ok(message) => self.event(Event::SubscriberControl { conn: conn.clone(), message }),
            Err(why) => conn.close(why),
        }
    }

    fn admit(&self, conn: u64, message: &[u8]) -> Result<Message, &'static str> {
        if message.len() > Control::MAX_BYTES {
            return Err("a control message larger than RBMQ's");
        }
        if !self.waiting.lock().add(conn, message.len() + COST) {
            return Err("too many control messages at once; connect again later");
        }
        Ok(Message { bytes: message.to_vec(), conn, waiting: self.waiting.clone() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_that_says_too_much_takes_no_place_of_others() {
        let (sender, _inbox) = inbox();
        let mut waiting = Vec::new();
        while let Ok(message) = sender.admit(1, &[0; 64]) {
            waiting.push(message);
        }
        assert!(waiting.len() > 20_000, "a publisher of ten thousand topics is not too much");
        assert!(sender.admit(2, &[0; 64]).is_ok());
        waiting.pop();
        assert!(sender.admit(1, &[0; 64]).is_ok());
        drop(waiting);
        // Who is refused for what others said is not remembered.
        sender.waiting.lock().all = MAX_WAITING;
        assert!(sender.admit(3, &[0; 64]).is_err());
        sender.waiting.lock().all = 0;
        let waiting = sender.waiting.lock();
        assert_eq!((waiting.all, waiting.of_peers.len()), (0, 0));
    }
}
