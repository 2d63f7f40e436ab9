//! All ingests of a broker.

use std::time::Duration;

use multimqc::{Level, TopicId};
use rbmq_broker::{Broker, FeedOptions, IngestSettings};

use super::error::IngestError;
use super::interface::Interface;
use super::line::Line;
use super::worker::Worker;

/// How long the history of a kept log stays for subscribers that connect again.
const HISTORY: Duration = Duration::from_secs(10);

/// The running ingests of a broker: `[[broker.ingest]]` of its configuration. Dropping it takes what has arrived and then ends. The
/// topics stay until the broker stops, so drop it before the broker.
pub struct Ingest {
    workers: Vec<Worker>,
    about: Vec<String>,
}

impl Ingest {
    /// Starts the ingests of a broker's configuration, with a thread for each interface.
    ///
    /// # Errors
    /// [`IngestError`]. Nothing is left attached.
    pub fn start(broker: &Broker) -> Result<Self, IngestError> {
        let settings = &broker.config().broker.ingest;
        let mut ingest = Self { workers: Vec::new(), about: Vec::new() };
        let mut names: Vec<&str> = settings.iter().map(|entry| entry.source.interface.as_str()).collect();
        names.sort_unstable();
        names.dedup();
        for name in names {
            let entries: Vec<_> = settings.iter().filter(|entry| entry.source.interface == name).collect();
            ingest.add(broker, name, &entries)?;
        }
        Ok(ingest)
    }

    /// A line about each source, for people.
    pub fn describe(&self) -> &[String] {
        &self.about
    }

    fn add(&mut self, broker: &Broker, name: &str, entries: &[&IngestSettings]) -> Result<(), IngestError> {
        let interface = Interface::open(name, entries)?;
        let mut lines = Vec::new();
        for entry in entries {
            lines.push(open_line(broker, &interface, entry)?);
            let topic = lines.last().map(|line| line.counters().values().topic);
            let topic = topic.expect("a line was added");
            self.about.push(format!("topic '{topic}' gets {} ({})", entry.source, interface.describe()));
        }
        self.workers.push(Worker::start(name, interface, lines, entries[0].max_age())?);
        Ok(())
    }
}

/// Makes the feed of a topic, which begins with the oldest message that the level has.
fn open_line(broker: &Broker, interface: &Interface, entry: &IngestSettings) -> Result<Line, IngestError> {
    let level: &dyn Level = interface.level().as_ref();
    let topic = TopicId(entry.source.topic);
    let window = level.window(topic).ok_or(multimqc::LevelError::UnknownTopic(topic))?;
    let name = entry.topic_name().map_err(|error| IngestError::Topic(error.to_string()))?;
    let kept = interface.ring(topic).filter(|_| entry.keep.is_some());
    // The ring of a process before this one may begin inside of a message.
    let marks = kept.as_ref().map(|ring| ring.marks()).unwrap_or_default();
    let start = match marks.into_iter().find(|mark| *mark > 0 && *mark >= window.first) {
        _ if window.first == 0 => 0,
        Some(mark) => mark,
        None => window.head,
    };
    let mut options = FeedOptions::new(name).ring_bytes(entry.ring_bytes).start(start);
    if kept.is_some() {
        options = options.kept(log_name(entry, window.epoch.0), HISTORY);
    }
    Ok(Line::new(level, topic, broker.feed(options)?, kept))
}

/// The name of a log that outlives the broker: the same for the same ring, and different for any other.
fn log_name(entry: &IngestSettings, epoch: u32) -> u128 {
    // Maps of the kernel end with its boot, so their names need not outlive it.
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let folder = entry.keep.as_deref().map(|folder| folder.display().to_string()).unwrap_or_default();
    let text = format!("{boot}\n{}\n{folder}\n{epoch}", entry.source);
    // FNV-1a of 128 bits.
    text.bytes().fold(0x6c62_272e_07bb_0142_62b8_2175_6295_c58d, |hash: u128, byte| {
        (hash ^ u128::from(byte)).wrapping_mul(0x0000_0000_0100_0000_0000_0000_0000_013b)
    })
}
