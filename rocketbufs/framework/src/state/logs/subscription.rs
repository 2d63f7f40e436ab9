//! One subscription of an rIn, shared by the application's handles and the worker of its connection.
//!
//! [`ReceiveSubscription`] decides; `memory` has the ring and executes the machine's effects there.

mod memory;
mod reading;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};

use rocketring::{PeerDoorbell, Ring, View, WatchKey};

use crate::ground::lock::lock;
use crate::ground::types::{Bid, Epoch, Nanos, Position, WireId};
use crate::proto::{Coverage, Downstream, End, Item, ReceiveLog, ReceiveSubscription};
use crate::state::error::RecvError;
use crate::state::options::{ConfirmMode, SubscribeOptions};
use crate::state::{
    Activated, Buffer, Calls, ContextInner, IdleState, Log, Member, MinReceivers, Request, Upstream,
    Watchers, held_at,
};

pub(crate) use memory::{ReceiveMemory, SubscriptionState};
pub(crate) use reading::Readable;

pub(crate) struct SubscriptionShared {
    pub(crate) bid: Bid,
    pub(crate) slot: u32,
    pub(crate) rin: Weak<dyn SubscriptionOwner>,
    pub(crate) inner: Arc<ContextInner>,
    pub(crate) options: SubscribeOptions,
    /// The time at which a worker first heard of the subscription.
    pub(crate) asked_at: OnceLock<Nanos>,
    pub(crate) state: Mutex<SubscriptionState>,
    /// Whether the subscription is in its rIn's queue of subscriptions with something to receive.
    pub(crate) queued: AtomicBool,
    pub(crate) idle_state: IdleState,
    /// The downstream readers of the ring.
    pub(crate) watchers: Mutex<Watchers>,
    /// The least number of receivers that a spliced subscription waits for before it confirms.
    pub(crate) min_receivers: MinReceivers,
    spliced: Mutex<Option<Weak<Buffer>>>,
    is_spliced: AtomicBool,
}

/// The rIn of a subscription, as the subscription and its worker see it.
pub(crate) trait SubscriptionOwner: Send + Sync {
    /// Returns the connection that the rIn has now.
    fn conn_id(&self) -> u64;

    /// Handles data and the end of the log: runs the callbacks, or queues the subscription. Called on the
    /// worker that owns the connection.
    fn on_news(&self, subscription: &Arc<SubscriptionShared>);

    /// Reports news that are neither data nor its end. Called on the worker that owns the connection.
    fn report_news(&self, subscription: &Arc<SubscriptionShared>, news: SubscriptionNews);

    /// Handles a closed log of which the sender needs nothing more.
    fn on_settled(&self, subscription: &Arc<SubscriptionShared>);

    /// Removes a subscription of which nothing is left to report or to release.
    fn forget_if_over(&self, subscription: &Arc<SubscriptionShared>);

    /// Returns whether calls that receive without waiting look at followed rings themselves.
    fn looks_in_calls(&self) -> bool;

    /// Lets application threads poll the ring of a subscription, which this worker follows.
    fn poll_ring(&self, subscription: &Arc<SubscriptionShared>, worker: usize);
}

/// The reports of a subscription besides its data and its end.
pub(crate) enum SubscriptionNews {
    /// The sender has accepted the subscription.
    Subscribed { epoch: Epoch, start: Position },
    /// The sender has another log than the subscription asked for.
    Restarted(Epoch),
    /// The subscription has no durable slot.
    NotDurable,
    /// The sender waits for these confirmations.
    ConfirmRequested { delivered: Position, consumed: Position },
}

/// Data that an application thread landed itself.
pub(crate) enum Followed {
    Data {
        view: View,
        epoch: Epoch,
        /// Whether there is more.
        more: bool,
    },
    Other(Item),
}

impl Followed {
    /// Returns the number of bytes in it.
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Data { view, .. } => view.len(),
            Self::Other(_) => 0,
        }
    }
}

/// Returns the progress of a buffer's receivers.
pub(crate) fn downstream_of(buffer: &Buffer) -> Downstream {
    let confirmed = buffer.confirmed();
    Downstream { delivered: confirmed.delivered, consumed: confirmed.consumed, coverage: confirmed.coverage }
}

impl SubscriptionShared {
    pub(crate) fn new(
        bid: Bid,
        slot: u32,
        rin: Weak<dyn SubscriptionOwner>,
        inner: &Arc<ContextInner>,
        options: SubscribeOptions,
    ) -> Self {
        Self {
            bid,
            slot,
            rin,
            inner: inner.clone(),
            min_receivers: MinReceivers::new(options.min_receivers),
            state: Mutex::new(SubscriptionState::new(ReceiveSubscription::new(
                options.remote_id.unwrap_or(bid),
            ))),
            options,
            asked_at: OnceLock::new(),
            queued: AtomicBool::new(false),
            idle_state: IdleState::default(),
            watchers: Mutex::default(),
            spliced: Mutex::default(),
            is_spliced: AtomicBool::new(false),
        }
    }

    pub(crate) fn is_spliced(&self) -> bool {
        self.is_spliced.load(Ordering::Acquire)
    }

    pub(crate) fn spliced_to(&self) -> Option<Arc<Buffer>> {
        if !self.is_spliced() {
            return None;
        }
        lock(&self.spliced).as_ref().and_then(Weak::upgrade)
    }

    /// Hands the ring over to the subscribers of `buffer`. The application holds only bytes that were not reported
    /// yet: ranges are forwarded before they are complete, so without this hold the subscribers alone could
    /// let more than one ring of data arrive between two calls.
    pub(crate) fn splice_to(&self, buffer: &Arc<Buffer>) -> bool {
        let mut spliced = lock(&self.spliced);
        // Subscribers of a destroyed buffer may still read the ring.
        if spliced.as_ref().and_then(Weak::upgrade).is_some_and(|old| !old.is_removed()) {
            return false;
        }
        *spliced = Some(Arc::downgrade(buffer));
        self.is_spliced.store(true, Ordering::Release);
        drop(spliced);
        let state = lock(&self.state);
        // The subscription may have been left meanwhile. The leaving thread may have looked for the buffer
        // before the splice stored it, and no other thread would end the buffer.
        if state.sub.is_left() || state.sub.log().is_some_and(|log| log.cursor().is_read_alone()) {
            drop(state);
            self.is_spliced.store(false, Ordering::Release);
            *lock(&self.spliced) = None;
            return false;
        }
        if let Some(memory) = &state.memory {
            memory.ring().set_relayed();
            let _ = buffer.log.set(memory.log.clone());
        }
        let boundary = state.ring().map_or(0, Ring::boundary);
        let end = state.sub.ending().map(|ending| ending.downstream(boundary));
        let wire = state.sub.wire();
        drop(state);
        if let Some((conn, _)) = wire {
            self.inner.worker(conn).mark(self.slot);
        }
        if buffer.log().is_some() {
            buffer.unpark();
        }
        if let Some(end) = end {
            buffer.set_end(end);
        }
        if buffer.ended() {
            // Without a subscriber no other event reports the end.
            let buffer = buffer.clone();
            self.inner.run_on_worker(move || buffer.reap());
        }
        true
    }

    fn is_spliced_to(&self, buffer: &Buffer) -> bool {
        self.spliced_to().is_some_and(|spliced| std::ptr::eq(&raw const *spliced, buffer))
    }

    /// Returns the progress of the receivers downstream, if the subscription is spliced.
    pub(crate) fn downstream(&self) -> Option<Downstream> {
        self.spliced_to().map(|buffer| downstream_of(&buffer))
    }

    /// Returns the next thing to report and moves `read` past it. Data stays in the ring until it is
    /// released.
    pub(crate) fn next_item(&self, pin: bool) -> Option<Item> {
        let mut state = lock(&self.state);
        if state.sub.is_left() {
            // Unread data of an unsubscribed subscription is dropped; the next subscription owns the buffer's
            // name.
            return None;
        }
        if !state.catch_up() {
            return None;
        }
        let (spliced, wire, ended) = (self.is_spliced(), state.sub.wire(), state.sub.ending().is_some());
        if let Some((log, memory)) = state.parts() {
            let consumed = log.cursor().consumed();
            let item = log.cursor_mut().next_item(memory.ring(), pin, spliced);
            let released = log.cursor().consumed() != consumed;
            if released {
                memory.move_hold(log);
            }
            if let Some(item) = item {
                // Reading a hole releases it, and so does reading a payload that is copied out anyway. The
                // worker reports progress of a spliced subscription.
                let gave = released && !spliced;
                let calls = if gave { memory.on_released(log) } else { Calls::default() };
                let due = gave && (ended || memory.is_credit_due(log));
                let resumes = state.resumes();
                drop(state);
                calls.run();
                self.notify_worker(due, wire);
                self.resume(resumes);
                return Some(item);
            }
        }
        state.sub.next_ending()
    }

    /// Whether [`SubscriptionShared::follow`] takes what comes.
    pub(crate) fn may_be_looked_at(&self) -> bool {
        lock(&self.state).sub.may_follow() && !self.is_spliced()
    }

    /// Lands the bytes that the ring has and takes the next thing to report. Without either, returns the ring to wait
    /// on.
    #[inline]
    pub(crate) fn follow(&self) -> (Option<Followed>, Option<Ring>) {
        let mut state = lock(&self.state);
        if !state.sub.may_follow() || self.is_spliced() {
            return (None, None);
        }
        let wire = state.sub.wire();
        let Some((log, memory)) = state.parts() else { return (None, None) };
        if log.cursor().is_read_alone() {
            return (None, None);
        }
        if !memory.ring().has_new_data() || !memory.ring().follow() {
            return (None, Some(memory.ring().clone()));
        }
        let consumed = log.cursor().consumed();
        let item = log.cursor_mut().next_item(memory.ring(), true, false);
        if log.cursor().consumed() != consumed {
            memory.move_hold(log);
        }
        let taken = item.map(|item| match item {
            Item::Data(from, to) => {
                let Log { ring, epoch } = &memory.log;
                Followed::Data { view: ring.view(from, to), epoch: *epoch, more: ring.boundary() > to }
            }
            other => Followed::Other(other),
        });
        let due = memory.is_credit_due(log) || !self.idle_state.is_moving();
        drop(state);
        self.notify_worker(due, wire);
        (taken, None)
    }

    /// Returns whether [`SubscriptionShared::next_item`] would return something.
    pub(crate) fn has_item(&self) -> bool {
        let mut state = lock(&self.state);
        if state.sub.is_left() {
            return false;
        }
        state.catch_up();
        state.parts().is_some_and(|(log, memory)| log.cursor().has_item(memory.ring()))
            || state.sub.has_ending()
    }

    /// Returns whether the application has received the end. The same buffer can be subscribed to again then.
    pub(crate) fn is_over(&self) -> bool {
        lock(&self.state).sub.is_over()
    }

    /// Returns whether the subscription is over and all of its data was released.
    pub(crate) fn is_finished(&self) -> bool {
        let mut state = lock(&self.state);
        state.catch_up();
        state.sub.is_finished(self.is_spliced())
    }

    /// Releases `size` bytes, oldest first (`data_consumed`).
    pub(crate) fn consume(&self, size: u64) -> Result<(), RecvError> {
        let consumed = self.update(|log, memory| log.cursor_mut().consume(size, memory.ring()));
        let consumed = consumed.ok_or(RecvError::NotSubscribed(self.bid))?;
        consumed.map_err(|error| RecvError::TooMuch { size, received: error.received })
    }

    /// Releases everything below `to`.
    pub(crate) fn consume_to(&self, to: Position) {
        self.update(|log, memory| log.cursor_mut().give_back_received(to, memory.ring()));
    }

    /// Returns the view of a range of the ring, with the log's epoch.
    pub(crate) fn view(&self, from: Position, to: Position) -> Option<(View, Epoch)> {
        let state = lock(&self.state);
        let log = &state.memory.as_ref()?.log;
        Some((log.ring.view(from, to), log.epoch))
    }

    /// Passes on that the sender waits for these confirmations.
    pub(crate) fn want_confirmed(self: &Arc<Self>, [_, delivered, consumed]: [Position; 3]) {
        if delivered.max(consumed) == 0 {
            return;
        }
        if let Some(buffer) = self.spliced_to() {
            // Delivery requires that the data has landed at the relays downstream, which report that in the
            // same message.
            buffer.want([0, delivered, consumed]);
        } else if let (ConfirmMode::Relayed, Some(rin)) = (self.options.confirm, self.rin.upgrade()) {
            rin.report_news(self, SubscriptionNews::ConfirmRequested { delivered, consumed });
        }
    }

    /// Records how far forwarded data is confirmed. Returns false if the subscription does not relay.
    pub(crate) fn confirm(&self, delivered: Position, consumed: Position, coverage: Coverage) -> bool {
        self.update(|log, _| log.confirm(delivered, consumed, coverage)).unwrap_or(false)
    }

    /// Removes the pin of a dropped view.
    #[inline]
    pub(crate) fn unpin(&self, at: Position, consume_to: Option<Position>) {
        self.update(|log, memory| {
            log.cursor_mut().unpin(at);
            if let Some(to) = consume_to {
                log.cursor_mut().give_back(to, memory.ring());
            }
        });
    }

    /// Records that bytes of a view, which ends at `to`, were overwritten before the application had read them.
    pub(crate) fn lose(&self, to: Position) {
        self.update(|log, _| log.cursor_mut().lose(to));
    }

    /// Moves the start of a view forward.
    pub(crate) fn unpin_part(&self, at: Position, to: Position) {
        self.update(|log, memory| {
            log.cursor_mut().move_pin(at, to);
            log.cursor_mut().give_back(to, memory.ring());
        });
    }

    /// Changes the application's position, moves the hold, and wakes the worker if credit is due.
    #[inline]
    fn update<R>(&self, change: impl FnOnce(&mut ReceiveLog, &mut ReceiveMemory) -> R) -> Option<R> {
        let mut state = lock(&self.state);
        state.catch_up();
        let (wire, ended) = (state.sub.wire(), state.sub.ending().is_some());
        let (log, memory) = state.parts()?;
        let result = change(log, memory);
        memory.move_hold(log);
        let calls = memory.on_released(log);
        let due = ended || memory.is_credit_due(log) || self.idle_state.waits_for_hold();
        let resumes = state.resumes();
        drop(state);
        if ended && wire.is_none() {
            self.drop_released_ring();
        }
        calls.run();
        self.notify_worker(due, wire);
        self.resume(resumes);
        Some(result)
    }

    /// Asks the worker to send the credit that is due.
    #[inline]
    fn notify_worker(&self, due: bool, wire: Option<(u64, WireId)>) {
        if let (true, Some((conn, _))) = (due, wire) {
            self.inner.worker(conn).mark_for_later(self.slot);
        }
    }

    /// Resumes the subscription over this connection. Everything that the resume waited for was released.
    #[inline]
    fn resume(&self, conn: Option<u64>) {
        if let Some(conn) = conn {
            self.inner.worker(conn).request(Request::Resume { conn, bid: self.bid });
        }
    }

    /// Ends the subscription for its application. Returns its id on this connection, to be left there. Called
    /// on a worker.
    pub(crate) fn end(&self, conn: u64) -> Option<WireId> {
        let mut state = lock(&self.state);
        state.sub.leave();
        let wire = state.sub.wire_on(conn);
        let boundary = state.ring().map_or(0, Ring::boundary);
        let ended = state.sub.ending().is_some();
        drop(state);
        if let (false, Some(buffer)) = (ended, self.spliced_to()) {
            buffer.end_with(End::Gone(boundary), || ());
        }
        wire
    }

    /// Returns a pinned view of all received bytes that were not released.
    pub(crate) fn buf_ref(&self) -> Option<(View, Epoch, Position)> {
        let mut state = lock(&self.state);
        state.catch_up();
        let (log, memory) = state.parts()?;
        // In a spliced subscription the application's hold covers only bytes that were not reported yet, so nothing
        // stays in place for it.
        if !memory.has_hold() || self.is_spliced() {
            return None;
        }
        let (from, to) = log.cursor_mut().pin_unreleased(memory.ring());
        Some((memory.ring().view(from, to), memory.log.epoch, from))
    }

    /// Records that the sender needs nothing more of this log.
    pub(crate) fn settle(self: &Arc<Self>) {
        lock(&self.state).sub.settle();
        if let Some(rin) = self.rin.upgrade() {
            rin.on_settled(self);
        }
    }

    /// Gives up the ring of a closed log of which nothing but the last CREDIT is left to send.
    pub(crate) fn drop_released_ring(&self) {
        let downstream = self.downstream();
        lock(&self.state).drop_released_ring(downstream.as_ref());
    }

    /// Marks the subscription as suspended and leaves the budget's queue.
    pub(crate) fn detach(&self) {
        let calls = lock(&self.state).detach();
        calls.run();
    }
}

impl Upstream for SubscriptionShared {
    fn slot(&self) -> u32 {
        self.slot
    }

    fn min_receivers(&self) -> &MinReceivers {
        &self.min_receivers
    }

    fn kept_from(&self) -> Option<Position> {
        lock(&self.state).memory.as_ref().and_then(|memory| held_at(memory.receivers_hold.as_ref()))
    }

    fn on_downstream_progress(&self, buffer: &Buffer) {
        let mut state = lock(&self.state);
        let Some(log) = state.sub.log() else { return };
        if buffer.ended() && !self.is_spliced_to(buffer) {
            // The last subscribers of a destroyed buffer hold the ring, but confirm nothing any more.
            if let Some((conn, _)) = state.sub.wire() {
                self.inner.worker(conn).mark(self.slot);
            }
            return;
        }
        let downstream = downstream_of(buffer);
        state.keep_for(&downstream);
        let Some((conn, _)) = state.sub.wire() else { return state.drop_released_ring(Some(&downstream)) };
        let due = state.credit_now(Some(&downstream)).is_some_and(|now| log.credit().is_due(&now));
        drop(state);
        if due || buffer.ended() || self.idle_state.waits_for_hold() {
            self.inner.worker(conn).mark(self.slot);
        }
    }

    fn watch(&self, key: WatchKey, doorbell: Arc<PeerDoorbell>) -> bool {
        let added = lock(&self.watchers).add(key, doorbell);
        if added {
            self.pass_watchers();
        }
        added
    }

    fn unwatch(&self, key: WatchKey) {
        lock(&self.watchers).remove(key);
        self.pass_watchers();
    }

    fn pass_watchers(&self) {
        let wire = lock(&self.state).sub.wire();
        // Without a connection, the watchers are passed on at the resume.
        if let Some((conn, _)) = wire
            && lock(&self.watchers).ask()
        {
            self.inner.worker(conn).request(Request::PassWatchers { slot: self.slot });
        }
    }
}

impl Drop for SubscriptionShared {
    fn drop(&mut self) {
        if let Some((worker, place)) = self.idle_state.resting_at() {
            let gone = Activated::Gone { slot: self.slot, place };
            self.inner.workers[worker].request(Request::Activated(gone));
        }
        self.inner.free_slot(self.slot);
    }
}

impl Member for SubscriptionShared {
    fn call(&self) -> Option<Calls> {
        let mut state = lock(&self.state);
        let Some((conn, _)) = state.sub.wire() else { return state.on_call() };
        drop(state);
        self.inner.worker(conn).mark(self.slot);
        None
    }
}
