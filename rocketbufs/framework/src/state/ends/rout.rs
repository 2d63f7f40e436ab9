//! The state that the handles of an rOut share with the workers.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, RwLock};
use std::time::Duration;

use crate::ground::callback::{CALLBACK_PANICKED, Callback, Ran};
use crate::ground::event_queue::EventQueue;
use crate::ground::limits::{Admitted, Asking, PolicySet};
use crate::ground::lock::lock;
use crate::ground::types::{Bid, Position};
use crate::proto::{CloseCode, Coverage};
use crate::state::error::{BufferError, DownReason};
use crate::state::events::OutEvent;
use crate::state::{
    Buffer, BufferOwner, ConnShared, ContextInner, DurableSlots, Request, SubscriberProgress, Traffic,
};

type DataOutCallback = dyn FnMut(Bid, u64) + Send;
type ControlCallback = dyn FnMut(&Arc<ConnShared>, &[u8]) + Send;
type EventCallback = dyn FnMut(OutEvent) + Send;
type ProgressCallback = dyn FnMut(SubscriberProgress) + Send;

/// The application's decision about a subscription; none refuses it.
pub(crate) type Admission = dyn FnMut(&Asking<'_>) -> Option<Admitted> + Send;

pub(crate) struct ROutShared {
    pub(crate) inner: Arc<ContextInner>,
    pub(crate) buffers: RwLock<HashMap<Bid, Arc<Buffer>>>,
    pub(crate) conns: Mutex<HashSet<u64>>,
    pub(crate) durable_slots: DurableSlots,
    /// The received, delivered and dropped bytes of destroyed buffers.
    pub(crate) past: Mutex<Traffic>,
    pub(crate) data_out_cb: Callback<DataOutCallback>,
    pub(crate) control_cb: Callback<ControlCallback>,
    pub(crate) event_cb: Callback<EventCallback>,
    pub(crate) progress_cb: Callback<ProgressCallback>,
    /// None: everything is allowed.
    pub(crate) admission: Callback<Admission>,
    /// Events without a callback.
    pub(crate) events: EventQueue<OutEvent>,
    /// The number of events that made room for newer ones.
    missed: AtomicU64,
    /// The application reads the queue, so events that no callback takes go there too.
    reads_events: AtomicBool,
    control_backlog: Mutex<ControlBacklog>,
}

/// A control message and its connection.
type ControlMessage = (Arc<ConnShared>, Vec<u8>);

/// Control messages that arrived before the application takes them.
#[derive(Default)]
struct ControlBacklog {
    /// One queue for each worker, which keeps the order of each connection's messages.
    queues: Vec<VecDeque<ControlMessage>>,
    /// The sum of the messages' costs in the limit.
    cost: usize,
}

/// The cost of a waiting control message besides its bytes.
const MESSAGE_COST: usize = 64;

/// The most events that wait for [`ROut::recv_event`](crate::ROut::recv_event).
const MAX_EVENTS: usize = 4096;

impl ROutShared {
    pub(crate) fn new(inner: &Arc<ContextInner>) -> Self {
        Self {
            inner: inner.clone(),
            buffers: RwLock::default(),
            conns: Mutex::default(),
            durable_slots: DurableSlots::new(inner.config.limits.max_held_subscriptions),
            past: Mutex::default(),
            data_out_cb: Callback::default(),
            control_cb: Callback::default(),
            event_cb: Callback::default(),
            progress_cb: Callback::default(),
            admission: Callback::default(),
            events: EventQueue::new(MAX_EVENTS),
            missed: AtomicU64::new(0),
            reads_events: AtomicBool::new(false),
            control_backlog: Mutex::default(),
        }
    }

    /// The options that the application allows for a subscription; none if it refuses the subscription.
    pub(crate) fn admitted(&self, asking: &Asking<'_>) -> Option<Admitted> {
        let mut admitted = None;
        match self.admission.run(asking, |decide, asking| admitted = decide(asking)) {
            Ok(Ran::Returned) => admitted,
            Ok(Ran::Panicked) => {
                self.end_panicked(asking.conn);
                None
            }
            Err(_) => Some(PolicySet::ALL.into()),
        }
    }

    /// Closes the connection for which a callback panicked.
    fn end_panicked(&self, conn: u64) {
        let (code, why) = (CloseCode::Normal, CALLBACK_PANICKED.to_owned());
        self.inner.worker(conn).request(Request::Close { conn, code, why });
    }

    /// All workers have ended: no buffer takes anything any more, and no call waits.
    pub(crate) fn end(&self) {
        for buffer in self.all_buffers() {
            match buffer.source {
                Some(_) => buffer.on_progress(),
                None => _ = buffer.close(),
            }
        }
        self.events.close();
    }

    pub(crate) fn buffer(&self, bid: Bid) -> Option<Arc<Buffer>> {
        self.buffers.read().unwrap_or_else(|p| p.into_inner()).get(&bid).cloned()
    }

    pub(crate) fn insert(&self, buffer: Arc<Buffer>) -> Result<(), BufferError> {
        let mut buffers = self.buffers.write().unwrap_or_else(|p| p.into_inner());
        let bid = buffer.bid;
        if buffers.contains_key(&bid) {
            return Err(BufferError::Exists(bid));
        }
        buffers.insert(bid, buffer);
        Ok(())
    }

    /// Gives an event to the callback. Returns it if there is none.
    fn call(&self, event: OutEvent) -> Result<(), OutEvent> {
        let conn = event.conn();
        let ran = self.event_cb.run(event, |callback, event| callback(event))?;
        if let (Ran::Panicked, Some(conn)) = (ran, conn) {
            self.end_panicked(conn);
        }
        Ok(())
    }

    /// Queues an event for [`ROut::recv_event`](crate::ROut::recv_event). When the queue is full the oldest
    /// goes, since the newest say most about the present state.
    pub(crate) fn queue_event(&self, event: OutEvent) {
        if self.events.push_newest(event) {
            self.missed.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Returns whether the application reads the queue of events.
    pub(crate) fn reads_events(&self) -> bool {
        self.reads_events.load(Ordering::Relaxed)
    }

    pub(crate) fn take_event(&self, timeout: Option<Duration>) -> Option<OutEvent> {
        if self.missed.load(Ordering::Relaxed) > 0 {
            let events = self.missed.swap(0, Ordering::Relaxed);
            return Some(OutEvent::Missed { events });
        }
        self.events.recv(timeout)
    }

    /// Gives the event callback the events from before it was set, in order.
    pub(crate) fn run_event_backlog(&self) {
        while self.event_cb.is_set() {
            let Some(event) = self.take_event(Some(Duration::ZERO)) else { return };
            if let Err(event) = self.call(event) {
                return self.queue_event(event);
            }
        }
    }

    /// Handles a control message: for the callback, for [`ROut::recv_event`](crate::ROut::recv_event), or for
    /// whichever of both the application uses first. Called on the connection's worker.
    pub(crate) fn on_control(&self, conn: &Arc<ConnShared>, message: &[u8]) {
        self.run_control_backlog(self.inner.worker_of(conn.id));
        if !self.call_control(conn, message) {
            self.keep_control(conn, message, VecDeque::push_back);
        }
    }

    /// Gives a control message to the callback. Returns false if there is none.
    fn call_control(&self, conn: &Arc<ConnShared>, message: &[u8]) -> bool {
        let ran = self.control_cb.run(message, |callback, message| callback(conn, message));
        if let Ok(Ran::Panicked) = ran {
            conn.close(CloseCode::Normal, CALLBACK_PANICKED);
        }
        ran.is_ok()
    }

    /// Keeps a control message that no callback takes. Beyond the limit it is dropped, since the application
    /// may never read it.
    fn keep_control(
        &self,
        conn: &Arc<ConnShared>,
        message: &[u8],
        push: fn(&mut VecDeque<ControlMessage>, ControlMessage),
    ) {
        let mut backlog = lock(&self.control_backlog);
        if self.reads_events() {
            // Under the lock, so that the message follows those that `read_events` moves.
            return self.queue_event(OutEvent::Control { conn: conn.id, message: message.to_vec() });
        }
        let cost = backlog.cost + message.len() + MESSAGE_COST;
        if cost <= 64 * (self.inner.config.limits.max_control_bytes as usize + MESSAGE_COST) {
            backlog.cost = cost;
            backlog.queues.resize_with(self.inner.workers.len(), VecDeque::new);
            push(&mut backlog.queues[self.inner.worker_of(conn.id)], (conn.clone(), message.to_vec()));
        }
    }

    fn take_control(&self, worker: usize) -> Option<ControlMessage> {
        let mut backlog = lock(&self.control_backlog);
        let taken = backlog.queues.get_mut(worker)?.pop_front()?;
        backlog.cost -= taken.1.len() + MESSAGE_COST;
        Some(taken)
    }

    /// Gives the callback the control messages from before it was set. Called on the worker of their
    /// connections, which keeps their order.
    pub(crate) fn run_control_backlog(&self, worker: usize) {
        while self.control_cb.is_set() {
            let Some((conn, message)) = self.take_control(worker) else { return };
            if !self.call_control(&conn, &message) {
                return self.keep_control(&conn, &message, VecDeque::push_front);
            }
        }
    }

    /// Routes events to the queue from now on, including waiting control messages.
    pub(crate) fn read_events(&self) {
        if self.reads_events() {
            return;
        }
        let mut backlog = lock(&self.control_backlog);
        self.reads_events.store(true, Ordering::Relaxed);
        if self.control_cb.is_set() {
            return;
        }
        for (conn, message) in std::mem::take(&mut *backlog).queues.into_iter().flatten() {
            self.queue_event(OutEvent::Control { conn: conn.id, message });
        }
    }

    pub(crate) fn conn_down(&self, conn: u64, reason: DownReason) {
        lock(&self.conns).remove(&conn);
        self.report(OutEvent::ConnDown { conn, reason });
    }

    pub(crate) fn remove(&self, buffer: &Arc<Buffer>) {
        let mut buffers = self.buffers.write().unwrap_or_else(|p| p.into_inner());
        if buffers.get(&buffer.bid).is_some_and(|known| Arc::ptr_eq(known, buffer)) {
            buffers.remove(&buffer.bid);
            lock(&self.past).add(buffer.traffic());
        }
        drop(buffers);
        self.durable_slots.expired(buffer.drop_all_held());
    }

    pub(crate) fn all_buffers(&self) -> Vec<Arc<Buffer>> {
        self.buffers.read().unwrap_or_else(|p| p.into_inner()).values().cloned().collect()
    }
}

impl BufferOwner for ROutShared {
    fn report(&self, event: OutEvent) {
        self.run_event_backlog();
        if let Err(event) = self.call(event) {
            self.queue_event(event);
        }
    }

    fn report_subscriber_progress(
        &self,
        buffer: &Buffer,
        conn: u64,
        levels: [Position; 3],
        coverage: Coverage,
    ) {
        if !self.progress_cb.is_set() && !self.reads_events() {
            return;
        }
        let past = buffer.past_count();
        let [landed, delivered, consumed] = levels;
        let progress = SubscriberProgress {
            bid: buffer.bid,
            conn,
            landed,
            delivered,
            consumed,
            coverage: past.and(coverage),
        };
        let told = self.progress_cb.run(progress, |callback, progress| callback(progress));
        if let (Err(progress), true) = (told, self.reads_events()) {
            self.queue_event(OutEvent::SubscriberProgress(Box::new(progress)));
        }
    }

    fn report_landed_contexts(&self, buffer: &Buffer) {
        let contexts = buffer.take_landed_contexts();
        if contexts.is_empty() {
            return;
        }
        let bid = buffer.bid;
        let told = self.data_out_cb.run(contexts, |callback, contexts| {
            contexts.into_iter().for_each(|context| callback(bid, context));
        });
        if let (Err(contexts), true) = (told, self.reads_events()) {
            contexts.into_iter().for_each(|context| self.queue_event(OutEvent::DataOut { bid, context }));
        }
    }

    fn reap(&self, buffer: &Arc<Buffer>) {
        if buffer.source.is_some() {
            // The id of the destroyed buffer may belong to a new buffer by now, which continues.
            let replaced = || self.buffer(buffer.bid).is_some_and(|known| !Arc::ptr_eq(&known, buffer));
            if buffer.is_newly_drained() && !replaced() {
                self.report(OutEvent::Ended { bid: buffer.bid });
            }
            return;
        }
        if buffer.ended() && buffer.is_abandoned() {
            self.remove(buffer);
        }
    }

    fn durable_slots(&self) -> &DurableSlots {
        &self.durable_slots
    }
}
