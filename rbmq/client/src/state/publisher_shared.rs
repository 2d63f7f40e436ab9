//! What a publisher shares with its writers, and how its topics go from broker to broker.

use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};

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

/// The longest pause before a step.
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// How long a broker that gave a topic away may still have its place in the buffer.
const LEAVE_TIMEOUT: Duration = Duration::from_secs(10);

/// How often that is looked at.
const LEAVE_STEP: Duration = Duration::from_millis(1);

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

    /// The connection to the broker that has a topic, or is asked for it.
    fn conn_of(&self, bid: Bid) -> Conn {
        let place = lock(&self.topics).get(&bid).map_or(HOME, |topic| topic.place());
        self.elsewhere.conn(place).unwrap_or_else(|| self.connection.conn())
    }
}

impl Asks for PublisherShared {
    fn ask(&self, bid: Bid, requests: &Requests) {
        send_requests(&self.out, bid, requests);
        if let Some(wanted) = requests.of_disk {
            self.asks.send(&self.conn_of(bid), bid, wanted);
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
    pub(crate) fn go_elsewhere(&self, topic: &Arc<TopicState>, reason: &str) {
        let Some(buffer) = self.out.buffer(topic.bid) else {
            // The topic was closed, and the broker that had it has all of it.
            return topic.update(|state| state.ended = true);
        };
        let addresses = RefuseCode::addresses(reason);
        let (mut steps, mut place, mut before) = (0, HOME, String::new());
        topic.update(|state| {
            state.accepted = false;
            state.log = buffer.info().map(|info| info.epoch);
            if state.hold.is_none() {
                state.hold = buffer.hold_from(topic.confirmations.taken()).ok();
            }
            state.steps += u32::from(!addresses.is_empty());
            (steps, place) = (state.steps, state.place);
            before = std::mem::replace(&mut state.last_named, addresses.to_owned());
        });
        self.elsewhere.leave(place, topic.bid);
        if steps > MAX_STEPS {
            let why = format!(
                "{MAX_STEPS} times a broker named another one that has the topic: at last '{before}' and '{addresses}'"
            );
            return topic.on_refused(RefuseCode::Elsewhere, why);
        }
        debug!("topic '{}' goes to '{addresses}': {reason}", topic.topic);
        self.step(topic.clone(), addresses);
    }

    /// A broker that has a topic is away. Whoever has it now, the broker at home will know.
    fn go_home(&self, topic: Arc<TopicState>, why: &str) {
        topic.update(|state| {
            (state.steps, state.failures) = (0, state.failures.saturating_add(1));
            state.trouble = Some(why.to_owned());
        });
        self.step(topic, "");
    }

    /// Sends a topic to a broker.
    fn step(&self, topic: Arc<TopicState>, addresses: &str) {
        let pause = {
            let state = lock(&topic.state);
            match (addresses.is_empty(), state.steps) {
                (true, _) => FIRST_PAUSE * 2_u32.pow(state.failures.min(10)),
                // The first steps of a topic that moves are no loop.
                (false, 0..=2) => Duration::ZERO,
                (false, steps) => LOOP_PAUSE * 2_u32.pow(steps.min(12) - 3),
            }
        };
        let pause = pause.min(LONGEST_PAUSE);
        let home = self.connection.conn().peer_instance();
        let step = Step { topic: topic.clone(), not_before: Instant::now() + pause };
        let id = match self.elsewhere.queue(addresses, home, step) {
            Ok(None) => return,
            Ok(Some(id)) => id,
            Err(why) => return topic.on_refused(RefuseCode::Elsewhere, why.to_owned()),
        };
        let publisher = self.weak.clone();
        if let Err(error) = threads::spawn("rbmq-elsewhere", move || go(&publisher, id)) {
            warn!("topics do not go to the broker that has them: the system refuses a thread: {error}");
            self.elsewhere.give_up(id);
            let why = format!("no thread to connect with: {error}");
            topic.on_refused(RefuseCode::Elsewhere, why);
        }
    }

    /// The connection to another broker is lost. The one at home knows who has its topics now.
    fn lost(&self, place: PlaceId, why: &str) {
        info!("the connection to a broker that has topics is down: {why}");
        let coming = self.elsewhere.give_up(place);
        let all: Vec<_> = lock(&self.topics).values().cloned().collect();
        let there = all.into_iter().filter(|topic| topic.place() == place);
        there.chain(coming).for_each(|topic| self.go_home(topic, why));
    }

    /// Names a topic to a broker, once the former one has left its buffer.
    fn name_at(&self, topic: &Arc<TopicState>, place: PlaceId, conn: &Conn) {
        let Some(buffer) = self.out.buffer(topic.bid) else {
            return topic.update(|state| state.ended = true);
        };
        let until = Instant::now() + LEAVE_TIMEOUT;
        // Otherwise the next broker takes the place of the former one over, whose connection ends by that.
        while !buffer.subscribers().is_empty() && Instant::now() < until {
            std::thread::sleep(LEAVE_STEP);
        }
        topic.update(|state| state.place = place);
        topic.create(conn);
        if place != HOME && self.elsewhere.conn(place).is_none() {
            self.go_home(topic.clone(), "the connection was lost before the topic was there");
        }
    }
}

/// The thread that brings topics to a broker, as long as there are any.
fn go(publisher: &Arc<OnceLock<Weak<PublisherShared>>>, place: PlaceId) {
    let alive = || publisher.get().and_then(Weak::upgrade);
    while let Some(shared) = alive() {
        let Some(Step { topic, not_before }) = shared.elsewhere.next_step(place) else { return };
        drop(shared);
        std::thread::sleep(not_before.saturating_duration_since(Instant::now()));
        let Some(shared) = alive() else { return };
        let home = shared.connection.conn();
        let connected = match place {
            HOME => Ok(None),
            place => {
                let lost = publisher.clone();
                let on_down = move |why: &str| {
                    lost.get().and_then(Weak::upgrade).into_iter().for_each(|shared| shared.lost(place, why));
                };
                let at_home = home.is_up().then(|| home.peer_instance());
                shared.elsewhere.connect(place, at_home, &shared.out, on_down)
            }
        };
        match connected {
            Ok(Some(connection)) => shared.name_at(&topic, place, &connection.conn()),
            Ok(None) => {
                shared.elsewhere.leave(place, topic.bid);
                shared.name_at(&topic, HOME, &home);
            }
            Err(error) => {
                let why = format!("the broker that has the topic cannot be reached: {error}");
                warn!("topic '{}': {why}", topic.topic);
                let others = shared.elsewhere.give_up(place);
                others.into_iter().chain([topic]).for_each(|topic| shared.go_home(topic, &why));
                return;
            }
        }
    }
}
