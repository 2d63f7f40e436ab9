//! Groups with real clients: each message goes to one worker, and comes again until it is acknowledged, over everything that ends.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

use rbmq::wire::{GroupAction, GroupJoin, GroupMessage as Wire, Hello, Mark, MarkKind, Role};
use rbmq::{
    AttributesBuf, ConfirmLevel, GroupBuilder, GroupError, GroupMessage, GroupStart, GroupStats, GroupWorker,
    Publisher, StartFrom, Subscriber, TopicOptions, TopicWriter,
};
use rbmq_broker::{Broker, BrokerConfig, Rule};
use rocketbufs::{Config, Conn, Context, InEvent, RIn};
use testkit::{Proxy, own_addr, until};

/// The time for events that must come. The machine may be loaded.
const LONG: Duration = Duration::from_secs(60);

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

fn confirm(writer: &mut TopicWriter) {
    let end = writer.position();
    writer.confirm(end, ConfirmLevel::Stored, Some(LONG)).unwrap();
}

fn publish(writer: &mut TopicWriter, numbers: std::ops::Range<u32>) {
    numbers.for_each(|n| _ = writer.publish(n.to_string().as_bytes()).unwrap());
    confirm(writer);
}

/// A worker has an hour: a machine under load does not let its time pass.
fn group() -> GroupBuilder {
    Subscriber::builder().group("g").ack_time(Duration::from_secs(3600))
}

fn next(worker: &mut GroupWorker) -> GroupMessage {
    worker.recv(Some(LONG)).unwrap().expect("a message")
}

fn number(message: &GroupMessage) -> u32 {
    std::str::from_utf8(&message.bytes).unwrap().parse().unwrap()
}

fn stats(at: &str) -> GroupStats {
    let mut all = Subscriber::builder().groups(at).unwrap().list().unwrap();
    assert_eq!(all.len(), 1, "{all:?}");
    all.remove(0)
}

#[test]
fn each_message_goes_to_one_worker_and_does_not_come_again() {
    let dir = tempfile::tempdir().unwrap();
    let broker = broker(dir.path());
    let mut writer = topic(&broker.addr(), "k/a");
    let (mut one, mut two) =
        (group().join(&broker.addr(), "k/a").unwrap(), group().join(&broker.addr(), "k/a").unwrap());
    publish(&mut writer, 0..1000);
    // Both have as many as they may, before one of them says that it can have more.
    let begun = |worker: &mut GroupWorker| (0..100).map(|_| next(worker)).collect::<Vec<_>>();
    let first = [("one", begun(&mut one)), ("two", begun(&mut two))];
    let mut all = BTreeMap::new();
    for (name, message) in first.into_iter().flat_map(|(name, all)| all.into_iter().map(move |it| (name, it)))
    {
        assert_eq!(all.insert(number(&message), name), None, "it came twice");
        message.ack();
    }
    while all.len() < 1000 {
        for (name, worker) in [("one", &mut one), ("two", &mut two)] {
            while let Some(message) = worker.recv(Some(Duration::ZERO)).unwrap() {
                assert_eq!(message.attempt, 1);
                assert_eq!(all.insert(number(&message), name), None, "it came twice");
                message.ack();
            }
        }
    }
    one.flush(Some(LONG)).unwrap();
    two.flush(Some(LONG)).unwrap();
    let now = stats(&broker.addr());
    assert_eq!((now.pending, now.acked, now.workers), (0, 1000, 2));
    assert_eq!(now.lag_bytes(), 0, "{now:?}");
}

#[test]
fn a_group_goes_on_at_the_next_broker() {
    let dir = tempfile::tempdir().unwrap();
    let first = broker(dir.path());
    let mut writer = topic(&first.addr(), "k/a");
    publish(&mut writer, 0..100);
    let mut worker = group().join(&first.addr(), "k/a").unwrap();
    let mut acked = BTreeSet::new();
    for _ in 0..100 {
        let message = next(&mut worker);
        if !number(&message).is_multiple_of(3) {
            acked.insert(number(&message));
            message.ack();
        }
    }
    worker.flush(Some(LONG)).unwrap();
    drop(worker);
    drop(writer);
    first.stop();
    let second = broker(dir.path());
    assert_eq!(stats(&second.addr()).pending, 34, "the broker knows the group before a worker comes");
    let mut worker = group().join(&second.addr(), "k/a").unwrap();
    let rest: BTreeSet<u32> = (0..34).map(|_| next(&mut worker)).map(|message| number(&message)).collect();
    assert_eq!(rest.union(&acked).count(), 100);
    assert!(rest.is_disjoint(&acked));
}

#[test]
fn what_a_lost_worker_has_goes_to_others_and_its_acknowledgements_count() {
    let dir = tempfile::tempdir().unwrap();
    let broker = broker(dir.path());
    let proxy = Proxy::to(&broker.addr());
    let mut writer = topic(&broker.addr(), "k/a");
    publish(&mut writer, 0..10);
    let mut lost = group().join(&proxy.addr, "k/a").unwrap();
    let mut had: Vec<GroupMessage> = (0..10).map(|_| next(&mut lost)).collect();
    let mut other = group().join(&broker.addr(), "k/a").unwrap();
    proxy.cut();
    let again: Vec<GroupMessage> = (0..10).map(|_| next(&mut other)).collect();
    assert!(again.iter().all(|message| message.attempt == 2));
    // The work was done, whatever became of the connection.
    let done = had.remove(0);
    let position = done.position;
    done.ack();
    proxy.restore();
    lost.flush(Some(LONG)).unwrap();
    assert!(again.iter().any(|message| message.position == position));
    assert_eq!((stats(&broker.addr()).acked, stats(&broker.addr()).pending), (1, 9));
}

#[test]
fn a_message_comes_again_after_the_time_of_its_worker_or_when_it_is_given_back() {
    let dir = tempfile::tempdir().unwrap();
    let broker = broker(dir.path());
    let mut writer = topic(&broker.addr(), "k/a");
    let mut worker = group().ack_time(Duration::from_millis(1)).join(&broker.addr(), "k/a").unwrap();
    assert_eq!(worker.ack_time(), Duration::from_millis(1));
    publish(&mut writer, 0..1);
    let first = next(&mut worker);
    let second = next(&mut worker);
    assert_eq!((first.attempt, first.position), (1, second.position));
    assert!(second.attempt > 1);
    // Acknowledged late, but done.
    first.ack();
    worker.flush(Some(LONG)).unwrap();
    until("it is done", || stats(&broker.addr()).pending == 0);

    let mut patient = Subscriber::builder().group("patient").join(&broker.addr(), "k/a").unwrap();
    let message = next(&mut patient);
    message.extend(Duration::from_secs(3600));
    message.nack(Duration::ZERO);
    let message = next(&mut patient);
    assert_eq!(message.attempt, 2);
    message.release();
    assert_eq!(next(&mut patient).attempt, 2, "nobody has begun with it");
}

#[test]
fn a_message_whose_attempts_fail_goes_to_the_dead_letters() {
    let dir = tempfile::tempdir().unwrap();
    let broker = broker(dir.path());
    let mut writer = topic(&broker.addr(), "k/a");
    let mut said = AttributesBuf::new();
    said.content_type("text/plain").unwrap();
    writer.publish_with(&said, b"poison").unwrap();
    confirm(&mut writer);
    let _made = topic(&broker.addr(), "k/dead");
    let mut worker = group().dead_letters(3, "k/dead").join(&broker.addr(), "k/a").unwrap();
    for attempt in 1..=3 {
        let message = next(&mut worker);
        assert_eq!((message.attempt, &message.bytes[..]), (attempt, &b"poison"[..]));
        message.nack(Duration::ZERO);
    }
    let mut letters = Subscriber::connect(&broker.addr()).unwrap();
    letters.subscribe_from("k/dead", StartFrom::Oldest).unwrap();
    let letter = letters.recv(Some(LONG)).unwrap().expect("a letter");
    let attributes = letter.attributes.attributes();
    let facts: BTreeMap<&str, &str> = attributes.properties().collect();
    assert_eq!((&letter.bytes[..], attributes.content_type()), (&b"poison"[..], Some("text/plain")));
    assert_eq!((facts["rbmq-topic"], facts["rbmq-group"], facts["rbmq-attempts"]), ("k/a", "g", "3"));
    until("it is done", || (stats(&broker.addr()).pending, stats(&broker.addr()).dead) == (0, 1));
}

#[test]
fn messages_of_a_key_come_one_after_the_other() {
    let dir = tempfile::tempdir().unwrap();
    let broker = broker(dir.path());
    let mut writer = topic(&broker.addr(), "k/a");
    for n in 0..60_u32 {
        let mut said = AttributesBuf::new();
        said.key(&[b'a' + (n % 3) as u8]).unwrap();
        writer.publish_with(&said, n.to_string().as_bytes()).unwrap();
    }
    confirm(&mut writer);
    let mut workers = [0; 2].map(|_| group().ordered(true).join(&broker.addr(), "k/a").unwrap());
    let (mut last, mut held, mut count) = (BTreeMap::new(), BTreeMap::<Vec<u8>, GroupMessage>::new(), 0);
    while count < 60 {
        for worker in &mut workers {
            while let Some(message) = worker.recv(Some(Duration::ZERO)).unwrap() {
                let key = message.attributes.attributes().key().unwrap().to_vec();
                assert!(
                    last.insert(key.clone(), number(&message)).is_none_or(|before| before < number(&message))
                );
                assert!(held.insert(key, message).is_none(), "two of a key at a time");
                count += 1;
            }
        }
        assert!(held.len() <= 3);
        std::mem::take(&mut held).into_values().for_each(GroupMessage::ack);
    }
}

#[test]
fn a_slow_worker_holds_nobody() {
    let dir = tempfile::tempdir().unwrap();
    let broker = broker(dir.path());
    let mut writer = topic(&broker.addr(), "k/a");
    let mut slow = group().credit(5).join(&broker.addr(), "k/a").unwrap();
    let mut fast = group().credit(5).join(&broker.addr(), "k/a").unwrap();
    publish(&mut writer, 0..500);
    let kept: Vec<GroupMessage> = (0..5).map(|_| next(&mut slow)).collect();
    for _ in 0..495 {
        next(&mut fast).ack();
    }
    fast.flush(Some(LONG)).unwrap();
    let now = stats(&broker.addr());
    assert_eq!((now.pending, now.held, now.acked), (5, 5, 495));
    assert_eq!(now.floor, kept.iter().map(|message| message.position).min().unwrap());
}

#[test]
fn groups_begin_anew_and_are_forgotten() {
    let dir = tempfile::tempdir().unwrap();
    let broker = broker(dir.path());
    let mut writer = topic(&broker.addr(), "k/a");
    publish(&mut writer, 0..10);
    let mut worker = group().join(&broker.addr(), "k/a").unwrap();
    let positions: Vec<u64> = (0..10).map(|_| next(&mut worker)).map(|message| message.position).collect();
    let mut groups = Subscriber::builder().groups(&broker.addr()).unwrap();
    groups.reset("k/a", "g", GroupStart::Position(positions[7])).unwrap();
    let rest: Vec<u32> = (0..3).map(|_| next(&mut worker)).map(|message| number(&message)).collect();
    assert_eq!(rest, [7, 8, 9]);
    groups.reset("k/a", "g", GroupStart::Newest).unwrap();
    publish(&mut writer, 10..11);
    assert_eq!(number(&next(&mut worker)), 10);
    groups.reset("k/a", "g", GroupStart::Oldest).unwrap();
    assert_eq!(number(&next(&mut worker)), 0);
    groups.delete("k/a", "g").unwrap();
    let ended = loop {
        match worker.recv(Some(LONG)) {
            Ok(message) => drop(message.expect("an error follows")),
            Err(error) => break error,
        }
    };
    assert!(matches!(&ended, GroupError::Refused { reason, .. } if reason.contains("deleted")), "{ended}");
    assert_eq!(groups.list().unwrap(), []);
    let error = groups.delete("k/a", "g").unwrap_err().to_string();
    assert!(error.contains("no group 'g'"), "{error}");
}

#[test]
fn what_has_no_log_on_the_disk_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let broker = broker(dir.path());
    let refused =
        |builder: GroupBuilder, topic: &str| builder.join(&broker.addr(), topic).unwrap_err().to_string();
    let error = refused(group(), "other");
    assert!(error.contains("keep = true"), "{error}");
    let error = refused(group().dead_letters(3, "other"), "k/a");
    assert!(error.contains("keep = true") && error.contains("other"), "{error}");
    let error = refused(group().dead_letters(3, "k/a"), "k/a");
    assert!(error.contains("another one"), "{error}");
    let error = refused(Subscriber::builder().group("a/b"), "k/a");
    assert!(error.contains("no name of a group"), "{error}");
}

#[test]
fn retention_that_passes_a_group_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let broker = Broker::start(config(dir.path(), |rule| rule.keep_bytes = Some(4 << 20))).unwrap();
    let mut writer = topic(&broker.addr(), "k/a");
    let mut worker = group().credit(2).join(&broker.addr(), "k/a").unwrap();
    publish(&mut writer, 0..1);
    let first = next(&mut worker);
    // The broker has the last delivery in memory: the first one is on the disk alone.
    publish(&mut writer, 1..2);
    let second = next(&mut worker);
    // The log has the worker's message no more, and neither what follows it.
    let bytes = [b'x'; 4000];
    until("it is removed", || {
        (0..500).for_each(|_| _ = writer.publish(&bytes).unwrap());
        confirm(&mut writer);
        let now = stats(&broker.addr());
        now.end - now.next > 16 << 20
    });
    first.nack(Duration::ZERO);
    let message = next(&mut worker);
    assert_eq!((message.bytes.len(), number(&second)), (bytes.len(), 1));
    let now = stats(&broker.addr());
    assert!(now.lost == 1 && now.lost_bytes > 0, "{now:?}");
}

#[test]
fn the_right_to_subscribe_makes_no_topic() {
    let dir = tempfile::tempdir().unwrap();
    let broker = broker(dir.path());
    let error = group().join(&broker.addr(), "k/none").unwrap_err().to_string();
    assert!(error.contains("k/none") && error.contains("first publisher"), "{error}");
    let _exists = topic(&broker.addr(), "k/a");
    let error = group().dead_letters(3, "k/letters").join(&broker.addr(), "k/a").unwrap_err().to_string();
    assert!(error.contains("k/letters") && error.contains("first publisher"), "{error}");
    let names: Vec<_> =
        std::fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(names.iter().all(|name| !name.to_string_lossy().contains("none")), "{names:?}");
    assert!(names.iter().all(|name| !name.to_string_lossy().contains("letters")), "{names:?}");
}

#[test]
fn acknowledgements_of_before_a_reset_count_no_more() {
    let dir = tempfile::tempdir().unwrap();
    let broker = broker(dir.path());
    let mut writer = topic(&broker.addr(), "k/a");
    publish(&mut writer, 0..4);
    let mut worker = group().join(&broker.addr(), "k/a").unwrap();
    let old: Vec<GroupMessage> = (0..4).map(|_| next(&mut worker)).collect();
    let mut groups = Subscriber::builder().groups(&broker.addr()).unwrap();
    groups.reset("k/a", "g", GroupStart::Oldest).unwrap();
    old.into_iter().for_each(GroupMessage::ack);
    let again: Vec<GroupMessage> = (0..4).map(|_| next(&mut worker)).collect();
    assert_eq!(again.iter().map(number).collect::<Vec<_>>(), [0, 1, 2, 3]);
    let told = worker.flush(Some(LONG)).unwrap_err();
    assert!(told.to_string().contains('4'), "{told}");
    assert_eq!((stats(&broker.addr()).acked, stats(&broker.addr()).pending), (0, 4));
    again.into_iter().for_each(GroupMessage::ack);
    worker.flush(Some(LONG)).unwrap();
    assert_eq!((stats(&broker.addr()).acked, stats(&broker.addr()).pending), (4, 0));
}

#[test]
fn a_worker_that_closes_gives_back_what_it_has_not_begun_with_and_nobody_loses_an_attempt() {
    let dir = tempfile::tempdir().unwrap();
    let broker = broker(dir.path());
    let mut writer = topic(&broker.addr(), "k/a");
    publish(&mut writer, 0..500);
    for is_dropped in [true, false] {
        let mut leaving = group().credit(100).join(&broker.addr(), "k/a").unwrap();
        next(&mut leaving).ack();
        if is_dropped { drop(leaving) } else { leaving.close().unwrap() }
    }
    until("both are gone", || stats(&broker.addr()).workers == 0);
    assert_eq!(stats(&broker.addr()).failed, 0);
    let mut other = group().credit(1000).join(&broker.addr(), "k/a").unwrap();
    for _ in 0..498 {
        assert_eq!(next(&mut other).attempt, 1);
    }
}

#[test]
fn a_worker_has_no_more_than_its_number_when_its_time_is_over() {
    let dir = tempfile::tempdir().unwrap();
    let broker = broker(dir.path());
    let mut writer = topic(&broker.addr(), "k/a");
    publish(&mut writer, 0..100);
    let join = || group().ack_time(Duration::from_millis(1)).credit(4).join(&broker.addr(), "k/a").unwrap();
    let mut slow = join();
    let held: Vec<GroupMessage> = (0..4).map(|_| next(&mut slow)).collect();
    until("their time is over", || stats(&broker.addr()).failed >= 4);
    assert!(slow.recv(Some(Duration::from_millis(100))).unwrap().is_none(), "it has four already");
    let now = stats(&broker.addr());
    assert_eq!((now.delivered, now.held), (4, 0));
    held.into_iter().for_each(GroupMessage::ack);
    next(&mut slow).ack();
    slow.flush(Some(LONG)).unwrap();
}

#[test]
fn a_word_leaves_at_once_also_if_the_worker_is_not_called_again() {
    let dir = tempfile::tempdir().unwrap();
    let broker = broker(dir.path());
    let mut writer = topic(&broker.addr(), "k/a");
    publish(&mut writer, 0..20);
    let mut worker = group().join(&broker.addr(), "k/a").unwrap();
    for count in 1..=20 {
        next(&mut worker).ack();
        until("it is acknowledged", || stats(&broker.addr()).acked == count);
    }
}

fn join_of(topic: &str) -> GroupJoin {
    GroupJoin {
        topic: topic.parse().unwrap(),
        group: "g".parse().unwrap(),
        credit: 10,
        from_newest: false,
        ack_ms: 3_600_000,
        max_attempts: 0,
        dead_letter: None,
        ordered: false,
    }
}

/// A worker that says what it likes.
struct RawWorker {
    conn: Conn,
    rin: RIn,
    _ctx: Context,
}

impl RawWorker {
    fn connect(at: &str) -> Self {
        let ctx = Context::new(Config::default()).unwrap();
        let hello = Hello { role: Role::Subscriber, client: 1, name: "raw".into() };
        let conn = rbmq_wire::connect::start(&ctx, at, &hello.encode(), &|_| {}).unwrap();
        Self { rin: RIn::new(&conn), conn, _ctx: ctx }
    }

    fn say(&self, message: &Wire) {
        self.conn.send_control(&message.encode()).unwrap();
    }

    fn answer(&self) -> Wire {
        loop {
            match self.rin.recv(Some(LONG)).unwrap().expect("an answer") {
                InEvent::Control { message } if Wire::is(&message) => return Wire::decode(&message).unwrap(),
                _ => {}
            }
        }
    }
}

#[test]
fn a_connection_asks_for_one_group() {
    let dir = tempfile::tempdir().unwrap();
    let broker = broker(dir.path());
    let raw = RawWorker::connect(&broker.addr());
    raw.say(&Wire::Join(join_of("k/none")));
    raw.say(&Wire::Join(join_of("k/none")));
    let reason = raw.conn.wait_down(Some(LONG)).unwrap().expect("it is closed").to_string();
    assert!(reason.contains("one group"), "{reason}");
}

#[test]
fn marks_of_another_generation_and_of_what_the_log_has_not_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let broker = broker(dir.path());
    let mut writer = topic(&broker.addr(), "k/a");
    publish(&mut writer, 0..1);
    let raw = RawWorker::connect(&broker.addr());
    raw.say(&Wire::Join(join_of("k/a")));
    let Wire::Joined { generation, .. } = raw.answer() else { panic!("it does not join") };
    let ack = |position| Mark { kind: MarkKind::Ack, position, attempt: 1, ms: 0 };
    raw.say(&Wire::Marks { generation: generation ^ 1, marks: vec![ack(8), ack(9)] });
    assert_eq!(raw.answer(), Wire::Marked { count: 2, refused: 2 });
    raw.say(&Wire::Marks { generation, marks: vec![ack(u64::MAX)] });
    assert_eq!(raw.answer(), Wire::Marked { count: 3, refused: 3 });
    assert_eq!(stats(&broker.addr()).acked, 0);
    // It gives it back, says that it goes, and says the last word after that.
    raw.say(&Wire::Leave);
    raw.say(&Wire::Marks { generation, marks: vec![ack(8)] });
    assert_eq!(raw.answer(), Wire::Marked { count: 4, refused: 3 });
    assert_eq!((stats(&broker.addr()).acked, stats(&broker.addr()).workers), (1, 1));
    raw.conn.close("done");
    until("it is gone", || stats(&broker.addr()).workers == 0);
}

#[test]
fn workers_and_their_rings_have_limits() {
    let dir = tempfile::tempdir().unwrap();
    let mut config = config(dir.path(), |_| {});
    config.broker.max_group_workers = 2;
    config.broker.max_group_ring_bytes = 1 << 20;
    config.broker.max_group_credit = 3;
    let broker = Broker::start(config).unwrap();
    let mut writer = topic(&broker.addr(), "k/a");
    let mut first = group().credit(u32::MAX).join(&broker.addr(), "k/a").unwrap();
    publish(&mut writer, 0..10);
    let three: Vec<GroupMessage> = (0..3).map(|_| next(&mut first)).collect();
    assert_eq!((stats(&broker.addr()).held, three.len()), (3, 3));
    let second = group().join(&broker.addr(), "k/a").unwrap();
    let error = group().join(&broker.addr(), "k/a").unwrap_err().to_string();
    assert!(error.contains("broker.max_group_workers"), "{error}");
    second.close().unwrap();
    until("it is gone", || stats(&broker.addr()).workers == 1);
    group().join(&broker.addr(), "k/a").unwrap().close().unwrap();
}

/// A worker takes the only message, of so many bytes, at the first attempt.
fn takes_at_first(mut worker: GroupWorker, at: &str, bytes: usize) {
    let message = next(&mut worker);
    assert_eq!((message.bytes.len(), message.attempt), (bytes, 1));
    message.ack();
    worker.flush(Some(LONG)).unwrap();
    assert_eq!((stats(at).pending, stats(at).lost), (0, 0));
}

#[test]
fn messages_that_become_larger_than_the_rings_of_workers_come_nevertheless() {
    let dir = tempfile::tempdir().unwrap();
    let broker = broker(dir.path());
    let mut writer = topic(&broker.addr(), "k/a");
    publish(&mut writer, 0..1);
    let mut worker = group().join(&broker.addr(), "k/a").unwrap();
    next(&mut worker).ack();
    let large = vec![7; 5 << 20];
    writer.publish(&large).unwrap();
    confirm(&mut writer);
    takes_at_first(worker, &broker.addr(), large.len());
}

/// The stored message is larger than the ring with which the topic begins again, and its first attempt succeeds.
#[test]
fn large_messages_come_after_a_restart_of_the_broker() {
    let dir = tempfile::tempdir().unwrap();
    let first = broker(dir.path());
    let mut writer = topic(&first.addr(), "k/a");
    let large = vec![7; 5 << 20];
    writer.publish(&large).unwrap();
    confirm(&mut writer);
    group().join(&first.addr(), "k/a").unwrap().close().unwrap();
    drop((writer, first));
    let broker = broker(dir.path());
    let worker = group().join(&broker.addr(), "k/a").unwrap();
    takes_at_first(worker, &broker.addr(), large.len());
}

/// A worker whose quota allows no larger ring works on the other messages.
#[test]
fn a_message_that_is_too_large_for_a_worker_holds_no_other_message() {
    let dir = tempfile::tempdir().unwrap();
    let first = broker(dir.path());
    let mut writer = topic(&first.addr(), "k/a");
    writer.publish(&vec![7; 5 << 20]).unwrap();
    publish(&mut writer, 1..3);
    drop((writer, first));
    let mut config = config(dir.path(), |_| {});
    config.quotas.address_ring_bytes = Some(12 << 20);
    let broker = Broker::start(config).unwrap();
    let mut worker = group().join(&broker.addr(), "k/a").unwrap();
    for expected in 1..3 {
        let message = next(&mut worker);
        assert_eq!(number(&message), expected);
        message.ack();
    }
}

/// The dead-letter topic had only small messages before.
#[test]
fn large_messages_become_dead_letters() {
    let dir = tempfile::tempdir().unwrap();
    let broker = broker(dir.path());
    let mut writer = topic(&broker.addr(), "k/a");
    let _dead = topic(&broker.addr(), "k/dead");
    let mut worker = group().dead_letters(1, "k/dead").join(&broker.addr(), "k/a").unwrap();
    let large = vec![7; 5 << 20];
    writer.publish(&large).unwrap();
    publish(&mut writer, 0..1);
    next(&mut worker).nack(Duration::ZERO);
    next(&mut worker).nack(Duration::ZERO);
    worker.flush(Some(LONG)).unwrap();
    let mut letters = Subscriber::connect(&broker.addr()).unwrap();
    letters.subscribe_from("k/dead", StartFrom::Oldest).unwrap();
    let sizes = [(); 2].map(|()| letters.recv(Some(LONG)).unwrap().unwrap().bytes.len());
    assert!(sizes == [large.len(), 1] || sizes == [1, large.len()], "{sizes:?}");
    until("both are stored", || stats(&broker.addr()).pending == 0);
}

#[test]
fn the_rings_of_workers_count_as_what_they_take() {
    let dir = tempfile::tempdir().unwrap();
    let mut config = config(dir.path(), |rule| rule.ring_bytes = None);
    config.broker.max_group_ring_bytes = 3 << 20;
    let broker = Broker::start(config).unwrap();
    let _writer = topic(&broker.addr(), "k/a");
    // Twice the largest delivery, which has a header, is more than 2 MiB, and rings are powers of two.
    let error = group().join(&broker.addr(), "k/a").unwrap_err().to_string();
    assert!(error.contains("needs 4194304 more") && error.contains("broker.max_group_ring_bytes"), "{error}");
}

#[test]
fn a_connection_asks_one_question_at_a_time() {
    let dir = tempfile::tempdir().unwrap();
    let broker = broker(dir.path());
    let mut writer = topic(&broker.addr(), "k/a");
    let mut of_others = Subscriber::builder().group("others").join(&broker.addr(), "k/a").unwrap();
    group().join(&broker.addr(), "k/a").unwrap().close().unwrap();
    let raw = RawWorker::connect(&broker.addr());
    let of = Some(("k/a".parse().unwrap(), "g".parse().unwrap()));
    let ask = |request| Wire::Ask { request, action: GroupAction::ResetOldest, of: of.clone() };
    (0..500).for_each(|request| raw.say(&ask(request)));
    publish(&mut writer, 0..1);
    next(&mut of_others).ack();
    let answers: Vec<Wire> = (0..500).map(|_| raw.answer()).collect();
    let is_refused =
        |answer: &&Wire| matches!(answer, Wire::Failed { reason, .. } if reason.contains("one question"));
    let refused = answers.iter().filter(is_refused).count();
    assert!(refused > 0 && refused < 500, "{refused}");
    raw.say(&ask(500));
    assert!(matches!(raw.answer(), Wire::Rows { request: 500, .. }));
}

#[test]
fn a_worker_that_is_refused_makes_no_group() {
    let dir = tempfile::tempdir().unwrap();
    let mut config = config(dir.path(), |_| {});
    config.broker.max_group_workers = 1;
    let broker = Broker::start(config).unwrap();
    let _writer = topic(&broker.addr(), "k/a");
    let _worker = group().join(&broker.addr(), "k/a").unwrap();
    let error = Subscriber::builder().group("h").join(&broker.addr(), "k/a").unwrap_err().to_string();
    assert!(error.contains("broker.max_group_workers"), "{error}");
    assert_eq!(stats(&broker.addr()).group.as_str(), "g");
}

#[test]
fn groups_that_have_used_the_memory_of_all_hold_no_other_group() {
    let dir = tempfile::tempdir().unwrap();
    let mut config = config(dir.path(), |_| {});
    config.broker.max_group_pending_bytes = 1 << 20;
    let broker = Broker::start(config).unwrap();
    let mut writer = topic(&broker.addr(), "k/a");
    publish(&mut writer, 0..40_000);
    let mut greedy = group().credit(10_000).join(&broker.addr(), "k/a").unwrap();
    for _ in 0..16_384 {
        next(&mut greedy).nack(Duration::from_secs(3600));
    }
    until("it reads no further", || stats(&broker.addr()).full);
    // A turn reads 4,096 messages, and the limit is looked at in between.
    let pending = stats(&broker.addr()).pending;
    assert!((16_384..16_384 + 3 * 4096).contains(&pending), "{pending}");
    let mut other = Subscriber::builder().group("h").credit(100).join(&broker.addr(), "k/a").unwrap();
    for expected in 0..5000 {
        let message = next(&mut other);
        assert_eq!(number(&message), expected);
        message.ack();
    }
}

#[test]
fn groups_and_the_rings_of_workers_count_in_quotas() {
    let dir = tempfile::tempdir().unwrap();
    let mut config = config(dir.path(), |_| {});
    config.quotas.address_topics = Some(2);
    let broker = Broker::start(config).unwrap();
    let _writer = topic(&broker.addr(), "k/a");
    let worker = group().join(&broker.addr(), "k/a").unwrap();
    let of_h = || Subscriber::builder().group("h").join(&broker.addr(), "k/a");
    let error = of_h().unwrap_err().to_string();
    assert!(error.contains("topics"), "{error}");
    assert_eq!(stats(&broker.addr()).workers, 1);
    worker.close().unwrap();
    Subscriber::builder().groups(&broker.addr()).unwrap().delete("k/a", "g").unwrap();
    of_h().unwrap().close().unwrap();
}
