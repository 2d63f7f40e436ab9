//! Ingests by the level in the kernel, between two network namespaces.

#[path = "../../../../multimqc/kernel/tests/common/net.rs"]
#[allow(dead_code, reason = "shared with the tests of the level")]
mod net;

use std::io::Write;
use std::net::UdpSocket;
use std::time::{Duration, Instant};

use crate::common::{Got, ingest, message, push, send_stored, serve, serve_at, subscribe, wait_for};
use net::{SERVER, World, in_world, ip};
use rbmq_broker::{Broker, IngestLevel, IngestSettings};

const PORT: u16 = 19_997;

/// Says past the test harness that a test did not run.
fn skip(why: &str) {
    let line = format!("SKIPPED: {why}\n");
    std::io::stderr().write_all(line.as_bytes()).expect("standard error");
}

fn from_kernel() -> IngestSettings {
    ingest("multimqc:v0/7", IngestLevel::Kernel, PORT)
}

/// Runs a test in a world of its own, where eBPF can be used.
fn with_kernel(test: impl FnOnce(&World) + Send) {
    let kernel = multimqc_kernel::Kernel::new(multimqc_kernel::Config::default());
    match kernel {
        Ok(_) => in_world(test),
        Err(error) if error.is_missing_right() => skip(&format!("eBPF needs root ({error})")),
        Err(error) => panic!("{error}"),
    }
}

fn send_one(socket: &UdpSocket, number: u32) {
    socket.send_to(&push(7, number, &message(number)), (SERVER, PORT)).expect("sent");
}

/// Sends while no broker says what the level has stored.
fn send(socket: &UdpSocket, numbers: std::ops::Range<u32>) {
    for number in numbers {
        send_one(socket, number);
        if number.is_multiple_of(32) {
            std::thread::sleep(Duration::from_micros(500));
        }
    }
}

fn send_to(broker: &Broker, socket: &UdpSocket, numbers: std::ops::Range<u32>) {
    send_stored(broker, numbers, |number| send_one(socket, number));
}

#[test]
fn messages_come_from_the_kernel_level() {
    with_kernel(|world| {
        let (broker, ingest) = serve(vec![from_kernel()]);
        assert!(ingest.describe()[0].contains("level kernel, xdp-native"), "{:?}", ingest.describe());
        let mut subscriber = subscribe(&broker, "multimqc/7");
        let socket = world.client_socket();
        send_to(&broker, &socket, 0..20_000);
        // Longer than the programs store: it comes through a socket, between the others.
        let long = 3000_u32;
        let mut bytes = long.to_le_bytes().to_vec();
        bytes.resize(4 + long as usize % 60, long as u8);
        socket.send_to(&push(7, 20_000, &bytes), (SERVER, PORT)).expect("sent");
        let mut got = Got::default();
        got.until(&mut subscriber, |got| got.numbers.len() == 20_001);
        assert!(got.numbers[..20_000].iter().copied().eq(0..20_000), "all, in order");
        let values = wait_for(&broker, |values| values.messages == 20_001);
        assert_eq!((values.holes, values.lost_messages, values.bytes), (0, 0, got.bytes));
    });
}

#[test]
fn an_interface_that_comes_back_is_used_again() {
    with_kernel(|world| {
        let (broker, _ingest) = serve(vec![from_kernel()]);
        let mut subscriber = subscribe(&broker, "multimqc/7");
        let mut got = Got::default();
        send(&world.client_socket(), 0..100);
        got.until(&mut subscriber, |got| got.numbers.len() == 100);
        ip("link del v0").expect("deleted");
        wait_for(&broker, |values| !values.is_up);
        world.add_devices().expect("made again");
        wait_for(&broker, |values| values.is_up);
        send(&world.client_socket(), 100..200);
        got.until(&mut subscriber, |got| got.numbers.len() == 200);
        got.assert_numbers(0..200);
    });
}

#[test]
fn a_kept_level_goes_on_without_the_broker() {
    with_kernel(|world| {
        let mut settings = from_kernel();
        settings.keep = Some("/sys/fs/bpf/rbmq".into());
        settings.ring_bytes = 512 << 10;
        let (broker, ingest) = serve(vec![settings.clone()]);
        let addr = broker.addr();
        let mut subscriber = subscribe(&broker, "multimqc/7");
        let (socket, mut got) = (world.client_socket(), Got::default());
        // Several rings, so that the kept one begins inside of a message; no more at once than a ring takes while nobody reads it.
        for sent in (0..40_000).step_by(4_000) {
            send_to(&broker, &socket, sent..sent + 4_000);
            got.until(&mut subscriber, |got| got.numbers.len() == sent as usize + 4_000);
        }
        // The last turn notes the mark of a boundary, and is over when the ingest is.
        wait_for(&broker, |values| values.lag_bytes == 0);
        drop(ingest);
        broker.stop();
        send(&socket, 40_000..42_000);
        let (broker, _ingest) = serve_at(&addr, vec![settings]);
        send(&socket, 42_000..44_000);
        got.until(&mut subscriber, |got| got.numbers.last() == Some(&43_999));
        // Also those that came between the brokers.
        got.assert_numbers(0..44_000);
        assert_eq!(got.lost_bytes, 0);
        wait_for(&broker, |values| values.is_up);
        assert!(multimqc_kernel::detach(std::path::Path::new("/sys/fs/bpf/rbmq")).is_err(), "in use");
    });
}

#[test]
fn a_full_broker_loses_what_the_kernel_overwrites_and_says_so() {
    with_kernel(|world| {
        let mut settings = from_kernel();
        settings.ring_bytes = 512 << 10;
        let (broker, _ingest) = serve(vec![settings]);
        let builder = rbmq::Subscriber::builder().slow(rbmq::SlowPolicy::BlockFor { timeout: None });
        let mut subscriber = builder.connect(&broker.addr()).expect("a connection");
        subscriber.subscribe_from("multimqc/7", rbmq::StartFrom::Oldest).expect("a topic");
        let (socket, mut got) = (world.client_socket(), Got::default());
        send_to(&broker, &socket, 0..1);
        got.until(&mut subscriber, |got| got.numbers.len() == 1);
        let (began, mut sent) = (Instant::now(), 1);
        while !wait_for(&broker, |_| true).is_full || sent < 80_000 {
            send_to(&broker, &socket, sent..sent + 10_000);
            sent += 10_000;
            assert!(began.elapsed() < crate::common::LONG, "the broker becomes full");
        }
        send_to(&broker, &socket, sent..sent + 30_000);
        sent += 30_000;
        got.until(&mut subscriber, |got| got.numbers.last() == Some(&(sent - 1)));
        let values = wait_for(&broker, |values| {
            values.lag_bytes == 0 && values.messages + values.lost_messages == u64::from(sent)
        });
        assert!(values.holes > 0, "{values:?}");
        assert_eq!((got.numbers.len() as u64, got.lost_bytes), (values.messages, values.lost_bytes));
        let all: u64 = (0..sent).map(|number| 4 + message(number).len() as u64).sum();
        assert_eq!(got.bytes + got.lost_bytes, all, "every byte is accounted for");
    });
}

#[test]
fn ten_thousand_devices_reach_a_subscriber() {
    const DEVICES: u32 = 10_000;
    const ROUNDS: u32 = 10;
    with_kernel(|world| {
        rbmq_broker::raise_descriptor_limit();
        let mut settings = from_kernel();
        settings.push_port = Some(19_999);
        let (broker, _ingest) = serve(vec![settings]);
        let mut subscriber = subscribe(&broker, "multimqc/7");
        let sockets: Vec<UdpSocket> = world.in_client(|| {
            ip("route add local 10.64.0.0/16 dev lo").expect("local addresses");
            let address = |device: u32| std::net::Ipv4Addr::from_bits(0x0a40_0001 + device);
            let bind = |device| UdpSocket::bind((address(device), 0)).expect("a device");
            (0..DEVICES).map(bind).collect()
        });
        let mut got = Got::default();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                send_stored(&broker, 0..DEVICES * ROUNDS, |number| {
                    let socket = &sockets[(number % DEVICES) as usize];
                    socket.send_to(&message(number), (SERVER, 19_999)).expect("sent");
                });
            });
            got.until(&mut subscriber, |got| got.numbers.len() as u32 == DEVICES * ROUNDS);
        });
        got.assert_numbers(0..DEVICES * ROUNDS);
        // The counters are those of the last look, which may be older than what has arrived.
        let all = u64::from(DEVICES * ROUNDS);
        let values = wait_for(&broker, |values| values.lag_bytes == 0 && values.messages >= all);
        assert_eq!((values.messages, values.lost_messages, got.lost_bytes), (all, 0, 0));
    });
}
