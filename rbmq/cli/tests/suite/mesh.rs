//! Brokers that receive from each other, with a restart of the publisher's broker. Its log comes back from the other brokers
//! before its publisher is back, and continues from the publisher as soon as it is.

use std::fmt::Write as _;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use rbmq::{
    BufferStage, ConfirmLevel, Confirmed, Event, Notice, Observer, Publisher, Subscriber, TopicOptions,
    TopicStats, TopicWriter,
};
use testkit::{LONG, Proxy, own_addr, until};

use crate::common::BrokerProcess;

/// Small rings, so that a slow subscriber soon holds the publisher.
const RING_BYTES: u64 = 64 << 10;

/// For a look.
const SHORT: Duration = Duration::from_millis(1);

/// How far one is ahead of the other at most, in fewer bytes than a ring has.
const LATE: u32 = 5_000;

/// As many as fit into the rings some times.
const PART: u32 = 12_000;

/// `N` brokers; `known` has the numbers of each broker's upstream brokers.
struct Mesh<const N: usize> {
    dir: tempfile::TempDir,
    addrs: [String; N],
    known: [&'static [usize]; N],
    brokers: [Option<BrokerProcess>; N],
}

impl<const N: usize> Mesh<N> {
    fn start(known: [&'static [usize]; N]) -> Self {
        // Addresses must be known before any broker runs.
        let addrs = [(); N].map(|()| own_addr());
        let dir = tempfile::tempdir().unwrap();
        let mut mesh = Self { dir, addrs, known, brokers: [(); N].map(|()| None) };
        (0..N).for_each(|n| mesh.run(n));
        mesh
    }

    fn run(&mut self, n: usize) {
        // The linger time is longer than the test, so that no broker or publisher is given up. The position of a killed
        // subscriber is held only for a short time.
        // A subscriber that the test reads late is waited for.
        let session = "[session]\nlinger_ms = 600000\nblock_timeout_ms = 0\n";
        let mut text = format!("{session}[buffers]\nsize_bytes = {RING_BYTES}\n");
        for upstream in self.known[n] {
            let address = &self.addrs[*upstream];
            write!(text, "[[broker.upstream]]\naddress = \"{address}\"\nhold_ms = 100\n").unwrap();
        }
        let config = self.dir.path().join(format!("{n}.toml"));
        std::fs::write(&config, text).unwrap();
        let args = ["--config", config.to_str().expect("a name")];
        self.brokers[n] = Some(BrokerProcess::start_at(&self.addrs[n], &args));
    }

    fn kill(&mut self, n: usize) {
        let broker = self.brokers[n].take().expect("the process runs");
        broker.process.signal("KILL");
        broker.process.finish();
    }

    /// The topic at a broker.
    fn topic(&self, n: usize) -> Option<TopicStats> {
        let mut observer = Observer::connect(&self.addrs[n]).expect("the broker runs");
        observer.topics(None).expect("the broker answers").pop()
    }

    /// The buffers that bring the topic to a broker.
    fn ways(&self, n: usize) -> Vec<u32> {
        let mut observer = Observer::connect(&self.addrs[n]).expect("the broker runs");
        let topic = observer.topic(&"news".parse().unwrap()).expect("the broker answers");
        let buffers = topic.buffers.iter().map(|detail| &detail.buffer);
        buffers.filter(|buffer| buffer.stage == BufferStage::Live).map(|buffer| buffer.bid).collect()
    }
}

/// A subscriber with a name and a place, or one without.
fn subscriber(addr: &str, name: &str) -> Subscriber {
    let hold = if name.is_empty() { Duration::ZERO } else { LONG };
    let builder = Subscriber::builder().until_ended(true).ring_bytes(RING_BYTES).durable(name, hold);
    let mut subscriber = builder.connect(addr).unwrap();
    subscriber.subscribe("news").unwrap();
    subscriber
}

fn topic(addr: &str, min_subscribers: u32) -> TopicWriter {
    let options = TopicOptions::default().ring_bytes(RING_BYTES).min_subscribers(min_subscribers);
    Publisher::connect(addr).unwrap().topic_with("news", options).unwrap()
}

/// Publishes numbers on a thread of its own, up to each number of the channel, and then waits for confirmation.
fn publisher(mut topic: TopicWriter) -> (SyncSender<u32>, JoinHandle<Confirmed>) {
    let (up_to, ends) = sync_channel::<u32>(8);
    let thread = std::thread::spawn(move || {
        let mut next = 0_u32;
        for end in ends {
            for n in next..end {
                topic.publish(&n.to_le_bytes()).unwrap();
            }
            next = end;
        }
        let confirmed = topic.confirm(topic.position(), ConfirmLevel::Consumed, Some(LONG)).unwrap();
        topic.close().unwrap();
        confirmed
    });
    (up_to, thread)
}

/// Each subscriber receives exactly these numbers. The subscribers read in turn, so that none holds the others.
fn expect(subscribers: &mut [Subscriber], numbers: std::ops::Range<u32>) {
    for n in numbers {
        for (which, subscriber) in subscribers.iter_mut().enumerate() {
            let message = subscriber.recv(Some(LONG)).unwrap();
            let message = message.unwrap_or_else(|| panic!("no message came to {which} in place of {n}"));
            assert_eq!(message.bytes, n.to_le_bytes(), "at {which} in place of {n}");
        }
    }
}

/// Each subscriber receives this number. All are asked in turn, as a subscriber goes from one buffer to the next while it is asked.
fn expect_at_all(subscribers: &mut [Subscriber], n: u32) {
    let mut missing: Vec<&mut Subscriber> = subscribers.iter_mut().collect();
    until("the message is everywhere", || {
        missing.retain_mut(|subscriber| match subscriber.recv(Some(SHORT)).unwrap() {
            Some(message) => {
                assert_eq!(message.bytes, n.to_le_bytes(), "in place of {n}");
                false
            }
            None => true,
        });
        missing.is_empty()
    });
}

/// Waits until a subscriber has joined a log.
fn joins(subscriber: &mut Subscriber) {
    until("the subscriber joins", || {
        matches!(subscriber.next_event(Some(SHORT)).unwrap(), Some(Event::Notice(Notice::Joined { .. })))
    });
}

/// Waits until nothing more comes to the first broker, as its ring is full.
fn rests<const N: usize>(mesh: &Mesh<N>) {
    until("nothing more comes", || {
        let head = || mesh.topic(0).map(|topic| topic.head_bytes);
        let before = head();
        std::thread::sleep(Duration::from_millis(100));
        head() == before
    });
}

/// Restarts the first broker, which has the publisher, and waits until all subscribers and brokers are back before the publisher
/// is. Then the neighbours are killed.
fn restart_where_the_publisher_is<const N: usize>(known: [&'static [usize]; N], min_subscribers: u32) {
    let mut mesh = Mesh::start(known);
    let proxy = Proxy::to(&mesh.addrs[0]);
    let mut near = [subscriber(&mesh.addrs[0], ""), subscriber(&mesh.addrs[0], "named")];
    let topic = topic(&proxy.addr, min_subscribers);
    topic.wait_subscribers(2, Some(LONG)).unwrap();
    until("the topic is at every broker", || (0..N).all(|n| mesh.topic(n).is_some()));
    let (up_to, thread) = publisher(topic);
    up_to.send(1000).unwrap();
    expect(&mut near, 0..1000);

    proxy.cut();
    mesh.kill(0);
    mesh.run(0);
    // By the others.
    near.iter_mut().for_each(joins);
    let long = mesh.ways(0);
    proxy.restore();
    // The buffer of the long way is there until the subscribers have left it, which may be at once.
    until("the short way is the only one", || matches!(mesh.ways(0)[..], [way] if !long.contains(&way)));
    up_to.send(PART).unwrap();
    // A publisher that wants both goes on when the late one has switched, too.
    if min_subscribers > 0 {
        expect_at_all(&mut near, 1000);
    }
    let next = 1000 + u32::from(min_subscribers > 0);
    // Waits for the subscriber that switches, or reads, late.
    expect(&mut near[..1], next..LATE);
    rests(&mesh);
    expect(&mut near[1..], next..LATE);
    expect(&mut near, LATE..PART);
    until("nothing comes by others any more", || {
        mesh.topic(0).is_some_and(|topic| topic.publishers == 1 && topic.ended == 0)
    });
    (1..N).for_each(|n| mesh.kill(n));
    // Few messages, so that the held positions of those brokers do not hold the writer.
    up_to.send(PART + 1000).unwrap();
    expect(&mut near, PART..PART + 1000);
    drop(up_to);
    ends(&mut near, thread);
}

/// Waits until the publisher ends. All subscribers must have everything.
fn ends(near: &mut [Subscriber], publisher: JoinHandle<Confirmed>) {
    until("the publisher has ended", || {
        near.iter_mut()
            .for_each(|near| assert_eq!(near.recv(Some(SHORT)).unwrap(), None, "a message too many"));
        near.iter().all(Subscriber::ended)
    });
    let Confirmed { subscribers, lost, .. } = publisher.join().unwrap();
    assert_eq!((subscribers, lost), (2, 0));
}

#[test]
fn a_returning_publisher_is_received_directly_and_not_through_a_neighbour() {
    restart_where_the_publisher_is([&[1], &[0]], 0);
}

#[test]
fn a_returning_publisher_is_received_directly_with_min_subscribers() {
    restart_where_the_publisher_is([&[1], &[0]], 2);
}

#[test]
fn a_returning_publisher_is_received_directly_in_a_ring_of_four() {
    restart_where_the_publisher_is([&[3], &[0], &[1], &[2]], 2);
}

#[test]
fn a_returning_publisher_is_received_directly_in_a_full_mesh() {
    restart_where_the_publisher_is([&[1, 2, 3], &[0, 2, 3], &[0, 1, 3], &[0, 1, 2]], 0);
}
