//! A subscription that has a ring only while there is data for it: its share of a budget.
//!
//! ```text
//!   granted          what the sender was told, as far as it may write
//!   wanted           the sender has whole deliveries up to here, it said
//!   drained          nothing that came is still in memory: all of it was given back
//!   quiet            drained, and nothing more was granted: the ring can go
//! ```

use rocketring::{Ring, RingReceiver};

use super::{InLog, InboundShared};
use crate::lock::lock;
use crate::proto::Credit;
use crate::state::{Calls, Membership, Need, Share};
use crate::types::Position;

/// See [the module](self).
pub(crate) struct Loan {
    member: Membership,
    /// What it takes at least to receive a whole delivery, and the ring it would have by itself, in bytes.
    least: u64,
    full: u64,
    /// The capacity of its ring; 0: it has none.
    share: u64,
    /// All of the ring is granted, not only what the sender has.
    ahead: bool,
    /// How far may be granted, if not all of the ring is.
    offer: Position,
    wanted: Position,
    waiting: bool,
    /// The budget knows that the ring is drained; it may be called back.
    idle: bool,
    /// RECALL is under way: nothing is granted before its answer.
    recalling: bool,
}

/// What is to be done for a subscription's ring.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum LoanStep {
    Nothing,
    /// RECALL what was granted.
    Recall,
    /// The ring goes.
    Release,
    /// A ring is needed.
    Take(Need),
}

impl Loan {
    /// A subscription that begins at `start`, with no ring.
    pub(crate) fn new(member: Membership, start: Position, least: u64, full: u64) -> Self {
        Self {
            member,
            least,
            full,
            share: 0,
            ahead: false,
            offer: start,
            wanted: start,
            waiting: false,
            idle: false,
            recalling: false,
        }
    }

    /// The largest delivery, or up to twice that, in bytes.
    pub(crate) fn max_delivery(&self) -> u64 {
        self.least / 2
    }

    /// How far the sender may write; less than it was told before counts for nothing.
    pub(super) fn grant(&self) -> Position {
        self.offer
    }

    /// The ring that the subscription would have by itself, in bytes.
    pub(crate) fn full(&self) -> u64 {
        self.full
    }

    pub(crate) fn take(&mut self, need: Need) -> (Option<Share>, Calls) {
        let (share, calls) = self.member.take(need);
        self.waiting = share.is_none();
        (share, calls)
    }

    /// It wants nothing, or gets nothing any more.
    pub(crate) fn leave_line(&mut self) -> Calls {
        if std::mem::take(&mut self.waiting) { self.member.give_back() } else { Calls::default() }
    }
}

impl InLog {
    fn granted(&self) -> Position {
        self.credit.told().grant
    }

    fn is_drained(&self) -> bool {
        self.pins.is_empty() && self.consumed >= self.log.ring.head()
    }

    /// Whether the sender wants more than it may.
    fn wants_more(&self, loan: &Loan) -> bool {
        loan.wanted > self.granted().max(self.log.ring.head())
    }

    /// Up to where is to be granted, if that is further than before and worth a message.
    fn next_offer(&self, loan: &Loan) -> Option<Position> {
        if loan.share == 0 || loan.recalling {
            return None;
        }
        let (granted, reach) = (self.granted(), self.log.ring.grant());
        let wants = self.wants_more(loan);
        // The begin of a delivery is there: the rest must come, or nothing of it can be given back.
        let partial = self.log.ring.head() > self.log.ring.boundary();
        let short = loan.member.is_short();
        let to = if loan.ahead && !short {
            reach
        } else if wants && (partial || !short && (loan.share >= loan.least || loan.wanted <= reach)) {
            loan.wanted.min(reach)
        } else {
            return None;
        };
        let stuck = wants && (partial || self.is_drained() || to == loan.wanted);
        (to > granted && (stuck || to >= granted + loan.share / 4)).then_some(to)
    }

    /// Whether the worker has something to do about the ring, as the application gave something back.
    pub(super) fn loan_due(&self) -> bool {
        let Some(loan) = &self.loan else { return false };
        let drained = self.is_drained();
        match loan.share {
            0 => drained && self.wants_more(loan),
            _ if loan.recalling => false,
            _ => {
                drained && (loan.member.is_short() || self.wants_more(loan))
                    || self.next_offer(loan).is_some()
            }
        }
    }

    /// The application gave something back: if that was all, the budget hears that the ring can be called back. Without a
    /// connection it goes at once: nobody could bring more, or be called.
    pub(super) fn look_drained(&mut self) -> Calls {
        let has_ring = self.loan.as_ref().is_some_and(|loan| loan.share > 0);
        if !has_ring || !self.is_drained() {
            return Calls::default();
        }
        if self.receiver.is_some() {
            return self.free_ring();
        }
        match &mut self.loan {
            Some(loan) if !loan.idle => {
                loan.idle = true;
                loan.member.idle()
            }
            _ => Calls::default(),
        }
    }

    /// The ring goes, where the landing end is here.
    fn free_ring(&mut self) -> Calls {
        let (receiver, calls) = self.swap_ring(Ring::unbacked(self.log.ring.head()), None);
        self.receiver = receiver;
        calls
    }

    /// What to do now, and whom that concerns. What may be granted is in the next CREDIT.
    pub(crate) fn loan_step(&mut self) -> (LoanStep, Calls) {
        let nothing = || (LoanStep::Nothing, Calls::default());
        let (drained, head) = (self.is_drained(), self.log.ring.head());
        let Some(loan) = &self.loan else { return nothing() };
        let wants = self.wants_more(loan);
        let (short, plenty) = (loan.member.is_short(), wants && !loan.ahead && loan.member.is_plenty());
        let release = self.release(loan);
        let Some(loan) = &mut self.loan else { return nothing() };
        if loan.share == 0 {
            if !wants {
                return (LoanStep::Nothing, loan.leave_line());
            }
            // A hole that was not told yet lies in the ring that is there.
            let need = Need { bytes: loan.wanted - head, least: loan.least, full: loan.full };
            return (if drained { LoanStep::Take(need) } else { LoanStep::Nothing }, Calls::default());
        }
        if loan.recalling {
            return nothing();
        }
        if short && drained && release != LoanStep::Nothing {
            return (release, Calls::default());
        }
        let mut calls = Calls::default();
        if short && std::mem::take(&mut loan.idle) {
            calls = loan.member.busy();
        }
        loan.ahead |= plenty && loan.share >= loan.least;
        let offer = self.loan.as_ref().and_then(|loan| self.next_offer(loan));
        let Some(loan) = &mut self.loan else { return nothing() };
        match offer {
            Some(to) => loan.offer = to,
            // What the sender has does not fit.
            None if wants && drained && !loan.ahead => return (release, calls),
            None => {}
        }
        (LoanStep::Nothing, calls)
    }

    /// Nothing came for a while.
    pub(crate) fn loan_at_rest(&self) -> LoanStep {
        match &self.loan {
            Some(loan) if loan.share > 0 && self.is_drained() && !loan.recalling => self.release(loan),
            _ => LoanStep::Nothing,
        }
    }

    /// How the ring goes in which nothing is. What was granted because the sender asked for it is on its way, and RECALL
    /// would change nothing.
    fn release(&self, loan: &Loan) -> LoanStep {
        let granted = self.granted();
        if granted <= self.log.ring.head() {
            LoanStep::Release
        } else if granted > loan.wanted {
            LoanStep::Recall
        } else {
            LoanStep::Nothing
        }
    }

    pub(crate) fn recalling(&mut self) {
        if let Some(loan) = &mut self.loan {
            loan.recalling = true;
        }
    }

    /// The sender asked for confirmations, or for credit.
    pub(crate) fn on_ask(&mut self, mut wanted: [Position; 3]) {
        let granted = self.granted();
        if let Some(loan) = self.loan.as_mut().filter(|_| wanted[0] > granted) {
            loan.wanted = loan.wanted.max(wanted[0]);
            wanted[0] = 0;
        }
        self.credit.on_ask(wanted);
    }

    /// CREDIT, if one is due, with the positions as they are now.
    pub(crate) fn next_credit(&mut self, now: Credit) -> Option<Credit> {
        let granted = self.granted();
        let offers = self.loan.as_ref().is_some_and(|loan| !loan.recalling && loan.offer > granted);
        let credit = if offers { self.credit.tell(now) } else { self.credit.credit(now) }?;
        Some(self.as_told(credit))
    }

    /// A CREDIT as it is sent: while a grant is called back none is told.
    pub(crate) fn as_told(&self, credit: Credit) -> Credit {
        match &self.loan {
            Some(loan) if loan.recalling => Credit { grant: credit.landed, ..credit },
            _ => credit,
        }
    }

    /// RECALLED: the grant ends at `at`. False if that is no answer to a RECALL, or more than was granted.
    pub(crate) fn recalled(&mut self, at: Position) -> bool {
        let granted = self.granted();
        let Some(loan) = self.loan.as_mut().filter(|loan| loan.recalling && at <= granted) else {
            return false;
        };
        loan.recalling = false;
        // Whatever it wants beyond that it asks for anew.
        (loan.offer, loan.wanted) = (at, at);
        self.credit.take_back(at);
        true
    }

    /// The ring of its share, from here on, or none; returns the ring receiver that is to be bound.
    pub(crate) fn swap_ring(&mut self, ring: Ring, share: Option<Share>) -> (Option<RingReceiver>, Calls) {
        let head = ring.head();
        let Some(loan) = &mut self.loan else { return (None, Calls::default()) };
        let calls = if share.is_none() { loan.member.give_back() } else { Calls::default() };
        loan.share = share.map_or(0, |share| share.bytes);
        loan.ahead = share.is_some_and(|share| share.ahead);
        (loan.idle, loan.waiting) = (false, false);
        let reach = ring.grant();
        loan.offer = match share {
            Some(Share { ahead: true, .. }) => reach,
            Some(_) => loan.wanted.min(reach),
            None => head,
        };
        self.hold = ring.hold(head).ok();
        let receiver = ring.receiver();
        self.log.ring = ring;
        (receiver, calls)
    }

    /// The connection is gone: nothing is granted any more, and the landing end is here.
    pub(crate) fn suspend_loan(&mut self) -> Calls {
        // Over another connection the sender may not know any more where the delivery ends whose begin is here, and a
        // ring that was made for it may have no room for a later end.
        if let (Some(_), Some(receiver)) = (&self.loan, &mut self.receiver) {
            receiver.drop_partial();
        }
        let (head, drained) = (self.log.ring.head(), self.is_drained());
        let Some(loan) = &mut self.loan else { return Calls::default() };
        loan.recalling = false;
        loan.ahead = false;
        (loan.offer, loan.wanted) = (head, head);
        let mut calls = loan.leave_line();
        if std::mem::take(&mut loan.idle) {
            calls.add(loan.member.busy());
        }
        let share = loan.share;
        self.credit.take_back(head);
        if share > 0 && drained {
            calls.add(self.free_ring());
        }
        calls
    }
}

impl InboundShared {
    /// No connection brings anything any more: others need not wait behind it.
    pub(crate) fn detach(&self) {
        let mut state = lock(&self.state);
        state.disconnect();
        let calls = state.log.as_mut().and_then(|in_log| in_log.loan.as_mut()).map(Loan::leave_line);
        drop(state);
        calls.unwrap_or_default().run();
    }

    /// There may be room for it in its budget now, or others want its share: its worker looks. Without a connection it
    /// has no say.
    pub(crate) fn call(&self) -> Option<Calls> {
        let mut state = lock(&self.state);
        if let Some((conn, _)) = state.wire {
            drop(state);
            self.inner.workers[self.inner.worker_of(conn)].mark(self.slot);
            return None;
        }
        let loan = state.log.as_mut()?.loan.as_mut()?;
        loan.idle = false;
        Some(loan.member.busy())
    }
}
