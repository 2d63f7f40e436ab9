//! A connection: its state, and its queue pair's completions.
//!
//! ```text
//!  connect ─▶ Resolving ─▶ Routing ─▶ Connecting ─┐
//!                          adopt ───▶ Accepting ──┴▶ Open ──▶ Closing ──▶ Down ──▶ (forget)
//! ```

use std::collections::BTreeSet;
use std::time::Instant;

use rocketnet::{ConnId, Down, Event, WireId};
use rocketring::RingReceiver;

use crate::config::RdmaConfig;
use crate::frame::Record;
use crate::intake::{Ends, Handled, Intake};
use crate::outgoing::Outgoing;
use crate::receives::Receives;
use crate::sys::{Done, Id, QueuePair};

/// Completion batches taken from one connection before others have their turn.
const BATCHES: usize = 32;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum State {
    Resolving,
    Routing,
    Connecting,
    Accepting,
    Open,
    /// The queue is sent; arriving data is discarded.
    Closing {
        why: String,
    },
    Down,
}

/// Deadlines, each with its connection.
pub(crate) type Deadlines = BTreeSet<(Instant, u64)>;

pub(crate) struct Conn {
    pub id: ConnId,
    pub state: State,
    /// The address, as given.
    pub addr: String,
    /// The identifier of rdma_cm, until there is a queue pair.
    pub cm: Option<Id>,
    pub queue_pair: Option<QueuePair>,
    pub receives: Receives,
    pub intake: Intake,
    pub out: Outgoing,
    pub paused: bool,
    /// The reason of the end, which is reported once everything that arrived before was handled.
    pub ended: Option<Down>,
    pub deadline: Option<Instant>,
    /// The connection is in the list of connections to serve again.
    pub listed: bool,
    done: Vec<Done>,
}

impl Conn {
    pub fn new(state: State, addr: &str, config: &RdmaConfig) -> Self {
        Self {
            id: ConnId(0),
            state,
            addr: addr.into(),
            cm: None,
            queue_pair: None,
            receives: Receives::new(config.receive_depth, 0),
            intake: Intake::new(config.max_control_bytes),
            out: Outgoing::new(config),
            paused: false,
            ended: None,
            deadline: None,
            listed: false,
            done: Vec::new(),
        }
    }

    pub fn is_down(&self) -> bool {
        self.state == State::Down
    }

    /// Whether the connection accepts writes and messages.
    pub fn is_taking(&self) -> bool {
        !matches!(self.state, State::Closing { .. } | State::Down)
    }

    /// The handshake of rdma_cm is complete: both ends may send.
    pub fn open(&mut self, config: &RdmaConfig, peer_receives: u32) {
        self.receives = Receives::new(config.receive_depth, peer_receives);
        self.state = State::Open;
    }

    /// Sets the queue pair: rings that were bound before are registered.
    pub fn set_queue_pair(&mut self, queue_pair: QueuePair) -> Result<(), String> {
        let keys = self.intake.register_all(&queue_pair);
        self.queue_pair = Some(queue_pair);
        for (wire, key) in keys? {
            self.out.say(Record::Key(wire, key));
        }
        Ok(())
    }

    /// Binds a ring receiver, and sends the peer its key. The error ends the connection.
    pub fn bind(&mut self, wire: WireId, receiver: RingReceiver) -> Result<(), String> {
        let key = self.intake.bind(self.queue_pair.as_ref(), wire, receiver)?;
        match key {
            Some(key) => self.out.say(Record::Key(wire, key)),
            None if self.queue_pair.is_some() => self.out.say(Record::Revoke(wire)),
            None => {}
        }
        Ok(())
    }

    pub fn discard(&mut self, wire: WireId) {
        let nowhere = self.intake.discard(wire);
        self.out.say(Record::Key(wire, nowhere));
    }

    pub fn unbind(&mut self, wire: WireId) -> Option<RingReceiver> {
        let (receiver, known) = self.intake.unbind(wire);
        if known && !self.is_down() {
            self.out.say(Record::Revoke(wire));
        }
        receiver
    }

    /// Takes the adapter's completions. True if all were taken.
    pub fn take_completions(&mut self) -> bool {
        let Some(queue_pair) = &mut self.queue_pair else { return true };
        for _ in 0..BATCHES {
            let all = queue_pair.take(&mut self.done);
            for done in self.done.drain(..) {
                match done {
                    Done::Sent(number) => self.out.completed(number),
                    Done::Failed(status) => {
                        self.ended.get_or_insert_with(|| Down::Broken(queue_pair.describe(status)));
                    }
                    came => self.intake.push(came),
                }
            }
            if all {
                return true;
            }
        }
        false
    }

    /// Handles arrived messages and posts the items that there is room for. True: there is more to handle.
    pub fn serve(&mut self, events: &mut Vec<Event>) -> Result<bool, Down> {
        let quiet = matches!(self.state, State::Closing { .. });
        let may_look = quiet || (self.state == State::Open && !self.paused);
        let Some(queue_pair) = &mut self.queue_pair else { return Ok(false) };
        let mut more = false;
        if may_look {
            let mut ends = Ends { id: self.id, queue_pair, out: &mut self.out, receives: &mut self.receives };
            more = matches!(self.intake.handle(&mut ends, quiet, events)?, Handled::More);
        }
        if let Some(ended) = self.ended.clone().filter(|_| self.intake.is_empty() && may_look) {
            return Err(ended);
        }
        self.flush().map_err(Down::Broken)?;
        Ok(more)
    }

    /// Posts the items that there is room for. True if everything was posted.
    pub fn flush(&mut self) -> Result<bool, String> {
        let may = matches!(self.state, State::Open | State::Closing { .. }) && self.ended.is_none();
        match &mut self.queue_pair {
            Some(queue_pair) if may => self.out.flush(queue_pair, &mut self.receives),
            _ => Ok(self.out.is_idle()),
        }
    }

    /// Everything was sent and acknowledged.
    pub fn is_finished(&self) -> bool {
        matches!(self.state, State::Closing { .. }) && self.out.is_idle()
    }

    /// The reason to report for a connection that ended with `seen`.
    pub fn reason(&self, seen: Down) -> Down {
        match (&self.state, seen) {
            (State::Closing { why }, _) => Down::Local(why.clone()),
            (State::Resolving | State::Routing | State::Connecting, Down::Broken(reason)) => {
                Down::Refused { addr: self.addr.clone(), reason }
            }
            (_, seen) => seen,
        }
    }

    /// Releases everything but the ring receivers. Bytes that landed before the queue pair ended are in their rings then.
    pub fn end(&mut self) {
        if let Some(queue_pair) = &self.queue_pair {
            queue_pair.disconnect();
        }
        // Nothing lands from here on. Landed bytes may have been reported to the peer.
        while !self.take_completions() {}
        if let Some(queue_pair) = &mut self.queue_pair {
            let mut ends = Ends { id: self.id, queue_pair, out: &mut self.out, receives: &mut self.receives };
            // Other messages of the peer are no longer needed.
            let _ = self.intake.handle(&mut ends, true, &mut Vec::new());
        }
        self.out.kill();
        self.queue_pair = None;
        self.cm = None;
        self.intake.revoke_all();
        self.state = State::Down;
    }

    pub fn set_deadline(&mut self, at: Option<Instant>, deadlines: &mut Deadlines) {
        if let Some(old) = self.deadline.take() {
            deadlines.remove(&(old, self.id.0));
        }
        if let Some(at) = at {
            deadlines.insert((at, self.id.0));
            self.deadline = Some(at);
        }
    }
}
