//! The conformance suite over local sockets: rings mapped by the peer, rings copied, and with TCP beside.

use std::time::Duration;

use rocketnet::conformance::Lab;
use rocketnet::tcp::{Carry, Tcp, TcpConfig};
use rocketnet::{ConnId, Event, NotWritten, SourceRange, Transport, WireId};
use rocketring::{Hold, PeerMapper, Pool, PoolConfig, Ring, RingConfig, Writer};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::lab::TcpLab;

fn lab(carry: Carry, maps: bool) -> TcpLab {
    TcpLab { maps, ..TcpLab::new(TcpConfig { carry, ..TcpConfig::default() }, 4 << 20) }
}

/// So that most is cut and waits.
fn smallest(maps: bool) -> TcpLab {
    let config = TcpConfig {
        send_buffer_bytes: Some(1),
        tx_queue_bytes: 16 << 10,
        staging_bytes: 4 << 10,
        read_bytes: 4 << 10,
        max_control_bytes: 2_000,
        carry: Carry::Shm,
        ..TcpConfig::default()
    };
    TcpLab { maps, ..TcpLab::new(config, 4 << 20) }
}

rocketnet::conformance_tests!(mapped, lab(Carry::Shm, true));
rocketnet::conformance_tests!(mapped_in_small_pieces, smallest(true));
rocketnet::conformance_tests!(copied, lab(Carry::Shm, false));
rocketnet::conformance_tests!(copied_in_small_pieces, smallest(false));
rocketnet::conformance_tests!(auto, lab(Carry::Auto, true));

/// A range in memory that another process writes leaves over TCP with the bytes from the time of `write`, or not at all.
#[test]
fn a_range_that_is_overwritten_before_it_leaves_is_not_sent() {
    const CAPACITY: usize = 64 << 10;
    let config =
        RingConfig { capacity_bytes: CAPACITY as u64, retain_bytes: Some(0), ..RingConfig::default() };
    let pool = Pool::new(PoolConfig::default()).expect("a pool");
    let ring = pool.shared_ring(config.clone()).expect("a ring");
    let mut writer = ring.writer().expect("the first");
    let descriptor = ring.descriptor().expect("a shared ring").try_clone_to_owned().expect("a descriptor");
    let seen =
        PeerMapper::new(1, 1 << 20).map(descriptor).expect("honest").ring(config.clone()).expect("a ring");
    seen.grant();
    let (_held, mut receiver) =
        (seen.hold(0).expect("the position is held"), seen.receiver().expect("the first"));
    writer.append(&[&[1; 1000]]).expect("there is room");
    receiver.land(1000);
    receiver.end();

    let mut lab = TcpLab::plain();
    let (mut listens, mut sends) = (lab.transport(), lab.transport());
    let addr = listens.listen("127.0.0.1:0").expect("a free port");
    let to = sends.connect(&addr).expect("an address");
    let sink = pool.ring(config).expect("a ring");
    let mut first = |from, to| {
        sends.write(to, 3, SourceRange { ring: seen.clone(), from, to: 1000, mapped: false }, false)
    };
    assert_eq!(first(0, to), Ok(()));
    // No hold of the writer's process protects the range.
    while ring.head() < 2 * CAPACITY as u64 {
        writer.append(&[&[2; 1000]]).expect("there is room");
    }
    assert_eq!(first(0, to), Err(NotWritten::Overwritten));
    assert!(seen.tail() > 1000);
    while sink.head() < 1000 {
        let mut events = Vec::new();
        sends.poll(Some(Duration::from_millis(1)), &mut events);
        sends.flush(to);
        listens.poll(Some(Duration::from_millis(1)), &mut events);
        for event in events {
            match event {
                Event::Incoming(accepted) => {
                    let conn = listens.adopt(accepted).expect("place for one");
                    listens.bind(conn, 3, sink.receiver().expect("the first"));
                }
                Event::Down(_, why) => panic!("{why}"),
                _ => {}
            }
        }
    }
    assert_eq!(sink.view(0, 1000).to_vec(), Ok(vec![1; 1000]));
}

/// Page faults of this thread so far.
fn faults() -> u64 {
    let stat =
        std::fs::read_to_string("/proc/thread-self/stat").expect("the kernel's statistics of this thread");
    let after_the_name = stat.rsplit(')').next().expect("a name in brackets");
    after_the_name.split_whitespace().nth(7).and_then(|faults| faults.parse().ok()).expect("a number")
}

/// A copy of a range reuses the memory of copies that were sent. Fresh memory from the system, one page fault at a time, would
/// cost more than the rest of sending.
#[test]
fn copies_of_sent_ranges_reuse_memory() {
    const RANGE: u64 = 192 << 10;
    const ROUNDS: u64 = 100;
    let config = RingConfig { capacity_bytes: 4 * RANGE.next_power_of_two(), ..RingConfig::default() };
    let pool = Pool::new(PoolConfig::default()).expect("a pool");
    let ring = pool.shared_ring(config.clone()).expect("a ring");
    let mut writer = ring.writer().expect("the first");
    let descriptor = ring.descriptor().expect("a shared ring").try_clone_to_owned().expect("a descriptor");
    let seen = PeerMapper::new(1, 4 << 20).map(descriptor).expect("honest").ring(config).expect("a ring");
    seen.grant();
    let (_held, mut receiver) =
        (seen.hold(0).expect("the position is held"), seen.receiver().expect("the first"));
    writer.append(&[&[1; RANGE as usize]]).expect("there is room");
    receiver.land(RANGE as usize);
    receiver.end();

    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let addr = listener.local_addr().expect("the listener has an address").to_string();
    let peer = std::thread::spawn(move || {
        let (mut from, _) = listener.accept().expect("a connection");
        std::io::copy(&mut from, &mut std::io::sink()).expect("its end")
    });
    let mut sends = TcpLab::plain().transport();
    let to = sends.connect(&addr).expect("an address");
    let mut round = || {
        for _ in 0..3 {
            let source = SourceRange { ring: seen.clone(), from: 0, to: RANGE, mapped: false };
            assert_eq!(sends.write(to, 3, source, false), Ok(()));
        }
        while !sends.flush(to) {
            sends.poll(Some(Duration::from_millis(1)), &mut Vec::new());
        }
    };
    round();
    let before = faults();
    (0..ROUNDS).for_each(|_| round());
    let faults = faults() - before;
    drop(sends);
    assert!(peer.join().expect("no panic") >= 3 * (ROUNDS + 1) * RANGE);
    // Each page of the first copies takes a page fault.
    assert!(faults < 3 * RANGE / 4096 + 2 * ROUNDS, "{faults} page faults for {} copies", 3 * ROUNDS);
}

/// A ring whose writer knows a reader that follows it, and both transports. The bytes are written by this thread, so a writer that rings has done so when
/// it has written.
struct Followed {
    _writes: Tcp,
    reads: Tcp,
    conn: ConnId,
    writer: Writer,
    sink: Ring,
    _rest: (Ring, Hold),
}

const WIRE: WireId = 3;

impl Followed {
    fn new() -> Self {
        let mut lab = lab(Carry::Shm, true);
        let (mut writes, mut reads) = (lab.transport(), lab.transport());
        let addr = writes.listen("127.0.0.1:0").expect("a free port");
        let conn = reads.connect(&addr).expect("an address");
        let of = RingConfig { capacity_bytes: 1 << 16, ..RingConfig::default() };
        let source =
            Pool::new(PoolConfig::default()).expect("a pool").shared_ring(of.clone()).expect("a ring");
        let (mut sink, mut is_watched) = (None, false);
        while !is_watched {
            let mut events = Vec::new();
            writes.poll(Some(Duration::from_millis(1)), &mut events);
            reads.poll(Some(Duration::from_millis(1)), &mut events);
            for event in events {
                match event {
                    Event::Incoming(accepted) => {
                        let to = writes.adopt(accepted).expect("place for one");
                        assert!(writes.offer(to, WIRE, &source, 0));
                        writes.flush(to);
                    }
                    Event::Offered(_, _, offered) => {
                        let ring = offered.ring.expect("honest").ring(of.clone()).expect("a ring");
                        reads.bind(conn, WIRE, ring.receiver().expect("the first"));
                        assert!(reads.follow(conn, WIRE, false));
                        reads.flush(conn);
                        sink = Some(ring);
                    }
                    Event::Watched(_, _, _, Some(doorbell)) => is_watched = source.watch((0, 0, 0), doorbell),
                    Event::Down(_, why) => panic!("{why}"),
                    _ => {}
                }
            }
        }
        let sink = sink.expect("it is followed");
        let held = sink.hold(0).expect("the start is there");
        sink.grant();
        let writer = source.writer().expect("the first");
        Self { _writes: writes, reads, conn, writer, sink, _rest: (source, held) }
    }

    /// Writes some bytes. Whether the reading thread, which sleeps since before, is woken.
    fn wakes(&mut self) -> bool {
        self.reads.poll_within(true);
        self.writer.append(&[&[1; 100]]).expect("there is room");
        let sleeps_on = self.reads.pollable().expect("it can be waited for");
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        poll(&mut [PollFd::new(&sleeps_on, PollFlags::IN)], Some(&now)).expect("a descriptor") == 1
    }

    /// What the reading thread has landed. A poll that lands something may leave the doorbell to the next one.
    fn land(&mut self) -> u64 {
        let (mut events, before) = (Vec::new(), self.sink.head());
        (0..2).for_each(|_| self.reads.poll(Some(Duration::ZERO), &mut events));
        self.sink.head() - before
    }
}

/// Writers of attended rings wake nobody, until they are attended no longer. What they wrote before is told to the one that ends the attention.
#[test]
fn writers_of_attended_rings_do_not_ring() {
    let mut followed = Followed::new();
    assert!(followed.wakes() && followed.land() == 100, "nobody attends it");
    for _ in 0..3 {
        assert!(!followed.reads.attend(1) && !followed.wakes());
        assert!(followed.reads.attend(0), "there is data of which the reading thread does not know");
        assert_eq!(followed.land(), 100);
        assert!(!followed.reads.attend(1) && !followed.reads.attend(0));
        assert!(followed.wakes() && followed.land() == 100);
        // As many rings as there are not are none.
        assert!(!followed.reads.attend(2) && followed.wakes() && followed.land() == 100);
    }
}

/// The attention ends with the ring, and does not begin again with the next one.
#[test]
fn another_ring_is_not_attended() {
    let mut followed = Followed::new();
    assert!(!followed.reads.attend(1) && !followed.wakes());
    let receiver = followed.reads.unbind(followed.conn, WIRE).expect("it was bound");
    followed.reads.bind(followed.conn, WIRE, receiver);
    assert!(followed.reads.follow(followed.conn, WIRE, false));
    assert_eq!(followed.land(), 100);
    assert!(followed.wakes() && followed.land() == 100);
}
