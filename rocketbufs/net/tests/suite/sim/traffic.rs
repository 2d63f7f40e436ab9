//! Two hosts, buffers between them, and random traffic in which nothing may be lost, changed or out of order.

use rocketnet::conformance::flow;
use rocketnet::{ConnId, Event, SourceRange, Transport};
use rocketnet_sim::{SimConfig, SimNet, SimTransport};
use rocketring::{Hold, Position, Ring, Writer};

/// Two hosts and a connection from `a` to `b`.
pub struct Pair {
    pub net: SimNet,
    pub a: SimTransport,
    pub b: SimTransport,
    pub ca: ConnId,
    pub cb: ConnId,
    pub addr: String,
}

pub fn pair(seed: u64, config: SimConfig) -> Pair {
    let net = SimNet::new(seed, config);
    let (mut a, mut b) = (net.host("a"), net.host("b"));
    let addr = b.listen("b:0").unwrap();
    let ca = a.connect(&addr).unwrap();
    let cb = adopt(&net, &mut b);
    settle(&net);
    assert!(matches!(poll(&mut a)[..], [Event::Connected(conn)] if conn == ca));
    Pair { net, a, b, ca, cb, addr }
}

/// Steps until a connection comes in, and adopts it.
pub fn adopt(net: &SimNet, link: &mut SimTransport) -> ConnId {
    loop {
        for event in poll(link) {
            if let Event::Incoming(accepted) = event {
                return link.adopt(accepted).unwrap();
            }
        }
        assert!(net.step(), "no connection came:\n{}", net.trace());
    }
}

/// Runs the network until nothing more can happen without a poll.
pub fn settle(net: &SimNet) {
    for _ in 0..1_000_000 {
        if !net.step() {
            return;
        }
    }
    panic!("the network never comes to rest:\n{}", net.trace());
}

pub fn poll(link: &mut SimTransport) -> Vec<Event> {
    let mut events = Vec::new();
    link.poll(None, &mut events);
    events
}

/// Polls both ends and steps until nothing more happens. Returns the events of `a` and `b`.
pub fn run_out(p: &mut Pair) -> (Vec<Event>, Vec<Event>) {
    let (mut a, mut b) = (Vec::new(), Vec::new());
    loop {
        let before = a.len() + b.len();
        a.extend(poll(&mut p.a));
        b.extend(poll(&mut p.b));
        let told = a.len() + b.len() > before;
        if !p.net.step() && !told {
            return (a, b);
        }
    }
}

/// All three kinds of network.
pub fn kinds() -> [SimConfig; 3] {
    [SimConfig::stream(), SimConfig::one_sided(), SimConfig::unordered()]
}

/// A buffer from `a` to `b`.
pub struct Buffer {
    pub wire: u32,
    pub source: Ring,
    pub sink: Ring,
    pub writer: Writer,
    pub source_hold: Hold,
    pub sink_hold: Hold,
    pub sent: Position,
    landed: Position,
    read: Position,
}

impl Buffer {
    pub fn new(p: &mut Pair, wire: u32, capacity: u64) -> Self {
        let (source, sink) = (flow::ring(capacity, 0), flow::ring(capacity, 0));
        p.b.bind(p.cb, wire, sink.receiver().unwrap());
        let (source_hold, sink_hold) = (source.hold(0).unwrap(), sink.hold(0).unwrap());
        let writer = source.writer().unwrap();
        sink.grant();
        Self { wire, source, sink, writer, source_hold, sink_hold, sent: 0, landed: 0, read: 0 }
    }

    pub fn append(&mut self, size: u64) -> bool {
        let from = self.source.head();
        let bytes: Vec<u8> = (from..from + size).map(|at| flow::byte_at(u64::from(self.wire), at)).collect();
        self.writer.append(&[&bytes]).is_ok()
    }

    pub fn range(&self, from: Position, to: Position) -> SourceRange {
        SourceRange { ring: self.source.clone(), from, to, mapped: false }
    }

    /// Queues ranges that may be queued now, `most` at most.
    pub fn send(&mut self, p: &mut Pair, most: u64) {
        let promises = p.a.promises();
        if !promises.ordered && self.landed < self.sent {
            return;
        }
        let to = self.source.head().min(self.sink.grant()).min(self.sent + most);
        let more = to < self.source.head();
        if to > self.sent && p.a.write(p.ca, self.wire, self.range(self.sent, to), more).is_ok() {
            self.sent = to;
        }
    }

    /// Compares the arrived bytes with the written ones, and releases them.
    pub fn check(&mut self) {
        let head = self.sink.head();
        let bytes = self.sink.view(self.read, head).to_vec().unwrap();
        for (at, byte) in (self.read..).zip(bytes) {
            let right = flow::byte_at(u64::from(self.wire), at);
            assert_eq!(byte, right, "the byte at {at} of wire {}", self.wire);
        }
        self.read = head;
        self.source_hold.advance(head);
        self.sink_hold.advance(head);
    }
}

/// A small generator of the test's own choices, apart from the network's.
pub struct Chance(pub u64);

impl Chance {
    pub fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % n
    }
}

/// Moves `total` bytes in each of four buffers, with numbered control messages between; returns the history's hash.
pub fn traffic(seed: u64, config: SimConfig, total: u64) -> (u64, String) {
    let mut p = pair(seed, config);
    let mut chance = Chance(seed);
    let mut buffers: Vec<Buffer> = (0..4).map(|wire| Buffer::new(&mut p, wire + 1, 4096)).collect();
    let (mut said, mut heard) = (0u32, 0u32);
    // With each control message, how far the first buffer was queued when it was sent.
    let mut promised = Vec::new();
    let mut idle = 0;
    while buffers.iter().any(|buffer| buffer.read < total) || heard < said {
        for buffer in &mut buffers {
            let size = (1 + chance.below(300)).min(total - buffer.source.head());
            if size > 0 {
                buffer.append(size);
            }
            buffer.send(&mut p, 1 + chance.below(900));
        }
        if said < 200 && chance.below(4) == 0 && p.a.control(p.ca, &said.to_le_bytes()).is_ok() {
            said += 1;
            promised.push(buffers[0].sent);
        }
        p.a.flush(p.ca);
        let stepped = (0..chance.below(8)).filter(|_| p.net.step()).count();
        let mut told = 0;
        for event in poll(&mut p.a) {
            told += 1;
            match event {
                Event::Landed(_, wire, to) => buffers[wire as usize - 1].landed = to,
                Event::Writable(_) => {}
                event => panic!("{event:?}"),
            }
        }
        for event in poll(&mut p.b) {
            told += 1;
            match event {
                Event::Arrived(_, wire) => buffers[wire as usize - 1].check(),
                Event::Control(_, bytes) => {
                    assert_eq!(bytes, heard.to_le_bytes());
                    let ordered = p.a.promises().ordered;
                    assert!(!ordered || buffers[0].sink.head() >= promised[heard as usize]);
                    heard += 1;
                }
                event => panic!("{event:?}"),
            }
        }
        idle = if told + stepped > 0 { 0 } else { idle + 1 };
        assert!(idle < 1_000, "seed {seed}: nothing moves:\n{}", p.net.trace());
    }
    assert!(buffers.iter().all(|buffer| buffer.sink.boundary() == total));
    (p.net.fingerprint(), p.net.trace())
}

/// A range of which the network has taken something or nothing is detached, and its ring is written over at once.
pub fn detach(seed: u64, config: SimConfig) {
    let mut p = pair(seed, SimConfig { window_bytes: 64, ..config });
    let mut buffer = Buffer::new(&mut p, 1, 4096);
    assert!(buffer.append(1000));
    buffer.send(&mut p, 1000);
    p.a.flush(p.ca);
    for _ in 0..seed / 4 {
        p.net.step();
    }
    p.a.detach(p.ca, 1);
    buffer.source_hold.advance(1000);
    buffer.source.grant();
    assert!(buffer.append(4096));
    run_out(&mut p);
    assert_eq!(buffer.sink.boundary(), 1000);
    buffer.check();
}
