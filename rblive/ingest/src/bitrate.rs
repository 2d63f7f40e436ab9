//! The bit rate and the longest segment of a rendition, for its description.

use rblive_media::segmenter::Part;

/// The bit rate of a rendition.
#[derive(Debug)]
pub(crate) struct BitRate {
    /// The longest segment so far, in microseconds, and at least the usual length.
    pub(crate) longest_us: u64,
    /// The highest rate of a segment, in bits per second. It is that of a single part until a segment is complete.
    pub(crate) bandwidth: u64,
    /// The rate that the encoder announces, in bits per second.
    pub(crate) announced: u64,
    /// The rate of the newest segment, in bits per second.
    pub(crate) newest: u64,
    is_guessed: bool,
    /// Whether a segment is complete.
    has_segment: bool,
    /// The duration and the bytes of the newest segments, until they are long enough to have a rate.
    recent_us: u64,
    recent_bytes: u64,
    /// The duration and the bytes of the open segment.
    open_us: u64,
    open_bytes: u64,
}

fn rate(bytes: u64, us: u64) -> u64 {
    bytes * 8_000_000 / us.max(1)
}

impl BitRate {
    pub(crate) fn new(target_ms: u32) -> Self {
        let longest_us = u64::from(target_ms) * 1000;
        Self {
            longest_us,
            bandwidth: 0,
            announced: 0,
            newest: 0,
            is_guessed: true,
            has_segment: false,
            recent_us: 0,
            recent_bytes: 0,
            open_us: 0,
            open_bytes: 0,
        }
    }

    /// The rate for which the stream's buffer needs room: that of segments, or the announced one before there is any.
    pub(crate) fn needed(&self) -> u64 {
        if self.is_guessed { self.announced } else { self.bandwidth }
    }

    /// The seconds that playlists announce, if a segment of so many microseconds is longer than the first ones.
    pub(crate) fn exceeded(&self, us: u64) -> Option<u64> {
        let seconds = |us: u64| ((us + 500_000) / 1_000_000).max(1);
        let announced = seconds(self.longest_us);
        (self.has_segment && seconds(us) > announced).then_some(announced)
    }

    /// Adds a part to the open segment.
    pub(crate) fn part(&mut self, part: &Part) {
        let (bytes, us) = (part.size() as u64, u64::from(part.duration_us));
        (self.open_us, self.open_bytes) = (self.open_us + us, self.open_bytes + bytes);
        if part.index == 0 && self.is_guessed {
            self.bandwidth = rate(bytes, us);
        }
    }

    /// Ends the open segment.
    pub(crate) fn end_segment(&mut self) {
        self.segment(self.open_bytes, self.open_us);
        self.leave_segment();
    }

    /// Forgets the open segment.
    pub(crate) fn leave_segment(&mut self) {
        (self.open_us, self.open_bytes) = (0, 0);
    }

    /// Adds a complete segment. Short ones have a rate together (RFC 8216bis, 4.4.6.2): alone, that of a key frame is many times too high.
    pub(crate) fn segment(&mut self, bytes: u64, us: u64) {
        self.newest = rate(bytes, us);
        (self.longest_us, self.has_segment) = (self.longest_us.max(us), true);
        (self.recent_us, self.recent_bytes) = (self.recent_us + us, self.recent_bytes + bytes);
        let least = self.longest_us / 2;
        let own = rate(self.recent_bytes, self.recent_us.max(least));
        self.bandwidth = if self.is_guessed { own } else { self.bandwidth.max(own) };
        if self.recent_us >= least {
            self.is_guessed = false;
            (self.recent_us, self.recent_bytes) = (0, 0);
        }
    }
}
