//! The sessions of several queues on a simulated network that loses, repeats, delays, damages and forges, from a seed.
//!
//! `CMQ_SEED=7` replays a run; `CMQ_SEEDS=10000` sets the number of runs.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use testkit::Random;

use super::{Output, Route, Sessions};
use crate::event::{Event, HandshakeError, Refusal};
use crate::proto::random::{addr, seeds};
use crate::security::{SecretKey, Security};
use crate::wire::secured::{HEADER_BYTES, Header, Kind, TAG_BYTES};

fn secret(number: u8) -> SecretKey {
    SecretKey::from_bytes([number; 32])
}

fn machine(security: Security, now: Instant, seed: u64) -> Sessions {
    let mut random = Random::new(seed);
    let fill = move |bytes: &mut [u8]| bytes.iter_mut().for_each(|byte| *byte = random.draw() as u8);
    Sessions::new(security, now, Box::new(fill))
}

/// A queue: its machine, and what arrived.
struct Node {
    sessions: Sessions,
    got: Vec<(SocketAddr, Vec<u8>)>,
    failed: BTreeSet<Vec<u8>>,
    events: Vec<Event>,
}

/// A datagram on its way: when it arrives, its number, its source and destination, its bytes.
type Flying = Reverse<(Instant, u64, SocketAddr, SocketAddr, Vec<u8>)>;

/// The network: datagrams on their way, by the time of their arrival.
struct Net {
    now: Instant,
    random: Random,
    loss: u64,
    repeat: u64,
    hostile: bool,
    nodes: BTreeMap<SocketAddr, Node>,
    flying: BinaryHeap<Flying>,
    seen: Vec<(SocketAddr, SocketAddr, Vec<u8>)>,
    count: u64,
}

impl Net {
    fn new(seed: u64) -> Net {
        let mut random = Random::new(seed);
        Net {
            now: Instant::now(),
            loss: random.below(31),
            repeat: random.below(20),
            hostile: random.percent(70),
            random,
            nodes: BTreeMap::new(),
            flying: BinaryHeap::new(),
            seen: Vec::new(),
            count: 0,
        }
    }

    fn add(&mut self, at: SocketAddr, security: Security) {
        let sessions = machine(security, self.now, self.random.draw());
        let (got, failed, events) = (Vec::new(), BTreeSet::new(), Vec::new());
        self.nodes.insert(at, Node { sessions, got, failed, events });
    }

    fn fly(&mut self, from: SocketAddr, to: SocketAddr, bytes: Vec<u8>) {
        self.seen.push((from, to, bytes.clone()));
        let copies =
            if self.random.percent(self.loss) { 0 } else { 1 + u64::from(self.random.percent(self.repeat)) };
        for _ in 0..copies {
            let arrives = self.now + Duration::from_millis(1 + self.random.below(60));
            self.count += 1;
            self.flying.push(Reverse((arrives, self.count, from, to, bytes.clone())));
        }
        if self.hostile && self.random.percent(20) {
            self.attack();
        }
    }

    /// Replays, damages, or redirects something that was seen, or sends noise.
    fn attack(&mut self) {
        let at = self.random.below(self.seen.len() as u64) as usize;
        let (mut from, mut to, mut bytes) = self.seen[at].clone();
        match self.random.below(5) {
            0 => {}
            1 => {
                let bit = self.random.below(bytes.len() as u64 * 8) as usize;
                bytes[bit / 8] ^= 1 << (bit % 8);
            }
            2 => std::mem::swap(&mut from, &mut to),
            3 => {
                let header = Header::parse(&bytes).map(|header| Header { kind: Kind::Reset, ..header });
                if let Ok(header) = header {
                    bytes = header.encode().to_vec();
                    std::mem::swap(&mut from, &mut to);
                }
            }
            _ => {
                let length = self.random.below(200) as usize;
                bytes = (0..length).map(|_| self.random.draw() as u8).collect();
                bytes.splice(..bytes.len().min(2), [0xC5, 0x20 | self.random.below(8) as u8]);
            }
        }
        let arrives = self.now + Duration::from_millis(1 + self.random.below(500));
        self.count += 1;
        self.flying.push(Reverse((arrives, self.count, from, to, bytes)));
    }

    fn send(&mut self, from: SocketAddr, to: SocketAddr, plain: &[u8]) {
        let (now, node) = (self.now, self.nodes.get_mut(&from).expect("a node"));
        let mut sealed = None;
        match node.sessions.route(now, to, 1, plain.len() as u64) {
            Route::Sealed(key, number) => {
                let mut datagram = vec![0; HEADER_BYTES];
                datagram.extend_from_slice(plain);
                datagram.resize(datagram.len() + TAG_BYTES, 0);
                key.seal(number, &mut datagram);
                sealed = Some(datagram);
            }
            Route::Wait => node.sessions.wait(to, plain.to_vec()),
            Route::Failed(_) => drop(node.failed.insert(plain.to_vec())),
        }
        if let Some(datagram) = sealed {
            self.fly(from, to, datagram);
        }
        self.apply(from);
    }

    fn apply(&mut self, at: SocketAddr) {
        let node = self.nodes.get_mut(&at).expect("a node");
        for output in node.sessions.take_outputs() {
            match output {
                Output::Send(to, bytes) => self.fly(at, to, bytes),
                Output::Ready => {
                    let sessions = &mut self.nodes.get_mut(&at).expect("a node").sessions;
                    let released: Vec<_> = sessions.take_released().collect();
                    released.iter().for_each(|(to, plain)| self.send(at, *to, plain));
                }
                Output::Failed(_, _, waited) => {
                    self.nodes.get_mut(&at).expect("a node").failed.extend(waited);
                }
                Output::Event(event) => self.nodes.get_mut(&at).expect("a node").events.push(event),
            }
        }
    }

    /// Runs for this time.
    fn run(&mut self, time: Duration) {
        let end = self.now + time;
        loop {
            let arrival = self.flying.peek().map(|Reverse((arrives, ..))| *arrives);
            let deadline = self.nodes.values().filter_map(|node| node.sessions.next_deadline()).min();
            let next = [arrival, deadline].into_iter().flatten().min().filter(|&next| next <= end);
            let Some(next) = next else { break };
            self.now = self.now.max(next);
            if arrival.is_some_and(|arrival| arrival <= self.now) {
                let Reverse((.., from, to, mut bytes)) = self.flying.pop().expect("a datagram flies");
                let Some(node) = self.nodes.get_mut(&to) else { continue };
                if let Some(plain) = node.sessions.receive(self.now, from, &mut bytes) {
                    node.got.push((from, bytes[plain].to_vec()));
                }
                self.apply(to);
            }
            for at in self.nodes.keys().copied().collect::<Vec<_>>() {
                let now = self.now;
                self.nodes.get_mut(&at).expect("a node").sessions.expire(now);
                self.apply(at);
            }
        }
        self.now = end;
    }

    fn got(&self, at: SocketAddr) -> &[(SocketAddr, Vec<u8>)] {
        &self.nodes[&at].got
    }
}

/// A server and two clients; the server answers. Whatever the network and an attacker do: nothing arrives twice, nothing is
/// forged, and on a network that has become good everything arrives.
fn run(seed: u64) {
    let mut net = Net::new(seed);
    let (server, one, two) = (addr(1), addr(2), addr(3));
    let quick = |security: Security| security.rekey_after(Duration::from_secs(1)).rekey_bytes(1 << 16);
    net.add(server, quick(Security::new(secret(1)).allow(secret(2).public()).allow(secret(3).public())));
    for (at, number) in [(one, 2), (two, 3)] {
        net.add(at, quick(Security::new(secret(number)).default_peer(secret(1).public())));
    }
    let mut sent: BTreeMap<(SocketAddr, SocketAddr), BTreeSet<Vec<u8>>> = BTreeMap::new();
    for number in 0..150_u64 {
        let (from, to) =
            [(one, server), (two, server), (server, one), (server, two)][net.random.below(4) as usize];
        let plain = format!("{number} from {from} to {to}").into_bytes();
        sent.entry((from, to)).or_default().insert(plain.clone());
        net.send(from, to, &plain);
        let pause = if net.random.percent(3) { 2500 } else { net.random.below(100) };
        net.run(Duration::from_millis(pause));
        if net.random.percent(2) {
            // The server is restarted: it has lost its sessions.
            let got = std::mem::take(&mut net.nodes.get_mut(&server).expect("a node").got);
            net.add(
                server,
                quick(Security::new(secret(1)).allow(secret(2).public()).allow(secret(3).public())),
            );
            net.nodes.get_mut(&server).expect("a node").got = got;
        }
    }
    net.run(Duration::from_secs(20));
    check(&net, &sent);
    (net.loss, net.repeat, net.hostile) = (0, 0, false);
    // A datagram for a session that the server has lost is lost too, and makes the client begin another one.
    for from in [one, two] {
        net.send(from, server, b"wake up");
        net.run(Duration::from_secs(8));
        net.send(from, server, b"at last");
        net.run(Duration::from_secs(1));
        assert!(net.got(server).contains(&(from, b"at last".to_vec())), "seed {seed}: {from} is cut off");
        net.send(server, from, b"answer");
        net.run(Duration::from_secs(1));
        assert!(net.got(from).contains(&(server, b"answer".to_vec())), "seed {seed}: no answer for {from}");
    }
}

fn check(net: &Net, sent: &BTreeMap<(SocketAddr, SocketAddr), BTreeSet<Vec<u8>>>) {
    for (to, node) in &net.nodes {
        let mut once = BTreeSet::new();
        for (from, plain) in &node.got {
            assert!(once.insert(plain), "{} arrived twice", String::from_utf8_lossy(plain));
            // An attacker who redirects a datagram changes its apparent source, never its bytes.
            let known = sent.iter().any(|((_, receiver), all)| receiver == to && all.contains(plain));
            assert!(known, "{from} sent {plain:?}, which nobody sent");
        }
    }
}

#[test]
fn nothing_is_forged_or_repeated() {
    seeds(60, run);
}

/// Two nodes that know each other, with a session.
fn pair() -> Net {
    let mut net = Net::new(1);
    (net.loss, net.repeat, net.hostile) = (0, 0, false);
    net.add(addr(1), Security::new(secret(1)));
    net.add(addr(2), Security::new(secret(2)).peer(addr(1), secret(1).public()));
    net.send(addr(2), addr(1), b"hello");
    net.run(Duration::from_secs(1));
    assert_eq!(net.got(addr(1)), [(addr(2), b"hello".to_vec())]);
    net
}

/// A batch that is sent before those of a handshake are taken waits behind them.
#[test]
fn nothing_overtakes_what_waited_for_a_handshake() {
    let now = Instant::now();
    let mut sender = machine(Security::new(secret(2)).default_peer(secret(1).public()), now, 1);
    let mut receiver = machine(Security::new(secret(1)).allow(secret(2).public()), now, 2);
    for batch in [b"first".to_vec(), b"second".to_vec()] {
        assert!(matches!(sender.route(now, addr(1), 1, 5), Route::Wait));
        sender.wait(addr(1), batch);
    }
    let sent = |outputs: Vec<Output<Vec<u8>>>| {
        let datagrams = outputs.into_iter().filter_map(|output| match output {
            Output::Send(_, bytes) => Some(bytes),
            _ => None,
        });
        datagrams.collect::<Vec<_>>()
    };
    for mut hello in sent(sender.take_outputs()) {
        assert_eq!(receiver.receive(now, addr(2), &mut hello), None);
    }
    for mut welcome in sent(receiver.take_outputs()) {
        assert_eq!(sender.receive(now, addr(1), &mut welcome), None);
    }
    assert!(matches!(sender.route(now, addr(1), 1, 5), Route::Wait));
    sender.wait(addr(1), b"third".to_vec());
    let released: Vec<_> = sender.take_released().map(|(_, batch)| batch).collect();
    assert_eq!(released, [&b"first"[..], b"second", b"third"]);
    assert!(matches!(sender.route(now, addr(1), 1, 5), Route::Sealed(..)));
}

#[test]
fn keys_are_renewed_by_time_and_by_bytes() {
    let mut net = pair();
    net.run(Duration::from_secs(121));
    net.send(addr(2), addr(1), b"old keys");
    net.run(Duration::from_secs(1));
    assert_eq!(net.nodes[&addr(2)].sessions.counts().renewals, 1);
    net.run(Duration::from_secs(8));
    assert_eq!(net.nodes[&addr(1)].sessions.counts().sessions, 2, "late datagrams are opened");
    net.run(Duration::from_secs(3));
    assert_eq!(net.nodes[&addr(1)].sessions.counts().sessions, 1);
    for _ in 0..2 + (4_u64 << 30) / 60_000 {
        let node = net.nodes.get_mut(&addr(2)).expect("a node");
        assert!(matches!(node.sessions.route(net.now, addr(1), 1, 60_000), Route::Sealed(..)));
    }
    net.apply(addr(2));
    net.run(Duration::from_secs(1));
    assert_eq!(net.nodes[&addr(2)].sessions.counts().renewals, 2);
    // Without an answer the keys end.
    net.loss = 100;
    net.run(Duration::from_secs(181));
    let node = net.nodes.get_mut(&addr(2)).expect("a node");
    assert!(matches!(node.sessions.route(net.now, addr(1), 1, 1), Route::Wait));
    net.apply(addr(2));
    net.run(Duration::from_secs(6));
    assert_eq!(net.nodes[&addr(2)].sessions.counts().failed, 1);
}

#[test]
fn strangers_and_wrong_keys_are_refused() {
    let mut net = pair();
    net.add(addr(1), Security::new(secret(1)).allow(secret(2).public()));
    net.add(addr(4), Security::new(secret(4)).default_peer(secret(1).public()));
    net.add(addr(5), Security::new(secret(2)).default_peer(secret(9).public()));
    let shared = Security::new(secret(2)).default_peer(secret(1).public()).shared_secret(Some(secret(8)));
    net.add(addr(6), shared);
    for from in [4, 5, 6] {
        net.send(addr(from), addr(1), b"let me in");
        net.run(Duration::from_secs(6));
        assert_eq!(net.nodes[&addr(from)].failed.len(), 1, "{from}");
    }
    assert!(net.got(addr(1)).is_empty());
    let events = &net.nodes[&addr(1)].events;
    let refused = |why| events.contains(&Event::Refused { from: addr(4), why });
    assert!(refused(Refusal::Stranger(secret(4).public())));
    let failed = net.nodes.get_mut(&addr(1)).expect("a node").sessions.route(net.now, addr(7), 1, 1);
    assert!(matches!(failed, Route::Failed(HandshakeError::NoKey)));
}

/// Hellos of one host and of many: half-open handshakes are bounded, forged addresses get a cookie that they never see, and an
/// honest queue gets in.
#[test]
fn a_flood_of_hellos_is_bounded() {
    let mut net = pair();
    let limit = 64;
    net.add(addr(1), Security::new(secret(1)).max_half_open(limit));
    let mut answers = 0;
    for number in 0..2000_u32 {
        let from = SocketAddr::from((number.to_be_bytes(), 9));
        let mut attacker =
            machine(Security::new(secret(7)).default_peer(secret(1).public()), net.now, number.into());
        assert!(matches!(attacker.route(net.now, addr(1), 1, 1), Route::Wait));
        for output in attacker.take_outputs() {
            let Output::Send(_, mut hello) = output else { continue };
            let server = &mut net.nodes.get_mut(&addr(1)).expect("a node").sessions;
            assert_eq!(server.receive(net.now, from, &mut hello), None);
            for output in server.take_outputs() {
                if let Output::Send(to, answer) = output {
                    assert!(to == from && answer.len() <= hello.len());
                    answers += 1;
                }
            }
        }
    }
    let server = &net.nodes[&addr(1)].sessions;
    let counts = server.counts();
    assert!(counts.sessions as usize + server.half_open() <= limit, "{counts:?}");
    assert!(counts.cookies >= 1900 && answers == 2000, "{counts:?}");
    net.add(addr(4), Security::new(secret(4)).default_peer(secret(1).public()));
    net.send(addr(4), addr(1), b"let me in");
    net.run(Duration::from_secs(2));
    assert!(net.got(addr(1)).contains(&(addr(4), b"let me in".to_vec())), "with its cookie");
}

/// Hellos from forged addresses, each of a host of its own, cost no confirmed peer its session, however full the table is.
#[test]
fn hellos_evict_no_confirmed_session() {
    let mut net = pair();
    net.add(addr(1), Security::new(secret(1)).max_sessions(2).max_half_open(64));
    for from in [2, 3] {
        net.add(addr(from), Security::new(secret(from as u8)).default_peer(secret(1).public()));
        net.send(addr(from), addr(1), b"first");
        net.run(Duration::from_secs(1));
    }
    for number in 0..50_u32 {
        let from = SocketAddr::from(([10, 0, 1, number as u8], 9));
        let mut attacker =
            machine(Security::new(secret(7)).default_peer(secret(1).public()), net.now, number.into());
        assert!(matches!(attacker.route(net.now, addr(1), 1, 1), Route::Wait));
        for output in attacker.take_outputs() {
            let Output::Send(_, mut hello) = output else { continue };
            net.nodes.get_mut(&addr(1)).expect("a node").sessions.receive(net.now, from, &mut hello);
        }
    }
    let server = &net.nodes[&addr(1)].sessions;
    assert!(server.half_open() > 2 && server.counts().evicted == 0);
    for from in [2, 3] {
        net.send(addr(1), addr(from), b"still here");
        net.run(Duration::from_secs(1));
        assert!(net.got(addr(from)).contains(&(addr(1), b"still here".to_vec())));
    }
}

#[test]
fn a_peer_may_move() {
    let mut net = pair();
    let node = net.nodes.remove(&addr(2)).expect("a node");
    net.nodes.insert(addr(8), node);
    net.send(addr(8), addr(1), b"from elsewhere");
    net.run(Duration::from_secs(1));
    assert!(net.got(addr(1)).contains(&(addr(8), b"from elsewhere".to_vec())));
    net.send(addr(1), addr(8), b"answer");
    net.run(Duration::from_secs(1));
    assert_eq!(net.got(addr(8)).len(), 1);
}
