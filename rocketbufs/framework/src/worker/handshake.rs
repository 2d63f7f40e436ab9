//! The handshake of a connection, its time limits, and its end.

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use rocketnet::Transport;

use super::connection::{APP_BYTES_PER_FLUSH, Connection, Link, Standing};
use super::reactor_action::{Outcome, ReactorAction};
use super::worker_context::LinkPhase;
use crate::proto::{CloseCode, GROWS, Hello, MIN_VERSION, Message, Tick, VERSION};
use crate::state::error::DownReason;
use crate::state::in_event::InEvent;
use crate::state::{Command, ForeignReason, Phase, Role};

impl Link {
    /// Returns whether the application dropped every handle of a connection without a role. No thread can
    /// give the connection a role then, except by a command that the worker has already received.
    fn is_abandoned(&mut self) -> bool {
        let known = !matches!(self.line.phase, LinkPhase::Fresh | LinkPhase::Closing);
        // `get_mut` acquires what the last other handle released, so commands that were sent through that
        // handle are visible.
        known && self.role.is_none() && Arc::get_mut(&mut self.line.shared).is_some()
    }
}

impl<T: Transport> Connection<'_, T> {
    pub(super) fn on_connected(&mut self) {
        self.link.line.phase = LinkPhase::Greeting;
        let hello = std::mem::take(&mut self.link.hello);
        let hello = self.our_hello(MIN_VERSION..=VERSION, hello);
        self.send(&Message::Hello(hello));
    }

    fn our_hello(&self, versions: RangeInclusive<u16>, hello: Vec<u8>) -> Hello {
        Hello {
            min_version: *versions.start(),
            max_version: *versions.end(),
            capabilities: GROWS,
            instance: self.io.inner.instance,
            heartbeat_ms: self.io.inner.config.session.heartbeat_ms,
            max_control_bytes: self.io.inner.config.limits.max_control_bytes,
            hello,
        }
    }

    pub(super) fn on_hello(&mut self, hello: Hello) -> Outcome {
        let carrier = self.io.transport.carrier(self.id());
        let identity = self.io.transport.peer_identity(self.id());
        let Some(version) = self.link.line.session.on_hello(&hello, self.io.now) else {
            let (min, max) = (hello.min_version, hello.max_version);
            let why =
                format!("version {min} to {max} was offered; this end speaks {MIN_VERSION} to {VERSION}");
            return Err(ReactorAction::Close(CloseCode::Version, why));
        };
        self.link.version = version;
        self.link.line.phase = LinkPhase::Offered;
        self.no_stranger();
        self.link.line.shared.greeted(hello, Phase::Offered, carrier, identity);
        self.io.transport.pause(self.id(), true);
        let Some(listener) = self.link.listener.take().and_then(|listener| listener.upgrade()) else {
            return Err(ReactorAction::Close(CloseCode::ShuttingDown, "no longer listening".to_owned()));
        };
        if let Some(refused) = listener.offer(self.link.line.shared.clone()) {
            let why = "too many connections wait to be accepted";
            listener.turned_away(&refused.peer_addr(), ForeignReason::Limit, why);
            return Err(ReactorAction::Close(CloseCode::Limit, why.to_owned()));
        }
        Ok(())
    }

    pub(super) fn on_welcome(&mut self, hello: Hello) -> Outcome {
        let carrier = self.io.transport.carrier(self.id());
        let identity = self.io.transport.peer_identity(self.id());
        tracing::debug!(peer = self.id().0, carrier = carrier.name, why = carrier.why, "connected");
        if self.link.line.session.on_hello(&hello, self.io.now).is_none() {
            let why = "the version in WELCOME was not offered".to_owned();
            return Err(ReactorAction::Close(CloseCode::Version, why));
        }
        self.link.line.phase = LinkPhase::Up;
        self.link.line.shared.greeted(hello, Phase::Up, carrier, identity);
        if self.link.role.is_none() {
            // Without a role there is no recipient for incoming messages.
            self.io.transport.pause(self.id(), true);
        }
        Err(ReactorAction::Up(std::mem::take(&mut self.link.early), Vec::new()))
    }

    /// Gives the connection its role, and starts or resumes reading.
    pub(super) fn attach(&mut self, role: Role) -> Outcome {
        let number = self.link.line.shared.id;
        if self.link.line.phase == LinkPhase::Closing {
            let reason = self.link.line.shared.down_reason();
            let closing = || DownReason::NotStarted("the connection is closing".into());
            report_down(&role, number, reason.unwrap_or_else(closing));
            return Ok(());
        }
        if let Role::In(rin) = &role {
            let subscribe = |subscription| Command::Subscribe { conn: number, subscription };
            self.link.early.extend(rin.resumable().into_iter().map(subscribe));
        }
        self.link.role = Some(role);
        match self.link.line.phase {
            LinkPhase::Offered => {
                self.link.line.phase = LinkPhase::Up;
                self.link.line.shared.set_phase(Phase::Up);
                let version = self.link.version;
                let welcome = self.our_hello(version..=version, Vec::new());
                self.send(&Message::Welcome(welcome));
            }
            LinkPhase::Up => {}
            _ => return Ok(()),
        }
        self.io.transport.pause(self.id(), false);
        let (early, unheard) = (std::mem::take(&mut self.link.early), std::mem::take(&mut self.link.unheard));
        Err(ReactorAction::Up(early, unheard))
    }
}

/// The end of a connection.
impl<T: Transport> Connection<'_, T> {
    /// Closes the connection without BYE, which has no recipient.
    pub(super) fn drop_line(&mut self, reason: DownReason) {
        let why = reason.to_string();
        self.take_down(reason);
        self.io.transport.close(self.id(), &why, Duration::ZERO);
    }

    /// Sends BYE and closes the connection. Queued messages leave first, within `close_linger_ms`.
    pub(super) fn close(&mut self, code: CloseCode, why: &str) {
        if self.link.line.phase == LinkPhase::Closing {
            return;
        }
        let unheard = self.link.line.phase == LinkPhase::Connecting;
        let is_refused = matches!(self.link.line.phase, LinkPhase::Fresh | LinkPhase::Offered);
        self.report_foreign(ForeignReason::of_close(code), why);
        if !unheard {
            self.send_last_app();
            self.send_last_credits();
            self.send(&Message::Bye { code, text: why.to_owned() });
            self.io.transport.flush(self.id());
        }
        self.take_down(DownReason::Local { code, text: why.to_owned() });
        let linger = Duration::from_millis(u64::from(self.io.inner.config.session.close_linger_ms));
        let may_linger = !unheard && (!is_refused || self.begin_refusal());
        self.io.transport.close(self.id(), why, if may_linger { linger } else { Duration::ZERO });
    }

    /// Sends the application's queued control messages ahead of BYE, as far as there is room.
    fn send_last_app(&mut self) {
        let mut bytes = 0;
        for (message, cost) in std::mem::take(&mut self.link.line.app) {
            bytes += cost;
            if bytes > 4 * APP_BYTES_PER_FLUSH {
                break;
            }
            self.send(&Message::App(message));
        }
    }

    /// Reports, once, to the listener why a connection ended before a valid HELLO.
    pub(super) fn report_foreign(&mut self, reason: Option<ForeignReason>, why: &str) {
        if self.link.line.phase != LinkPhase::Fresh {
            return;
        }
        let listener = self.link.listener.take().and_then(|listener| listener.upgrade());
        if let (Some(reason), Some(listener)) = (reason, listener) {
            listener.turned_away(&self.link.line.shared.peer_addr(), reason, why);
        }
    }

    /// The peer has shown what it is, or the connection ends.
    fn no_stranger(&mut self) {
        if let Standing::Stranger { host, number } = self.link.standing {
            self.link.standing = Standing::Known;
            self.io.strangers.remove(host, number);
        }
    }

    /// Suspends or drops everything that a connection carried, once, and notifies the application.
    pub(super) fn take_down(&mut self, reason: DownReason) {
        if self.link.line.phase == LinkPhase::Closing {
            return;
        }
        self.link.line.phase = LinkPhase::Closing;
        self.no_stranger();
        // The end of the peer is read, whatever a limit allows.
        if self.link.line.limiting.as_mut().is_some_and(|limiting| std::mem::take(&mut limiting.paused)) {
            self.io.transport.pause(self.link.line.id, false);
        }
        let shared = self.link.line.shared.clone();
        let role = self.link.role.take();
        let early = std::mem::take(&mut self.link.early);
        shared.set_phase(Phase::Down(reason.clone()));
        self.drop_outs(&reason.to_string());
        self.drop_parked(None);
        self.suspend_ins();
        for command in early {
            if let Command::Subscribe { subscription, .. } = command {
                self.io.begin_linger(&subscription);
            }
        }
        if let Some(role) = role {
            report_down(&role, shared.id, reason);
        }
    }

    /// Checks the timeouts of the connection.
    pub(super) fn tick(&mut self) -> Outcome {
        let phase = self.link.line.phase;
        if phase == LinkPhase::Closing {
            return Ok(());
        }
        if self.link.is_abandoned() && !self.io.shared.has_work() {
            let why = "nobody took the connection: its application let go of it";
            return Err(ReactorAction::Close(CloseCode::NotAccepted, why.to_owned()));
        }
        let limited = self.link.line.limiting.as_ref().is_some_and(|limiting| limiting.paused);
        let unheard = phase == LinkPhase::Offered || self.link.role.is_none() && phase == LinkPhase::Up;
        let paused = unheard || limited;
        match self.link.line.session.tick(self.io.now, paused) {
            Tick::Quiet => {}
            // The first message of this end must be WELCOME.
            Tick::Ping if phase == LinkPhase::Offered => {}
            Tick::Ping => self.send(&Message::Ping(self.io.now)),
            Tick::HandshakeTimeout => {
                return Err(ReactorAction::Close(
                    CloseCode::Timeout,
                    "no answer within the handshake time".to_owned(),
                ));
            }
            Tick::Dead => {
                let text = "the peer was silent for three heartbeats".to_owned();
                return Err(ReactorAction::Down(DownReason::Local { code: CloseCode::Timeout, text }));
            }
            Tick::Silent => {
                let most = self.io.inner.config.session.max_silence_ms;
                let why =
                    format!("nothing came for session.max_silence_ms = {most}, not even an answer to PING");
                return Err(ReactorAction::Close(CloseCode::Timeout, why));
            }
        }
        Ok(())
    }
}

/// Reports the end of a connection to its role.
pub(super) fn report_down(role: &Role, number: u64, reason: DownReason) {
    match role {
        Role::In(rin) if rin.conn().id == number => {
            rin.report(InEvent::ConnDown { reason });
        }
        Role::In(_) => {}
        Role::Out(out) => out.conn_down(number, reason),
    }
}
