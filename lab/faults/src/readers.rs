//! Subscribers that write down everything that they receive.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rbmq::{Event, Notice, StartFrom, Subscriber};
use rocketbufs::{Epoch, Position};

use crate::publishers::watchful;

/// A message of a publisher.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Mark {
    /// The publisher.
    pub publisher: usize,
    /// Its number.
    pub number: usize,
}

/// What a subscriber heard about a log.
#[derive(Debug, Clone)]
pub struct Heard {
    /// The topic.
    pub topic: String,
    /// The log.
    pub epoch: Epoch,
    /// Where it begins.
    pub from: Position,
    /// Where it ends.
    pub to: Position,
    /// The bytes; none of a loss that was told.
    pub bytes: Option<Vec<u8>>,
    /// The messages in them.
    pub marks: Vec<Mark>,
}

/// Everything that a subscriber heard.
#[derive(Debug, Default, Clone)]
pub struct Notes {
    /// In order.
    pub heard: Vec<Heard>,
    /// Losses, refusals and errors, for people.
    pub told: Vec<String>,
    /// When something came last.
    pub last: Option<Instant>,
}

/// How a subscriber connects.
#[derive(Debug, Clone)]
pub struct Place {
    /// One or more brokers.
    pub addresses: String,
    /// The name of a durable one.
    pub name: Option<String>,
}

/// A subscriber of all topics from their beginning on, which runs.
pub struct Reader {
    notes: Arc<Mutex<Notes>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Reader {
    /// Starts to receive, as soon as a broker lets it.
    pub fn start(place: Place) -> Self {
        let (notes, stop) = (Arc::<Mutex<Notes>>::default(), Arc::<AtomicBool>::default());
        let (shared, stopped) = (notes.clone(), stop.clone());
        let thread = std::thread::spawn(move || read(&place, &shared, &stopped));
        Self { notes, stop, thread: Some(thread) }
    }

    /// Looks at what has come so far.
    ///
    /// # Panics
    /// The thread of the subscriber did.
    pub fn look<T>(&self, at: impl FnOnce(&Notes) -> T) -> T {
        at(&self.notes.lock().expect("no panic"))
    }

    /// Ends, and returns all that came.
    ///
    /// # Panics
    /// The thread of the subscriber did.
    pub fn finish(mut self) -> Notes {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.take().into_iter().for_each(|thread| thread.join().expect("no panic"));
        std::mem::take(&mut *self.notes.lock().expect("no panic"))
    }
}

fn read(place: &Place, notes: &Mutex<Notes>, stop: &AtomicBool) {
    let is_over = || stop.load(Ordering::Relaxed);
    let connect = || {
        let mut builder = Subscriber::builder().config(watchful());
        if let Some(name) = &place.name {
            builder = builder.durable(name, Duration::from_secs(120));
        }
        let mut subscriber = builder.connect(&place.addresses).ok()?;
        subscriber.subscribe_from("k/#", StartFrom::Oldest).expect("a filter");
        Some(subscriber)
    };
    let mut subscriber = None;
    while subscriber.is_none() && !is_over() {
        subscriber = connect();
    }
    let Some(mut subscriber) = subscriber else { return };
    while !is_over() {
        let event = subscriber.next_event(Some(Duration::from_millis(50)));
        let mut notes = notes.lock().expect("no panic");
        match event {
            Ok(Some(event)) => notes.hear(event),
            Ok(None) => {}
            Err(error) => {
                notes.told.push(error.to_string());
                return;
            }
        }
    }
}

impl Notes {
    fn hear(&mut self, event: Event<'_>) {
        self.last = Some(Instant::now());
        match event {
            Event::Batch(batch) => {
                let marks = batch.records().filter_map(Mark::of).collect();
                self.heard.push(Heard {
                    topic: batch.topic().to_string(),
                    epoch: batch.epoch(),
                    from: batch.position(),
                    to: batch.end(),
                    bytes: Some(batch.as_slice().to_vec()),
                    marks,
                });
            }
            Event::Notice(Notice::Lost { topic, epoch, from, to }) => {
                self.told.push(format!("{topic}: lost {from} to {to} of {epoch}"));
                let topic = topic.to_string();
                self.heard.push(Heard { topic, epoch, from, to, bytes: None, marks: Vec::new() });
            }
            Event::Notice(Notice::Joined { .. } | Notice::Disconnected(_) | Notice::Reconnected) => {}
            Event::Notice(notice) => self.told.push(format!("{notice:?}")),
            _ => {}
        }
    }

    /// The messages that came.
    pub fn marks(&self) -> impl Iterator<Item = Mark> + '_ {
        self.heard.iter().flat_map(|heard| heard.marks.iter().copied())
    }
}

impl Mark {
    fn of(record: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(record).ok()?;
        let mut words = text.split(' ');
        Some(Self { publisher: words.next()?.parse().ok()?, number: words.next()?.parse().ok()? })
    }
}
