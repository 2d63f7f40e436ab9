//! The state that a listener shares with its worker.

use std::sync::Arc;

use rocketnet::Down;

use crate::ground::callback::{CALLBACK_PANICKED, Callback, Ran};
use crate::ground::event_queue::{EventQueue, NotQueued};
use crate::proto::CloseCode;
use crate::state::{ConnShared, EndsWithContext};

type ConnCallback = dyn FnMut(Arc<ConnShared>) + Send;
type ForeignCallback = dyn FnMut(&ForeignConnection) + Send;

/// A connection that ended before the application could accept it. See
/// [`Listener::set_foreign_conn_cb`](crate::Listener::set_foreign_conn_cb).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ForeignConnection {
    /// The peer's address.
    pub peer: String,
    /// Why the connection ended.
    pub reason: ForeignReason,
    /// The reason as text.
    pub why: String,
}

/// Why a connection ended before it was accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ForeignReason {
    /// The peer's bytes are not this protocol.
    Protocol,
    /// The peer speaks no version that this end speaks.
    Version,
    /// The peer sent nothing within `session.handshake_timeout_ms`.
    Silent,
    /// The peer closed before its first complete message: a probe, or a failed network.
    Left,
    /// TLS could not be agreed on, or the peer's certificate is not accepted.
    Tls,
    /// There was no room: `limits.max_connections`, descriptors, or too many connections that wait to be
    /// accepted.
    Limit,
}

impl ForeignReason {
    /// Every reason.
    pub const ALL: [Self; 6] =
        [Self::Protocol, Self::Version, Self::Silent, Self::Left, Self::Tls, Self::Limit];

    /// Returns one word for logs and metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Protocol => "protocol",
            Self::Version => "version",
            Self::Silent => "silent",
            Self::Left => "left",
            Self::Tls => "tls",
            Self::Limit => "limit",
        }
    }

    pub(crate) fn of_close(code: CloseCode) -> Option<Self> {
        match code {
            CloseCode::Protocol => Some(Self::Protocol),
            CloseCode::Version => Some(Self::Version),
            CloseCode::Timeout => Some(Self::Silent),
            CloseCode::Limit => Some(Self::Limit),
            CloseCode::Normal | CloseCode::NotAccepted | CloseCode::ShuttingDown | CloseCode::TakenOver => {
                None
            }
        }
    }

    pub(crate) fn of_down(down: &Down) -> Option<Self> {
        match down {
            Down::Local(_) => None,
            Down::PeerClosed | Down::Broken(_) => Some(Self::Left),
            Down::Tls(_) => Some(Self::Tls),
            _ => Some(Self::Protocol),
        }
    }
}

pub(crate) struct ListenerShared {
    pub(crate) id: u64,
    pub(crate) callback: Callback<ConnCallback>,
    pub(crate) foreign_callback: Callback<ForeignCallback>,
    pub(crate) waiting: EventQueue<Arc<ConnShared>>,
}

impl EndsWithContext for ListenerShared {
    fn on_end(&self) {
        self.waiting.close();
    }
}

impl ListenerShared {
    /// Creates a listener. `backlog`: the number of connections that may wait to be accepted.
    pub(crate) fn new(id: u64, backlog: usize) -> Self {
        let waiting = EventQueue::new(backlog);
        Self { id, callback: Callback::default(), foreign_callback: Callback::default(), waiting }
    }

    /// Offers a connection whose HELLO was read: calls the callback, or queues the connection for
    /// [`Listener::accept`](crate::Listener::accept). Returns the connection if the queue is full.
    pub(crate) fn offer(&self, conn: Arc<ConnShared>) -> Option<Arc<ConnShared>> {
        let Err(conn) = self.call(conn) else { return None };
        // A callback that was set meanwhile has taken the queued connections, or takes them after this.
        match self.waiting.push_unless(conn, || self.callback.is_set()) {
            Ok(()) => None,
            Err(NotQueued::Refused(conn)) => self.offer(conn),
            Err(NotQueued::Full(conn)) => Some(conn),
        }
    }

    /// Reports a connection that ended before it was offered.
    pub(crate) fn turned_away(&self, peer: &str, reason: ForeignReason, why: &str) {
        let foreign = ForeignConnection { peer: peer.to_owned(), reason, why: why.to_owned() };
        // Either there is no callback, or the callback panicked, which was reported.
        let _ = self.foreign_callback.run(foreign, |callback, foreign| callback(&foreign));
    }

    fn call(&self, conn: Arc<ConnShared>) -> Result<(), Arc<ConnShared>> {
        let shared = conn.clone();
        if self.callback.run(conn, |callback, conn| callback(conn))? == Ran::Panicked {
            shared.close(CloseCode::NotAccepted, CALLBACK_PANICKED);
        }
        Ok(())
    }
}
