//! What a worker is asked to do.

use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Weak};
use std::time::Duration;

use rocketnet::Accepted;

use super::{Buffer, ConnShared, InboundShared, ListenerShared, Phase, RInShared, ROutShared, Roused};
use crate::error::{DownReason, ListenError};
use crate::proto::{CloseCode, Subscribe};
use crate::types::Nanos;

/// What an application's thread leaves with a worker.
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
    /// Control messages and events that came before there was a callback for them.
    Backlog(Arc<RInShared>),
    /// The same for an rOut: control messages that came over connections of this worker.
    OutBacklog(Arc<ROutShared>),
    /// A subscription that waited until its buffer's log was known.
    Unpark(Parked),
    /// Others follow the ring of a subscription, or no longer do.
    PassWatchers(Arc<InboundShared>),
    /// Contexts of deliveries that nobody is there to receive.
    DataOut(Arc<Buffer>),
    /// A spliced buffer whose log had ended before.
    Reap(Arc<Buffer>),
    /// A buffer's subscribers have moved on as far as its writer wanted.
    Progress(Arc<Buffer>),
    /// A buffer that rested does not rest any more.
    Roused(Roused),
    /// Something ends at this time.
    LookAt(Nanos),
    Shutdown {
        grace: Duration,
    },
}

impl Command {
    /// The worker has ended: tells whoever waits for an answer (a listener hears it as its sender goes).
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

/// What a connection is for.
#[derive(Clone)]
pub(crate) enum Role {
    In(Arc<RInShared>),
    Out(Arc<ROutShared>),
}

/// A subscription that waits for its buffer's log.
pub(crate) struct Parked {
    pub(crate) conn: u64,
    pub(crate) subscribe: Subscribe,
}
