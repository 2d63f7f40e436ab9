//! News of kept topics, for parts of this process: which topics have grown, and where the data of a publisher was stored.
//!
//! ```text
//!   store ── appended ──▶ News ──▶ Ear of each gateway: what it follows ── wake ──▶ the gateway's thread takes it
//! ```
//!
//! An ear remembers each topic that it follows once, and of the publishers that it follows what is stored since it was asked last: no more than
//! their rings have. An append costs a look at a counter while no ear follows anything.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use locks::Mutex;
use rbmq_wire::TopicName;
use rocketbufs::{Epoch, Position};

/// Bytes of a publisher were stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stored {
    /// The name of the publisher's log.
    pub log: Epoch,
    /// The first position in the publisher's log.
    pub from: Position,
    /// The position behind the last byte in the publisher's log.
    pub to: Position,
    /// The position of the first byte in the log of the topic.
    pub at: Position,
    /// When they were stored, as [`KeptBatch::time_ms`](crate::KeptBatch::time_ms) says it.
    pub time_ms: u64,
}

/// All ears of a broker. Clones share them.
#[derive(Clone, Default)]
pub(crate) struct News(Arc<Shared>);

#[derive(Default)]
struct Shared {
    /// The ears that follow something.
    count: AtomicUsize,
    ears: Mutex<Vec<Weak<Ear>>>,
}

/// What somebody follows, and what has happened since it was asked.
pub(crate) struct Ear {
    state: Mutex<State>,
    all: Arc<Shared>,
    wake: Box<dyn Fn() + Send + Sync>,
}

#[derive(Default)]
struct State {
    /// The topics that are followed; true: one has grown, and this was told.
    topics: HashMap<TopicName, bool>,
    publishers: HashSet<Epoch>,
    grown: Vec<TopicName>,
    stored: Vec<Stored>,
    is_counted: bool,
}

impl State {
    /// An ear that follows nothing costs the appends of all topics nothing.
    fn count(&mut self, all: &Shared) {
        let follows = !(self.topics.is_empty() && self.publishers.is_empty());
        // Relaxed: whoever follows a topic looks at its log after that, and again from time to time; a publisher is followed before it
        // publishes.
        match (std::mem::replace(&mut self.is_counted, follows), follows) {
            (false, true) => _ = all.count.fetch_add(1, Ordering::Relaxed),
            (true, false) => _ = all.count.fetch_sub(1, Ordering::Relaxed),
            _ => {}
        }
    }
}

impl std::fmt::Debug for News {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("News").field(&self.0.count).finish()
    }
}

impl News {
    /// An ear that follows nothing yet. `wake` is called when there is something to take, and not again before it was taken.
    pub(crate) fn listen(&self, wake: impl Fn() + Send + Sync + 'static) -> Arc<Ear> {
        let ear = Arc::new(Ear { state: Mutex::default(), all: self.0.clone(), wake: Box::new(wake) });
        let mut ears = self.0.ears.lock();
        ears.retain(|other| other.strong_count() > 0);
        ears.push(Arc::downgrade(&ear));
        drop(ears);
        ear
    }

    /// Those who follow a topic are to look at it again.
    pub(crate) fn changed(&self, topic: &TopicName) {
        let ears: Vec<_> = self.0.ears.lock().iter().filter_map(Weak::upgrade).collect();
        ears.iter().for_each(|ear| ear.tell(topic, None));
    }

    /// A delivery was appended to the log of a topic, and can be read.
    pub(crate) fn appended(&self, topic: &TopicName, stored: Stored) {
        if self.0.count.load(Ordering::Relaxed) == 0 {
            return;
        }
        let ears: Vec<_> = self.0.ears.lock().iter().filter_map(Weak::upgrade).collect();
        ears.iter().for_each(|ear| ear.tell(topic, Some(stored)));
    }
}

impl Ear {
    fn tell(&self, topic: &TopicName, stored: Option<Stored>) {
        let mut state = self.state.lock();
        let was_silent = state.grown.is_empty() && state.stored.is_empty();
        if let Some(told) = state.topics.get_mut(topic)
            && !std::mem::replace(told, true)
        {
            state.grown.push(topic.clone());
        }
        let followed = stored.filter(|stored| state.publishers.contains(&stored.log));
        state.stored.extend(followed);
        let is_news = was_silent && !(state.grown.is_empty() && state.stored.is_empty());
        drop(state);
        if is_news {
            (self.wake)();
        }
    }

    /// From now on it is told when the topic grows; false: not any more.
    pub(crate) fn follow_topic(&self, topic: &TopicName, follow: bool) {
        let mut state = self.state.lock();
        if follow {
            state.topics.entry(topic.clone()).or_insert(false);
        } else {
            state.topics.remove(topic);
        }
        state.count(&self.all);
    }

    /// From now on it is told what is stored of a publisher's log; false: not any more.
    pub(crate) fn follow_publisher(&self, log: Epoch, follow: bool) {
        let mut state = self.state.lock();
        if follow {
            state.publishers.insert(log);
        } else {
            state.publishers.remove(&log);
        }
        state.count(&self.all);
    }

    /// What has happened since the last call: topics that have grown, and what was stored, in order.
    pub(crate) fn take(&self) -> (Vec<TopicName>, Vec<Stored>) {
        let mut state = self.state.lock();
        let (grown, stored) = (std::mem::take(&mut state.grown), std::mem::take(&mut state.stored));
        for topic in &grown {
            state.topics.entry(topic.clone()).and_modify(|told| *told = false);
        }
        (grown, stored)
    }
}

impl Drop for Ear {
    fn drop(&mut self) {
        let mut state = self.state.lock();
        (state.topics, state.publishers) = Default::default();
        state.count(&self.all);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ear_that_follows_nothing_costs_nothing() {
        let (news, topic) = (News::default(), "a".parse::<TopicName>().unwrap());
        let count = || news.0.count.load(Ordering::Relaxed);
        let (one, two) = (news.listen(|| ()), news.listen(|| ()));
        assert_eq!(count(), 0);
        one.follow_topic(&topic, true);
        one.follow_publisher(Epoch(1), true);
        two.follow_publisher(Epoch(1), true);
        assert_eq!(count(), 2);
        one.follow_topic(&topic, false);
        assert_eq!(count(), 2);
        one.follow_publisher(Epoch(1), false);
        assert_eq!(count(), 1);
        drop(two);
        assert_eq!(count(), 0);
    }

    fn stored(log: u128, from: Position, to: Position) -> Stored {
        Stored { log: Epoch(log), from, to, at: from + 100, time_ms: 7 }
    }

    #[test]
    fn an_ear_hears_what_it_follows_and_is_woken_once() {
        let (news, woken) = (News::default(), Arc::new(AtomicUsize::new(0)));
        let [a, b] = ["a", "b"].map(|name| name.parse::<TopicName>().unwrap());
        news.appended(&a, stored(1, 0, 5));
        let counter = woken.clone();
        let ear = news.listen(move || _ = counter.fetch_add(1, Ordering::Relaxed));
        ear.follow_topic(&a, true);
        ear.follow_publisher(Epoch(1), true);
        news.appended(&b, stored(2, 0, 5));
        assert_eq!((woken.load(Ordering::Relaxed), ear.take()), (0, (vec![], vec![])));
        news.appended(&a, stored(2, 5, 9));
        news.appended(&a, stored(1, 5, 9));
        news.appended(&b, stored(1, 9, 12));
        assert_eq!(woken.load(Ordering::Relaxed), 1);
        assert_eq!(ear.take(), (vec![a.clone()], vec![stored(1, 5, 9), stored(1, 9, 12)]));
        news.appended(&a, stored(2, 9, 10));
        assert_eq!((woken.load(Ordering::Relaxed), ear.take()), (2, (vec![a.clone()], vec![])));
        ear.follow_topic(&a, false);
        ear.follow_publisher(Epoch(1), false);
        news.appended(&a, stored(1, 12, 13));
        assert_eq!((woken.load(Ordering::Relaxed), ear.take()), (2, (vec![], vec![])));
        drop(ear);
        news.appended(&a, stored(1, 13, 14));
    }
}
