//! The thread of a gateway.
//!
//! ```text
//!   wait ─▶ new connections ─▶ bytes of clients ─▶ room on the bus ─▶ messages of topics ─▶ time ─▶ send everything ─▶ wait
//! ```
//!
//! What a round produces is sent at its end, by one call for each connection: while sockets and the bus are busy, more is there the next time.

use std::collections::VecDeque;
use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use peers::{LogLimiter, Places};
use rbmq::{Framing, ReceiveError, RefusedFilter, StartFrom, Subscriber};
use rustix::event::epoll::{self, EventFlags};
use rustix::net::sockopt;
use rustix::time::Timespec;
use tls13::Handshake;
use tracing::{debug, error, warn};

use super::beside::{FINISH, PUBLISH_RETRY};
use super::bus::{Ask, Topics};
use super::connections::{Connections, MAX_FRAMING_BYTES, SweepLimits, Until};
use super::hall::{Change, Hall};
use super::logs::LogNews;
use super::socket::Socket;
use super::transport::Transport;
use super::wake::Bell;
use super::web_socket::{NoWebSocket, Welcome};
use crate::protocol::{ConnId, Cx, Logs as _, Message, Outlets as _, Protocol, Taken};

/// Data of events that are no connection's: the upper half of an id is never this for long.
const LISTENER: u64 = u64::MAX;
const BELL: u64 = u64::MAX - 1;
const PUBLISHER: u64 = u64::MAX - 2;
const SUBSCRIBER: u64 = u64::MAX - 3;

/// The most events of one wait.
const MAX_EVENTS: usize = 256;

/// The most connections that are accepted in one round.
const MAX_ACCEPTED: usize = 64;

/// The most bytes that are read from a connection in one round.
const READ_BYTES: usize = 256 << 10;

/// The most messages that are taken from the subscriber in one round, and the most ranges that are queued, beyond the last message: then sockets
/// are read and written.
const MAX_MESSAGES: u64 = 100_000;
const MAX_PUSHES: u64 = 100_000;

/// How often connections without use are looked for.
const SWEEP: Duration = Duration::from_millis(500);

/// The longest wait: older kernels know no long ones. Then everything that is due is looked at again.
const MAX_WAIT: Duration = Duration::from_secs(3600);

/// How long connections wait for a topic that the broker has not taken in time.
const RESUME: Duration = Duration::from_millis(100);

/// How long nobody is accepted after the system had no descriptor.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// How often people are told that clients wait until the broker has taken the subscriptions of former ones.
const BEGIN: Duration = Duration::from_secs(10);

/// How long clients that have everything have to leave when the gateway stops.
const LINGER: Duration = Duration::from_millis(100);

/// How long clients have to read what is queued when the gateway stops.
const STOP: Duration = Duration::from_secs(1);

/// What begins the handshake of a new connection; none without TLS.
pub(crate) type NewHandshake = Arc<dyn Fn() -> Result<Handshake, rustls::Error> + Send + Sync>;

/// What a gateway listens with.
pub(crate) struct Entrance {
    pub(crate) listener: TcpListener,
    pub(crate) handshake: Option<NewHandshake>,
    /// For clients of WebSocket; none: clients speak the protocol at once.
    pub(crate) web: Option<Welcome>,
    pub(crate) places: Places,
    pub(crate) sweep: SweepLimits,
    /// The most bytes that wait for the protocol.
    pub(crate) max_input_bytes: usize,
}

/// A gateway with its protocol. See the module.
pub(crate) struct Worker<P, H> {
    protocol: P,
    door: H,
    entrance: Entrance,
    bell: Bell,
    connections: Connections,
    topics: Topics,
    subscriber: Subscriber,
    /// What is read lies in the second half; before it, what its client had sent before.
    buffer: Box<[u8]>,
    /// Connections that had more bytes than a round takes.
    again: VecDeque<ConnId>,
    /// The subscriber may have more, of which its descriptor says nothing.
    has_messages: bool,
    accept_at: Option<Instant>,
    sweep_at: Option<Instant>,
    /// Until when nothing is sent, as the protocol has something to write first.
    held_until: Option<Instant>,
    /// When blocked connections try again, since the broker says nothing when it takes a topic at last.
    resume_at: Option<Instant>,
    lines: LogLimiter,
    /// The most bytes of a message and its attributes: beyond, a frame may not fit.
    max_message: usize,
    is_stopping: bool,
}

/// Calls the protocol with everything that it acts through.
macro_rules! call {
    ($self:ident.$method:ident($($argument:expr),*)) => {{
        let mut cx = Cx {
            out: &mut $self.connections,
            bus: &mut $self.topics,
            door: &mut $self.door,
            now: Instant::now(),
        };
        $self.protocol.$method($($argument,)* &mut cx)
    }};
}

impl<P: Protocol, H: Hall> Worker<P, H> {
    /// A gateway that has not begun to listen.
    ///
    /// # Errors
    /// The kernel refuses to watch a descriptor.
    pub(crate) fn new(
        protocol: P,
        door: H,
        entrance: Entrance,
        bell: Bell,
        connections: Connections,
        topics: Topics,
        subscriber: Subscriber,
    ) -> io::Result<Self> {
        entrance.listener.set_nonblocking(true)?;
        let max_message = connections.max_frame() - MAX_FRAMING_BYTES;
        let worker = Self {
            protocol,
            door,
            entrance,
            bell,
            connections,
            topics,
            subscriber,
            buffer: vec![0; 2 * READ_BYTES].into_boxed_slice(),
            again: VecDeque::new(),
            has_messages: false,
            accept_at: None,
            sweep_at: None,
            held_until: None,
            resume_at: None,
            lines: LogLimiter::default(),
            max_message,
            is_stopping: false,
        };
        let epoll = worker.connections.epoll();
        let watch = |data| epoll::EventData::new_u64(data);
        epoll::add(epoll, &worker.entrance.listener, watch(LISTENER), EventFlags::IN)?;
        epoll::add(epoll, &worker.bell, watch(BELL), EventFlags::IN)?;
        epoll::add(epoll, worker.topics.publisher().pollable()?, watch(PUBLISHER), EventFlags::IN)?;
        epoll::add(epoll, worker.subscriber.pollable()?, watch(SUBSCRIBER), EventFlags::IN)?;
        Ok(worker)
    }

    /// Serves clients until it is told to stop.
    pub(crate) fn run(mut self) {
        let mut events = Vec::with_capacity(MAX_EVENTS);
        self.begin();
        self.bell.set_serving();
        let mut next = call!(self.on_time());
        while !self.is_stopping && !self.bell.is_stopping() {
            self.wait(next, &mut events);
            self.connections.wake_delayed(Instant::now());
            for event in events.drain(..) {
                match event.data.u64() {
                    LISTENER => self.accept(),
                    BELL => {
                        self.bell.hear();
                        self.on_publisher();
                    }
                    PUBLISHER => self.on_publisher(),
                    SUBSCRIBER => {}
                    id => self.on_event(ConnId(id), event.flags),
                }
            }
            self.go_on();
            self.publish_kept();
            // Also without an event: what was published just now is in the log.
            self.take_messages();
            self.tell_settled();
            next = self.end_round();
        }
        self.stop();
    }

    fn wait(&mut self, next: Option<Instant>, events: &mut Vec<epoll::Event>) {
        // Also what a protocol has published as it began.
        self.topics.flush();
        let now = Instant::now();
        let due =
            [next, self.accept_at, self.sweep_at, self.resume_at, self.held_until, self.door.next_due()]
                .into_iter()
                .chain([self.connections.next_delayed()])
                .flatten()
                .min();
        let left = due.map(|due| due.saturating_duration_since(now).min(MAX_WAIT));
        let has_news = self.connections.has_resumed() || self.connections.has_drained();
        let is_idle = self.again.is_empty() && !self.has_messages && !has_news;
        // What was published just now is in the log, where this thread takes it itself.
        let sleeps = is_idle && !self.subscriber.attend(false);
        let left = if sleeps { left } else { Some(Duration::ZERO) };
        let left = left.and_then(|left| Timespec::try_from(left).ok());
        let spare = rustix::buffer::spare_capacity(events);
        if let Err(error) = epoll::wait(self.connections.epoll(), spare, left.as_ref())
            && error != rustix::io::Errno::INTR
        {
            warn!("a gateway cannot wait for its clients: {error}");
            self.subscriber.attend(false);
            std::thread::sleep(ACCEPT_PAUSE);
        }
        if !self.is_stopping {
            self.subscriber.attend(true);
        }
    }

    /// Does what is due, and sends everything. Returns when the protocol is to be called again.
    fn end_round(&mut self) -> Option<Instant> {
        let now = Instant::now();
        if self.accept_at.is_some_and(|at| at <= now) {
            self.accept_at = None;
            let data = epoll::EventData::new_u64(LISTENER);
            let _ = epoll::modify(self.connections.epoll(), &self.entrance.listener, data, EventFlags::IN);
        }
        if self.resume_at.is_some_and(|at| at <= now) {
            self.resume_at = None;
            self.resume_blocked();
        }
        let is_away = self.topics.note_receiving(&self.subscriber);
        if self.topics.take_missing() || is_away {
            self.resume_at.get_or_insert(now + RESUME);
        }
        if self.connections.take_has_closed() {
            self.sweep_at.get_or_insert(now + SWEEP);
        }
        if self.sweep_at.is_some_and(|at| at <= now) {
            let left = self.connections.sweep(now, &self.entrance.sweep);
            self.sweep_at = left.then(|| now + SWEEP);
        }
        self.take_changes(now);
        self.take_meters();
        self.take_log_news();
        self.ask();
        let next = call!(self.on_time());
        self.flush();
        self.forget_ended();
        self.door.count(&self.connections.take_counts(), &self.topics.take_counts());
        next
    }

    /// Sends what is queued, if the protocol lets it.
    fn flush(&mut self) {
        self.held_until = call!(self.before_sending());
        match self.held_until {
            None => self.connections.flush(),
            Some(_) => self.connections.hold(),
        }
    }

    /// Lets the protocol begin, and waits until the filters are in force that it subscribes to.
    fn begin(&mut self) {
        call!(self.on_start());
        self.ask();
        let mut warn_at = Instant::now() + BEGIN;
        while self.topics.awaits() && !self.is_stopping && !self.bell.is_stopping() {
            self.take_messages();
            self.tell_settled();
            if Instant::now() >= warn_at {
                warn!(
                    "a gateway serves nobody yet: the broker has not taken all subscriptions of its sessions"
                );
                warn_at += BEGIN;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Tells the protocol of what was sent, and of what has ended until nothing more follows. What is sent meanwhile is told in the next round: a client
    /// that reads fast does not keep the others waiting.
    fn forget_ended(&mut self) {
        let mut drained = self.connections.take_drained();
        loop {
            let ended = self.connections.take_ended();
            if drained.is_empty() && ended.is_empty() {
                return;
            }
            for conn in std::mem::take(&mut drained) {
                // Replies that the client had not read kept it from being read.
                self.again.push_back(conn);
                call!(self.on_drained(conn));
            }
            for conn in ended {
                call!(self.on_closed(conn));
                self.door.leave(conn);
            }
            self.ask();
            self.flush();
        }
    }
}

/// Clients.
impl<P: Protocol, H: Hall> Worker<P, H> {
    fn accept(&mut self) {
        for _ in 0..MAX_ACCEPTED {
            match self.entrance.listener.accept() {
                Ok((stream, address)) => self.admit(stream, address),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
                Err(error) => {
                    // The connection stays in the queue of the kernel, and would wake the thread again and again.
                    if let Some(more) = self.lines.allow(Instant::now()) {
                        warn!(more, "a gateway cannot accept a client: {error}");
                    }
                    let data = epoll::EventData::new_u64(LISTENER);
                    let none = EventFlags::empty();
                    let _ = epoll::modify(self.connections.epoll(), &self.entrance.listener, data, none);
                    self.accept_at = Some(Instant::now() + ACCEPT_PAUSE);
                    return;
                }
            }
        }
    }

    fn admit(&mut self, stream: TcpStream, address: SocketAddr) {
        let now = Instant::now();
        let left = self.entrance.places.counts().made_room;
        // Who is turned away is in the log by now.
        let Ok(place) = self.entrance.places.enter(address.ip(), now) else {
            return self.connections.count_turned_away();
        };
        let handshake = self.entrance.handshake.as_ref().map(|new| new()).transpose();
        let added = handshake.map_err(io::Error::other).and_then(|handshake| {
            stream.set_nonblocking(true)?;
            stream.set_nodelay(true)?;
            watch_over(&stream)?;
            let socket = Socket::new(Transport::new(stream, handshake), self.entrance.web.as_ref());
            self.connections.add(socket, address, place, now)
        });
        if self.entrance.places.counts().made_room > left {
            self.connections.sweep(now, &self.entrance.sweep);
        }
        self.sweep_at.get_or_insert(now + SWEEP);
        match added {
            Ok(conn) => {
                debug!(peer = %address, "connected");
                self.open(conn);
            }
            Err(error) => {
                if let Some(more) = self.lines.allow(now) {
                    warn!(peer = %address, more, "a client is not served: {error}");
                }
            }
        }
    }

    /// Tells the protocol of a client, once its connection is made. With TLS it is only then that the client has shown a certificate.
    fn open(&mut self, id: ConnId) {
        let Some(conn) = self.connections.get_mut(id) else { return };
        if !conn.is_made() {
            return;
        }
        let address = conn.address.to_string();
        match self.door.arrive(id, &address, conn.socket.certificate()) {
            // Without users everybody is let in, and is a stranger until it says something of use.
            Ok(true) if conn.socket.certificate().is_some() => conn.place.known(),
            Ok(_) => {}
            Err(why) => return self.connections.end(id, &why),
        }
        call!(self.on_open(id, &address));
    }

    fn on_event(&mut self, conn: ConnId, flags: EventFlags) {
        self.connections.mark(conn);
        if flags.intersects(EventFlags::IN | EventFlags::RDHUP) {
            self.read(conn);
        }
        let has_left = flags.contains(EventFlags::RDHUP) && self.connections.waits_for_news(conn);
        if flags.contains(EventFlags::RDHUP) && self.connections.has_left(conn) {
            self.sweep_at.get_or_insert(Instant::now() + SWEEP);
        }
        if flags.intersects(EventFlags::HUP | EventFlags::ERR) {
            self.connections.end(conn, "the client left");
        } else if has_left {
            self.connections.leave(conn);
        }
    }

    /// Connections that had more bytes, and those that may go on.
    fn go_on(&mut self) {
        for _ in 0..self.again.len() {
            if let Some(conn) = self.again.pop_front() {
                self.connections.mark(conn);
                self.read(conn);
            }
        }
        for conn in self.connections.take_resumed() {
            if self.connections.get(conn).is_none_or(|conn| conn.is_blocked()) {
                continue;
            }
            let mut buffer = std::mem::take(&mut self.buffer);
            self.use_input(conn, &mut buffer, 0);
            self.buffer = buffer;
            self.again.push_back(conn);
        }
    }

    fn read(&mut self, id: ConnId) {
        let mut buffer = std::mem::take(&mut self.buffer);
        if self.connections.discard(id, &mut buffer) {
            self.buffer = buffer;
            return;
        }
        let mut left = READ_BYTES;
        while left > 0 {
            let most = self.connections.most_to_read(id).min(READ_BYTES);
            let Some(conn) = self.connections.get_mut(id).filter(|conn| conn.wants_input()) else { break };
            match conn.socket.read(&mut buffer[READ_BYTES..READ_BYTES + most]) {
                Ok(0) => {
                    // What could not be executed before is, or waits again.
                    self.use_input(id, &mut buffer, 0);
                    self.connections.on_end(id);
                    break;
                }
                Ok(count) => {
                    left = left.saturating_sub(count);
                    self.connections.has_read(id, count);
                    self.use_input(id, &mut buffer, count);
                    if count < most && !self.may_have_more(id) {
                        // Less than there was room for: the socket is empty.
                        break;
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    if conn.socket.has_paused() {
                        left = 0;
                    }
                    break;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    self.on_failure(id, &error);
                    break;
                }
            }
        }
        self.buffer = buffer;
        if left == 0 {
            self.again.push_back(id);
        }
    }

    fn may_have_more(&self, id: ConnId) -> bool {
        self.connections.get(id).is_some_and(|conn| conn.socket.may_have_more())
    }

    /// A client cannot be read any more.
    fn on_failure(&mut self, id: ConnId, error: &io::Error) {
        if !error.get_ref().is_some_and(|inner| inner.is::<NoWebSocket>()) {
            return self.connections.end(id, &format!("cannot receive: {error}"));
        }
        self.connections.fault();
        let peer = self.connections.get(id).map(|conn| conn.address);
        if let (Some(more), Some(peer)) = (self.lines.allow(Instant::now()), peer) {
            warn!(%peer, more, "a client of WebSocket is disconnected: {error}");
        }
        // It is told why before the connection ends.
        self.connections.close(id, &error.to_string());
    }

    /// Gives the protocol what a client has sent: what is kept of it, and so many bytes in the second half of the buffer.
    fn use_input(&mut self, id: ConnId, buffer: &mut [u8], count: usize) {
        if self.connections.get(id).is_none_or(|conn| conn.is_closing()) {
            return;
        }
        self.open(id);
        let Some(conn) = self.connections.get_mut(id).filter(|conn| !conn.is_closing()) else { return };
        let mut input = std::mem::take(&mut conn.input);
        // The fewer bytes are copied to the others, so that a byte costs the same in small and in large pieces.
        let is_moved = input.len() <= count;
        let begin = READ_BYTES - input.len().min(count);
        if is_moved {
            buffer[begin..READ_BYTES].copy_from_slice(&input);
        } else {
            input.extend_from_slice(&buffer[READ_BYTES..READ_BYTES + count]);
        }
        let given = if is_moved { &buffer[begin..READ_BYTES + count] } else { &input[..] };
        if given.is_empty() {
            return;
        }
        let (used, blocked) = match call!(self.on_bytes(id, given)) {
            Taken::Bytes(used) => (used, None),
            Taken::Blocked(used) => (used, Some(Until::Resumed)),
            Taken::Later(used) => (used, Some(Until::Sent)),
            Taken::Waits(used) => (used, Some(Until::News)),
        };
        let rest = given.len() - used;
        if is_moved || rest == 0 {
            input = given[used..].to_vec();
        } else {
            input.drain(..used);
        }
        let Some(conn) = self.connections.get_mut(id) else { return };
        conn.input = input;
        self.connections.count_memory(id);
        if let Some(until) = blocked {
            self.connections.block(id, until);
        } else if rest > self.entrance.max_input_bytes {
            let most = self.entrance.max_input_bytes;
            self.connections.end(id, &format!("its client sends a command of more than {most} bytes"));
        }
    }
}

/// Topics.
impl<P: Protocol, H: Hall> Worker<P, H> {
    fn on_publisher(&mut self) {
        let has_room = self.topics.take_events();
        self.tell_refused();
        if has_room {
            self.resume_blocked();
        }
    }

    /// Publishes what is kept to be published together.
    fn publish_kept(&mut self) {
        self.topics.flush();
        self.tell_refused();
    }

    fn tell_refused(&mut self) {
        for topic in self.topics.take_refused() {
            call!(self.on_refused(&topic));
        }
    }

    fn resume_blocked(&mut self) {
        for conn in self.connections.blocked() {
            self.connections.resume(conn);
        }
    }

    /// Subscribes and unsubscribes as clients asked.
    fn ask(&mut self) {
        for ask in self.topics.take_asks() {
            let done = match &ask {
                Ask::Subscribe(filter) => self.subscriber.subscribe_from(filter.as_str(), StartFrom::Newest),
                Ask::Unsubscribe(filter) => self.subscriber.unsubscribe(filter.as_str()),
            };
            if let Err(error) = done {
                warn!("a gateway cannot subscribe: {error}");
            }
        }
    }

    /// Tells the protocol of the filters that are in force now, or refused.
    fn tell_settled(&mut self) {
        self.ask();
        if !self.topics.awaits() || !self.subscriber.is_settled() {
            return;
        }
        for RefusedFilter { filter, is_limit, .. } in self.subscriber.take_refused() {
            if self.topics.on_not_subscribed(&filter) {
                call!(self.on_not_subscribed(&filter, is_limit));
            }
        }
        for filter in self.topics.on_settled() {
            call!(self.on_subscribed(&filter));
        }
        self.ask();
    }

    /// Takes what the subscriber has, until clients are to get a part of it.
    fn take_messages(&mut self) {
        let (begin, pushes) = (self.connections.framed_bytes(), self.connections.pushes());
        let now = Instant::now();
        self.has_messages = true;
        for _ in 0..MAX_MESSAGES {
            match self.take_message(now) {
                Ok(true) => {}
                Ok(false) => {
                    self.has_messages = false;
                    return;
                }
                Err(ReceiveError::Lost { topic, from, to }) => call!(self.on_lost(&topic, to - from)),
                Err(error) if error.is_final() => {
                    if !std::mem::replace(&mut self.is_stopping, true) {
                        error!("a gateway receives nothing more, and ends: {error}");
                    }
                    self.has_messages = false;
                    return;
                }
                Err(error) => {
                    if let ReceiveError::Refused { topic: Some(topic), .. }
                    | ReceiveError::Malformed { topic, .. } = &error
                    {
                        call!(self.on_refused(topic));
                    }
                    if let Some(more) = self.lines.allow(now) {
                        warn!(more, "messages of topics: {error}");
                    }
                }
            }
            // What is framed is sent before the log of frames has gone round.
            let framed = self.connections.framed_bytes() - begin;
            if framed > self.connections.max_frame() as u64 || self.connections.pushes() - pushes > MAX_PUSHES
            {
                return;
            }
        }
    }

    /// Takes the next message. False: there is none.
    fn take_message(&mut self, now: Instant) -> Result<bool, ReceiveError> {
        let Some(message) = self.subscriber.recv_ref(Some(Duration::ZERO))? else { return Ok(false) };
        let (topic, attributes, payload) = (message.topic, message.attributes.as_bytes(), message.bytes);
        let size = payload.len() + attributes.len();
        if message.framing == Framing::Raw {
            // Plain bytes, of which nobody knows where a message ends.
        } else if size <= self.max_message {
            let (out, bus, door) = (&mut self.connections, &mut self.topics, &mut self.door);
            self.protocol.on_message(Message { topic, attributes, payload }, &mut Cx { out, bus, door, now });
        } else if let Some(more) = self.lines.allow(now) {
            let most = self.max_message;
            warn!(
                more,
                "topic '{topic}': a message of {size} bytes exceeds frames_bytes / 4, and is not sent to clients ({most})"
            );
        }
        Ok(true)
    }
}

/// The end, and other threads.
impl<P: Protocol, H: Hall> Worker<P, H> {
    /// Tells the protocol what is stored, and which topics have grown.
    fn take_log_news(&mut self) {
        for news in self.topics.take_log_news() {
            match news {
                LogNews::Stored(ticket, stored) => call!(self.on_stored(ticket, stored)),
                LogNews::Grown(topic) => call!(self.on_grown(&topic)),
                LogNews::Fetched(conn) => call!(self.on_fetched(conn)),
            }
        }
    }

    fn take_changes(&mut self, now: Instant) {
        while let Some(change) = self.door.next_change(now) {
            match change {
                Change::Login(conn, accepted) if self.connections.get(conn).is_some() => {
                    call!(self.on_login(conn, accepted));
                }
                Change::Login(..) => {}
                Change::CutOff(conn, why) => self.connections.end(conn, &why),
            }
        }
    }

    /// Limits the bytes per second of clients that have logged in.
    fn take_meters(&mut self) {
        for (conn, meter) in self.door.take_meters() {
            self.connections.set_meter(conn, meter);
        }
    }

    /// A broker in another process may be about to confirm what clients would send again.
    fn await_broker(&mut self) {
        let until = Instant::now() + FINISH;
        while self.topics.awaits_broker() && Instant::now() < until {
            self.publish_kept();
            self.take_messages();
            self.end_round();
            std::thread::sleep(PUBLISH_RETRY);
        }
    }

    /// Tells all clients, and closes their connections after what is queued; those that read nothing have until [`STOP`].
    fn stop(&mut self) {
        self.is_stopping = true;
        self.subscriber.attend(false);
        self.await_broker();
        call!(self.on_stop());
        for id in self.connections.ids() {
            self.connections.close(id, "the broker stops");
        }
        let (begin, is_beside) = (Instant::now(), self.topics.is_beside());
        let (until, lingering) = (begin + STOP, begin + LINGER);
        // In the broker's process, whoever keeps the log full has as long as a broker in another one. There, the wait follows.
        let published_until = if is_beside { until } else { begin + FINISH };
        let mut events = Vec::with_capacity(MAX_EVENTS);
        let _ = epoll::delete(self.connections.epoll(), &self.entrance.listener);
        let _ = self.topics.publisher().pollable().map(|fd| epoll::delete(self.connections.epoll(), fd));
        let _ = self.subscriber.pollable().map(|fd| epoll::delete(self.connections.epoll(), fd));
        loop {
            // What it has not received keeps its logs full, so that they take nothing of what clients were told is published.
            self.take_messages();
            self.take_log_news();
            call!(self.on_time());
            self.flush();
            self.forget_ended();
            self.topics.flush();
            let is_published = self.topics.is_flushed() && !self.protocol.has_unpublished();
            let now = Instant::now();
            let has_sent = self.connections.busy() == 0;
            let is_over = self.connections.len() == 0 || (has_sent && now >= lingering) || now >= until;
            if is_over && (is_published || now >= published_until) {
                return self.topics.finish(&mut self.subscriber);
            }
            self.again.clear();
            let due = match (is_published, has_sent) {
                (false, _) => now + PUBLISH_RETRY,
                (true, true) => lingering,
                (true, false) => until,
            };
            self.wait(Some(due), &mut events);
            self.connections.wake_delayed(Instant::now());
            self.connections.take_resumed();
            self.bell.hear();
            for event in std::mem::take(&mut events) {
                let id = ConnId(event.data.u64());
                self.connections.mark(id);
                self.read(id);
            }
            events.reserve(MAX_EVENTS);
        }
    }
}

/// Notices clients that are gone without a word: their machine has no power, or a router has forgotten them.
fn watch_over(stream: &TcpStream) -> io::Result<()> {
    sockopt::set_socket_keepalive(stream, true)?;
    sockopt::set_tcp_keepidle(stream, Duration::from_secs(300))?;
    sockopt::set_tcp_keepintvl(stream, Duration::from_secs(30))?;
    sockopt::set_tcp_keepcnt(stream, 4)?;
    Ok(())
}
