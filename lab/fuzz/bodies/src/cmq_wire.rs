//! CMQ: a receiver with datagrams from hostile senders.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use cmq::proto::shared_buffer::SharedBuffer;
use cmq::proto::sink::{Dropped, Sink};
use cmq::proto::unreliable::receiver::Receiver;
use cmq::wire::{Body, Datagram, HEADER_BYTES, Messages};
use cmq::{Config, Delivery, Event, Key};

/// Counts delivered messages.
#[derive(Default)]
struct Counted {
    messages: u64,
    bytes: usize,
}

impl Sink for Counted {
    fn deliver(&mut self, _from: Key, messages: Messages<'_>, _: Option<&SharedBuffer>) -> Dropped {
        let mut seen = 0;
        for message in messages.iter() {
            seen += 1;
            self.bytes += message.len();
        }
        assert_eq!(seen, messages.len(), "a batch has as many messages as it says");
        self.messages += seen as u64;
        Dropped::default()
    }

    fn event(&mut self, _event: Event) {}
}

/// Feeds a receiver with datagrams of two senders. A datagram is preceded by two bytes with its length (little endian); the top
/// bit is the sender. The receiver delivers no more than arrived, stays within its memory limits, and counts everything.
pub fn cmq_datagram(data: &[u8]) {
    let wait = Duration::from_millis(1);
    let (reorder_bytes, fragment_bytes, max_senders) = (2000, 2000, 4);
    for delivery in [Delivery::Ordered { wait, window: 4 }, Delivery::Unordered { wait, window: 4 }] {
        let config = Config::default()
            .reorder_bytes(reorder_bytes)
            .fragment_bytes(fragment_bytes)
            .max_senders(max_senders)
            .delivery(delivery);
        let mut receiver = Receiver::new(&config);
        let (mut sink, mut now, mut rest) = (Counted::default(), Instant::now(), data);
        let (mut received, mut received_bytes) = (0, 0);
        while let Some((&[low, high], after)) = rest.split_first_chunk() {
            let length = usize::from(u16::from_le_bytes([low, high & 0x7F])).min(after.len());
            let (bytes, after) = after.split_at(length);
            let from = SocketAddr::from(([127, 0, 0, 1], 1 + u16::from(high >> 7)));
            round_trip(bytes);
            receiver.datagram(now, from, bytes, &mut sink);
            (received, received_bytes, rest) = (received + 1, received_bytes + bytes.len(), after);
            if low & 3 == 0 {
                now += Duration::from_micros(400);
                receiver.expire(now, &mut sink);
            }
            assert!(receiver.reorder_bytes() <= reorder_bytes + bytes.len(), "held messages are bounded");
            assert!(receiver.fragment_bytes() <= fragment_bytes, "incomplete messages are bounded");
        }
        while let Some(deadline) = receiver.next_deadline() {
            receiver.expire(deadline, &mut sink);
        }
        assert_eq!((receiver.reorder_bytes(), receiver.fragment_bytes()), (0, 0), "every wait ends");
        let totals = receiver.totals();
        assert_eq!(totals.datagrams, received);
        assert_eq!(totals.counts.received, sink.messages, "delivered messages are counted");
        assert!(sink.bytes <= received_bytes && totals.senders <= max_senders as u64);
    }
}

/// The header of an accepted datagram encodes to the same bytes.
fn round_trip(bytes: &[u8]) {
    let Ok(Datagram { header, body }) = Datagram::parse(bytes) else { return };
    assert_eq!(header.encode(), bytes[..HEADER_BYTES]);
    if let Body::Batch(messages) = body {
        assert_eq!(messages.len(), usize::from(header.count));
    }
}
