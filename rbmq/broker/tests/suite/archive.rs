//! Kept topics with an archive: a subscriber that begins at any position reads archive, disk and ring as one log, whatever happens to
//! the archive and the broker meanwhile.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crate::memory::Memory;
use rbmq::{ConfirmLevel, Event, Notice, Publisher, StartFrom, Subscriber, TopicOptions, TopicWriter};
use rbmq_broker::{Broker, BrokerConfig, BrokerError, Parts, Rule, Watch};
use rocketbufs::Position;
use tempfile::TempDir;
use testkit::own_addr;

/// The time for events that must come. The machine may be loaded.
const LONG: Duration = Duration::from_secs(60);

/// Bytes of a message: some are larger than a batch of the archive.
fn length(n: usize) -> usize {
    if n % 50 == 7 { 9_000 } else { 300 + n % 200 }
}

/// A message that tells its number, and whose every byte can be checked.
fn message(n: usize) -> Vec<u8> {
    let mut bytes = format!("{n:08}").into_bytes();
    bytes.resize(length(n), b'a' + (n % 26) as u8);
    bytes
}

fn bytes_of(numbers: std::ops::Range<usize>) -> u64 {
    numbers.map(|n| length(n) as u64).sum()
}

/// A disk that keeps 4 MiB and an archive that gets small batches soon.
fn config(dir: &Path) -> BrokerConfig {
    let mut rule = Rule::new("k/#".parse().unwrap());
    (rule.keep, rule.kafka, rule.keep_bytes) = (true, true, Some(4 << 20));
    rule.ring_bytes = Some(256 << 10);
    let mut config = BrokerConfig::default();
    config.broker.listen = own_addr();
    config.broker.keep_dir = dir.to_str().unwrap().into();
    config.broker.keep_sync_ms = 10;
    config.broker.topics = vec![rule].into();
    config.kafka.brokers = "in memory".into();
    (config.kafka.batch_bytes, config.kafka.batch_ms) = (8 << 10, 10);
    config.validate().unwrap();
    config
}

fn parts(archive: &Arc<Memory>) -> Parts {
    Parts { archive: Some(archive.clone()), ..Parts::default() }
}

fn start(dir: &Path, archive: &Arc<Memory>) -> Broker {
    Broker::start_with(config(dir), parts(archive)).unwrap()
}

fn topic(at: &str) -> TopicWriter {
    let options = TopicOptions::default().ring_bytes(64 << 10);
    Publisher::connect(at).unwrap().topic_with("k/a", options).unwrap()
}

/// Publishes without waiting for the archive.
fn publish(writer: &mut TopicWriter, numbers: std::ops::Range<usize>) {
    for n in numbers {
        writer.publish(&message(n)).unwrap();
    }
    writer.confirm(writer.position(), ConfirmLevel::Accepted, Some(LONG)).unwrap();
}

/// Publishes no faster than the archive.
fn publish_archived(
    writer: &mut TopicWriter,
    watch: &Watch,
    archive: &Memory,
    numbers: std::ops::Range<usize>,
) {
    for from in numbers.clone().step_by(1_000) {
        publish(writer, from..numbers.end.min(from + 1_000));
        wait_archived(writer, watch, archive);
    }
}

/// Waits until the archive has the log up to its end, which is read from the broker: runs and records have headers too.
fn wait_archived(writer: &TopicWriter, watch: &Watch, archive: &Memory) {
    writer.confirm(writer.position(), ConfirmLevel::Stored, Some(LONG)).unwrap();
    let topics = watch.topics(LONG).expect("the broker answers");
    let end = topics.iter().find_map(|stats| stats.boundary.filter(|_| stats.topic.as_str() == "k/a"));
    archive.wait_for_end(end.expect("the topic's end"), LONG);
}

/// A broker, whose archive has the first messages of its topic.
fn archived(messages: usize) -> (TempDir, Arc<Memory>, Broker, TopicWriter) {
    let (dir, archive) = (tempfile::tempdir().unwrap(), Arc::<Memory>::default());
    let broker = start(dir.path(), &archive);
    let mut writer = topic(&broker.addr());
    publish_archived(&mut writer, &broker.watch(), &archive, 0..messages);
    (dir, archive, broker, writer)
}

fn subscribe(at: &str, from: StartFrom) -> Subscriber {
    let mut subscriber = Subscriber::builder().ring_bytes(128 << 10).connect(at).unwrap();
    subscriber.subscribe_from("k/a", from).unwrap();
    subscriber
}

fn number(bytes: &[u8]) -> usize {
    let n = std::str::from_utf8(&bytes[..8]).unwrap().parse().unwrap();
    assert_eq!(bytes, message(n));
    n
}

/// Receives up to a message and checks that none is missing or comes twice, and that nothing is told as lost.
fn receive(subscriber: &mut Subscriber, numbers: std::ops::Range<usize>) {
    let mut next = numbers.start;
    while next < numbers.end {
        match subscriber.next_event(Some(LONG)).unwrap().expect("an event") {
            Event::Batch(batch) => {
                for record in batch.records() {
                    assert_eq!(number(record), next);
                    next += 1;
                }
            }
            Event::Notice(Notice::Joined { .. }) => {}
            other => panic!("{other:?} before {next}"),
        }
    }
    assert_eq!(next, numbers.end);
}

/// Receives up to a message, in order. Returns the lost ranges, and the messages before and behind each.
type Loss = ((Position, Position), Option<usize>, usize);
fn receive_with_losses(subscriber: &mut Subscriber, last: usize) -> Vec<Loss> {
    let (mut losses, mut before, mut lost) = (Vec::new(), None::<usize>, None::<(Position, Position)>);
    loop {
        match subscriber.next_event(Some(LONG)).unwrap().expect("an event") {
            Event::Batch(batch) => {
                for n in batch.records().map(number) {
                    match lost.take() {
                        Some(range) => losses.push((range, before, n)),
                        None => assert_eq!(before.map_or(0, |before| before + 1), n, "a silent gap"),
                    }
                    assert!(before.is_none_or(|before| before < n), "{n} again");
                    before = Some(n);
                }
            }
            Event::Notice(Notice::Lost { from, to, .. }) => {
                let begin = lost.map_or(from, |(begin, end)| {
                    assert_eq!(end, from);
                    begin
                });
                lost = Some((begin, to));
            }
            Event::Notice(Notice::Joined { .. }) => {}
            other => panic!("{other:?}"),
        }
        if before == Some(last) {
            return losses;
        }
    }
}

#[test]
fn a_position_that_the_disk_has_removed_is_read_from_the_archive() {
    let (_dir, archive, broker, mut writer) = archived(20_000);
    for from in [StartFrom::Oldest, StartFrom::Position(0)] {
        let mut subscriber = subscribe(&broker.addr(), from);
        receive(&mut subscriber, 0..20_000);
    }
    assert!(archive.reads() > 500, "most of it is from there");
    // A position that a subscriber has seen, and a subscriber that goes on while its publisher does.
    let position = archive.batch_beyond(3 << 20);
    let mut middle = subscribe(&broker.addr(), StartFrom::Position(position));
    let mut all = subscribe(&broker.addr(), StartFrom::Position(0));
    let (at, watch) = (archive.clone(), broker.watch());
    let publisher = std::thread::spawn(move || publish_archived(&mut writer, &watch, &at, 20_000..25_000));
    receive(&mut all, 0..25_000);
    publisher.join().unwrap();
    let mut next = None;
    while next != Some(25_000) {
        let Event::Batch(batch) = middle.next_event(Some(LONG)).unwrap().expect("an event") else { continue };
        for n in batch.records().map(number) {
            assert!(next.is_none_or(|next| next == n), "{n} after {next:?}");
            next = Some(n + 1);
        }
    }
}

#[test]
fn an_archive_that_is_down_gets_everything_afterwards() {
    let (_dir, archive, broker, mut writer) = archived(12_000);
    archive.set_down(true);
    // As much as the disk keeps, so that the archive misses nothing.
    publish(&mut writer, 12_000..16_000);
    let at = broker.addr();
    let reader = std::thread::spawn(move || receive(&mut subscribe(&at, StartFrom::Oldest), 0..18_000));
    // The archive stores a part of a batch and fails, also when it is back.
    archive.tear_next(2);
    archive.set_down(false);
    publish_archived(&mut writer, &broker.watch(), &archive, 16_000..18_000);
    reader.join().unwrap();
    receive(&mut subscribe(&broker.addr(), StartFrom::Position(0)), 0..18_000);
}

#[test]
fn what_an_archive_never_got_is_told_as_lost() {
    let (_dir, archive, broker, mut writer) = archived(8_000);
    archive.set_down(true);
    publish(&mut writer, 8_000..30_000);
    archive.set_down(false);
    wait_archived(&writer, &broker.watch(), &archive);
    publish_archived(&mut writer, &broker.watch(), &archive, 30_000..42_000);
    let mut subscriber = subscribe(&broker.addr(), StartFrom::Position(0));
    let losses = receive_with_losses(&mut subscriber, 41_999);
    let [((from, to), Some(before), behind)] = losses[..] else { panic!("{losses:?}") };
    assert!((7_000..12_000).contains(&before) && (12_000..30_000).contains(&behind), "{losses:?}");
    // The hole has exactly the missing messages, with their headers.
    let missing = bytes_of(before + 1..behind);
    assert!((missing..missing * 11 / 10).contains(&(to - from)), "{losses:?}, {missing} bytes");
}

#[test]
fn a_restarted_broker_goes_on_where_its_archive_ends() {
    let (dir, archive) = (tempfile::tempdir().unwrap(), Arc::<Memory>::default());
    for round in 0..4 {
        let broker = start(dir.path(), &archive);
        let mut writer = topic(&broker.addr());
        publish_archived(&mut writer, &broker.watch(), &archive, round * 5_000..(round + 1) * 5_000);
        receive(&mut subscribe(&broker.addr(), StartFrom::Oldest), 0..(round + 1) * 5_000);
        if round % 2 == 0 {
            broker.stop();
        }
    }
    assert_eq!(archive.logs(), 1);
    assert_eq!(archive.repeated(), 0, "nothing is copied twice");
}

#[test]
fn what_the_archive_has_removed_is_told_as_lost_too() {
    let (_dir, archive, broker, _writer) = archived(20_000);
    archive.remove_below(2 << 20);
    let mut subscriber = subscribe(&broker.addr(), StartFrom::Position(0));
    let losses = receive_with_losses(&mut subscriber, 19_999);
    let [((0, to), None, begins)] = losses[..] else { panic!("{losses:?}") };
    assert!(to >= 2 << 20 && begins > 2_000, "{losses:?}");
    receive(&mut subscribe(&broker.addr(), StartFrom::Oldest), begins..20_000);
}

#[test]
fn a_subscriber_waits_for_an_archive_only_so_long() {
    let (dir, archive, first, _writer) = archived(20_000);
    first.stop();
    archive.set_down(true);
    let mut config = config(dir.path());
    config.kafka.replay_wait_ms = 100;
    let broker = Broker::start_with(config, parts(&archive)).unwrap();
    let mut subscriber = subscribe(&broker.addr(), StartFrom::Position(0));
    let losses = receive_with_losses(&mut subscriber, 19_999);
    let [((0, _), None, begins)] = losses[..] else { panic!("{losses:?}") };
    assert!(begins > 5_000, "{losses:?}");
    // The first position is not known then, so the log begins with the disk.
    receive(&mut subscribe(&broker.addr(), StartFrom::Oldest), begins..20_000);
    archive.set_down(false);
    // The broker has compared the archive's log, which takes time after its opening, once it copies more.
    publish_archived(&mut topic(&broker.addr()), &broker.watch(), &archive, 20_000..20_001);
    receive(&mut subscribe(&broker.addr(), StartFrom::Position(0)), 0..20_001);
}

#[test]
fn an_archive_that_hangs_delays_only_those_who_need_it() {
    let (_dir, archive, broker, mut writer) = archived(20_000);
    let recent = archive.batch_beyond(archive.end() - (2 << 20));
    archive.set_hanging(true);
    // More of them than threads that read the archive.
    let waiting: Vec<_> = (0..5)
        .map(|_| {
            let mut subscriber = subscribe(&broker.addr(), StartFrom::Position(0));
            std::thread::spawn(move || receive(&mut subscriber, 0..21_000))
        })
        .collect();
    archive.wait_for_hanging(2, LONG);
    publish(&mut writer, 20_000..21_000);
    let mut reads_disk = subscribe(&broker.addr(), StartFrom::Position(recent));
    loop {
        let Event::Batch(batch) = reads_disk.next_event(Some(LONG)).unwrap().expect("an event") else {
            continue;
        };
        if batch.records().map(number).last() == Some(20_999) {
            break;
        }
    }
    archive.set_hanging(false);
    waiting.into_iter().for_each(|reader| reader.join().unwrap());
}

#[test]
fn every_log_has_a_place_of_its_own_in_the_archive() {
    let archive = Arc::<Memory>::default();
    let (one, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let brokers = [start(one.path(), &archive), start(other.path(), &archive)];
    for broker in &brokers {
        publish(&mut topic(&broker.addr()), 0..500);
        receive(&mut subscribe(&broker.addr(), StartFrom::Position(0)), 0..500);
    }
    archive.wait_for_logs(2, LONG);
    // A topic that was removed begins again, with another log.
    let [first, _second] = brokers;
    first.stop();
    std::fs::remove_dir_all(one.path().join("k%2Fa")).unwrap();
    let again = start(one.path(), &archive);
    publish(&mut topic(&again.addr()), 0..100);
    receive(&mut subscribe(&again.addr(), StartFrom::Position(0)), 0..100);
    archive.wait_for_logs(3, LONG);
}

/// A folder that is put back from a copy has other bytes at positions that the archive has already.
#[test]
fn an_archive_that_is_ahead_of_the_disk_gets_and_gives_nothing() {
    let (copy, archive) = two_histories();
    let end = archive.end();
    let broker = start(copy.path(), &archive);
    let mut writer = topic(&broker.addr());
    publish(&mut writer, 1_000..2_000);
    receive(&mut subscribe(&broker.addr(), StartFrom::Oldest), 0..2_000);
    assert_eq!(archive.end(), end);
    broker.stop();
    // The archive is behind the disk now, with other bytes.
    publish_with(copy.path(), 2_000..6_000);
    let broker = start(copy.path(), &archive);
    receive(&mut subscribe(&broker.addr(), StartFrom::Position(0)), 0..6_000);
    publish(&mut topic(&broker.addr()), 6_000..20_000);
    let losses = receive_with_losses(&mut subscribe(&broker.addr(), StartFrom::Position(0)), 19_999);
    let [((0, _), None, begins)] = losses[..] else { panic!("{losses:?}") };
    assert!(begins > 6_000, "{losses:?}");
    assert_eq!(archive.end(), end);
}

/// The archive comes late: the disk has no byte left to compare, and must not take the bytes of another history for its own.
#[test]
fn an_archive_that_cannot_be_compared_gets_and_gives_nothing() {
    let (copy, archive) = two_histories();
    let end = archive.end();
    archive.set_down(true);
    let broker = start(copy.path(), &archive);
    publish(&mut topic(&broker.addr()), 1_000..20_000);
    archive.set_down(false);
    archive.wait_until_open(LONG);
    let losses = receive_with_losses(&mut subscribe(&broker.addr(), StartFrom::Position(0)), 19_999);
    assert!(matches!(losses[..], [((0, _), None, _)]), "{losses:?}");
    assert_eq!(archive.end(), end);
}

/// The same with the archive's own broker, which was restarted: the archive goes on with a hole.
#[test]
fn an_archive_whose_last_bytes_the_disk_has_removed_goes_on_after_a_restart() {
    let (dir, archive, broker, _) = archived(4_000);
    archive.set_down(true);
    publish(&mut topic(&broker.addr()), 4_000..20_000);
    broker.stop();
    let broker = start(dir.path(), &archive);
    let mut writer = topic(&broker.addr());
    publish(&mut writer, 20_000..21_000);
    archive.set_down(false);
    wait_archived(&writer, &broker.watch(), &archive);
    let losses = receive_with_losses(&mut subscribe(&broker.addr(), StartFrom::Position(0)), 20_999);
    assert!(matches!(losses[..], [(_, Some(3_999), 8_000..)]), "{losses:?}");
}

/// A copy of the folder of a topic with 1,000 messages, and an archive that has other messages behind them.
fn two_histories() -> (TempDir, Arc<Memory>) {
    let (dir, archive, broker, _) = archived(1_000);
    let copy = tempfile::tempdir().unwrap();
    broker.stop();
    copy_folder(dir.path(), copy.path());
    let broker = start(dir.path(), &archive);
    let mut writer = topic(&broker.addr());
    publish(&mut writer, 30_000..33_000);
    wait_archived(&writer, &broker.watch(), &archive);
    broker.stop();
    (copy, archive)
}

/// Publishes to a broker whose archive does not answer.
fn publish_with(dir: &Path, numbers: std::ops::Range<usize>) {
    let archive = Arc::<Memory>::default();
    archive.set_down(true);
    let broker = start(dir, &archive);
    publish(&mut topic(&broker.addr()), numbers);
    broker.stop();
}

fn copy_folder(from: &Path, to: &Path) {
    for entry in std::fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        let copy = to.join(path.file_name().unwrap());
        if path.is_dir() {
            std::fs::create_dir(&copy).unwrap();
            copy_folder(&path, &copy);
        } else {
            std::fs::copy(&path, &copy).unwrap();
        }
    }
}

#[test]
fn a_rule_that_wants_an_archive_needs_one() {
    let dir = tempfile::tempdir().unwrap();
    let error = Broker::start(config(dir.path())).unwrap_err();
    assert!(matches!(error, BrokerError::NoArchive(_)), "{error}");
    let text = error.to_string();
    assert!(text.contains("'k/#'") && text.contains("--features kafka"), "{text}");
}
