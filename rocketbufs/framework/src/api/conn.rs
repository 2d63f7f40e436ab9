//! Connections, before and after they are given to an rIn or the rOut.

use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use rocketnet::{Carrier, PeerIdentity, TransportError};

use crate::api::context::Context;
use crate::ground::lock::lock;
use crate::ground::types::NO_LIMIT;
use crate::proto::{CloseCode, MAX_HELLO_BYTES};
use crate::state::error::{ConnError, ControlError, DownReason, RecvError};
use crate::state::events::ConnEvent;
use crate::state::{Command, ConnShared, ConnState, Phase, RateLimits, Request, Role, is_worker, may_wait};

/// A connection to a peer. Cloning gives another handle of the same one.
///
/// The end that connects gives its hello (role, name, credentials: the application's own bytes); the end that listens
/// reads it with [`Conn::peer_hello`] and gives the connection to an [`RIn`](crate::RIn), which receives, or an
/// [`ROut`](crate::ROut), which sends. Until then nothing is read from it.
///
/// The framework reports that a connection is down and why; it never reconnects unasked (paper 1, section 3.7).
#[derive(Clone)]
pub struct Conn {
    pub(crate) shared: Arc<ConnShared>,
    pub(crate) context: Context,
}

impl Conn {
    /// Connects and waits until the other end has accepted, at most `session.connect_timeout_ms`.
    ///
    /// # Errors
    /// [`ConnError`]: refused, not accepted (with the peer's reason), or not in time.
    pub fn connect(context: &Context, addr: &str, hello: &[u8]) -> Result<Self, ConnError> {
        if is_worker() {
            return Err(ConnError::CalledFromWorker);
        }
        let conn = Self::look_up_and_start(context, addr, hello)?;
        let timeout = u64::from(context.config().session.connect_timeout_ms);
        conn.wait_up(Some(Duration::from_millis(timeout)))
            .inspect_err(|_| conn.close("gave up connecting"))?;
        Ok(conn)
    }

    /// Begins to connect and returns at once. The connection can be given to an rIn or rOut while it is not up yet. A worker asks the system's
    /// resolver for a host name, and its other connections wait for that: with names, use [`Conn::connect`] in a thread that may wait.
    ///
    /// # Errors
    /// If the hello is too long. [`Conn::wait_up`] and [`Conn::down_reason`] tell of later failures.
    pub fn connect_start(context: &Context, addr: &str, hello: &[u8]) -> Result<Self, ConnError> {
        Self::start(context, addr, None, hello)
    }

    /// As [`Conn::connect_start`], for a thread that may wait: it asks the resolver itself, and waits at most
    /// `session.connect_timeout_ms` for its answer.
    #[doc(hidden)]
    pub fn look_up_and_start(context: &Context, addr: &str, hello: &[u8]) -> Result<Self, ConnError> {
        let timeout = Duration::from_millis(context.config().session.connect_timeout_ms.into());
        let found = peers::resolve_within(addr, timeout).map_err(|error| {
            let error = TransportError::Address { addr: addr.into(), reason: error.to_string() };
            ConnError::Down(DownReason::NotStarted(error.to_string()))
        })?;
        Self::start(context, addr, Some(found), hello)
    }

    fn start(
        context: &Context,
        addr: &str,
        found: Option<Vec<SocketAddr>>,
        hello: &[u8],
    ) -> Result<Self, ConnError> {
        if hello.len() > MAX_HELLO_BYTES {
            return Err(ConnError::HelloTooLong { size: hello.len(), max: MAX_HELLO_BYTES });
        }
        let id = context.inner().new_conn();
        let shared = ConnShared::new(context.inner(), id, addr.to_owned());
        let (conn, addr, hello) = (shared.clone(), addr.to_owned(), hello.to_vec());
        context.shared().send(id, Command::Connect { conn, addr, found, hello });
        Ok(Self { shared, context: context.clone() })
    }

    /// Waits until the connection is up, at most `timeout` (`None`: no limit).
    ///
    /// # Errors
    /// Down, or not in time.
    pub fn wait_up(&self, timeout: Option<Duration>) -> Result<(), ConnError> {
        if is_worker() {
            return Err(ConnError::CalledFromWorker);
        }
        let timeout = timeout.unwrap_or(NO_LIMIT);
        let state = lock(&self.shared.state);
        let waiting = |state: &mut ConnState| matches!(state.phase, Phase::Connecting | Phase::Offered);
        let waited = self.shared.changed.wait_timeout_while(state, timeout, waiting);
        let (state, _) = waited.unwrap_or_else(|poisoned| poisoned.into_inner());
        match &state.phase {
            Phase::Up => Ok(()),
            Phase::Down(why) => Err(ConnError::Down(why.clone())),
            Phase::Connecting | Phase::Offered => Err(ConnError::TimedOut {
                addr: state.peer_addr.clone(),
                waited_ms: timeout.as_millis() as u64,
            }),
        }
    }

    /// Waits until the connection is down, at most `timeout` (`None`: no limit; zero: only looks). Returns the reason, or none if
    /// the connection is not down by then. [`Conn::down_reason`] looks without waiting.
    ///
    /// # Errors
    /// From a callback, which must not wait, with a time-out other than zero.
    pub fn wait_down(&self, timeout: Option<Duration>) -> Result<Option<DownReason>, RecvError> {
        may_wait(timeout)?;
        let deadline = Instant::now() + timeout.unwrap_or(NO_LIMIT).min(NO_LIMIT);
        let mut state = lock(&self.shared.state);
        loop {
            if let Phase::Down(why) = &state.phase {
                return Ok(Some(why.clone()));
            }
            let Some(left) = deadline.checked_duration_since(Instant::now()) else { return Ok(None) };
            let waited = self.shared.changed.wait_timeout(state, left);
            state = waited.unwrap_or_else(|poisoned| poisoned.into_inner()).0;
        }
    }

    /// The connection's next event, waiting at most `timeout` (`None`: no limit; zero: only looks); none if nothing happened in
    /// time. Each event is given once, to one of the connection's handles. After [`ConnEvent::Down`] there is none, without a wait.
    ///
    /// # Errors
    /// From a callback, which must not wait, with a time-out other than zero.
    pub fn recv_event(&self, timeout: Option<Duration>) -> Result<Option<ConnEvent>, RecvError> {
        may_wait(timeout)?;
        Ok(self.shared.events.recv(timeout))
    }

    /// A descriptor that is readable while [`Conn::recv_event`] would return an event: for the application's own event
    /// loop, which must only poll it. The descriptor lives as long as the connection's last handle.
    ///
    /// ```
    /// use rocketbufs::{Config, Conn, ConnEvent, Context, Listener};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let ctx = Context::new(Config::default())?;
    /// # let listener = Listener::bind(&ctx, "127.0.0.1:0")?;
    /// # let out = rocketbufs::ROut::new(&ctx);
    /// # let addr = listener.local_addr();
    /// # listener.set_conn_cb(move |conn| out.add_conn(&conn));
    /// let conn = Conn::connect_start(&ctx, &addr, b"hello")?;
    /// let descriptor = conn.pollable()?; // Readable when the connection is up, or could not be made.
    /// # let _ = descriptor;
    /// assert_eq!(conn.recv_event(None)?, Some(ConnEvent::Up));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// The process has no descriptor left.
    pub fn pollable(&self) -> std::io::Result<BorrowedFd<'_>> {
        self.shared.events.pollable()
    }

    /// Whether both ends have accepted it and it is not down.
    pub fn is_up(&self) -> bool {
        self.shared.phase() == Phase::Up
    }

    /// Why it is down; none while it is not.
    pub fn down_reason(&self) -> Option<DownReason> {
        self.shared.down_reason()
    }

    /// Names this connection in this process.
    pub fn id(&self) -> u64 {
        self.shared.id
    }

    /// The other end's hello: empty until it was read.
    pub fn peer_hello(&self) -> Vec<u8> {
        lock(&self.shared.state).peer_hello.clone()
    }

    /// Takes the other end's hello out of the connection: [`Conn::peer_hello`] is empty afterwards. For hellos with credentials,
    /// which the application can overwrite once it has checked them.
    pub fn take_peer_hello(&self) -> Vec<u8> {
        std::mem::take(&mut lock(&self.shared.state).peer_hello)
    }

    /// The other end's address, as text.
    pub fn peer_addr(&self) -> String {
        self.shared.peer_addr()
    }

    /// The transport that carries the connection, and why it was chosen; none until the other end's hello was read.
    pub fn carrier(&self) -> Option<Carrier> {
        lock(&self.shared.state).carrier.clone()
    }

    /// The facts that the transport has verified about the other end: its certificate (TLS), or its process (shared memory). Known before a
    /// listener's callback gets the connection; nothing is known until the other end's hello was read.
    pub fn peer_identity(&self) -> PeerIdentity {
        lock(&self.shared.state).identity.clone()
    }

    /// The random name of the other end's process; the same when it connects again.
    pub fn peer_instance(&self) -> u128 {
        lock(&self.shared.state).peer_instance
    }

    /// Whether the other end follows a buffer whose ring grows ([`OutWriter::grow`](crate::OutWriter::grow)). False until its hello
    /// was read.
    pub fn peer_grows(&self) -> bool {
        self.shared.peer_capabilities() & crate::proto::GROWS != 0
    }

    /// The largest of the application's control messages that both ends take (`limits.max_control_bytes`). The limit may be
    /// smaller once the other end's hello was read.
    pub fn max_control_bytes(&self) -> usize {
        self.shared.max_control_bytes()
    }

    /// How much of the application's control messages waits to be sent: their bytes, and a little more for each.
    pub fn control_waiting(&self) -> usize {
        self.shared.queued_control.load(Ordering::Acquire)
    }

    /// Sends one of the application's own control messages, in order with the data. Returns at once.
    ///
    /// # Errors
    /// Too large, too many waiting, or down.
    pub fn send_control(&self, message: &[u8]) -> Result<(), ControlError> {
        self.shared.send_control(message)
    }

    /// Closes in order: queued bytes leave first (at most `session.close_linger_ms`), the peer is told why.
    pub fn close(&self, why: &str) {
        self.shared.close(CloseCode::Normal, why);
    }

    /// Refuses a connection that was offered; the peer's attempt to connect fails with the reason.
    pub fn reject(&self, why: &str) {
        self.shared.close(CloseCode::NotAccepted, why);
    }

    /// Limits the bytes per second of this connection's payload in place of earlier limits; connections that are given the same
    /// [`RateLimit`](crate::RateLimit) share it. Everything is delayed and nothing dropped: a peer that writes more waits for
    /// credit, and bytes for a peer's subscriptions wait here, where their policies apply to the lag. Control messages
    /// are not delayed.
    ///
    /// Rings of a connection with limits are not shared with its peer ([`SubscribeOptions::own_memory`](crate::SubscribeOptions)
    /// in both directions), because bytes that the peer reads or writes in place pass no worker. Limits that come later do not
    /// reach rings that the peer maps already.
    ///
    /// Without limits a connection costs nothing more. With them, each transfer costs some tens of nanoseconds, and no message does.
    pub fn set_rate_limits(&self, limits: RateLimits) {
        self.shared.request(Request::SetRateLimits { conn: self.shared.id, limits });
    }

    pub(crate) fn attach(&self, role: Role) {
        let conn = self.shared.id;
        self.context.shared().send(conn, Command::Attach { conn, role });
    }
}

impl std::fmt::Debug for Conn {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Conn").field("id", &self.shared.id).field("peer", &self.peer_addr()).finish()
    }
}
