//! The commands that a worker executes.

use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Weak};
use std::time::Duration;

use rocketnet::Accepted;

use crate::error::{DownReason, ListenError};
use crate::proto::{CloseCode, Subscribe};
use crate::state::{
    Activated, Buffer, ConnShared, InboundShared, ListenerShared, Phase, RInShared, ROutShared,
};
use crate::types::Nanos;

/// A command of an application thread to a worker.
pub(crate) enum Command {
    Listen {
        listener: Weak<ListenerShared>,
        addr: String,
        reply: SyncSender<Result<String, ListenError>>,
    },
    Unlisten {
        listener: u64,
    },
    Connect {
        conn: Arc<ConnShared>,
        addr: String,
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
    Close {
        conn: u64,
        code: CloseCode,
        why: String,
    },
    Control {
        conn: u64,
        message: Vec<u8>,
        cost: usize,
    },
    Subscribe {
        conn: u64,
        inbound: Arc<InboundShared>,
    },
    Unsubscribe {
        conn: u64,
        inbound: Arc<InboundShared>,
    },
    /// Control messages and events that arrived before their callback was set.
    Backlog(Arc<RInShared>),
    /// The same for an rOut: control messages of connections of this worker.
    OutBacklog(Arc<ROutShared>),
    /// A subscription that was parked until its buffer's log was known.
    Unpark(Parked),
    /// The readers that follow the ring of a subscription have changed.
    PassWatchers(Arc<InboundShared>),
    /// Contexts of deliveries without a subscription.
    DataOut(Arc<Buffer>),
    /// A spliced buffer whose log has already ended.
    Reap(Arc<Buffer>),
    /// A buffer's subscribers have progressed as far as its writer wanted.
    Progress(Arc<Buffer>),
    /// A buffer at rest has become active.
    Activated(Activated),
    /// A deadline at this time.
    LookAt(Nanos),
    Shutdown {
        grace: Duration,
    },
}

impl Command {
    /// Handles a command after the worker has ended: answers the calls that wait. (A listener learns it when
    /// its sender is dropped.)
    pub(crate) fn refuse(self) {
        match self {
            Self::Connect { conn, .. } | Self::Adopt { conn, .. } => {
                let (code, text) = (CloseCode::ShuttingDown, "the context was shut down".into());
                conn.set_phase(Phase::Down(DownReason::Local { code, text }));
            }
            _ => {}
        }
    }
}

/// The end that a connection serves.
#[derive(Clone)]
pub(crate) enum Role {
    In(Arc<RInShared>),
    Out(Arc<ROutShared>),
}

/// A subscription that waits until its buffer's log is known.
pub(crate) struct Parked {
    pub(crate) conn: u64,
    pub(crate) subscribe: Subscribe,
}
