//! Real datagrams through real devices, with the programs at each place where they can be attached.

use std::net::UdpSocket;
use std::time::{Duration, Instant};

use multimqc::wire::{PULL_PORT, PUSH_PORT, PullRequest};
use multimqc::{Epoch, Stop, TopicId};
use multimqc_kernel::{Config, FrameSender, FrameSink, Kernel, Mode, Ports, Topic, numbered_message};

use crate::common;
use crate::common::net::{self, CLIENT, SERVER, World, in_world};
use crate::common::packet::{Packet, Sum};

const TOPIC: TopicId = TopicId(7);

/// The level on v0, and its topic.
fn attached(config: Config) -> Option<(Kernel, Topic)> {
    let kernel = common::kernel(config.ring_bytes(1 << 20).batch_bytes(4096))?;
    let topic = kernel.open(TOPIC, Ports::default(), 0, Epoch(9)).expect("a topic");
    kernel.attach("v0").expect("it can be attached");
    Some((kernel, topic))
}

/// A program on the client's device, which lets everything pass: without one, a native XDP program on the other end of a veth
/// pair cannot send.
fn answerable(world: &World) -> Option<Kernel> {
    world.in_client(|| {
        let kernel = common::kernel(Config::default().ring_bytes(4096).batch_bytes(1024))?;
        kernel.attach("v1").expect("it can be attached");
        Some(kernel)
    })
}

/// Waits until the topic has `bytes`, which are returned.
fn arrived(topic: &Topic, bytes: usize) -> Vec<u8> {
    let deadline = Instant::now() + Duration::from_secs(20);
    while topic.window().head < bytes as u64 {
        assert!(Instant::now() < deadline, "{} of {bytes} bytes arrived", topic.window().head);
        std::thread::sleep(Duration::from_millis(1));
    }
    let mut out = vec![0; bytes];
    let found = topic.read(0, &mut out);
    assert_eq!((found.bytes, found.stop), (bytes, Stop::Filled));
    out
}

/// Pushes messages of many sizes. Returns the bytes that the log must have.
fn push(client: &UdpSocket) -> Vec<u8> {
    let mut log = Vec::new();
    for n in 1..200_usize {
        let message: Vec<u8> = (0..n * 7).map(|at| (at * n + n) as u8).collect();
        client.send_to(&message, (SERVER, PUSH_PORT)).expect("sent");
        log.extend(message);
    }
    log
}

fn pull(client: &UdpSocket, start: u64, length: u64, padded: usize) {
    let mut request = Vec::new();
    PullRequest { start, length }.encode_padded(padded, &mut request);
    client.send_to(&request, (SERVER, PULL_PORT)).expect("sent");
}

fn reply(client: &UdpSocket) -> Vec<u8> {
    let mut buffer = vec![0; 2000];
    let (bytes, from) = client.recv_from(&mut buffer).expect("a reply in time");
    assert_eq!(from, (SERVER, PULL_PORT).into());
    buffer.truncate(bytes);
    buffer
}

/// Pushes, and pulls with requests that are as long as their replies.
fn push_and_pull(world: &World, config: Config, mode: &str) {
    let Some(_peer) = answerable(world) else { return };
    let Some((kernel, topic)) = attached(config) else { return };
    assert_eq!(kernel.modes()[0], mode);
    let client = world.client_socket();
    let log = push(&client);
    assert_eq!(arrived(&topic, log.len()), log);
    for (start, length) in [(0, 1), (5, 16), (100, 511), (4000, 1472), (7, 600)] {
        pull(&client, start as u64, length as u64, length.max(16));
        assert_eq!(reply(&client), log[start..start + length], "{length} at {start}");
    }
    assert_eq!((topic.counters().hits, topic.counters().stored), (5, 199));
    // Pulls of bytes that the level has not, and other datagrams, come to the sockets of the next level.
    let (pulls, others) = (net::socket(SERVER, PULL_PORT), net::socket(SERVER, 5555));
    let mut buffer = [0; 100];
    pull(&client, log.len() as u64, 1, 16);
    assert_eq!(pulls.recv_from(&mut buffer).expect("forwarded").0, 16);
    client.send_to(b"something else", (SERVER, 5555)).expect("sent");
    assert_eq!(others.recv_from(&mut buffer).expect("untouched").0, 14);
    kernel.detach().expect("detached");
    assert!(!net::ip("-d link show v0").expect("ip").contains("xdp"), "nothing is attached");
    // Without the level, the sockets get everything.
    let pushes = net::socket(SERVER, PUSH_PORT);
    client.send_to(b"to user space", (SERVER, PUSH_PORT)).expect("sent");
    assert_eq!(pushes.recv_from(&mut buffer).expect("untouched").0, 13);
}

#[test]
fn native_xdp() {
    in_world(|world| push_and_pull(world, Config::default(), "xdp-native"));
}

/// Frames that the kernel sends: messages with numbers, and pulls whose memory comes back as replies. A full device drops some.
#[test]
fn frames_of_the_kernel() {
    const FRAMES: u32 = 5000;
    in_world(|world| {
        let Some((kernel, topic)) = attached(Config::default()) else { return };
        world.in_client(|| {
            let push = Packet::new(PUSH_PORT, &numbered_message(70));
            let frame = Packet { sum: Sum::Unused, ..push }.frame();
            let sender = FrameSender::numbering("v1", &frame, 70).expect("loaded");
            sender.send(&frame, FRAMES).expect("sent");
            assert!(FrameSender::rewriting("v1", &frame[..63]).is_err(), "too short to be rewritten");
        });
        let log = arrived(&topic, 64);
        assert_eq!(log, [numbered_message(70), numbered_message(71)].concat(), "the first ones fit");
        let _sink = world.in_client(|| FrameSink::new("v1").expect("attached"));
        world.in_client(|| {
            let mut payload = Vec::new();
            PullRequest { start: 7, length: 50 }.encode_padded(50, &mut payload);
            let frame = Packet { sum: Sum::Unused, ..Packet::new(PULL_PORT, &payload) }.frame();
            let sender = FrameSender::rewriting("v1", &frame).expect("loaded");
            sender.send(&frame, FRAMES).expect("sent");
        });
        // A reply that was sent again as it came would be no pull.
        let deadline = Instant::now() + Duration::from_secs(20);
        while topic.counters().hits < u64::from(FRAMES) / 10 {
            assert!(Instant::now() < deadline, "pulls are answered: {:?}", topic.counters());
            std::thread::sleep(Duration::from_millis(1));
        }
        // No program of the kernel counts behind this.
        kernel.detach().expect("detached");
        let counters = topic.counters();
        assert_eq!((counters.malformed, counters.corrupt, counters.refused), (0, 0, 0));
        assert_eq!(counters.hit_bytes, counters.hits * 50);
    });
}

#[test]
fn generic_xdp() {
    in_world(|world| push_and_pull(world, Config::default().mode(Mode::XdpGeneric), "xdp-generic"));
}

#[test]
fn tcx() {
    in_world(|world| push_and_pull(world, Config::default().mode(Mode::Tcx), "tcx"));
}

#[test]
fn netfilter_stores_and_leaves_pulls_to_the_next_level() {
    in_world(|world| {
        let Some((kernel, topic)) = attached(Config::default().mode(Mode::Netfilter)) else { return };
        let (client, pulls) = (world.client_socket(), net::socket(SERVER, PULL_PORT));
        let log = push(&client);
        assert_eq!(arrived(&topic, log.len()), log);
        pull(&client, 0, 16, 16);
        let (bytes, from) = pulls.recv_from(&mut [0; 100]).expect("forwarded");
        assert_eq!((bytes, from.ip()), (16, CLIENT.into()));
        kernel.detach().expect("detached");
    });
}

/// A message that the program leaves to the network stack arrives on a socket, and gets its place in the log from there.
#[test]
fn fragments_and_long_messages_come_by_the_socket() {
    in_world(|world| {
        let Some((kernel, topic)) = attached(Config::default()) else { return };
        let (client, socket) = (world.client_socket(), net::socket(SERVER, PUSH_PORT));
        let mut log = Vec::new();
        let mut buffer = vec![0; 65_536];
        for n in [100_usize, 1473, 30_000, 50, 60_000] {
            let message: Vec<u8> = (0..n).map(|at| (at * 7 + n) as u8).collect();
            client.send_to(&message, (SERVER, PUSH_PORT)).expect("sent");
            // More than a frame carries.
            if n > 1472 {
                let received = socket.recv(&mut buffer).expect("it came by the network stack");
                assert_eq!(buffer[..received], message);
                topic.append(&buffer[..received]).expect("it fits");
            }
            log.extend(message);
            assert_eq!(arrived(&topic, log.len()), log);
        }
        assert!(topic.counters().fragments >= 3);
        kernel.detach().expect("detached");
    });
}

#[test]
fn a_trusted_network_gets_replies_of_any_size() {
    in_world(|world| {
        let Some(_peer) = answerable(world) else { return };
        let trusted = Some((CLIENT, 24));
        for mode in [Mode::Auto, Mode::XdpGeneric, Mode::Tcx] {
            let Some((kernel, topic)) = attached(Config::default().mode(mode).trusted(trusted)) else {
                return;
            };
            let client = world.client_socket();
            let log = push(&client);
            arrived(&topic, log.len());
            for length in [1, 16, 17, 64, 300, 1472, 5000] {
                pull(&client, 3, length as u64, 16);
                assert_eq!(reply(&client), log[3..3 + length.min(1472)], "{length}, {mode:?}");
            }
            assert_eq!(topic.counters().hits, 7);
            kernel.detach().expect("detached");
        }
    });
}

#[test]
fn the_loopback_interface() {
    in_world(|_| {
        let Some(kernel) = common::kernel(Config::default().trusted(Some((SERVER, 0)))) else { return };
        let topic = kernel.open(TOPIC, Ports::default(), 0, Epoch(9)).expect("a topic");
        kernel.attach("lo").expect("it can be attached");
        assert_eq!(kernel.modes(), ["xdp-generic", "tcx"]);
        let client = net::socket([127, 0, 0, 1].into(), 0);
        client.connect(("127.0.0.1", PUSH_PORT)).expect("connected");
        client.send(b"a message to this machine").expect("sent");
        assert_eq!(arrived(&topic, 25), b"a message to this machine");
        client.connect(("127.0.0.1", PULL_PORT)).expect("connected");
        let mut request = Vec::new();
        PullRequest { start: 2, length: 23 }.encode_padded(16, &mut request);
        client.send(&request).expect("sent");
        let mut buffer = [0; 100];
        let bytes = client.recv(&mut buffer).expect("a reply in time");
        assert_eq!(&buffer[..bytes], b"message to this machine");
    });
}

#[test]
fn a_batch_wakes_once() {
    in_world(|world| {
        let Some((kernel, _topic)) = attached(Config::default()) else { return };
        let client = world.client_socket();
        assert!(!kernel.wait_batch(Duration::from_millis(20)).expect("it waits"), "nothing arrived");
        let (mut bytes, mut batches) = (0, 0);
        let waiter = std::thread::scope(|scope| {
            let waiter = scope.spawn(|| {
                let mut woken = 0;
                while woken < 5 {
                    woken += u32::from(kernel.wait_batch(Duration::from_secs(20)).expect("it waits"));
                }
                woken
            });
            while !waiter.is_finished() {
                client.send_to(&[1; 1024], (SERVER, PUSH_PORT)).expect("sent");
                bytes += 1024;
                std::thread::sleep(Duration::from_millis(2));
            }
            waiter.join().expect("woken")
        });
        batches += waiter;
        assert!(bytes >= 5 * 4096, "{bytes} bytes in {batches} batches of 4,096");
        kernel.wake();
        kernel.wait_batch(Duration::from_secs(20)).expect("ended by wake");
    });
}
