//! The clocks of the two tracks, made one.
//!
//! ```text
//!   pictures  0 40 80 7 160 200 …          one odd time: it is the one between its neighbours
//!   sound     0 21 42 …  3600064 3600085   these agree with each other: the clock of this track is another from here on,
//!   pictures  0 40 80 …                    and since the pictures go on, the sound is placed beside them
//! ```
//!
//! A time counts as a jump only if the times after it confirm it. If both tracks jump, the encoder has started over.

use crate::unit::{AccessUnit, Media, TICKS_PER_SECOND};

/// How far one track may be ahead of the other, in ticks, before they have different clocks, or parts without video are made.
pub(super) const MAX_LEAD: i64 = 2 * TICKS_PER_SECOND;
/// The longest time between two frames of a track, in ticks, that no other track needs to confirm.
const MAX_STEP: i64 = TICKS_PER_SECOND;
/// The longest time between two frames, in ticks, where there is no other track.
const MAX_JUMP: i64 = 10 * TICKS_PER_SECOND;
/// The most by which a time is before its predecessor, in ticks, that is no odd time: clocks jitter.
const MAX_JITTER: i64 = TICKS_PER_SECOND / 20;
/// The most by which the time of a picture is before its predecessor, in ticks, where pictures are out of order.
const MAX_STEP_BACK: i64 = TICKS_PER_SECOND / 2;
/// The frames, one after the other, that confirm a jump.
const CONFIRMED_BY: usize = 3;
/// The most frames that wait for a confirmation. An encoder with more odd times than this has no clock.
const MAX_ODD: usize = 8;
/// The assumed duration of a frame, in ticks, until another follows.
const FIRST_FRAME: i64 = TICKS_PER_SECOND / 30;

/// What comes of a frame, in this order.
#[derive(Debug)]
pub(super) enum Step {
    /// A frame with its time on the stream's clock, which is later than the one before of its track.
    Unit(AccessUnit),
    /// A frame had a time that did not fit, and has another now.
    Mended,
    /// A track has another clock than the other track, and is placed beside it.
    Placed,
    /// The encoder's clock jumped. The stream's clock goes on.
    Jumped,
    /// The encoder's clock jumped, and the stream's clock is what the encoder has from these frames on.
    Restart(Vec<AccessUnit>),
}

#[derive(Debug, Default)]
struct Track {
    /// The difference of the stream's clock and the track's.
    offset: i64,
    /// The first and the newest time, on the stream's clock.
    first: Option<i64>,
    last: Option<i64>,
    /// The usual duration of a frame.
    frame: i64,
    /// Frames that do not fit.
    odd: Vec<AccessUnit>,
    /// The newest time of the other track when the first of them came.
    beside: Option<i64>,
}

/// The clocks since the beginning of a timeline.
#[derive(Debug, Default)]
pub(super) struct Clocks {
    tracks: [Track; 2],
}

/// How a track is judged.
#[derive(Debug, Clone, Copy)]
pub(super) struct Role {
    /// Segments are cut at the frames of this track.
    pub(super) leads: bool,
    /// The longest hole in the leading track of one of several renditions, which have segments in it. `None`: there are no others.
    pub(super) most: Option<i64>,
}

fn index(media: Media) -> usize {
    match media {
        Media::Video => 0,
        Media::Audio => 1,
    }
}

impl Track {
    fn place(&mut self, mut unit: AccessUnit, time: i64) -> Step {
        let offset = unit.pts.saturating_sub(unit.dts).clamp(-MAX_JUMP, MAX_JUMP);
        // Times within a track always grow: players stop at a frame that does not come after the one before.
        let time = self.last.map_or(time, |last| time.max(last + 1));
        self.frame = self.last.map_or(FIRST_FRAME, |last| (time - last).min(MAX_STEP));
        self.first.get_or_insert(time);
        self.last = Some(time);
        (unit.dts, unit.pts) = (time, time + offset);
        Step::Unit(unit)
    }

    /// Where the next frame is expected.
    fn next(&self) -> Option<i64> {
        self.last.or(self.beside).map(|last| last + self.frame)
    }

    /// How many of the newest odd frames follow each other.
    fn confirmed(&self) -> usize {
        let follows = |pair: &&[AccessUnit]| {
            let step = pair[1].dts.saturating_sub(pair[0].dts);
            (-MAX_STEP_BACK..=MAX_STEP).contains(&step)
        };
        let pairs: Vec<_> = self.odd.windows(2).collect();
        1 + pairs.iter().rev().take_while(|pair| follows(pair)).count()
    }

    /// Places frames of the clock that is in force now, and others where the next one is expected.
    fn release(&mut self, units: Vec<AccessUnit>, steps: &mut Vec<Step>) {
        for unit in units {
            let (time, next) = (unit.dts.saturating_add(self.offset), self.next());
            let place = next.filter(|next| time.abs_diff(*next) > MAX_JUMP as u64).unwrap_or(time);
            steps.push(self.place(unit, place));
        }
    }

    /// Gives odd frames the times between the neighbours, `end` being the next one.
    fn mend(&mut self, odd: Vec<AccessUnit>, end: i64, steps: &mut Vec<Step>) {
        let Some(last) = self.last.or(self.beside) else { return };
        let count = odd.len() as i64 + 1;
        let each = (end - last) / count;
        for (at, unit) in (1..).zip(odd) {
            steps.push(Step::Mended);
            steps.push(self.place(unit, last + each * at));
        }
    }
}

impl Clocks {
    /// Takes the next frame of the input.
    pub(super) fn take(&mut self, unit: AccessUnit, role: Role) -> Vec<Step> {
        let (own, other) = (index(unit.media), 1 - index(unit.media));
        let Track { first: begun, last: beside, offset, .. } = self.tracks[other];
        let mut steps = Vec::with_capacity(1);
        let track = &mut self.tracks[own];
        let time = unit.dts.saturating_add(track.offset);
        let is_first = track.last.is_none() && is_late(begun, beside, time);
        if is_first || fits(track.last, beside, time, role) {
            let odd = std::mem::take(&mut track.odd);
            track.mend(odd, time, &mut steps);
            steps.push(track.place(unit, time));
            return steps;
        }
        if track.odd.is_empty() {
            track.beside = beside;
        }
        let media = unit.media;
        track.odd.push(unit);
        let confirmed = track.confirmed();
        // Pictures that are out of order are behind the newest one for some frames, unless the sound has stepped back too.
        let is_behind = |last: i64| (last - MAX_STEP_BACK..last).contains(&time);
        let may_be_order =
            media == Media::Video && track.last.is_some_and(is_behind) && track.offset == offset;
        if confirmed >= CONFIRMED_BY && !may_be_order || track.odd.len() >= MAX_ODD {
            self.jump(own, confirmed, role, &mut steps);
        }
        steps
    }

    /// The frames that still wait, at the end of the input.
    pub(super) fn flush(&mut self) -> Vec<Step> {
        let mut steps = Vec::new();
        for track in &mut self.tracks {
            let odd = std::mem::take(&mut track.odd);
            let end = track.next().unwrap_or(0) + track.frame * odd.len() as i64;
            track.mend(odd, end, &mut steps);
        }
        steps
    }

    /// A track's clock is another one since its newest `confirmed` odd frames.
    fn jump(&mut self, own: usize, confirmed: usize, role: Role, steps: &mut Vec<Step>) {
        let [track, other] = self.pair(own);
        let since = track.odd.split_off(track.odd.len() - confirmed);
        let odd = std::mem::take(&mut track.odd);
        let end = track.next().unwrap_or(0) + track.frame * odd.len() as i64;
        track.mend(odd, end, steps);
        let first = since.first().map_or(0, |unit| unit.dts);
        let near = |time: i64, place: i64| time.abs_diff(place) <= MAX_LEAD as u64;
        // The other track has the same jump, or has ended.
        let together = other.odd.last().is_some_and(|unit| near(unit.dts, first));
        let is_alone = other.last.is_none_or(|last| track.last.is_some_and(|own| last < own - MAX_LEAD));
        if role.most.is_some() && (role.leads || together || is_alone) {
            let mut frames = [since, std::mem::take(&mut other.odd)];
            frames.sort_by_key(|own| own.first().map(|unit| unit.media != Media::Video));
            return steps.push(Step::Restart(frames.concat()));
        }
        let place = track.next().max(track.beside).unwrap_or(first);
        let steps_back = track.last.is_some_and(|last| first.saturating_add(track.offset) < last);
        let follows = other.offset != track.offset && near(first.saturating_add(other.offset), place);
        if together || is_alone {
            let end = track.next().max(other.next()).unwrap_or(first);
            let from = other.odd.iter().take(1).map(|unit| unit.dts).filter(|dts| near(*dts, first));
            track.offset = end.saturating_sub(from.fold(first, i64::min));
            other.offset = track.offset;
        } else if follows {
            track.offset = other.offset;
        } else if steps_back || !near(first.saturating_add(track.offset), place) {
            track.offset = place.saturating_sub(first);
        }
        steps.push(if together || is_alone || follows { Step::Jumped } else { Step::Placed });
        track.release(since, steps);
        if together {
            let waiting = std::mem::take(&mut other.odd);
            other.release(waiting, steps);
        }
    }

    fn pair(&mut self, own: usize) -> [&mut Track; 2] {
        let [video, audio] = &mut self.tracks;
        if own == 0 { [video, audio] } else { [audio, video] }
    }
}

/// Whether the first time of a track is behind what the other one has, from `begun` to `beside`, as in files and muxes that have the sound
/// of pictures after them.
fn is_late(begun: Option<i64>, beside: Option<i64>, time: i64) -> bool {
    let (Some(begun), Some(beside)) = (begun, beside) else { return false };
    (begun.max(beside - MAX_JUMP) - MAX_LEAD..beside).contains(&time)
}

/// Whether a time may come after the newest one of its track, `last`. `beside` is the newest one of the other track.
fn fits(last: Option<i64>, beside: Option<i64>, time: i64, Role { leads, most }: Role) -> bool {
    let near = |other: i64| time.abs_diff(other) <= MAX_LEAD as u64;
    let Some(last) = last else { return beside.is_none_or(near) };
    let step = time.saturating_sub(last);
    if step < -MAX_JITTER || most.is_some_and(|most| leads && step > most) {
        return false;
    }
    // A track that has ended is no measure.
    let beside = beside.filter(|other| *other >= last - MAX_LEAD);
    step <= MAX_STEP || beside.map_or(step <= MAX_JUMP, near)
}
