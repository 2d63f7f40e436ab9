//! Starting and stopping the thread of a gateway.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use peers::{PlaceLimits, Places};
use rbmq::{Event, Notice, Publisher, ReceiveError, SubscribeTopicError, Subscriber, TopicOpenError};
use rbmq_wire::TopicFilter;
use rustix::event::epoll;
use tracing::warn;

use super::bus::Topics;
use super::connections::{ConnectionLimits, Connections, MAX_FRAMING_BYTES, Slow, SweepLimits};
use super::hall::Hall;
use super::openings::{RECORD_HEADERS, Side};
use super::wake::Bell;
use super::web_socket::Welcome;
use super::worker::{Entrance, NewHandshake, Worker};
use crate::protocol::Protocol;

/// How long a gateway that starts waits until its subscriptions are in force.
const SETTLE: Duration = Duration::from_secs(60);

/// The most events that are looked at when they are: a refusal may be among them. Messages have nobody to go to yet.
const LAST_EVENTS: usize = 100;

/// The listener of a gateway and its limits.
pub(crate) struct Options {
    /// The patterns of the broker's spaces.
    pub(crate) spaces: Vec<TopicFilter>,
    /// Topics that have logs of their own, also if their names are in a space.
    pub(crate) foreign: Vec<TopicFilter>,
    pub(crate) name: String,
    pub(crate) listener: TcpListener,
    pub(crate) handshake: Option<NewHandshake>,
    /// For clients of WebSocket; none: clients speak the protocol at once.
    pub(crate) web: Option<Welcome>,
    pub(crate) max_connections: usize,
    pub(crate) max_message_bytes: u64,
    pub(crate) max_lag_bytes: u64,
    /// The log of frames; larger if messages of the largest size need it.
    pub(crate) frames_bytes: usize,
    pub(crate) slow: Slow,
    /// How long a client that has said nothing of use may stay.
    pub(crate) stranger_timeout: Duration,
}

/// A gateway whose broker has taken its subscriptions. Dropping it stops the gateway in order.
pub(crate) struct Running {
    name: String,
    address: SocketAddr,
    bell: Bell,
    /// What the thread does, before it is started.
    run: Option<Box<dyn FnOnce() + Send>>,
    thread: Option<JoinHandle<()>>,
}

impl Options {
    fn limits(&self) -> ConnectionLimits {
        // As it comes back, with the name of its topic.
        let record = self.max_message_bytes.saturating_add(RECORD_HEADERS);
        let largest = usize::try_from(record).unwrap_or(usize::MAX).saturating_add(MAX_FRAMING_BYTES);
        ConnectionLimits {
            frames_bytes: self.frames_bytes.max(largest.saturating_mul(4)),
            max_lag_bytes: self.max_lag_bytes,
            slow: self.slow,
        }
    }
}

/// A gateway does not start.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StartError {
    #[error(transparent)]
    System(#[from] io::Error),
    #[error(transparent)]
    Open(#[from] TopicOpenError),
    #[error(transparent)]
    Subscribe(#[from] SubscribeTopicError),
    #[error(transparent)]
    Receive(#[from] ReceiveError),
    #[error("the broker refuses what the gateway is to receive: {0}")]
    Refused(String),
    #[error("the broker has not taken the subscriptions of the gateway within {0:?}")]
    NotSettled(Duration),
}

/// Prepares a gateway, which [`Running::start`] starts. `publisher` and `subscriber` lead to its broker. The door, and what tells of kept topics, are made with the bell, which other
/// threads ring when there is a change.
///
/// # Errors
/// The system refuses a descriptor, or the broker a space.
pub(crate) fn prepare<P: Protocol + Send + 'static, H: Hall + Send + 'static>(
    options: Options,
    protocol: P,
    door: impl FnOnce(&Bell) -> (H, Side),
    publisher: Publisher,
    mut subscriber: Subscriber,
) -> Result<Running, StartError> {
    let (address, bell) = (options.listener.local_addr()?, Bell::new()?);
    let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(io::Error::from)?;
    let limits = options.limits();
    let max_input_bytes = limits.frames_bytes / 4;
    let entrance = Entrance {
        listener: options.listener,
        handshake: options.handshake,
        web: options.web,
        places: Places::new(PlaceLimits::new(options.max_connections, "gateway.max_connections"), |line| {
            warn!("{line}")
        }),
        sweep: SweepLimits { stranger: options.stranger_timeout, closing: Duration::from_secs(5) },
        max_input_bytes,
    };
    let (door, side) = door(&bell);
    let topics = Topics::open(publisher, &options.spaces, options.foreign, options.max_message_bytes, side)?;
    for filter in topics.always() {
        subscriber.subscribe(filter)?;
    }
    settle(&mut subscriber, SETTLE)?;
    let connections = Connections::new(epoll, limits);
    let worker = Worker::new(protocol, door, entrance, bell.clone(), connections, topics, subscriber)?;
    let run = Some(Box::new(move || worker.run()) as Box<dyn FnOnce() + Send>);
    Ok(Running { name: options.name, address, bell, run, thread: None })
}

/// Waits until the subscriptions are in force, or refused.
fn settle(subscriber: &mut Subscriber, patience: Duration) -> Result<(), StartError> {
    let until = Instant::now() + patience;
    let mut left = LAST_EVENTS;
    while left > 0 {
        let is_over = subscriber.is_settled() || Instant::now() >= until;
        let wait = if is_over { Duration::ZERO } else { Duration::from_millis(10) };
        left -= usize::from(is_over);
        match subscriber.next_event(Some(wait))? {
            Some(Event::Notice(Notice::Refused { reason, .. })) => return Err(StartError::Refused(reason)),
            None if is_over => break,
            _ => {}
        }
    }
    // Clients would be told that their subscriptions are in force.
    if subscriber.is_settled() { Ok(()) } else { Err(StartError::NotSettled(patience)) }
}

impl Running {
    /// Starts the thread, once.
    ///
    /// # Errors
    /// The system refuses it.
    pub(crate) fn start(&mut self) -> io::Result<()> {
        if let Some(run) = self.run.take() {
            self.thread = Some(threads::spawn(self.name.clone(), run)?);
        }
        Ok(())
    }

    /// The address in use.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Whether the gateway serves nobody any more, though nobody has told it to stop.
    pub(crate) fn has_ended(&self) -> bool {
        self.thread.as_ref().is_some_and(JoinHandle::is_finished)
    }

    /// Whether the gateway has begun to serve clients.
    pub(crate) fn is_serving(&self) -> bool {
        self.bell.is_serving()
    }

    /// Tells the gateway to stop, and waits for nothing.
    pub(crate) fn ask_to_stop(&self) {
        self.bell.stop();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.bell.stop();
        if let Some(thread) = self.thread.take() {
            // A panic of the thread was reported where it happened.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use rbmq_broker::{Broker, BrokerConfig};

    use super::*;

    #[test]
    fn a_gateway_does_not_start_without_its_subscriptions() {
        let mut config = BrokerConfig::default();
        config.broker.listen = "127.0.0.1:0".into();
        let broker = Broker::start(config).expect("a broker starts");
        let mut subscriber = Subscriber::connect(&broker.addr()).expect("the broker listens");
        subscriber.subscribe("a").expect("a filter");
        settle(&mut subscriber, SETTLE).expect("the broker answers");
        drop(broker);
        subscriber.subscribe("b").expect("a filter");
        let settled = settle(&mut subscriber, Duration::ZERO);
        assert!(matches!(settled, Err(StartError::NotSettled(_))), "{settled:?}");
    }
}
