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
#[derive(Debug, Default)]
pub(super) struct Taken {
    pub(super) video: Vec<AccessUnit>,
    pub(super) audio: Vec<AccessUnit>,
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
        let frame = newest.map_or(FIRST_FRAME, |(_, before)| (unit.dts - before).clamp(1, MAX_FRAME));
        *newest = Some((frame, unit.dts));
        self.bytes += unit.data.len();
        self.units[index(unit.media)].push(unit);
    }

    pub(super) fn has(&self, media: Media) -> bool {
        !self.units[index(media)].is_empty()
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

    /// Takes the frames of the leading track, and those of the other one that begin before `end`.
    pub(super) fn take_before(&mut self, end: i64, lead: Media) -> Taken {
        let mut take = |media: Media| {
            let units = &mut self.units[index(media)];
            let count =
                if media == lead { units.len() } else { units.partition_point(|unit| unit.dts < end) };
            units.drain(..count).collect()
        };
        let taken = Taken { video: take(Media::Video), audio: take(Media::Audio) };
        self.bytes -= taken.video.iter().chain(&taken.audio).map(|unit| unit.data.len()).sum::<usize>();
        taken
    }
}
