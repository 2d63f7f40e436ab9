//! One connection: its socket, its state and what epoll is to watch for it.
//!
//! ```text
//!  connect ──▶ Connecting ──▶ Open ──▶ Closing ──▶ Down ──▶ (forget)
//!                   │           │  close   ▲ linger, or the peer's end
//!                   └───────────┴──────────┘ failures go to Down at once
//! ```

use std::collections::BTreeSet;
use std::io;
use std::os::fd::AsFd;
use std::sync::Weak;
use std::time::Instant;

use rocketring::PeerDoorbell;
use rustix::event::epoll;
use rustix::net::Shutdown;

use super::config::TcpConfig;
use super::receive::Intake;
use super::send::Outgoing;
use super::socket::{self, Socket, Target};
use super::spares::Spares;
use crate::contract::{ConnId, Down};

pub(super) enum State {
    /// The handshake is under way with one address; `rest` are those to try if it fails.
    Connecting {
        addr: String,
        rest: std::vec::IntoIter<Target>,
        /// Why shared memory was not to be had, if it was tried.
        not_shared: String,
    },
    Open,
    /// What is queued leaves; what arrives is thrown away. `shut`: all has left and the peer was told.
    Closing {
        why: String,
        shut: bool,
    },
    Down,
}

/// The moments at which something is to be done, with the epoll token of what it is to be done for.
pub(super) type Deadlines = BTreeSet<(Instant, u64)>;

pub(super) struct Conn {
    pub id: ConnId,
    pub state: State,
    /// None once it is down.
    pub socket: Option<Socket>,
    pub intake: Intake,
    pub out: Outgoing,
    pub paused: bool,
    /// The socket broke while the connection is paused: not watched until it goes on, since the kernel would tell it
    /// without end.
    pub muted: bool,
    /// Why sending failed; what the peer sent before is still read.
    pub broken: Option<String>,
    pub deadline: Option<Instant>,
    /// The poll in which it was read from last.
    pub served: u64,
    /// Bytes of ranges that it brought then.
    pub brought: u64,
    /// It is in the list of those to go on with.
    pub listed: bool,
    /// It is in the list of connections that may have [`Event::Writable`](crate::Event::Writable) to report.
    pub listed_writable: bool,
    watched: Option<epoll::EventFlags>,
    /// The peer knows this end's doorbell.
    pub doorbell_told: bool,
    /// Bells of others that the peer knows, by number less one.
    pub passed: Vec<Weak<PeerDoorbell>>,
}

impl Conn {
    pub fn new(state: State, socket: Option<Socket>, config: &TcpConfig) -> Self {
        let mut intake = Intake::new();
        intake.local = socket.as_ref().is_some_and(|socket| socket.local);
        Self {
            id: ConnId(0),
            state,
            socket,
            intake,
            out: Outgoing::new(config),
            paused: false,
            muted: false,
            broken: None,
            deadline: None,
            served: 0,
            brought: 0,
            listed: false,
            listed_writable: false,
            watched: None,
            doorbell_told: false,
            passed: Vec::new(),
        }
    }

    pub fn is_local(&self) -> bool {
        self.socket.as_ref().is_some_and(|socket| socket.local)
    }

    pub fn is_open(&self) -> bool {
        matches!(self.state, State::Open)
    }

    pub fn is_down(&self) -> bool {
        matches!(self.state, State::Down)
    }

    /// What the kernel should tell about this socket now.
    fn interest(&self) -> Option<epoll::EventFlags> {
        use epoll::EventFlags as Flags;
        let waits = self.out.is_blocked() && !self.out.is_starved();
        let writing = if waits { Flags::OUT } else { Flags::empty() };
        match self.state {
            State::Connecting { .. } => Some(Flags::OUT),
            State::Open if self.muted => None,
            State::Open if self.paused => Some(writing),
            State::Open | State::Closing { .. } => Some(Flags::IN | writing),
            State::Down => None,
        }
    }

    /// Makes epoll watch for what matters now; costs a system call only if that changed.
    pub fn watch(&mut self, epoll_fd: impl AsFd) -> io::Result<()> {
        let wanted = self.interest();
        let Some(socket) = &self.socket else { return Ok(()) };
        if wanted == self.watched {
            return Ok(());
        }
        let (socket, data) = (&socket.fd, epoll::EventData::new_u64(self.id.0));
        match (self.watched, wanted) {
            (None, Some(flags)) => epoll::add(epoll_fd, socket, data, flags)?,
            (Some(_), Some(flags)) => epoll::modify(epoll_fd, socket, data, flags)?,
            (_, None) => epoll::delete(epoll_fd, socket)?,
        }
        self.watched = wanted;
        Ok(())
    }

    /// Goes to the next address that can be tried. False if none is left: `why` is then why the last one failed.
    pub fn try_next_address(&mut self, config: &TcpConfig, why: &mut String) -> bool {
        let State::Connecting { rest, not_shared, .. } = &mut self.state else { return false };
        // Closing a socket takes it out of epoll.
        self.socket = None;
        self.watched = None;
        for target in rest {
            let opened = match target {
                Target::Inet(addr) => socket::connect(&addr, config),
                Target::Local(addr) => socket::connect_local(&addr, config),
            };
            match opened {
                Ok(mut socket) => {
                    if !socket.local && !not_shared.is_empty() {
                        socket.why = std::mem::take(not_shared);
                    }
                    self.socket = Some(socket);
                    return true;
                }
                Err(reason) => {
                    if matches!(target, Target::Local(_)) {
                        not_shared.clone_from(&reason);
                    }
                    *why = reason;
                }
            }
        }
        false
    }

    pub fn set_deadline(&mut self, at: Option<Instant>, deadlines: &mut Deadlines) {
        if let Some(old) = self.deadline.take() {
            deadlines.remove(&(old, self.id.0));
        }
        if let Some(at) = at {
            deadlines.insert((at, self.id.0));
            self.deadline = Some(at);
        }
    }

    /// Sends what is queued. True if nothing is left. A failure ends sending only: the peer's last words are still
    /// read, and the end of the stream, which follows, makes the connection go down.
    pub fn flush(&mut self, spares: &mut Spares) -> bool {
        if !matches!(self.state, State::Open | State::Closing { .. }) {
            return self.out.is_empty();
        }
        let Some(socket) = &self.socket else { return true };
        match self.out.flush(socket.fd.as_fd(), spares) {
            Ok(all) => all,
            Err(e) => {
                self.broken = Some(e.to_string());
                self.out.kill();
                false
            }
        }
    }

    /// While closing: tells the peer once everything has left. True if nothing can be sent any more.
    pub fn finish_sending(&mut self, spares: &mut Spares) -> bool {
        if self.flush(spares)
            && let (State::Closing { shut, .. }, Some(socket)) = (&mut self.state, &self.socket)
            && !*shut
        {
            *shut = true;
            // Fails only if the peer is gone already, which the next read tells.
            let _ = rustix::net::shutdown(&socket.fd, Shutdown::Write);
        }
        self.out.is_dead()
    }

    /// The reason to tell for a connection that ended with `seen`.
    pub fn reason(&self, seen: Down) -> Down {
        match (&self.state, &self.broken, seen) {
            (State::Closing { why, .. }, _, _) => Down::Local(why.clone()),
            (_, Some(broken), Down::PeerClosed) => Down::Broken(broken.clone()),
            (_, _, seen) => seen,
        }
    }
}
