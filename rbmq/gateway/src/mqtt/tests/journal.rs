//! What is in the journal is there after the gateway has died, and nobody was told what is not there.

use std::path::Path;

use rbmq_wire::{Space, TopicFilter};

use super::*;
use crate::mqtt::Journal;
use crate::protocol::PublishError;

/// A folder, and the gateways that use it one after the other.
pub(super) struct Kept {
    dir: tempfile::TempDir,
    pub(super) unix_ms: u64,
    settings: Settings,
    snapshot_after: u64,
    /// The bytes of a piece of a snapshot.
    pub(super) piece_bytes: usize,
    /// Where the next gateway begins to read, as if what is before was removed.
    pub(super) first: u64,
}

impl Kept {
    pub(super) fn new() -> Self {
        Self::with(Settings::default(), 16 << 20)
    }

    pub(super) fn with(settings: Settings, snapshot_after: u64) -> Self {
        let dir = tempfile::tempdir().expect("a folder");
        Self { dir, unix_ms: 1_000_000, settings, snapshot_after, piece_bytes: 1 << 20, first: 0 }
    }

    pub(super) fn path(&self) -> &Path {
        self.dir.path()
    }

    /// The next gateway, so many seconds after the first one began.
    pub(super) fn start_at(&self, seconds: u64) -> Site {
        let journal = Journal::open(self.path(), Duration::from_secs(3600)).expect("a journal");
        let journal =
            journal.snapshot_after(self.snapshot_after).piece_bytes(self.piece_bytes).first(self.first);
        let (at, unix_ms) = (Instant::now(), self.unix_ms + seconds * 1000);
        let clock = Clock { at, unix_ms };
        let mqtt = Mqtt::with_journal(self.settings.clone(), clock, seconds + 7, journal);
        let mut world = World::new(mqtt.expect("a journal"), at);
        world.with(|protocol, cx| protocol.on_start(cx));
        Site(world)
    }

    pub(super) fn start(&self) -> Site {
        self.start_at(0)
    }
}

/// Everything before the last snapshot is removed, except for a rest of one segment.
pub(super) fn release(site: &mut Site, conn: ConnId, bytes: u64) {
    let until = Instant::now() + Duration::from_secs(60);
    loop {
        site.got(conn);
        let left = site.0.protocol.journal.as_ref().expect("a journal").file_bytes();
        if left < bytes {
            return;
        }
        assert!(Instant::now() < until, "{left} bytes");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Sends a publish of a client with its own packet id, and takes the answer.
pub(super) fn publish_as(site: &mut Site, conn: ConnId, packet_id: u16, publish: Publish<'_>) -> Vec<String> {
    site.publish_with(conn, Publish { packet_id, ..publish }, &[]);
    site.got(conn)
}

#[test]
fn what_was_acknowledged_reaches_a_session_that_was_away() {
    let kept = Kept::new();
    let mut site = kept.start();
    let subscriber = site.client(Hello::lasting(V5, "s"));
    assert_eq!(site.subscribe_with(subscriber, 3, &[("t/#", 1)]), ["SUBACK #9 01"]);
    site.lose(subscriber);
    let publisher = site.plain(V5, "p");
    for id in 1..4 {
        let (topic, payload) = (format!("t/{id}"), format!("m{id}"));
        assert_eq!(
            publish_as(&mut site, publisher, id, message(&topic, 1, &payload)),
            [format!("PUBACK #{id} 00")]
        );
    }
    drop(site);
    for round in 0..2 {
        let mut site = kept.start();
        let subscriber = site.hello(Hello::lasting(V5, "s"));
        let dup = if round == 0 { "" } else { " dup" };
        let mut expected = vec![connack(&mut site, subscriber, " present")];
        expected.extend((1..4).map(|id| format!("PUBLISH t/{id} q1{dup} #{id} m{id} SubscriptionId(3)")));
        expected.remove(0);
        assert_eq!(site.got(subscriber), expected);
        if round == 1 {
            (1..4).for_each(|id| site.ack(subscriber, AckKind::Puback, id, 0));
            // It is still subscribed.
            let publisher = site.plain(V5, "p");
            publish_as(&mut site, publisher, 9, message("t/9", 1, "more"));
            assert_eq!(site.got(subscriber), ["PUBLISH t/9 q1 #4 more SubscriptionId(3)"]);
            site.ack(subscriber, AckKind::Puback, 4, 0);
            site.got(subscriber);
        }
    }
    let mut site = kept.start();
    let subscriber = site.hello(Hello::lasting(V5, "s"));
    connack(&mut site, subscriber, " present");
    assert_eq!(site.got(subscriber), [""; 0]);
}

/// The first packet, of which only the beginning counts. What follows stays for the test.
pub(super) fn connack(site: &mut Site, conn: ConnId, present: &str) -> String {
    let bytes = site.0.got(conn);
    let frame = split(&bytes, usize::MAX).expect("a packet").expect("a whole one");
    let word = in_words(&decode(V5, frame).expect("a packet"));
    assert!(word.starts_with(&format!("CONNACK{present} 00")), "{word}");
    site.0.put_back(conn, &bytes[frame.len..]);
    word
}

#[test]
fn nobody_is_told_before_it_is_written() {
    let kept = Kept::new();
    let mut site = kept.start();
    let subscriber = site.client(Hello::lasting(V5, "s"));
    site.subscribe(subscriber, "t", 2);
    let publisher = site.client(Hello::lasting(V5, "p"));
    // It has not come back: no answer, however often the client asks.
    let publish = Publish { packet_id: 7, ..message("t", 2, "x") };
    for dup in [false, true] {
        site.0.feed(publisher, Packet::Publish(Publish { dup, ..publish }).encode(V5));
        assert_eq!(site.got(publisher), [""; 0]);
    }
    assert_eq!(site.0.bus.published.len(), 1);
    // Nothing was written: the next gateway knows nothing of it.
    drop(site);
    let mut site = kept.start();
    let publisher = site.hello(Hello::lasting(V5, "p"));
    connack(&mut site, publisher, " present");
    assert_eq!(publish_as(&mut site, publisher, 7, Publish { dup: true, ..publish }), ["PUBREC #7 00"]);
    drop(site);
    // Now it is known, and not published again.
    let mut site = kept.start();
    let (publisher, subscriber) = (site.hello(Hello::lasting(V5, "p")), site.hello(Hello::lasting(V5, "s")));
    connack(&mut site, publisher, " present");
    connack(&mut site, subscriber, " present");
    assert_eq!(site.got(subscriber), ["PUBLISH t q2 #1 x"]);
    assert_eq!(publish_as(&mut site, publisher, 7, Publish { dup: true, ..publish }), ["PUBREC #7 00"]);
    site.ack(subscriber, AckKind::Pubrec, 1, 0);
    site.ack(publisher, AckKind::Pubrel, 7, 0);
    assert_eq!(
        [site.got(publisher), site.got(subscriber)],
        [["PUBCOMP #7 00".to_owned()], ["PUBREL #1 00".to_owned()]]
    );
    drop(site);
    // A PUBREL is owed, and one that comes again is known.
    let mut site = kept.start();
    let (publisher, subscriber) = (site.hello(Hello::lasting(V5, "p")), site.hello(Hello::lasting(V5, "s")));
    connack(&mut site, publisher, " present");
    connack(&mut site, subscriber, " present");
    site.ack(publisher, AckKind::Pubrel, 7, 0);
    assert_eq!(
        [site.got(publisher), site.got(subscriber)],
        [["PUBCOMP #7 00".to_owned()], ["PUBREL #1 00".to_owned()]]
    );
    assert!(site.0.bus.published.is_empty());
}

#[test]
fn acknowledgements_keep_the_order_of_messages() {
    let kept = Kept::new();
    let mut site = kept.start();
    let subscriber = site.plain(V5, "s");
    site.subscribe(subscriber, "t", 0);
    let publisher = site.plain(V5, "p");
    for (id, topic, qos) in [(1, "t", 1), (2, "other", 1), (3, "t", 2), (4, "other", 2)] {
        let publish = Publish { packet_id: id, ..message(topic, qos, "x") };
        site.0.feed(publisher, Packet::Publish(publish).encode(V5));
    }
    assert_eq!(site.got(publisher), [""; 0]);
    site.0.deliver();
    assert_eq!(site.got(publisher), ["PUBACK #1 00", "PUBACK #2 00", "PUBREC #3 00", "PUBREC #4 00"]);
    // The last one who wants it leaves while a message is on its way.
    let publish = Publish { packet_id: 5, ..message("t", 1, "x") };
    site.0.feed(publisher, Packet::Publish(publish).encode(V5));
    site.0.bus.published.clear();
    assert_eq!(site.got(publisher), [""; 0]);
    site.lose(subscriber);
    assert_eq!(site.got(publisher), ["PUBACK #5 00"]);
}

#[test]
fn a_message_to_a_topic_on_disk_is_acknowledged_when_it_is_in_the_file() {
    let kept = Kept::new();
    let mut site = kept.start();
    site.0.bus.logs.entry("k".parse().expect("a name")).or_default();
    site.0.bus.kept_space = Some("s/#".parse().expect("a filter"));
    let publisher = site.plain(V5, "p");
    let publish = |site: &mut Site, id, topic, qos| {
        let publish = Publish { packet_id: id, ..message(topic, qos, "x") };
        site.0.feed(publisher, Packet::Publish(publish).encode(V5));
        assert_eq!(site.got(publisher), [""; 0]);
    };
    // Nobody wants it.
    publish(&mut site, 1, "k", 1);
    publish(&mut site, 2, "k", 2);
    site.0.store();
    assert_eq!(site.got(publisher), ["PUBACK #1 00", "PUBREC #2 00"]);
    publish(&mut site, 3, "s/a", 1);
    site.0.deliver();
    assert_eq!(site.got(publisher), ["PUBACK #3 00"]);
    // Somebody does, and has it before or after the news from the disk.
    let subscriber = site.client(Hello::lasting(V5, "s"));
    site.subscribe(subscriber, "#", 1);
    publish(&mut site, 4, "k", 1);
    site.0.store();
    assert_eq!(site.got(publisher), [""; 0]);
    site.0.deliver();
    assert_eq!(site.got(publisher), ["PUBACK #4 00"]);
    publish(&mut site, 5, "k", 1);
    site.0.deliver();
    assert_eq!(site.got(publisher), ["PUBACK #5 00"]);
    site.0.store();
    // The one who wants it goes meanwhile.
    publish(&mut site, 6, "k", 1);
    publish(&mut site, 7, "s/a", 1);
    site.disconnect(subscriber, 0, &[Property::SessionExpiry(0)]);
    assert_eq!(site.got(publisher), [""; 0]);
    site.0.store();
    assert_eq!(site.got(publisher), ["PUBACK #6 00", "PUBACK #7 00"]);
    // The broker refuses what it has taken before.
    publish(&mut site, 8, "k", 2);
    let (topic, ticket) = site.0.bus.take_unstored().expect("a message");
    assert_eq!(topic.as_str(), "k");
    site.0.with(|protocol, cx| protocol.on_stored(ticket, Err("no".into()), cx));
    assert_eq!(site.got(publisher), ["PUBREC #8 80"]);
}

#[test]
fn a_message_waits_for_a_disk_that_takes_nothing() {
    for (version, qos, answer) in
        [(V5, 1, "PUBACK #5 00"), (V311, 1, "PUBACK #5 00"), (V311, 2, "PUBREC #5 00")]
    {
        let kept = Kept::new();
        let mut site = kept.start();
        site.0.bus.logs.insert("k".parse().expect("a name"), Default::default());
        let publisher = site.plain(version, "p");
        site.0.bus.refusal = Some(PublishError::NoDisk("it is full".into()));
        site.publish(publisher, "k", qos, "x");
        assert!(site.got(publisher).is_empty() && !site.is_closed(publisher));
        site.0.bus.refusal = None;
        site.0.make_room(1);
        site.0.store();
        assert_eq!(site.got(publisher), [answer]);
        assert_eq!(site.0.protocol.counts.refused, 0);
    }
}

#[test]
fn what_was_lost_on_the_way_is_not_acknowledged() {
    for (version, qos) in [(V5, 1), (V5, 2), (V311, 2)] {
        let kept = Kept::new();
        let mut site = kept.start();
        let subscriber = site.plain(V5, "s");
        site.subscribe(subscriber, "t", 1);
        let publisher = site.client(Hello { clean: false, ..Hello::new(version, "p") });
        let publish = Publish { packet_id: 5, ..message("t", qos, "x") };
        site.0.feed(publisher, Packet::Publish(publish).encode(version));
        site.0.bus.published.clear();
        let topic = "t".parse().expect("a name");
        site.0.with(|protocol, cx| protocol.on_refused(&topic, cx));
        match version {
            V5 => assert!(site.got(publisher)[0].ends_with("#5 80")),
            V311 => assert!(site.is_closed(publisher)),
        }
        // It is another message then.
        site.lose(publisher);
        let publisher = site.client(Hello { clean: false, ..Hello::new(version, "p") });
        site.0.feed(publisher, Packet::Publish(publish).encode(version));
        assert_eq!(site.0.bus.published.len(), 1);
    }
}

#[test]
fn a_loss_in_another_log_refuses_no_message_on_its_way() {
    let kept = Kept::new();
    let mut site = kept.start();
    let space: TopicFilter = "s/#".parse().expect("a filter");
    let log = Space::new(&space).expect("a space").log().as_str().to_owned();
    site.0.bus.kept_space = Some(space);
    let (subscriber, publisher) = (site.plain(V5, "s"), site.plain(V5, "p"));
    site.subscribe(subscriber, "t", 1);
    let lose = |site: &mut Site, log: &str| {
        let log = log.parse().expect("a name");
        site.0.with(|protocol, cx| protocol.on_lost(&log, 7, cx));
    };
    for (packet_id, topic, log) in [(1, "t", "t"), (2, "s/a", &log)] {
        let publish = Publish { packet_id, ..message(topic, 1, "x") };
        site.0.feed(publisher, Packet::Publish(publish).encode(V5));
        // Of an upstream, whose topics have logs of their own whatever their names are.
        ["elsewhere", "s/a", "s/b"].iter().for_each(|other| lose(&mut site, other));
        assert_eq!(site.got(publisher), [""; 0], "{topic}");
        lose(&mut site, log);
        assert_eq!(site.got(publisher), [format!("PUBACK #{packet_id} 80")]);
    }
}

#[test]
fn retained_messages_outlive_the_gateway() {
    let kept = Kept::new();
    let mut site = kept.start();
    let publisher = site.plain(V5, "p");
    let retain = |topic, payload| Publish { retain: true, ..message(topic, 1, payload) };
    for (topic, payload) in [("a", "old"), ("a", "1"), ("b", "2"), ("c", "3"), ("b", "")] {
        publish_as(&mut site, publisher, 1, retain(topic, payload));
    }
    site.publish_with(publisher, retain("d", "short"), &[Property::MessageExpiry(60)]);
    site.publish_with(publisher, retain("e", "long"), &[Property::MessageExpiry(600)]);
    site.got(publisher);
    drop(site);
    let mut site = kept.start_at(100);
    let subscriber = site.plain(V5, "s");
    let mut got = site.subscribe_with(subscriber, 0, &[("#", 1)]);
    got.sort();
    assert_eq!(
        got,
        [
            "PUBLISH a q1 retain #1 1",
            "PUBLISH c q1 retain #2 3",
            "PUBLISH e q1 retain #3 long MessageExpiry(500)",
            "SUBACK #9 01"
        ]
    );
}

#[test]
fn sessions_end_when_they_should_also_while_no_gateway_runs() {
    let kept = Kept::new();
    let mut site = kept.start();
    let short: &[Property<'_>] = &[Property::SessionExpiry(50)];
    let hello = |id, clean, properties| Hello { clean, properties, ..Hello::new(V5, id) };
    let long: &[Property<'_>] = &[Property::SessionExpiry(500)];
    for (id, properties) in [("short", short), ("long", long), ("ended", long), ("changed", long)] {
        let conn = site.client(hello(id, true, properties));
        site.subscribe(conn, "t", 1);
        match id {
            "ended" => site.disconnect(conn, 0, &[Property::SessionExpiry(0)]),
            "changed" => site.disconnect(conn, 0, &[Property::SessionExpiry(50)]),
            _ => {}
        }
        site.lose(conn);
    }
    // A session that is there and now ends with its connection.
    let conn = site.client(hello("became-volatile", true, long));
    site.lose(conn);
    let conn = site.hello(hello("became-volatile", false, &[]));
    connack(&mut site, conn, " present");
    let connected = site.client(hello("connected", true, short));
    site.subscribe(connected, "t", 1);
    drop(site);
    let mut site = kept.start_at(100);
    let known = |site: &Site| {
        let mut names: Vec<String> =
            site.0.protocol.names.keys().map(|key| key.trim_start_matches('\0').to_owned()).collect();
        names.sort();
        names
    };
    // Of the one with a connection nobody knows when it lost it.
    assert_eq!(known(&site), ["connected", "long"]);
    assert_eq!(site.0.protocol.routes.len(), 1);
    site.pass(51);
    assert_eq!(known(&site), ["long"]);
    site.pass(350);
    assert_eq!(known(&site), [""; 0]);
    assert_eq!(site.0.protocol.routes.len(), 0);
    let publisher = site.plain(V5, "p");
    site.got(publisher);
    drop(site);
    assert_eq!(known(&kept.start_at(600)), [""; 0]);
}

#[test]
fn a_snapshot_makes_the_log_small() {
    let kept = Kept::with(Settings::default(), 64 << 10);
    let mut site = kept.start();
    let subscriber = site.client(Hello::lasting(V5, "s"));
    site.subscribe(subscriber, "t", 1);
    let publisher = site.plain(V5, "p");
    let large = "x".repeat(100_000);
    for _ in 0..200 {
        publish_as(&mut site, publisher, 1, message("t", 1, &large));
        let got = site.got(subscriber);
        let id = got[0].split_once('#').and_then(|(_, rest)| rest.split(' ').next()?.parse().ok());
        site.ack(subscriber, AckKind::Puback, id.expect("a packet id"), 0);
    }
    // 20 MB went through it. Two segments, of which one is done.
    release(&mut site, subscriber, 10 << 20);
    drop(site);
    let mut site = kept.start();
    let subscriber = site.hello(Hello::lasting(V5, "s"));
    connack(&mut site, subscriber, " present");
    assert_eq!(site.got(subscriber), [""; 0]);
}

#[test]
fn a_damaged_journal_is_told_and_used_as_far_as_it_goes() {
    let kept = Kept::new();
    let mut site = kept.start();
    for at in 0..20 {
        let conn = site.client(Hello::lasting(V5, &format!("s{at}")));
        site.subscribe(conn, "t", 1);
    }
    let publisher = site.plain(V5, "p");
    for id in 1..20 {
        publish_as(&mut site, publisher, id, message("t", 1, "some payload"));
    }
    drop(site);
    let segments =
        std::fs::read_dir(kept.path()).expect("a folder").map(|entry| entry.expect("a file").path());
    let segment =
        { segments }.find(|path| path.extension().is_some_and(|end| end == "seg")).expect("a segment");
    let bytes = std::fs::read(&segment).expect("a file");
    for at in (64..bytes.len()).step_by(997) {
        let mut damaged = bytes.clone();
        damaged[at] ^= 0x40;
        std::fs::write(&segment, &damaged).expect("a file");
        std::fs::remove_file(kept.path().join("lock")).expect("the mark of the log");
        let mut site = kept.start();
        // Whatever is left can be used.
        let conn = site.hello(Hello::lasting(V5, "s0"));
        site.got(conn);
        drop(site);
        for entry in std::fs::read_dir(kept.path()).expect("a folder") {
            std::fs::remove_file(entry.expect("a file").path()).expect("a file");
        }
        std::fs::write(kept.path().join("lock"), b"").expect("a file");
    }
    std::fs::remove_file(kept.path().join("lock")).expect("a file");
    let mut header = bytes;
    header[0] ^= 1;
    std::fs::write(&segment, &header).expect("a file");
    let error = Journal::open(kept.path(), Duration::from_secs(1)).expect_err("no log").to_string();
    assert!(error.contains("the header is damaged"), "{error}");
}

#[test]
fn a_journal_of_a_newer_version_is_refused() {
    let kept = Kept::new();
    let mut log = seglog::Log::open(kept.path(), seglog::Options::default()).expect("a log");
    log.append(&[4, 0, 0, 0, 0, 0, 0, 0]).expect("a batch");
    drop(log);
    let journal = Journal::open(kept.path(), Duration::from_secs(1)).expect("a log");
    let clock = Clock { at: Instant::now(), unix_ms: 1 };
    let error = Mqtt::with_journal(Settings::default(), clock, 7, journal).expect_err("another version");
    assert!(error.to_string().contains("its version is 4, and this program knows 3"), "{error}");
}
