//! The times of deliveries in a kept topic, which never go back.
//!
//! ```text
//!   clock of the machine    10  11  12 │ 7   8  13        set back by an administrator, or by a server of time
//!   times of deliveries     10  11  12 │ 12  12 13        a floor: from this position on, no time is earlier than 12
//! ```
//!
//! A log has each delivery's time by the machine's clock. Whoever makes names of times and positions needs times that grow, and the same ones after a
//! restart. So a step back is a floor in the journal, before anybody learns of the delivery. There are as many floors as such steps.

use std::sync::Arc;

use locks::Mutex;
use rocketbufs::Position;
use seglog::{Batch, Read, ReadError, Reader};

/// A floor: the position from which on it holds, and the time in milliseconds since 1970.
pub(crate) type Floor = (Position, u64);

/// The floors of a topic, which grow in both numbers. Clones share them.
#[derive(Debug, Clone, Default)]
pub(crate) struct Clock(Arc<Mutex<Vec<Floor>>>);

impl Clock {
    pub(crate) fn new(floors: Vec<Floor>) -> Self {
        Self(Arc::new(Mutex::new(floors)))
    }

    /// All floors.
    pub(crate) fn floors(&self) -> Vec<Floor> {
        self.0.lock().clone()
    }

    /// The time of a delivery, of which the log says `time`.
    pub(crate) fn time(&self, position: Position, time: u64) -> u64 {
        let floors = self.0.lock();
        let count = floors.partition_point(|(at, _)| *at <= position);
        count.checked_sub(1).map_or(time, |last| time.max(floors[last].1))
    }

    /// A delivery was appended behind one of the time `last`. Returns whether there is a new floor because of it.
    pub(crate) fn appended(&self, position: Position, time: u64, last: u64) -> bool {
        let is_back = self.time(position, time) < last;
        if is_back {
            self.0.lock().push((position, last));
        }
        is_back
    }

    /// Forgets the floors that concern only deliveries before a position.
    pub(crate) fn forget_before(&self, first: Position) {
        let mut floors = self.0.lock();
        let before = floors.partition_point(|(at, _)| *at <= first);
        floors.drain(..before.saturating_sub(1));
    }

    /// The time of the last delivery of a log that is opened. A delivery that was appended just before a process was killed may lack its floor, which
    /// it gets now: then this is true.
    pub(crate) fn recover(&self, reader: &mut Reader) -> Result<(u64, bool), ReadError> {
        let end = reader.end();
        let Some(last) = batch_before(reader, end)? else { return Ok((0, false)) };
        let time = |batch: &Batch| self.time(batch.batch, batch.time);
        let earlier = batch_before(reader, last.batch)?.map_or(0, |earlier| time(&earlier));
        let is_new = self.appended(last.batch, last.time, earlier);
        Ok((time(&last), is_new))
    }

    /// The position of the first delivery of this time or later; the end if there is none.
    pub(crate) fn find(&self, reader: &mut Reader, time: u64) -> Result<Position, ReadError> {
        let (mut low, mut high) = (reader.first(), reader.end());
        // Below the answer, the delivery at or behind a position is too old; from the answer on it is not.
        while low < high {
            let middle = low + (high - low) / 2;
            match batch_behind(reader, middle)? {
                Some(batch) if self.time(batch.batch, batch.time) < time => low = batch.end(),
                Some(batch) if batch.batch <= middle => high = batch.batch.max(low),
                _ => high = middle,
            }
        }
        Ok(batch_behind(reader, low)?.map_or(reader.end(), |batch| batch.position))
    }
}

/// The delivery at a position, or the next one: from the position on.
pub(crate) fn batch_behind(reader: &mut Reader, mut position: Position) -> Result<Option<Batch>, ReadError> {
    loop {
        position = match reader.read(position)? {
            Read::Batch(batch) => return Ok(Some(batch)),
            Read::Hole(hole) => hole.range.end,
            Read::Removed { first } => first,
            _ => return Ok(None),
        };
    }
}

/// The last delivery that begins before a position: a part of it. None: there is none any more.
pub(crate) fn batch_before(reader: &mut Reader, position: Position) -> Result<Option<Batch>, ReadError> {
    let (position, mut step) = (position.min(reader.end()), 1);
    loop {
        // Before a hole, whose beginning is not known.
        let first = reader.first();
        let begin = position.saturating_sub(step).max(first);
        let (mut at, mut last) = (begin, None);
        while at < position
            && let Some(batch) = batch_behind(reader, at)?.filter(|batch| batch.position < position)
        {
            at = batch.end();
            last = Some(batch);
        }
        if last.is_some() || begin <= first {
            return Ok(last);
        }
        step = step.saturating_mul(2);
    }
}

#[cfg(test)]
mod tests {
    use seglog::{Log, Options};
    use seglog_sim::SimStorage;

    use super::*;

    #[test]
    fn times_do_not_go_back_with_the_clock() {
        let disk = SimStorage::new(1);
        let mut log = Log::open_on(Arc::new(disk.clone()), "log", Options::default()).unwrap();
        let (clock, mut reader, mut last) = (Clock::default(), log.reader(), 0);
        let mut expected = Vec::new();
        for (now, time) in
            [(10, 10), (12, 12), (7, 12), (8, 12), (13, 13), (9, 13), (9, 13), (5, 13), (20, 20)]
        {
            disk.set_clock(now);
            let at = log.append(b"x").unwrap();
            clock.appended(at, log.last_time(), last);
            last = clock.time(at, log.last_time());
            assert_eq!(last, time);
            expected.push((at, time));
        }
        assert_eq!(clock.floors(), [(expected[2].0, 12), (expected[5].0, 13)]);
        for ms in 0..22 {
            let found = expected.iter().find(|(_, time)| *time >= ms).map_or(log.end(), |(at, _)| *at);
            assert_eq!(clock.find(&mut reader, ms).unwrap(), found, "{ms}");
        }
        let again = Clock::new(clock.floors());
        assert_eq!(again.recover(&mut reader).unwrap(), (20, false));
        again.forget_before(expected[6].0);
        assert_eq!(again.floors(), [(expected[5].0, 13)]);
        // The process was killed before the floor of the last delivery was written.
        disk.set_clock(3);
        let at = log.append(b"x").unwrap();
        assert_eq!((again.recover(&mut reader).unwrap(), again.time(at, 3)), ((20, true), 20));
    }

    #[test]
    fn the_delivery_before_a_position_is_found_over_holes() {
        let disk = SimStorage::new(1);
        let mut log = Log::open_on(Arc::new(disk), "log", Options::default()).unwrap();
        let mut reader = log.reader();
        assert_eq!(batch_before(&mut reader, 100).unwrap(), None);
        log.append(b"first").unwrap();
        log.append_hole(1 << 20).unwrap();
        assert_eq!(batch_before(&mut reader, 1 << 20).unwrap().map(|batch| batch.batch), Some(0));
        log.append(b"second").unwrap();
        for (position, begin) in [
            (1, Some(0)),
            (5, Some(0)),
            (1 << 19, Some(0)),
            (1 << 20, Some(0)),
            ((1 << 20) + 1, Some(1 << 20)),
            (u64::MAX, Some(1 << 20)),
            (0, None),
        ] {
            assert_eq!(
                batch_before(&mut reader, position).unwrap().map(|batch| batch.batch),
                begin,
                "{position}"
            );
        }
    }
}
