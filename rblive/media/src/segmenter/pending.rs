//! Frames that wait for their part to be complete.

use crate::unit::{AccessUnit, Media, TICKS_PER_SECOND};

/// The assumed duration of a first frame, in ticks.
const FIRST_FRAME: i64 = TICKS_PER_SECOND / 30;
/// The longest duration of a frame that is taken as the usual one.
const MAX_FRAME: i64 = TICKS_PER_SECOND;

#[derive(Debug, Default)]
pub(super) struct Pending {
    units: [Vec<AccessUnit>; 2],
    /// The usual duration of a frame, and the time of the newest one.
    newest: [Option<(i64, i64)>; 2],
    /// The bytes of all frames: an encoder may send so many small ones that their sum is too long to be made for each.
    bytes: usize,
}

/// The frames of a part, in decoding order.
#[derive(Debug)]
pub(super) struct Taken {
    /// The track at whose frames parts are cut.
    pub(super) lead: Media,
    pub(super) video: Vec<AccessUnit>,
    pub(super) audio: Vec<AccessUnit>,
    /// How many frames of the audio are silence that was put there.
    pub(super) silent: u32,
}

impl Taken {
    /// Frames from `from` to `end` as parts of at most `most` ticks, and the ends of these parts. Where a picture lasts for longer, the
    /// sound of that time is in parts of its own; without sound, the part is as long as the picture.
    pub(super) fn split(mut self, from: i64, end: i64, most: i64) -> Vec<(Self, i64)> {
        let count = if self.lead == Media::Video { (end - from + most - 1) / most } else { 1 };
        let stop = |at: i64| from + (end - from) * at / count.max(1);
        let index = |audio: &[AccessUnit], at: i64| audio.partition_point(|unit| unit.dts < stop(at));
        let has_sound = |at: i64| index(&self.audio, at) < index(&self.audio, at + 1);
        // The pictures are in the first part, and end within it but for the last one.
        let in_first = self.video.last().is_none_or(|unit| unit.dts < stop(1));
        if count <= 1 || !in_first || !(1..count).all(has_sound) {
            return vec![(self, end)];
        }
        let mut parts = Vec::with_capacity(count as usize);
        for at in 1..=count {
            let rest =
                self.audio.split_off(if at == count { self.audio.len() } else { index(&self.audio, at) });
            let (video, audio) = (std::mem::take(&mut self.video), std::mem::replace(&mut self.audio, rest));
            let silent = self.silent.min(audio.len() as u32);
            self.silent -= silent;
            parts.push((Self { lead: self.lead, video, audio, silent }, stop(at)));
        }
        parts
    }
}

fn index(media: Media) -> usize {
    match media {
        Media::Video => 0,
        Media::Audio => 1,
    }
}

impl Pending {
    pub(super) fn push(&mut self, unit: AccessUnit) {
        let newest = &mut self.newest[index(unit.media)];
        // One long frame is not the usual one.
        let usual = |frame: i64, before: i64| (unit.dts - before).clamp(1, MAX_FRAME.min(2 * frame));
        let frame = newest.map_or(FIRST_FRAME, |(frame, before)| usual(frame, before));
        *newest = Some((frame, unit.dts));
        self.bytes += unit.data.len();
        self.units[index(unit.media)].push(unit);
    }

    pub(super) fn has(&self, media: Media) -> bool {
        !self.units[index(media)].is_empty()
    }

    /// The oldest frame of this track.
    pub(super) fn first(&self, media: Media) -> Option<&AccessUnit> {
        self.units[index(media)].first()
    }

    /// The time of the newest of several frames of this track.
    pub(super) fn last_of_several(&self, media: Media) -> Option<i64> {
        let units = &self.units[index(media)];
        units.last().filter(|_| units.len() > 1).map(|unit| unit.dts)
    }

    /// The usual duration of a frame of this track.
    pub(super) fn frame(&self, media: Media) -> i64 {
        self.newest[index(media)].map_or(FIRST_FRAME, |(frame, _)| frame)
    }

    /// The time of the newest frame of this track.
    pub(super) fn last(&self, media: Media) -> Option<i64> {
        self.newest[index(media)].map(|(_, dts)| dts)
    }

    /// The latest end of the tracks' newest frames, by the usual duration of their frames.
    pub(super) fn end(&self) -> i64 {
        self.newest.iter().flatten().map(|(frame, dts)| dts + frame).max().unwrap_or(0)
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Takes the frames that begin before `end`.
    pub(super) fn take_before(&mut self, end: i64, lead: Media) -> Taken {
        let mut take = |media: Media| {
            let units = &mut self.units[index(media)];
            units.drain(..units.partition_point(|unit| unit.dts < end)).collect()
        };
        let taken = Taken { lead, video: take(Media::Video), audio: take(Media::Audio), silent: 0 };
        self.bytes -= taken.video.iter().chain(&taken.audio).map(|unit| unit.data.len()).sum::<usize>();
        taken
    }
}
