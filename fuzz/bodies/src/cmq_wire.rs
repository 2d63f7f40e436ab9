//! CMQ: what a receiver does with datagrams from anybody.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use cmq::proto::lent::Lent;
use cmq::proto::receiver::{Receiver, Sink, Taken};
use cmq::wire::{Body, Datagram, HEADER_BYTES, Messages};
use cmq::{Config, Event, Key, Order};

/// Counts what is delivered.
#[derive(Default)]
struct Counted {
    messages: u64,
    bytes: usize,
}

impl Sink for Counted {
    fn deliver(&mut self, _from: Key, messages: Messages<'_>, _: Option<&Lent>) -> Taken {
        let mut seen = 0;
        for message in messages.iter() {
            seen += 1;
            self.bytes += message.len();
        }
        assert_eq!(seen, messages.len(), "a batch has as many messages as it says");
        self.messages += seen as u64;
        Taken::default()
    }

    fn event(&mut self, _event: Event) {}
}

/// Datagrams of one or two senders, each behind two bytes with its length (little endian; the top bit is the sender):
/// a receiver delivers no more than came, keeps no more than it may, and counts all of it.
pub fn cmq_datagram(data: &[u8]) {
    let wait = Duration::from_millis(1);
    let (held_bytes, fragment_bytes, max_senders) = (2000, 2000, 4);
    let orders = [Order::Kept { wait, window: 4 }, Order::AsArrived { wait, window: 4 }];
    for order in orders {
        let config = Config { held_bytes, fragment_bytes, max_senders, order, ..Config::default() };
        let mut receiver = Receiver::new(&config);
        let (mut sink, mut now, mut rest) = (Counted::default(), Instant::now(), data);
        let (mut came, mut bodies) = (0, 0);
        while let Some((&[low, high], after)) = rest.split_first_chunk() {
            let length = usize::from(u16::from_le_bytes([low, high & 0x7F])).min(after.len());
            let (bytes, after) = after.split_at(length);
            let from = SocketAddr::from(([127, 0, 0, 1], 1 + u16::from(high >> 7)));
            round_trip(bytes);
            receiver.datagram(now, from, bytes, &mut sink);
            (came, bodies, rest) = (came + 1, bodies + bytes.len(), after);
            if low & 3 == 0 {
                now += Duration::from_micros(400);
                receiver.expire(now, &mut sink);
            }
            assert!(receiver.held_bytes() <= held_bytes + bytes.len(), "what waits is limited");
            assert!(receiver.fragment_bytes() <= fragment_bytes, "pieces are limited");
        }
        while let Some(deadline) = receiver.next_deadline() {
            receiver.expire(deadline, &mut sink);
        }
        assert_eq!((receiver.held_bytes(), receiver.fragment_bytes()), (0, 0), "time ends all waiting");
        let totals = receiver.totals();
        assert_eq!(totals.datagrams, came);
        assert_eq!(totals.counts.received, sink.messages, "what is delivered is counted");
        assert!(sink.bytes <= bodies && totals.senders <= max_senders as u64);
    }
}

/// The header of whatever is accepted is written as it was read.
fn round_trip(bytes: &[u8]) {
    let Ok(Datagram { header, body }) = Datagram::parse(bytes) else { return };
    assert_eq!(header.encode(), bytes[..HEADER_BYTES]);
    if let Body::Batch(messages) = body {
        assert_eq!(messages.len(), usize::from(header.count));
    }
}
