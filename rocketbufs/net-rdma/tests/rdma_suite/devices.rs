//! Tests that need real verbs between processes: a killed peer, many rings, the limit of locked memory, and the adapter's work
//! for a transfer.

use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rocketnet::conformance::{Flow, Kit, Lab};
use rocketnet::{ConnId, Down, Event, SourceRange, Transport};
use rocketnet_rdma::{Rdma, RdmaConfig};
use rocketring::{Pool, PoolConfig, Ring, RingConfig};
use rustix::process::{Resource, Rlimit, setrlimit};

use crate::common::RdmaLab;

/// The limit of every wait. Only a hanging test reaches it.
const LONG: Duration = Duration::from_secs(60);
/// The environment variable with the child process's part.
const PART: &str = "ROCKETBUFS_TEST_PART";
const CAPACITY: u64 = 64 << 10;
const NOBODY: u32 = 65_534;

/// A child process that runs this test program in a part. Killed on drop.
struct Peer(Child);

impl Peer {
    fn start(part: &str, change: impl FnOnce(&mut Command)) -> Self {
        let mut command = Command::new(std::env::current_exe().expect("this program"));
        command
            .args(["--exact", "devices::as_the_peer", "--nocapture"])
            .env(PART, part)
            .stdout(Stdio::piped());
        change(&mut command);
        Self(command.spawn().expect("the same program again"))
    }

    /// The rest of the child's next line that contains `word`.
    fn says(&mut self, word: &str) -> String {
        let lines = BufReader::new(self.0.stdout.as_mut().expect("its output is a pipe")).lines();
        let found = lines.map_while(Result::ok).find_map(|line| Some(line.split_once(word)?.1.to_owned()));
        found.expect("the child prints the line")
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Polls until `found` returns a value.
fn until<R>(link: &mut Rdma, mut found: impl FnMut(&mut Rdma, Event) -> Option<R>) -> R {
    let begun = Instant::now();
    let mut events = Vec::new();
    loop {
        assert!(begun.elapsed() < LONG, "no event was the expected one");
        link.poll(Some(Duration::from_millis(10)), &mut events);
        for event in std::mem::take(&mut events) {
            if let Some(found) = found(link, event) {
                return found;
            }
        }
    }
}

fn ring() -> Ring {
    let pool = Pool::new(PoolConfig { reservation_bytes: 1 << 20, max_bytes: 1 << 20 }).expect("a pool");
    let config = RingConfig { capacity_bytes: CAPACITY, retain_bytes: Some(0), ..RingConfig::default() };
    pool.ring(config).expect("a ring")
}

/// Not a test of its own: the child process. The child listens, lands ranges of id 1, and replies with the number of landed
/// bytes.
#[test]
fn as_the_peer() {
    let Ok(part) = std::env::var(PART) else { return };
    let Some(mut lab) = RdmaLab::new(RdmaConfig::default()) else { return };
    if let Some(bytes) = part.strip_prefix("locked ") {
        let bytes = bytes.parse().expect("a number");
        setrlimit(Resource::Memlock, Rlimit { current: Some(bytes), maximum: Some(bytes) })
            .expect("less is allowed");
        return with_little_memory(&mut lab);
    }
    let mut link = lab.transport();
    println!("listens {}", link.listen(&lab.listen_address()).expect("an address of this machine"));
    let sink = ring();
    sink.hold(0).expect("the start");
    let mut receiver = sink.receiver();
    until(&mut link, |link, event| {
        match event {
            Event::Incoming(accepted) => {
                let conn = link.adopt(accepted).expect("a peer");
                link.bind(conn, 1, receiver.take().expect("one peer"));
                link.flush(conn);
            }
            Event::Arrived(conn, 1) => {
                link.control(conn, &sink.head().to_le_bytes()).expect("place");
                link.flush(conn);
            }
            Event::Down(..) => return Some(()),
            _ => {}
        }
        None
    });
}

/// Binds rings and connects with too little locked memory. Prints the number of rings that it gets back, and the reason.
fn with_little_memory(lab: &mut RdmaLab) {
    let mut link = lab.transport();
    let conn = link.connect(&lab.dead_address()).expect("a well-formed address");
    let rings = [1, 2, 3].map(|wire| (wire, ring()));
    for (wire, ring) in &rings {
        link.bind(conn, *wire, ring.receiver().expect("the first"));
    }
    let why = until(&mut link, |_, event| match event {
        Event::Down(own, why) if own == conn => Some(why),
        _ => None,
    });
    let left = rings.iter().filter(|(wire, _)| link.unbind(conn, *wire).is_some()).count();
    println!("down {left} {why}");
}

fn connect(peer: &mut Peer, lab: &mut RdmaLab) -> (Rdma, ConnId) {
    let address = peer.says("listens ");
    let mut link = lab.transport();
    let conn = link.connect(&address).expect("the peer listens there");
    until(&mut link, |_, event| match event {
        Event::Connected(own) => (own == conn).then_some(()),
        Event::Down(_, why) => panic!("{why}"),
        _ => None,
    });
    (link, conn)
}

#[test]
fn a_killed_peer_is_reported_after_its_confirmations() {
    let Some(mut lab) = RdmaLab::new(RdmaConfig::default()) else { return };
    let mut peer = Peer::start("sink", |_| ());
    let (mut link, conn) = connect(&mut peer, &mut lab);
    let source = ring();
    let hold = source.hold(0).expect("the start");
    let mut writer = source.writer().expect("the first");
    for from in (0..30_000).step_by(10_000) {
        writer.append(&[&[7; 10_000]]).expect("room");
        let range = SourceRange { ring: source.clone(), from, to: from + 10_000, mapped: false };
        link.write(conn, 1, range, false).expect("room");
    }
    link.flush(conn);
    until(&mut link, |_, event| match event {
        Event::Control(_, bytes) => (bytes == 30_000_u64.to_le_bytes()).then_some(()),
        Event::Down(_, why) => panic!("{why}"),
        _ => None,
    });
    drop(peer);
    let why = until(&mut link, |link, event| match event {
        Event::Down(own, why) if own == conn => Some(why),
        _ => {
            link.flush(conn);
            None
        }
    });
    assert!(matches!(why, Down::Broken(_)), "{why}");
    drop(hold);
}

#[test]
fn a_thousand_rings_on_one_connection() {
    let Some(mut lab) = RdmaLab::new(RdmaConfig::default()) else { return };
    let mut kit = Kit::connected(&mut lab);
    let mut flows: Vec<_> =
        (0..1_000).map(|wire| Flow::new(&mut kit, 0, 1, wire, 4_096, u64::from(wire) * 100)).collect();
    let ends: Vec<_> = flows.iter().map(|flow| flow.queued() + 700).collect();
    kit.until("all flows", |kit| {
        let mut done = true;
        for (flow, &end) in flows.iter_mut().zip(&ends) {
            flow.advance(kit, end, &mut || 700);
            done &= flow.checked() == end;
        }
        done
    });
    assert!(kit.down(0, 0).is_none() && kit.down(0, 1).is_none());
}

#[test]
fn memory_that_may_not_be_locked_is_an_error_that_says_so() {
    if RdmaLab::new(RdmaConfig::default()).is_none() {
        return;
    }
    for entry in std::fs::read_dir("/dev/infiniband").expect("there are devices").flatten() {
        std::fs::set_permissions(entry.path(), PermissionsExt::from_mode(0o666)).expect("root");
    }
    // Too little memory for a connection, and then for its second ring.
    let queues = (256 << 10) + (256 << 10);
    for locked in [4096, queues + CAPACITY + CAPACITY / 2] {
        let mut peer = Peer::start(&format!("locked {locked}"), |command| {
            command.uid(NOBODY);
        });
        let why = peer.says("down ");
        assert!(why.contains("locked memory") && why.contains("ulimit -l"), "{why}");
        assert!(why.starts_with("3 "), "not every receiver is returned: {why}");
    }
}

fn overwritable(capacity_bytes: u64) -> Ring {
    let pool = Pool::new(PoolConfig { reservation_bytes: 1 << 20, max_bytes: 1 << 20 }).expect("a pool");
    pool.ring(RingConfig { capacity_bytes, flow_control: false, ..RingConfig::default() }).expect("a ring")
}

/// Without flow control there are no grants, and still no bytes are overwritten before the receiver has polled them.
#[test]
fn without_flow_control_no_more_is_in_flight_than_the_ring_holds() {
    let Some(mut lab) = RdmaLab::new(RdmaConfig::default()) else { return };
    let mut kit = Kit::connected(&mut lab);
    let (from, to) = (kit.id(0, 1), kit.id(0, 0));
    let (source, sink) = (overwritable(4 * CAPACITY), overwritable(CAPACITY));
    kit.ends[0].link().bind(to, 1, sink.receiver().expect("the first"));
    kit.ends[0].pause(to, true);
    let empty = kit.ends[1].link().room(from);
    let mut writer = source.writer().expect("the first");
    let byte = |at: u64| (at % 251) as u8;
    let mut at = 0;
    // The last range is longer than the receiver's ring.
    for size in [40_000, 40_000, 40_000, 2 * CAPACITY] {
        let end = at + size;
        for part in (at..end).step_by(8_000) {
            writer.append(&[&(part..end.min(part + 8_000)).map(byte).collect::<Vec<_>>()]).expect("room");
        }
        kit.ends[1].write(
            from,
            1,
            SourceRange { ring: source.clone(), from: at, to: end, mapped: false },
            false,
        );
        at = end;
    }
    kit.steps(300);
    // Bytes that have left the queue were written into the peer's ring.
    let written = at - (empty - kit.ends[1].link().room(from));
    assert!(written <= CAPACITY, "{} bytes were overwritten unseen", written - CAPACITY);
    kit.ends[0].pause(to, false);
    kit.until("everything", |kit| {
        assert_eq!(kit.down(0, 0).or(kit.down(0, 1)), None);
        sink.head() == at && kit.ends[1].link().room(from) == empty
    });
    let whole = sink.view(at - CAPACITY / 2, at).to_vec().expect("the newest half");
    assert!(whole.into_iter().eq((at - CAPACITY / 2..at).map(byte)));
}

/// While this exists, every packet that the device sends is lost.
struct Lossy(&'static str);

impl Lossy {
    fn new(device: &'static str) -> Self {
        run("tc", &["qdisc", "add", "dev", device, "root", "netem", "loss", "100%"]);
        Self(device)
    }
}

impl Drop for Lossy {
    fn drop(&mut self) {
        run("tc", &["qdisc", "del", "dev", self.0, "root"]);
    }
}

fn run(program: &str, args: &[&str]) {
    let status = Command::new(program).args(args).status().expect("the program is in the virtual machine");
    assert!(status.success(), "{program} {args:?}: {status}");
}

/// `detach` with bytes in flight returns when the adapter has given up.
#[test]
fn detaching_from_a_silent_peer_gives_a_reason() {
    let Some(mut lab) = RdmaLab::new(RdmaConfig { ack_timeout: 8, retries: 1, ..RdmaConfig::default() })
    else {
        return;
    };
    let mut kit = Kit::connected(&mut lab);
    let id = kit.id(0, 1);
    let mut flow = Flow::new(&mut kit, 0, 1, 1, CAPACITY, 0);
    flow.run(&mut kit, 10_000, || 1_000);
    let lossy = Lossy::new("rdma1");
    assert!(flow.produce(10_000));
    flow.send(&mut kit, 10_000, false);
    kit.ends[1].link().flush(id);
    kit.ends[1].link().detach(id, 1);
    kit.until("Down", |kit| kit.down(0, 1).is_some());
    let why = kit.down(0, 1).expect("just seen").to_string();
    assert!(why.contains("does not answer"), "{why}");
    drop(lossy);
}

/// The adapter's work for a transfer, in counts, since times mean nothing on an emulated processor.
#[test]
fn a_transfer_is_one_request_and_few_are_signalled() {
    let Some(mut lab) = RdmaLab::new(RdmaConfig::default()) else { return };
    let mut kit = Kit::connected(&mut lab);
    let sender = kit.id(0, 1);
    let mut flow = Flow::new(&mut kit, 0, 1, 1, 1 << 20, 0);
    for (size, count, inline) in [(64, 2_000, true), (4_096, 200, false)] {
        let before = kit.ends[1].link().stats(sender);
        let mut left = count;
        kit.until("all ranges", |kit| {
            while left > 0 && flow.sendable_if_produced(kit) >= size && flow.produce(size) {
                flow.send(kit, size, false);
                left -= 1;
            }
            flow.settle(kit);
            left == 0 && flow.checked() == flow.queued()
        });
        let after = kit.ends[1].link().stats(sender);
        let (ranges, frames) = (after.ranges - before.ranges, after.frames - before.frames);
        let (requests, signalled) = (after.requests - before.requests, after.signalled - before.signalled);
        println!("{count} ranges of {size}: {requests} requests, {signalled} signalled, {frames} messages");
        assert_eq!(ranges, count);
        // A range across the ring's end takes a second request. An empty request is posted where posting stopped.
        let extra = requests - ranges - frames;
        assert!(extra <= 1 + signalled, "{extra} more");
        assert!(signalled <= requests / 4, "{signalled} of {requests} were signalled");
        assert_eq!(after.inline - before.inline >= ranges, inline);
        assert_eq!(after.copied, 0, "nothing is copied on the way");
    }
}
