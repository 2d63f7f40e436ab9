//! Kept topics with real clients: the bytes on the disk and those in the ring are one log, over restarts of the broker and
//! whatever retention has removed.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use rbmq::{
    AttributesBuf, ConfirmLevel, Event, Notice, Publisher, SlowPolicy, StartFrom, Subscriber, TopicOptions,
    TopicWriter,
};
use rbmq_broker::{Broker, BrokerConfig, Ingest, Rule};
use rocketbufs::Position;
use testkit::own_addr;

/// The time for events that must come. The machine may be loaded.
const LONG: Duration = Duration::from_secs(60);

/// Bytes of a message.
const MESSAGE: usize = 500;

fn config(dir: &Path, change: impl FnOnce(&mut Rule)) -> BrokerConfig {
    let mut rule = Rule::new("k/#".parse().unwrap());
    rule.keep = true;
    rule.ring_bytes = Some(256 << 10);
    change(&mut rule);
    let mut config = BrokerConfig::default();
    config.broker.listen = own_addr();
    config.broker.keep_dir = dir.to_str().unwrap().into();
    config.broker.topics = vec![rule].into();
    config.validate().unwrap();
    config
}

fn broker(dir: &Path) -> Broker {
    Broker::start(config(dir, |_| {})).unwrap()
}

fn topic(at: &str, name: &str) -> TopicWriter {
    let options = TopicOptions::default().ring_bytes(64 << 10);
    Publisher::connect(at).unwrap().topic_with(name, options).unwrap()
}

/// A message that tells its number.
fn message(n: usize) -> Vec<u8> {
    let mut bytes = format!("{n:08}").into_bytes();
    bytes.resize(MESSAGE, b'.');
    bytes
}

fn publish(writer: &mut TopicWriter, numbers: Range<usize>) {
    for n in numbers {
        writer.publish(&message(n)).unwrap();
    }
    let end = writer.position();
    writer.confirm(end, ConfirmLevel::Accepted, Some(LONG)).unwrap();
}

fn number(bytes: &[u8]) -> usize {
    assert_eq!(bytes.len(), MESSAGE);
    std::str::from_utf8(&bytes[..8]).unwrap().parse().unwrap()
}

fn subscribe(at: &str, topics: &str, from: StartFrom) -> Subscriber {
    let mut subscriber = Subscriber::builder().ring_bytes(128 << 10).connect(at).unwrap();
    subscriber.subscribe_from(topics, from).unwrap();
    subscriber
}

/// Receives up to a message and checks that none is missing or comes twice. `pause` follows some of the messages.
fn receive(subscriber: &mut Subscriber, numbers: Range<usize>, pause: Duration) {
    for n in numbers {
        let message = subscriber.recv(Some(LONG)).unwrap().expect("a message");
        assert_eq!(number(&message.bytes), n);
        if n % 500 == 0 {
            std::thread::sleep(pause);
        }
    }
}

/// The first message, the losses before it, and the position behind it.
fn first(subscriber: &mut Subscriber) -> (usize, Vec<(Position, Position)>) {
    let mut lost = Vec::new();
    loop {
        match subscriber.next_event(Some(LONG)).unwrap().expect("an event") {
            Event::Batch(batch) => return (number(batch.records().next().unwrap()), lost),
            Event::Notice(Notice::Lost { from, to, .. }) => lost.push((from, to)),
            Event::Notice(Notice::Joined { .. }) => {}
            other => panic!("{other:?}"),
        }
    }
}

/// The broker passes attributes on as it passes any bytes: through a merged ring, a file, and the replay of both.
#[test]
fn attributes_come_from_a_merged_ring_and_from_its_file() {
    let dir = tempfile::tempdir().unwrap();
    let start = || Broker::start(config(dir.path(), |rule| rule.ingest = Ingest::Merge)).unwrap();
    let said = |who: &str| {
        let mut attributes = AttributesBuf::new();
        attributes.topic(who).unwrap().property("n", "1").unwrap().property("n", "2").unwrap();
        attributes
    };
    let check = |addr: &str| {
        let mut subscriber = subscribe(addr, "k/a", StartFrom::Oldest);
        let mut found = Vec::new();
        while found.len() < 4 {
            let message = subscriber.recv(Some(LONG)).unwrap().expect("a message");
            assert!(message.publisher.is_some());
            found.push((message.attributes.attributes().topic().map(str::to_owned), message.bytes.clone()));
            assert!(
                message.attributes == message.attributes.attributes().topic().map(said).unwrap_or_default()
            );
        }
        found.sort();
        let of = |who: Option<&str>, bytes: &[u8]| (who.map(str::to_owned), bytes.to_vec());
        assert_eq!(found, [of(None, b"p"), of(None, b"q"), of(Some("p"), b"said"), of(Some("q"), b"said")]);
    };
    let broker = start();
    let mut live = subscribe(&broker.addr(), "k/a", StartFrom::Newest);
    for who in ["p", "q"] {
        let mut writer = topic(&broker.addr(), "k/a");
        writer.wait_subscribers(1, Some(LONG)).unwrap();
        writer.publish_with(&said(who), b"said").unwrap();
        let end = writer.publish(who.as_bytes()).unwrap();
        let message = live.recv(Some(LONG)).unwrap().unwrap();
        assert_eq!((message.bytes.as_slice(), message.attributes), (&b"said"[..], said(who)));
        let message = live.recv(Some(LONG)).unwrap().unwrap();
        assert_eq!((message.bytes.as_slice(), message.attributes), (who.as_bytes(), AttributesBuf::new()));
        writer.confirm(end, ConfirmLevel::Stored, Some(LONG)).unwrap();
        writer.close().unwrap();
    }
    check(&broker.addr());
    drop((live, broker));
    let again = start();
    // Of the file alone: the ring of the new broker has nothing.
    check(&again.addr());
}

#[test]
fn a_late_subscriber_gets_everything_and_goes_on_in_the_ring() {
    let dir = tempfile::tempdir().unwrap();
    let broker = broker(dir.path());
    let mut writer = topic(&broker.addr(), "k/a");
    publish(&mut writer, 0..5_000);
    let mut late = subscribe(&broker.addr(), "k/a", StartFrom::Oldest);
    receive(&mut late, 0..5_000, Duration::ZERO);
    // The late subscriber is counted once it reads the ring.
    writer.wait_subscribers(1, Some(LONG)).unwrap();
    let publisher = std::thread::spawn(move || {
        publish(&mut writer, 5_000..6_000);
        writer
    });
    receive(&mut late, 5_000..6_000, Duration::ZERO);
    let _writer = publisher.join().unwrap();
    let mut last = subscribe(&broker.addr(), "k/#", StartFrom::Last);
    let message = last.recv(Some(LONG)).unwrap().unwrap();
    assert!((5_000..6_000).contains(&number(&message.bytes)));
}

/// The publisher goes on all the time, faster and slower than the subscriber.
#[test]
fn nothing_is_missing_while_disk_and_ring_take_turns() {
    let dir = tempfile::tempdir().unwrap();
    let broker = broker(dir.path());
    let mut writer = topic(&broker.addr(), "k/a");
    publish(&mut writer, 0..3_000);
    let addr = broker.addr();
    let publisher = std::thread::spawn(move || {
        for part in 0..40 {
            publish(&mut writer, 3_000 + 500 * part..3_500 + 500 * part);
            std::thread::sleep(Duration::from_millis(if part % 10 < 5 { 0 } else { 20 }));
        }
        writer
    });
    let readers: Vec<_> = [0, 3, 15]
        .into_iter()
        .map(|pause| {
            let addr = addr.clone();
            std::thread::spawn(move || {
                let mut subscriber = subscribe(&addr, "k/+", StartFrom::Oldest);
                receive(&mut subscriber, 0..23_000, Duration::from_millis(pause));
            })
        })
        .collect();
    readers.into_iter().for_each(|reader| reader.join().unwrap());
    drop(publisher.join().unwrap());
}

#[test]
fn a_replay_that_stands_still_holds_no_publisher() {
    let dir = tempfile::tempdir().unwrap();
    let broker = broker(dir.path());
    let mut writer = topic(&broker.addr(), "k/a");
    publish(&mut writer, 0..2_000);
    let mut idle = subscribe(&broker.addr(), "k/a", StartFrom::Oldest);
    receive(&mut idle, 0..1, Duration::ZERO);
    // More than all rings have room for.
    publish(&mut writer, 2_000..8_000);
    receive(&mut idle, 1..8_000, Duration::ZERO);
}

#[test]
fn a_restarted_broker_continues_the_log_with_its_publishers_and_subscribers() {
    let dir = tempfile::tempdir().unwrap();
    let first = broker(dir.path());
    let addr = first.addr();
    let mut writer = topic(&addr, "k/a");
    let mut there = subscribe(&addr, "k/a", StartFrom::Newest);
    writer.wait_subscribers(1, Some(LONG)).unwrap();
    let publisher = std::thread::spawn(move || {
        publish(&mut writer, 0..2_000);
        writer
    });
    receive(&mut there, 0..1_900, Duration::ZERO);
    let mut writer = publisher.join().unwrap();
    drop(first);
    let mut again = config(dir.path(), |_| {});
    again.broker.listen = addr.clone();
    let second = Broker::start(again).unwrap();
    let publisher = std::thread::spawn(move || publish(&mut writer, 2_000..4_000));
    receive(&mut there, 1_900..4_000, Duration::ZERO);
    publisher.join().unwrap();
    let mut late = subscribe(&addr, "k/a", StartFrom::Oldest);
    receive(&mut late, 0..4_000, Duration::ZERO);
    second.stop();
}

#[test]
fn what_retention_has_removed_is_told_as_lost() {
    let dir = tempfile::tempdir().unwrap();
    let broker = Broker::start(config(dir.path(), |rule| rule.keep_bytes = Some(4 << 20))).unwrap();
    let mut writer = topic(&broker.addr(), "k/a");
    publish(&mut writer, 0..30_000);
    let mut at_start = subscribe(&broker.addr(), "k/a", StartFrom::Position(0));
    let (begins, lost) = first(&mut at_start);
    assert!(begins > 15_000, "more than the limit is still there: {begins}");
    let [(0, to)] = lost[..] else { panic!("{lost:?}") };
    assert!(to as usize >= begins * MESSAGE, "{to} for {begins} messages");
    let mut oldest = subscribe(&broker.addr(), "k/a", StartFrom::Oldest);
    let (begins, lost) = first(&mut oldest);
    assert!(begins > 15_000 && lost.is_empty(), "{begins}, {lost:?}");
}

#[test]
fn a_position_and_a_time_lead_to_their_messages() {
    let dir = tempfile::tempdir().unwrap();
    let broker = broker(dir.path());
    let mut writer = topic(&broker.addr(), "k/a");
    publish(&mut writer, 0..3_000);
    writer.confirm(writer.position(), ConfirmLevel::Stored, Some(LONG)).unwrap();
    // The broker assumes that a request was under way for a second.
    std::thread::sleep(Duration::from_millis(1_500));
    let since = SystemTime::now();
    publish(&mut writer, 3_000..6_000);
    loop {
        let asked = Instant::now();
        let mut recent = subscribe(&broker.addr(), "k/a", StartFrom::Time(since));
        let begins = number(&recent.recv(Some(LONG)).unwrap().expect("a message").bytes);
        if begins == 3_000 {
            receive(&mut recent, 3_001..6_000, Duration::ZERO);
            break;
        }
        // A request that was under way for longer begins later.
        assert!(begins > 3_000 && asked.elapsed() > Duration::from_secs(1), "{begins}");
    }
    let mut all = subscribe(&broker.addr(), "k/a", StartFrom::Oldest);
    let mut ends = Vec::new();
    for n in 0..6_000 {
        let message = all.recv(Some(LONG)).unwrap().unwrap();
        assert_eq!(number(&message.bytes), n);
        ends.push(message.end);
    }
    for n in [100, 2_999, 5_990] {
        // A run begins at this position, and its first message is one of those that end there.
        let mut middle = subscribe(&broker.addr(), "k/a", StartFrom::Position(ends[n]));
        let next = ends.iter().rposition(|end| *end <= ends[n]).unwrap();
        let (begins, lost) = first(&mut middle);
        assert!(begins <= next + 1 && lost.is_empty(), "{begins} behind {next}, {lost:?}");
    }
}

/// A request waits while another replay has the only place, and messages come meanwhile: they are later than the time that was asked for.
#[test]
fn a_request_from_a_time_misses_nothing_that_comes_while_it_waits() {
    let dir = tempfile::tempdir().unwrap();
    let mut config = config(dir.path(), |_| {});
    config.broker.max_replays = 1;
    let broker = Broker::start(config).unwrap();
    let mut writer = topic(&broker.addr(), "k/a");
    publish(&mut writer, 0..4_000);
    let mut slow = subscribe(&broker.addr(), "k/a", StartFrom::Oldest);
    assert_eq!(number(&slow.recv(Some(LONG)).unwrap().expect("a message").bytes), 0);
    // A request may be under way for two seconds on a busy machine, besides the time that the broker allows for.
    let since = SystemTime::now() - Duration::from_secs(2);
    let mut waiting = subscribe(&broker.addr(), "k/a", StartFrom::Time(since));
    assert!(waiting.recv(Some(Duration::from_millis(100))).unwrap().is_none());
    publish(&mut writer, 4_000..8_000);
    // More than both together.
    std::thread::sleep(Duration::from_millis(3_500));
    drop(slow);
    let begins = number(&waiting.recv(Some(LONG)).unwrap().expect("a message").bytes);
    assert!(begins <= 4_000, "{begins}");
    receive(&mut waiting, begins + 1..8_000, Duration::ZERO);
}

#[test]
fn a_subscriber_that_may_lose_messages_begins_with_the_oldest_too() {
    let dir = tempfile::tempdir().unwrap();
    let broker = broker(dir.path());
    let mut writer = topic(&broker.addr(), "k/a");
    publish(&mut writer, 0..5_000);
    let slow = SlowPolicy::Drop { max_lag_bytes: Some(64 << 10) };
    let mut dropping =
        Subscriber::builder().slow(slow).ring_bytes(128 << 10).connect(&broker.addr()).unwrap();
    dropping.subscribe_from("k/a", StartFrom::Oldest).unwrap();
    receive(&mut dropping, 0..5_000, Duration::from_millis(5));
}

#[test]
fn one_broker_uses_a_folder_and_a_damaged_topic_stops_no_other() {
    let dir = tempfile::tempdir().unwrap();
    let broker = broker(dir.path());
    publish(&mut topic(&broker.addr(), "k/good"), 0..10);
    publish(&mut topic(&broker.addr(), "k/bad"), 0..10);
    let second = Broker::start(config(dir.path(), |_| {})).unwrap_err().to_string();
    assert!(second.contains("another broker uses") && second.contains("broker.keep_dir"), "{second}");
    broker.stop();
    let log = dir.path().join("k%2Fbad/log");
    for file in std::fs::read_dir(&log).unwrap() {
        let path = file.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "seg") {
            std::fs::write(path, b"damaged").unwrap();
        }
    }
    let broker = self::broker(dir.path());
    let mut good = subscribe(&broker.addr(), "k/good", StartFrom::Oldest);
    receive(&mut good, 0..10, Duration::ZERO);
    let refused = Publisher::connect(&broker.addr()).unwrap().topic("k/bad").unwrap_err().to_string();
    assert!(refused.contains("what is kept of topic 'k/bad' cannot be opened"), "{refused}");
}

/// Receives batches up to the one with the message before `end`. Each loss that is told is one that shows, and the other way round.
/// Returns the numbers of the messages that are missing, and that of the next message.
fn receive_with_losses(subscriber: &mut Subscriber, next: usize, end: usize) -> (Vec<Range<usize>>, usize) {
    let (mut losses, mut lost, mut next) = (Vec::new(), false, next);
    while next < end {
        match subscriber.next_event(Some(LONG)).unwrap().expect("an event") {
            Event::Batch(batch) => {
                for record in batch.checked_records() {
                    let number = number(record.unwrap());
                    assert_eq!(number > next, std::mem::take(&mut lost), "{number} behind {next}");
                    if number > next {
                        losses.push(next..number);
                    }
                    next = number + 1;
                }
            }
            Event::Notice(Notice::Lost { .. }) => lost = true,
            Event::Notice(Notice::Joined { .. }) => {}
            other => panic!("{other:?}"),
        }
    }
    (losses, next)
}

#[test]
fn a_replay_that_retention_overtakes_goes_on_at_the_oldest_message() {
    let dir = tempfile::tempdir().unwrap();
    let broker = Broker::start(config(dir.path(), |rule| rule.keep_bytes = Some(4 << 20))).unwrap();
    let mut writer = topic(&broker.addr(), "k/a");
    publish(&mut writer, 0..5_000);
    let mut slow = subscribe(&broker.addr(), "k/a", StartFrom::Oldest);
    let (_, next) = receive_with_losses(&mut slow, 0, 1);
    publish(&mut writer, 5_000..30_000);
    let (losses, _) = receive_with_losses(&mut slow, next, 30_000);
    let [Range { start, end }] = losses[..] else { panic!("{losses:?}") };
    assert!(start < 5_000 && (15_000..25_000).contains(&end), "{losses:?}");
}

/// The segment files of the topic `k/a`, in order.
fn segments(dir: &Path) -> Vec<PathBuf> {
    let log = std::fs::read_dir(dir.join("k%2Fa/log")).unwrap();
    let mut segments: Vec<_> = log.map(|file| file.unwrap().path()).collect();
    segments.retain(|path| path.extension().is_some_and(|extension| extension == "seg"));
    segments.sort();
    segments
}

/// Nothing follows the last delivery on the disk, and the broker knows nevertheless that the delivery was there.
#[test]
fn a_damaged_end_is_told_as_lost_and_its_positions_are_not_used_again() {
    type Damage = fn(&mut Vec<u8>);
    let damages: [Damage; 3] = [
        |bytes| {
            let last = bytes.windows(8).rposition(|own| own == b"00000099").unwrap();
            bytes[last] ^= 1;
        },
        |bytes| bytes.truncate(bytes.len() - 7),
        |bytes| bytes.truncate(64),
    ];
    for (at, damage) in damages.into_iter().enumerate() {
        let dir = tempfile::tempdir().unwrap();
        let broker = self::broker(dir.path());
        let writer = &mut topic(&broker.addr(), "k/a");
        for n in [0..50, 50..100] {
            publish(writer, n);
            let end = writer.position();
            writer.confirm(end, ConfirmLevel::Synced, Some(LONG)).unwrap();
        }
        broker.stop();
        let segments = segments(dir.path());
        let last = segments.last().unwrap();
        let mut bytes = std::fs::read(last).unwrap();
        damage(&mut bytes);
        std::fs::write(last, bytes).unwrap();
        let broker = self::broker(dir.path());
        publish(&mut topic(&broker.addr(), "k/a"), 100..110);
        let mut all = subscribe(&broker.addr(), "k/a", StartFrom::Oldest);
        let (losses, _) = receive_with_losses(&mut all, 0, 110);
        let [Range { start, end: 100 }] = losses[..] else { panic!("{at}: {losses:?}") };
        assert!(start < 100, "{at}: {losses:?}");
        let mut again = subscribe(&broker.addr(), "k/a", StartFrom::Oldest);
        let lost: u64 = loop {
            match again.next_event(Some(LONG)).unwrap().expect("an event") {
                Event::Notice(Notice::Lost { from, to, .. }) => break to - from,
                Event::Notice(_) | Event::Batch(_) => {}
                other => panic!("{other:?}"),
            }
        };
        assert!(lost >= (100 - start as u64) * MESSAGE as u64, "{at}: {lost} positions");
    }
}

#[test]
fn a_damaged_segment_is_told_as_lost_and_everything_else_comes() {
    let dir = tempfile::tempdir().unwrap();
    let keeps = || Broker::start(config(dir.path(), |rule| rule.keep_bytes = Some(16 << 20))).unwrap();
    let broker = keeps();
    let writer = &mut topic(&broker.addr(), "k/a");
    publish(writer, 0..8_000);
    broker.stop();
    let segments = segments(dir.path());
    assert!(segments.len() > 3, "{segments:?}");
    let mut bytes = std::fs::read(&segments[1]).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&segments[1], bytes).unwrap();
    let broker = keeps();
    let mut all = subscribe(&broker.addr(), "k/a", StartFrom::Oldest);
    let (losses, _) = receive_with_losses(&mut all, 0, 8_000);
    let [Range { start, end }] = losses[..] else { panic!("{losses:?}") };
    assert!(start > 0 && end < 8_000 && end - start < 2_200, "{losses:?}");
}

/// Whatever the umask: the user of the broker alone reads the messages of topics for which others have no right.
#[test]
fn the_files_of_kept_topics_are_for_their_user() {
    let outer = tempfile::tempdir().unwrap();
    let dir = outer.path().join("kept");
    let broker = broker(&dir);
    publish(&mut topic(&broker.addr(), "k/a"), 0..10);
    let files = testkit::files_for_their_user(&dir);
    assert!(files >= 6, "the name, two logs, their locks and that of the folder: {files}");
}
