//! The simulator's invariants, checked over a real transport: a writer, a broker that forwards its ring, and readers of both,
//! with sizes and policies of their own. Readers pause, lose their connections and come back.

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use rocketbufs::{BufferOptions, Config, Conn, Context, InEvent, Policy, RIn, ROut, Start, SubscribeOptions};

use crate::ends::sender_at;
use crate::rng::{Rng, mix};

const WAIT: Duration = Duration::from_secs(60);
/// How long durable cursors are held. A reader that lost its connection after the last data does not come back, so the run waits
/// this long for its cursor to expire.
const HOLD: Duration = Duration::from_secs(4);
const BUFFER: u32 = 1;
const MAX_DELIVERY: u64 = 16 << 10;

/// The behaviour of a reader, drawn from the seed.
#[derive(Debug)]
struct Plan {
    policy: Policy,
    ring_bytes: u64,
    /// From the broker, not from the writer.
    behind: bool,
    pauses_percent: u64,
    cuts: u32,
    seed: u64,
}

impl Plan {
    fn draw(rng: &mut Rng) -> Self {
        Self {
            policy: rng.one_of(&[Policy::Block, Policy::Block, Policy::Drop]),
            ring_bytes: rng.one_of(&[64 << 10, 256 << 10, 1 << 20]),
            behind: rng.percent(60),
            pauses_percent: rng.one_of(&[0, 2, 20]),
            cuts: rng.one_of(&[0, 0, 1, 3]),
            seed: rng.next(),
        }
    }
}

/// The ends of all deliveries. Each end is recorded before its delivery.
struct Written {
    ends: Mutex<BTreeSet<u64>>,
}

impl Written {
    fn is_end(&self, position: u64) -> bool {
        self.ends.lock().unwrap().contains(&position)
    }
}

fn pattern(from: u64, len: usize) -> Vec<u8> {
    (from..from + len as u64).map(|position| mix(position) as u8).collect()
}

/// Runs the first `count` seeds, or the seeds that the environment names.
pub fn seeds(count: u64, config: &Config, addr: &str) {
    let number = |name| std::env::var(name).ok()?.parse().ok();
    let seeds = match number("INVARIANT_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("INVARIANT_SEEDS").unwrap_or(count),
    };
    seeds.for_each(|seed| run(seed, config, addr));
}

/// Runs one seed. Every failure's message has the seed.
fn run(seed: u64, config: &Config, addr: &str) {
    let mut rng = Rng::new(seed);
    let start = rng.one_of(&[0, u64::from(u32::MAX) - 5_000, 1 << 40]);
    let plans: Vec<_> = (0..rng.between(1, 3)).map(|_| Plan::draw(&mut rng)).collect();
    let (ctx, broker_ctx) = (Context::new(config.clone()).unwrap(), Context::new(config.clone()).unwrap());
    let (out, listener) = sender_at(&ctx, addr);
    let size_bytes = rng.one_of(&[64 << 10, 256 << 10, 1 << 20]);
    let max_delivery_bytes = Some(MAX_DELIVERY);
    let options =
        BufferOptions::new().size_bytes(size_bytes).start(start).max_delivery_bytes(max_delivery_bytes);
    out.create_buffer_with(BUFFER, options).unwrap();

    let (handed_on, behind) = sender_at(&broker_ctx, addr);
    let input = RIn::new(&Conn::connect(&broker_ctx, &listener.local_addr(), b"broker").unwrap());
    let all = SubscribeOptions::new().size_bytes(size_bytes).start(Start::Oldest);
    input.subscribe_with(BUFFER, all).unwrap();
    handed_on.splice(&input, BUFFER).unwrap();

    let written = Written { ends: Mutex::new(BTreeSet::from([start])) };
    let addresses = [listener.local_addr(), behind.local_addr()];
    let join = |plan| Reader::join(plan, config, &addresses, seed, start);
    let mut readers: Vec<_> = plans.iter().map(join).collect();
    thread::scope(|scope| {
        for reader in &mut readers {
            scope.spawn(|| reader.read(&written));
        }
        write(&out, &mut rng, seed, &written);
    });
    out.buffer(BUFFER)
        .map_or(Ok(()), |buffer| buffer.drain(Some(WAIT)))
        .unwrap_or_else(|error| panic!("seed {seed}: not drained: {error}"));
    readers.iter().for_each(Reader::leave);
}

fn write(out: &ROut, rng: &mut Rng, seed: u64, written: &Written) {
    let most = rng.one_of(&[64, 1_000, MAX_DELIVERY]);
    let mut left = rng.between(100_000, 1_500_000).min(most * 20_000);
    while left > 0 {
        let size = rng.between(1, most).min(left);
        let mut segment = out.buffer(BUFFER).unwrap().segment(size, Some(WAIT)).unwrap();
        let at = segment.position();
        segment.bytes_mut().copy_from_slice(&pattern(at, size as usize));
        written.ends.lock().unwrap().insert(at + size);
        assert_eq!(out.deliver(segment, size, None).unwrap(), at + size, "seed {seed}");
        left -= size;
        if rng.percent(2) {
            let head = out.buffer(BUFFER).unwrap().info().unwrap().head;
            let told = out.buffer(BUFFER).unwrap().confirmed();
            let in_order = told.consumed <= told.delivered && told.delivered <= told.landed;
            assert!(in_order && told.landed <= head, "seed {seed}: {told:?}, head {head}");
        }
    }
    let end = out.destroy_buffer(BUFFER).unwrap();
    assert_eq!(Some(&end), written.ends.lock().unwrap().last(), "seed {seed}: where the log ends");
}

struct Reader<'a> {
    plan: &'a Plan,
    seed: u64,
    /// Where it is.
    at: u64,
    address: String,
    ctx: Context,
    input: RIn,
    rng: Rng,
}

impl<'a> Reader<'a> {
    /// Subscribes, before anything is written.
    fn join(plan: &'a Plan, config: &Config, addresses: &[String; 2], seed: u64, at: u64) -> Self {
        let address = addresses[usize::from(plan.behind)].clone();
        let ctx = Context::new(config.clone()).unwrap();
        let input = RIn::new(&Conn::connect(&ctx, &address, b"reader").unwrap());
        let options = SubscribeOptions::new()
            .size_bytes(plan.ring_bytes)
            .policy(plan.policy)
            .start(Start::Oldest)
            .durable(plan.seed.to_le_bytes().to_vec(), HOLD);
        input.subscribe_with(BUFFER, options).unwrap();
        match input.recv(Some(WAIT)).unwrap() {
            Some(InEvent::Subscribed { start, .. }) => assert_eq!(start, at, "seed {seed}: where it begins"),
            other => panic!("seed {seed}: {other:?}"),
        }
        Self { plan, seed, at, address, ctx, input, rng: Rng::new(plan.seed) }
    }

    /// Takes everything to the end of the log, and is cut off now and then.
    fn read(&mut self, written: &Written) {
        let mut cuts = self.plan.cuts;
        while !self.take(written) {
            if self.rng.percent(self.plan.pauses_percent) {
                thread::sleep(Duration::from_micros(self.rng.below(2_000)));
            }
            if cuts > 0 && self.rng.percent(2) {
                cuts -= 1;
                self.input.conn().close("cut");
            }
        }
    }

    /// Takes the next item, and checks that it is the expected one. True at the end of the log.
    fn take(&mut self, written: &Written) -> bool {
        let (seed, at) = (self.seed, self.at);
        match self.input.recv(Some(WAIT)).unwrap() {
            Some(InEvent::Data(view)) => {
                assert_eq!(view.position(), at, "seed {seed}: no gap, no duplicate");
                match view.to_vec() {
                    Ok(bytes) => {
                        assert!(bytes == pattern(at, bytes.len()), "seed {seed}: wrong bytes at {at}");
                    }
                    // A mapped ring is the writer's, and the writer does not wait for this reader.
                    Err(error) => {
                        assert!(self.plan.policy == Policy::Drop, "seed {seed}: {error} at {at} with block");
                    }
                }
                self.at = view.end();
                assert!(written.is_end(self.at), "seed {seed}: a delivery is split at {}", self.at);
                view.consume();
            }
            Some(InEvent::Lost { from, to, .. }) => {
                assert!(self.plan.policy == Policy::Drop, "seed {seed}: {from}..{to} lost with block");
                assert_eq!(from, at, "seed {seed}: where the loss begins");
                assert!(written.is_end(to), "seed {seed}: a hole ends within a delivery, at {to}");
                self.at = to;
            }
            Some(InEvent::ConnDown { .. }) => self.come_back(),
            Some(InEvent::Subscribed { .. }) => {}
            Some(InEvent::Closed { end, .. }) => {
                assert_eq!(end, at, "seed {seed}: an end comes after all data");
                assert_eq!(Some(&end), written.ends.lock().unwrap().last(), "seed {seed}: CLOSED");
                return true;
            }
            other => panic!("seed {seed}: at {at}: {other:?}"),
        }
        false
    }

    fn come_back(&self) {
        let conn = Conn::connect(&self.ctx, &self.address, b"again").unwrap();
        self.input.resume(&conn);
    }

    /// Unsubscribes, and checks that all memory is returned: the reader's own and mapped memory.
    fn leave(&self) {
        let seed = self.seed;
        self.input.unsubscribe(BUFFER);
        self.input.conn().close("read all");
        let until = Instant::now() + WAIT;
        while (self.ctx.memory_in_use(), self.ctx.mapped().0) != (0, 0) {
            let (own, mapped) = (self.ctx.memory_in_use(), self.ctx.mapped());
            assert!(Instant::now() < until, "seed {seed}: {own} bytes and {mapped:?} are still there");
            thread::sleep(Duration::from_millis(1));
        }
    }
}
