//! Publishers of numbered messages, each with a level that it confirms them at, and what they were told.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rbmq::{ConfirmError, ConfirmLevel, Publisher, TopicOptions, TopicWriter};
use rocketbufs::{Config, Context, Position};
use testkit::{LONG, Random};

use crate::cluster::{OnLoss, Plan, addresses_from};

/// How long a publisher waits for one confirmation before it publishes more.
const CONFIRM: Duration = Duration::from_millis(300);

/// A confirmation of all messages before a number.
#[derive(Debug, Clone, Copy)]
pub struct Confirmation {
    /// The first number that it is not about.
    pub end: usize,
    /// Whether it is known that somebody has them. Of the levels of the disk it always is.
    pub is_certain: bool,
}

/// What a publisher did and was told.
#[derive(Debug)]
pub struct Published {
    /// Its number, which all of its messages have.
    pub publisher: usize,
    /// The topic.
    pub topic: String,
    /// The level at which it waits.
    pub level: ConfirmLevel,
    /// When each message was published.
    pub times: Vec<Instant>,
    /// Where each message ends.
    ends: Vec<Position>,
    /// What was confirmed at its level.
    pub confirmed: Vec<Confirmation>,
    /// Messages of which it was told that they are lost, or may be.
    pub lost: Vec<Range<usize>>,
    /// The longest time between two confirmations.
    pub longest_pause: Duration,
    /// Whether it has died before the end of the round.
    pub is_dead: bool,
    /// Losses and refusals that it was told of.
    pub told: Vec<String>,
    /// Messages before this number were confirmed as archived at the end of the round, except for lost ones.
    pub archived_end: usize,
    /// Why its last message was not confirmed.
    pub stuck: Option<String>,
}

/// Publishers that run.
pub struct Publishers {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<Vec<Published>>>,
}

/// The settings of clients that look for silent brokers often.
pub fn watchful() -> Config {
    let mut config = Config::default();
    config.session.heartbeat_ms = 500;
    config.session.max_silence_ms = 3_000;
    config
}

/// The topic of a number.
pub fn topic(n: usize) -> String {
    format!("k/{n}/x")
}

impl Publishers {
    /// Starts publishers, so many for each topic, whose levels take turns.
    ///
    /// # Panics
    /// A publisher cannot open its topic in a healthy cluster.
    pub fn start(plan: &Plan, topics: usize, each: usize) -> Self {
        let Plan { seed, level, on_loss, .. } = *plan;
        // The level at which nothing is lost by the end of a broker.
        let lasting = if on_loss == OnLoss::Archive { ConfirmLevel::Archived } else { ConfirmLevel::Synced };
        let stop = Arc::<AtomicBool>::default();
        let turn = seed as usize % ConfirmLevel::ALL.len();
        let count = topics * each;
        let one = |place: usize| {
            let (stop, mut random) = (stop.clone(), Random::new(seed ^ ((place as u64) << 32)));
            let level = level.unwrap_or(ConfirmLevel::ALL[(place + turn) % ConfirmLevel::ALL.len()]);
            std::thread::spawn(move || {
                let mut lives = Vec::new();
                while lives.is_empty() || !stop.load(Ordering::Relaxed) {
                    let published = Published::new(place + lives.len() * count, topic(place % topics), level);
                    // Every other publisher dies now and then, and what it had not sent dies with it.
                    let life = (place / topics % 2 == 1)
                        .then(|| Duration::from_millis(random.between(1_000, 4_000)));
                    lives.extend(publish(published, life, lasting, &stop, &mut random));
                }
                lives
            })
        };
        Self { threads: (0..count).map(one).collect(), stop: stop.clone() }
    }

    /// Lets each publish a last message and wait until it is on a disk.
    ///
    /// # Panics
    /// A publisher did.
    pub fn finish(self) -> Vec<Published> {
        self.stop.store(true, Ordering::Relaxed);
        self.threads.into_iter().flat_map(|thread| thread.join().expect("no panic")).collect()
    }
}

/// Publishes until its life or the round is over. None: there was no broker in its life.
fn publish(
    mut published: Published,
    life: Option<Duration>,
    lasting: ConfirmLevel,
    stop: &AtomicBool,
    random: &mut Random,
) -> Option<Published> {
    let mut config = watchful();
    // As a publisher with a context of its own waits for its broker.
    config.limits.max_hold_ms = u32::MAX;
    let context = Context::new(config).expect("a context");
    let connection = Publisher::builder().context(&context);
    let connection = connection.connect(&addresses_from(published.publisher)).ok()?;
    let patience = Some(life.unwrap_or(LONG));
    let options = TopicOptions::default().open_timeout(patience).keep_until_delivered(random.percent(50));
    let mut writer = connection.topic_with(&published.topic, options).ok()?;
    let (level, born) = (published.level, Instant::now());
    let mut last = born;
    while !stop.load(Ordering::Relaxed) {
        for _ in 0..random.between(1, 4) {
            published.add(&mut writer, random.below(200) as usize, Duration::from_millis(200));
        }
        if published.confirm(&writer, level, CONFIRM) {
            published.longest_pause = published.longest_pause.max(last.elapsed());
            last = Instant::now();
        }
        if life.is_some_and(|life| born.elapsed() > life) {
            published.is_dead = true;
            // At once, as a process does that is killed.
            context.shutdown(Duration::ZERO);
            return Some(published);
        }
        std::thread::sleep(Duration::from_millis(random.between(5, 30)));
    }
    published.end(&mut writer, lasting);
    Some(published)
}

impl Published {
    /// Nothing yet.
    pub fn new(publisher: usize, topic: String, level: ConfirmLevel) -> Self {
        Self {
            publisher,
            topic,
            level,
            times: Vec::new(),
            ends: Vec::new(),
            confirmed: Vec::new(),
            lost: Vec::new(),
            longest_pause: Duration::ZERO,
            is_dead: false,
            told: Vec::new(),
            archived_end: 0,
            stuck: None,
        }
    }

    /// The message of a number, with bytes that follow from it.
    pub fn message(publisher: usize, number: usize, pad: usize) -> String {
        format!("{publisher} {number} {:.<pad$}", "")
    }

    fn add(&mut self, writer: &mut TopicWriter, pad: usize, patience: Duration) -> bool {
        let message = Self::message(self.publisher, self.times.len(), pad);
        let now = Instant::now();
        match writer.publish_timeout(message.as_bytes(), Some(patience)) {
            Ok(end) => {
                self.times.push(now);
                self.ends.push(end);
                true
            }
            Err(error) => {
                self.hear(format!("publish: {error}"));
                std::thread::sleep(Duration::from_millis(20));
                false
            }
        }
    }

    fn hear(&mut self, what: String) {
        if self.told.len() < 100 {
            self.told.push(what);
        }
    }

    /// Waits for what was published. Returns whether all of it was confirmed.
    fn confirm(&mut self, writer: &TopicWriter, level: ConfirmLevel, patience: Duration) -> bool {
        let before = writer.confirmed(level);
        match writer.confirm(writer.position(), level, Some(patience)) {
            Ok(confirmed) => {
                let is_certain = level.is_of_disk()
                    || confirmed.subscribers > 0 && confirmed.left == 0 && confirmed.lost == 0;
                let end = self.ends.partition_point(|end| *end <= confirmed.position);
                self.confirmed.push(Confirmation { end, is_certain });
                true
            }
            Err(ConfirmError::TimedOut { .. }) => {
                let end = self.ends.partition_point(|end| *end <= writer.confirmed(level).max(before));
                self.confirmed.push(Confirmation { end, is_certain: level.is_of_disk() });
                false
            }
            Err(error) => {
                self.lose(writer, level, &error);
                false
            }
        }
    }

    /// What the level does not confirm any more.
    fn lose(&mut self, writer: &TopicWriter, level: ConfirmLevel, error: &ConfirmError) {
        self.hear(format!("confirm: {error}"));
        if let Some((from, to)) = writer.accept_lost(level) {
            let first = self.ends.partition_point(|end| *end <= from);
            self.lost.push(first..self.ends.partition_point(|end| *end < to) + 1);
        }
        std::thread::sleep(Duration::from_millis(20));
    }

    /// A last message, which must be confirmed at this level in a healthy cluster.
    fn end(&mut self, writer: &mut TopicWriter, lasting: ConfirmLevel) {
        let began = Instant::now();
        let mut is_out = false;
        while began.elapsed() < LONG {
            is_out = is_out || self.add(writer, 0, Duration::from_secs(1));
            let end = writer.position();
            let confirmed = writer.confirm(end, lasting, Some(Duration::from_secs(1)));
            match confirmed {
                Ok(_) if is_out => {
                    self.stuck = None;
                    if lasting == ConfirmLevel::Archived {
                        self.archived_end = self.times.len();
                    }
                    return;
                }
                Ok(_) => {}
                Err(error @ ConfirmError::TimedOut { .. }) => self.stuck = Some(error.to_string()),
                Err(error) => {
                    // A publisher that asks for the archive for the first time hears once which messages are lost to it. Then it asks for those that it publishes from then on.
                    is_out &= !matches!(error, ConfirmError::NotStored { lost: true, .. });
                    self.lose(writer, lasting, &error);
                    self.stuck = Some(error.to_string());
                }
            }
        }
    }
}
