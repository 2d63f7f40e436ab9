//! The numbers of a stream's segments and timelines.
//!
//! ```text
//!   1080p   │ 41        │ 42        │ 43 …     one encoder: key frames at the same times
//!    720p   │ 41        │ 42        │ 43 …
//!    360p         joins ───▶ │ 42   │ 43 …     waits for a key frame where the others have one
//! ```
//!
//! All numbers that a source gives come from here, whether its frames are cut into segments or its segments pass as they come.
//!
//! A stream with one rendition counts: each hole begins a timeline. Of several renditions, players change between them at any segment.
//! So the same picture has the same time in all of them, segments with one number cover the same time, and a timeline begins in all of
//! them with the same segment.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use locks::Mutex;

use crate::unit::TICKS_PER_SECOND;

/// How far the times of two renditions that one encoder sends may be apart, in ticks: a file of one may arrive before that of another.
const MAX_APART: i64 = 30 * TICKS_PER_SECOND;
/// The most by which key frames of two renditions differ that stand for the same picture, in ticks. Encoders that reorder frames shift
/// their decoding times by some frames.
pub(crate) const TOLERANCE: i64 = TICKS_PER_SECOND / 5;
/// The most by which a segment that passes begins before or after the end of the one before, in microseconds, unless there is a hole.
const MAX_DRIFT_US: u64 = 200_000;
/// The most clock differences that are remembered. Renditions notice one after the other that their encoder has started over, so an
/// older difference is still needed.
const MAX_SHIFTS: usize = 4;
/// The most beginnings of segments, and of timelines, that are remembered.
const MAX_CUTS: usize = 64;
/// The most segment numbers that a hole skips.
const MAX_HOLE: i64 = 1000;
/// How many target durations a rendition waits at its beginning for a key frame at which a segment of another rendition begins.
const MAX_JOIN: i64 = 3;

/// The numbers of a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Numbers {
    /// The number of the segment.
    pub sequence: u64,
    /// The number of its timeline.
    pub timeline: u64,
    /// Whether the timeline begins with the segment. The first segment of a rendition continues nothing, and begins none.
    pub discontinuity: bool,
}

/// The numbers of a stream, as one of its renditions gets them. A clone is another handle of the same rendition.
#[derive(Debug, Clone)]
pub struct Timeline {
    state: Arc<Mutex<State>>,
    rendition: u16,
}

#[derive(Debug)]
struct State {
    common: Common,
    renditions: BTreeMap<u16, Own>,
}

/// The numbers that the renditions have in common.
#[derive(Debug, Default)]
struct Common {
    /// Whether there may be several renditions.
    is_shared: bool,
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
    /// The length of the first segment that was complete, in ticks.
    first_length: Option<i64>,
    is_uneven: bool,
}

/// The numbers of one rendition.
#[derive(Debug, Default)]
struct Own {
    /// The number of the open segment, or of the next one.
    next: u64,
    /// The number of the newest segment's timeline.
    timeline: Option<u64>,
    /// Whether the next segment begins a timeline.
    breaks: bool,
    /// Whether the next segment does not continue the one before.
    hole: bool,
    /// The initialisation segment of the newest segment.
    init: Bytes,
    /// The time since which the rendition waits for a key frame at which a segment of another rendition begins.
    joining: Option<i64>,
    /// The beginning and the end of the newest segment that passed as it came, in microseconds.
    passthrough_us: Range<u64>,
}

impl Timeline {
    /// The numbers of a stream with one rendition, whose first segment has the number `first_sequence` on the timeline `timeline`.
    pub fn alone(first_sequence: u64, timeline: u64) -> Self {
        Self::new(first_sequence, timeline, false)
    }

    /// The numbers that several renditions have in common. No segment has a lower number than `first_sequence`, or a timeline with a
    /// lower number than `timeline`. [`rendition`](Self::rendition) returns the handle of each of them.
    pub fn shared(first_sequence: u64, timeline: u64) -> Self {
        Self::new(first_sequence, timeline, true)
    }

    fn new(first_sequence: u64, timeline: u64, is_shared: bool) -> Self {
        let common = Common {
            is_shared,
            timelines: VecDeque::from([(first_sequence, timeline)]),
            next: first_sequence,
            ..Common::default()
        };
        Self { state: Arc::new(Mutex::new(State { common, renditions: BTreeMap::new() })), rendition: 0 }
    }

    /// The handle of a rendition that begins, or that begins again with another encoder.
    pub fn rendition(&self, id: u16) -> Self {
        self.state.lock().renditions.remove(&id);
        Self { state: self.state.clone(), rendition: id }
    }

    fn with<R>(&self, run: impl FnOnce(&mut Own, &mut Common) -> R) -> R {
        let State { common, renditions } = &mut *self.state.lock();
        // Of several renditions, the first segment gets its number from its time.
        let first = if common.is_shared { 0 } else { common.next };
        let new = || Own { next: first, ..Own::default() };
        run(renditions.entry(self.rendition).or_insert_with(new), common)
    }

    /// Begins a timeline with the next segment, whose coding is another.
    pub fn break_off(&self) {
        self.with(|own, _| own.breaks = true);
    }

    /// Records that the next segment does not continue the one before: something is lost, or the encoder is another one. Alone, a
    /// timeline begins with it. If it is one of several renditions, its time says whether.
    pub fn hole(&self) {
        self.with(|own, _| own.hole = true);
    }

    /// The numbers of a segment that passes as it came, from and to these microseconds, after its initialisation segment `init` (empty if
    /// it has none). `target_ms` is the length of segments that tell none. After a hole, one of several renditions continues with the
    /// number that the others give this time.
    pub fn passthrough(&self, us: Range<u64>, init: &Bytes, target_ms: u32) -> Numbers {
        self.with(|own, common| {
            let time = ticks(us.start);
            let length = |own: &Range<u64>| own.end.saturating_sub(own.start);
            // The encoder decides how long its segments are, not the settings. The last one before a hole may be short.
            let target = match length(&us).max(length(&own.passthrough_us)) {
                0 => i64::from(target_ms) * TICKS_PER_SECOND / 1000,
                length => ticks(length),
            };
            // Times that go back begin a timeline, even if the encoder marks no discontinuity. So do times that the segments before a
            // hole have already.
            let goes_back = us.start < own.passthrough_us.start
                || own.hole && us.start.saturating_add(MAX_DRIFT_US) < own.passthrough_us.end;
            own.breaks |= goes_back || own.hole && !common.is_near(time);
            let sequence = own.place(&us, goes_back, target, common);
            let numbers = own.begin(sequence, init, common);
            common.first_length.get_or_insert(ticks(length(&us)));
            common.cut(sequence, time);
            (own.next, own.passthrough_us) = (sequence + 1, us);
            numbers
        })
    }

    /// The number after that of the newest segment of any rendition.
    pub fn next_number(&self) -> u64 {
        let state = self.state.lock();
        state.renditions.values().map(|own| own.next).max().unwrap_or(state.common.next)
    }

    /// Returns whether segments with one number began at different times since the last call, because the key frames did.
    pub fn is_uneven(&self) -> bool {
        std::mem::take(&mut self.state.lock().common.is_uneven)
    }

    /// Returns whether there may be other renditions.
    pub(crate) fn is_shared(&self) -> bool {
        self.state.lock().common.is_shared
    }

    /// The difference of the timeline's clock and the encoder's, for a rendition whose newest frame ended at `own_end` and whose next
    /// frame has the encoder's time `dts`, in ticks. `target` is the length of segments. `None`: the other renditions have no segment that
    /// begins there, and the rendition waits.
    pub(crate) fn join(&self, dts: i64, own_end: i64, target: i64) -> Option<i64> {
        self.with(|own, common| {
            if !common.is_shared {
                return Some(own_end.saturating_sub(dts));
            }
            let shift = common.shift(dts, own_end);
            let time = dts.saturating_add(shift);
            let must = (time - *own.joining.get_or_insert(time)).abs() >= MAX_JOIN * target;
            own.next = own.next.max(common.place(time, own.next, target, must)?);
            own.joining = None;
            Some(shift)
        })
    }

    /// The numbers of a part of the open segment. `first`: the segment begins with it.
    pub(crate) fn part(&self, first: bool, init: &Bytes) -> Numbers {
        self.with(|own, common| match first {
            true => own.begin(own.next, init, common),
            false => {
                Numbers { sequence: own.next, timeline: own.timeline.unwrap_or(0), discontinuity: false }
            }
        })
    }

    /// Ends the open segment, of so many ticks.
    pub(crate) fn end_segment(&self, length: i64) {
        self.with(|own, common| {
            own.next += 1;
            common.first_length.get_or_insert(length);
        });
    }

    /// Records that the next segment begins at `time`, in ticks. Returns where it begins in the rendition that reached it first. If another
    /// rendition has more segments before this time, their numbers are left out.
    pub(crate) fn cut(&self, time: i64) -> i64 {
        self.with(|own, common| {
            own.next = common.number_at(time, own.next);
            common.cut(own.next, time);
            common.start_of(own.next).unwrap_or(time)
        })
    }

    /// Returns the beginning of the segment after the open one, in ticks, if another rendition has reached it.
    pub(crate) fn next_start(&self) -> Option<i64> {
        self.with(|own, common| common.start_of(own.next + 1))
    }

    /// Returns the beginning of the open segment, in ticks, in the rendition that reached it first. `None`: there is no other rendition.
    pub(crate) fn start(&self) -> Option<i64> {
        self.with(|own, common| common.start_of(own.next))
    }

    /// Records that the rendition has frames up to `end`, in ticks. Returns the length of the stream's first segment, of any rendition,
    /// once it is complete.
    pub(crate) fn reach(&self, end: i64) -> Option<i64> {
        self.with(|_, common| {
            common.end = common.end.max(end);
            common.first_length
        })
    }

    /// Records that the encoder's times end here.
    pub(crate) fn end(&self) {
        self.hole();
        self.with(|own, _| own.joining = None);
    }
}

impl Own {
    /// The number of a segment that passes as it came.
    fn place(&self, us: &Range<u64>, goes_back: bool, target: i64, common: &mut Common) -> u64 {
        let goes_on = !goes_back && us.start.abs_diff(self.passthrough_us.end) <= MAX_DRIFT_US;
        if !common.is_shared || goes_on && self.next > 0 {
            return self.next;
        }
        let time = ticks(us.start);
        // If the times of all renditions went back, those of the others may be there already.
        let have_others = self.timeline < common.timelines.back().map(|(_, newest)| *newest);
        let is_placed = common.is_near(time) && (have_others || !goes_back);
        if self.next == 0 || !self.breaks || is_placed {
            return common.place(time, self.next, target, true).unwrap_or(self.next);
        }
        self.next.max(common.next)
    }

    /// Begins segment `sequence`. A timeline begins with it if this rendition breaks, if its initialisation segment changes, or if another
    /// rendition has begun a timeline with this segment or earlier.
    fn begin(&mut self, sequence: u64, init: &Bytes, common: &mut Common) -> Numbers {
        let is_hole = std::mem::take(&mut self.hole) && !common.is_shared;
        let breaks = std::mem::take(&mut self.breaks) || is_hole || self.init != *init;
        self.init = init.clone();
        let known = common.timeline(sequence);
        let timeline = match self.timeline {
            Some(own) if breaks && known <= own => common.begin_timeline(sequence),
            own => known.max(own.unwrap_or(0)),
        };
        let discontinuity = self.timeline.replace(timeline).is_some_and(|own| timeline > own);
        Numbers { sequence, timeline, discontinuity }
    }
}

impl Common {
    /// The number of the timeline to which segment `sequence` belongs.
    fn timeline(&self, sequence: u64) -> u64 {
        let own = self.timelines.iter().rev().find(|(first, _)| *first <= sequence);
        own.or(self.timelines.front()).map_or(0, |(_, timeline)| *timeline)
    }

    /// The number of a rendition's segment that begins at `time`, in ticks, after a hole or at the beginning of the rendition. `least` is
    /// the lowest number that the rendition may give, `target` the length of segments in ticks. `None`: other renditions have no segment
    /// that begins there, and the rendition waits, unless it `must` begin.
    fn place(&mut self, time: i64, least: u64, target: i64, must: bool) -> Option<u64> {
        let target = target.max(1);
        let tolerance = TOLERANCE.min(target / 4);
        let Some((newest, start)) = self.cuts.back().copied() else {
            let number = self.next.max(least);
            self.cut(number, time);
            return Some(number);
        };
        if time - start >= target - tolerance {
            // All renditions were interrupted together: the segments between are missing in all of them.
            let missed = ((time - start + target / 2) / target).clamp(1, MAX_HOLE);
            let number = newest.saturating_add(missed as u64).max(least);
            self.cut(number, time);
            return Some(number);
        }
        let near = self.cuts.iter().find(|(number, own)| *number >= least && (time - own).abs() <= tolerance);
        if let Some((number, _)) = near {
            return Some(*number);
        }
        let before = self.cuts.iter().rev().find(|(_, own)| *own <= time).or(self.cuts.front());
        before.filter(|_| must).map(|(number, _)| (*number).max(least))
    }

    /// Whether a segment at `time` may belong to the newest timeline.
    fn is_near(&self, time: i64) -> bool {
        self.cuts.back().is_some_and(|(_, start)| time.saturating_sub(*start).abs() <= MAX_APART)
    }

    /// The number that segments of other renditions have that begin at `time`, from `least` on; `least` if no other one begins there.
    fn number_at(&self, time: i64, least: u64) -> u64 {
        let near = |start: i64| (time - start).abs() <= TOLERANCE;
        if self.start_of(least).is_none_or(near) {
            return least;
        }
        self.cuts.iter().find(|(number, own)| *number > least && near(*own)).map_or(least, |(own, _)| *own)
    }

    fn start_of(&self, sequence: u64) -> Option<i64> {
        self.cuts.iter().find(|(number, _)| *number == sequence).map(|(_, start)| *start)
    }

    /// Returns the difference of the timeline's clock and the encoder's. A known difference is used if it places the frame near the other
    /// renditions. Otherwise the difference is a new one, and a timeline begins for all renditions.
    fn shift(&mut self, dts: i64, own_end: i64) -> i64 {
        let end = self.end;
        let fits = |shift: &&i64| {
            let time = dts.saturating_add(**shift);
            time >= own_end.saturating_sub(TOLERANCE) && time >= 0 && (time - end).abs() <= MAX_APART
        };
        if let Some(shift) = self.shifts.iter().rev().find(fits) {
            return *shift;
        }
        let shift = end.max(own_end).saturating_sub(dts);
        if !self.shifts.is_empty() {
            self.begin_timeline(self.next);
        }
        self.shifts.push_back(shift);
        if self.shifts.len() > MAX_SHIFTS {
            self.shifts.pop_front();
        }
        shift
    }

    /// Begins a timeline with segment `sequence`, in all renditions. Returns the number of the timeline.
    fn begin_timeline(&mut self, sequence: u64) -> u64 {
        let timeline = self.timelines.back().map_or(0, |(_, newest)| *newest) + 1;
        let first = self.timelines.back().map_or(sequence, |(newest, _)| sequence.max(*newest));
        self.timelines.push_back((first, timeline));
        if self.timelines.len() > MAX_CUTS {
            self.timelines.pop_front();
        }
        self.cuts.retain(|(number, _)| *number >= first);
        timeline
    }

    /// Records that segment `sequence` of a rendition begins at `time`, in ticks.
    fn cut(&mut self, sequence: u64, time: i64) {
        if !self.is_shared {
            return;
        }
        if sequence >= self.next {
            self.next = sequence + 1;
            self.cuts.push_back((sequence, time));
            if self.cuts.len() > MAX_CUTS {
                self.cuts.pop_front();
            }
        } else if let Some(start) = self.start_of(sequence) {
            self.is_uneven |= (time - start).abs() > TOLERANCE;
        }
    }
}

fn ticks(us: u64) -> i64 {
    i64::try_from(u128::from(us) * TICKS_PER_SECOND as u128 / 1_000_000).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TARGET: i64 = 2 * TICKS_PER_SECOND;

    fn common(first: u64, timeline: u64) -> Common {
        let shared = Timeline::shared(first, timeline);
        let state = Arc::into_inner(shared.state).expect("there is one handle").into_inner();
        state.common
    }

    #[test]
    fn a_rendition_begins_where_the_others_have_a_segment() {
        let mut shared = common(40, 7);
        assert_eq!(shared.shift(1000, 0), -1000);
        assert_eq!(shared.place(0, 40, TARGET, false), Some(40));
        shared.cut(41, TARGET);
        shared.end = TARGET;
        assert_eq!(shared.shift(1000 + TARGET, 0), -1000, "the encoder's clock is the same");
        assert_eq!(shared.place(TARGET / 2, 40, TARGET, false), None);
        assert_eq!(shared.place(TARGET + 3000, 40, TARGET, false), Some(41), "shifted by a frame");
        assert_eq!(shared.place(3 * TARGET / 2, 40, TARGET, true), Some(41));
        assert_eq!(shared.place(2 * TARGET, 40, TARGET, false), Some(42), "the first one to have it");
        assert_eq!(shared.place(2 * TARGET + 9, 40, TARGET, false), Some(42));
        assert_eq!(shared.place(5 * TARGET, 43, TARGET, false), Some(45), "all were away");
        assert_eq!((shared.timeline(40), shared.timeline(1000)), (7, 7));
        assert!(!shared.is_uneven);
        shared.cut(42, 2 * TARGET + TARGET / 2);
        assert!(shared.is_uneven);
    }

    #[test]
    fn an_encoder_that_starts_over_begins_one_timeline_for_all() {
        let mut shared = common(0, 1);
        let first = shared.shift(0, 0);
        assert_eq!((first, shared.place(0, 0, TARGET, false)), (0, Some(0)));
        shared.cut(1, TARGET);
        shared.end = 2 * TARGET;
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
