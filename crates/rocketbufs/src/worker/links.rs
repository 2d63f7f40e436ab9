//! The life of a connection, from the handshake to its end.

use std::collections::{HashMap, VecDeque};
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Weak};
use std::time::Duration;

use rocketnet::{ConnId, Down, Transport};
use rustc_hash::FxHashMap;

use super::io::{Line, LinkPhase};
use super::reactor::{Link, Reactor};
use crate::error::{DownReason, ListenError};
use crate::in_event::InEvent;
use crate::proto::{CloseCode, End, Hello, MIN_VERSION, Message, Session, SessionConfig, Tick, VERSION};
use crate::state::{Command, ConnShared, ForeignReason, ListenerShared, Phase, Request, Role};
use crate::types::Nanos;

/// Bytes of the application's control messages between two flushes. Each flush shows whether the peer still
/// reads.
const APP_BYTES_PER_FLUSH: usize = 64 << 10;

impl<T: Transport> Reactor<T> {
    pub(super) fn listen(
        &mut self,
        listener: Weak<ListenerShared>,
        addr: &str,
        reply: &SyncSender<Result<String, ListenError>>,
    ) {
        let result = self.io.transport.listen(addr).map_err(|error| ListenError::of_transport(addr, &error));
        if let (Ok(local), Some(shared)) = (&result, listener.upgrade()) {
            self.listeners.push((shared.id, local.clone(), listener));
        }
        // The caller may have timed out.
        let _ = reply.send(result);
    }

    pub(super) fn unlisten(&mut self, listener: u64) {
        if let Some(at) = self.listeners.iter().position(|(id, ..)| *id == listener) {
            let (_, addr, _) = self.listeners.swap_remove(at);
            self.io.transport.unlisten(&addr);
        }
    }

    pub(super) fn connect(&mut self, shared: Arc<ConnShared>, addr: &str, hello: Vec<u8>) {
        match self.io.transport.connect(addr) {
            Ok(conn) => {
                self.add_link(conn, shared, hello, None, LinkPhase::Connecting);
            }
            Err(error) => shared.set_phase(Phase::Down(DownReason::NotStarted(error.to_string()))),
        }
    }

    pub(super) fn add_link(
        &mut self,
        conn: ConnId,
        shared: Arc<ConnShared>,
        hello: Vec<u8>,
        listener: Option<Weak<ListenerShared>>,
        phase: LinkPhase,
    ) {
        let session = &self.io.inner.config.session;
        let millis = |ms: u32| Nanos::from(ms) * 1_000_000;
        let timeout = match phase {
            LinkPhase::Connecting => session.connect_timeout_ms,
            _ => session.handshake_timeout_ms,
        };
        let config = SessionConfig {
            heartbeat: millis(session.heartbeat_ms),
            handshake_timeout: millis(timeout),
            max_silence: millis(session.max_silence_ms),
        };
        self.by_number.insert(shared.id, conn);
        let line = Line {
            id: conn,
            shared,
            session: Session::new(config, self.io.now),
            phase,
            ready: VecDeque::new(),
            dirty: false,
            pauses: Default::default(),
            app: VecDeque::new(),
            app_unflushed: 0,
        };
        let link = Link {
            line,
            role: None,
            hello,
            listener,
            version: VERSION,
            outs: HashMap::new(),
            parked: HashMap::new(),
            ins: FxHashMap::default(),
            next_wire: 1,
            early: Vec::new(),
            unheard: Vec::new(),
        };
        self.links.insert(conn, link);
        // A worker without connections practically never looks at the clock.
        self.io.next_tick =
            self.io.next_tick.min(self.io.now + self.io.interval(false).min(config.handshake_timeout));
    }

    pub(super) fn on_connected(&mut self, conn: ConnId) {
        let Some(link) = self.links.get_mut(&conn) else { return };
        link.line.phase = LinkPhase::Greeting;
        let hello = std::mem::take(&mut link.hello);
        let hello = self.our_hello((MIN_VERSION, VERSION), hello);
        self.send(conn, &Message::Hello(hello));
    }

    fn our_hello(&self, versions: (u16, u16), hello: Vec<u8>) -> Hello {
        Hello {
            min_version: versions.0,
            max_version: versions.1,
            capabilities: 0,
            instance: self.io.inner.instance,
            heartbeat_ms: self.io.inner.config.session.heartbeat_ms,
            max_control_bytes: self.io.inner.config.limits.max_control_bytes,
            hello,
        }
    }

    pub(super) fn on_control(&mut self, conn: ConnId, bytes: &[u8]) {
        let Some(phase) = self.links.get(&conn).map(|link| link.line.phase) else { return };
        let message = match Message::decode(bytes) {
            Ok(message) => message,
            Err(error) => {
                self.close(
                    conn,
                    CloseCode::Protocol,
                    &format!("a message of this peer is not valid: {error}"),
                );
                return;
            }
        };
        match (phase, message) {
            (_, Message::Bye { code, text }) => self.on_bye(conn, code, &crate::fields::printable(&text)),
            (LinkPhase::Closing, _) => {}
            (LinkPhase::Fresh, Message::Hello(hello)) => self.on_hello(conn, hello),
            (LinkPhase::Greeting, Message::Welcome(hello)) => self.on_welcome(conn, hello),
            (LinkPhase::Up, message) => match self.links.get_mut(&conn) {
                Some(link) if link.role.is_none() => link.unheard.push(message),
                _ => self.on_message(conn, message),
            },
            (phase, message) => {
                let kind = format!("{message:?}");
                let kind = kind.split([' ', '(']).next().unwrap_or_default().to_owned();
                self.close(conn, CloseCode::Protocol, &format!("{kind} does not belong here ({phase:?})"));
            }
        }
    }

    fn on_bye(&mut self, conn: ConnId, code: CloseCode, text: &str) {
        let reason = DownReason::Peer { code, text: text.to_owned() };
        let why = reason.to_string();
        self.take_down(conn, reason);
        self.io.transport.close(conn, &why, Duration::ZERO);
    }

    fn on_hello(&mut self, conn: ConnId, hello: Hello) {
        let carrier = self.io.transport.carrier(conn);
        let Some(link) = self.links.get_mut(&conn) else { return };
        let Some(version) = link.line.session.on_hello(&hello, self.io.now) else {
            let (min, max) = (hello.min_version, hello.max_version);
            let why =
                format!("version {min} to {max} was offered; this end speaks {MIN_VERSION} to {VERSION}");
            self.close(conn, CloseCode::Version, &why);
            return;
        };
        link.version = version;
        link.line.phase = LinkPhase::Offered;
        link.line.shared.greeted(hello, Phase::Offered, carrier);
        let (shared, listener) = (link.line.shared.clone(), link.listener.take().and_then(|l| l.upgrade()));
        self.io.transport.pause(conn, true);
        let Some(listener) = listener else {
            self.close(conn, CloseCode::ShuttingDown, "no longer listening");
            return;
        };
        if let Some(refused) = listener.offer(shared) {
            let why = "too many connections wait to be accepted";
            listener.turned_away(&refused.peer_addr(), ForeignReason::Limit, why);
            self.close(conn, CloseCode::Limit, why);
        }
    }

    fn on_welcome(&mut self, conn: ConnId, hello: Hello) {
        let carrier = self.io.transport.carrier(conn);
        tracing::debug!(peer = conn.0, carrier = carrier.name, why = carrier.why, "connected");
        let Some(link) = self.links.get_mut(&conn) else { return };
        if link.line.session.on_hello(&hello, self.io.now).is_none() {
            self.close(conn, CloseCode::Version, "the version in WELCOME was not offered");
            return;
        }
        link.line.phase = LinkPhase::Up;
        link.line.shared.greeted(hello, Phase::Up, carrier);
        if link.role.is_none() {
            // Without a role there is no recipient for incoming messages.
            self.io.transport.pause(conn, true);
        }
        self.on_up(conn);
    }

    /// Gives the connection its role, and starts or resumes reading.
    pub(super) fn attach(&mut self, number: u64, role: Role) {
        let Some(&conn) = self.by_number.get(&number) else {
            // The connection went down first. The application learns the reason through the role.
            let known = match &role {
                Role::In(rin) => rin.conn().down_reason(),
                Role::Out(_) => None,
            };
            let reason = known.unwrap_or(DownReason::NotStarted("the connection is down".into()));
            self.tell_role_down(&role, number, reason);
            return;
        };
        let Some(link) = self.links.get_mut(&conn) else { return };
        if link.line.phase == LinkPhase::Closing {
            let reason = link.line.shared.down_reason();
            let reason = reason.unwrap_or(DownReason::NotStarted("the connection is closing".into()));
            self.tell_role_down(&role, number, reason);
            return;
        }
        if let Role::In(rin) = &role {
            let subscribe = |inbound| Command::Subscribe { conn: number, inbound };
            link.early.extend(rin.all_inbounds().into_iter().map(subscribe));
        }
        link.role = Some(role);
        match link.line.phase {
            LinkPhase::Offered => {
                link.line.phase = LinkPhase::Up;
                link.line.shared.set_phase(Phase::Up);
                let version = link.version;
                let welcome = self.our_hello((version, version), Vec::new());
                self.send(conn, &Message::Welcome(welcome));
                self.io.transport.pause(conn, false);
                self.on_up(conn);
            }
            LinkPhase::Up => {
                let unheard = std::mem::take(&mut link.unheard);
                self.io.transport.pause(conn, false);
                self.on_up(conn);
                for message in unheard {
                    if self.links.get(&conn).is_some_and(|link| link.line.phase == LinkPhase::Up) {
                        self.on_message(conn, message);
                    }
                }
            }
            _ => {}
        }
    }

    fn on_up(&mut self, conn: ConnId) {
        let Some(link) = self.links.get_mut(&conn) else { return };
        for command in std::mem::take(&mut link.early) {
            self.on_command(command);
        }
    }

    /// Keeps a command until the connection is up. Returns whether it was kept.
    pub(super) fn too_early(&mut self, number: u64, command: impl FnOnce() -> Command) -> bool {
        let Some(link) = self.by_number.get(&number).and_then(|conn| self.links.get_mut(conn)) else {
            return false;
        };
        let early = matches!(
            link.line.phase,
            LinkPhase::Connecting | LinkPhase::Fresh | LinkPhase::Greeting | LinkPhase::Offered
        );
        if early {
            link.early.push(command());
        }
        early
    }

    pub(super) fn send_app(&mut self, number: u64, message: Vec<u8>, cost: usize) {
        if self.too_early(number, || Request::Control { conn: number, message: message.clone(), cost }.into())
        {
            return;
        }
        let Some(&conn) = self.by_number.get(&number) else { return };
        if let Some(link) = self.links.get_mut(&conn) {
            link.line.app.push_back((message, cost));
        }
        self.send_waiting_app(conn);
    }

    /// Sends queued control messages of the application while the peer reads. They must not use up the
    /// reserve for the protocol's own messages. Returns whether the queue is empty.
    pub(super) fn send_waiting_app(&mut self, conn: ConnId) -> bool {
        loop {
            let room = self.io.transport.room(conn) > 0;
            let Some(link) = self.links.get_mut(&conn) else { return true };
            if !room || link.line.app.is_empty() {
                return link.line.app.is_empty();
            }
            let Some((message, cost)) = link.line.app.pop_front() else { return true };
            link.line.shared.control_left(cost);
            link.line.app_unflushed += cost;
            let flush = link.line.app_unflushed >= APP_BYTES_PER_FLUSH;
            if flush {
                link.line.app_unflushed = 0;
            }
            self.send(conn, &Message::App(message));
            if flush {
                self.io.transport.flush(conn);
            }
        }
    }

    fn on_message(&mut self, conn: ConnId, message: Message) {
        match message {
            Message::Ping(token) => self.send(conn, &Message::Pong(token)),
            Message::Pong(token) => self.on_pong(conn, token),
            Message::App(bytes) => self.on_app(conn, bytes),
            Message::Subscribe(subscribe) => self.on_subscribe(conn, subscribe),
            Message::Unsubscribe(wire) => self.on_unsubscribe(conn, wire),
            Message::Credit { wire, credit } => self.on_credit(conn, wire, &credit),
            Message::Subscribed(subscribed) => self.on_subscribed(conn, &subscribed),
            Message::Refused { wire, code, a, b } => self.on_refused(conn, wire, code, a, b),
            Message::Unsubscribed(wire) => self.on_unsubscribed(conn, wire),
            Message::Ask { wire, wanted } => {
                if let Some(mut turn) = self.incoming(conn, wire) {
                    turn.on_ask(wanted);
                }
            }
            Message::Recall(wire) => self.on_recall(conn, wire),
            Message::Recalled { wire, at } => self.receive(conn, wire, |turn| turn.on_recalled(at)),
            Message::Lost { wire, from, to } => self.receive(conn, wire, |turn| turn.on_lost((from, to))),
            Message::Closed { wire, end } => self.receive(conn, wire, |turn| turn.on_end(End::Closed(end))),
            Message::Gone { wire, end } => self.receive(conn, wire, |turn| turn.on_end(End::Gone(end))),
            Message::Hello(_) | Message::Welcome(_) => {
                self.close(conn, CloseCode::Protocol, "a second greeting");
            }
            Message::Bye { .. } => {}
        }
    }

    fn on_app(&mut self, conn: ConnId, bytes: Vec<u8>) {
        let Some(link) = self.links.get(&conn) else { return };
        let shared = link.line.shared.clone();
        match link.role.clone() {
            Some(Role::In(rin)) => {
                let taken = rin.on_control(bytes);
                if !taken {
                    self.close(conn, CloseCode::Limit, "too many control messages that nobody reads");
                }
            }
            Some(Role::Out(out)) => out.on_control(&shared, &bytes),
            None => {}
        }
    }

    pub(super) fn close_number(&mut self, number: u64, code: CloseCode, why: &str) {
        if let Some(&conn) = self.by_number.get(&number) {
            self.close(conn, code, why);
        }
    }

    /// Sends BYE and closes the connection. Queued messages leave first, within `close_linger_ms`.
    pub(super) fn close(&mut self, conn: ConnId, code: CloseCode, why: &str) {
        let Some(link) = self.links.get_mut(&conn) else { return };
        if link.line.phase == LinkPhase::Closing {
            return;
        }
        let unheard = link.line.phase == LinkPhase::Connecting;
        self.tell_stranger(conn, ForeignReason::of_close(code), why);
        if !unheard {
            self.send_last_app(conn);
            self.tell_last_credits(conn);
            let bye = Message::Bye { code, text: why.to_owned() };
            self.send(conn, &bye);
            self.io.transport.flush(conn);
        }
        self.take_down(conn, DownReason::Local { code, text: why.to_owned() });
        let linger = Duration::from_millis(u64::from(self.io.inner.config.session.close_linger_ms));
        self.io.transport.close(conn, why, if unheard { Duration::ZERO } else { linger });
    }

    /// Sends the application's queued control messages ahead of BYE, as far as there is room.
    fn send_last_app(&mut self, conn: ConnId) {
        let Some(link) = self.links.get_mut(&conn) else { return };
        let mut bytes = 0;
        for (message, cost) in std::mem::take(&mut link.line.app) {
            bytes += cost;
            if bytes > 4 * APP_BYTES_PER_FLUSH {
                break;
            }
            self.send(conn, &Message::App(message));
        }
    }

    /// Reports, once, to the listener why a connection ended before a valid HELLO.
    fn tell_stranger(&mut self, conn: ConnId, reason: Option<ForeignReason>, why: &str) {
        let Some(link) = self.links.get_mut(&conn).filter(|link| link.line.phase == LinkPhase::Fresh) else {
            return;
        };
        let listener = link.listener.take().and_then(|listener| listener.upgrade());
        if let (Some(reason), Some(listener)) = (reason, listener) {
            listener.turned_away(&link.line.shared.peer_addr(), reason, why);
        }
    }

    /// Handles the end of a connection that the transport reports.
    pub(super) fn on_down(&mut self, conn: ConnId, down: &Down) {
        let why = down.to_string();
        self.tell_stranger(conn, ForeignReason::of_down(down), &why);
        self.take_down(conn, DownReason::Transport(down.clone()));
        if let Some(link) = self.links.remove(&conn) {
            self.by_number.remove(&link.line.shared.id);
        }
        self.io.transport.forget(conn);
        if self.stop_at.is_some() && self.links.is_empty() {
            self.stopped = true;
        }
    }

    /// Suspends or drops everything that a connection carried, once, and notifies the application.
    fn take_down(&mut self, conn: ConnId, reason: DownReason) {
        let Some(link) = self.links.get_mut(&conn) else { return };
        if link.line.phase == LinkPhase::Closing {
            return;
        }
        link.line.phase = LinkPhase::Closing;
        let shared = link.line.shared.clone();
        let role = link.role.take();
        let early = std::mem::take(&mut link.early);
        shared.set_phase(Phase::Down(reason.clone()));
        self.drop_outs(conn, &reason.to_string());
        self.drop_parked(conn, None);
        self.suspend_ins(conn);
        for command in early {
            if let Command::Subscribe { inbound, .. } = command {
                self.begin_linger(&inbound);
            }
        }
        if let Some(role) = role {
            self.tell_role_down(&role, shared.id, reason);
        }
    }

    fn tell_role_down(&mut self, role: &Role, number: u64, reason: DownReason) {
        match role {
            Role::In(rin) if rin.conn().id == number => {
                rin.report(InEvent::ConnDown { reason });
            }
            Role::In(_) => {}
            Role::Out(out) => out.conn_down(number, reason),
        }
    }

    /// Checks the timeouts of one connection.
    pub(super) fn tick_link(&mut self, conn: ConnId) {
        let Some(link) = self.links.get_mut(&conn) else { return };
        if link.line.phase == LinkPhase::Closing {
            return;
        }
        if is_abandoned(link) && !self.io.shared.has_work() {
            self.close(
                conn,
                CloseCode::NotAccepted,
                "nobody took the connection: its application let go of it",
            );
            return;
        }
        let paused =
            link.line.phase == LinkPhase::Offered || link.role.is_none() && link.line.phase == LinkPhase::Up;
        match link.line.session.tick(self.io.now, paused) {
            Tick::Quiet => {}
            // The first message of this end must be WELCOME.
            Tick::Ping if link.line.phase == LinkPhase::Offered => {}
            Tick::Ping => self.send(conn, &Message::Ping(self.io.now)),
            Tick::HandshakeTimeout => {
                self.close(conn, CloseCode::Timeout, "no answer within the handshake time")
            }
            Tick::Dead => {
                // The peer is gone, so BYE has no recipient.
                let why = "the peer was silent for three heartbeats";
                self.take_down(conn, DownReason::Local { code: CloseCode::Timeout, text: why.to_owned() });
                self.io.transport.close(conn, why, Duration::ZERO);
            }
            Tick::Silent => {
                let most = self.io.inner.config.session.max_silence_ms;
                let why =
                    format!("nothing came for session.max_silence_ms = {most}, not even an answer to PING");
                self.close(conn, CloseCode::Timeout, &why);
            }
        }
    }
}

/// Returns whether the application dropped every handle of a connection without a role. No thread can give
/// the connection a role then, except by a command that the worker has already received.
fn is_abandoned(link: &mut Link) -> bool {
    let known = !matches!(link.line.phase, LinkPhase::Fresh | LinkPhase::Closing);
    // `get_mut` acquires what the last other handle released, so commands that were sent through that handle
    // are visible.
    known && link.role.is_none() && Arc::get_mut(&mut link.line.shared).is_some()
}
