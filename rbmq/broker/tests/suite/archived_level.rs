//! Confirmations of what an archive has.

use std::sync::Arc;
use std::time::Duration;

use rbmq::{ConfirmError, ConfirmLevel, Publisher, TopicOptions, TopicWriter};
use rbmq_broker::{Broker, BrokerConfig, Parts, Rule};
use rocketbufs::Position;
use tempfile::TempDir;
use testkit::own_addr;

use crate::memory::Memory;

/// The time for events that must come. The machine may be loaded.
const LONG: Duration = Duration::from_secs(60);

/// A broker whose archive gets a batch every hour, unless somebody waits for it.
struct Site {
    dir: TempDir,
    archive: Arc<Memory>,
    addr: String,
    broker: Broker,
}

impl Site {
    fn start() -> Self {
        Self::start_with(Arc::default())
    }

    fn start_with(archive: Arc<Memory>) -> Self {
        let (dir, addr) = (tempfile::tempdir().unwrap(), own_addr());
        let broker = Self::broker(&dir, &addr, &archive);
        Self { dir, archive, addr, broker }
    }

    fn broker(dir: &TempDir, addr: &str, archive: &Arc<Memory>) -> Broker {
        let rule = |name: &str, kafka| {
            let mut rule = Rule::new(name.parse().unwrap());
            (rule.keep, rule.kafka, rule.keep_bytes) = (true, kafka, Some(4 << 20));
            rule
        };
        let mut config = BrokerConfig::default();
        config.broker.listen = addr.into();
        config.broker.keep_dir = dir.path().to_str().unwrap().into();
        config.broker.topics = vec![rule("k/#", true), rule("disk", false)].into();
        config.kafka.brokers = "in memory".into();
        (config.kafka.batch_bytes, config.kafka.batch_ms) = (8 << 10, 3_600_000);
        config.validate().unwrap();
        Broker::start_with(config, Parts { archive: Some(archive.clone()), ..Parts::default() }).unwrap()
    }

    fn restart(self) -> Self {
        let Self { dir, archive, addr, broker } = self;
        broker.stop();
        let broker = Self::broker(&dir, &addr, &archive);
        Self { dir, archive, addr, broker }
    }

    /// Publishes more than the disk keeps.
    fn overflow(&self, writer: &mut TopicWriter) {
        for _ in 0..12 {
            let end = publish(writer, 2_000);
            writer.confirm(end, ConfirmLevel::Stored, Some(LONG)).unwrap();
        }
    }

    fn topic(&self, name: &str) -> TopicWriter {
        let options = TopicOptions::default().ring_bytes(64 << 10);
        Publisher::connect(&self.broker.addr()).unwrap().topic_with(name, options).unwrap()
    }
}

fn publish(writer: &mut TopicWriter, count: usize) -> Position {
    (0..count).map(|_| writer.publish(&[7; 500]).unwrap()).last().unwrap()
}

fn archived(writer: &mut TopicWriter, position: Position) -> Result<Position, ConfirmError> {
    writer.confirm(position, ConfirmLevel::Archived, Some(LONG)).map(|confirmed| confirmed.position)
}

#[test]
fn a_publisher_that_waits_for_the_archive_does_not_wait_for_its_batch() {
    let site = Site::start();
    let mut writers = [site.topic("k/a"), site.topic("k/a"), site.topic("k/b")];
    for round in 0..20 {
        let positions = writers.each_mut().map(|writer| publish(writer, 1 + round * 7));
        for (writer, position) in writers.iter_mut().zip(positions) {
            assert!(archived(writer, position).unwrap() >= position);
            for level in [ConfirmLevel::Stored, ConfirmLevel::Synced] {
                assert!(writer.confirm(position, level, Some(LONG)).unwrap().position >= position);
            }
        }
    }
    assert_eq!(site.archive.logs(), 2);
    assert_eq!(site.archive.repeated(), 0);
    drop(writers);
    // A restarted broker says what its predecessor's archive has.
    let site = site.restart();
    let mut again = site.topic("k/a");
    let next = publish(&mut again, 3);
    assert!(archived(&mut again, next).unwrap() >= next);
}

#[test]
fn who_waits_for_an_archive_that_is_down_is_confirmed_when_it_is_back() {
    let site = Site::start();
    let mut writer = site.topic("k/a");
    site.archive.set_down(true);
    let position = publish(&mut writer, 10);
    let early = writer.confirm(position, ConfirmLevel::Archived, Some(Duration::from_millis(50)));
    assert!(matches!(early, Err(ConfirmError::TimedOut { .. })), "{early:?}");
    writer.confirm(position, ConfirmLevel::Synced, Some(LONG)).unwrap();
    site.archive.set_down(false);
    archived(&mut writer, position).unwrap();
    // Parts of a batch are not taken for the batch.
    site.archive.tear_next(3);
    let position = publish(&mut writer, 100);
    archived(&mut writer, position).unwrap();
    assert!(site.archive.end() >= 110 * 500);
}

#[test]
fn a_topic_without_an_archive_says_so() {
    let site = Site::start();
    let mut writer = site.topic("disk");
    let position = publish(&mut writer, 1);
    let error = archived(&mut writer, position).unwrap_err();
    assert!(matches!(error, ConfirmError::NotStored { lost: false, .. }), "{error:?}");
    assert!(error.to_string().contains("the topic has no archive"), "{error}");
    writer.confirm(position, ConfirmLevel::Synced, Some(LONG)).unwrap();
}

fn assert_missing(result: Result<Position, ConfirmError>) {
    let Err(error @ ConfirmError::NotStored { lost: true, .. }) = result else { panic!("{result:?}") };
    assert!(error.to_string().contains("the archive may lack"), "{error}");
}

/// What the disk removes before the archive has it is never confirmed, also not by a restarted broker; what comes afterwards is.
#[test]
fn a_hole_of_the_archive_is_told_to_those_who_wait() {
    let site = Site::start();
    let mut writer = site.topic("k/a");
    let first = publish(&mut writer, 10);
    archived(&mut writer, first).unwrap();
    site.archive.set_down(true);
    let position = publish(&mut writer, 10);
    let waiting = writer.confirmation(position, ConfirmLevel::Archived);
    site.overflow(&mut writer);
    // Nothing is lost while it is not known how much: the archive may be back in time for what is on the disk.
    let synced = publish(&mut writer, 1);
    writer.confirm(synced, ConfirmLevel::Synced, Some(LONG)).unwrap();
    site.archive.set_down(false);
    assert_missing(waiting.wait(Some(LONG)).map(|confirmed| confirmed.position));
    let next = publish(&mut writer, 10);
    archived(&mut writer, next).unwrap();
    let later = publish(&mut writer, 10);
    // Somebody who has published before, and has not asked yet, comes to a restarted broker.
    let site = site.restart();
    assert_missing(archived(&mut writer, later));
    let next = publish(&mut writer, 10);
    archived(&mut writer, next).unwrap();
    // A publisher that is new has nothing that could be missing.
    let mut new = site.topic("k/a");
    let next = publish(&mut new, 10);
    archived(&mut new, next).unwrap();
}

/// The archive was never there before the disk removed the bytes, so nobody has copied a hole.
#[test]
fn what_the_disk_removed_before_the_archive_was_there_is_not_confirmed() {
    let archive = Arc::<Memory>::default();
    archive.set_down(true);
    let site = Site::start_with(archive);
    let mut writer = site.topic("k/a");
    let position = publish(&mut writer, 10);
    let waiting = writer.confirmation(position, ConfirmLevel::Archived);
    site.overflow(&mut writer);
    site.archive.set_down(false);
    assert_missing(waiting.wait(Some(LONG)).map(|confirmed| confirmed.position));
    let next = publish(&mut writer, 10);
    archived(&mut writer, next).unwrap();
}

/// What the archive does not have is no matter of the disk.
#[test]
fn who_waits_for_the_disk_does_not_hear_of_the_archive() {
    let site = Site::start();
    let mut writer = site.topic("disk");
    for _ in 0..50 {
        let position = publish(&mut writer, 1);
        let synced = writer.confirmation(position, ConfirmLevel::Synced);
        assert!(archived(&mut writer, position).is_err());
        synced.wait(Some(LONG)).unwrap();
    }
}
