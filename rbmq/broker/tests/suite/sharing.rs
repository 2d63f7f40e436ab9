//! Topics whose log goes on in the archive when their owner is gone.

use std::sync::Arc;
use std::time::Duration;

use rbmq::{ConfirmError, ConfirmLevel, Event, Notice, Publisher, StartFrom, Subscriber, TopicWriter};
use rbmq_broker::{Broker, BrokerConfig, ClusterMember, OnLoss, Owner, Parts, TopicStats};
use rocketbufs::Position;
use tempfile::TempDir;
use testkit::until;

use crate::cluster::{LONG, Table, config, options, subscribe};
use crate::memory::Memory;

const TOPIC: &str = "k/a";

/// Brokers with one archive, which gets a batch every hour, unless somebody waits for it.
struct Members {
    archive: Arc<Memory>,
    brokers: Vec<Option<Broker>>,
    configs: Vec<BrokerConfig>,
    tables: Vec<Arc<Table>>,
    _dirs: Vec<TempDir>,
    term: u64,
}

impl Members {
    fn new(count: usize) -> Self {
        let dirs: Vec<TempDir> = (0..count).map(|_| tempfile::tempdir().unwrap()).collect();
        let configs: Vec<BrokerConfig> = dirs.iter().map(shared_config).collect();
        let tables: Vec<Arc<Table>> = (0..count).map(|_| Arc::default()).collect();
        let claims = Arc::default();
        tables.iter().for_each(|table: &Arc<Table>| table.share_claims(&claims));
        for (n, table) in tables.iter().enumerate() {
            let others = (0..count).filter(|other| *other != n);
            let member = |n: usize| ClusterMember {
                id: n.to_string(),
                addresses: vec![configs[n].broker.listen.clone()],
            };
            table.set_others(others.map(member).collect());
            table.set(TOPIC, Owner::Unsettled { reason: "the test says so".into() });
        }
        let (archive, brokers) = (Arc::default(), (0..count).map(|_| None).collect());
        let mut members = Self { archive, brokers, configs, tables, _dirs: dirs, term: 0 };
        (0..count).for_each(|n| members.start(n));
        members
    }

    fn start(&mut self, n: usize) {
        let parts = Parts { archive: Some(self.archive.clone()), cluster: Some(self.tables[n].clone()) };
        self.brokers[n] = Some(Broker::start_with(self.configs[n].clone(), parts).unwrap());
    }

    fn restart_as(&mut self, n: usize, on_loss: OnLoss) {
        self.kill(n);
        self.configs[n].cluster.on_loss = on_loss;
        self.start(n);
    }

    /// As `kill -9`, as far as others see.
    fn kill(&mut self, n: usize) {
        drop(self.brokers[n].take());
    }

    fn addr(&self, n: usize) -> String {
        self.configs[n].broker.listen.clone()
    }

    /// Gives the topic to a member in a new term, and tells these members.
    fn give(&mut self, to: usize, told: &[usize]) {
        self.term += 1;
        for n in told {
            let elsewhere = Owner::Elsewhere { addresses: vec![self.addr(to)] };
            self.tables[*n].set(TOPIC, if *n == to { Owner::Here { term: self.term } } else { elsewhere });
        }
        let told = told.iter().filter_map(|n| self.brokers[*n].as_ref());
        told.for_each(|broker| broker.watch().cluster_changed());
    }

    /// A member does not know who has the topic.
    fn forget_owner(&self, at: usize) {
        self.tables[at].set(TOPIC, Owner::Unsettled { reason: "the test says so".into() });
        self.tell(at);
    }

    /// Tells a member that its table has changed.
    fn tell(&self, at: usize) {
        self.brokers[at].as_ref().unwrap().watch().cluster_changed();
    }

    /// Whether a member has a buffer of the topic.
    fn has_buffer(&self, at: usize) -> bool {
        self.copies(at, |_| 1) > 0
    }

    /// A number of the topic at a member.
    fn copies(&self, at: usize, number: impl Fn(&TopicStats) -> u64) -> u64 {
        let topics = self.brokers[at].as_ref().unwrap().topics();
        topics.iter().find(|stats| stats.topic.as_str() == TOPIC).map_or(0, number)
    }

    fn writer(&self, at: usize) -> TopicWriter {
        Publisher::connect(&self.addr(at)).unwrap().topic_with(TOPIC, options()).unwrap()
    }

    /// The end of the topic's log at a member.
    fn log_end(&self, at: usize) -> Position {
        let topics = self.brokers[at].as_ref().unwrap().topics();
        let topic = topics.iter().find(|stats| stats.topic.as_str() == TOPIC);
        topic.and_then(|topic| topic.boundary).expect("the topic's end")
    }

    /// Publishes until the disk of the owner has more than the archive, which takes what comes during the turn that each opening begins.
    /// Returns the number of messages.
    fn publish_ahead(&self, owner: usize, writer: &mut TopicWriter) -> u64 {
        let mut count = 0;
        while count == 0 || self.archive.end() == self.log_end(owner) {
            let stored = publish(writer, count..count + 20);
            confirm(writer, stored, ConfirmLevel::Synced);
            count += 20;
        }
        count
    }

    fn read(&self, at: usize, count: u64) -> Vec<Seen> {
        read(&mut subscribe(&self.addr(at), TOPIC), count)
    }
}

fn shared_config(dir: &TempDir) -> BrokerConfig {
    let mut config = config(dir.path());
    let mut rules: Vec<_> = config.broker.topics.iter().take(1).cloned().collect();
    rules[0].kafka = true;
    config.broker.topics = rules.into();
    config.kafka.brokers = "in memory".into();
    config.kafka.batch_ms = 3_600_000;
    (config.cluster.name, config.cluster.on_loss) = ("c".into(), OnLoss::Archive);
    config
}

/// What a subscriber sees.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Seen {
    /// Messages with these numbers, one after the other.
    Numbers(u64, u64),
    /// Positions that are lost.
    Lost(Position, Position),
}

/// Reads up to a message.
fn read(subscriber: &mut Subscriber, last: u64) -> Vec<Seen> {
    let mut seen = Vec::<Seen>::new();
    loop {
        match subscriber.next_event(Some(LONG)).unwrap().unwrap_or_else(|| panic!("{seen:?}")) {
            Event::Batch(batch) => {
                for record in batch.records() {
                    let n = u64::from_le_bytes(record.try_into().unwrap());
                    match seen.last_mut() {
                        Some(Seen::Numbers(_, end)) if *end == n => *end += 1,
                        _ => seen.push(Seen::Numbers(n, n + 1)),
                    }
                }
                if matches!(seen.last(), Some(Seen::Numbers(_, end)) if *end == last) {
                    return seen;
                }
            }
            Event::Notice(Notice::Lost { from, to, .. }) => match seen.last_mut() {
                Some(Seen::Lost(_, end)) if *end == from => *end = to,
                _ => seen.push(Seen::Lost(from, to)),
            },
            Event::Notice(_) => {}
            other => panic!("{other:?} behind {seen:?}"),
        }
    }
}

fn publish(writer: &mut TopicWriter, numbers: std::ops::Range<u64>) -> Position {
    numbers.map(|n| writer.publish(&n.to_le_bytes()).unwrap()).last().unwrap()
}

fn confirm(writer: &mut TopicWriter, at: Position, level: ConfirmLevel) {
    writer.confirm(at, level, Some(LONG)).unwrap();
}

/// The messages of the former owner and ten of the next one are there once.
fn assert_all_of_both(seen: &[Seen], count: u64) {
    let [Seen::Numbers(0, former), Seen::Lost(..), Seen::Numbers(begin, end)] = *seen else {
        panic!("{seen:?}")
    };
    assert_eq!((former, begin, end), (count, count, count + 10));
}

/// What was confirmed is there once, what was not comes again, and the positions between are told.
#[test]
fn the_next_owner_goes_on_where_the_archive_ends() {
    let mut members = Members::new(3);
    members.give(0, &[0, 1, 2]);
    let mut writer = members.writer(1);
    let archived = publish(&mut writer, 0..100);
    confirm(&mut writer, archived, ConfirmLevel::Archived);
    let end = members.archive.end();
    // The turn of the archive that has confirmed this may still be under way.
    members.archive.set_down(true);
    let stored = publish(&mut writer, 100..120);
    confirm(&mut writer, stored, ConfirmLevel::Synced);
    let mut there = subscribe(&members.addr(2), TOPIC);
    assert_eq!(read(&mut there, 120), [Seen::Numbers(0, 120)]);
    members.kill(0);
    members.archive.set_down(false);
    members.give(1, &[1, 2]);
    let all = publish(&mut writer, 120..140);
    confirm(&mut writer, all, ConfirmLevel::Archived);
    let seen = members.read(1, 140);
    let [Seen::Numbers(0, 100), Seen::Lost(from, to), Seen::Numbers(100, 140)] = seen[..] else {
        panic!("{seen:?}")
    };
    assert!(from == end && to > from + (4 << 30), "{from} {to} {end}");
    // Who has read what the archive did not get is told how far that goes, and gets it again.
    let seen = read(&mut there, 140);
    let [Seen::Lost(read, read_to), Seen::Numbers(100, 140)] = seen[..] else { panic!("{seen:?}") };
    assert!(read > from && read_to == to, "{seen:?}");
    // The owner of before has nothing that anybody reads.
    members.start(0);
    members.give(0, &[0, 1, 2]);
    let all = publish(&mut writer, 140..150);
    confirm(&mut writer, all, ConfirmLevel::Archived);
    let seen = members.read(0, 150);
    let [Seen::Numbers(0, 100), Seen::Lost(from, to), ref behind @ ..] = seen[..] else { panic!("{seen:?}") };
    assert_eq!((from, to), (end, read_to), "as at the owner before");
    // The last ones may have reached the former owner before it knew.
    let is_whole = matches!(
        *behind,
        [Seen::Numbers(100, 150)] | [Seen::Numbers(100, 140), Seen::Lost(..), Seen::Numbers(140, 150)]
    );
    assert!(is_whole, "{seen:?}");
}

impl Members {
    /// The first member has more than the archive, and the last one has read it all. Returns the publisher and the reader there.
    fn leave_a_tail(&mut self) -> (TopicWriter, Subscriber) {
        self.give(0, &[0, 1, 2]);
        let mut writer = self.writer(1);
        let archived = publish(&mut writer, 0..100);
        confirm(&mut writer, archived, ConfirmLevel::Archived);
        // The turn of the archive that has confirmed this may still be under way.
        self.archive.set_down(true);
        let stored = publish(&mut writer, 100..120);
        confirm(&mut writer, stored, ConfirmLevel::Synced);
        let mut there = subscribe(&self.addr(2), TOPIC);
        assert_eq!(read(&mut there, 120), [Seen::Numbers(0, 120)]);
        (writer, there)
    }

    /// A subscriber that begins at the last member begins with what the owner's ring has of these messages.
    fn begins_with_the_owner(&self, last: u64) {
        let seen = self.read(2, last);
        assert!(matches!(seen[..], [Seen::Numbers(100.., end)] if end == last), "{seen:?}");
    }
}

/// A subscriber that begins at another member reads nothing that only the owner before had.
#[test]
fn who_begins_at_another_member_begins_with_what_the_owner_has() {
    let mut members = Members::new(3);
    members.kill(2);
    members.configs[2].framework.session.linger_ms = 10;
    members.start(2);
    let (mut writer, mut there) = members.leave_a_tail();
    members.kill(0);
    until("the copy has ended", || members.copies(2, |stats| stats.ended.into()) > 0);
    members.archive.set_down(false);
    members.give(1, &[1, 2]);
    let all = publish(&mut writer, 120..140);
    confirm(&mut writer, all, ConfirmLevel::Archived);
    // The member receives from the owner by now.
    let seen = read(&mut there, 140);
    assert!(matches!(seen[..], [Seen::Lost(..), Seen::Numbers(100, 140)]), "{seen:?}");
    members.begins_with_the_owner(140);
}

/// The owner before is started again, and offers the log that it receives from the next one: in another ring than its own before.
#[test]
fn what_a_member_has_of_the_owner_before_ends_when_that_is_started_again() {
    let mut members = Members::new(3);
    members.kill(2);
    // This member hears of the other one only through the owner before.
    let before = ClusterMember { id: "0".into(), addresses: vec![members.addr(0)] };
    members.tables[2].set_others(vec![before]);
    members.configs[2].framework.session.linger_ms = 3_600_000;
    members.start(2);
    let (mut writer, mut there) = members.leave_a_tail();
    members.kill(0);
    members.archive.set_down(false);
    members.give(1, &[0, 1, 2]);
    let all = publish(&mut writer, 120..140);
    confirm(&mut writer, all, ConfirmLevel::Archived);
    members.start(0);
    let seen = read(&mut there, 140);
    assert!(matches!(seen[..], [Seen::Lost(..), Seen::Numbers(100.., 140)]), "{seen:?}");
    members.begins_with_the_owner(140);
}

/// An owner that stood still for days knows objects that rules have removed meanwhile, and the next owner has found none.
#[test]
fn an_owner_whose_objects_have_expired_confirms_nothing_that_another_one_does_not_count() {
    let mut members = Members::new(2);
    members.give(0, &[0, 1]);
    let mut late = members.writer(0);
    until("its archive is open", || members.archive.logs() == 1);
    // The turn that follows the opening has nothing to copy, which no call tells. A later one would copy what is published now.
    std::thread::sleep(Duration::from_millis(300));
    let stored = publish(&mut late, 0..20);
    confirm(&mut late, stored, ConfirmLevel::Synced);
    members.archive.forget();
    members.give(1, &[1]);
    let mut other = members.writer(1);
    let position = publish(&mut other, 1_000..1_010);
    confirm(&mut other, position, ConfirmLevel::Archived);
    let early = late.confirm(stored, ConfirmLevel::Archived, Some(Duration::from_millis(300)));
    assert!(early.is_err(), "{early:?}");
    let addr = members.addr(1);
    members.tables[0].set(TOPIC, Owner::Elsewhere { addresses: vec![addr] });
    members.brokers[0].as_ref().unwrap().watch().cluster_changed();
    let all = publish(&mut late, 20..30);
    confirm(&mut late, all, ConfirmLevel::Archived);
    let seen = members.read(1, 30);
    assert!(
        matches!(seen[..], [Seen::Lost(..), Seen::Numbers(1_000, 1_010), Seen::Numbers(0, 30)]),
        "{seen:?}"
    );
}

/// A broker claims no positions for a topic that has no place here, so a member with a place takes the topic without a gap. A place that becomes free is used.
#[test]
fn a_broker_without_a_place_for_a_topic_claims_nothing() {
    let mut members = Members::new(2);
    let settings = &mut members.configs[1].broker;
    (settings.max_topics, settings.closed_linger_ms) = (1, 10);
    members.kill(1);
    members.start(1);
    let other = Publisher::connect(&members.addr(1)).unwrap();
    let mut filling = other.topic_with("free", options()).unwrap();
    publish(&mut filling, 0..1);
    members.give(0, &[0, 1]);
    let mut writer = members.writer(0);
    let archived = publish(&mut writer, 0..10);
    confirm(&mut writer, archived, ConfirmLevel::Archived);
    members.kill(0);
    let before = members.tables[1].claim(TOPIC);
    members.give(1, &[1]);
    let connection = Publisher::connect(&members.addr(1)).unwrap();
    let early = connection.topic_with(TOPIC, options().open_timeout(Some(Duration::from_millis(300))));
    assert!(early.is_err() && members.tables[1].claim(TOPIC) == before, "nothing is claimed");
    drop((filling, other));
    let mut here = connection.topic_with(TOPIC, options()).unwrap();
    let all = publish(&mut here, 50..60);
    confirm(&mut here, all, ConfirmLevel::Archived);
    assert_eq!(members.tables[1].claim(TOPIC).unwrap().term, members.term);
    let seen = members.read(1, 60);
    assert!(matches!(seen[..], [Seen::Numbers(0, 10), Seen::Lost(..), Seen::Numbers(50, 60)]), "{seen:?}");
}

/// An owner that is started again goes on with its disk: nothing is lost, and nothing is left out.
/// The next owner was no member yet when the one before had the topic, and nobody publishes.
#[test]
fn a_topic_that_its_owner_has_never_heard_of_is_served_without_publishers() {
    let mut members = Members::new(2);
    members.kill(1);
    members.give(0, &[0]);
    let mut writer = members.writer(0);
    let archived = publish(&mut writer, 0..10);
    confirm(&mut writer, archived, ConfirmLevel::Archived);
    drop(writer);
    members.kill(0);
    members.start(1);
    members.give(1, &[1]);
    assert_eq!(members.read(1, 10), [Seen::Numbers(0, 10)]);
}

/// A place among the topics is kept for a topic as long as somebody waits for it, and each publisher has only as many as buffers.
#[test]
fn a_topic_that_nobody_waits_for_any_more_keeps_no_place() {
    let mut members = Members::new(1);
    let settings = &mut members.configs[0].broker;
    (settings.max_topics, settings.max_buffers_per_publisher) = (2, 1);
    members.kill(0);
    members.archive.set_down(true);
    members.start(0);
    members.give(0, &[0]);
    let short = || options().open_timeout(Some(Duration::from_millis(300)));
    let asking = Publisher::connect(&members.addr(0)).unwrap();
    assert!(asking.topic_with(TOPIC, short()).is_err(), "its archive is down");
    assert!(asking.topic_with("k/b", short()).is_err(), "one buffer too many");
    let other = Publisher::connect(&members.addr(0)).unwrap();
    let first = other.topic_with("free/a", options()).unwrap();
    let another = Publisher::connect(&members.addr(0)).unwrap();
    let refused = another.topic_with("free/b", short()).unwrap_err();
    assert!(refused.to_string().contains("2 topics"), "{refused}");
    drop(asking);
    until("the place is free", || another.topic_with("free/b", short()).is_ok());
    drop(first);
}

#[test]
fn an_owner_that_comes_back_in_its_term_has_all_that_its_disk_has() {
    let mut members = Members::new(1);
    members.give(0, &[0]);
    let mut writer = members.writer(0);
    let archived = publish(&mut writer, 0..10);
    confirm(&mut writer, archived, ConfirmLevel::Archived);
    let stored = publish(&mut writer, 10..20);
    confirm(&mut writer, stored, ConfirmLevel::Synced);
    members.kill(0);
    members.start(0);
    members.tables[0].set(TOPIC, Owner::Here { term: 1 });
    members.brokers[0].as_ref().unwrap().watch().cluster_changed();
    let all = publish(&mut writer, 20..30);
    confirm(&mut writer, all, ConfirmLevel::Archived);
    assert_eq!(members.read(0, 30), [Seen::Numbers(0, 30)]);
}

/// An owner that the map did not know for a while serves its log again, also if nobody publishes.
#[test]
fn an_owner_that_is_back_serves_again_without_publishers() {
    let mut members = Members::new(2);
    members.kill(0);
    members.configs[0].broker.closed_linger_ms = 10;
    members.start(0);
    members.give(0, &[0, 1]);
    let mut writer = members.writer(0);
    let all = publish(&mut writer, 0..20);
    confirm(&mut writer, all, ConfirmLevel::Archived);
    drop(writer);
    members.forget_owner(0);
    until("it is closed", || !members.has_buffer(0));
    members.tables[0].set(TOPIC, Owner::Here { term: members.term });
    members.tell(0);
    assert_eq!(members.read(0, 20), [Seen::Numbers(0, 20)]);
}

/// A topic that another member had goes on here without a publisher, also if the copy from there has gone.
#[test]
fn a_topic_whose_copy_has_gone_goes_on_without_publishers() {
    let mut members = Members::new(2);
    members.kill(1);
    members.configs[1].broker.closed_linger_ms = 10;
    members.start(1);
    members.give(0, &[0, 1]);
    let mut writer = members.writer(0);
    let all = publish(&mut writer, 0..20);
    confirm(&mut writer, all, ConfirmLevel::Archived);
    drop(writer);
    assert_eq!(members.read(1, 20), [Seen::Numbers(0, 20)]);
    members.forget_owner(0);
    members.forget_owner(1);
    until("the copy has gone", || !members.has_buffer(1));
    members.give(1, &[0, 1]);
    assert_eq!(members.read(1, 20), [Seen::Numbers(0, 20)]);
}

/// Others go on where the archive ends, so it has all before they may.
#[test]
fn a_broker_that_ends_gives_its_archive_all_before_others_have_its_topics() {
    let mut members = Members::new(2);
    members.give(0, &[0, 1]);
    let mut writer = members.writer(1);
    let count = members.publish_ahead(0, &mut writer);
    let (archive, end, mut archived) = (members.archive.clone(), members.log_end(0), 0);
    members.brokers[0].take().unwrap().stop_with(|| archived = archive.end());
    assert_eq!([archived, archive.end()], [end; 2]);
    members.give(1, &[1]);
    let all = publish(&mut writer, count..count + 10);
    confirm(&mut writer, all, ConfirmLevel::Archived);
    let seen = members.read(1, count + 10);
    assert_all_of_both(&seen, count);
}

/// A member that gives a topic away closes it when the archive has all.
#[test]
fn a_topic_that_is_given_away_is_archived_first() {
    let mut members = Members::new(2);
    members.give(0, &[0, 1]);
    let mut writer = members.writer(1);
    let count = members.publish_ahead(0, &mut writer);
    members.tables[0].set(TOPIC, Owner::Unsettled { reason: "it is given away".into() });
    let watch = members.brokers[0].as_ref().unwrap().watch();
    assert_eq!(watch.archived_topics(), [TOPIC.parse().unwrap()]);
    watch.cluster_changed();
    until("it is closed", || watch.archived_topics().is_empty());
    members.give(1, &[0, 1]);
    let all = publish(&mut writer, count..count + 10);
    confirm(&mut writer, all, ConfirmLevel::Archived);
    let seen = members.read(1, count + 10);
    assert_all_of_both(&seen, count);
}

/// A log that was archived before another broker could go on says who its publishers are, also if none of them writes any more.
#[test]
fn a_log_of_before_the_setting_comes_once_too() {
    let mut members = Members::new(2);
    members.restart_as(0, OnLoss::Wait);
    members.give(0, &[0, 1]);
    let mut writer = members.writer(1);
    let archived = publish(&mut writer, 0..20);
    confirm(&mut writer, archived, ConfirmLevel::Archived);
    assert!(!members.archive.has_note());
    members.restart_as(0, OnLoss::Archive);
    until("the end has a note", || members.archive.has_note());
    members.kill(0);
    members.give(1, &[1]);
    let all = publish(&mut writer, 20..30);
    confirm(&mut writer, all, ConfirmLevel::Archived);
    let seen = members.read(1, 30);
    assert!(matches!(seen[..], [Seen::Numbers(0, 20), Seen::Lost(..), Seen::Numbers(20, 30)]), "{seen:?}");
}

/// Rules of the store have removed all that an idle topic had there: the log goes on with its name, and no position is used twice.
#[test]
fn a_topic_whose_objects_have_all_expired_goes_on() {
    let mut members = Members::new(2);
    members.give(0, &[0, 1]);
    let mut writer = members.writer(1);
    let archived = publish(&mut writer, 0..20);
    confirm(&mut writer, archived, ConfirmLevel::Archived);
    let mut there = subscribe(&members.addr(1), TOPIC);
    assert_eq!(read(&mut there, 20), [Seen::Numbers(0, 20)]);
    members.kill(0);
    members.archive.forget();
    members.give(1, &[1]);
    let all = publish(&mut writer, 20..30);
    confirm(&mut writer, all, ConfirmLevel::Archived);
    let (mut seen, mut lost) = (Vec::new(), 0);
    for one in read(&mut there, 30) {
        match one {
            Seen::Lost(from, to) if from < to => lost = to,
            numbers => seen.push(numbers),
        }
    }
    // Its note has expired too, so publishers may repeat what their rings have still.
    assert!(lost > 1 << 40 && matches!(seen.last(), Some(Seen::Numbers(0..=20, 30))), "{lost} {seen:?}");
}

/// An owner that has not heard that it is none confirms nothing more, and what it has taken since comes again where the topic is.
#[test]
fn an_owner_of_before_is_fenced_by_the_archive() {
    let mut members = Members::new(3);
    members.give(0, &[0, 1, 2]);
    let mut late = members.writer(0);
    let archived = publish(&mut late, 0..50);
    confirm(&mut late, archived, ConfirmLevel::Archived);
    let mut far = subscribe(&members.addr(2), TOPIC);
    assert_eq!(read(&mut far, 50), [Seen::Numbers(0, 50)]);
    members.give(1, &[1, 2]);
    let mut other = members.writer(1);
    let position = publish(&mut other, 1_000..1_010);
    confirm(&mut other, position, ConfirmLevel::Archived);
    // Others receive from the owner, although the one before lives and offers the log still.
    let seen = read(&mut far, 1_010);
    assert!(matches!(seen[..], [Seen::Lost(..), Seen::Numbers(1_000, 1_010)]), "{seen:?}");
    let position = publish(&mut late, 50..60);
    let early = late.confirm(position, ConfirmLevel::Archived, Some(Duration::from_millis(300)));
    assert!(early.is_err(), "{early:?}");
    let is_told = matches!(early, Err(ConfirmError::NotStored { .. }));
    let addr = members.addr(1);
    members.tables[0].set(TOPIC, Owner::Elsewhere { addresses: vec![addr] });
    members.brokers[0].as_ref().unwrap().watch().cluster_changed();
    let last = publish(&mut late, 60..70);
    confirm(&mut late, last, ConfirmLevel::Archived);
    let seen = members.read(1, 70);
    assert!(
        matches!(
            seen[..],
            [Seen::Numbers(0, 50), Seen::Lost(..), Seen::Numbers(1_000, 1_010), Seen::Numbers(50, 70)]
        ),
        "{is_told} {seen:?}"
    );
    // The log of before is not at its old place any more.
    let mut subscriber = Subscriber::connect(&members.addr(0)).unwrap();
    subscriber.subscribe_from(TOPIC, StartFrom::Oldest).unwrap();
    let more = publish(&mut late, 70..80);
    confirm(&mut late, more, ConfirmLevel::Archived);
    let seen = read(&mut subscriber, 80);
    assert!(!seen.iter().any(|seen| matches!(seen, Seen::Numbers(..=50, 60..70))), "{seen:?}");
}
