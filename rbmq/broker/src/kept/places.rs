//! How far the publishers of a kept topic were stored: the state that a restarted broker continues from. This module does
//! no I/O.
//!
//! ```text
//!   log of the topic    ──┤ 3: 40 bytes ├┤ 5: 8 bytes ├┤ 3: 95 bytes ├──▶      the runs say who wrote how much
//!                         ▲                                            ▲
//!   journal             snapshot: 3 is at 1000, 5 at 64              after a crash: 3 is at 1135, 5 at 72
//! ```
//!
//! The bytes of a publisher in the log are contiguous in its own log, so the runs behind a snapshot say where it is. The journal
//! has an entry only where that is not enough: a new publisher, and one that lost bytes before they came here.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use rbmq_wire::Runs;
use rocketbufs::fields::{FieldError, Reader};
use rocketbufs::{Bid, Epoch, Position};

use super::super::session_key::SessionKey;
use super::clock::Floor;

/// A publisher's buffer, and how much of its log is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    /// The number of the publisher in the runs.
    pub(crate) number: u32,
    /// The publisher.
    pub(crate) key: SessionKey,
    /// Its id of the buffer.
    pub(crate) bid: Bid,
    /// The name of its log.
    pub(crate) epoch: Epoch,
    /// The bytes below this position are stored.
    pub(crate) position: Position,
    /// Those below this position came to no log here, or to another part of it.
    pub(crate) lacks_below: Position,
}

impl Place {
    fn encode(&self, bytes: &mut Vec<u8>) {
        bytes.extend_from_slice(&self.number.to_le_bytes());
        bytes.extend_from_slice(&self.key.instance.to_le_bytes());
        bytes.extend_from_slice(&self.key.client.to_le_bytes());
        bytes.extend_from_slice(&self.bid.to_le_bytes());
        bytes.extend_from_slice(&self.epoch.0.to_le_bytes());
        bytes.extend_from_slice(&self.position.to_le_bytes());
    }

    fn decode(r: &mut Reader<'_>) -> Result<Self, FieldError> {
        let number = r.u32()?;
        let key = SessionKey { instance: r.u128()?, client: r.u128()? };
        let (bid, epoch, position) = (r.u32()?, Epoch(r.u128()?), r.u64()?);
        Ok(Self { number, key, bid, epoch, position, lacks_below: 0 })
    }
}

/// An entry of the journal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Entry {
    /// All publishers at a position of the topic's log. A snapshot replaces everything before.
    Snapshot {
        /// The position of the topic's log.
        at: Position,
        /// The number of the next publisher.
        next_number: u32,
        /// The machine's boot, so that a crash of the machine is noticed.
        boot: u128,
        /// Nothing follows, and everything is on the disk.
        clean: bool,
        /// The publishers.
        places: Vec<Place>,
    },
    /// The next run of a publisher begins at its place.
    Begins {
        /// The position of the topic's log.
        at: Position,
        /// The publisher.
        place: Place,
    },
    /// All floors of the times of deliveries.
    Floors(Vec<Floor>),
}

const SNAPSHOT: u8 = 1;
const BEGINS: u8 = 2;
const FLOORS: u8 = 3;
/// A snapshot that says of each publisher what is lacking of its log.
const SNAPSHOT_WITH_GAPS: u8 = 4;

impl Entry {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(64);
        match self {
            Self::Snapshot { at, next_number, boot, clean, places } => {
                let has_gaps = places.iter().any(|place| place.lacks_below > 0);
                bytes.push(if has_gaps { SNAPSHOT_WITH_GAPS } else { SNAPSHOT });
                bytes.extend_from_slice(&at.to_le_bytes());
                bytes.extend_from_slice(&next_number.to_le_bytes());
                bytes.extend_from_slice(&boot.to_le_bytes());
                bytes.push(u8::from(*clean));
                bytes.extend_from_slice(&u32::try_from(places.len()).unwrap_or(u32::MAX).to_le_bytes());
                for place in places {
                    place.encode(&mut bytes);
                    if has_gaps {
                        bytes.extend_from_slice(&place.lacks_below.to_le_bytes());
                    }
                }
            }
            Self::Begins { at, place } => {
                bytes.push(BEGINS);
                bytes.extend_from_slice(&at.to_le_bytes());
                place.encode(&mut bytes);
            }
            Self::Floors(floors) => {
                bytes.push(FLOORS);
                bytes.extend_from_slice(&u32::try_from(floors.len()).unwrap_or(u32::MAX).to_le_bytes());
                for number in floors.iter().flat_map(|(at, ms)| [at, ms]) {
                    bytes.extend_from_slice(&number.to_le_bytes());
                }
            }
        }
        bytes
    }

    /// Whether these are the bytes of a snapshot.
    pub(crate) fn is_snapshot(bytes: &[u8]) -> bool {
        matches!(bytes.first(), Some(&(SNAPSHOT | SNAPSHOT_WITH_GAPS)))
    }

    /// Whether these are the bytes of floors.
    pub(crate) fn is_floors(bytes: &[u8]) -> bool {
        bytes.first() == Some(&FLOORS)
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, FieldError> {
        let mut r = Reader::new(bytes);
        let entry = match r.u8()? {
            kind @ (SNAPSHOT | SNAPSHOT_WITH_GAPS) => {
                let (at, next_number, boot) = (r.u64()?, r.u32()?, r.u128()?);
                let clean = r.u8()? != 0;
                let count = r.u32()?;
                let places = (0..count).map(|_| {
                    let place = Place::decode(&mut r)?;
                    let lacks_below = if kind == SNAPSHOT { 0 } else { r.u64()? };
                    Ok(Place { lacks_below, ..place })
                });
                Self::Snapshot {
                    at,
                    next_number,
                    boot,
                    clean,
                    places: places.collect::<Result<_, FieldError>>()?,
                }
            }
            BEGINS => Self::Begins { at: r.u64()?, place: Place::decode(&mut r)? },
            FLOORS => {
                let count = r.u32()?;
                Self::Floors((0..count).map(|_| Ok((r.u64()?, r.u64()?))).collect::<Result<_, FieldError>>()?)
            }
            other => return Err(FieldError::value("type of entry", other)),
        };
        r.end()?;
        Ok(entry)
    }
}

/// The known publishers of a topic by number.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Places {
    by_number: BTreeMap<u32, (Place, Position)>,
    next_number: u32,
}

impl Places {
    /// Whether the runs say that the next run of a publisher begins at its place.
    pub(crate) fn are_before(&self, place: Place) -> bool {
        let is_next = |known: &Place| Place { lacks_below: place.lacks_below, ..*known } == place;
        self.by_number.get(&place.number).is_some_and(|(known, _)| is_next(known))
    }

    /// The next run of a publisher begins here. Returns the entry for the journal if the runs do not say so.
    #[cfg(test)]
    pub(crate) fn begins(&mut self, at: Position, place: Place) -> Option<Entry> {
        if self.are_before(place) {
            return None;
        }
        self.apply(at, place);
        Some(Entry::Begins { at, place })
    }

    /// An entry of the journal: what the publisher had before is not all here.
    pub(crate) fn apply(&mut self, at: Position, place: Place) {
        self.next_number = self.next_number.max(place.number.saturating_add(1));
        self.by_number.insert(place.number, (Place { lacks_below: place.position, ..place }, at));
    }

    /// A run of so many bytes was stored, which ends at `at` in the topic's log.
    pub(crate) fn stored(&mut self, number: u32, len: u64, at: Position) {
        self.next_number = self.next_number.max(number.saturating_add(1));
        if let Some((place, last)) = self.by_number.get_mut(&number) {
            place.position += len;
            *last = at;
        }
    }

    /// The runs of stored bytes that begin at `at`.
    pub(crate) fn stored_runs(&mut self, bytes: &[u8], at: Position) {
        let mut runs = Runs::new(bytes);
        while let Some(run) = runs.next() {
            self.stored(run.publisher, run.bytes.len() as u64, at + runs.offset() as u64);
        }
    }

    /// Forgets the publishers that stored nothing for the longest time, if there are more than `limit`.
    pub(crate) fn shrink(&mut self, limit: usize) {
        // A quarter more may wait, so that not each new publisher looks at all of them.
        if self.by_number.len() <= limit + limit / 4 {
            return;
        }
        let mut ages: Vec<(Position, u32)> =
            self.by_number.values().map(|(place, last)| (*last, place.number)).collect();
        ages.sort_unstable();
        for (_, number) in &ages[..ages.len() - limit] {
            self.by_number.remove(number);
        }
    }

    /// The entry that replaces all earlier ones.
    pub(crate) fn snapshot(&self, at: Position, boot: u128, clean: bool) -> Entry {
        Entry::Snapshot { at, next_number: self.next_number, boot, clean, places: self.all() }
    }

    /// Continues from a snapshot.
    pub(crate) fn restore(&mut self, at: Position, next_number: u32, places: Vec<Place>) {
        // Publishers that have stored nothing since are as old as before.
        let last = |place: &Place| {
            let same =
                self.by_number.get(&place.number).filter(|(known, _)| known.position == place.position);
            same.map_or(at, |(_, last)| *last)
        };
        let by_number = places.into_iter().map(|place| (place.number, (place, last(&place)))).collect();
        *self = Self { by_number, next_number };
    }

    /// The publishers that stored last, at most so many, by number.
    pub(crate) fn last(&self, limit: usize) -> Vec<Place> {
        let mut all: Vec<(Place, Position)> = self.by_number.values().copied().collect();
        if all.len() > limit {
            all.select_nth_unstable_by_key(limit, |(place, last)| Reverse((*last, place.number)));
            all.truncate(limit);
            all.sort_unstable_by_key(|(place, _)| place.number);
        }
        all.into_iter().map(|(place, _)| place).collect()
    }

    /// The publishers, by number.
    pub(crate) fn all(&self) -> Vec<Place> {
        self.by_number.values().map(|(place, _)| *place).collect()
    }

    /// A number that no publisher has had.
    pub(crate) fn next_number(&self) -> u32 {
        self.next_number
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rbmq_wire::run_header;

    use super::*;

    fn place(number: u32, position: Position) -> Place {
        let key = SessionKey { instance: 7, client: number.into() };
        Place { number, key, bid: 1, epoch: Epoch(9), position, lacks_below: 0 }
    }

    fn run(number: u32, len: usize) -> Vec<u8> {
        [&run_header(number, len).unwrap()[..], &vec![0; len]].concat()
    }

    #[test]
    fn entries_come_back_and_others_are_refused() {
        let places = vec![place(1, 5), place(4, 1 << 40)];
        let snapshot = Entry::Snapshot { at: 9, next_number: 5, boot: 3, clean: true, places };
        let gap = Place { lacks_below: 4, ..place(1, 5) };
        let gaps =
            Entry::Snapshot { at: 9, next_number: 5, boot: 3, clean: true, places: vec![gap, place(4, 6)] };
        for entry in [snapshot, gaps, Entry::Begins { at: 8, place: place(2, 0) }] {
            let bytes = entry.encode();
            assert_eq!(Entry::decode(&bytes).unwrap(), entry);
            for cut in 0..bytes.len() {
                assert!(Entry::decode(&bytes[..cut]).is_err());
            }
            assert!(Entry::decode(&[&bytes[..], &[0]].concat()).is_err());
        }
        assert!(Entry::decode(&[9]).is_err());
    }

    #[test]
    fn the_publishers_that_wrote_last_stay() {
        let mut places = Places::default();
        for number in 0..6 {
            assert!(places.begins(number.into(), place(number, 0)).is_some());
        }
        places.stored(0, 10, 100);
        places.shrink(5);
        assert_eq!(places.all().len(), 6, "a quarter more may wait");
        places.shrink(4);
        assert_eq!(places.all().iter().map(|place| place.number).collect::<Vec<_>>(), [0, 3, 4, 5]);
        assert_eq!(places.next_number(), 6);
    }

    proptest! {
        /// A crash after any number of steps: the snapshot, the entries and the runs give the same places.
        #[test]
        fn the_places_survive(
            steps in proptest::collection::vec((0u32..4, 1usize..30, 0u64..3, any::<bool>()), 1..40),
        ) {
            let (mut places, mut log, mut journal) = (Places::default(), Vec::new(), vec![]);
            journal.push(places.snapshot(0, 1, false));
            let mut ends = [0u64; 4];
            for (number, len, lost, snapshot) in steps {
                let at = log.len() as Position;
                ends[number as usize] += lost;
                journal.extend(places.begins(at, place(number, ends[number as usize])));
                log.extend(run(number, len));
                ends[number as usize] += len as u64;
                places.stored(number, len as u64, log.len() as Position);
                if snapshot {
                    journal.push(places.snapshot(log.len() as Position, 1, false));
                }
                let (found, _) = recover(&journal, &log);
                prop_assert_eq!(found.all(), places.all());
                prop_assert_eq!(found.next_number(), places.next_number());
            }
        }
    }

    /// As the store does.
    fn recover(journal: &[Entry], log: &[u8]) -> (Places, Position) {
        let mut journaled = Journaled::default();
        journal.iter().for_each(|entry| journaled.add(entry.clone()));
        let at = journaled.at;
        let mut next = at;
        while (next as usize) < log.len() {
            let bytes = &log[next as usize..];
            let len = 8 + Runs::new(bytes).next().unwrap().bytes.len();
            journaled.batch(next, &bytes[..len]);
            next += len as u64;
        }
        (journaled.finish(false), at)
    }
}

/// The contents of a journal, and the runs behind its last snapshot.
#[derive(Debug, Clone, Default)]
pub(crate) struct Journaled {
    places: Places,
    /// The position of the last snapshot.
    pub(crate) at: Position,
    /// The boot of the machine that wrote it.
    pub(crate) boot: u128,
    /// The log was closed in order.
    pub(crate) clean: bool,
    begins: std::collections::VecDeque<(Position, Place)>,
    /// The floors of times.
    pub(crate) floors: Vec<Floor>,
}

impl Journaled {
    /// The next entry of the journal.
    pub(crate) fn add(&mut self, entry: Entry) {
        match entry {
            Entry::Snapshot { at, next_number, boot, clean, places } => {
                self.places.restore(at, next_number, places);
                (self.at, self.boot, self.clean) = (at, boot, clean);
                self.begins.clear();
            }
            Entry::Begins { at, place } => {
                self.clean = false;
                self.begins.push_back((at, place));
            }
            Entry::Floors(floors) => self.floors = floors,
        }
    }

    /// The log lacks bytes that the last snapshot counts as stored, and nobody knows whose.
    pub(crate) fn lacks(&mut self) {
        for (place, _) in self.places.by_number.values_mut() {
            place.lacks_below = place.position;
        }
    }

    /// Forgets the publishers that stored nothing for the longest time, if there are more than `limit`.
    pub(crate) fn shrink(&mut self, limit: usize) {
        self.places.shrink(limit);
    }

    /// A number that no publisher has had, and those of the publishers that wrote last, at most so many.
    pub(crate) fn noted(&self, limit: usize) -> (u32, Vec<Place>) {
        (self.places.next_number(), self.places.last(limit))
    }

    /// Stored runs behind the last snapshot, in order.
    pub(crate) fn batch(&mut self, at: Position, bytes: &[u8]) {
        self.begin_up_to(at);
        self.places.stored_runs(bytes, at);
    }

    /// The places at the end of the log. An entry whose run was not stored counts too: its publisher begins there. After a crash of
    /// the machine, the log may also lack runs before that entry. A publisher that had others then begins behind those that are there.
    pub(crate) fn finish(mut self, crashed: bool) -> Places {
        if crashed {
            let known = &self.places.by_number;
            self.begins.retain(|(_, place)| !known.contains_key(&place.number));
        }
        self.begin_up_to(Position::MAX);
        self.places
    }

    fn begin_up_to(&mut self, at: Position) {
        while let Some((begins, place)) = self.begins.front().copied().filter(|(begins, _)| *begins <= at) {
            self.places.apply(begins, place);
            self.begins.pop_front();
        }
    }
}
