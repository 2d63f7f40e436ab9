//! The commands of the application's handles to a worker.

use std::net::SocketAddr;
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Weak};

use rocketnet::Accepted;
use rocketring::Mailbox;

use crate::proto::CloseCode;
use crate::state::error::{DownReason, ListenError};
use crate::state::{
    Buffer, ConnShared, ListenerShared, Phase, RInShared, ROutShared, Request, SubscriptionShared,
    WorkerShared,
};

/// A worker with its mailbox, as the worker's own thread and the application's handles see it.
pub(crate) type Worker = WorkerShared<Mailbox<Command>>;

/// A command to a worker.
pub(crate) enum Command {
    Listen {
        listener: Weak<ListenerShared>,
        addr: String,
        /// For peers of this machine alone.
        locally: bool,
        reply: SyncSender<Result<String, ListenError>>,
    },
    Unlisten {
        listener: u64,
    },
    Connect {
        conn: Arc<ConnShared>,
        addr: String,
        /// Its addresses, if they were looked up.
        found: Option<Vec<SocketAddr>>,
        hello: Vec<u8>,
    },
    Adopt {
        conn: Arc<ConnShared>,
        accepted: Accepted,
        listener: Weak<ListenerShared>,
    },
    Attach {
        conn: u64,
        role: Role,
    },
    Subscribe {
        conn: u64,
        subscription: Arc<SubscriptionShared>,
    },
    Unsubscribe {
        conn: u64,
        subscription: Arc<SubscriptionShared>,
    },
    /// Release memory of this buffer while it rests.
    Trim(Weak<Buffer>),
    /// Ask the application again about all subscriptions to buffers of this rOut.
    Review(Arc<ROutShared>),
    Request(Request),
}

impl From<Request> for Command {
    fn from(request: Request) -> Self {
        Self::Request(request)
    }
}

impl Command {
    /// Handles a command after the worker has ended, or while it ends: answers the calls that wait. (A listener learns it when
    /// its sender is dropped.)
    pub(crate) fn refuse(self) {
        if let Self::Connect { conn, .. } | Self::Adopt { conn, .. } = self {
            let (code, text) = (CloseCode::ShuttingDown, "the context was shut down".into());
            conn.set_phase(Phase::Down(DownReason::Local { code, text }));
        }
    }
}

impl Worker {
    /// Queues a command. The worker executes commands in order. After the worker has ended the command is
    /// refused: otherwise its contents would never be dropped, and a call that waits for its answer would
    /// wait forever.
    pub(crate) fn send(&self, command: Command) {
        match self.mailbox.push(command) {
            Ok(()) => self.token.wake(),
            Err(command) => command.refuse(),
        }
    }

    /// Closes a worker that has ended. Its remaining commands are dropped outside the lock, since dropping
    /// may send again.
    pub(crate) fn close(&self) {
        self.mailbox.close().into_iter().for_each(Command::refuse);
    }
}

/// The end that a connection serves.
#[derive(Clone)]
pub(crate) enum Role {
    In(Arc<RInShared>),
    Out(Arc<ROutShared>),
}
