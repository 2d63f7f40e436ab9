//! The frames of one stream on their way to all of its viewers.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rblive_media::unit::{AccessUnit, AudioCodec, Input, Media, TICKS_PER_SECOND, TrackConfig, VideoCodec};

use crate::annexb::AnnexB;
use crate::clock::Clock;
use crate::source::{News, Source};

/// The most frames, and bytes of them, that wait for their time. A part has less than a second; only an encoder's own files are longer.
const MAX_WAITING: usize = 4_096;
const MAX_WAITING_BYTES: usize = 32 << 20;

/// How late a frame may leave. Where the thread has more to send than it can, viewers lose frames, and are not further behind with each.
const MAX_LATE: Duration = Duration::from_secs(1);

/// A frame is not said to be older than this: clocks of machines differ.
const MAX_AGE: Duration = Duration::from_secs(60);

/// Why a stream with this order of frames is not sent: browsers show frames as they come.
pub const REORDERED: &str = "the stream has B-frames, which browsers show in the wrong order by WebRTC: let the encoder make none (-bf 0, or -tune zerolatency)";

/// A frame as each viewer gets it.
#[derive(Debug, Clone)]
pub(crate) struct Frame {
    pub(crate) media: Media,
    pub(crate) key: bool,
    /// Whether viewers need a key frame from here on.
    pub(crate) breaks: bool,
    /// In ticks of 90 kHz.
    pub(crate) time: u64,
    /// When it was made, on the clock of this process.
    pub(crate) made: Instant,
    pub(crate) data: Arc<[u8]>,
}

/// A stream that somebody watches.
pub(crate) struct Feed {
    source: Box<dyn Source>,
    /// Its viewers.
    pub(crate) viewers: Vec<u64>,
    annexb: Option<AnnexB>,
    /// The sound is of a codec that browsers take.
    takes_sound: bool,
    clock: Option<Clock>,
    /// The wall clock minus the times of frames.
    wall_ns: Option<i128>,
    waiting: VecDeque<(Instant, Frame)>,
    waiting_bytes: usize,
    /// The presentation time of the newest picture, and the largest decoding time so far.
    newest: Option<(i64, i64)>,
    breaks: bool,
    /// The reason for which the stream is not sent any more.
    pub(crate) ended: Option<String>,
    /// Frames that were left out since nobody could send them in time.
    pub(crate) late: u64,
    news: Vec<News>,
}

impl Feed {
    pub(crate) fn new(source: Box<dyn Source>) -> Self {
        Self {
            source,
            viewers: Vec::new(),
            annexb: None,
            takes_sound: false,
            clock: None,
            wall_ns: None,
            waiting: VecDeque::new(),
            waiting_bytes: 0,
            newest: None,
            breaks: true,
            ended: None,
            late: 0,
            news: Vec::new(),
        }
    }

    /// Takes what is new at the source.
    pub(crate) fn take(&mut self, now: Instant) {
        let mut news = std::mem::take(&mut self.news);
        self.source.take(&mut news);
        let mut is_first = true;
        for one in news.drain(..) {
            match one {
                News::Input(Input::Config(TrackConfig::Video(config))) => match AnnexB::of(&config) {
                    Some(own) => self.annexb = Some(own),
                    None => self.end(codec_of(config.codec)),
                },
                News::Input(Input::Config(TrackConfig::Audio(config))) => {
                    self.takes_sound = takes(config.codec);
                }
                News::Input(Input::Unit(unit)) => {
                    self.unit(&unit, is_first, now);
                    is_first = false;
                }
                News::Input(Input::Tracks { .. }) => {}
                News::Clock(offset_ns) => self.wall_ns = Some(offset_ns),
                News::Break => (self.breaks, is_first) = (true, true),
                News::End(why) => self.end(&why),
            }
        }
        self.news = news;
    }

    fn end(&mut self, why: &str) {
        self.ended.get_or_insert_with(|| why.to_owned());
    }

    fn unit(&mut self, unit: &AccessUnit, is_first: bool, now: Instant) {
        if unit.media == Media::Audio && !self.takes_sound {
            return;
        }
        if unit.media == Media::Video && !self.breaks && self.newest.is_some_and(|(pts, _)| unit.pts < pts) {
            return self.end(REORDERED);
        }
        let data = match (unit.media, &self.annexb) {
            (Media::Audio, _) => Some(unit.data[..].into()),
            (Media::Video, own) => own.as_ref().and_then(|own| own.frame(&unit.data, unit.key)),
        };
        let Some(data) = data else {
            // The decoder cannot go on without it.
            self.breaks = true;
            return;
        };
        self.schedule(unit, data, is_first, now);
    }

    fn schedule(&mut self, unit: &AccessUnit, data: Arc<[u8]>, is_first: bool, now: Instant) {
        let last = self.newest.map_or(unit.dts, |(_, dts)| dts);
        let wall = wall(self.wall_ns, unit.dts);
        let clock = match &mut self.clock {
            None => self.clock.insert(Clock::begin(unit.dts, now, wall)),
            Some(clock) => {
                let is_other = is_first && (self.breaks || !clock.arrive(unit.dts, now));
                if is_other {
                    clock.go_on(last, unit.dts, now, wall);
                    self.breaks = true;
                }
                clock
            }
        };
        let is_full =
            self.waiting.len() >= MAX_WAITING || self.waiting_bytes + data.len() > MAX_WAITING_BYTES;
        if is_full {
            self.breaks = true;
            return;
        }
        let breaks = unit.media == Media::Video && std::mem::take(&mut self.breaks);
        let (due, time) = (clock.due(unit.dts), clock.sent(unit.pts));
        let made = self.wall_ns.and_then(|offset| made(offset, unit.pts, now)).unwrap_or(due);
        let highest = self.newest.map_or(unit.dts, |(_, dts)| dts.max(unit.dts));
        match unit.media {
            Media::Video => self.newest = Some((unit.pts, if breaks { unit.dts } else { highest })),
            Media::Audio => self.newest = self.newest.map(|(pts, _)| (pts, highest)),
        }
        self.waiting_bytes += data.len();
        self.waiting.push_back((due, Frame { media: unit.media, key: unit.key, breaks, time, made, data }));
    }

    /// The next frame, if its time has come.
    pub(crate) fn pop(&mut self, now: Instant) -> Option<Frame> {
        if self.due().is_some_and(|due| now.saturating_duration_since(due) > MAX_LATE) {
            self.skip(now);
        }
        let frame = self.waiting.pop_front_if(|(due, _)| *due <= now)?.1;
        self.waiting_bytes -= frame.data.len();
        Some(frame)
    }

    /// Leaves out what is late: all before the newest key frame whose time has come, or all whose time has come.
    fn skip(&mut self, now: Instant) {
        let is_due = |own: &&(Instant, Frame)| own.0 <= now;
        let due = self.waiting.iter().take_while(is_due).count();
        let key = self.waiting.iter().take(due).rposition(|(_, own)| own.key && own.media == Media::Video);
        for (_, frame) in self.waiting.drain(..key.unwrap_or(due)) {
            self.waiting_bytes -= frame.data.len();
            self.late += 1;
        }
        match self.waiting.iter_mut().find(|(_, own)| own.media == Media::Video) {
            Some((_, next)) => next.breaks = true,
            None => self.breaks = true,
        }
    }

    /// When the next frame leaves.
    pub(crate) fn due(&self) -> Option<Instant> {
        self.waiting.front().map(|(due, _)| *due)
    }
}

/// When a frame was made, in ticks since 1970: by what the source says, or now.
fn wall(offset_ns: Option<i128>, ticks: i64) -> i64 {
    let own =
        offset_ns.map(|offset| offset + i128::from(ticks) * 1_000_000_000 / i128::from(TICKS_PER_SECOND));
    let now = || SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as i128);
    (own.unwrap_or_else(now) * i128::from(TICKS_PER_SECOND) / 1_000_000_000) as i64
}

/// When a frame was made, on the clock of this process. `None`: nothing that can be.
fn made(offset_ns: i128, ticks: i64, now: Instant) -> Option<Instant> {
    let wall = SystemTime::now().duration_since(UNIX_EPOCH).ok()?.as_nanos();
    let own = offset_ns.checked_add(i128::from(ticks) * 1_000_000_000 / i128::from(TICKS_PER_SECOND))?;
    let age = i128::try_from(wall).ok()?.checked_sub(own)?;
    let age = Duration::from_nanos(u64::try_from(age).ok()?);
    now.checked_sub(age).filter(|_| age <= MAX_AGE)
}

/// Whether browsers take the codec of a sound.
pub(crate) fn takes(_: AudioCodec) -> bool {
    // AAC, AC-3 and E-AC-3: none of them.
    false
}

fn codec_of(codec: VideoCodec) -> &'static str {
    match codec {
        VideoCodec::H264 => "the configuration of the stream's H.264 is damaged",
        VideoCodec::Hevc | VideoCodec::Av1 => "the stream is no H.264, which is what goes by WebRTC",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::Bell;

    struct Nothing;

    impl Source for Nothing {
        fn start(&mut self, _: Bell) {}
        fn take(&mut self, _: &mut Vec<News>) {}
    }

    /// A feed of pictures, of which some are key frames, one each 40 ms.
    fn feed(begin: Instant, keys: &[usize]) -> Feed {
        let mut feed = Feed::new(Box::new(Nothing));
        feed.breaks = false;
        for number in 0..100 {
            let due = begin + Duration::from_millis(40) * number as u32;
            let data: Arc<[u8]> = [0; 10].into();
            feed.waiting_bytes += data.len();
            let key = keys.contains(&number);
            let time = number as u64;
            feed.waiting
                .push_back((due, Frame { media: Media::Video, key, breaks: false, time, made: due, data }));
        }
        feed
    }

    #[test]
    fn frames_that_are_too_late_are_left_out_up_to_a_key_frame() {
        let begin = Instant::now();
        let next = |keys: &[usize], now_ms| {
            let mut feed = feed(begin, keys);
            let frame = feed.pop(begin + Duration::from_millis(now_ms));
            assert_eq!(feed.waiting_bytes, 10 * feed.waiting.len());
            (frame.map(|own| (own.time, own.breaks)), feed.late, feed.breaks)
        };
        assert_eq!(next(&[0, 20, 60], 1_000), (Some((0, false)), 0, false), "late, and not too late");
        assert_eq!(next(&[0, 20, 60], 1_001), (Some((20, true)), 20, false));
        assert_eq!(next(&[0, 20, 60], 4_000), (Some((60, true)), 60, false));
        assert_eq!(next(&[], 2_000), (None, 51, false), "what is not due yet waits for a key frame");
        assert_eq!(next(&[], 8_000), (None, 100, true));
    }
}
