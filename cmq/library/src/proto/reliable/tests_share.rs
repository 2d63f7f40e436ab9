//! Two senders that share a bottleneck with a short queue.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::{Duration, Instant};

use super::inbound::{Arrival, Inbound};
use super::link::Flight;
use super::outbound::Outbound;
use crate::config::{Config, Reliable};
use crate::event::Event;
use crate::key::Key;
use crate::proto::random::addr;
use crate::proto::shared_buffer::SharedBuffer;
use crate::proto::sink::{Dropped, Sink};
use crate::wire::{Body, Datagram, Messages};

/// 10 Mbit/s, 20 ms each way, and a queue of 50 ms.
const BYTES_PER_MS: u64 = 1250;
const DELAY: Duration = Duration::from_millis(20);
const QUEUE: Duration = Duration::from_millis(50);

#[derive(Default)]
struct Bytes([usize; 2]);

impl Sink for Bytes {
    fn deliver(&mut self, from: Key, messages: Messages<'_>, _: Option<&SharedBuffer>) -> Dropped {
        self.0[usize::from(from.addr.port())] += messages.as_bytes().len();
        Dropped::default()
    }

    fn event(&mut self, _: Event) {}
}

/// A datagram on its way: when it arrives, its number, the sender, whether the receiver gets it, its bytes.
type Flying = Reverse<(Instant, u64, usize, bool, Vec<u8>)>;

struct Path {
    now: Instant,
    flying: BinaryHeap<Flying>,
    free: Instant,
    count: u64,
}

impl Path {
    fn forward(&mut self, sender: usize, flights: Vec<Flight>) {
        for flight in flights {
            for bytes in flight.bytes.chunks(flight.segment) {
                let begins = self.free.max(self.now);
                if begins > self.now + QUEUE {
                    continue;
                }
                self.free = begins + Duration::from_micros(bytes.len() as u64 * 1000 / BYTES_PER_MS);
                self.fly(self.free + DELAY, sender, true, bytes.to_vec());
            }
        }
    }

    fn fly(&mut self, arrives: Instant, sender: usize, forward: bool, bytes: Vec<u8>) {
        self.count += 1;
        self.flying.push(Reverse((arrives, self.count, sender, forward, bytes)));
    }
}

/// The bytes of each sender that arrived within this time. The second one begins after a tenth of it.
pub(super) fn bottleneck(time: Duration) -> [usize; 2] {
    let (config, settings) = (Config::default(), Reliable::default().window(1 << 24));
    let mut senders = [77, 78].map(|epoch| Outbound::new(&config, settings.clone(), epoch));
    let (mut receiver, mut got) = (Inbound::new(&config, settings, 5), Bytes::default());
    let start = Instant::now();
    let mut path = Path { now: start, flying: BinaryHeap::new(), free: start, count: 0 };
    while path.now < start + time {
        for (number, sender) in senders.iter_mut().enumerate() {
            let begun = number == 0 || path.now > start + time / 10;
            while begun && sender.buffered() < 1 << 20 {
                let key = Key { addr: addr(9), id: 0 };
                sender.push(|| path.now, key, &[7; 1000], || 1400).expect("room");
            }
            let mut flights = Vec::new();
            sender.expire(path.now, &mut flights);
            sender.transmit(path.now, &mut flights);
            path.forward(number, flights);
        }
        let arrival = path.flying.peek().map(|Reverse((arrives, ..))| *arrives);
        let deadline = senders.iter().filter_map(Outbound::next_deadline).min();
        let next = [arrival, deadline].into_iter().flatten().min().unwrap_or(start + time);
        path.now = path.now.max(next);
        if arrival.is_some_and(|arrival| arrival <= path.now) {
            let Reverse((_, _, number, _, bytes)) = path.flying.pop().expect("a datagram flies");
            let Datagram { header, body } = Datagram::parse(&bytes).expect("good");
            match body {
                Body::Segment(segment) => {
                    let arrival = Arrival { header, segment, datagram_bytes: bytes.len() };
                    receiver.segment(path.now, addr(number as u16), arrival, &mut got);
                    for (_, ack) in receiver.take_acks() {
                        path.fly(path.now + DELAY, number, false, ack);
                    }
                }
                Body::Ack(ack) => {
                    senders[number].acknowledge(path.now, addr(9), header.link(), &ack);
                }
                _ => panic!("not a datagram of the reliable mode"),
            }
        }
    }
    got.0
}
