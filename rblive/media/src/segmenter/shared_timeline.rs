//! The timeline that the renditions of a stream share.
//!
//! ```text
//!   1080p   │ 41        │ 42        │ 43 …     one encoder: key frames at the same times
//!    720p   │ 41        │ 42        │ 43 …
//!    360p         joins ───▶ │ 42   │ 43 …     waits for a key frame where the others have one
//! ```
//!
//! Players change between renditions at any segment. So the same picture has the same time in all of them, segments with one number
//! cover the same time, and a timeline begins in all of them with the same segment.

use std::collections::VecDeque;
use std::sync::Arc;

use locks::{Mutex, MutexGuard};

use crate::unit::TICKS_PER_SECOND;

/// How far the times of two renditions that one encoder sends may be apart, in ticks: a file of one may arrive before that of another.
const MAX_APART: i64 = 30 * TICKS_PER_SECOND;
/// The most by which key frames of two renditions differ that stand for the same picture, in ticks. Encoders that reorder frames shift
/// their decoding times by some frames.
const TOLERANCE: i64 = TICKS_PER_SECOND / 5;
/// The most clock differences that are remembered. Renditions notice one after the other that their encoder has started over, so an
/// older difference is still needed.
const MAX_SHIFTS: usize = 4;
/// The most beginnings of segments, and of timelines, that are remembered.
const MAX_CUTS: usize = 64;
/// The most segment numbers that a hole skips.
const MAX_HOLE: i64 = 1000;

/// The timeline that the renditions of a stream share. A clone is another handle. See [`Segmenter::with_shared_timeline`](super::Segmenter::with_shared_timeline).
#[derive(Debug, Clone)]
pub struct SharedTimeline(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    /// The differences of the timeline's timestamps and those of encoders, the newest last.
    shifts: VecDeque<i64>,
    /// The numbers of the newest segments, and their beginnings in ticks. Segments of earlier timelines are not among them.
    cuts: VecDeque<(u64, i64)>,
    /// For each of the newest timelines, the number of its first segment and the number of the timeline.
    timelines: VecDeque<(u64, u64)>,
    /// The number after that of the newest segment of any rendition.
    next: u64,
    /// The latest time that a rendition has reached.
    end: i64,
    is_uneven: bool,
}

impl SharedTimeline {
    /// A timeline with the number `timeline`, whose first segment has the number `first_sequence`.
    pub fn new(first_sequence: u64, timeline: u64) -> Self {
        Self(Arc::new(Mutex::new(State {
            shifts: VecDeque::new(),
            cuts: VecDeque::new(),
            timelines: VecDeque::from([(first_sequence, timeline)]),
            next: first_sequence,
            end: 0,
            is_uneven: false,
        })))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock()
    }

    /// The number of the timeline to which segment `sequence` belongs.
    pub fn timeline(&self, sequence: u64) -> u64 {
        let state = self.lock();
        let own = state.timelines.iter().rev().find(|(first, _)| *first <= sequence);
        own.or(state.timelines.front()).map_or(0, |(_, timeline)| *timeline)
    }

    /// Begins a timeline with segment `sequence`, in all renditions. Returns the number of the timeline.
    pub fn begin_timeline(&self, sequence: u64) -> u64 {
        self.lock().begin_timeline(sequence)
    }

    /// The number of a rendition's segment that begins at `time`, in ticks, after a hole or at the beginning of the rendition. `least` is
    /// the lowest number that the rendition may give, `target` the length of segments in ticks. `None`: other renditions have no segment that begins there, and the rendition
    /// waits, unless it `must` begin.
    pub fn place(&self, time: i64, least: u64, target: i64, must: bool) -> Option<u64> {
        let mut state = self.lock();
        let target = target.max(1);
        let tolerance = TOLERANCE.min(target / 4);
        let Some((newest, start)) = state.cuts.back().copied() else {
            let number = state.next.max(least);
            state.cut(number, time);
            return Some(number);
        };
        if time - start >= target - tolerance {
            // All renditions were interrupted together: the segments between are missing in all of them.
            let missed = ((time - start + target / 2) / target).clamp(1, MAX_HOLE);
            let number = newest.saturating_add(missed as u64).max(least);
            state.cut(number, time);
            return Some(number);
        }
        let near =
            state.cuts.iter().find(|(number, own)| *number >= least && (time - own).abs() <= tolerance);
        if let Some((number, _)) = near {
            return Some(*number);
        }
        let before = state.cuts.iter().rev().find(|(_, own)| *own <= time).or(state.cuts.front());
        before.filter(|_| must).map(|(number, _)| (*number).max(least))
    }

    /// Records that segment `sequence` of a rendition begins at `time`, in ticks.
    pub fn cut(&self, sequence: u64, time: i64) {
        self.lock().cut(sequence, time);
    }

    /// Returns the beginning of segment `sequence`, in ticks, in the rendition that reached it first.
    pub(super) fn start_of(&self, sequence: u64) -> Option<i64> {
        self.lock().cuts.iter().find(|(number, _)| *number == sequence).map(|(_, start)| *start)
    }

    /// Returns the difference of the timeline's clock and the encoder's, for a rendition whose newest frame ended at `own_end` and whose
    /// next frame has the encoder's time `dts`. A known difference is used if it places the frame near the other renditions. Otherwise
    /// the difference is a new one, and a timeline begins for all renditions.
    pub(super) fn shift(&self, dts: i64, own_end: i64) -> i64 {
        let mut state = self.lock();
        let end = state.end;
        let fits = |shift: &&i64| {
            let time = dts.saturating_add(**shift);
            time >= own_end.saturating_sub(TOLERANCE) && time >= 0 && (time - end).abs() <= MAX_APART
        };
        if let Some(shift) = state.shifts.iter().rev().find(fits) {
            return *shift;
        }
        let shift = end.max(own_end).saturating_sub(dts);
        if !state.shifts.is_empty() {
            let next = state.next;
            state.begin_timeline(next);
        }
        state.shifts.push_back(shift);
        if state.shifts.len() > MAX_SHIFTS {
            state.shifts.pop_front();
        }
        shift
    }

    /// Records that a rendition has frames up to `end`, in ticks.
    pub(super) fn reach(&self, end: i64) {
        let mut state = self.lock();
        state.end = state.end.max(end);
    }

    /// Returns whether segments with one number began at different times since the last call, because the key frames did.
    pub fn is_uneven(&self) -> bool {
        std::mem::take(&mut self.lock().is_uneven)
    }
}

impl State {
    fn begin_timeline(&mut self, sequence: u64) -> u64 {
        let timeline = self.timelines.back().map_or(0, |(_, newest)| *newest) + 1;
        let first = self.timelines.back().map_or(sequence, |(newest, _)| sequence.max(*newest));
        self.timelines.push_back((first, timeline));
        if self.timelines.len() > MAX_CUTS {
            self.timelines.pop_front();
        }
        self.cuts.clear();
        timeline
    }

    fn cut(&mut self, sequence: u64, time: i64) {
        if sequence >= self.next {
            self.next = sequence + 1;
            self.cuts.push_back((sequence, time));
            if self.cuts.len() > MAX_CUTS {
                self.cuts.pop_front();
            }
        } else if let Some((_, start)) = self.cuts.iter().find(|(number, _)| *number == sequence) {
            self.is_uneven |= (time - start).abs() > TOLERANCE;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TARGET: i64 = 2 * TICKS_PER_SECOND;

    #[test]
    fn a_rendition_begins_where_the_others_have_a_segment() {
        let shared = SharedTimeline::new(40, 7);
        assert_eq!(shared.shift(1000, 0), -1000);
        assert_eq!(shared.place(0, 40, TARGET, false), Some(40));
        shared.cut(41, TARGET);
        shared.reach(TARGET);
        assert_eq!(shared.shift(1000 + TARGET, 0), -1000, "the encoder's clock is the same");
        assert_eq!(shared.place(TARGET / 2, 40, TARGET, false), None);
        assert_eq!(shared.place(TARGET + 3000, 40, TARGET, false), Some(41), "shifted by a frame");
        assert_eq!(shared.place(3 * TARGET / 2, 40, TARGET, true), Some(41));
        assert_eq!(shared.place(2 * TARGET, 40, TARGET, false), Some(42), "the first one to have it");
        assert_eq!(shared.place(2 * TARGET + 9, 40, TARGET, false), Some(42));
        assert_eq!(shared.place(5 * TARGET, 43, TARGET, false), Some(45), "all were away");
        assert_eq!((shared.timeline(40), shared.timeline(1000)), (7, 7));
        assert!(!shared.is_uneven());
        shared.cut(42, 2 * TARGET + TARGET / 2);
        assert!(shared.is_uneven() && !shared.is_uneven());
    }

    #[test]
    fn an_encoder_that_starts_over_begins_one_timeline_for_all() {
        let shared = SharedTimeline::new(0, 1);
        let first = shared.shift(0, 0);
        assert_eq!((first, shared.place(0, 0, TARGET, false)), (0, Some(0)));
        shared.cut(1, TARGET);
        shared.reach(2 * TARGET);
        // Its times begin at 0 again, where this rendition has been.
        let second = shared.shift(0, 2 * TARGET);
        assert_eq!(second, 2 * TARGET);
        assert_eq!(shared.place(second, 2, TARGET, false), Some(2));
        assert_eq!(shared.shift(0, 2 * TARGET), second, "the other rendition");
        assert_eq!(shared.place(second, 2, TARGET, false), Some(2));
        assert_eq!((shared.timeline(1), shared.timeline(2)), (1, 2));
        // A clock of which nothing is known.
        shared.shift(1 << 50, 3 * TARGET);
        assert_eq!((shared.timeline(2), shared.timeline(3)), (2, 3));
    }
}
