//! A connection: its socket, its state and the events that epoll watches for it.
//!
//! ```text
//!  connect ──▶ Connecting ──▶ Open ──▶ Closing ──▶ Down ──▶ (forget)
//!                   │           │  close   ▲ linger, or the peer's end
//!                   └───────────┴──────────┘ failures go to Down at once
//! ```
//!
//! The handshake of TLS, where there is one, belongs to Connecting at the end that connects, and to Open at the other end: what the
//! layer above queues meanwhile leaves behind it.

use std::collections::BTreeSet;
use std::io;
use std::os::fd::AsFd;
use std::sync::Weak;
use std::time::Instant;

use rocketring::PeerDoorbell;
use rustix::event::epoll;
use rustix::net::{SendFlags, Shutdown};

use super::config::TcpConfig;
use super::receive::Intake;
use super::secure::Secure;
use super::send::Outgoing;
use super::socket::{self, Socket, Target};
use super::spares::Spares;
use crate::contract::{ConnId, Down, begins_tls};

/// The answer to a client that begins TLS where there is none: the alert protocol_version (RFC 8446, 6).
const NO_TLS_HERE: [u8; 7] = [21, 3, 3, 0, 2, 2, 70];

pub(super) enum State {
    /// The TCP handshake is under way with one address; `rest` are the next ones to try.
    Connecting {
        addr: String,
        rest: std::vec::IntoIter<Target>,
        /// Why shared memory is not used, if it was tried.
        not_shared: String,
    },
    Open,
    /// The queue is sent; arriving bytes are discarded. `shut`: everything was sent and the socket is shut down.
    Closing {
        why: Down,
        shut: bool,
    },
    Down,
}

/// Deadlines, each with the epoll token of its connection or listener.
pub(super) type Deadlines = BTreeSet<(Instant, u64)>;

pub(super) struct Conn {
    pub id: ConnId,
    pub state: State,
    /// None once the connection is down.
    pub socket: Option<Socket>,
    pub intake: Intake,
    pub out: Outgoing,
    /// TLS, from the beginning of its handshake.
    pub secure: Option<Box<Secure>>,
    /// The handshake counts in `Tcp::handshakes`.
    pub counted: bool,
    pub paused: bool,
    /// The socket broke while the connection is paused. The socket is not watched until the connection is resumed, since
    /// the kernel would report the failure without end.
    pub muted: bool,
    /// Why sending failed. Bytes that the peer sent before are still read.
    pub broken: Option<String>,
    pub deadline: Option<Instant>,
    /// The poll that read from the connection last.
    pub served: u64,
    /// Bytes of ranges that this poll read.
    pub brought: u64,
    /// The connection is in the list `Tcp::again`.
    pub listed: bool,
    /// The connection is in the list `Tcp::writable`.
    pub listed_writable: bool,
    watched: Option<epoll::EventFlags>,
    /// The peer knows this end's doorbell.
    pub doorbell_sent: bool,
    /// Doorbells of other readers that the peer knows, by number less one.
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
            secure: None,
            counted: false,
            paused: false,
            muted: false,
            broken: None,
            deadline: None,
            served: 0,
            brought: 0,
            listed: false,
            listed_writable: false,
            watched: None,
            doorbell_sent: false,
            passed: Vec::new(),
        }
    }

    pub fn is_local(&self) -> bool {
        self.socket.as_ref().is_some_and(|socket| socket.local)
    }

    pub fn is_handshaking(&self) -> bool {
        self.secure.as_ref().is_some_and(|secure| secure.is_handshaking())
    }

    /// Whether a poll has something to report that the kernel does not.
    pub fn has_more(&self) -> bool {
        self.intake.waits() || self.secure.as_ref().is_some_and(|secure| secure.has_ended())
    }

    pub fn is_open(&self) -> bool {
        matches!(self.state, State::Open)
    }

    pub fn is_down(&self) -> bool {
        matches!(self.state, State::Down)
    }

    /// The events to watch for this socket now.
    fn interest(&self) -> Option<epoll::EventFlags> {
        use epoll::EventFlags as Flags;
        let waits = self.out.is_blocked() && !self.out.is_starved();
        let writing = if waits { Flags::OUT } else { Flags::empty() };
        match self.state {
            State::Connecting { .. } | State::Open | State::Closing { .. } if self.is_handshaking() => {
                let writes = self.secure.as_ref().is_some_and(|secure| secure.has_to_write());
                Some(if writes { Flags::IN | Flags::OUT } else { Flags::IN })
            }
            State::Connecting { .. } => Some(Flags::OUT),
            State::Open if self.muted => None,
            State::Open if self.paused => Some(writing),
            State::Open | State::Closing { .. } => Some(Flags::IN | writing),
            State::Down => None,
        }
    }

    /// Makes epoll watch for these events. Costs a system call only if they changed.
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

    /// Ends the socket, which epoll watches no longer.
    pub fn release(&mut self, epoll_fd: impl AsFd) {
        let watched = self.watched.take().is_some();
        if let Some(socket) = self.socket.take()
            && watched
        {
            let _ = epoll::delete(epoll_fd, &socket.fd);
        }
    }

    /// Tries the next address. False if none is left: `why` is then the reason why the last one failed.
    pub fn try_next_address(&mut self, config: &TcpConfig, epoll_fd: impl AsFd, why: &mut String) -> bool {
        self.release(epoll_fd);
        let State::Connecting { rest, not_shared, .. } = &mut self.state else { return false };
        self.secure = None;
        let mut listens = false;
        for target in rest {
            let opened = match target {
                Target::Inet(addr) => socket::connect(&addr, config),
                Target::Local(addr) => socket::connect_local(&addr, config).map_err(|unusable| {
                    // An address has several names. A name without a listener explains less than one with a listener.
                    if !listens {
                        (listens, *not_shared) = (unusable.listens, unusable.why);
                    }
                    not_shared.clone()
                }),
            };
            match opened {
                Ok(mut socket) => {
                    if !socket.local && !not_shared.is_empty() {
                        socket.why = std::mem::take(not_shared);
                    }
                    self.socket = Some(socket);
                    return true;
                }
                Err(reason) => *why = reason,
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

    /// Sends the queue. True if nothing is left. A failure ends sending only: the peer's last bytes are still read, and the
    /// end of the stream, which follows, ends the connection.
    pub fn flush(&mut self, spares: &mut Spares) -> bool {
        if !matches!(self.state, State::Open | State::Closing { .. }) {
            return self.out.is_empty();
        }
        let Some(socket) = &self.socket else { return true };
        let sent = match &mut self.secure {
            None => self.out.flush(socket.fd.as_fd(), spares),
            Some(secure) if secure.is_handshaking() => return self.out.is_empty(),
            Some(secure) => secure.flush(&mut self.out, socket.fd.as_fd(), spares),
        };
        match sent {
            Ok(all) => all,
            Err(e) => {
                self.broken = Some(e.to_string());
                self.out.kill();
                false
            }
        }
    }

    /// While closing: shuts the socket down once everything was sent. True if nothing can be sent any more.
    pub fn finish_sending(&mut self, spares: &mut Spares) -> bool {
        if !self.is_handshaking()
            && self.flush(spares)
            && self.end_records()
            && let (State::Closing { shut, .. }, Some(socket)) = (&mut self.state, &self.socket)
            && !*shut
        {
            *shut = true;
            // Fails only if the peer is gone already, which the next read reports.
            let _ = rustix::net::shutdown(&socket.fd, Shutdown::Write);
        }
        self.out.is_dead()
    }

    /// Tells the peer's TLS that nothing more follows. True once that was sent.
    fn end_records(&mut self) -> bool {
        let (Some(secure), Some(socket)) = (&mut self.secure, &self.socket) else { return true };
        // A failure means that the peer is gone, which the next read reports.
        secure.close(&mut self.out, socket.fd.as_fd()).unwrap_or(true)
    }

    /// Tells a client that began TLS on a connection without it. The client may ignore the alert.
    pub fn answer_foreign(&self, reason: &Down) {
        if let (Down::UnknownWire(wire), None, Some(socket)) = (reason, &self.secure, &self.socket)
            && begins_tls(*wire)
            && !socket.local
        {
            // The connection ends in any case.
            let _ = rustix::net::send(&socket.fd, &NO_TLS_HERE, SendFlags::NOSIGNAL | SendFlags::DONTWAIT);
        }
    }

    /// The reason to report for a connection that ended with `seen`.
    pub fn reason(&self, seen: Down) -> Down {
        match (&self.state, &self.broken, seen) {
            (State::Closing { why, .. }, _, _) => why.clone(),
            (_, Some(broken), Down::PeerClosed) => Down::Broken(broken.clone()),
            (_, _, seen) => seen,
        }
    }
}
