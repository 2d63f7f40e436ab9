//! A writer always gets room for the largest delivery once its receivers have everything, however much history they keep.

use std::time::Duration;

use proptest::collection::vec;
use proptest::prelude::*;
use rocketbufs::config::TransportKind;
use rocketbufs::proto::{Coverage, Credit, SendConfig, SendCursor, Step};
use rocketbufs::{BufferOptions, Context, Listener, Policy, RIn, ROut, SubscribeOptions};
use rocketring::{ClaimError, Pool, PoolConfig, Ring, RingConfig};

use crate::ends::{WAIT, connect, context, pattern, ring_of, sender, subscribe, take, write};

/// Difficult sizes: the largest, runs of tiny ones, and all between.
fn size(choice: u64, most: u64) -> u64 {
    match choice % 4 {
        0 => most,
        1 => 1 + choice / 4 % 3,
        2 => (1 + choice / 4 % 200).min(most),
        _ => 1 + choice / 4 % most,
    }
}

/// A receiver that maps the ring, has sent bytes at once and keeps its history. The sender keeps undelivered bytes. The plain
/// oracle is the list of the ends of deliveries.
struct Mapped {
    ring: Ring,
    outbound: SendCursor,
    retain: u64,
    ends: Vec<u64>,
}

impl Mapped {
    fn new(ring: Ring, retain: u64) -> Self {
        let config = SendConfig {
            policy: Policy::Block,
            max_lag: Some(ring.capacity()),
            block_timeout: 0,
            flow_control: true,
            max_transfer: ring.max_delivery(),
            keep_until_delivered: true,
            max_delivery: ring.max_delivery(),
            largest: 0,
            grows: true,
            maps: Some(ring.capacity()),
        };
        Self { outbound: SendCursor::new(config, ring.start(), 0), ends: vec![ring.start()], ring, retain }
    }

    /// The receiver reports `landed`, and that all but the last `missing` bytes of it are delivered. Returns the position that
    /// the sender holds for it.
    fn credit(&mut self, landed: u64, missing: u64) -> Option<u64> {
        let start = self.ring.start();
        let delivered = landed.saturating_sub(missing).max(start);
        // The grant of the receiver's own ring: a capacity ahead of the landed bytes, less the retained history.
        let grant = landed + self.ring.capacity() - self.retain;
        let credit = Credit { landed, delivered, consumed: start, grant, coverage: Coverage::ONE };
        self.outbound.on_credit(&credit, 0).unwrap();
        let holds = self.outbound.holds_whole(&self.ring);
        let delivered = self.outbound.delivered();
        let whole = self.ends.iter().rfind(|end| **end <= delivered).expect("the start is one");
        assert!(holds.is_none_or(|at| at <= *whole), "{holds:?}: of {delivered} only {whole} is whole");
        holds
    }

    fn send_all(&mut self) {
        while let Step::Write { .. } = self.outbound.next(&self.ring, None, u64::MAX) {}
    }

    /// Sends everything, and lets it land. Returns the position that is held then.
    fn settle(&mut self) -> Option<u64> {
        loop {
            self.send_all();
            let holds = self.credit(self.outbound.sent(), 0);
            if self.outbound.sent() == self.ring.head() {
                return holds;
            }
        }
    }
}

proptest! {
    #[test]
    fn history_of_a_mapping_peer_leaves_room(
        shift in 12..17_u32,
        (most, retain, own) in (any::<u64>(), any::<u64>(), any::<u64>()),
        start in prop_oneof![Just(0), (1_u64 << 32) - 9_000..1 << 32],
        deliveries in vec((any::<u64>(), 0..20_000_u64), 1..400),
    ) {
        let capacity = 1 << shift;
        // Often the usual quarter and half.
        let part = |choice: u64, usual: u64, most: u64| match choice % 2 {
            0 => usual,
            _ => choice / 2 % (most + 1),
        };
        let most = part(most, capacity / 4, capacity / 2).max(1);
        let config = RingConfig {
            capacity_bytes: capacity,
            retain_bytes: Some(part(own, capacity / 2, capacity / 2)),
            max_delivery_bytes: Some(most),
            start,
            ..RingConfig::default()
        };
        let pool = Pool::new(PoolConfig { reservation_bytes: 1 << 18, max_bytes: 1 << 20 }).unwrap();
        let ring = pool.ring(config).unwrap();
        let (most, hold) = (ring.max_delivery(), ring.hold(start).unwrap());
        let mut writer = ring.writer().unwrap();
        let mut mapped = Mapped::new(ring.clone(), part(retain, capacity / 2, capacity / 2));
        mapped.credit(start, 0);
        for (choice, missing) in deliveries {
            let bytes = vec![0; size(choice, most) as usize];
            if writer.append(&[&bytes]) == Err(ClaimError::Full) {
                // Everything has come, and that is all that there is to come: now there must be room.
                hold.advance(mapped.settle().unwrap());
                prop_assert!(writer.append(&[&bytes]).is_ok(), "no room for {} of {most} bytes", bytes.len());
            }
            mapped.ends.push(ring.head());
            mapped.send_all();
            if choice & 0x30 == 0 {
                let landed = mapped.outbound.sent().saturating_sub(missing / 2).max(start);
                if let Some(at) = mapped.credit(landed, missing) {
                    hold.advance(at);
                }
            }
        }
    }
}

/// A publisher, brokers spliced one to the other, and perhaps a subscriber at the end.
struct Chain {
    out: ROut,
    input: Option<RIn>,
    /// The ends of each broker, and their listeners.
    _brokers: Vec<(ROut, RIn)>,
    _listeners: Vec<Listener>,
    _contexts: Vec<Context>,
}

/// The parameters of a chain.
#[derive(Debug, Clone, Copy)]
struct Plan {
    kind: TransportKind,
    relays: usize,
    ring: u64,
    most: u64,
    retain: Option<u64>,
    keeps: bool,
    named: bool,
    subscriber: bool,
}

impl Plan {
    fn drawn(seed: u64) -> Self {
        let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
        let mut draw = |of: u64| {
            state = state.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(0x1405_7B7E_F767_814F);
            (state >> 33) % of
        };
        let ring = 1 << (14 + draw(3));
        let relays = draw(4) as usize;
        Self {
            kind: [TransportKind::Shm, TransportKind::Shm, TransportKind::Auto, TransportKind::Tcp]
                [draw(4) as usize],
            relays,
            ring,
            most: [ring / 4, ring / 4, ring / 2, 1 + draw(ring / 2)][draw(4) as usize],
            retain: [None, Some(0), Some(draw(ring / 2))][draw(3) as usize],
            keeps: draw(3) > 0,
            named: draw(2) == 0 || relays > 1,
            subscriber: draw(4) > 0,
        }
    }

    fn options(self, retains: bool) -> SubscribeOptions {
        let (name, hold) = if self.named { (b"a name".to_vec(), WAIT) } else { (Vec::new(), Duration::ZERO) };
        let retain_bytes = self.retain.filter(|_| retains);
        ring_of(self.ring).durable(name, hold).retain_bytes(retain_bytes)
    }
}

impl Chain {
    fn new(plan: Plan) -> Self {
        let ctx = context(plan.kind);
        let (out, mut listener) = sender(&ctx);
        let options = BufferOptions::new()
            .size_bytes(plan.ring)
            .max_delivery_bytes(Some(plan.most))
            .keep_until_delivered(plan.keeps)
            .retain_bytes(plan.retain);
        out.create_buffer_with(1, options).unwrap();
        let (mut contexts, mut brokers, mut listeners) = (vec![ctx], Vec::new(), Vec::new());
        for _ in 0..plan.relays {
            let ctx = context(plan.kind);
            let (relay, next) = sender(&ctx);
            let upstream = RIn::new(&connect(&ctx, &listener));
            relay.splice_with(&upstream, 1, 1, plan.options(true)).unwrap();
            listeners.push(std::mem::replace(&mut listener, next));
            brokers.push((relay, upstream));
            contexts.push(ctx);
        }
        let input = plan.subscriber.then(|| {
            let ctx = context(plan.kind);
            let input = RIn::new(&connect(&ctx, &listener));
            assert_eq!(subscribe(&input, 1, plan.options(false)), 0);
            contexts.push(ctx);
            input
        });
        listeners.push(listener);
        Self { out, input, _brokers: brokers, _listeners: listeners, _contexts: contexts }
    }
}

/// Sizes of deliveries that fill the rings many times, of all allowed sizes.
fn pieces(seed: u64, plan: Plan) -> Vec<u64> {
    let (mut pieces, mut left, mut choice) = (Vec::new(), 24 * plan.ring, seed);
    while left > 0 {
        choice = choice.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(0x1405_7B7E_F767_814F);
        pieces.push(size(choice >> 33, plan.most));
        left = left.saturating_sub(pieces[pieces.len() - 1]);
    }
    pieces
}

fn run(seed: u64) {
    let plan = Plan::drawn(seed);
    let (chain, pieces) = (Chain::new(plan), pieces(seed, plan));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for &size in &pieces {
                let segment = chain.out.buffer(1).unwrap().segment(size, Some(WAIT));
                let mut segment =
                    segment.unwrap_or_else(|error| panic!("seed {seed}, {plan:?}: {size} bytes: {error}"));
                let at = segment.position();
                segment.bytes_mut().copy_from_slice(&pattern(at, size as usize));
                chain.out.deliver(segment, size, None).unwrap();
            }
        });
        if let Some(input) = &chain.input {
            assert_eq!(take(input, 0, pieces.iter().sum()), 0, "seed {seed}, {plan:?}");
        }
    });
}

/// TCP and shared memory, chains, histories, names, and rings as small as the deliveries allow.
#[test]
fn each_writer_gets_room_at_last() {
    let one = std::env::var("ROOM_SEED").ok().and_then(|seed| seed.parse().ok());
    let seeds = std::env::var("ROOM_SEEDS").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(64);
    for seed in one.map_or(0..seeds, |seed: u64| seed..seed + 1) {
        run(seed);
    }
}

/// A peer may keep half of a ring that it maps. If a delivery may be longer than that, the peer has a ring of its own instead.
#[test]
fn a_ring_of_less_than_two_deliveries_is_not_mapped() {
    let (ring, most) = (1 << 16, 60_000);
    let [ctx, broker, other] = [(); 3].map(|()| context(TransportKind::Shm));
    let (out, listener) = sender(&ctx);
    let options = BufferOptions::new().size_bytes(ring).max_delivery_bytes(Some(most)).retain_bytes(Some(0));
    out.create_buffer_with(1, options).unwrap();
    let (relay, relays) = sender(&broker);
    let upstream = RIn::new(&connect(&broker, &listener));
    relay.splice_with(&upstream, 1, 1, ring_of(2 * ring)).unwrap();
    let input = RIn::new(&connect(&other, &relays));
    subscribe(&input, 1, ring_of(2 * ring));
    // The doorbell of a follower is mapped too, and counts as a page.
    let maps = |ctx: &Context| ctx.mapped().1 >= ring;
    assert_eq!((maps(&broker), maps(&other)), (false, true));
    std::thread::scope(|scope| {
        scope.spawn(|| write(&out, 1, 20 * most, most));
        assert_eq!(take(&input, 0, 20 * most), 0);
    });
}
