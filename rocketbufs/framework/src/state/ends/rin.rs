//! The state that the handles of an rIn share with the worker of its connection.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, RwLock};

use crate::ground::callback::{CALLBACK_PANICKED, Callback, Ran};
use crate::ground::event_queue::Readable;
use crate::ground::lock::lock;
use crate::ground::types::Bid;
use crate::proto::{CloseCode, Item};
use crate::state::in_event::{InEvent, event_of};
use crate::state::view::{BufSeg, InView};
use crate::state::{
    ConnShared, ContextInner, EndsWithContext, Looks, PolledRings, Request, SubscriptionNews,
    SubscriptionOwner, SubscriptionShared, WaitingThread, WorkerShared,
};

/// The number of waiting notices beyond which holes are merged.
const MAX_HOLES_WAITING: usize = 1024;
/// The most notices that wait for the event callback of an application that gets its data by callback: such
/// an application may never set one.
const MAX_WAITING_FOR_CALLBACK: usize = 256;

type DataCallback = dyn FnMut(Bid, &BufSeg<'_>) + Send;
type ControlCallback = dyn FnMut(&[u8]) + Send;
type EventCallback = dyn FnMut(InEvent) + Send;

pub(crate) struct RInShared {
    pub(crate) inner: Arc<ContextInner>,
    pub(crate) conn: Mutex<Arc<ConnShared>>,
    pub(crate) subscriptions: RwLock<HashMap<Bid, Arc<SubscriptionShared>>>,
    /// Subscriptions that are over for the application, whose senders may still wait for their last CREDIT.
    unsettled: Mutex<Vec<Arc<SubscriptionShared>>>,
    pub(crate) data_cb: Callback<DataCallback>,
    pub(crate) control_cb: Callback<ControlCallback>,
    pub(crate) event_cb: Callback<EventCallback>,
    pub(crate) queue: Mutex<Queue>,
    /// Whether one [`InReader`](crate::InReader) receives for all.
    pub(crate) has_reader: AtomicBool,
    pub(crate) looks: Looks,
    pub(crate) arrived: Condvar,
    /// Readable while the queue is not empty.
    pub(crate) readable: Readable,
}

/// The queue of [`RIn::recv`](crate::RIn::recv).
#[derive(Default)]
pub(crate) struct Queue {
    pub(crate) notices: VecDeque<InEvent>,
    pub(crate) ready: VecDeque<Arc<SubscriptionShared>>,
    pub(crate) control: VecDeque<Vec<u8>>,
    control_bytes: usize,
    pub(crate) waiting: usize,
    /// Bit n: a thread that would otherwise wait here does the work of worker n.
    pub(crate) run_by_caller: u64,
    /// Subscriptions whose rings a waiting thread polls.
    pub(crate) polled: PolledRings,
    /// The call that waits, or the next one, is to return without anything.
    pub(crate) woken: bool,
}

impl Queue {
    /// Returns whether no call has a reason to return: no event waits, control messages included, and none is to be woken.
    pub(crate) fn is_empty(&self) -> bool {
        !self.woken && self.notices.is_empty() && self.ready.is_empty() && self.control.is_empty()
    }

    /// Returns the next event that is not data of a subscription.
    pub(crate) fn next_notice(&mut self) -> Option<InEvent> {
        self.notices.pop_front().or_else(|| Some(InEvent::Control { message: self.take_control()? }))
    }
}

impl EndsWithContext for RInShared {
    fn on_end(&self) {
        let queue = lock(&self.queue);
        self.readable.raise();
        drop(queue);
        self.arrived.notify_all();
    }
}

impl RInShared {
    pub(crate) fn new(conn: &Arc<ConnShared>) -> Self {
        Self {
            inner: conn.inner.clone(),
            conn: Mutex::new(conn.clone()),
            subscriptions: RwLock::default(),
            unsettled: Mutex::default(),
            data_cb: Callback::default(),
            control_cb: Callback::default(),
            event_cb: Callback::default(),
            queue: Mutex::default(),
            has_reader: AtomicBool::new(false),
            looks: Looks::default(),
            arrived: Condvar::new(),
            readable: Readable::default(),
        }
    }

    pub(crate) fn conn(&self) -> Arc<ConnShared> {
        lock(&self.conn).clone()
    }

    pub(crate) fn subscription(&self, bid: Bid) -> Option<Arc<SubscriptionShared>> {
        self.subscriptions.read().unwrap_or_else(|p| p.into_inner()).get(&bid).cloned()
    }

    pub(crate) fn all_subscriptions(&self) -> Vec<Arc<SubscriptionShared>> {
        let map = self.subscriptions.read().unwrap_or_else(|p| p.into_inner());
        let mut all: Vec<_> = map.values().cloned().collect();
        // Ordered by id, so that a simulated run is reproducible.
        all.sort_by_key(|subscription| subscription.bid);
        all
    }

    /// Returns the subscriptions that resume over another connection, if they have something to resume for.
    pub(crate) fn resumable(&self) -> Vec<Arc<SubscriptionShared>> {
        let mut all = self.all_subscriptions();
        all.extend(lock(&self.unsettled).iter().cloned());
        all
    }

    /// Keeps a subscription that is over until its sender needs nothing more.
    pub(crate) fn keep_unsettled(&self, subscription: &Arc<SubscriptionShared>) {
        let mut unsettled = lock(&self.unsettled);
        if lock(&subscription.state).sub.is_unsettled() {
            unsettled.push(subscription.clone());
            drop(unsettled);
            subscription.drop_released_ring();
        }
    }

    /// Forgets the subscriptions that these are not.
    pub(crate) fn retain_unsettled(&self, keep: impl FnMut(&Arc<SubscriptionShared>) -> bool) {
        lock(&self.unsettled).retain(keep);
    }

    /// Removes a subscription that is over, so that the same buffer can be subscribed to again.
    pub(crate) fn forget(&self, subscription: &Arc<SubscriptionShared>) {
        self.free_bid(subscription);
        lock(&self.queue).polled.remove(subscription);
    }

    fn free_bid(&self, subscription: &Arc<SubscriptionShared>) {
        let mut map = self.subscriptions.write().unwrap_or_else(|p| p.into_inner());
        if map.get(&subscription.bid).is_some_and(|known| Arc::ptr_eq(known, subscription)) {
            map.remove(&subscription.bid);
            // Under the lock of the map, so that a resume misses no subscription.
            self.keep_unsettled(subscription);
        }
    }

    fn run_callbacks(&self, subscription: &Arc<SubscriptionShared>) {
        while let Some(item) = subscription.next_item(true) {
            let (from, to, pin) = match item {
                Item::Data(from, to) => (from, to, Some(from)),
                Item::Payload { from, to, .. } => (from, to, None),
                other => {
                    self.report_item(subscription, other);
                    continue;
                }
            };
            let Some((view, epoch)) = subscription.view(from, to) else { continue };
            let view = InView::new(view, subscription.clone(), epoch, pin, to);
            let ran = self.data_cb.run(view, |callback, view| callback(subscription.bid, &BufSeg::of(&view)));
            match ran {
                Ok(ran) if self.panicked(ran) => return,
                Ok(_) => {}
                Err(view) => {
                    // The callback was removed after the data was taken.
                    self.push_notice(&mut lock(&self.queue), InEvent::Data(view));
                    return self.enqueue(subscription);
                }
            }
        }
    }

    fn report_item(&self, subscription: &Arc<SubscriptionShared>, item: Item) {
        self.report_of(subscription, event_of(subscription.bid, item));
    }

    pub(crate) fn enqueue(&self, subscription: &Arc<SubscriptionShared>) {
        if !subscription.has_item() || subscription.queued.swap(true, Ordering::Relaxed) {
            return;
        }
        let mut queue = lock(&self.queue);
        queue.ready.push_back(subscription.clone());
        self.signal(&queue);
    }

    /// Reports an event by callback, or in the queue of [`RIn::recv`].
    pub(crate) fn report(&self, event: InEvent) {
        self.run_event_backlog();
        let event = match self.event_cb.run(event, |callback, event| callback(event)) {
            Ok(ran) => {
                self.panicked(ran);
                return;
            }
            Err(event) => event,
        };
        self.push_notice(&mut lock(&self.queue), event);
    }

    fn push_notice(&self, queue: &mut Queue, notice: InEvent) {
        let may_be_deaf = self.data_cb.is_set();
        queue.push_notice(notice, if may_be_deaf { MAX_WAITING_FOR_CALLBACK } else { MAX_HOLES_WAITING });
        while may_be_deaf && queue.notices.len() > MAX_WAITING_FOR_CALLBACK {
            // The newest notices say most about the present state.
            queue.notices.pop_front();
        }
        self.signal(queue);
    }

    /// Reports an event of a subscription, unless the application has unsubscribed. A subscription that is
    /// over is removed before its application learns of the end.
    pub(crate) fn report_of(&self, subscription: &Arc<SubscriptionShared>, event: InEvent) {
        self.run_event_backlog();
        let is_left = || lock(&subscription.state).sub.is_left();
        if is_left() {
            return;
        }
        let told = self.event_cb.run(event, |callback, event| {
            self.forget_if_over(subscription);
            callback(event);
        });
        let event = match told {
            Ok(ran) => {
                self.panicked(ran);
                return;
            }
            Err(event) => event,
        };
        // Under the lock under which `RIn::unsubscribe` removes waiting events: either that call finds this
        // event, or this thread sees that the application has unsubscribed.
        let mut queue = lock(&self.queue);
        if is_left() {
            return;
        }
        if subscription.is_finished() {
            self.free_bid(subscription);
        }
        self.push_notice(&mut queue, event);
        drop(queue);
        self.forget_if_over(subscription);
    }

    /// Removes waiting events of a buffer's subscription, so that they are not taken for those of its next
    /// one.
    pub(crate) fn withdraw(&self, bid: Bid) {
        let mut queue = lock(&self.queue);
        queue.notices.retain(|notice| notice.bid() != Some(bid));
        self.settle(&queue);
    }

    /// Closes the connection after a panicked callback, since its effects on the application are unknown.
    /// Other connections continue.
    fn panicked(&self, ran: Ran) -> bool {
        if ran == Ran::Panicked {
            self.conn().close(CloseCode::Normal, CALLBACK_PANICKED);
        }
        ran == Ran::Panicked
    }

    pub(crate) fn signal(&self, queue: &Queue) {
        if queue.waiting > 0 {
            self.arrived.notify_all();
        }
        // The thread may sleep there while this news comes from another worker. If it comes from the same
        // worker, the wake-up costs a fence.
        let mut driven = queue.run_by_caller;
        while driven != 0 {
            self.inner.workers[driven.trailing_zeros() as usize].token.wake();
            driven &= driven - 1;
        }
        self.readable.raise();
    }

    /// Returns the worker of the connection, if a waiting thread may do its work.
    pub(crate) fn worker_to_run(&self) -> Option<&WorkerShared> {
        if !self.inner.callers_may_run() {
            return None;
        }
        Some(self.inner.worker(self.conn().id))
    }

    pub(crate) fn settle(&self, queue: &Queue) {
        if queue.is_empty() && !self.inner.is_over() {
            self.readable.lower();
        }
    }

    /// Whether a call that receives would return something.
    pub(crate) fn has_something(&self, queue: &Queue) -> bool {
        !queue.is_empty() || self.inner.is_over()
    }

    /// Gives an application's control message to the callback, or queues it for
    /// [`RIn::recv`](crate::RIn::recv). Returns false if too many wait.
    pub(crate) fn on_control(&self, message: Vec<u8>) -> bool {
        self.run_control_backlog();
        let told = self.control_cb.run(message, |callback, message| callback(&message));
        let message = match told {
            Ok(ran) => {
                self.panicked(ran);
                return true;
            }
            Err(message) => message,
        };
        let mut queue = lock(&self.queue);
        let bytes = queue.control_bytes + message.len() + 64;
        if bytes > 64 * (self.inner.config.limits.max_control_bytes as usize + 64) {
            return false;
        }
        queue.control_bytes = bytes;
        queue.control.push_back(message);
        self.signal(&queue);
        true
    }
}

impl RInShared {
    /// Gives both callbacks the events that came before they were set, on the worker of the connection.
    pub(crate) fn run_backlog(self: &Arc<Self>) {
        let rin = self.clone();
        let job = move || {
            rin.run_event_backlog();
            rin.run_control_backlog();
        };
        self.conn().request(Request::Run(Box::new(job)));
    }

    /// Gives the event callback the events from before it was set, in order. Called on a worker.
    pub(crate) fn run_event_backlog(&self) {
        while self.event_cb.is_set() {
            let Some(event) = lock(&self.queue).notices.pop_front() else { return };
            if let Ok(ran) = self.event_cb.run(event, |callback, event| callback(event)) {
                self.panicked(ran);
            }
        }
    }

    /// Gives the callback the messages from before it was set: a connection may send before the application that
    /// accepted it has set its callbacks. Called on the worker that owns the connection, which keeps the order.
    pub(crate) fn run_control_backlog(&self) {
        while self.control_cb.is_set() {
            let Some(message) = lock(&self.queue).take_control() else { return };
            let ran = self.control_cb.run(message, |callback, message| callback(&message));
            if ran.is_ok_and(|ran| self.panicked(ran)) {
                return;
            }
        }
    }
}

impl Queue {
    /// Queues a notice. A hole is merged with the last one of its buffer if too many notices wait for an
    /// application that does not read them, so a sender of many holes costs no memory.
    fn push_notice(&mut self, notice: InEvent, most: usize) {
        if self.notices.len() >= most
            && let InEvent::Lost { bid, to, .. } = &notice
            && let Some(last) = self.notices.iter_mut().rev().find_map(|known| match known {
                InEvent::Lost { bid: of, to, .. } if *of == *bid => Some(to),
                _ => None,
            })
        {
            *last = *to;
            return;
        }
        self.notices.push_back(notice);
    }

    pub(crate) fn take_control(&mut self) -> Option<Vec<u8>> {
        let message = self.control.pop_front()?;
        self.control_bytes -= message.len() + 64;
        Some(message)
    }
}

impl Drop for RInShared {
    fn drop(&mut self) {
        let (inner, conn) = (&self.inner, self.conn().id);
        if let Some(worker) = self.looks.leave(inner) {
            worker.token.wake();
        }
        for subscription in self.all_subscriptions() {
            let inner_too = inner.clone();
            let job = move || {
                if let Some(wire) = subscription.end(conn) {
                    inner_too.worker(conn).request(Request::Leave { conn, wire });
                }
            };
            inner.worker(conn).request(Request::Run(Box::new(job)));
        }
    }
}

impl SubscriptionOwner for RInShared {
    fn conn_id(&self) -> u64 {
        self.conn().id
    }

    fn on_news(&self, subscription: &Arc<SubscriptionShared>) {
        if self.data_cb.is_set() {
            self.run_callbacks(subscription);
        } else if subscription.is_spliced() {
            // The data is for the subscribers; the application receives only the end.
            while let Some(item) = subscription.next_item(false) {
                if !matches!(item, Item::Data(..) | Item::Payload { .. }) {
                    self.report_item(subscription, item);
                }
            }
        } else {
            self.enqueue(subscription);
        }
    }

    fn report_news(&self, subscription: &Arc<SubscriptionShared>, news: SubscriptionNews) {
        let bid = subscription.bid;
        let event = match news {
            SubscriptionNews::Subscribed { epoch, start } => InEvent::Subscribed { bid, epoch, start },
            SubscriptionNews::Restarted(epoch) => InEvent::Restarted { bid, epoch },
            SubscriptionNews::NotDurable => InEvent::NotDurable { bid },
            SubscriptionNews::ConfirmRequested { delivered, consumed } => {
                InEvent::ConfirmRequested { bid, delivered, consumed }
            }
        };
        self.report_of(subscription, event);
    }

    fn on_settled(&self, subscription: &Arc<SubscriptionShared>) {
        self.retain_unsettled(|known| !Arc::ptr_eq(known, subscription));
    }

    fn forget_if_over(&self, subscription: &Arc<SubscriptionShared>) {
        if subscription.is_finished() {
            self.forget(subscription);
        }
    }

    fn looks_in_calls(&self) -> bool {
        self.looks.in_calls.load(Ordering::Relaxed)
    }

    fn poll_ring(&self, subscription: &Arc<SubscriptionShared>, worker: usize) {
        lock(&self.queue).polled.add(subscription, worker);
    }
}

impl WaitingThread for RInShared {
    fn look_again(&self) {
        let queue = lock(&self.queue);
        self.arrived.notify_all();
        drop(queue);
    }
}
