//! The connections and listeners of a worker: how they come and go.

use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Weak};

use rocketnet::{ConnId, Down, Transport};
use rustc_hash::FxHashMap;

use super::connection::{Connection, Link, Standing};
use super::handshake::report_down;
use super::reactor::Reactor;
use super::reactor_action::{Outcome, ReactorAction};
use super::worker_context::{LinkPhase, SendState};
use crate::ground::types::Nanos;
use crate::proto::{CloseCode, Message, Session, SessionConfig, VERSION};
use crate::state::error::{DownReason, ListenError};
use crate::state::{Command, ConnShared, ForeignReason, ListenerShared, Phase, Role};

impl<T: Transport> Reactor<T> {
    pub(super) fn listen(
        &mut self,
        listener: Weak<ListenerShared>,
        addr: &str,
        locally: bool,
        reply: &SyncSender<Result<String, ListenError>>,
    ) {
        let transport = &mut self.io.transport;
        let listening = if locally { transport.listen_locally(addr) } else { transport.listen(addr) };
        let result = listening.map_err(|error| ListenError::of_transport(addr, &error));
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

    pub(super) fn connect(
        &mut self,
        shared: Arc<ConnShared>,
        addr: &str,
        found: Option<Vec<SocketAddr>>,
        hello: Vec<u8>,
    ) {
        let transport = &mut self.io.transport;
        let connecting = match found {
            Some(found) => transport.connect_found(addr, found),
            None => transport.connect(addr),
        };
        match connecting {
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
        let line = SendState {
            id: conn,
            shared,
            session: Session::new(config, self.io.now),
            phase,
            ready: VecDeque::new(),
            dirty: false,
            pauses: Default::default(),
            app: VecDeque::new(),
            app_unflushed: 0,
            limiting: None,
        };
        let link = Link {
            line,
            role: None,
            hello,
            listener,
            standing: Standing::Known,
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

    /// Returns the connection with this number.
    pub(super) fn numbered(&mut self, number: u64) -> Option<Connection<'_, T>> {
        self.connection(*self.by_number.get(&number)?)
    }

    /// Handles a command for the connection with this number.
    pub(super) fn at_number(&mut self, number: u64, handle: impl FnOnce(&mut Connection<'_, T>) -> Outcome) {
        if let Some(&conn) = self.by_number.get(&number) {
            self.at(conn, handle);
        }
    }

    /// Executes effects that a connection cannot execute by itself.
    #[cold]
    pub(super) fn execute(&mut self, conn: ConnId, action: ReactorAction) {
        match action {
            ReactorAction::Close(code, why) => self.close(conn, code, &why),
            ReactorAction::Down(reason) => {
                self.forward_last(conn);
                if let Some(mut connection) = self.connection(conn) {
                    connection.drop_line(reason);
                }
            }
            ReactorAction::TooSlow { wire, lag, rule } => {
                self.forward_last(conn);
                let Some(mut connection) = self.connection(conn) else { return };
                let why = connection.disconnect_slow(wire, lag, rule);
                connection.close(CloseCode::Timeout, &why);
            }
            ReactorAction::Outgrown { wire, max_delivery } => {
                self.forward_last(conn);
                let Some(mut connection) = self.connection(conn) else { return };
                connection.leave_outgrown(wire, max_delivery);
            }
            ReactorAction::Forward(source, message) => {
                self.forward(source);
                self.at(conn, |connection| connection.on_message(*message, true));
            }
            ReactorAction::Up(commands, unheard) => self.on_up(conn, commands, unheard),
        }
    }

    fn on_up(&mut self, conn: ConnId, commands: Vec<Command>, unheard: Vec<Message>) {
        commands.into_iter().for_each(|command| self.on_command(command));
        for message in unheard {
            self.at(conn, |connection| match connection.link.line.phase {
                LinkPhase::Up => connection.on_message(message, false),
                _ => Ok(()),
            });
        }
    }

    /// Forwards confirmations of downstream receivers to the sender of the subscription with this slot, if
    /// this worker has the connection.
    fn forward(&mut self, source: u32) {
        self.with(source, |incoming| incoming.forward_confirmations());
    }

    /// Forwards the last confirmations of a connection's subscriptions, before these count as departed.
    fn forward_last(&mut self, conn: ConnId) {
        let sources = self.connection(conn).map(|connection| connection.upstreams());
        sources.into_iter().flatten().for_each(|source| self.forward(source));
    }

    /// Gives a connection its role.
    pub(super) fn attach(&mut self, number: u64, role: Role) {
        if let Some(&conn) = self.by_number.get(&number) {
            return self.at(conn, |connection| connection.attach(role));
        }
        // The connection went down first. The application learns the reason through the role.
        let known = match &role {
            Role::In(rin) => rin.conn().down_reason(),
            Role::Out(_) => None,
        };
        let down = || DownReason::NotStarted("the connection is down".into());
        report_down(&role, number, known.unwrap_or_else(down));
    }

    /// Sends BYE and closes a connection.
    pub(super) fn close(&mut self, conn: ConnId, code: CloseCode, why: &str) {
        self.forward_last(conn);
        if let Some(mut connection) = self.connection(conn) {
            connection.close(code, why);
        }
    }

    /// Handles the end of a connection that the transport reports.
    pub(super) fn on_down(&mut self, conn: ConnId, down: &Down) {
        self.forward_last(conn);
        if let Some(mut connection) = self.connection(conn) {
            connection.report_foreign(ForeignReason::of_down(down), &down.to_string());
            connection.take_down(DownReason::Transport(down.clone()));
        }
        if let Some(link) = self.links.remove(&conn) {
            self.by_number.remove(&link.line.shared.id);
            self.io.refusals -= usize::from(matches!(link.standing, Standing::Refused));
            if let Some(limiting) = &link.line.limiting {
                self.io.deferred.forget(conn, limiting.times());
            }
        }
        self.io.transport.forget(conn);
        if self.stop_at.is_some() && self.links.is_empty() {
            self.stopped = true;
        }
    }
}
