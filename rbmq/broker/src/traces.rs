//! Traces: what one client or one topic does for a short time, for an administrator that looks.
//!
//! ```text
//!   control event ──▶ is_on? ── no ──▶ nothing more
//!                        └───── yes ──▶ is it of the client, or of the topic? ──▶ the newest MAX_EVENTS ──▶ HTTP endpoint, which asks each second
//!   every STEP ──▶ the rings of the trace ──▶ what has changed since the last look
//! ```
//!
//! Messages pass no trace: a trace looks at the positions of rings, and holds nothing. Contents are in no trace.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::mpsc::SyncSender;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rbmq_wire::TopicName;
use rocketbufs::Bid;
use serde::Serialize;

/// The most traces that run at once, and that are kept.
pub(crate) const MAX_TRACES: usize = 2;
const MAX_KEPT: usize = 4;

/// The most events of a trace, and bytes. The oldest ones go first.
pub(crate) const MAX_EVENTS: usize = 4_000;
const MAX_BYTES: usize = 1 << 20;

/// The most events of an answer.
const MAX_ROWS: usize = 500;

/// The longest time of a trace.
pub(crate) const MAX_TIME: Duration = Duration::from_secs(60);

/// A trace that nobody looks at ends.
const UNSEEN: Duration = Duration::from_secs(10);

/// A trace that has ended is forgotten this long after the last look while it ran.
const FORGET: Duration = Duration::from_secs(120);

/// The time between two looks at rings.
const STEP: Duration = Duration::from_millis(250);

/// A look is followed by another one after this many times the work that it took.
const FACTOR: u32 = 50;

/// The most rings that a trace looks at, and cursors of each that are told in a step.
pub(super) const MAX_RINGS: usize = 16;
pub(super) const MAX_CURSORS: usize = 8;

/// The most connections of a client: the newest ones.
const MAX_CONNS: usize = 64;

/// The most characters of a text.
const MAX_TEXT: usize = 300;

/// What is traced.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Target {
    /// The client of a connection, and of those that it has later by the same name and user.
    Client(u64),
    Topic(TopicName),
}

/// A request about the trace of somebody.
pub(crate) struct TraceAsk {
    /// Who asks: each has one trace.
    pub(crate) owner: String,
    pub(crate) wish: Wish,
    /// The channel of the answer. A client that has given up is not told.
    pub(crate) reply: SyncSender<TraceAnswer>,
}

/// What somebody wants of a trace.
pub(crate) enum Wish {
    Start {
        target: Target,
        time: Duration,
    },
    /// The events behind this number.
    Read {
        after: u64,
    },
    /// End it, forget it, and have the events behind this number, or none.
    Stop {
        after: Option<u64>,
    },
}

/// The answer.
#[derive(Debug)]
pub(crate) enum TraceAnswer {
    Look(Box<TraceLook>),
    /// No client has the connection.
    NoClient,
    /// Nobody has such a trace.
    NoTrace,
    /// The asker has one that runs.
    HasOne,
    /// Others have as many as may run.
    Full,
}

/// A trace, as far as it is asked for.
#[derive(Debug, Serialize)]
pub(crate) struct TraceLook {
    /// The topic, or the name of the client.
    target: String,
    /// The connection of the client when the trace began; none for a topic.
    conn: Option<u64>,
    is_running: bool,
    left_ms: u64,
    /// The events that are here no more, and were not shown to a reader that is this late.
    dropped: u64,
    /// The trace has more rings, cursors or connections than are looked at.
    is_cut: bool,
    rows: Vec<TraceEvent>,
    /// The number of the last row.
    next: u64,
}

/// An event of a trace.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct TraceEvent {
    /// From 1, without holes.
    n: u64,
    /// Milliseconds since 1970.
    time_ms: u64,
    what: &'static str,
    topic: Option<String>,
    /// The client, by its name or address.
    client: Option<String>,
    text: Option<String>,
    /// Positions, bytes and counts by name.
    numbers: BTreeMap<&'static str, u64>,
}

/// An event that is being described.
pub(super) struct Seen(TraceEvent);

impl Seen {
    pub(super) fn new(what: &'static str) -> Self {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let time_ms = u64::try_from(since.as_millis()).unwrap_or(u64::MAX);
        let numbers = BTreeMap::new();
        Self(TraceEvent { n: 0, time_ms, what, topic: None, client: None, text: None, numbers })
    }

    pub(super) fn topic(mut self, topic: Option<&TopicName>) -> Self {
        self.0.topic = topic.map(|topic| short(topic.as_str()));
        self
    }

    pub(super) fn client(mut self, client: &str) -> Self {
        self.0.client = Some(short(client));
        self
    }

    pub(super) fn text(mut self, text: &str) -> Self {
        self.0.text = Some(short(text));
        self
    }

    pub(super) fn number(mut self, name: &'static str, value: u64) -> Self {
        self.0.numbers.insert(name, value);
        self
    }

    fn bytes(&self) -> usize {
        let texts = [&self.0.topic, &self.0.client, &self.0.text];
        let texts = texts.into_iter().flatten().map(String::len).sum::<usize>();
        size_of::<TraceEvent>() + texts + 32 * self.0.numbers.len()
    }
}

fn short(text: &str) -> String {
    text.chars().take(MAX_TEXT).collect()
}

/// A cursor in a ring, as it was seen last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Cursor {
    pub(super) landed: u64,
    pub(super) consumed: u64,
}

/// A ring, as it was seen last.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Ring {
    pub(super) head: u64,
    pub(super) capacity: u64,
    /// By connection.
    pub(super) cursors: HashMap<u64, Cursor>,
    /// Why the publisher waits or may have to, as it was told.
    pub(super) holds: Option<Holds>,
}

/// Who holds the publisher of a ring.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Holds {
    pub(super) who: String,
    /// The publisher has no room for a delivery.
    pub(super) waits: bool,
}

/// A trace.
pub(super) struct Trace {
    owner: String,
    pub(super) target: Target,
    /// The name and the user of a client, which it has again on its next connection.
    pub(super) name: String,
    pub(super) user: String,
    /// The connections of a client.
    pub(super) conns: BTreeSet<u64>,
    pub(super) is_cut: bool,
    /// The rings of the last step.
    pub(super) rings: HashMap<Bid, Ring>,
    events: VecDeque<TraceEvent>,
    bytes: usize,
    last: u64,
    end: Instant,
    asked: Instant,
    step: Instant,
}

impl Trace {
    fn is_running(&self, now: Instant) -> bool {
        now < self.end && now < self.asked + UNSEEN
    }

    fn wants(&self, conn: Option<u64>, topic: Option<&TopicName>) -> bool {
        match &self.target {
            Target::Client(_) => conn.is_some_and(|conn| self.conns.contains(&conn)),
            Target::Topic(own) => topic == Some(own),
        }
    }

    /// A client connects, which may be the one of this trace.
    pub(super) fn arrives(&mut self, conn: u64, name: &str, user: &str) {
        let is_client = matches!(self.target, Target::Client(_)) && !name.is_empty();
        if is_client && self.name == name && self.user == user {
            self.conns.insert(conn);
            if self.conns.len() > MAX_CONNS {
                self.conns.pop_first();
                self.is_cut = true;
            }
        }
    }

    pub(super) fn push(&mut self, seen: Seen) {
        self.last += 1;
        self.bytes += seen.bytes();
        self.events.push_back(TraceEvent { n: self.last, ..seen.0 });
        while self.events.len() > MAX_EVENTS || self.bytes > MAX_BYTES {
            let Some(oldest) = self.events.pop_front() else { return };
            self.bytes -= Seen(oldest).bytes();
        }
    }

    fn look(&mut self, after: u64, most: usize, now: Instant) -> TraceLook {
        let is_running = self.is_running(now);
        let first = self.events.front().map_or(self.last + 1, |event| event.n);
        let skip = usize::try_from((after + 1).saturating_sub(first)).unwrap_or(usize::MAX);
        let rows: Vec<_> = self.events.iter().skip(skip).take(most).cloned().collect();
        match is_running {
            true => self.asked = now,
            // It does not begin again because somebody looks.
            false => self.end = self.end.min(now),
        }
        let (conn, target) = match &self.target {
            Target::Client(conn) => (Some(*conn), self.name.clone()),
            Target::Topic(topic) => (None, topic.as_str().to_owned()),
        };
        TraceLook {
            target,
            conn,
            is_running,
            left_ms: u64::try_from(self.end.saturating_duration_since(now).as_millis()).unwrap_or(0),
            dropped: first.saturating_sub(after.min(self.last) + 1),
            is_cut: self.is_cut,
            next: rows.last().map_or(after.min(self.last), |event| event.n),
            rows,
        }
    }
}

/// The traces of a broker. Its thread has them.
#[derive(Default)]
pub(super) struct Traces {
    is_on: Cell<bool>,
    all: RefCell<Vec<Trace>>,
}

impl Traces {
    /// Whether one runs, as the last event or step has seen it.
    pub(super) fn is_on(&self) -> bool {
        self.is_on.get()
    }

    /// Whether none is kept.
    pub(super) fn is_empty(&self) -> bool {
        self.all.borrow().is_empty()
    }

    /// Whether an event of a client may be recorded, whatever its topic is.
    pub(super) fn may_want(&self, conn: u64) -> bool {
        let is_of = |trace: &Trace| matches!(trace.target, Target::Topic(_)) || trace.conns.contains(&conn);
        let now = Instant::now();
        self.all.borrow().iter().any(|trace| is_of(trace) && trace.is_running(now))
    }

    /// Records an event of a client, of a topic, or of both.
    pub(super) fn record(&self, conn: Option<u64>, topic: Option<&TopicName>, seen: impl Fn() -> Seen) {
        let now = Instant::now();
        for trace in &mut *self.all.borrow_mut() {
            if trace.wants(conn, topic) && trace.is_running(now) {
                trace.push(seen());
            }
        }
    }

    /// Does something with the traces that run and are due for a look at their rings, or with all.
    pub(super) fn each(&self, now: Instant, only_due: bool, mut act: impl FnMut(&mut Trace)) {
        for trace in self.all.borrow_mut().iter_mut().filter(|trace| trace.is_running(now)) {
            if only_due && trace.step > now {
                continue;
            }
            act(trace);
            if only_due {
                // With many subscribers a trace looks less often.
                trace.step = now + STEP.max(now.elapsed() * FACTOR);
            }
        }
    }

    /// Begins a trace. `name` and `user` are those of a client.
    pub(super) fn start(
        &self,
        owner: String,
        target: Target,
        time: Duration,
        client: Option<(String, String)>,
    ) -> TraceAnswer {
        let (now, mut all) = (Instant::now(), self.all.borrow_mut());
        let running = all.iter().filter(|trace| trace.is_running(now));
        if running.clone().any(|trace| trace.owner == owner) {
            return TraceAnswer::HasOne;
        }
        if running.count() >= MAX_TRACES {
            return TraceAnswer::Full;
        }
        all.retain(|trace| trace.owner != owner);
        if all.len() >= MAX_KEPT
            && let Some(oldest) = all.iter().position(|trace| !trace.is_running(now))
        {
            all.remove(oldest);
        }
        let conns = match &target {
            Target::Client(conn) => BTreeSet::from([*conn]),
            Target::Topic(_) => BTreeSet::new(),
        };
        let (name, user) = client.unwrap_or_default();
        let mut trace = Trace {
            owner,
            target,
            name,
            user,
            conns,
            is_cut: false,
            rings: HashMap::new(),
            events: VecDeque::new(),
            bytes: 0,
            last: 0,
            end: now + time.min(MAX_TIME),
            asked: now,
            step: now,
        };
        trace.push(Seen::new("begins"));
        let look = trace.look(0, MAX_ROWS, now);
        all.push(trace);
        self.is_on.set(true);
        TraceAnswer::Look(Box::new(look))
    }

    pub(super) fn read(&self, owner: &str, after: u64) -> TraceAnswer {
        let mut all = self.all.borrow_mut();
        match all.iter_mut().find(|trace| trace.owner == owner) {
            Some(trace) => TraceAnswer::Look(Box::new(trace.look(after, MAX_ROWS, Instant::now()))),
            None => TraceAnswer::NoTrace,
        }
    }

    pub(super) fn stop(&self, owner: &str, after: Option<u64>) -> TraceAnswer {
        let mut all = self.all.borrow_mut();
        let Some(at) = all.iter().position(|trace| trace.owner == owner) else { return TraceAnswer::NoTrace };
        let now = Instant::now();
        let mut trace = all.remove(at);
        trace.end = now;
        self.is_on.set(all.iter().any(|trace| trace.is_running(now)));
        let after = after.unwrap_or(trace.last);
        TraceAnswer::Look(Box::new(trace.look(after, MAX_EVENTS, now)))
    }

    /// Forgets those that have ended, and that nobody has looked at for some time.
    pub(super) fn forget(&self, now: Instant) {
        let mut all = self.all.borrow_mut();
        all.retain(|trace| now < trace.asked + FORGET);
        self.is_on.set(all.iter().any(|trace| trace.is_running(now)));
    }

    /// When a trace has something to do.
    pub(super) fn next_due(&self) -> Option<Instant> {
        let all = self.all.borrow();
        if all.is_empty() {
            return None;
        }
        let now = Instant::now();
        let due = |trace: &Trace| if trace.is_running(now) { trace.step } else { trace.asked + FORGET };
        all.iter().map(due).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn topic() -> Target {
        Target::Topic("a".parse().unwrap())
    }

    fn look(answer: TraceAnswer) -> TraceLook {
        match answer {
            TraceAnswer::Look(look) => *look,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_flood_of_events_takes_bounded_memory_and_is_told() {
        let (traces, own) = (Traces::default(), "a".parse().unwrap());
        assert!(!traces.is_on());
        look(traces.start("anna".into(), topic(), MAX_TIME, None));
        for n in 0..20_000 {
            traces.record(None, Some(&own), || Seen::new("flood").text(&"x".repeat(900)).number("n", n));
            traces.record(None, None, || panic!("it is of no trace"));
        }
        {
            let all = traces.all.borrow();
            assert!(all[0].events.len() <= MAX_EVENTS && all[0].bytes <= MAX_BYTES);
            let bytes = all[0].events.iter().map(|event| Seen(event.clone()).bytes()).sum::<usize>();
            assert_eq!(all[0].bytes, bytes);
        }
        let first = look(traces.read("anna", 1));
        assert_eq!((first.dropped + 1 + 1, first.rows.len()), (first.rows[0].n, MAX_ROWS));
        let second = look(traces.read("anna", first.next));
        assert_eq!((second.dropped, second.rows[0].n), (0, first.next + 1));
        let mut after = second.next;
        while after < 20_001 {
            after = look(traces.read("anna", after)).next;
        }
        let rest = look(traces.read("anna", after));
        assert_eq!((rest.rows.len(), rest.next), (0, after));
        let none = look(traces.read("anna", u64::MAX - 1));
        assert_eq!((none.dropped, none.next), (0, 20_001));
        let ended = look(traces.stop("anna", Some(first.next)));
        assert_eq!((ended.rows[0].n, ended.next, ended.is_running), (first.next + 1, 20_001, false));
    }

    #[test]
    fn two_run_at_once_and_one_of_each_owner() {
        let traces = Traces::default();
        look(traces.start("anna".into(), topic(), MAX_TIME, None));
        assert!(matches!(traces.start("anna".into(), topic(), MAX_TIME, None), TraceAnswer::HasOne));
        look(traces.start("bert".into(), topic(), MAX_TIME, None));
        assert!(matches!(traces.start("carl".into(), topic(), MAX_TIME, None), TraceAnswer::Full));
        assert!(matches!(traces.read("carl", 0), TraceAnswer::NoTrace));
        look(traces.stop("anna", None));
        look(traces.start("carl".into(), topic(), Duration::ZERO, None));
        // It has ended at once, is kept, and takes no place.
        look(traces.start("dora".into(), topic(), MAX_TIME, None));
        assert!(!look(traces.read("carl", 0)).is_running);
    }

    #[test]
    fn a_trace_ends_after_its_time_when_nobody_looks_and_is_forgotten() {
        let (traces, now) = (Traces::default(), Instant::now());
        look(traces.start("anna".into(), topic(), Duration::from_secs(600), None));
        let runs = |at: Instant| traces.all.borrow()[0].is_running(at);
        assert!(runs(now + UNSEEN / 2) && !runs(now + UNSEEN + STEP), "nobody looks");
        traces.all.borrow_mut()[0].asked = now + Duration::from_secs(59);
        assert!(runs(now + Duration::from_secs(59)) && !runs(now + MAX_TIME + STEP), "a minute at most");
        assert!(traces.is_on());
        traces.forget(now + MAX_TIME + STEP);
        assert!(!traces.is_on() && !traces.is_empty(), "it is kept, and costs nothing");
        traces.forget(now + Duration::from_secs(59) + FORGET);
        assert!(traces.is_empty() && traces.next_due().is_none());
    }

    #[test]
    fn looks_at_a_trace_that_has_ended_do_not_keep_it() {
        let traces = Traces::default();
        look(traces.start("anna".into(), topic(), Duration::ZERO, None));
        let asked = traces.all.borrow()[0].asked;
        assert!(!look(traces.read("anna", 0)).is_running);
        assert_eq!(traces.all.borrow()[0].asked, asked);
        traces.forget(Instant::now());
        assert!(!traces.is_on());
    }

    #[test]
    fn events_of_others_are_not_described_and_a_client_has_so_many_connections() {
        let (traces, client) = (Traces::default(), Some(("a".to_owned(), "anna".to_owned())));
        look(traces.start("anna".into(), Target::Client(7), MAX_TIME, client));
        assert!(traces.may_want(7) && !traces.may_want(8));
        for conn in 10..10 + MAX_CONNS as u64 {
            traces.each(Instant::now(), false, |trace| {
                trace.arrives(conn, "a", "anna");
                trace.arrives(1_000, "b", "anna");
            });
        }
        let all = traces.all.borrow();
        assert!(all[0].is_cut && all[0].conns.iter().copied().eq(10..10 + MAX_CONNS as u64));
    }
}
