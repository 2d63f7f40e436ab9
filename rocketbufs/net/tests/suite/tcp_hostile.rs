//! Peers that do not speak the protocol, or speak it badly: they lose their own connection and nothing else happens.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use rocketnet::conformance::flow::ring;
use rocketnet::conformance::random::Random;
use rocketnet::tcp::{Tcp, TcpConfig};
use rocketnet::wire::{CONTROL_WIRE, Header};
use rocketnet::{ConnId, Down, Event, SourceRange, Transport};
use rocketring::{Hold, Ring, Waker};

const CAPACITY: u64 = 64 << 10;
/// Rounds without events, of about a millisecond, before a test gives up.
const PATIENCE: usize = 60_000;

/// A listening transport, the rings that it bound as wire id 1 of each connection, and its events.
struct Victim {
    tcp: Tcp,
    address: String,
    rings: Vec<(ConnId, Ring, Hold)>,
    seen: Vec<Event>,
}

impl Victim {
    fn new(config: TcpConfig) -> Self {
        let waker = Arc::new(Waker::new().expect("an eventfd"));
        let mut tcp = Tcp::new(config, waker).expect("a valid configuration");
        let address = tcp.listen("127.0.0.1:0").expect("a port");
        Self { tcp, address, rings: Vec::new(), seen: Vec::new() }
    }

    fn dial(&mut self) -> (TcpStream, ConnId) {
        let known = self.rings.len();
        let stream = TcpStream::connect(&self.address).expect("the victim listens");
        stream.set_nodelay(true).expect("an option");
        self.until("a connection", |victim| victim.rings.len() > known);
        (stream, self.rings[known].0)
    }

    fn step(&mut self) -> bool {
        let mut events = Vec::new();
        self.tcp.poll(Some(Duration::from_millis(1)), &mut events);
        let any = !events.is_empty();
        for event in events {
            match event {
                Event::Incoming(accepted) => {
                    let conn = self.tcp.adopt(accepted).expect("place");
                    let ring = ring(CAPACITY, 0);
                    let hold = ring.hold(0).expect("the start");
                    ring.grant();
                    self.tcp.bind(conn, 1, ring.receiver().expect("the first receiver"));
                    self.rings.push((conn, ring, hold));
                }
                event => self.seen.push(event),
            }
        }
        any
    }

    fn until(&mut self, what: &str, mut condition: impl FnMut(&mut Self) -> bool) {
        let mut idle = 0;
        while !condition(self) {
            assert!(idle < PATIENCE, "waited in vain for {what}");
            idle = if self.step() { 0 } else { idle + 1 };
        }
    }

    fn down(&self, conn: ConnId) -> Option<&Down> {
        self.seen.iter().find_map(|event| match event {
            Event::Down(id, why) if *id == conn => Some(why),
            _ => None,
        })
    }

    fn controls(&self, conn: ConnId) -> usize {
        self.seen.iter().filter(|event| matches!(event, Event::Control(id, _) if *id == conn)).count()
    }

    fn head(&self, conn: ConnId) -> u64 {
        self.rings.iter().find(|(id, ..)| *id == conn).map_or(0, |(_, ring, _)| ring.head())
    }

    /// Sends `bytes` raw, ends the stream, and returns why the victim let go.
    fn verdict(&mut self, bytes: &[u8]) -> Down {
        let (mut stream, conn) = self.dial();
        // The victim may end the connection in the middle of the bytes.
        let _ = stream.write_all(bytes);
        let _ = stream.shutdown(Shutdown::Write);
        self.until("Down", |victim| victim.down(conn).is_some());
        let why = self.down(conn).cloned().expect("just seen");
        self.tcp.forget(conn);
        why
    }
}

fn header(wire: u32, size: u32) -> Vec<u8> {
    Header { wire, more: false, size }.encode().to_vec()
}

#[test]
fn an_incomplete_frame_is_reported_as_broken() {
    let mut victim = Victim::new(TcpConfig::default());
    assert_eq!(victim.verdict(b""), Down::PeerClosed);
    for bytes in [header(1, 10)[..3].to_vec(), header(1, 10), header(CONTROL_WIRE, 10)] {
        assert!(matches!(victim.verdict(&bytes), Down::Broken(_)));
    }
    for size in [10, 40_000] {
        let mut bytes = header(1, size);
        bytes.extend(vec![7; size as usize - 1]);
        assert!(matches!(victim.verdict(&bytes), Down::Broken(_)));
        bytes.push(7);
        assert_eq!(victim.verdict(&bytes), Down::PeerClosed);
    }
}

#[test]
fn lies_about_sizes_are_refused_by_the_header_alone() {
    let mut victim = Victim::new(TcpConfig { max_control_bytes: 1_000, ..TcpConfig::default() });
    let huge = victim.verdict(&header(CONTROL_WIRE, u32::MAX));
    assert_eq!(huge, Down::ControlTooLarge { size: u32::MAX.into(), max: 1_000 });
    let over = u64::from(u32::MAX) - CAPACITY;
    let expected = Down::Overrun { wire: 1, at: 0, size: u32::MAX.into(), over };
    assert_eq!(victim.verdict(&header(1, u32::MAX)), expected);
    assert_eq!(victim.verdict(&header(2, 0)), Down::UnknownWire(2));
}

#[test]
fn garbage_ends_its_own_connection_only() {
    let mut victim = Victim::new(TcpConfig::default());
    let (mut good, id) = victim.dial();
    for seed in 0..150 {
        let mut random = Random::new(seed);
        let mut bytes = Vec::new();
        // Some sense before the nonsense, so that all states of the reader see it.
        for _ in 0..random.below(5) {
            let size = random.below(300) as u32;
            bytes.extend(header(if random.below(2) == 0 { 1 } else { CONTROL_WIRE }, size));
            bytes.extend((0..size).map(|_| random.draw() as u8));
        }
        for _ in 0..random.below(2_000) {
            bytes.push(random.draw() as u8);
        }
        victim.verdict(&bytes);
        let before = victim.head(id);
        good.write_all(&header(1, 3)).and_then(|()| good.write_all(b"yes")).expect("the good one goes on");
        victim.until("the good one", |victim| victim.head(id) == before + 3);
    }
    assert_eq!(victim.down(id), None);
}

#[test]
fn slow_peers_hold_no_other_peer_up() {
    let mut victim = Victim::new(TcpConfig::default());
    let mut slow: Vec<_> = (0..20).map(|_| victim.dial()).collect();
    let (mut good, id) = victim.dial();
    let mut message = header(CONTROL_WIRE, 30);
    message.extend([9; 30]);
    for (i, byte) in message.iter().enumerate() {
        for (stream, _) in &mut slow {
            stream.write_all(&[*byte]).expect("still connected");
        }
        good.write_all(&header(1, 0))
            .and_then(|()| good.write_all(&header(CONTROL_WIRE, 0)))
            .expect("connected");
        victim.until("the good one", |victim| victim.controls(id) == i + 1);
    }
    let ids: Vec<_> = slow.iter().map(|(_, conn)| *conn).collect();
    victim.until("the slow ones", |victim| ids.iter().all(|&conn| victim.controls(conn) == 1));
}

#[test]
fn a_flood_of_empty_messages_and_ranges_is_taken_in_order() {
    let mut victim = Victim::new(TcpConfig::default());
    let (mut stream, conn) = victim.dial();
    let count = 20_000;
    let both = [header(CONTROL_WIRE, 0), header(1, 0)].concat();
    let writer = std::thread::spawn(move || stream.write_all(&both.repeat(count)).map(|()| stream));
    victim.until("all messages", |victim| victim.controls(conn) == count);
    drop(writer.join().expect("the writer ends"));
    victim.until("Down", |victim| victim.down(conn).is_some());
    assert_eq!(victim.down(conn), Some(&Down::PeerClosed));
}

#[test]
fn a_peer_that_does_not_read_fills_bounded_queues_and_can_be_closed() {
    let mut victim = Victim::new(TcpConfig { send_buffer_bytes: Some(16 << 10), ..TcpConfig::default() });
    let (mut stream, conn) = victim.dial();
    let source = ring(1 << 20, 0);
    let mut writes = 0;
    while victim.tcp.room(conn) > 0 {
        let size = victim.tcp.room(conn).min(64 << 10);
        let range = SourceRange { ring: source.clone(), from: 0, to: size, mapped: false };
        victim.tcp.write(conn, 1, range, true).expect("there was room");
        victim.tcp.flush(conn);
        writes += 1;
        assert!(writes < 1_000, "the queue has a limit");
    }
    let mut messages = 0;
    while victim.tcp.control(conn, &[1; 1_000]).is_ok() {
        messages += 1;
        assert!(messages < 10_000, "the reserve has a limit");
    }
    assert!(messages > 0, "control has a reserve");
    victim.tcp.close(conn, "does not read", Duration::from_millis(20));
    victim.until("Down", |victim| victim.down(conn).is_some());
    assert_eq!(victim.down(conn), Some(&Down::Local("does not read".into())));
    drop(source);
    let mut rest = Vec::new();
    // Bytes that the kernel had accepted still come, and then the end.
    let _ = stream.read_to_end(&mut rest);
    assert!(rest.len() > 8);
}

#[test]
fn bytes_before_a_reset_are_kept_while_paused() {
    let mut victim = Victim::new(TcpConfig::default());
    let (mut stream, conn) = victim.dial();
    victim.tcp.pause(conn, true);
    stream.write_all(&header(1, 5)).and_then(|()| stream.write_all(b"first")).expect("connected");
    // A close with something unread is a reset.
    victim.tcp.control(conn, b"never read").expect("place");
    victim.tcp.flush(conn);
    let mut one = [0];
    stream.read_exact(&mut one).expect("the message came");
    drop(stream);
    for _ in 0..20 {
        victim.step();
    }
    assert!(victim.head(conn) == 0 && victim.down(conn).is_none());
    victim.tcp.pause(conn, false);
    victim.until("Down", |victim| victim.down(conn).is_some());
    assert_eq!(victim.head(conn), 5);
    assert!(matches!(victim.down(conn), Some(Down::Broken(_))));
}
