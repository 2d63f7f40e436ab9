//! The memory behind a pool: a few large reservations, the free extents in each, and one limit on what rings take.

use std::io;

use crate::error::PoolError;
use crate::extent::Extents;
use crate::memory::{Access, Mapping, Reservation, page_bytes};
use crate::sync::{Arc, Mutex, lock};

/// The reservations of a pool. Rings keep it alive.
#[derive(Debug)]
pub(crate) struct Arena {
    reservation_bytes: u64,
    max_bytes: u64,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    in_use: u64,
    reservations: Vec<(Arc<Reservation>, Extents)>,
}

impl Arena {
    pub(crate) fn new(reservation_bytes: u64, max_bytes: u64) -> Arc<Arena> {
        let state = State { in_use: 0, reservations: Vec::new() };
        Arc::new(Arena { reservation_bytes, max_bytes, state: Mutex::new(state) })
    }

    pub(crate) fn max_bytes(&self) -> u64 {
        self.max_bytes
    }

    /// The sum of the capacities of the rings that exist.
    pub(crate) fn in_use_bytes(&self) -> u64 {
        lock(&self.state).in_use
    }

    /// The capacity of a ring for which `asked` bytes are requested.
    pub(crate) fn capacity(&self, asked: u64) -> Result<u64, PoolError> {
        let max = self.max_bytes;
        let capacity = asked.max(page_bytes()).checked_next_power_of_two();
        capacity.filter(|&capacity| capacity <= max).ok_or_else(|| PoolError::Limit {
            asked: capacity.unwrap_or(asked),
            in_use: self.in_use_bytes(),
            max,
        })
    }

    /// Takes a piece of a reservation for a ring of this capacity; makes a reservation if no other has the room. As for `max`, see
    /// [`Arena::charge`].
    pub(crate) fn take(arena: &Arc<Arena>, capacity: u64, max: u64) -> Result<Extent, PoolError> {
        let charge = Arena::charge(arena, capacity, max)?;
        let mut state = lock(&arena.state);
        let free = state
            .reservations
            .iter_mut()
            .enumerate()
            .find_map(|(i, (_, free))| Some((i, free.take(capacity)?)));
        let (index, offset) = match free {
            Some(found) => found,
            None => {
                let size = arena.reservation_bytes.next_multiple_of(page_bytes()).max(capacity);
                let mut extents = Extents::new(size);
                let offset = extents.take(capacity).expect("a new reservation holds at least this ring");
                state.reservations.push((Arc::new(Reservation::new(size)?), extents));
                (state.reservations.len() - 1, offset)
            }
        };
        let reservation = Arc::clone(&state.reservations[index].0);
        drop(state);
        Ok(Extent { charge, reservation, index, offset })
    }

    /// Counts a ring of this capacity in the limit, if no more than `max` bytes are in use then.
    pub(crate) fn charge(arena: &Arc<Arena>, capacity: u64, max: u64) -> Result<Charge, PoolError> {
        let mut state = lock(&arena.state);
        let in_use = state.in_use;
        if capacity > max.saturating_sub(in_use) {
            return Err(PoolError::Limit { asked: capacity, in_use, max });
        }
        state.in_use += capacity;
        drop(state);
        Ok(Charge { arena: Arc::clone(arena), bytes: capacity })
    }
}

/// A ring's part of its pool's limit. Dropping it frees that part.
#[derive(Debug)]
pub(crate) struct Charge {
    arena: Arc<Arena>,
    bytes: u64,
}

impl Drop for Charge {
    fn drop(&mut self) {
        lock(&self.arena.state).in_use -= self.bytes;
    }
}

/// A ring's piece of a reservation. Dropping it returns the pages to the system and the piece to the reservation.
#[derive(Debug)]
pub(crate) struct Extent {
    charge: Charge,
    reservation: Arc<Reservation>,
    index: usize,
    offset: u64,
}

impl Extent {
    /// The capacity of the ring.
    pub(crate) fn bytes(&self) -> u64 {
        self.charge.bytes
    }

    /// Maps the extent. `tracked`: for models.
    pub(crate) fn map(&self, tracked: bool) -> io::Result<Mapping> {
        Mapping::new(&self.reservation, self.offset, self.bytes(), Access::Write, tracked)
    }

    /// Returns the pages of `[at, at + bytes)` of the extent to the system.
    pub(crate) fn release_pages(&self, mapping: &Mapping, at: u64, bytes: u64) -> io::Result<()> {
        mapping.release_pages(&self.reservation, self.offset + at, at, bytes)
    }
}

impl Drop for Extent {
    fn drop(&mut self) {
        // Outside the lock: freeing many pages takes time. If the system refuses, the pages stay backed until the next
        // ring in this extent uses them. A refusal costs memory and nothing else: a ring's memory is not promised to be
        // zero.
        let _ = self.reservation.punch(self.offset, self.bytes());
        lock(&self.charge.arena.state).reservations[self.index].1.give(self.offset, self.bytes());
    }
}
