//! Listening for connections (paper 1, Listing 3).

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use crate::callback::{CALLBACK_PANICKED, Callback, Ran};
use crate::conn::Conn;
use crate::context::{Context, lock};
use crate::core::Command;
use crate::error::ListenError;
use crate::proto::ByeCode;
use crate::worker::is_worker;
use rocketnet::Down;

type ConnCallback = dyn FnMut(Conn) + Send;
type StrangerCallback = dyn FnMut(&Stranger) + Send;

/// A connection that ended before the application could have it, and why. See [`Listener::set_stranger_cb`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stranger {
    /// Where it came from.
    pub peer: String,
    /// Why it ended.
    pub reason: StrangerReason,
    /// The same for people.
    pub why: String,
}

/// Why a connection ended before it was taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum StrangerReason {
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

impl StrangerReason {
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
    strangers: Callback<StrangerCallback>,
    waiting: Mutex<VecDeque<Conn>>,
    arrived: Condvar,
    max_waiting: usize,
}

impl ListenerShared {
    /// A connection whose hello was read: calls the callback or queues it for [`Listener::accept`]. Gives it back if
    /// nobody takes connections fast enough.
    pub(crate) fn offer(&self, conn: Conn) -> Option<Conn> {
        let Err(conn) = self.call(conn) else { return None };
        let mut waiting = lock(&self.waiting);
        if self.callback.is_set() {
            // Set since; whoever set it has taken those that waited, or waits for this lock to take them.
            drop(waiting);
            return self.call(conn).err();
        }
        if waiting.len() >= self.max_waiting {
            return Some(conn);
        }
        waiting.push_back(conn);
        self.arrived.notify_one();
        None
    }

    /// A connection ended before it was offered.
    pub(crate) fn turned_away(&self, peer: &str, reason: StrangerReason, why: &str) {
        let stranger = Stranger { peer: peer.to_owned(), reason, why: why.to_owned() };
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
            waiting: Mutex::default(),
            arrived: Condvar::new(),
            max_waiting: context.config().tcp.backlog.max(1) as usize,
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
        self.context.inner().note_callback();
        self.shared.callback.set(Box::new(callback));
        let waiting = std::mem::take(&mut *lock(&self.shared.waiting));
        for conn in waiting {
            // There is a callback, it was just set.
            let _ = self.shared.call(conn);
        }
    }

    /// Calls `callback` on a worker thread for every connection that ended before it could be offered: what came was not
    /// this protocol, or nothing came, or there was no place. Who floods the address calls it as often.
    pub fn set_stranger_cb(&self, callback: impl FnMut(&Stranger) + Send + 'static) {
        self.context.inner().note_callback();
        self.shared.strangers.set(Box::new(callback));
    }

    /// The synchronous way: the next connection, waiting at most `timeout` (none: for ever). In a callback, which must
    /// not wait, only what is there.
    pub fn accept(&self, timeout: Option<Duration>) -> Option<Conn> {
        let timeout = if is_worker() { Some(Duration::ZERO) } else { timeout };
        let waiting = lock(&self.shared.waiting);
        let empty = |waiting: &mut VecDeque<Conn>| waiting.is_empty();
        let mut waiting = match timeout {
            None => self.shared.arrived.wait_while(waiting, empty).unwrap_or_else(|p| p.into_inner()),
            Some(timeout) => {
                let waited = self.shared.arrived.wait_timeout_while(waiting, timeout, empty);
                waited.unwrap_or_else(|p| p.into_inner()).0
            }
        };
        waiting.pop_front()
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
