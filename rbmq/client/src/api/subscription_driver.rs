//! The driver of a subscriber's subscriptions: it owns the lock that the application's thread, the callbacks of the framework and the
//! reconnecting thread share, feeds the machine and carries out its effects.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, SystemTime};

use rbmq_wire::Levels;
use rocketbufs::error::{ControlError, SubscribeError};
use rocketbufs::event_queue::Readable;
use rocketbufs::{
    Bid, BlockTimeout, ConfirmMode, Conn, Epoch, InEvent, Position, RIn, Start, SubscribeOptions,
};
use tracing::debug;

use crate::connection::{lock, send_patiently, wait_while};
use crate::ground::error::ReceiveError;
use crate::ground::options::{SlowPolicy, StartFrom, SubscriberOptions};
use crate::state::event::{Notice, RefusedFilter};
use crate::subscriptions::{Begin, Effect, HandedOut, Subscribe, Subscriptions};
use crate::wire::{Control, RECORD_HEADER_BYTES, ReplayFrom, TopicFilter};

/// The driver.
pub(crate) struct SubscriptionDriver {
    pub(crate) options: SubscriberOptions,
    state: Mutex<State>,
    /// Requests are sent in the order in which the machine makes them, which is that of their answers. Taken before the state.
    requesting: Mutex<()>,
    changed: Condvar,
    /// Readable while the machine has news for the application's thread. Changes under the lock.
    readable: Readable,
}

struct State {
    machine: Subscriptions,
    /// The rIn of the present broker process.
    rin: RIn,
    /// A thread carries out effects, and those that follow.
    executing: bool,
    /// Every topic has ended, and the application's thread does not know.
    ended: bool,
    /// The application's thread is to stop waiting, once.
    interrupted: bool,
    /// The application's thread is to stop waiting, as if its time were over, until this is taken back.
    dismissed: bool,
    /// The application's thread waits until everything is in force.
    awaits_settled: bool,
    /// A connection to another broker process. The buffers have other ids there: the application's thread moves to it.
    moved: Option<Conn>,
}

impl SubscriptionDriver {
    /// Creates the rIn of a connection, and what drives its subscriptions.
    pub(crate) fn new(options: SubscriberOptions, conn: &Conn) -> Arc<Self> {
        let (machine, rin) = (Subscriptions::new(&options), RIn::new(conn));
        let state = State {
            machine,
            rin,
            executing: false,
            ended: false,
            interrupted: false,
            dismissed: false,
            awaits_settled: false,
            moved: None,
        };
        let (changed, readable) = (Condvar::new(), Readable::default());
        let (state, requesting) = (Mutex::new(state), Mutex::new(()));
        let driver = Arc::new(Self { options, state, requesting, changed, readable });
        driver.listen();
        driver
    }

    /// The rIn of the present broker process.
    pub(crate) fn rin(&self) -> RIn {
        lock(&self.state).rin.clone()
    }

    /// Feeds the machine with the messages of the broker. Messages that came before wait in the rIn.
    fn listen(self: &Arc<Self>) {
        let state = lock(&self.state);
        let (rin, broker) = (state.rin.clone(), state.machine.broker());
        drop(state);
        // The driver has the rIn, which has the callback.
        let driver = Arc::downgrade(self);
        rin.set_control_msg_cb(move |rin, message| {
            let Some(driver) = driver.upgrade() else { return };
            match Control::decode(message) {
                Ok(message) => {
                    driver.feed(|state| state.machine.on_control(broker, rin.conn().id(), message))
                }
                Err(error) => rin.conn().close(&error.to_string()),
            }
        });
    }

    /// Gives the machine an event, carries out what it asks for, and wakes the application's thread if it waits.
    ///
    /// One thread at a time carries out effects, so that they keep the order of the events. It holds no lock meanwhile, since calls of the
    /// framework take locks of their own.
    fn feed<T>(&self, event: impl FnOnce(&mut State) -> T) -> T {
        let mut state = lock(&self.state);
        let had_ended = state.machine.has_ended();
        let result = event(&mut state);
        while !state.executing
            && let Some(effect) = state.machine.next_effect()
        {
            state.executing = true;
            let (rin, broker) = (state.rin.clone(), state.machine.broker());
            drop(state);
            let failed = self.execute(&rin, effect);
            state = lock(&self.state);
            state.executing = false;
            // Another broker process has other buffers of the same number.
            if let Some((bid, why)) = failed
                && state.machine.broker() == broker
            {
                state.machine.on_not_subscribed(bid, &why);
            }
        }
        state.ended |= !had_ended && state.machine.has_ended();
        self.settle(&state);
        drop(state);
        self.changed.notify_all();
        result
    }

    /// Carries out an effect. Returns the buffer that cannot be subscribed to, and the reason.
    fn execute(&self, rin: &RIn, effect: Effect) -> Option<(Bid, String)> {
        match effect {
            Effect::Subscribe(subscribe) => {
                match rin.subscribe_with(subscribe.bid, self.options.subscribe(&subscribe)) {
                    Ok(_) | Err(SubscribeError::Exists(_)) => {}
                    Err(error) => return Some((subscribe.bid, error.to_string())),
                }
            }
            Effect::Unsubscribe(bid) => rin.unsubscribe(bid),
            Effect::Ask { bid, begin } => {
                let message = Control::Replay { bid, from: begin.replay_from() };
                match rin.send_control(&message.encode()) {
                    // The next connection asks again.
                    Ok(()) | Err(ControlError::Down) => {}
                    Err(error) => rin.conn().close(&format!("a replay cannot be asked for: {error}")),
                }
            }
            Effect::Close(why) => rin.conn().close(why),
        }
        None
    }

    /// Makes the descriptor agree with the state.
    fn settle(&self, state: &State) {
        let is_settled = state.awaits_settled && state.machine.is_settled();
        if state.machine.has_news() || state.ended || state.interrupted || is_settled {
            self.readable.raise();
        } else {
            self.readable.lower();
        }
    }

    /// Calls `add` with the descriptor that is readable while there is news for the application's thread.
    pub(crate) fn with_descriptor(
        &self,
        add: impl FnOnce(BorrowedFd<'_>) -> io::Result<()>,
    ) -> io::Result<()> {
        let state = lock(&self.state);
        add(self.readable.descriptor(false)?)?;
        self.settle(&state);
        Ok(())
    }
}

/// The calls of the application's thread.
impl SubscriptionDriver {
    /// Subscribes to a filter.
    pub(crate) fn subscribe(&self, conn: &Conn, filter: &TopicFilter, start: StartFrom) {
        let _in_order = lock(&self.requesting);
        let requests = self.feed(|state| state.machine.subscribe(conn.id(), filter, start));
        self.send(conn, &requests);
    }

    /// Ends the subscription of a filter. Returns the logs of which nothing more comes.
    pub(crate) fn unsubscribe(&self, filter: &TopicFilter) -> Vec<Epoch> {
        let left = self.feed(|state| state.machine.unsubscribe(filter));
        // What has arrived must not be taken for data of the next subscription. Another thread may be carrying the effects out.
        let waiting = |state: &mut State| state.executing || state.machine.has_effects();
        wait_while(&self.state, &self.changed, None, waiting);
        left
    }

    /// An event of the rIn that is no data.
    pub(crate) fn on_event(&self, event: InEvent) {
        self.feed(|state| state.machine.on_event(event));
    }

    /// The application gets bytes of a buffer, up to this position. None: they are not wanted.
    pub(crate) fn hand_out(&self, bid: Bid, to: Position) -> Option<HandedOut> {
        lock(&self.state).machine.hand_out(bid, to)
    }

    /// The filters, for records of spaces.
    pub(crate) fn wanted(&self) -> Arc<Levels<()>> {
        lock(&self.state).machine.wanted()
    }

    /// Bytes that were handed out had been overwritten.
    pub(crate) fn on_overwritten(&self, epoch: Epoch, to: Position) {
        lock(&self.state).machine.on_overwritten(epoch, to);
    }

    /// The next notice that the framework does not report, and whether the connection is lost.
    ///
    /// # Errors
    /// Another thread has called [`SubscriptionDriver::interrupt`].
    pub(crate) fn next_notice(&self) -> Result<(Option<Notice>, bool), ReceiveError> {
        let mut state = lock(&self.state);
        let interrupted = std::mem::take(&mut state.interrupted);
        let notice = if interrupted { None } else { state.machine.next_notice() };
        state.ended &= interrupted;
        self.settle(&state);
        if interrupted {
            Err(ReceiveError::Interrupted)
        } else {
            Ok((notice, state.machine.is_disconnected()))
        }
    }

    /// Ends the wait of the application's thread, or its next one.
    pub(crate) fn interrupt(&self) {
        self.end_wait(|state| state.interrupted = true);
    }

    /// As [`SubscriptionDriver::interrupt`], but calls return nothing, as if their time were over, until this is taken back. An interrupt
    /// stays beside it.
    pub(crate) fn dismiss(&self) {
        self.end_wait(|state| state.dismissed = true);
    }

    /// Takes [`SubscriptionDriver::dismiss`] back.
    pub(crate) fn readmit(&self) {
        lock(&self.state).dismissed = false;
    }

    fn end_wait(&self, mark: impl FnOnce(&mut State)) {
        let mut state = lock(&self.state);
        mark(&mut state);
        self.settle(&state);
        // The present rIn: the application's thread alone moves to another one, and looks at the mark before it waits there.
        let rin = state.rin.clone();
        drop(state);
        self.changed.notify_all();
        rin.wake();
    }

    /// Whether the application's thread is to return nothing.
    pub(crate) fn is_dismissed(&self) -> bool {
        lock(&self.state).dismissed
    }

    /// Whether all subscriptions that the broker knows of are in force.
    pub(crate) fn is_settled(&self) -> bool {
        let mut state = lock(&self.state);
        let is_settled = state.machine.is_settled();
        state.awaits_settled = !is_settled;
        self.settle(&state);
        is_settled
    }

    /// The filters that the broker has refused since the last call.
    pub(crate) fn take_refused(&self) -> Vec<RefusedFilter> {
        lock(&self.state).machine.take_refused()
    }

    /// The broker process at which all subscriptions are in force, by the instance of its context.
    pub(crate) fn receives_from(&self) -> Option<u128> {
        // Under one lock: the rIn changes together with what is asked there.
        let state = lock(&self.state);
        state.machine.is_settled().then(|| state.rin.conn().peer_instance())
    }

    /// Whether all topics have ended.
    pub(crate) fn has_ended(&self) -> bool {
        lock(&self.state).machine.has_ended()
    }

    /// Why nothing more comes, if the client is over.
    pub(crate) fn over(&self) -> Option<ReceiveError> {
        lock(&self.state).machine.over().cloned()
    }
}

/// The connection.
impl SubscriptionDriver {
    /// Sends requests. Must not be called from a callback.
    fn send(&self, conn: &Conn, requests: &[Control]) {
        for request in requests {
            match send_patiently(conn, request) {
                Ok(()) => {}
                Err(error @ ControlError::TooLarge { .. }) => {
                    self.feed(|state| state.machine.on_unsendable(conn.id(), &error.to_string()));
                }
                // The next connection requests everything again.
                Err(error) => return debug!("the request for topics was not sent: {error}"),
            }
        }
    }

    /// A connection replaces a lost one. At the same broker process the rIn resumes. Another process has other buffers, and the
    /// application's thread moves there.
    pub(crate) fn on_reconnected(&self, conn: &Conn, same_broker: bool) {
        let (rin, _in_order) = (self.rin(), lock(&self.requesting));
        let requests = self.feed(|state| {
            state.moved = (!same_broker).then(|| conn.clone());
            state.machine.on_reconnected(conn.id(), same_broker)
        });
        if same_broker {
            rin.resume(conn);
            self.send(conn, &requests);
        }
    }

    /// Another subscriber has the place, or the context is shut down.
    pub(crate) fn on_over(&self, why: ReceiveError) {
        self.feed(|state| state.machine.on_over(why));
    }

    /// Waits for a connection after a loss. Returns it if it leads to another broker process.
    pub(crate) fn wait_moved(&self, timeout: Option<Duration>) -> Option<Conn> {
        wait_while(&self.state, &self.changed, timeout, |state| {
            state.machine.is_waiting() && !state.interrupted && !state.dismissed
        });
        let mut state = lock(&self.state);
        let conn = state.moved.take()?;
        // Under the same lock: a further connection may replace this one before the move.
        state.machine.on_leaving();
        Some(conn)
    }

    /// Moves to a connection to another broker process. Returns its rIn.
    pub(crate) fn move_to(self: &Arc<Self>, conn: &Conn) -> RIn {
        let _in_order = lock(&self.requesting);
        let rin = RIn::new(conn);
        let requests = self.feed(|state| {
            rin.look_like(&state.rin);
            state.rin = rin.clone();
            state.machine.on_moved(conn.id())
        });
        self.listen();
        self.send(conn, &requests);
        rin
    }
}

impl Begin {
    fn start(self) -> Start {
        match self {
            Self::At(start) => start,
            Self::Since(time) => Start::Ago(age_ms(time)),
        }
    }

    /// The replay that the broker is asked for.
    fn replay_from(self) -> ReplayFrom {
        match self.start() {
            Start::Ago(ms) => ReplayFrom::Age(ms),
            Start::Position(_, position) => ReplayFrom::Position(position),
            _ => ReplayFrom::Oldest,
        }
    }
}

/// The age of a time, rounded up; 0 for a future time.
fn age_ms(time: SystemTime) -> u64 {
    let age = SystemTime::now().duration_since(time).unwrap_or_default();
    u64::try_from(age.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}

impl SubscriberOptions {
    fn subscribe(&self, to: &Subscribe) -> SubscribeOptions {
        let block_timeout = match self.slow {
            _ if to.replay => BlockTimeout::Never,
            SlowPolicy::BlockFor { timeout: None } => BlockTimeout::Never,
            SlowPolicy::BlockFor { timeout: Some(timeout) } => BlockTimeout::After(timeout),
            _ => BlockTimeout::Default,
        };
        // Subscribers that are not durable have no place to take over, and several of the same name may be connected.
        let is_durable = !(self.hold.is_zero() || to.replay);
        let (name, hold) = if is_durable { (self.name.as_str(), self.hold) } else { ("", Duration::ZERO) };
        let confirm = if self.confirm_consumed { ConfirmMode::OnConsume } else { ConfirmMode::OnArrival };
        let most = ring_for(self.max_message_bytes);
        let most = self.set_budget_bytes.filter(|_| !to.named).map_or(most, |budget| most.min(budget));
        SubscribeOptions::new()
            .size_bytes(self.ring_bytes.max(to.max_delivery_bytes.saturating_mul(2)))
            .max_size_bytes(most)
            .start(to.begin.start())
            .policy(to.policy)
            .max_lag_bytes(self.slow.max_lag_bytes().filter(|_| !to.replay))
            .block_timeout(block_timeout)
            .durable(name, hold)
            .confirm(confirm)
            .max_view_bytes((self.batch_bytes > 0).then_some(self.batch_bytes))
            .covered_from(to.covered_from)
            .budget(self.budget.clone().filter(|_| !to.named))
    }
}

/// The ring of messages of up to so many bytes.
fn ring_for(max_message_bytes: u64) -> u64 {
    let deliveries = max_message_bytes.saturating_add(RECORD_HEADER_BYTES as u64).saturating_mul(2);
    deliveries.checked_next_power_of_two().unwrap_or(deliveries)
}
