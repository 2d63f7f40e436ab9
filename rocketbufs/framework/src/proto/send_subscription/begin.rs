//! Where a subscription begins at its sender.
//!
//! ```text
//!   SUBSCRIBE asks for          without a known position              with the position of a durable subscription
//!   position, of this log       that position                         that position
//!   position, of another log    the oldest delivery, restarted        the oldest delivery, restarted
//!   anything else               what was asked for                    the start of the first delivery that is not confirmed
//! ```
//!
//! A position is a promise of the receiver, which has everything below, so it is taken as it is. If the sender no longer has it,
//! the first step reports the loss.

use rocketring::Ring;

use crate::ground::planted;
use crate::ground::types::{Epoch, Policy, Position};
use crate::proto::Start;

/// The positions of a durable subscription that comes back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KnownPositions {
    /// The confirmed positions by level.
    pub levels: [Position; 3],
    /// The position of its hold in the ring.
    pub holds: Option<Position>,
    /// The start of a delivery at which it can resume, if it is still in the ring.
    pub resume_boundary: Position,
}

/// The facts that decide where a subscription begins, besides its SUBSCRIBE.
#[derive(Debug, Clone, Copy)]
pub struct Origin {
    /// The known positions of a durable subscription with this name.
    pub known: Option<KnownPositions>,
    /// The first position of a subscription that asked for a time, if it is known.
    pub past: Option<Position>,
    /// The buffer holds data until it is delivered.
    pub keeps: bool,
    /// The receiver may map the ring.
    pub maps: bool,
}

/// How a subscription begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Begin {
    /// The first position that is sent.
    pub start: Position,
    /// The positions that the subscription has confirmed, by level. They are below `start` if the peer
    /// received more than it can be trusted to keep; its position was held there.
    pub levels: [Position; 3],
    /// Whether the log is not the one that the peer asked for.
    pub restarted: bool,
    /// The position to hold in the ring; `None` if the subscription holds nothing.
    pub holds_at: Option<Position>,
    /// The start of a delivery at which the subscription can resume; 0 if not known.
    pub resume_boundary: Position,
}

impl Begin {
    /// Decides for the log of this epoch. The tail may move afterwards, when the writer does: if the position cannot be held,
    /// decide again.
    pub fn new(ring: &Ring, epoch: Epoch, asked: Start, policy: Policy, origin: &Origin) -> Self {
        let oldest = origin.oldest(ring);
        let (start, restarted) = match asked {
            Start::Position(of, at) if of == epoch || planted::is(planted::EPOCH_IGNORED) => (at, false),
            Start::Position(..) => (oldest, true),
            _ => (origin.first(ring, asked), false),
        };
        let goes_on = matches!(asked, Start::Position(..)) && !restarted;
        let known = origin.known;
        let resume_boundary = if goes_on { known.map_or(0, |known| known.resume_boundary) } else { start };
        let known = known.filter(|_| !restarted);
        if policy == Policy::Overwrite || !ring.flow_control() {
            return Self { start, levels: [start; 3], restarted, holds_at: None, resume_boundary };
        }
        let levels = match known {
            // Data that landed but was not released stays at the held position until a CREDIT says more.
            Some(known) => known.levels.map(|level| level.min(start)),
            // The subscription resumes elsewhere with its data. Its first CREDIT reports the confirmed
            // positions.
            None if goes_on => [start, 0, 0],
            None => [start; 3],
        };
        let floor = match known.and_then(|known| known.holds) {
            Some(holds) if origin.keeps => holds.min(levels[1]),
            _ => levels[0],
        };
        let tail = ring.tail();
        // The subscription resumes below the tail: hold the rest.
        let at = if start < tail { oldest } else { start };
        let at = if floor >= tail { at.min(floor) } else { at };
        // A receiver that maps this ring may still read unconsumed bytes. Its first CREDIT reports how many;
        // until then the whole ring is held.
        let at = if origin.maps && goes_on { at.min(tail) } else { at };
        Self { start, levels, restarted, holds_at: Some(at), resume_boundary }
    }
}

impl Origin {
    /// Returns the position of a receiver that comes back without its data. A relay that restarted may have lost data that
    /// landed there and was not forwarded. A buffer that holds data until it is delivered sends it again.
    fn received_before(&self, known: &KnownPositions) -> Position {
        known.levels[usize::from(self.keeps)]
    }

    /// Returns the start of a complete delivery, which was noted while it was known; in a full ring the index may no longer
    /// contain it. If a receiver has joined downstream, the confirmed position may be below it since.
    fn resume_boundary(&self, ring: &Ring) -> Option<Position> {
        let known = self.known.filter(|known| known.resume_boundary <= self.received_before(known))?;
        Some(known.resume_boundary).filter(|at| *at >= ring.tail())
    }

    /// Returns the start of the oldest delivery.
    fn oldest(&self, ring: &Ring) -> Position {
        let oldest = ring.boundary_at_or_after(ring.tail()).unwrap_or_else(|| ring.boundary());
        let floor = self.resume_boundary(ring).filter(|_| self.keeps);
        floor.map_or(oldest, |floor| floor.min(oldest))
    }

    /// Returns the first position of a subscription without a position of its own.
    fn first(&self, ring: &Ring, asked: Start) -> Position {
        if let Some(known) = &self.known {
            // Not every end of a delivery is known. A position that is too early repeats some data; one
            // that is too late would lose data.
            let received = self.received_before(known);
            let begins = ring.boundary_at_or_before(received);
            let begins = begins.max(self.resume_boundary(ring).filter(|at| *at <= received));
            return begins
                .unwrap_or_else(|| if received < ring.tail() { received } else { self.oldest(ring) });
        }
        match asked {
            Start::First => ring.start(),
            Start::Last => ring.last_delivery().unwrap_or_else(|| ring.boundary()),
            Start::Ago(_) => self.past.filter(|at| *at >= ring.tail()).unwrap_or_else(|| self.oldest(ring)),
            Start::Newest => ring.boundary(),
            Start::Oldest | Start::Position(..) => self.oldest(ring),
        }
    }
}

#[cfg(test)]
mod tests {
    use rocketring::{Pool, PoolConfig, RingConfig, RingReceiver};

    use super::*;

    const EPOCH: Epoch = Epoch(7);
    const DELIVERY: u64 = 1 << 10;
    const CAPACITY: u64 = 16 << 10;
    const NEW: Origin = Origin { known: None, past: None, keeps: false, maps: false };

    /// A ring of 16 KiB with so many deliveries of 1 KiB; the receiver ends one at a time.
    fn ring(deliveries: u64) -> (Ring, RingReceiver) {
        let pool = Pool::new(PoolConfig { reservation_bytes: 1 << 20, max_bytes: 1 << 24 }).unwrap();
        let ring = pool
            .ring(RingConfig {
                capacity_bytes: CAPACITY,
                retain_bytes: None,
                max_delivery_bytes: Some(DELIVERY),
                flow_control: true,
                start: 0,
            })
            .unwrap();
        let mut receiver = ring.receiver().unwrap();
        for _ in 0..deliveries {
            ring.grant();
            assert_eq!(receiver.copy_in(&[1; DELIVERY as usize]), DELIVERY as usize);
            receiver.end();
        }
        (ring, receiver)
    }

    fn known(levels: [Position; 3], resume_boundary: Position) -> Origin {
        let known = KnownPositions { levels, holds: Some(levels[0]), resume_boundary };
        Origin { known: Some(known), ..NEW }
    }

    fn begin(ring: &Ring, asked: Start, origin: &Origin) -> Begin {
        Begin::new(ring, EPOCH, asked, Policy::Block, origin)
    }

    #[test]
    fn a_new_subscription_begins_where_it_asks_to() {
        let (ring, _receiver) = ring(5);
        let past = Origin { past: Some(2 * DELIVERY), ..NEW };
        let cases = [
            (Start::Newest, NEW, 5),
            (Start::Oldest, NEW, 0),
            (Start::First, NEW, 0),
            (Start::Last, NEW, 4),
            (Start::Ago(10), past, 2),
            (Start::Ago(10), NEW, 0),
            (Start::Position(EPOCH, 3 * DELIVERY), NEW, 3),
        ];
        for (asked, origin, deliveries) in cases {
            let begin = begin(&ring, asked, &origin);
            assert_eq!((begin.start, begin.restarted), (deliveries * DELIVERY, false), "{asked:?}");
            assert_eq!(begin.holds_at, Some(begin.start), "{asked:?}");
        }
        let other = begin(&ring, Start::Position(Epoch(8), 99), &NEW);
        assert_eq!((other.start, other.restarted, other.levels), (0, true, [0; 3]));
        let holds = Begin::new(&ring, EPOCH, Start::Oldest, Policy::Overwrite, &NEW).holds_at;
        assert_eq!(holds, None);
    }

    #[test]
    fn a_position_elsewhere_confirms_what_its_first_credit_says() {
        let (ring, _receiver) = ring(5);
        let at = 3 * DELIVERY + 10;
        let resumed = begin(&ring, Start::Position(EPOCH, at), &NEW);
        assert_eq!((resumed.start, resumed.levels), (at, [at, 0, 0]));
        // A receiver that maps the ring may read further back.
        let mapped = begin(&ring, Start::Position(EPOCH, at), &Origin { maps: true, ..NEW });
        assert_eq!((mapped.start, mapped.holds_at), (at, Some(0)));
    }

    #[test]
    fn a_durable_subscription_goes_on_at_the_start_of_a_delivery() {
        let (ring, _receiver) = ring(5);
        let inside = [3 * DELIVERY + 10, 2 * DELIVERY, DELIVERY];
        let back = begin(&ring, Start::Newest, &known(inside, 3 * DELIVERY));
        assert_eq!((back.start, back.resume_boundary), (3 * DELIVERY, 3 * DELIVERY));
        assert_eq!(back.levels, [3 * DELIVERY, 2 * DELIVERY, DELIVERY]);
        // A buffer that holds data until it is delivered sends bytes that only landed once more.
        let keeps = Origin { keeps: true, ..known(inside, 2 * DELIVERY) };
        let again = begin(&ring, Start::Newest, &keeps);
        assert_eq!((again.start, again.holds_at), (2 * DELIVERY, Some(2 * DELIVERY)));
    }

    #[test]
    fn what_was_overwritten_is_reported_as_lost() {
        let (ring, _receiver) = ring(40);
        let tail = ring.tail();
        assert!(tail > DELIVERY);
        for (asked, origin) in
            [(Start::Position(EPOCH, DELIVERY), NEW), (Start::Newest, known([DELIVERY; 3], DELIVERY))]
        {
            let begin = begin(&ring, asked, &origin);
            assert_eq!(begin.start, DELIVERY, "the first step reports the loss");
            assert!(begin.holds_at.unwrap() >= tail, "{begin:?}");
        }
    }
}
