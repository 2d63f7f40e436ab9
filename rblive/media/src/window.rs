//! The segments and parts of a live rendition, and which of them can still be fetched.
//!
//! ```text
//!                    first_number()              last segment, open
//!   popped from the ring  │                            │
//!   ··· 39 ··· │ 41 │ 42 │ 43 │ 44 │ 45 (gap) │ 46 │ 47: part 0, part 1, ▒▒
//!              └─ held ─┘ └── listed in playlists ──┘    └─ listed with low latency
//! ```
//!
//! A segment leaves the playlists long before its bytes are overwritten: players that have just read a playlist may still fetch it
//! (RFC 8216bis, 6.2.2). So the playlists list about the newer half of the held segments.
//!
//! A [`LiveWindow`] receives parts in the order in which a source wrote them. The source numbers segments and timelines
//! ([`Timeline`](crate::timeline::Timeline)), and the window lists these numbers. It changes them only where viewers would see them go
//! back, which the source cannot know: a source that has started over may begin with lower numbers than the one before. A hole in the
//! source's numbers becomes segments that are marked as gaps, or a discontinuity. `T` is the location of a part's bytes. The owner of the
//! window knows whether they are still there, see [`LiveWindow::release`].

use std::collections::VecDeque;

/// The most segments that a window lists.
pub const MAX_SEGMENTS: usize = 1024;

/// The most parts of a segment. Later parts of a longer segment are lost, and the segment is a gap.
pub const MAX_PARTS: usize = 512;

/// The largest segment number, and the largest timeline number, that a window adopts from its source.
const MAX_NUMBER: u64 = u64::MAX / 2;

/// Once a window holds more segments than this after a new source began, the segments of the previous source are removed.
const RETIRED_FOR: usize = 3;

/// A playlist keeps at least this many target durations (RFC 8216bis, 6.2.2), even if its oldest segment is then overwritten too early.
const MIN_LISTED: u64 = 3;

/// A segment leaves the playlist while its bytes still stay for this many playlist durations. One is required; the rate of a stream
/// varies, so there is a reserve.
const REST: f64 = 1.2;

/// The longest hole that is listed as gaps, in segments. A longer one clears the list.
const MAX_GAPS: u64 = 16;

/// A part as its source describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewPart<T> {
    /// The number that the source gave the segment.
    pub sequence: u64,
    /// The index of the part in its segment.
    pub index: u32,
    /// The presentation time of the first sample, in microseconds.
    pub start_us: u64,
    /// Its length, in microseconds.
    pub duration_us: u32,
    /// When the last byte came in: nanoseconds since 1970.
    pub produced_ns: u64,
    /// Whether the part begins with a frame that needs no other.
    pub independent: bool,
    /// Whether timestamps, codecs or the encoder changed before this part.
    pub discontinuity: bool,
    /// The number that the source gave the timeline. It grows with each discontinuity. `None`: the source does not number timelines.
    pub timeline: Option<u64>,
    /// Whether the part is the last one of its segment. A segment without a last part is a gap.
    pub last: bool,
    /// The size in bytes.
    pub bytes: u32,
    /// The number of the initialisation segment that the part needs.
    pub init: u32,
    /// Where the bytes are.
    pub data: T,
}

/// A part of a segment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part<T> {
    /// Its length, in microseconds.
    pub duration_us: u32,
    /// Whether the part begins with a frame that needs no other.
    pub independent: bool,
    /// The size in bytes.
    pub bytes: u32,
    /// Where the bytes are.
    pub data: T,
}

/// How far a segment is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SegmentState {
    /// More parts follow.
    Open,
    /// All parts are there.
    Complete,
    /// Bytes are missing, and the segment cannot be fetched.
    Gap,
}

/// A segment of a window.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Segment<T> {
    /// The media sequence number.
    pub number: u64,
    /// The presentation time of the first sample, in microseconds.
    pub start_us: u64,
    /// The length of its parts together, in microseconds; of a gap, the assumed length.
    pub duration_us: u64,
    /// The wall clock time of the first sample, in nanoseconds since 1970.
    pub wall_ns: u64,
    /// The parts, in order.
    pub parts: Vec<Part<T>>,
    /// How many parts come before the first one that is longer than parts may be: playlists have only these of an open segment, and no
    /// part of a complete one in which others follow.
    pub even_parts: usize,
    /// How far the segment is.
    pub state: SegmentState,
    /// Whether the segment does not continue the previous one.
    pub discontinuity: bool,
    /// The number of its timeline: the discontinuity sequence number. Each discontinuity adds one.
    pub timeline: u64,
    /// The number of the initialisation segment.
    pub init: u32,
}

impl<T> Segment<T> {
    /// Returns whether the segment begins with a frame that needs no other, as far as is known.
    pub fn is_independent(&self) -> bool {
        self.parts.first().is_none_or(|part| part.independent)
    }

    /// Returns whether a part is longer than parts may be.
    pub fn is_uneven(&self) -> bool {
        self.even_parts < self.parts.len()
    }

    /// The parts that players know of.
    fn known_parts(&self) -> usize {
        if self.state == SegmentState::Open { self.even_parts } else { self.parts.len() }
    }

    /// Returns the size of all parts, in bytes.
    pub fn bytes(&self) -> u64 {
        self.parts.iter().map(|part| u64::from(part.bytes)).sum()
    }
}

/// The state of a part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pushed {
    /// The part is listed.
    Listed,
    /// The part is not listed: an earlier part of its segment is missing, the segment has [`MAX_PARTS`], or a later segment has begun.
    Unusable,
}

/// Whether a playlist has the segment or part that a request waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reached {
    /// The playlist has it.
    Yes,
    /// The playlist will have it soon, so the request may wait.
    NotYet,
    /// The part is too far in the future for a waiting request.
    TooFar,
}

/// The segments of a live rendition that can be fetched, see the [module](self).
#[derive(Debug, Clone)]
pub struct LiveWindow<T> {
    /// The held segments, the oldest first.
    segments: VecDeque<Segment<T>>,
    /// The number of oldest segments among them that are not listed any more.
    unlisted: usize,
    /// The number of the next new segment.
    next: u64,
    /// The source's segment numbers plus this offset are the window's.
    offset: u64,
    /// Whether a segment was ever listed.
    begun: bool,
    /// The number of the newest segment's timeline.
    timeline: u64,
    /// The number that the source gave the newest segment's timeline.
    source_timeline: Option<u64>,
    target_us: u64,
    part_target_us: u64,
    /// Whether a segment was ever complete: players know the length of parts, and the wall clock of the timeline.
    known: bool,
    /// Wall clock minus presentation time, in nanoseconds, since the last discontinuity.
    wall_offset_ns: i128,
    /// The offset of another rendition, with the source's number of the timeline for which it holds.
    common_time: Option<(u64, i128)>,
    /// The offset that the source says itself, and whether it is the one in use.
    given_time: Option<(u64, i128)>,
    is_time_given: bool,
    ended: bool,
    /// The next part comes from another source.
    source_changed: bool,
    /// Segments of the previous source. Players that have just read a playlist may still fetch them.
    retired: Vec<Segment<T>>,
    /// Whether a segment ever had to stay in the list for longer than its bytes allow.
    window_too_short: bool,
    /// The first segment of the newest source. Those before it are in a buffer that is not written any more.
    first_of_source: u64,
}

impl<T> LiveWindow<T> {
    /// Creates an empty window. `target_us` and `part_target_us` are the announced longest durations of a segment and of a part;
    /// the window raises them if its source exceeds them, that of parts only during the first segment.
    pub fn new(target_us: u64, part_target_us: u64) -> Self {
        Self {
            segments: VecDeque::new(),
            unlisted: 0,
            next: 0,
            offset: 0,
            begun: false,
            timeline: 0,
            source_timeline: None,
            target_us,
            part_target_us,
            known: false,
            wall_offset_ns: 0,
            common_time: None,
            given_time: None,
            is_time_given: false,
            ended: false,
            source_changed: false,
            retired: Vec::new(),
            window_too_short: false,
            first_of_source: 0,
        }
    }

    /// Announces another source, whose times are unrelated to those of the previous one. Its first segment is a discontinuity. The
    /// segment keeps the source's number unless numbers would go back, so that all servers list a segment of this source under one
    /// number, whatever they listed before. If that number leaves a hole, the segments of the previous source leave the list.
    pub fn on_new_source(&mut self) {
        self.source_changed = self.begun;
        (self.window_too_short, self.first_of_source) = (false, self.next);
    }

    /// Returns the source's number of the newest segment's timeline, and the wall clock minus presentation time on it in nanoseconds,
    /// for the other renditions. `None`: the source does not number timelines, or no segment has begun.
    pub fn program_time(&self) -> Option<(u64, i128)> {
        self.source_timeline.filter(|_| self.begun).map(|timeline| (timeline, self.wall_offset_ns))
    }

    /// Takes the wall clock minus presentation time, in nanoseconds, that the source says for a timeline: a server that has not seen how the
    /// timeline began would find another one than those that have.
    pub fn set_program_time(&mut self, timeline: u64, offset_ns: i128) {
        self.given_time = Some((timeline, offset_ns));
    }

    /// Gives the renditions of a stream the wall clock of the newest timeline, since parts of one timeline have one wall clock although
    /// they arrive one after the other, and the longest duration of a segment (RFC 8216bis, 6.2.4).
    pub fn align<'a>(windows: impl Iterator<Item = &'a mut Self>)
    where
        T: 'a,
    {
        let mut windows: Vec<_> = windows.collect();
        if windows.len() < 2 {
            return;
        }
        let target_us = windows.iter().map(|own| own.target_us).max().unwrap_or(0);
        let times = windows.iter().filter_map(|own| own.program_time());
        let newest = times.max_by_key(|(timeline, _)| *timeline);
        for own in &mut windows {
            (own.common_time, own.target_us) = (newest, target_us);
        }
    }

    /// Adds the next part of the source. Parts come in the order in which they were written, each of them once. A segment number that
    /// goes back means that the source started over.
    pub fn push(&mut self, part: NewPart<T>) -> Pushed {
        if (!self.begun || self.source_changed) && part.index != 0 {
            return Pushed::Unusable;
        }
        let source_changed = std::mem::take(&mut self.source_changed);
        if source_changed {
            (self.offset, self.source_timeline) = (0, None);
            self.break_off();
        }
        let by_source = part.sequence.wrapping_add(self.offset);
        let goes_on = by_source >= self.next
            || (!source_changed && by_source + 1 == self.next && self.continues(&part));
        let restarted = !goes_on || by_source > MAX_NUMBER;
        if restarted {
            self.offset = self.next.wrapping_sub(part.sequence);
        }
        let number = part.sequence.wrapping_add(self.offset);
        if number < self.next {
            let is_last = self.segments.back().is_some_and(|last| last.number == number);
            return if is_last { self.append(part) } else { Pushed::Unusable };
        }
        if source_changed && number > self.next {
            self.retire();
        }
        self.begin(number, &part, source_changed || restarted);
        self.append(part)
    }

    /// Whether a part with the number of the last segment belongs to it, and not to a source that started over.
    fn continues(&self, part: &NewPart<T>) -> bool {
        match self.segments.back().filter(|last| last.number + 1 == self.next) {
            Some(last) if last.state == SegmentState::Open => part.index as usize >= last.parts.len(),
            Some(last) => last.state == SegmentState::Gap && part.index > 0,
            None => part.index > 0,
        }
    }

    /// Begins segment `number` with its first part. Segments that are missing before it become gaps, or the list is cleared.
    fn begin(&mut self, number: u64, part: &NewPart<T>, restarted: bool) {
        let hole = if self.begun { number - self.next } else { 0 };
        let (is_cut, breaks) = self.breaks(part, hole);
        let mut discontinuity = restarted || breaks > 0;
        self.break_off();
        if let Some(last) = self.segments.back() {
            discontinuity |= part.start_us < last.start_us || part.init != last.init;
        }
        if is_cut {
            self.clear();
        } else if self.begun {
            (self.next..number).for_each(|missing| self.push_gap(missing));
        }
        if !self.begun || discontinuity {
            let own = wall_offset_ns(part);
            let is_of = |time: &(u64, i128)| Some(time.0) == counted(part);
            let given = self.given_time.filter(is_of);
            self.is_time_given = given.is_some();
            let known = given.or(self.common_time.filter(is_of));
            self.wall_offset_ns = known.map_or(own, |(_, offset)| offset);
        }
        self.count_timeline(part, discontinuity);
        self.segments.push_back(Segment {
            number,
            start_us: part.start_us,
            duration_us: 0,
            wall_ns: self.wall_ns(part.start_us),
            parts: Vec::new(),
            even_parts: 0,
            state: if part.index == 0 { SegmentState::Open } else { SegmentState::Gap },
            discontinuity: self.begun && discontinuity,
            timeline: self.timeline,
            init: part.init,
        });
        self.known |= self.begun;
        (self.begun, self.ended, self.next) = (true, false, number + 1);
        if self.segments.len() > RETIRED_FOR {
            self.retired.clear();
        }
        while self.segments.len() > MAX_SEGMENTS {
            self.pop();
        }
    }

    fn push_gap(&mut self, number: u64) {
        let Some(last) = self.segments.back() else { return };
        let start_us = last.start_us.saturating_add(last.duration_us);
        let (init, wall_ns) = (last.init, self.wall_ns(start_us));
        self.segments.push_back(Segment {
            number,
            start_us,
            duration_us: self.target_us,
            wall_ns,
            parts: Vec::new(),
            even_parts: 0,
            state: SegmentState::Gap,
            discontinuity: false,
            timeline: self.timeline,
            init,
        });
    }

    /// Returns whether the list is cleared after a hole, and how many timelines have begun since the newest segment. If the source
    /// numbers its timelines, their numbers show a discontinuity even if the part with the flag was lost.
    fn breaks(&self, part: &NewPart<T>, hole: u64) -> (bool, u64) {
        let is_long = hole > MAX_GAPS;
        let by_flag = u64::from(part.discontinuity);
        let breaks = match (self.source_timeline, counted(part)) {
            (Some(before), Some(now)) => now.saturating_sub(before).max(by_flag),
            _ => by_flag.max(u64::from(is_long)),
        };
        // A list must show each discontinuity at its segment. The segments of several discontinuities in one hole are unknown.
        (self.begun && (is_long || breaks > 1), breaks)
    }

    /// Numbers the timeline of a segment before it is listed. Within a list each discontinuity adds one. At the beginning of a list the
    /// timeline has the source's number, which is the same on all servers, unless the number would go back.
    fn count_timeline(&mut self, part: &NewPart<T>, discontinuity: bool) {
        self.timeline += u64::from(self.begun && discontinuity);
        let counted = counted(part);
        if self.segments.is_empty() {
            self.timeline = self.timeline.max(counted.unwrap_or(0));
        }
        self.source_timeline = counted;
    }

    fn wall_ns(&self, start_us: u64) -> u64 {
        u64::try_from(self.wall_offset_ns + i128::from(start_us) * 1000).unwrap_or(0)
    }

    fn append(&mut self, part: NewPart<T>) -> Pushed {
        let Some(segment) = self.segments.back_mut() else { return Pushed::Unusable };
        if segment.state != SegmentState::Open && segment.duration_us > 0 {
            // The segment is listed already, and a listed segment does not change.
            return Pushed::Unusable;
        }
        segment.duration_us = segment.duration_us.saturating_add(part.duration_us.into());
        self.target_us = self.target_us.max(segment.duration_us);
        let missing = part.index as usize != segment.parts.len() || segment.parts.len() == MAX_PARTS;
        if missing || segment.state != SegmentState::Open {
            segment.state = SegmentState::Gap;
            return Pushed::Unusable;
        }
        if !self.known {
            // The first parts may have waited at their source. No player has seen a date yet.
            if !self.is_time_given {
                self.wall_offset_ns = self.wall_offset_ns.min(wall_offset_ns(&part));
            }
            segment.wall_ns =
                u64::try_from(self.wall_offset_ns + i128::from(segment.start_us) * 1000).unwrap_or(0);
            self.part_target_us = self.part_target_us.max(part.duration_us.into());
        }
        let is_even = !segment.is_uneven() && u64::from(part.duration_us) <= self.part_target_us;
        segment.even_parts += usize::from(is_even);
        if part.last {
            segment.state = SegmentState::Complete;
            self.known = true;
        }
        let NewPart { duration_us, independent, bytes, data, .. } = part;
        segment.parts.push(Part { duration_us, independent, bytes, data });
        Pushed::Listed
    }

    /// Removes the oldest segments if their bytes are gone, and takes the next ones out of the list before their bytes are overwritten.
    /// `age` returns which share of the time for which the bytes of a part are held has passed, from 0 to 1; `None` if they are gone.
    pub fn release(&mut self, age: impl Fn(&T) -> Option<f64>) {
        while let Some(first) = self.segments.front() {
            let gone = first.parts.iter().any(|part| age(&part.data).is_none());
            let leading_gap = first.state == SegmentState::Gap && self.segments.len() > 1;
            if !(gone || leading_gap) {
                break;
            }
            self.pop();
        }
        while self.first_must_go(&age) {
            self.unlisted += 1;
        }
    }

    /// Whether the first listed segment leaves the list: it is a gap, or its bytes stay for less than its own duration and [`REST`]
    /// playlist durations.
    fn first_must_go(&mut self, age: impl Fn(&T) -> Option<f64>) -> bool {
        let Some(first) = self.segments().next().filter(|_| self.segments().len() > 1) else { return false };
        let Some(part) = first.parts.first() else { return first.state == SegmentState::Gap };
        let listed_us: u64 = self.segments().map(|segment| segment.duration_us).sum();
        let own = first.duration_us as f64 / listed_us as f64;
        let is_due = !self.ended && age(&part.data).is_none_or(|age| age * (1.0 + REST + own) > 1.0);
        let may_go = listed_us - first.duration_us >= MIN_LISTED * self.target_us;
        let is_of_source = first.number >= self.first_of_source;
        self.window_too_short |= is_due && !may_go && is_of_source;
        is_due && may_go
    }

    fn pop(&mut self) {
        self.segments.pop_front();
        self.unlisted = self.unlisted.saturating_sub(1);
    }

    /// Turns the open segment into a gap, because its last part has not come: only that part says that the segment is whole, however short
    /// it is. Other servers may have more or fewer parts of it, so no server lists it as complete.
    fn break_off(&mut self) {
        if let Some(last) = self.segments.back_mut().filter(|last| last.state == SegmentState::Open) {
            last.state = SegmentState::Gap;
        }
    }

    /// Takes all segments out of the list. They can still be fetched until the new source has some segments.
    fn retire(&mut self) {
        self.retired = self.segments.drain(..).collect();
        self.unlisted = 0;
    }

    fn clear(&mut self) {
        self.segments.clear();
        self.unlisted = 0;
    }

    /// Ends the window: its source closed the stream, or is gone. A later part begins it again.
    pub fn end(&mut self) {
        self.ended = true;
        self.break_off();
    }

    /// Returns whether the source closed the stream.
    pub fn is_ended(&self) -> bool {
        self.ended
    }

    /// Returns whether the bytes of segments are overwritten too early: a segment that left the list could not be fetched for its own
    /// duration and that of the list, even if the list was as short as it may be. About eight target durations of bytes are enough.
    pub fn window_too_short(&self) -> bool {
        self.window_too_short
    }

    /// Returns the listed segments, the oldest first.
    pub fn segments(&self) -> impl DoubleEndedIterator<Item = &Segment<T>> + ExactSizeIterator {
        self.segments.range(self.unlisted..)
    }

    /// Returns a segment whose bytes are held. It is listed or was listed, perhaps with the previous source.
    pub fn segment(&self, number: u64) -> Option<&Segment<T>> {
        let held = self
            .segments
            .front()
            .and_then(|first| self.segments.get(usize::try_from(number.checked_sub(first.number)?).ok()?));
        held.or_else(|| self.retired.iter().find(|segment| segment.number == number))
    }

    /// Returns the number of the first listed segment, or of the next one if none is listed.
    pub fn first_number(&self) -> u64 {
        self.segments().next().map_or(self.next, |first| first.number)
    }

    /// Returns the number of the next new segment.
    pub fn next_number(&self) -> u64 {
        self.next
    }

    /// Returns the value of `EXT-X-DISCONTINUITY-SEQUENCE`: the number of the timeline before the discontinuity of the first listed
    /// segment. If the source does not number timelines, it is the number of discontinuities that were removed from the list.
    pub fn discontinuity_sequence(&self) -> u64 {
        self.segments()
            .next()
            .map_or(self.timeline, |first| first.timeline.saturating_sub(u64::from(first.discontinuity)))
    }

    /// Returns the average rate of the listed segments that are complete, in bits per second; `None` without one.
    pub fn average_bandwidth(&self) -> Option<u64> {
        let complete = self.segments().filter(|segment| segment.state == SegmentState::Complete);
        let add = |(bytes, us): (u64, u64), own: &Segment<T>| (bytes + own.bytes(), us + own.duration_us);
        let (bytes, us) = complete.fold((0, 0), add);
        (bytes * 8_000_000).checked_div(us)
    }

    /// Returns the longest duration of a segment so far, in microseconds, and at least the announced one.
    pub fn target_us(&self) -> u64 {
        self.target_us
    }

    /// Returns the longest duration of a part of the first segment, in microseconds, and at least the announced one. It never changes after
    /// that segment: players do not take another value (RFC 8216bis, 6.2.1).
    pub fn part_target_us(&self) -> u64 {
        self.part_target_us
    }

    /// Returns the segment and the index of the newest part that players may ask for; `None` without one.
    pub fn newest_part(&self) -> Option<(u64, u32)> {
        let segment = self.segments.iter().rev().find(|segment| segment.known_parts() > 0)?;
        Some((segment.number, segment.known_parts() as u32 - 1))
    }

    /// Returns the segment and the index of the part that playlists have next, if nothing goes wrong. A part that is too long, and those
    /// behind it, come with their segment.
    pub fn next_part(&self) -> (u64, u32) {
        match self.segments.back() {
            Some(last) if last.state == SegmentState::Open => (last.number, last.even_parts as u32),
            _ => (self.next, 0),
        }
    }

    /// Returns whether segment `number`, or its part `part`, is in the list (or was). A part beyond the last one of its segment is
    /// the first one of the next (RFC 8216bis, 6.2.5.2).
    pub fn reached(&self, number: u64, part: Option<u32>) -> Reached {
        if self.ended {
            return Reached::Yes;
        }
        if !self.begun {
            // The player has read the stream before this server started. The segment that it asks for will come.
            return Reached::NotYet;
        }
        if number > self.next + 1 {
            return Reached::TooFar;
        }
        let (next, index) = self.next_part();
        let reached = match part {
            None => number < next,
            Some(part) => number < next || (number == next && part < index),
        };
        // Of a complete segment, a part that it does not have is the first one of its successor.
        let beyond = part.is_some_and(|part| {
            number + 1 == next
                && index == 0
                && self.segment(number).is_some_and(|own| part as usize >= own.parts.len())
        });
        if reached && !beyond { Reached::Yes } else { Reached::NotYet }
    }
}

/// Wall clock minus presentation time, in nanoseconds, if the part came without delay.
fn wall_offset_ns<T>(part: &NewPart<T>) -> i128 {
    let first = i128::from(part.produced_ns) - i128::from(part.duration_us) * 1000;
    first - i128::from(part.start_us) * 1000
}

/// The source's number of a part's timeline, unless it is above [`MAX_NUMBER`].
fn counted<T>(part: &NewPart<T>) -> Option<u64> {
    part.timeline.filter(|number| *number <= MAX_NUMBER)
}
