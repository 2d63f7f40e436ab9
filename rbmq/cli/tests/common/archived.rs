//! Kept topics with a real archive below their disk: a subscriber reads archive, disk and ring as one log.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::time::{Duration, Instant};

use rbmq::{ConfirmLevel, Event, Notice, Publisher, StartFrom, Subscriber, TopicOptions, TopicWriter};
use testkit::own_addr;

use super::{BrokerProcess, random};

/// A real archive. Its data stays whatever happens to it.
pub trait Engine {
    /// It is gone, with all of its connections.
    fn kill(&mut self);
    /// It is back.
    fn run(&mut self);
    /// It keeps its connections and answers nothing.
    fn pause(&mut self);
    /// It answers again.
    fn go_on(&mut self);
}

/// The time for events that must come: connections come back slowly, and the machine may be loaded.
const LONG: Duration = Duration::from_secs(240);

/// Bytes of a message.
const MESSAGE: usize = 1_000;

/// A broker that keeps 4 MiB on disk, and the address of its metrics.
struct World {
    config: String,
    addr: String,
    metrics: String,
    broker: Option<BrokerProcess>,
}

impl World {
    /// `archive` is a word for the archive in a rule, and `section` its settings.
    fn start(dir: &Path, archive: &str, section: &str) -> Self {
        let (path, addr, metrics) = (dir.join("rbmq.toml"), own_addr(), own_addr());
        let text = format!(
            "[broker]\nkeep_dir = '{}'\nkeep_sync_ms = 10\n[[broker.topics]]\npattern = 'k/#'\nkeep = true\n{archive}\n\
             keep_bytes = '4 MiB'\nring_bytes = '256k'\n\
             {section}\nbatch_bytes = '64 KiB'\nbatch_ms = 20\ntimeout_ms = 2000\nreplay_wait_ms = '10m'\n\
             [http]\nlisten = '{metrics}'\n",
            dir.join("kept").display(),
        );
        std::fs::write(&path, text).unwrap();
        let mut world = Self { config: path.to_str().unwrap().into(), addr, metrics, broker: None };
        world.run();
        world
    }

    fn run(&mut self) {
        self.broker = Some(BrokerProcess::start_at(&self.addr, &["--config", &self.config]));
    }

    fn kill(&mut self) {
        let broker = self.broker.take().unwrap();
        broker.process.signal("KILL");
        broker.process.finish();
    }

    /// A metric of the topic. None while the broker does not answer or has none.
    fn metric(&self, name: &str) -> Option<f64> {
        let mut stream = TcpStream::connect(&self.metrics).ok()?;
        stream.set_read_timeout(Some(LONG)).unwrap();
        stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: here\r\nConnection: close\r\n\r\n").ok()?;
        let mut text = String::new();
        stream.read_to_string(&mut text).ok()?;
        let line = format!("{name}{{topic=\"k/a\"}} ");
        text.lines().find_map(|found| found.strip_prefix(&line)?.parse().ok())
    }

    fn wait_metric(&self, name: &str, so: impl Fn(f64) -> bool) {
        wait(name, || self.metric(name).is_some_and(&so));
    }

    /// Waits until the archive has all records that the disk has.
    fn wait_for_archive(&self) {
        wait("the archive gets everything", || {
            self.metric("rbmq_kept_unsynced_bytes") == Some(0.0)
                && self.metric("rbmq_archive_lag_bytes") == Some(0.0)
        });
    }

    /// Publishes no faster than the archive.
    fn publish_archived(&self, writer: &mut TopicWriter, numbers: std::ops::Range<usize>) {
        for from in numbers.clone().step_by(1_000) {
            publish(writer, from..numbers.end.min(from + 1_000));
            self.wait_for_archive();
        }
    }

    fn subscriber(&self) -> Subscriber {
        let mut subscriber = Subscriber::connect(&self.addr).unwrap();
        subscriber.subscribe_from("k/a", StartFrom::Position(0)).unwrap();
        subscriber
    }
}

fn wait(what: &str, so: impl Fn() -> bool) {
    let deadline = Instant::now() + LONG;
    while !so() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A message that tells its number, and whose every byte can be checked.
fn message(n: usize) -> Vec<u8> {
    let mut bytes = format!("{n:08}").into_bytes();
    bytes.extend(random(n as u64 * 2 + 1, MESSAGE - 8));
    bytes
}

fn publish(writer: &mut TopicWriter, numbers: std::ops::Range<usize>) {
    for n in numbers {
        writer.publish(&message(n)).unwrap();
    }
    writer.confirm(writer.position(), ConfirmLevel::Accepted, Some(LONG)).unwrap();
}

/// Receives up to a message, each once, in order and with its bytes. Returns the messages before and behind each loss.
fn receive(subscriber: &mut Subscriber, numbers: std::ops::Range<usize>) -> Vec<(usize, usize)> {
    let (mut next, mut losses, mut is_lost) = (numbers.start, Vec::new(), false);
    while next < numbers.end {
        match subscriber.next_event(Some(LONG)).unwrap().expect("an event") {
            Event::Batch(batch) => {
                for record in batch.records() {
                    let n: usize = std::str::from_utf8(&record[..8]).unwrap().parse().unwrap();
                    assert!(record == message(n), "the bytes of {n}");
                    assert!(n == next || is_lost && n > next, "{n} instead of {next}");
                    if std::mem::take(&mut is_lost) {
                        losses.push((next - 1, n));
                    }
                    next = n + 1;
                }
            }
            Event::Notice(Notice::Lost { .. }) => is_lost = true,
            // The broker was killed.
            Event::Notice(_) => {}
            other => panic!("{other:?}"),
        }
    }
    losses
}

/// Archive, disk and ring are one log for subscribers, while broker and archive are killed.
pub fn are_one_log(engine: &mut dyn Engine, archive: &str, section: &str) {
    let dir = tempfile::tempdir().unwrap();
    let mut world = World::start(dir.path(), archive, section);
    let options = TopicOptions::default().ring_bytes(64 << 10);
    let mut writer = Publisher::connect(&world.addr).unwrap().topic_with("k/a", options).unwrap();

    // Far more than the disk keeps.
    world.publish_archived(&mut writer, 0..16_000);
    assert!(world.metric("rbmq_kept_file_bytes").unwrap() < 7e6);
    assert_eq!(receive(&mut world.subscriber(), 0..16_000), []);
    world.wait_metric("rbmq_archive_replayed_bytes_total", |bytes| bytes > 8e6);

    // The broker is killed while a publisher publishes and a subscriber reads the archive.
    for round in 0..3 {
        let mut from_start = world.subscriber();
        let first = 16_000 + round * 500;
        let publisher = std::thread::spawn(move || {
            publish(&mut writer, first..first + 500);
            writer
        });
        let reader = std::thread::spawn(move || receive(&mut from_start, 0..first + 500));
        std::thread::sleep(Duration::from_millis(30 + 40 * round as u64));
        world.kill();
        world.run();
        writer = publisher.join().unwrap();
        assert_eq!(reader.join().unwrap(), []);
        world.wait_for_archive();
    }

    // The archive is killed. The disk keeps the records that it misses, and a subscriber that needs it waits.
    engine.kill();
    publish(&mut writer, 17_500..19_500);
    world.wait_metric("rbmq_archive_failing", |failing| failing == 1.0);
    let mut waiting = world.subscriber();
    let reader = std::thread::spawn(move || receive(&mut waiting, 0..20_500));
    engine.run();
    world.publish_archived(&mut writer, 19_500..20_500);
    assert_eq!(reader.join().unwrap(), []);
    assert_eq!(world.metric("rbmq_archive_failing"), Some(0.0));
    assert!(world.metric("rbmq_archive_failures_total").unwrap() > 0.0);
    assert_eq!(world.metric("rbmq_archive_holes_total"), Some(0.0));
    an_outage_that_is_longer_than_the_disk_is_a_hole(&mut world, engine, &mut writer);

    // The archive answers nothing for a while, and may have taken the last batch.
    engine.pause();
    publish(&mut writer, 40_000..41_000);
    world.wait_metric("rbmq_archive_failing", |failing| failing == 1.0);
    engine.go_on();
    world.publish_archived(&mut writer, 41_000..46_000);
    assert_eq!(receive(&mut world.subscriber(), 0..46_000).len(), 1);
}

/// Everything else is there. The broker is killed meanwhile.
fn an_outage_that_is_longer_than_the_disk_is_a_hole(
    world: &mut World,
    engine: &mut dyn Engine,
    writer: &mut TopicWriter,
) {
    engine.kill();
    publish(writer, 20_500..26_000);
    world.kill();
    world.run();
    publish(writer, 26_000..32_000);
    engine.run();
    world.wait_for_archive();
    world.publish_archived(writer, 32_000..40_000);
    assert_eq!(world.metric("rbmq_archive_holes_total"), Some(1.0));
    let hole = world.metric("rbmq_archive_hole_bytes_total").unwrap();
    let losses = receive(&mut world.subscriber(), 0..40_000);
    let [(before, behind)] = losses[..] else { panic!("{losses:?}") };
    assert!((20_000..26_000).contains(&before) && (22_000..32_000).contains(&behind), "{losses:?}");
    let missing = ((behind - before - 1) * MESSAGE) as f64;
    assert!((missing..missing * 1.1).contains(&hole), "{losses:?}, {hole}");
}
