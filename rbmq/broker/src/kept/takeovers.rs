//! The threads that take topics: they ask the archive, and the broker's thread goes on meanwhile.

use std::collections::{HashMap, HashSet, VecDeque};
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use locks::{Condvar, Mutex};
use rbmq_wire::TopicName;
use rbmq_wire::connect::random;
use rocketbufs::Epoch;
use tracing::{debug, warn};

use super::super::cluster::Cluster;
use super::archive::{Archive, ArchiveError};
use super::archived::RETRY;
use super::takeover::{Taken, Taker, Wanted};

/// An owner that is gone may have had many topics, and an archive takes its time for each question.
const THREADS: usize = 4;

/// The most topics that wait. More are asked for again.
const MAX_WANTED: usize = 10_000;

/// The longest pause before a topic is asked for again: one that may come soon, and one that nobody gets before somebody changes something.
const LONGEST_PAUSES: [Duration; 2] = [Duration::from_secs(5), Duration::from_secs(300)];

/// How long it is remembered that a topic has failed.
const MEMORY: Duration = Duration::from_secs(900);

/// Says in which term this broker has a topic. None: it has not.
type Term = dyn Fn(&TopicName) -> Option<u64> + Send + Sync;

/// The questions of the threads.
pub(crate) struct TakeOverHooks {
    /// The term in which this broker has a topic.
    pub(crate) term: Box<Term>,
    /// Why no more topic can be opened. None: it can.
    pub(crate) why_no_room: Box<dyn Fn() -> Option<String> + Send + Sync>,
    /// Is told which topics have a log, when that was asked for.
    pub(crate) listed: Box<dyn Fn(Vec<TopicName>) + Send + Sync>,
    /// A topic was taken.
    pub(crate) taken: Box<dyn Fn(Wanted, Taken) + Send + Sync>,
}

/// Where topics are taken from, and to.
pub(crate) struct TakeOverPlace {
    pub(crate) map: Arc<dyn Cluster>,
    pub(crate) archive: Arc<dyn Archive>,
    /// The name of the cluster.
    pub(crate) cluster: String,
    /// The folder of all topics.
    pub(crate) dir: PathBuf,
}

/// Takes topics. The threads end when this is dropped, each after the call that it is in.
pub(crate) struct TakeOvers {
    desk: Arc<Desk>,
    threads: Vec<JoinHandle<()>>,
}

struct Desk {
    place: TakeOverPlace,
    hooks: TakeOverHooks,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// When each is asked for.
    queue: VecDeque<(Instant, Wanted)>,
    /// The terms in which topics are wanted, and why that has failed.
    wanted: HashMap<TopicName, (u64, String)>,
    /// Those that a thread takes now: two would move the same folders.
    busy: HashSet<TopicName>,
    troubles: HashMap<TopicName, Trouble>,
    /// When the map is asked for the topics with a log.
    list_at: Option<Instant>,
    is_stopped: bool,
}

/// What a thread does next.
enum Job {
    Take(Wanted),
    List,
}

/// A topic that was not to be had, or not to be used.
struct Trouble {
    /// In this term.
    term: u64,
    /// How often, one after the other.
    times: u32,
    last: Instant,
    /// It was to go on behind what the archive does not take.
    is_refused: bool,
}

impl State {
    /// The next topic whose time has come, which nobody takes now. It is busy from now on.
    fn due(&mut self, now: Instant) -> Option<Wanted> {
        let is_due = |(at, wanted): &(Instant, Wanted)| *at <= now && !self.busy.contains(&wanted.topic);
        let due = self.queue.iter().position(is_due);
        let (_, wanted) = due.and_then(|due| self.queue.remove(due))?;
        self.busy.insert(wanted.topic.clone());
        Some(wanted)
    }

    /// A topic is wanted in a term. That of an earlier term is over.
    fn want(&mut self, at: Instant, wanted: Wanted) {
        let Wanted { topic, term, .. } = &wanted;
        let is_known = self.wanted.get(topic).is_some_and(|(wanted, _)| wanted == term);
        if is_known || self.wanted.len() >= MAX_WANTED {
            return;
        }
        self.queue.retain(|(_, queued)| queued.topic != *topic);
        self.wanted.insert(topic.clone(), (*term, String::new()));
        self.queue.push_back((at, wanted));
    }

    /// Whether a topic is wanted still, in this term.
    fn wants(&self, wanted: &Wanted) -> bool {
        !self.is_stopped && self.wanted.get(&wanted.topic).is_some_and(|(term, _)| *term == wanted.term)
    }

    /// A topic was opened or refused, or is not here any more.
    fn forget(&mut self, wanted: &Wanted) {
        if self.wanted.get(&wanted.topic).is_some_and(|(term, _)| *term == wanted.term) {
            self.wanted.remove(&wanted.topic);
        }
    }

    /// An archive does not take the log of a topic. Whether it is to go on behind that: once, since the archive may take nothing of it.
    fn goes_behind(&mut self, topic: &TopicName) -> bool {
        let trouble = self.troubles.get_mut(topic);
        trouble.is_some_and(|trouble| !std::mem::replace(&mut trouble.is_refused, true))
    }

    /// A topic was not to be had. Returns how long to wait, at most so long.
    fn pause(&mut self, topic: &TopicName, term: u64, now: Instant, longest: Duration) -> Duration {
        if self.troubles.len() >= MAX_WANTED {
            self.troubles.retain(|_, trouble| now < trouble.last + MEMORY);
        }
        if self.troubles.len() >= MAX_WANTED && !self.troubles.contains_key(topic) {
            return longest;
        }
        let trouble = self.troubles.entry(topic.clone()).or_insert(Trouble {
            term,
            times: 0,
            last: now,
            is_refused: false,
        });
        if trouble.term != term || now >= trouble.last + MEMORY {
            *trouble = Trouble { term, times: 0, last: now, is_refused: false };
        }
        (trouble.times, trouble.last) = (trouble.times.saturating_add(1), now);
        (RETRY * 2_u32.pow((trouble.times - 1).min(16))).min(longest)
    }
}

impl TakeOvers {
    /// Takes the topics of a cluster.
    ///
    /// # Errors
    /// The system refuses a thread.
    pub(crate) fn start(place: TakeOverPlace, hooks: TakeOverHooks) -> std::io::Result<Self> {
        let (state, changed) = (Mutex::default(), Condvar::new());
        let desk = Arc::new(Desk { place, hooks, state, changed });
        let mut takeovers = Self { desk, threads: Vec::new() };
        for _ in 0..THREADS {
            let desk = takeovers.desk.clone();
            takeovers.threads.push(threads::spawn("rbmq-takeover", move || desk.run())?);
        }
        Ok(takeovers)
    }

    /// This broker has a topic, in this term, and wants its log.
    pub(crate) fn want(&self, topic: &TopicName, term: u64) {
        let wanted = Wanted { topic: topic.clone(), term, is_refused: false };
        self.desk.state.lock().want(Instant::now(), wanted);
        self.desk.changed.notify_all();
    }

    /// The same, after a while that gets longer: its folder could not be used, or its archive does not take the log (`is_refused`).
    pub(crate) fn want_later(&self, topic: &TopicName, term: u64, is_refused: bool) {
        let (mut state, now) = (self.desk.state.lock(), Instant::now());
        let pause = state.pause(topic, term, now, LONGEST_PAUSES[1]);
        let is_refused = is_refused && state.goes_behind(topic);
        state.want(now + pause, Wanted { topic: topic.clone(), term, is_refused });
        drop(state);
        self.desk.changed.notify_all();
    }

    /// Asks the map for the topics with a log.
    pub(crate) fn list(&self) {
        self.desk.state.lock().list_at = Some(Instant::now());
        self.desk.changed.notify_all();
    }

    /// A topic is not wanted any more. A take that is under way ends at its next step.
    pub(crate) fn give_up(&self, topic: &TopicName) {
        let mut state = self.desk.state.lock();
        state.wanted.remove(topic);
        state.queue.retain(|(_, queued)| queued.topic != *topic);
    }

    /// The broker's thread has done with a topic that was taken: until then it is wanted no second time.
    pub(crate) fn forget(&self, wanted: &Wanted) {
        self.desk.state.lock().forget(wanted);
    }
}

impl Desk {
    fn run(&self) {
        while let Some(job) = self.next() {
            let Job::Take(wanted) = job else {
                self.list();
                continue;
            };
            let is_owner =
                || (self.hooks.term)(&wanted.topic) == Some(wanted.term) && self.state.lock().wants(&wanted);
            let taken = random().map_err(|error| ArchiveError::Down(error.to_string())).and_then(|new| {
                let TakeOverPlace { map, archive, cluster, dir } = &self.place;
                let (map, archive, new) = (&**map, &**archive, Epoch(new));
                let (why_no_room, step) = (&*self.hooks.why_no_room, &|_| Ok(()));
                let taker = Taker { map, archive, cluster, dir, new, why_no_room, step };
                taker.take(&wanted, &is_owner)
            });
            self.state.lock().busy.remove(&wanted.topic);
            self.changed.notify_all();
            match taken {
                Ok(taken) => (self.hooks.taken)(wanted, taken),
                Err(error) if is_owner() => self.failed(wanted, &error),
                Err(_) => self.state.lock().forget(&wanted),
            }
        }
    }

    fn list(&self) {
        match self.place.map.logs() {
            Ok(topics) => (self.hooks.listed)(topics),
            Err(reason) => {
                debug!("the topics with a log are not known yet: {reason}");
                let again = Instant::now() + LONGEST_PAUSES[0];
                self.state.lock().list_at.get_or_insert(again);
            }
        }
    }

    /// Waits for the next job whose time has come. None: the threads end.
    fn next(&self) -> Option<Job> {
        let mut state = self.state.lock();
        while !state.is_stopped {
            let now = Instant::now();
            if state.list_at.take_if(|at| *at <= now).is_some() {
                return Some(Job::List);
            }
            if let Some(wanted) = state.due(now) {
                return Some(Job::Take(wanted));
            }
            self.changed.wait_for(&mut state, RETRY);
        }
        None
    }

    fn failed(&self, wanted: Wanted, error: &ArchiveError) {
        let (mut state, reason) = (self.state.lock(), error.to_string());
        let Some((term, known)) = state.wanted.get_mut(&wanted.topic) else { return };
        // It is wanted in another term by now.
        if *term != wanted.term {
            return;
        }
        if *known != reason {
            warn!("topic '{}' waits for its archive: {reason}", wanted.topic);
            *known = reason;
        }
        let is_refused = matches!(error, ArchiveError::Refused(_));
        let (now, longest) = (Instant::now(), LONGEST_PAUSES[usize::from(is_refused)]);
        let pause = state.pause(&wanted.topic, wanted.term, now, longest);
        state.queue.push_back((now + pause, wanted));
    }
}

impl Drop for TakeOvers {
    fn drop(&mut self) {
        self.desk.state.lock().is_stopped = true;
        self.desk.changed.notify_all();
        for thread in self.threads.drain(..) {
            // The panic of a thread was printed already.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::takeover::tests::World;
    use super::*;

    fn wanted(topic: &TopicName, term: u64) -> Wanted {
        Wanted { topic: topic.clone(), term, is_refused: false }
    }

    /// The broker's thread asks for a topic again while it has not heard that the topic was taken.
    #[test]
    fn a_topic_that_was_taken_is_taken_once_until_it_is_open() {
        let (dir, topic) = (tempfile::tempdir().unwrap(), "k/a".parse::<TopicName>().unwrap());
        let world = Arc::<World>::default();
        let place =
            TakeOverPlace { map: world.clone(), archive: world, cluster: "c".into(), dir: dir.path().into() };
        let (send, taken) = std::sync::mpsc::sync_channel(9);
        let hooks = TakeOverHooks {
            term: Box::new(|_| Some(1)),
            why_no_room: Box::new(|| None),
            taken: Box::new(move |wanted, _| send.send(wanted).unwrap()),
            listed: Box::new(|_| {}),
        };
        let takeovers = TakeOvers::start(place, hooks).unwrap();
        takeovers.want(&topic, 1);
        let first = taken.recv().unwrap();
        takeovers.want(&topic, 1);
        let other = "k/b".parse::<TopicName>().unwrap();
        takeovers.want(&other, 1);
        assert_eq!(taken.recv().unwrap().topic, other);
        assert_eq!(takeovers.desk.state.lock().queue.len(), 0);
        takeovers.forget(&first);
        takeovers.want(&topic, 1);
        assert_eq!(taken.recv().unwrap(), first);
        takeovers.forget(&first);
        assert_eq!(takeovers.desk.state.lock().wanted.len(), 1);
        drop(takeovers);
        assert!(taken.try_recv().is_err());
    }

    #[test]
    fn a_log_that_is_refused_goes_behind_once_in_a_term() {
        let (mut state, now) = (State::default(), Instant::now());
        let topic: TopicName = "k/a".parse().unwrap();
        let mut goes_behind = |term| {
            state.pause(&topic, term, now, RETRY);
            state.goes_behind(&topic)
        };
        assert_eq!([1, 1, 1, 2, 2].map(&mut goes_behind), [true, false, false, true, false]);
    }

    #[test]
    fn a_topic_is_taken_by_one_thread_at_a_time() {
        let (mut state, now) = (State::default(), Instant::now());
        let [topic, other] = ["k/a", "k/b"].map(|name| name.parse::<TopicName>().unwrap());
        state.want(now, wanted(&topic, 1));
        assert_eq!(state.due(now), Some(wanted(&topic, 1)));
        for term in [1, 2, 3] {
            state.want(now, wanted(&topic, term));
        }
        state.want(now, wanted(&other, 1));
        assert_eq!(state.due(now).unwrap().topic, other);
        assert_eq!(state.due(now), None, "it would move the same folders");
        state.busy.remove(&topic);
        assert_eq!(state.due(now), Some(wanted(&topic, 3)), "the last term");
        state.want(now + RETRY, wanted(&topic, 4));
        state.busy.clear();
        assert_eq!(state.due(now), None);
        assert_eq!(state.due(now + RETRY).unwrap().term, 4);
    }

    #[test]
    fn what_fails_again_and_again_is_asked_for_less_often() {
        let (mut state, now) = (State::default(), Instant::now());
        let topic: TopicName = "k/a".parse().unwrap();
        let mut pause = |term, after| state.pause(&topic, term, now + after, LONGEST_PAUSES[1]);
        let pauses: Vec<u64> = (0..10).map(|_| pause(1, Duration::ZERO).as_secs()).collect();
        assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 64, 128, 256, 300]);
        assert_eq!([pause(2, Duration::ZERO), pause(2, Duration::ZERO)].map(|pause| pause.as_secs()), [1, 2]);
        assert_eq!(pause(2, MEMORY), RETRY, "it was well meanwhile");
        for n in 0..MAX_WANTED {
            state.pause(&format!("k/{n}").parse().unwrap(), 1, now + MEMORY, RETRY);
        }
        assert!(state.troubles.len() <= MAX_WANTED);
    }
}
