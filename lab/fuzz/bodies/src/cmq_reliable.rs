//! CMQ: both halves of the reliable mode with datagrams from hostile peers.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use cmq::proto::reliable::inbound::{Arrival, Inbound};
use cmq::proto::reliable::outbound::Outbound;
use cmq::proto::shared_buffer::SharedBuffer;
use cmq::proto::sink::{Dropped, Room, Sink};
use cmq::wire::{Body, Datagram, Messages};
use cmq::{Config, Event, Key, Reliable};

/// The limits of the queue.
const RECEIVE_BYTES: usize = 1 << 16;
const MAX_MESSAGE: usize = 3000;
const MAX_LINKS: usize = 3;
/// The epoch of the queue.
const EPOCH: u64 = 7;

/// Counts messages, of which it takes few.
struct Few(u64);

impl Sink for Few {
    fn deliver(&mut self, _from: Key, messages: Messages<'_>, _: Option<&SharedBuffer>) -> Dropped {
        assert_eq!(messages.iter().count(), messages.len());
        assert!(messages.iter().all(|message| message.len() <= MAX_MESSAGE));
        self.0 += messages.len() as u64;
        Dropped::default()
    }

    fn event(&mut self, _event: Event) {}

    fn room(&mut self, id: u32) -> Room {
        Room { messages: if id == 1 { 0 } else { 3 }, bytes: 10_000 }
    }
}

/// Feeds a queue with segments and acknowledgements. A datagram is preceded by two bytes with its length (little endian); the top bit
/// is the sender. Memory stays within its limits, nothing is confirmed that was not sent, and a stranger gets no more bytes than it sent.
pub fn cmq_reliable(data: &[u8]) {
    let settings =
        Reliable::default().window(1 << 16).receive_bytes(RECEIVE_BYTES).max_links(MAX_LINKS).max_keys(4);
    let config = Config::default().max_message(MAX_MESSAGE);
    let mut inbound = Inbound::new(&config, settings.clone(), EPOCH);
    let mut outbound = Outbound::new(&config, settings, EPOCH);
    let (mut sink, mut now, mut rest, mut flights) = (Few(0), Instant::now(), data, Vec::new());
    let peer = |high: u8| SocketAddr::from(([127, 0, 0, 1], 1 + u16::from(high >> 7)));
    for number in 0..20_u8 {
        let key = Key::new(peer(number << 7), u32::from(number & 3));
        let _ = outbound.push(|| now, key, &[number; 400], || 1200);
    }
    outbound.flush();
    let (mut received, mut answered, mut steps) = ([0; 2], [0; 2], 0);
    while let Some((&[low, high], after)) = rest.split_first_chunk()
        && steps < 200
    {
        let length = usize::from(u16::from_le_bytes([low, high & 0x7F])).min(after.len());
        let (bytes, after) = after.split_at(length);
        (rest, steps) = (after, steps + 1);
        let (from, at) = (peer(high), usize::from(high >> 7));
        match Datagram::parse(bytes).map(|datagram| (datagram.header, datagram.body)) {
            Ok((header, Body::Segment(segment))) => {
                // A sender that knows the epoch has received something.
                let proven = segment.receiver == EPOCH;
                let arrival = Arrival { header, segment, datagram_bytes: bytes.len() };
                received[at] += arrival.datagram_bytes;
                inbound.segment(now, from, arrival, &mut sink);
                inbound.resume(&mut sink);
                for (to, ack) in inbound.take_acks() {
                    answered[usize::from(to.port() == 2)] += if proven { 0 } else { ack.len() };
                    assert!(Datagram::parse(&ack).is_ok());
                }
            }
            Ok((header, Body::Ack(ack))) => {
                outbound.acknowledge(now, from, header.link(), &ack);
            }
            Ok((header, Body::End(end))) => inbound.end(from, header, end, &mut sink),
            _ => {}
        }
        now += Duration::from_millis(u64::from(low & 3) * 200);
        outbound.expire(now, &mut flights);
        outbound.transmit(now, &mut flights);
        flights.clear();
        inbound.expire(now);
        assert!(inbound.waiting_bytes() <= RECEIVE_BYTES + MAX_MESSAGE + bytes.len() + 64);
        let counts = outbound.counts();
        assert!(counts.confirmed + counts.failed <= counts.pushed);
    }
    assert!(answered.iter().zip(received).all(|(&out, into)| out <= into + 1000));
}
