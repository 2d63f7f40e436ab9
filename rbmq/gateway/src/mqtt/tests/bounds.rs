//! What clients make the gateway hold that acknowledge nothing, or wait for acknowledgements; and the clock of the machine.

use std::sync::atomic::{AtomicU64, Ordering};

use super::journal::Kept;
use super::*;

fn send_publish(site: &mut Site, conn: ConnId, packet_id: u16, qos: u8) {
    let publish = Publish { packet_id, ..message("t", qos, "x") };
    site.0.feed(conn, Packet::Publish(publish).encode(V5));
}

#[test]
fn a_client_without_acknowledgements_is_read_so_far() {
    let kept = Kept::with(Settings { receive_maximum: 10, ..Settings::default() }, 16 << 20);
    let mut site = kept.start();
    let subscriber = site.plain(V5, "s");
    site.subscribe(subscriber, "t", 0);
    let publisher = site.client(Hello { keep_alive: 10, ..Hello::new(V5, "p") });
    (1..=35).for_each(|id| send_publish(&mut site, publisher, id, 1));
    assert_eq!(site.0.bus.published.len(), 10);
    assert!(site.0.is_blocked(publisher));
    // Nobody reads it: it is not silent.
    site.0.pass(Duration::from_secs(20));
    assert!(!site.is_closed(publisher));
    let mut got = Vec::new();
    for _ in 0..4 {
        site.0.deliver();
        assert!(site.0.protocol.clients[&publisher].owed.len() <= 10);
        got.extend(site.got(publisher));
    }
    assert_eq!(got, Vec::from_iter((1..=35).map(|id| format!("PUBACK #{id} 00"))));
}

#[test]
fn clients_that_come_and_go_leave_no_message_that_is_awaited() {
    let kept = Kept::new();
    let mut site = kept.start();
    let subscriber = site.plain(V5, "s");
    site.subscribe(subscriber, "t", 0);
    let lasting = site.client(Hello::lasting(V5, "l"));
    send_publish(&mut site, lasting, 1, 2);
    for _ in 0..3 {
        let publisher = site.plain(V5, "p");
        (1..=5).for_each(|id| send_publish(&mut site, publisher, id, 1 + (id % 2) as u8));
        site.0.bus.published.clear();
        site.lose(publisher);
    }
    site.lose(lasting);
    assert_eq!(site.0.protocol.awaited.len(), 1);
    // Its session ends.
    site.pass(1001);
    assert_eq!(site.0.protocol.awaited.len(), 0);
}

#[test]
fn filters_that_are_not_in_force_keep_no_acknowledgement_back() {
    let kept = Kept::new();
    let mut site = kept.start();
    let subscriber = site.plain(V5, "a");
    site.subscribe(subscriber, "t", 0);
    site.0.bus.is_late = true;
    let late = site.plain(V5, "b");
    assert_eq!(site.subscribe_with(late, 0, &[("#", 0)]), [""; 0]);
    let publisher = site.plain(V5, "p");
    send_publish(&mut site, publisher, 1, 1);
    site.0.bus.published.clear();
    assert_eq!(site.got(publisher), [""; 0]);
    site.lose(subscriber);
    assert_eq!(site.got(publisher), ["PUBACK #1 00"]);
}

#[test]
fn messages_in_flight_have_so_many_bytes() {
    let settings = Settings { max_queued_bytes: 300_000, ..Settings::default() };
    let mut site = Site::with(settings);
    let subscriber = site.plain(V5, "s");
    site.subscribe(subscriber, "t", 1);
    let publisher = site.plain(V5, "p");
    let large = "x".repeat(100_000);
    (0..10).for_each(|_| site.publish(publisher, "t", 0, &large));
    (0..10).for_each(|_| site.publish(publisher, "t", 1, &large));
    let is_acknowledged = |words: Vec<String>| words.iter().filter(|word| word.contains(" q1 ")).count();
    assert_eq!(is_acknowledged(site.got(subscriber)), 3);
    for id in 1..=2 {
        site.ack(subscriber, AckKind::Puback, id, 0);
        assert_eq!(is_acknowledged(site.got(subscriber)), 1);
    }
    (3..=5).for_each(|id| site.ack(subscriber, AckKind::Puback, id, 0));
    assert_eq!(is_acknowledged(site.got(subscriber)), 0);
}

/// What waits because much is queued for the connection is looked at until that is sent, however often it is still too much.
#[test]
fn a_queue_behind_a_full_connection_is_not_forgotten() {
    let mut site = Site::new();
    let subscriber = site.plain(V5, "s");
    site.subscribe(subscriber, "t", 1);
    let publisher = site.plain(V5, "p");
    site.0.out.queued = 1 << 20;
    site.publish(publisher, "t", 1, "x");
    (0..3).for_each(|_| site.pass(1));
    assert_eq!(site.got(subscriber), [""; 0]);
    site.0.out.queued = 0;
    site.pass(1);
    assert_eq!(site.got(subscriber), ["PUBLISH t q1 #1 x"]);
}

static WALL: AtomicU64 = AtomicU64::new(1_000_000);

#[test]
fn sessions_live_on_when_the_clock_of_the_machine_is_set() {
    const DAYS: u64 = 3 * 24 * 3600;
    let wall_clock: Option<fn() -> u64> = Some(|| WALL.load(Ordering::Relaxed));
    let kept = Kept::with(Settings { wall_clock, ..Settings::default() }, 16 << 20);
    let mut site = kept.start();
    let conn = site.client(Hello::lasting(V5, "s"));
    site.got(conn);
    site.lose(conn);
    // The machine began without a clock of its own.
    WALL.fetch_add(DAYS * 1000, Ordering::Relaxed);
    site.pass(20);
    let conn = site.0.open();
    site.got(conn);
    drop(site);
    assert_eq!(kept.start_at(DAYS + 500).0.protocol.names.len(), 1);
    assert_eq!(kept.start_at(DAYS + 1500).0.protocol.names.len(), 0);
}

#[test]
fn a_long_stand_of_the_gateway_is_no_silence_of_its_clients() {
    let mut site = Site::new();
    let conn = site.client(Hello { keep_alive: 10, ..Hello::new(V5, "p") });
    site.pass(14);
    site.0.protocol.excuse(Duration::from_secs(5));
    site.pass(5);
    assert!(!site.is_closed(conn));
    site.pass(2);
    assert!(site.is_closed(conn));
}
