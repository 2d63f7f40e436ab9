//! Parts of logs that the disk may have to be waited for are read by a thread first.
//!
//! ```text
//!   protocol ─ read ─▶ known to be in memory? ── yes ──▶ read in place
//!                           └── no ─▶ put off ─▶ job ─▶ thread: reads it once, into the memory of the system ─▶ bell ─▶ the command again
//! ```
//!
//! What clients read is mostly in the memory of the system, and reading it there costs less than handing it over. Nobody can ask whether it is. So
//! what was stored since the gateway knows the log counts as known, and what the thread has just read. All other clients are served meanwhile.

use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use locks::Mutex;
use rbmq_broker::{KeptLog, KeptRead};
use rbmq_wire::TopicName;
use rocketbufs::Position;
use tracing::warn;

use super::wake::Bell;
use crate::protocol::{ConnId, Fetch};

/// How long what was read counts as known. The system may have given its memory to others; then the gateway waits for the disk.
const KNOWN_FOR: Duration = Duration::from_secs(30);

/// So much of the end of a log is in memory, where it was written since the gateway knows the log.
const TAIL_BYTES: u64 = 32 << 20;

/// The most parts of a log, and the most logs, that are known.
const MAX_PARTS: usize = 256;
const MAX_LOGS: usize = 2000;

/// The most parts that wait to be read. Clients may ask and leave.
const MAX_JOBS: usize = 1000;

/// The most deliveries and holes of one job.
const MAX_STEPS: usize = 100_000;

/// A part of a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Part {
    /// From a position on.
    From(Position),
    /// What is before a position.
    Before(Position),
    /// What is looked at on the way to a time, in milliseconds since 1970.
    Time(u64),
}

/// What was read.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Known {
    Range(Range<Position>),
    Time(u64),
    /// The thread has panicked in it: nobody else tries it for a while.
    Failed(Part),
}

/// A part to be read.
pub(super) struct Job<L = KeptLog> {
    pub(super) conn: ConnId,
    pub(super) topic: TopicName,
    pub(super) log: L,
    pub(super) part: Part,
    /// How much from there on.
    pub(super) bytes: u64,
}

struct Fetched {
    conn: ConnId,
    topic: TopicName,
    known: Known,
}

/// What both threads have.
#[derive(Default)]
struct Shared {
    /// Those who wait. A job of another client is dropped: it has left.
    waiting: HashSet<ConnId>,
    fetched: Vec<Fetched>,
    is_over: bool,
}

/// What is known of a log.
struct Log {
    /// Where it ended when the gateway first asked.
    grown_from: Position,
    /// With the times at which they were read, the newest last.
    parts: Vec<(Known, Instant)>,
}

/// The thread, and what it has read.
pub(super) struct Fetcher {
    bell: Bell,
    shared: Arc<Mutex<Shared>>,
    /// The thread begins with the first job.
    thread: Option<(SyncSender<Job>, JoinHandle<()>)>,
    logs: HashMap<TopicName, Log>,
}

impl Part {
    /// The part and nothing more.
    fn alone(self) -> Known {
        match self {
            Self::From(position) => Known::Range(position..position + 1),
            Self::Before(position) => Known::Range(position.saturating_sub(1)..position.max(1)),
            Self::Time(time) => Known::Time(time),
        }
    }
}

impl Known {
    fn has(&self, part: Part) -> bool {
        match (self, part) {
            (Self::Range(range), Part::From(position)) => range.contains(&position),
            (Self::Range(range), Part::Before(position)) => range.contains(&position.saturating_sub(1)),
            (Self::Time(known), Part::Time(time)) => *known == time,
            _ => false,
        }
    }
}

impl Log {
    fn has(&self, part: Part, kept: &Range<Position>, now: Instant) -> bool {
        let is_new = |at: Instant| now.saturating_duration_since(at) < KNOWN_FOR;
        self.has_written(part, kept)
            || self.parts.iter().rev().any(|(known, at)| known.has(part) && is_new(*at))
    }

    fn has_failed(&self, part: Part, now: Instant) -> bool {
        let is_new = |at: Instant| now.saturating_duration_since(at) < KNOWN_FOR;
        self.parts.iter().any(|(known, at)| *known == Known::Failed(part) && is_new(*at))
    }

    /// Whether the part was written since the gateway knows the log, and not long ago.
    fn has_written(&self, part: Part, kept: &Range<Position>) -> bool {
        let tail = self.grown_from.max(kept.end.saturating_sub(TAIL_BYTES));
        match part {
            Part::From(position) => position >= tail,
            Part::Before(position) => position > tail,
            Part::Time(_) => kept.start >= tail,
        }
    }

    fn note(&mut self, known: Known, now: Instant) {
        if self.parts.len() >= MAX_PARTS {
            self.parts.drain(..MAX_PARTS / 2);
        }
        self.parts.push((known, now));
    }
}

impl Fetcher {
    pub(super) fn new(bell: Bell) -> Self {
        Self { bell, shared: Arc::default(), thread: None, logs: HashMap::new() }
    }

    /// Whether a part of a log, which has these positions, can be read without waiting for the disk, as far as that is known.
    pub(super) fn has(&mut self, topic: &TopicName, part: Part, kept: Range<Position>) -> bool {
        // A log that was removed may have begun anew.
        if let Some(log) = self.logs.get(topic).filter(|log| log.grown_from <= kept.end) {
            return log.has_written(part, &kept) || log.has(part, &kept, Instant::now());
        }
        if self.logs.len() >= MAX_LOGS {
            self.logs.clear();
        }
        let log = Log { grown_from: kept.end, parts: Vec::new() };
        let has = log.has(part, &kept, Instant::now());
        self.logs.insert(topic.clone(), log);
        has
    }

    /// Whether reading a part has failed in a way that nobody can answer for, a short time ago.
    pub(super) fn has_failed(&self, topic: &TopicName, part: Part) -> bool {
        self.logs.get(topic).is_some_and(|log| log.has_failed(part, Instant::now()))
    }

    /// A client has left: nothing is read for it any more.
    pub(super) fn forget(&mut self, conn: ConnId) {
        self.shared.lock().waiting.remove(&conn);
    }

    /// Lets the thread read a part of a log. If too many wait, or there is no thread, the part counts as known.
    pub(super) fn fetch(&mut self, job: Job) -> Fetch {
        if self.thread.is_none() {
            let (jobs, waiting) = sync_channel(MAX_JOBS);
            let (shared, bell) = (self.shared.clone(), self.bell.clone());
            match threads::spawn("rbmq-logs", move || run(&waiting, &shared, &bell, read)) {
                Ok(thread) => self.thread = Some((jobs, thread)),
                Err(error) => warn!("a gateway reads logs without a thread for it: {error}"),
            }
        }
        let (conn, topic, part) = (job.conn, job.topic.clone(), job.part);
        if let Some((jobs, _)) = &self.thread {
            // The thread looks for the client only afterwards.
            let mut shared = self.shared.lock();
            if jobs.try_send(job).is_ok() {
                shared.waiting.insert(conn);
                return Fetch::Waits;
            }
        }
        if let Some(log) = self.logs.get_mut(&topic) {
            log.note(part.alone(), Instant::now());
        }
        Fetch::Now
    }

    /// The clients whose parts were read since the last call.
    pub(super) fn take(&mut self) -> Vec<ConnId> {
        if self.thread.is_none() {
            return Vec::new();
        }
        let (fetched, now) = (std::mem::take(&mut self.shared.lock().fetched), Instant::now());
        let note = |Fetched { conn, topic, known }| {
            if let Some(log) = self.logs.get_mut(&topic) {
                log.note(known, now);
            }
            conn
        };
        fetched.into_iter().map(note).collect()
    }
}

impl Drop for Fetcher {
    fn drop(&mut self) {
        self.shared.lock().is_over = true;
        if let Some((jobs, thread)) = self.thread.take() {
            drop(jobs);
            // A panic of the thread was reported where it happened.
            let _ = thread.join();
        }
    }
}

fn run<L>(
    jobs: &Receiver<Job<L>>,
    shared: &Mutex<Shared>,
    bell: &Bell,
    read: impl Fn(&mut L, Part, u64) -> Known,
) {
    while let Ok(Job { conn, topic, mut log, part, bytes }) = jobs.recv() {
        let is_wanted = {
            let mut shared = shared.lock();
            if shared.is_over {
                return;
            }
            shared.waiting.remove(&conn)
        };
        if !is_wanted {
            continue;
        }
        // A panic was reported where it happened. The log goes with the job, and all who wait are answered.
        let known = catch_unwind(AssertUnwindSafe(|| read(&mut log, part, bytes)));
        let known = known.unwrap_or(Known::Failed(part));
        shared.lock().fetched.push(Fetched { conn, topic, known });
        bell.ring();
    }
}

/// Reads a part. What the disk does not give counts as read: who asks again learns why.
fn read(log: &mut KeptLog, part: Part, bytes: u64) -> Known {
    let most = log.read_bytes() + bytes;
    let goes_on = |log: &KeptLog, steps: &mut usize| {
        *steps += 1;
        log.read_bytes() < most && *steps < MAX_STEPS
    };
    let mut steps = 0;
    match part {
        Part::From(from) => {
            let mut at = from;
            while goes_on(log, &mut steps) {
                at = match log.read(at) {
                    Ok(KeptRead::Batch(batch)) => batch.end(),
                    Ok(KeptRead::Gap(to)) => to,
                    _ => break,
                };
            }
            Known::Range(from..at.max(from + 1))
        }
        Part::Before(to) => {
            let mut at = to;
            while goes_on(log, &mut steps) {
                at = match log.read_before(at) {
                    Ok(Some(batch)) => batch.position(),
                    _ => break,
                };
            }
            Known::Range(at.min(to.saturating_sub(1))..to)
        }
        Part::Time(time) => {
            // The answer is another one by the time that it is used.
            let _ = log.find_time(time);
            Known::Time(time)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_read_or_written_lately_is_known() {
        let (mut fetcher, topic) = (Fetcher::new(Bell::new().unwrap()), "t".parse().unwrap());
        assert!(
            !fetcher.has(&topic, Part::From(0), 0..100) && !fetcher.has(&topic, Part::Before(100), 0..100)
        );
        assert!(
            fetcher.has(&topic, Part::From(100), 0..101) && fetcher.has(&topic, Part::Before(101), 0..101)
        );
        assert!(fetcher.has(&topic, Part::Time(7), 100..200), "all of it was written lately");
        let log = fetcher.logs.get_mut(&topic).unwrap();
        let now = Instant::now();
        log.parts = vec![(Known::Range(10..20), now), (Known::Time(5), now)];
        for (part, is_known) in [
            (Part::From(9), false),
            (Part::From(10), true),
            (Part::From(20), false),
            (Part::Before(10), false),
            (Part::Before(20), true),
            (Part::Before(0), false),
            (Part::Time(5), true),
            (Part::Time(6), false),
        ] {
            assert_eq!(log.has(part, &(0..200), now), is_known, "{part:?}");
            assert!(!log.has(part, &(0..200), now + KNOWN_FOR), "{part:?}");
            assert!(part.alone().has(part) || part == Part::Before(0));
        }
        // A long log is not in memory for ever.
        let (short, long) = (0..200, 0..200 + TAIL_BYTES);
        assert!(!log.has(Part::From(150), &long, now) && log.has(Part::From(150), &short, now));
        // A log that has begun anew.
        assert!(!fetcher.has(&topic, Part::From(10), 0..50));
    }

    #[test]
    fn a_panic_of_a_read_is_answered_and_nothing_is_read_for_those_who_have_left() {
        let (mut fetcher, topic) = (Fetcher::new(Bell::new().unwrap()), "t".parse::<TopicName>().unwrap());
        assert!(!fetcher.has(&topic, Part::From(1), 0..100));
        let (jobs, waiting) = sync_channel(MAX_JOBS);
        for at in 0..4 {
            let (conn, part) = (ConnId(at), Part::From(at));
            jobs.send(Job { conn, topic: topic.clone(), log: (), part, bytes: 1 }).unwrap();
            fetcher.shared.lock().waiting.insert(conn);
        }
        drop(jobs);
        fetcher.forget(ConnId(2));
        run(&waiting, &fetcher.shared, &fetcher.bell, |(), part, _| {
            assert!(part != Part::From(2), "its client has left");
            assert!(part != Part::From(1), "the log is broken here");
            part.alone()
        });
        let fetched = std::mem::take(&mut fetcher.shared.lock().fetched);
        let expected =
            [(0, Part::From(0).alone()), (1, Known::Failed(Part::From(1))), (3, Part::From(3).alone())];
        assert_eq!(
            fetched.iter().map(|done| (done.conn.0, done.known.clone())).collect::<Vec<_>>(),
            expected
        );
        assert!(fetcher.shared.lock().waiting.is_empty());
        // It is an error for a while, and then tried again.
        let now = Instant::now();
        let log = fetcher.logs.get_mut(&topic).unwrap();
        fetched.into_iter().for_each(|done| log.note(done.known, now));
        assert!(log.has_failed(Part::From(1), now) && !log.has(Part::From(1), &(0..100), now));
        assert!(!log.has_failed(Part::From(0), now) && log.has(Part::From(0), &(0..100), now));
        assert!(!log.has_failed(Part::From(1), now + KNOWN_FOR));
    }
}
