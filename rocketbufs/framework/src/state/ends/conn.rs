//! The state that the handles of a connection share with its worker.

use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};

use rocketnet::{Carrier, PeerIdentity};

use crate::ground::event_queue::EventQueue;
use crate::ground::lock::lock;
use crate::proto::{CloseCode, Hello};
use crate::state::error::{ControlError, DownReason};
use crate::state::events::ConnEvent;
use crate::state::{ContextInner, Request};

/// The most queued events of one connection.
const CONN_EVENTS: usize = 2;

/// The state that a connection's handles share with its worker.
pub(crate) struct ConnShared {
    pub(crate) id: u64,
    pub(crate) inner: Arc<ContextInner>,
    pub(crate) state: Mutex<ConnState>,
    pub(crate) changed: Condvar,
    pub(crate) events: EventQueue<ConnEvent>,
    pub(crate) queued_control: AtomicUsize,
    /// The largest control message that both ends accept.
    max_control: AtomicU32,
}

pub(crate) struct ConnState {
    pub(crate) phase: Phase,
    pub(crate) peer_hello: Vec<u8>,
    pub(crate) peer_addr: String,
    pub(crate) peer_instance: u128,
    /// The features that the other end has.
    pub(crate) peer_capabilities: u32,
    pub(crate) carrier: Option<Carrier>,
    pub(crate) identity: PeerIdentity,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Phase {
    Connecting,
    /// HELLO was read; the application has not accepted the connection yet.
    Offered,
    Up,
    Down(DownReason),
}

impl ConnShared {
    pub(crate) fn new(inner: &Arc<ContextInner>, id: u64, peer_addr: String) -> Arc<Self> {
        let state = ConnState {
            phase: Phase::Connecting,
            peer_hello: Vec::new(),
            peer_addr,
            peer_instance: 0,
            peer_capabilities: 0,
            carrier: None,
            identity: PeerIdentity::default(),
        };
        Arc::new(Self {
            id,
            inner: inner.clone(),
            state: Mutex::new(state),
            changed: Condvar::new(),
            events: EventQueue::new(CONN_EVENTS),
            queued_control: AtomicUsize::new(0),
            max_control: AtomicU32::new(inner.config.limits.max_control_bytes),
        })
    }

    /// Makes a request to the connection's worker.
    pub(crate) fn request(&self, request: Request) {
        self.inner.worker(self.id).request(request);
    }

    /// Asks the worker to close the connection with BYE.
    pub(crate) fn close(&self, code: CloseCode, why: &str) {
        self.request(Request::Close { conn: self.id, code, why: why.to_owned() });
    }

    pub(crate) fn phase(&self) -> Phase {
        lock(&self.state).phase.clone()
    }

    pub(crate) fn down_reason(&self) -> Option<DownReason> {
        match &lock(&self.state).phase {
            Phase::Down(reason) => Some(reason.clone()),
            _ => None,
        }
    }

    pub(crate) fn peer_addr(&self) -> String {
        lock(&self.state).peer_addr.clone()
    }

    /// Records the peer's first message.
    pub(crate) fn greeted(&self, hello: Hello, phase: Phase, carrier: Carrier, identity: PeerIdentity) {
        self.max_control.fetch_min(hello.max_control_bytes, Ordering::AcqRel);
        let mut state = lock(&self.state);
        state.peer_hello = hello.hello;
        state.peer_instance = hello.instance;
        state.peer_capabilities = hello.capabilities;
        state.carrier = Some(carrier);
        state.identity = identity;
        self.enter(&mut state, phase);
        drop(state);
        self.changed.notify_all();
    }

    /// Returns the features that the other end has, once its first message was read.
    pub(crate) fn peer_capabilities(&self) -> u32 {
        lock(&self.state).peer_capabilities
    }

    pub(crate) fn set_phase(&self, phase: Phase) {
        let mut state = lock(&self.state);
        if !matches!(state.phase, Phase::Down(_)) {
            self.enter(&mut state, phase);
        }
        drop(state);
        self.changed.notify_all();
    }

    fn enter(&self, state: &mut ConnState, phase: Phase) {
        match &phase {
            Phase::Up if state.phase != Phase::Up => {
                self.events.push_newest(ConnEvent::Up);
            }
            Phase::Down(reason) => {
                self.events.push_newest(ConnEvent::Down { reason: reason.clone() });
                self.events.end();
            }
            _ => {}
        }
        state.phase = phase;
    }

    pub(crate) fn control_left(&self, bytes: usize) {
        self.queued_control.fetch_sub(bytes, Ordering::AcqRel);
    }

    /// Returns the largest application control message that both ends accept, less the octet of its type.
    pub(crate) fn max_control_bytes(&self) -> usize {
        (self.max_control.load(Ordering::Acquire) as usize).saturating_sub(1)
    }

    /// Queues an application's control message for the worker, within limits.
    pub(crate) fn send_control(self: &Arc<Self>, message: &[u8]) -> Result<(), ControlError> {
        let max = self.max_control_bytes();
        if message.len() > max {
            return Err(ControlError::TooLarge { size: message.len(), max });
        }
        if matches!(self.phase(), Phase::Down(_)) {
            return Err(ControlError::Down);
        }
        // Sixteen of the largest may wait. Each counts a little more than its bytes, which bounds empty ones.
        let cost = message.len() + 64;
        let queued = self.queued_control.fetch_add(cost, Ordering::AcqRel);
        if queued + cost > 16 * (max + 64) {
            self.control_left(cost);
            return Err(ControlError::Full { queued });
        }
        self.request(Request::Control { conn: self.id, message: message.to_vec(), cost });
        Ok(())
    }
}
