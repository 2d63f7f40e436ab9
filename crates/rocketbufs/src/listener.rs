//! Listening for connections (paper 1, Listing 3).

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

use crate::callback::{CALLBACK_PANICKED, Callback, Ran};
use crate::conn::Conn;
use crate::context::Context;
use crate::core::Command;
use crate::error::ListenError;
use crate::event_queue::{EventQueue, NotQueued};
use crate::proto::ByeCode;
use crate::worker::is_worker;
use rocketnet::Down;

type ConnCallback = dyn FnMut(Conn) + Send;
type ForeignCallback = dyn FnMut(&ForeignConnection) + Send;

/// A connection that ended before the application could have it, and why. See [`Listener::set_foreign_conn_cb`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ForeignConnection {
    /// Where it came from.
    pub peer: String,
    /// Why it ended.
    pub reason: ForeignReason,
    /// The same for people.
    pub why: String,
}

/// Why a connection ended before it was taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ForeignReason {
    /// What it sent is not this protocol.
    Protocol,
    /// It speaks no version that this end speaks.
    Version,
    /// It said nothing within `session.handshake_timeout_ms`.
    Silent,
    /// It went before it had said anything whole: a probe, or a network that failed.
    Left,
    /// There was no place for it: `limits.max_connections`, descriptors, or too many that wait to be taken.
    Limit,
}

impl ForeignReason {
    /// Every reason.
    pub const ALL: [Self; 5] = [Self::Protocol, Self::Version, Self::Silent, Self::Left, Self::Limit];

    /// One word, for logs and metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Protocol => "protocol",
            Self::Version => "version",
            Self::Silent => "silent",
            Self::Left => "left",
            Self::Limit => "limit",
        }
    }

    pub(crate) fn of_close(code: ByeCode) -> Option<Self> {
        match code {
            ByeCode::Protocol => Some(Self::Protocol),
            ByeCode::Version => Some(Self::Version),
            ByeCode::Timeout => Some(Self::Silent),
            ByeCode::Limit => Some(Self::Limit),
            ByeCode::Normal | ByeCode::NotAccepted | ByeCode::ShuttingDown | ByeCode::TakenOver => None,
        }
    }

    pub(crate) fn of_down(down: &Down) -> Option<Self> {
        match down {
            Down::Local(_) => None,
            Down::PeerClosed | Down::Broken(_) => Some(Self::Left),
            _ => Some(Self::Protocol),
        }
    }
}

/// Takes connections on an address. The peer's hello is read before the application sees a connection. Dropping it
/// stops listening; connections that were taken go on.
///
/// ```
/// use rocketbufs::{Config, Conn, Context, Listener, RIn, ROut};
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let ctx = Context::new(Config::default())?;
/// let out = ROut::new(&ctx);
/// let listener = Listener::bind(&ctx, "127.0.0.1:0")?;
/// let subscribers = out.clone();
/// listener.set_conn_cb(move |conn| subscribers.add_conn(&conn));
///
/// let conn = Conn::connect(&ctx, &listener.local_addr(), b"subscriber")?;
/// let subscriber = RIn::new(&conn);
/// # drop(subscriber);
/// # Ok(())
/// # }
/// ```
pub struct Listener {
    shared: Arc<ListenerShared>,
    context: Context,
    addr: String,
}

pub(crate) struct ListenerShared {
    pub(crate) id: u64,
    callback: Callback<ConnCallback>,
    strangers: Callback<ForeignCallback>,
    waiting: EventQueue<Conn>,
}

impl ListenerShared {
    /// A connection whose hello was read: calls the callback or queues it for [`Listener::accept`]. Gives it back if
    /// nobody takes connections fast enough.
    pub(crate) fn offer(&self, conn: Conn) -> Option<Conn> {
        let Err(conn) = self.call(conn) else { return None };
        // A callback that was set since has taken the connections that waited, or takes them after this.
        match self.waiting.push_unless(conn, || self.callback.is_set()) {
            Ok(()) => None,
            Err(NotQueued::Refused(conn)) => self.offer(conn),
            Err(NotQueued::Full(conn)) => Some(conn),
        }
    }

    /// A connection ended before it was offered.
    pub(crate) fn turned_away(&self, peer: &str, reason: ForeignReason, why: &str) {
        let stranger = ForeignConnection { peer: peer.to_owned(), reason, why: why.to_owned() };
        // Nobody asked to hear of it, or the callback panicked, which was told.
        let _ = self.strangers.run(stranger, |callback, stranger| callback(&stranger));
    }

    fn call(&self, conn: Conn) -> Result<(), Conn> {
        let shared = conn.shared.clone();
        if self.callback.run(conn, |callback, conn| callback(conn))? == Ran::Panicked {
            let (code, why) = (ByeCode::NotAccepted, CALLBACK_PANICKED.to_owned());
            shared.send(Command::Close { conn: shared.id, code, why });
        }
        Ok(())
    }
}

impl Listener {
    /// Listens on an address such as `127.0.0.1:7411`; port 0 takes a free one.
    ///
    /// # Errors
    /// With the system's reason.
    pub fn bind(context: &Context, addr: &str) -> Result<Self, ListenError> {
        if is_worker() {
            return Err(ListenError::CalledFromWorker);
        }
        let (mut listener, reply) = Self::bind_start(context, addr);
        let refused = |reason: String| ListenError::Refused { addr: addr.to_owned(), reason };
        let local = reply.recv().map_err(|_| refused("the context was shut down".into()))?;
        listener.addr = local.map_err(refused)?;
        Ok(listener)
    }

    /// As [`Listener::bind`], for a context that the caller drives: the answer comes when its worker has taken a turn.
    #[doc(hidden)]
    pub fn bind_start(
        context: &Context,
        addr: &str,
    ) -> (Self, std::sync::mpsc::Receiver<Result<String, String>>) {
        let (id, _) = context.inner().place_conn();
        let shared = Arc::new(ListenerShared {
            id,
            callback: Callback::default(),
            strangers: Callback::default(),
            waiting: EventQueue::new(context.config().tcp.backlog as usize),
        });
        let (reply, answer) = std::sync::mpsc::sync_channel(1);
        let command = Command::Listen { listener: Arc::downgrade(&shared), addr: addr.to_owned(), reply };
        context.inner().workers[0].send(command);
        (Self { shared, context: context.clone(), addr: addr.to_owned() }, answer)
    }

    /// The address in use.
    pub fn local_addr(&self) -> String {
        self.addr.clone()
    }

    /// Calls `callback` for every connection, on a worker thread; for those that wait already, on this one.
    pub fn set_conn_cb(&self, callback: impl FnMut(Conn) + Send + 'static) {
        self.context.inner().set_callback(&self.shared.callback, Box::new(callback));
        while let Some(conn) = self.shared.waiting.recv(Some(Duration::ZERO)) {
            if let Some(conn) = self.shared.offer(conn) {
                // The callback was removed meanwhile, and as many connections wait as may.
                conn.reject("too many connections wait to be accepted");
            }
        }
    }

    /// Removes the callback of [`Listener::set_conn_cb`]: connections wait for [`Listener::accept`] again. What the callback
    /// uses can be freed when this has returned: no call runs then, unless this is called inside the callback.
    pub fn unset_conn_cb(&self) {
        self.context.inner().unset_callback(&self.shared.callback);
    }

    /// Calls `callback` on a worker thread for every connection that ended before it could be offered: what came was not
    /// this protocol, or nothing came, or there was no place. Who floods the address calls it as often.
    pub fn set_foreign_conn_cb(&self, callback: impl FnMut(&ForeignConnection) + Send + 'static) {
        self.context.inner().set_callback(&self.shared.strangers, Box::new(callback));
    }

    /// Removes the callback of [`Listener::set_foreign_conn_cb`], as [`Listener::unset_conn_cb`] does.
    pub fn unset_foreign_conn_cb(&self) {
        self.context.inner().unset_callback(&self.shared.strangers);
    }

    /// The synchronous way: the next connection, waiting at most `timeout` (none: for ever). In a callback, which must
    /// not wait, only what is there.
    pub fn accept(&self, timeout: Option<Duration>) -> Option<Conn> {
        self.shared.waiting.recv(if is_worker() { Some(Duration::ZERO) } else { timeout })
    }

    /// A descriptor that is readable while [`Listener::accept`] would return a connection: for the application's own event
    /// loop, which must only poll it. It lives as long as the listener.
    ///
    /// # Errors
    /// The process has no descriptor left.
    pub fn pollable(&self) -> std::io::Result<BorrowedFd<'_>> {
        self.shared.waiting.pollable()
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.context.inner().workers[0].send(Command::Unlisten { listener: self.shared.id });
    }
}

impl std::fmt::Debug for Listener {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Listener").field("addr", &self.addr).finish()
    }
}
