//! When frames leave.
//!
//! ```text
//!   a part arrives:  ▮▮▮▮▮▮▮         ▮▮▮▮▮▮▮         ▮▮▮▮▮▮▮
//!   frames leave:    ▮ ▮ ▮ ▮ ▮ ▮ ▮ ▮ ▮ ▮ ▮ ▮ ▮ ▮ ▮ ▮ ▮ ▮ ▮ ▮
//! ```
//!
//! The first frame of a part is as late as the part is long; the last one comes just in time. A viewer can show no frame earlier than the latest one
//! allows, so nothing is lost when each frame leaves at the pace at which it was made. But the viewer's browser sees frames without jitter, and
//! keeps a short buffer; and the network sees no bursts.
//!
//! The times that viewers get are those of the wall clock when a frame was made, in ticks and without the bits that RTP has no room for: so a page
//! knows how late the picture is that it shows.

use std::time::{Duration, Instant};

use rblive_media::unit::TICKS_PER_SECOND;

/// How much of the time by which parts come early is made good at each part.
const CATCH_UP: u32 = 16;

/// Frames that come earlier than this are of another timeline.
const MAX_EARLY: Duration = Duration::from_secs(20);

/// The relation between the times of a stream, the clock of this process, and the times that viewers get.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Clock {
    at: Instant,
    ticks: i64,
    /// The time that viewers get for `ticks`.
    sent: i64,
}

fn duration(ticks: i64) -> Duration {
    Duration::from_nanos(
        u64::try_from(i128::from(ticks.max(0)) * 1_000_000_000 / i128::from(TICKS_PER_SECOND))
            .unwrap_or(u64::MAX),
    )
}

impl Clock {
    /// A frame of this time leaves now. It was made at `wall`, in ticks since 1970.
    pub(crate) fn begin(ticks: i64, now: Instant, wall: i64) -> Self {
        Self { at: now, ticks, sent: wall & i64::from(u32::MAX) }
    }

    /// Another timeline begins with a frame of this time, which leaves now: the times that viewers get go on behind those of the `last` frame.
    pub(crate) fn go_on(&mut self, last: i64, first: i64, now: Instant, wall: i64) {
        let behind = self.sent.saturating_add(last.saturating_sub(self.ticks)).saturating_add(1);
        // The wall clock, with as many turns of the bits as there were.
        let turn = 1_i64 << 32;
        let ahead = (wall.wrapping_sub(behind)).rem_euclid(turn);
        let sent = if ahead < turn / 2 { behind.saturating_add(ahead) } else { behind };
        *self = Self { at: now, ticks: first, sent };
    }

    /// A part arrives whose first frame has this time. False: it is so early that it cannot be of this timeline.
    pub(crate) fn arrive(&mut self, first: i64, now: Instant) -> bool {
        let due = self.due(first);
        let early = due.saturating_duration_since(now);
        if early > MAX_EARLY {
            return false;
        }
        self.at += now.saturating_duration_since(due);
        self.at -= early / CATCH_UP;
        true
    }

    /// When a frame of this time leaves.
    pub(crate) fn due(&self, time: i64) -> Instant {
        let distance = time.saturating_sub(self.ticks);
        match distance < 0 {
            true => self.at.checked_sub(duration(distance.saturating_neg())).unwrap_or(self.at),
            false => self.at.checked_add(duration(distance)).unwrap_or(self.at),
        }
    }

    /// The time that viewers get for a frame, in ticks.
    pub(crate) fn sent(&self, time: i64) -> u64 {
        let sent = self.sent.saturating_add(time.saturating_sub(self.ticks));
        // The ticks are one wrap of 32 bits ahead, for sound that begins earlier than the picture.
        u64::try_from(sent.saturating_add(1 << 32)).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_leave_at_the_pace_at_which_they_were_made() {
        let now = Instant::now();
        let mut clock = Clock::begin(1_000_000, now, 0);
        assert_eq!(clock.due(1_000_000), now);
        assert_eq!(clock.due(1_009_000), now + Duration::from_millis(100));
        assert!(clock.arrive(1_027_000, now + Duration::from_millis(350)));
        assert_eq!(clock.due(1_027_000), now + Duration::from_millis(350), "what is late leaves at once");
        assert_eq!(
            clock.due(1_036_000),
            now + Duration::from_millis(450),
            "and all that follows leaves later"
        );
        assert!(clock.arrive(1_054_000, now + Duration::from_millis(634)));
        assert_eq!(clock.due(1_054_000), now + Duration::from_millis(649), "what is early becomes slowly so");
        assert_eq!(clock.sent(1_054_000) - clock.sent(1_027_000), 27_000);
        assert!(!clock.arrive(90_000 * 60, now), "another timeline");
    }

    #[test]
    fn another_timeline_goes_on_behind_the_one_before_by_the_wall_clock() {
        let now = Instant::now();
        let later = now + Duration::from_millis(200);
        let wall = (7 << 32) + 1_000;
        let mut clock = Clock::begin(500, now, wall);
        let rtp = |clock: &Clock, time: i64| clock.sent(time) as u32;
        assert_eq!(rtp(&clock, 500), 1_000);
        clock.go_on(9_500, 7, later, wall + 18_000);
        assert_eq!(clock.due(7), later);
        assert_eq!(rtp(&clock, 7), 19_000, "the wall clock");
        let before = clock.sent(90_007);
        clock.go_on(90_007, 3, later, wall + 18_000);
        assert_eq!(clock.sent(3), before + 1, "the frames before are not sent yet");
        clock.go_on(3, 3, later, wall + 1_000_000);
        assert_eq!(rtp(&clock, 3), 1_001_000, "the wall clock again");
        for quarter in 1..6 {
            let wall = wall + (quarter << 30);
            clock.go_on(3, 3, later, wall);
            assert_eq!(rtp(&clock, 3), wall as u32, "{quarter} quarters of a turn later");
        }
        assert!(
            clock.sent(i64::MIN) == 0 && clock.due(i64::MAX) >= now && clock.due(i64::MIN) <= clock.due(3)
        );
    }
}
