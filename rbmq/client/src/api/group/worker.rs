//! A worker of a group.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rbmq_wire::connect::Backoff;
use rocketbufs::{Bid, BlockTimeout, InEvent, InView, Start, SubscribeOptions};
use tracing::{debug, info, warn};

use super::link::{Dialer, Link, Marks};
use super::message::{GroupMessage, Word};
use crate::ground::deadline::Deadline;
use crate::ground::error::ConnectError;
use crate::ground::group_error::GroupError;
use crate::ground::options::SubscriberBuilder;
use crate::wire::{GROUP_HEADER_BYTES, GroupJoin, GroupMessage as Wire, Records};

/// The longest wait before the worker looks at its connection.
const STEP: Duration = Duration::from_millis(200);

/// How long closing may take.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);

/// So many messages more than four times its own number wait for a worker before it takes the broker for a faulty one.
const MANY: usize = 10_000;

/// How long a worker that is dropped waits for the messages that are on their way, so that it can give them back.
const DROP_TIMEOUT: Duration = Duration::from_millis(500);

/// After so many ends of its subscription without a message a worker gives up.
const MOST_REFUSALS: u32 = 3;

/// The smallest ring of a worker in this process, in bytes.
const MIN_RING_BYTES: u64 = 256 << 10;

/// Receives messages of a group. The worker connects again by itself, in the calls that wait: what it had not acknowledged then goes to
/// others, and what it had is told again.
///
/// One thread at a time uses a worker; its messages can be acknowledged by any. Dropping it gives back what it has not handed out.
///
/// ```no_run
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use rbmq::Subscriber;
/// let mut worker = Subscriber::builder().group("billing").join("127.0.0.1:7411", "orders")?;
/// while let Some(message) = worker.recv(None)? {
///     println!("attempt {}: {} bytes", message.attempt, message.bytes.len());
///     message.ack();
/// }
/// # Ok(())
/// # }
/// ```
pub struct GroupWorker {
    dialer: Dialer,
    join: GroupJoin,
    marks: Arc<Marks>,
    link: Option<Link>,
    /// The buffer that brings messages; none: the group is not joined.
    bid: Option<Bid>,
    backoff: Backoff,
    /// No connection is tried before.
    retry: Option<Instant>,
    ready: VecDeque<GroupMessage>,
    /// The generation of the group, as of this connection.
    generation: u64,
    /// It gets nothing more, and its buffer will end.
    is_leaving: bool,
    /// Why the broker has ended it for now.
    dismissed: Option<String>,
    /// The broker says no for good, or this process has no memory.
    refused: Option<String>,
    /// Subscriptions that have ended, one after the other, without a message.
    refusals: u32,
    ack_time: Duration,
    spare: Vec<u8>,
}

impl GroupWorker {
    pub(super) fn join(options: SubscriberBuilder, addr: &str, join: GroupJoin) -> Result<Self, GroupError> {
        let dialer = Dialer::new(options, addr)?;
        let mut worker = Self {
            dialer,
            join,
            marks: Arc::default(),
            link: None,
            bid: None,
            backoff: Backoff::default(),
            retry: None,
            ready: VecDeque::new(),
            generation: 0,
            is_leaving: false,
            dismissed: None,
            refused: None,
            refusals: 0,
            ack_time: Duration::ZERO,
            spare: Vec::new(),
        };
        worker.dial()?;
        let timeout = worker.dialer.connect_timeout();
        let deadline = Deadline::after(Some(timeout));
        while worker.bid.is_none() {
            worker.step(deadline.left_within(STEP))?;
            if let Some(reason) = worker.dismissed.take() {
                return Err(GroupError::Refused { group: worker.join.group.to_string(), reason });
            }
            if worker.bid.is_none() && worker.link.is_none() {
                return Err(GroupError::NoGroups { reason: worker.last_reason() });
            }
            if worker.bid.is_none() && deadline.has_passed() {
                return Err(GroupError::TimedOut { waited: timeout });
            }
        }
        Ok(worker)
    }

    /// The next message, waiting at most `timeout` (none: no limit). None if nothing came. A broker that is away is waited for; one attempt
    /// to connect may take longer than the time-out.
    ///
    /// # Errors
    /// The broker refuses this worker for good: the group was deleted, or the user may not read the topic any more. Or the call comes from a
    /// callback of the framework.
    pub fn recv(&mut self, timeout: Option<Duration>) -> Result<Option<GroupMessage>, GroupError> {
        let deadline = Deadline::after(timeout);
        loop {
            if let Some(message) = self.ready.pop_front() {
                return Ok(Some(message));
            }
            let over = deadline.has_passed();
            self.step(deadline.left_within(STEP))?;
            if over && self.ready.is_empty() {
                return Ok(None);
            }
        }
    }

    /// Waits until everything that was acknowledged is in the broker's journal, so that a broker that is killed does not forget it; at most
    /// `timeout` (none: no limit).
    ///
    /// # Errors
    /// As [`GroupWorker::recv`], [`GroupError::TimedOut`], or [`GroupError::InVain`] once for acknowledgements that do not count.
    pub fn flush(&mut self, timeout: Option<Duration>) -> Result<(), GroupError> {
        let deadline = Deadline::after(timeout);
        loop {
            let count = self.marks.take_in_vain();
            if count > 0 {
                return Err(GroupError::InVain { group: self.join.group.to_string(), count });
            }
            if self.marks.is_settled() {
                return Ok(());
            }
            if deadline.has_passed() {
                return Err(GroupError::TimedOut { waited: timeout.unwrap_or_default() });
            }
            self.step(deadline.left_within(STEP))?;
        }
    }

    /// How long this worker may have a message, as the group says.
    pub fn ack_time(&self) -> Duration {
        self.ack_time
    }

    /// Whether there is a connection, and the group is joined.
    pub fn is_joined(&self) -> bool {
        self.bid.is_some()
    }

    /// Gives back what was not handed out, and waits until the broker has everything that was acknowledged, at most 2 s for each. What was handed
    /// out and has no word yet is a failed attempt.
    ///
    /// # Errors
    /// As [`GroupWorker::flush`].
    pub fn close(mut self) -> Result<(), GroupError> {
        self.go(CLOSE_TIMEOUT)?;
        self.flush(Some(CLOSE_TIMEOUT))
    }

    /// Leaves the group: the broker sends nothing more, what is on its way comes, and goes back.
    fn go(&mut self, timeout: Duration) -> Result<(), GroupError> {
        let deadline = Deadline::after(Some(timeout));
        if let Some(link) = self.link.as_ref().filter(|_| self.bid.is_some()) {
            self.marks.send();
            self.is_leaving = link.conn.send_control(&Wire::Leave.encode()).is_ok();
        }
        while self.is_leaving && self.bid.is_some() && self.refused.is_none() && !deadline.has_passed() {
            self.give_back();
            self.step(deadline.left_within(STEP))?;
        }
        self.give_back();
        while self.link.is_some() && !self.marks.is_settled() && !deadline.has_passed() {
            self.step(deadline.left_within(STEP))?;
        }
        Ok(())
    }

    fn give_back(&mut self) {
        self.ready.drain(..).for_each(GroupMessage::release);
        self.marks.send();
    }

    /// Does what comes next: connects, takes an event, or waits.
    fn step(&mut self, wait: Duration) -> Result<(), GroupError> {
        if let Some(reason) = &self.refused {
            let (group, reason) = (self.join.group.to_string(), reason.clone());
            return Err(GroupError::Refused { group, reason });
        }
        self.marks.send();
        let Some(link) = &self.link else { return self.dial_again(wait) };
        let event = link.rin.recv(Some(wait)).map_err(|_| GroupError::InCallback)?;
        match event {
            Some(InEvent::Data(view)) => self.on_data(view),
            Some(InEvent::Control { message }) => self.on_control(&message),
            Some(InEvent::ConnDown { reason }) => self.lose(&reason.to_string()),
            // Everything that was on its way has come.
            Some(InEvent::Closed { .. }) if self.is_leaving => self.bid = None,
            Some(InEvent::Closed { .. } | InEvent::Gone { .. }) => self.lose("the broker ended the buffer"),
            Some(InEvent::Refused { error, .. }) => self.on_refused(&error.to_string()),
            _ => {
                if let Some(reason) = link.conn.down_reason() {
                    self.lose(&reason.to_string());
                }
            }
        }
        if let Some(reason) = &self.refused {
            let (group, reason) = (self.join.group.to_string(), reason.clone());
            return Err(GroupError::Refused { group, reason });
        }
        Ok(())
    }

    /// The subscription of the worker's buffer has ended, here or there. Once may be chance.
    fn on_refused(&mut self, reason: &str) {
        self.refusals += 1;
        if self.refusals >= MOST_REFUSALS {
            self.refused = Some(reason.to_owned());
        }
        self.lose(reason);
    }

    fn dial(&mut self) -> Result<(), ConnectError> {
        let link = self.dialer.dial()?;
        // Lost at once, it is noticed as any other loss.
        let _ = link.conn.send_control(&Wire::Join(self.join.clone()).encode());
        self.link = Some(link);
        Ok(())
    }

    fn dial_again(&mut self, wait: Duration) -> Result<(), GroupError> {
        let now = Instant::now();
        let retry = *self.retry.get_or_insert_with(|| now + self.backoff.pause(now));
        if retry > now {
            std::thread::sleep(wait.min(retry - now));
            return Ok(());
        }
        self.retry = None;
        if let Err(error) = self.dial() {
            debug!("group '{}': {error}", self.join.group);
            if let ConnectError::Broker { source, .. } = &error {
                self.backoff.failed(source);
                return Ok(());
            }
            return Err(error.into());
        }
        Ok(())
    }

    /// The connection is of no use any more.
    fn lose(&mut self, reason: &str) {
        if let Some(link) = self.link.take() {
            link.conn.close("the worker begins anew");
        }
        info!("group '{}': the worker has lost its connection: {reason}", self.join.group);
        self.spare = reason.as_bytes().to_vec();
        (self.bid, self.is_leaving) = (None, false);
        self.marks.lost();
        // Others get them.
        self.ready.clear();
    }

    fn last_reason(&self) -> String {
        String::from_utf8_lossy(&self.spare).into_owned()
    }

    fn on_control(&mut self, bytes: &[u8]) {
        match Wire::decode(bytes) {
            Ok(Wire::Joined { bid, generation, max_delivery_bytes, ack_ms }) => {
                self.generation = generation;
                self.on_joined(bid, max_delivery_bytes, ack_ms)
            }
            Ok(Wire::Marked { count, refused }) => self.marks.confirmed(count, refused),
            Ok(Wire::Refused { again: true, reason }) => {
                self.lose(&reason);
                self.dismissed = Some(reason);
            }
            Ok(Wire::Refused { again: false, reason }) => {
                self.lose(&reason);
                self.refused = Some(reason);
            }
            Ok(other) => debug!("group '{}': unexpected: {other:?}", self.join.group),
            Err(error) => self.lose(&error.to_string()),
        }
    }

    fn on_joined(&mut self, bid: Bid, max_delivery_bytes: u64, ack_ms: u32) {
        let Some(link) = &self.link else { return };
        // Before the worker can get anything, so that nothing comes again of which the broker has not heard yet.
        self.marks.joined(&link.conn, self.generation);
        let size = max_delivery_bytes.saturating_mul(2).max(MIN_RING_BYTES);
        let options =
            SubscribeOptions::new().size_bytes(size).start(Start::Oldest).block_timeout(BlockTimeout::Never);
        if let Err(error) = link.rin.subscribe_with(bid, options) {
            // This process has no memory, and would have none on another connection.
            self.refused = Some(format!("its messages have no ring in this process: {error}"));
            return self.lose(&error.to_string());
        }
        self.ack_time = Duration::from_millis(ack_ms.into());
        self.bid = Some(bid);
        self.backoff.connected(Instant::now());
    }

    fn on_data(&mut self, view: InView) {
        let copied;
        let bytes = match view.as_slice() {
            Some(bytes) => bytes,
            None => {
                copied = view.to_vec().unwrap_or_default();
                &copied
            }
        };
        self.refusals = 0;
        let number = self.marks.number();
        let mut rest = bytes;
        while let Some((header, behind)) = rest.split_first_chunk::<GROUP_HEADER_BYTES>() {
            let [p0, p1, p2, p3, p4, p5, p6, p7, a0, a1, _, _] = *header;
            let mut records = Records::new(behind);
            let Some(record) = records.next_record() else {
                warn!("group '{}': the broker sent what is no message", self.join.group);
                break;
            };
            let position = u64::from_le_bytes([p0, p1, p2, p3, p4, p5, p6, p7]);
            let attempt = u16::from_le_bytes([a0, a1]);
            let (marks, generation, is_said) = (self.marks.clone(), self.generation, false);
            self.ready.push_back(GroupMessage {
                bytes: record.payload.to_vec(),
                attributes: record.attributes.into(),
                position,
                attempt,
                word: Word { marks, position, attempt, generation, number, is_said },
            });
            rest = &behind[records.offset()..];
        }
        view.consume();
        // A broker that was killed knows nothing of what the application still has: its words of that give room for others.
        if self.ready.len() > (self.join.credit as usize).saturating_mul(4).saturating_add(MANY) {
            self.lose("the broker sends more than this worker asked for");
        }
    }
}

impl Drop for GroupWorker {
    fn drop(&mut self) {
        // An error says that there is nothing to give back, or nobody to wait.
        let _ = self.go(DROP_TIMEOUT);
        if let Some(link) = &self.link {
            link.conn.close("the worker is done");
            // What was acknowledged leaves first.
            let _ = link.conn.wait_down(Some(Duration::from_millis(200)));
        }
    }
}

impl std::fmt::Debug for GroupWorker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("GroupWorker").field("group", &self.join.group).finish_non_exhaustive()
    }
}
