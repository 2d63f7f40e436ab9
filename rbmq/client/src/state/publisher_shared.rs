//! What a publisher shares with its writers, and how its topics go from broker to broker.

use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};

use rbmq_wire::planted;
use rocketbufs::{Bid, Conn, ROut};
use tracing::{debug, info, warn};

use crate::connection::{Connection, lock};
use crate::ground::error::Over;
use crate::state::confirm::{Asks, Requests, send_requests};
use crate::state::conn_places::{HOME, PlaceId};
use crate::state::disk_asks::DiskAsks;
use crate::state::elsewhere::{Elsewhere, Step};
use crate::state::event::PublisherEvents;
use crate::state::topic_state::{TopicState, Topics};
use crate::wire::RefuseCode;

/// The most steps from broker to broker until one takes a topic. The maps of brokers may differ for a moment.
const MAX_STEPS: u32 = 16;

/// The pause before a topic is named at home again. It doubles while the brokers that have the topic are away.
const FIRST_PAUSE: Duration = Duration::from_millis(50);

/// The pause before the third step. It doubles with each further one.
const LOOP_PAUSE: Duration = Duration::from_millis(10);

/// A topic that was at a broker for longer is in no loop.
const SETTLED: Duration = Duration::from_secs(1);

/// The longest pause before a step.
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// How long a broker that gave a topic away may still have its place in the buffer.
const LEAVE_TIMEOUT: Duration = Duration::from_secs(10);

/// How often that is looked at.
const LEAVE_STEP: Duration = Duration::from_millis(1);

/// The longest wait of a queue, in which a topic may come that does not wait.
const LONGEST_WAIT: Duration = Duration::from_millis(20);

/// The state that a publisher shares with the writers of its topics.
pub(crate) struct PublisherShared {
    pub(crate) connection: Connection,
    pub(crate) out: Arc<ROut>,
    pub(crate) topics: Topics,
    pub(crate) events: Arc<PublisherEvents>,
    pub(crate) asks: Arc<DiskAsks>,
    pub(crate) elsewhere: Elsewhere,
    /// For threads and callbacks.
    pub(crate) weak: Arc<OnceLock<Weak<PublisherShared>>>,
}

impl PublisherShared {
    /// The topics take nothing more, also those that are being opened. Calls that wait end.
    pub(crate) fn end_topics(&self, over: Over) {
        self.connection.set_over(over);
        end_topics(&self.topics, over);
    }

    /// Nothing more is confirmed, and no event follows.
    pub(crate) fn end(&self, over: Over) {
        end(&self.topics, &self.events, over);
    }

    /// Removes a topic. A broker that does not have its end yet says so later ([`Control::Ended`]).
    pub(crate) fn remove(&self, bid: Bid) {
        let removed = lock(&self.topics).remove(&bid);
        if let Some(topic) = removed.filter(|topic| topic.has_ended()) {
            self.elsewhere.leave(topic.place(), bid);
        }
    }

    /// The connection to the broker that has a topic, or is asked for it; none while the topic is on its way.
    fn conn_of(&self, bid: Bid) -> Option<Conn> {
        let place = lock(&self.topics).get(&bid).map_or(HOME, |topic| topic.place());
        if place == HOME { Some(self.connection.conn()) } else { self.elsewhere.conn(place) }
    }
}

impl Asks for PublisherShared {
    fn ask(&self, bid: Bid, requests: &Requests) {
        send_requests(&self.out, bid, requests);
        // A broker that takes the topic later is asked then.
        if let Some(wanted) = requests.of_disk
            && let Some(conn) = self.conn_of(bid)
        {
            self.asks.send(&conn, bid, wanted);
        }
    }
}

/// The topics of a publisher that is over take nothing more.
pub(crate) fn end_topics(topics: &Topics, over: Over) {
    all(topics).iter().for_each(|topic| topic.update(|state| state.over = state.over.or(Some(over))));
}

/// The confirmations and events of a publisher that is over end.
pub(crate) fn end(topics: &Topics, events: &PublisherEvents, over: Over) {
    all(topics).iter().for_each(|topic| topic.confirmations.close(over));
    events.close(over);
}

fn all(topics: &Topics) -> Vec<Arc<TopicState>> {
    lock(topics).values().cloned().collect()
}

impl PublisherShared {
    /// A broker says that another one has a topic. Runs in a callback.
    pub(crate) fn go_elsewhere(&self, topic: &Arc<TopicState>, from: PlaceId, reason: &str) {
        let Some(buffer) = self.out.buffer(topic.bid) else {
            // The topic was closed, and the broker that had it has all of it.
            self.elsewhere.leave(from, topic.bid);
            return topic.update(|state| state.ended = true);
        };
        let addresses = RefuseCode::addresses(reason);
        let (mut steps, mut before) = (0, String::new());
        let journey = topic.depart(from, |state| {
            state.accepted = false;
            let told = state.told.take();
            if let (Some(told), Some(info)) = (told, buffer.info()) {
                // A broker that had the topic earlier says what it had then.
                state.former = state.former.max(Some((info.epoch, told)));
            }
            if state.hold.is_none() {
                let from = told.unwrap_or_else(|| topic.confirmations.taken());
                state.hold = buffer.hold_from(from).ok();
            }
            match addresses {
                "" => state.failures = state.failures.saturating_add(1),
                _ => {
                    if state.taken_at.take().is_some_and(|at| at.elapsed() > SETTLED) {
                        state.hops = 0;
                    }
                    (state.steps, state.hops) = (state.steps + 1, state.hops.saturating_add(1));
                }
            }
            steps = state.steps;
            before = std::mem::replace(&mut state.last_named, addresses.to_owned());
        });
        let Some(journey) = journey else { return };
        self.elsewhere.leave(from, topic.bid);
        if steps > MAX_STEPS {
            let why = format!(
                "{MAX_STEPS} times a broker named another one that has the topic: at last '{before}' and '{addresses}'"
            );
            return self.stay(topic, journey, why);
        }
        debug!("topic '{}' goes to '{addresses}': {reason}", topic.topic);
        self.step(topic.clone(), journey, addresses);
    }

    /// A topic goes nowhere. The next connection to the broker at home names it again.
    fn stay(&self, topic: &TopicState, journey: u64, why: String) {
        topic.arrive(HOME, journey);
        topic.on_refused(RefuseCode::Elsewhere, why);
    }

    /// A broker that has a topic is away. Whoever has it now, the broker at home will know.
    fn go_home(&self, topic: Arc<TopicState>, from: PlaceId, why: &str) {
        let journey = topic.depart(from, |state| {
            (state.steps, state.failures) = (0, state.failures.saturating_add(1));
            state.trouble = Some(why.to_owned());
            if planted::is(planted::PLACE_AFTER_DEATH) {
                let log = self.out.buffer(topic.bid).and_then(|buffer| buffer.info());
                state.former = log.map(|log| (log.epoch, log.boundary));
            }
        });
        if let Some(journey) = journey {
            self.step(topic, journey, "");
        }
    }

    /// Sends a topic to a broker.
    fn step(&self, topic: Arc<TopicState>, journey: u64, addresses: &str) {
        let pause = {
            let state = lock(&topic.state);
            match (addresses.is_empty(), state.steps) {
                (true, _) => FIRST_PAUSE * 2_u32.pow(state.failures.saturating_sub(1).min(10)),
                // The first steps of a topic that moves are no loop. Brokers that take it, and give it away at once, may be in one.
                (false, 0..=2) => LOOP_PAUSE * state.hops.saturating_sub(2).min(10),
                (false, steps) => LOOP_PAUSE * 2_u32.pow(steps.min(12) - 3),
            }
        };
        let pause = pause.min(LONGEST_PAUSE);
        let home = self.connection.conn().peer_instance();
        let step = Step { topic: topic.clone(), journey, not_before: Instant::now() + pause };
        let id = match self.elsewhere.queue(addresses, home, step) {
            Ok(None) => return,
            Ok(Some(id)) => id,
            Err(why) => return self.stay(&topic, journey, why.to_owned()),
        };
        let publisher = self.weak.clone();
        if let Err(error) = threads::spawn("rbmq-elsewhere", move || go(&publisher, id)) {
            warn!("topics do not go to the broker that has them: the system refuses a thread: {error}");
            let why = format!("no thread to connect with: {error}");
            for Step { topic, journey, .. } in self.elsewhere.give_up(id) {
                self.stay(&topic, journey, why.clone());
            }
        }
    }

    /// The connection to another broker is lost. The one at home knows who has its topics now.
    fn lost(&self, place: PlaceId, why: &str) {
        info!("the connection to a broker that has topics is down: {why}");
        let coming = self.elsewhere.give_up(place);
        let there = all(&self.topics).into_iter().filter(|topic| topic.place() == place);
        there.for_each(|topic| self.go_home(topic, place, why));
        coming.into_iter().for_each(|step| self.turn_back(step, why));
    }

    /// A topic does not reach the broker to which it is on its way.
    fn turn_back(&self, Step { topic, journey, .. }: Step, why: &str) {
        if topic.arrive(HOME, journey) {
            self.go_home(topic, HOME, why);
        }
    }

    /// How long a topic waits until it can be named to the next broker: until the former one has left its buffer. Otherwise the next one
    /// takes the place of the former one over, whose connection ends by that. The next one may have the place already, since it had the topic
    /// over another connection.
    fn wait_of(&self, step: &Step, place: PlaceId) -> Duration {
        let pause = step.not_before.saturating_duration_since(Instant::now());
        let next = match place {
            HOME => Some(self.connection.conn().id()),
            place => self.elsewhere.conn(place).map(|conn| conn.id()),
        };
        let has_left = || {
            let buffer = self.out.buffer(step.topic.bid);
            buffer.is_none_or(|buffer| buffer.subscribers().iter().all(|one| Some(one.conn) == next))
        };
        match pause {
            Duration::ZERO if step.not_before.elapsed() >= LEAVE_TIMEOUT || has_left() => Duration::ZERO,
            pause => pause.max(LEAVE_STEP),
        }
    }

    /// Names a topic to a broker.
    fn name_at(&self, step: &Step, place: PlaceId) {
        let topic = &step.topic;
        if self.out.buffer(topic.bid).is_none() {
            self.elsewhere.leave(place, topic.bid);
            return topic.update(|state| state.ended = true);
        }
        // Before the connection is looked at: the topics that are there are named on the next one.
        if !topic.arrive(place, step.journey) {
            return;
        }
        if place == HOME {
            return topic.create(&self.connection.conn());
        }
        if let Some(conn) = self.elsewhere.arrive(place, topic.bid) {
            topic.create(&conn);
        }
        if self.elsewhere.conn(place).is_none() {
            self.go_home(topic.clone(), place, "the connection was lost before the topic was there");
        }
    }
}

/// The thread that brings topics to a broker, as long as there are any.
fn go(publisher: &Arc<OnceLock<Weak<PublisherShared>>>, place: PlaceId) {
    let alive = || publisher.get().and_then(Weak::upgrade);
    let (mut put_back, mut pause) = (0, LONGEST_WAIT);
    while let Some(shared) = alive() {
        let Some(step) = shared.elsewhere.next_step(place) else { return };
        let wait = shared.wait_of(&step, place);
        if !wait.is_zero() {
            let Some(queued) = shared.elsewhere.put_back(place, &step) else {
                return shared.turn_back(step, "the broker that has the topic is lost");
            };
            drop(shared);
            (put_back, pause) = (put_back + 1, pause.min(wait));
            if put_back >= queued {
                std::thread::sleep(pause);
                (put_back, pause) = (0, LONGEST_WAIT);
            }
            continue;
        }
        (put_back, pause) = (0, LONGEST_WAIT);
        let connected = match place {
            HOME => Ok(false),
            place => {
                let lost = publisher.clone();
                let on_down = move |why: &str| {
                    lost.get().and_then(Weak::upgrade).into_iter().for_each(|shared| shared.lost(place, why));
                };
                let home = shared.connection.conn();
                let at_home = home.is_up().then(|| home.peer_instance());
                shared.elsewhere.connect(place, at_home, &shared.out, on_down)
            }
        };
        match connected {
            Ok(true) => shared.name_at(&step, place),
            Ok(false) => {
                shared.elsewhere.leave(place, step.topic.bid);
                shared.name_at(&step, HOME);
            }
            Err(error) => {
                let why = format!("the broker that has the topic cannot be reached: {error}");
                warn!("topic '{}': {why}", step.topic.topic);
                let others = shared.elsewhere.give_up(place);
                others.into_iter().chain([step]).for_each(|step| shared.turn_back(step, &why));
                return;
            }
        }
    }
}
