//! Topics that other brokers of a cluster have than the one that the publisher is connected to.
//!
//! ```text
//!   REFUSED, elsewhere ─▶ its bytes from there on are held ─▶ a thread: connects, or finds the connection
//!                                                              waits until the former broker has left the buffer
//!                                                              PLACE, CREATE ─▶ CREATED: as after a lost connection
//! ```
//!
//! All topics at a broker share one connection, which is closed when the last one leaves. When it is lost, its topics are named at home
//! again, to the broker that the publisher was told to connect to: it knows who has them now. Here are the connections and the queues of
//! topics; what is done with them is in `publisher_shared`.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rocketbufs::{Bid, Conn, Context, ROut};
use tracing::info;

use crate::connection::{Connection, lock};
use crate::ground::error::ConnectError;
use crate::ground::login::Login;
use crate::state::conn_places::{ConnPlaces, HOME, PlaceId};
use crate::state::topic_state::TopicState;
use crate::wire::Hello;

/// The most brokers that a publisher has connections to, besides the first one.
const MAX_PLACES: usize = 256;

/// How other brokers are connected to: as the first one is.
pub(crate) struct Dial {
    pub(crate) context: Context,
    pub(crate) hello: Hello,
    pub(crate) login: Login,
}

/// A topic on its way to another broker.
#[derive(Clone)]
pub(crate) struct Step {
    pub(crate) topic: Arc<TopicState>,
    /// A topic that has set out anew since does not take it.
    pub(crate) journey: u64,
    pub(crate) not_before: Instant,
}

/// Another broker.
struct Place {
    addresses: String,
    connection: Option<Arc<Connection>>,
    topics: HashSet<Bid>,
    /// Topics that go there; a thread is at work while there is a queue.
    coming: Option<VecDeque<Step>>,
}

#[derive(Default)]
struct Places {
    by_id: HashMap<PlaceId, Place>,
    /// Addresses that lead to the broker at home, and its process.
    home: Option<(String, u128)>,
    over: bool,
}

impl Places {
    /// Removes a broker that has no topic, and to which none goes.
    fn remove_if_idle(&mut self, id: PlaceId) -> Option<Place> {
        let place = self.by_id.get(&id)?;
        (place.topics.is_empty() && place.coming.is_none()).then(|| self.by_id.remove(&id)).flatten()
    }
}

/// The other brokers.
pub(crate) struct Elsewhere {
    pub(crate) conns: Arc<ConnPlaces>,
    dial: Dial,
    places: Mutex<Places>,
    next: AtomicU64,
}

impl Elsewhere {
    pub(crate) fn new(dial: Dial, conns: Arc<ConnPlaces>) -> Self {
        Self { conns, dial, places: Mutex::default(), next: AtomicU64::new(HOME + 1) }
    }

    /// The connection to a broker.
    pub(crate) fn conn(&self, place: PlaceId) -> Option<Conn> {
        let places = lock(&self.places);
        Some(places.by_id.get(&place)?.connection.as_ref()?.conn())
    }

    /// A topic is at a broker. Returns the connection, if it is not lost.
    pub(crate) fn arrive(&self, place: PlaceId, bid: Bid) -> Option<Conn> {
        let mut places = lock(&self.places);
        let place = places.by_id.get_mut(&place)?;
        let conn = place.connection.as_ref()?.conn();
        place.topics.insert(bid);
        Some(conn)
    }

    /// A topic is at a broker no more. Its connection is closed after the last one.
    pub(crate) fn leave(&self, place: PlaceId, bid: Bid) {
        let mut places = lock(&self.places);
        if let Some(left) = places.by_id.get_mut(&place) {
            left.topics.remove(&bid);
        }
        let closed = places.remove_if_idle(place);
        drop(places);
        self.drop_place(place, closed);
    }

    /// Closes the connection to a broker, without the lock.
    fn drop_place(&self, id: PlaceId, place: Option<Place>) {
        if place.is_some() && id != HOME {
            self.conns.forget(id);
        }
    }

    /// Closes all connections, and makes none any more.
    pub(crate) fn close(&self, timeout: Option<Duration>) {
        let mut places = lock(&self.places);
        places.over = true;
        let all: Vec<Place> = places.by_id.drain().map(|(_, place)| place).collect();
        drop(places);
        all.iter().filter_map(|place| place.connection.as_ref()).for_each(|conn| conn.close(timeout));
    }

    /// Queues a step of a topic. Returns the broker if a thread must be started for it.
    pub(crate) fn queue(
        &self,
        addresses: &str,
        home: u128,
        step: Step,
    ) -> Result<Option<PlaceId>, &'static str> {
        let mut places = lock(&self.places);
        if places.over {
            return Ok(None);
        }
        let is_home = addresses.is_empty() || places.home == Some((addresses.to_owned(), home));
        let known = places.by_id.iter().find(|(_, place)| !is_home && place.addresses == addresses);
        let id = match (is_home, known) {
            (true, _) => HOME,
            (false, Some((id, _))) => *id,
            (false, None) if places.by_id.len() >= MAX_PLACES => return Err("too many brokers have topics"),
            (false, None) => self.next.fetch_add(1, Ordering::Relaxed),
        };
        let place = places.by_id.entry(id).or_insert_with(|| Place {
            addresses: addresses.to_owned(),
            connection: None,
            topics: HashSet::new(),
            coming: None,
        });
        if id != HOME {
            place.topics.insert(step.topic.bid);
        }
        let is_idle = place.coming.is_none();
        place.coming.get_or_insert_default().push_back(step);
        Ok(is_idle.then_some(id))
    }

    /// The next topic that goes to a broker. None ends the thread.
    pub(crate) fn next_step(&self, place: PlaceId) -> Option<Step> {
        let mut places = lock(&self.places);
        let coming = places.by_id.get_mut(&place)?;
        let step = coming.coming.as_mut()?.pop_front();
        if step.is_none() {
            coming.coming = None;
            let closed = places.remove_if_idle(place);
            drop(places);
            self.drop_place(place, closed);
        }
        step
    }

    /// Puts a step that is not due behind the others, and returns how many there are. None: the broker is lost.
    pub(crate) fn put_back(&self, place: PlaceId, step: &Step) -> Option<usize> {
        let mut places = lock(&self.places);
        let coming = places.by_id.get_mut(&place)?.coming.as_mut()?;
        coming.push_back(step.clone());
        Some(coming.len())
    }

    /// A broker cannot be reached, or not any more. Returns the steps of the topics that were to go there.
    pub(crate) fn give_up(&self, id: PlaceId) -> VecDeque<Step> {
        let mut place = lock(&self.places).by_id.remove(&id);
        let coming = place.as_mut().and_then(|place| place.coming.take());
        self.drop_place(id, place);
        coming.unwrap_or_default()
    }

    /// Connects to a broker, unless there is a connection. False: the broker is the one at home. `on_down` runs when the connection is lost.
    pub(crate) fn connect(
        &self,
        place: PlaceId,
        home: Option<u128>,
        out: &ROut,
        on_down: impl FnMut(&str) + Send + 'static,
    ) -> Result<bool, ConnectError> {
        let addresses = {
            let places = lock(&self.places);
            let Some(place) = places.by_id.get(&place) else { return Ok(false) };
            if place.connection.is_some() {
                return Ok(true);
            }
            place.addresses.clone()
        };
        let (conns, added) = (self.conns.clone(), out.clone());
        let on_start = move |conn: &Conn| {
            conns.begin(conn, place);
            added.add_conn(conn);
        };
        let Dial { context, hello, login } = &self.dial;
        let connection = Connection::connect(context, &addresses, hello.clone(), login, on_start)?;
        let instance = connection.conn().peer_instance();
        let connection = Arc::new(connection);
        let mut places = lock(&self.places);
        if home == Some(instance) {
            places.home = Some((addresses, instance));
            drop(places);
            self.conns.forget(place);
            return Ok(false);
        }
        let Some(there) = places.by_id.get_mut(&place) else {
            drop(places);
            self.conns.forget(place);
            return Ok(false);
        };
        there.connection = Some(connection.clone());
        drop(places);
        info!("topics are published to the broker at {addresses}, which has them");
        connection.watch(on_down, |_| {}, |_| {}, || {})?;
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use rocketbufs::Config;

    use super::*;
    use crate::connection::hello;
    use crate::state::confirm::Confirmations;
    use crate::wire::{Framing, Role};

    fn step() -> Step {
        let topic = TopicState {
            topic: "k".parse().unwrap(),
            bid: 1,
            framing: Framing::Records,
            ring_bytes: 0,
            max_delivery_bytes: AtomicU64::new(0),
            grows: false,
            largest_bytes: AtomicU64::new(0),
            min_subscribers: 0,
            stopped: false.into(),
            confirmations: Arc::new(Confirmations::new(0, 0)),
            state: Mutex::default(),
            changed: std::sync::Condvar::new(),
            tasks: Mutex::default(),
            events: Arc::default(),
            space: None,
            in_space: Mutex::default(),
            names: crate::state::topic_state::Names::default(),
        };
        Step { topic: Arc::new(topic), journey: 1, not_before: Instant::now() }
    }

    #[test]
    fn a_broker_that_no_topic_reaches_takes_no_place() {
        let dial = Dial {
            context: Context::new(Config::default()).unwrap(),
            hello: hello(Role::Publisher, "").unwrap(),
            login: Login::default(),
        };
        let elsewhere = Elsewhere::new(dial, Arc::default());
        for port in 1..=MAX_PLACES + 1 {
            let place = elsewhere.queue(&format!("10.0.0.1:{port}"), 0, step()).unwrap().unwrap();
            let step = elsewhere.next_step(place).unwrap();
            elsewhere.leave(place, step.topic.bid);
            assert!(elsewhere.next_step(place).is_none());
        }
        assert!(lock(&elsewhere.places).by_id.is_empty());
    }
}
