//! Posters: a picture of a stream, for lists of streams.
//!
//! The server has no decoder. A poster is the newest key frame as an MP4 file of one frame. The viewer's browser decodes it with the
//! decoder that it has for the video. A poster costs one copy of a frame out of the ring, and nothing between requests. An image would
//! need a decoder for each codec, and processor time for each stream, whether it is watched or not.

use rblive::content::Container;
use rblive_media::fmp4::InitSegment;
use rblive_media::window::{Segment, SegmentState};

use crate::answer::{Answer, Cache};
use crate::catalog::{LiveRendition, State};

/// The bytes at the beginning of a segment that are searched for its first `moof`.
const HEAD_BYTES: usize = 64 << 10;
/// The largest frame that becomes a poster.
const MAX_FRAME_BYTES: u32 = 4 << 20;
/// Seconds for which caches may keep a poster.
const SECONDS: u32 = 5;

/// The newest key frame of a stream, as a file.
pub(crate) fn answer(state: &State) -> Answer {
    if state.description.container != Container::Cmaf {
        return Answer::text(404, "a stream of MPEG-TS has no poster");
    }
    let pictures = state.renditions.iter().filter(|live| !live.about.is_audio_only());
    // The smallest picture is large enough for a list.
    let Some(live) = pictures.min_by_key(|live| live.about.bandwidth) else {
        return Answer::text(404, "a stream without a picture has no poster");
    };
    let newest = live.window.segments().rev().filter(|segment| segment.state != SegmentState::Gap);
    let Some(file) = newest.take(3).find_map(|segment| still(live, segment)) else {
        return Answer::text(404, "the stream has no key frame yet; try again in some seconds");
    };
    let etag = Some(format!("\"{:08x}-{}\"", crc32c::crc32c(&file), file.len()));
    Answer { etag, ranges: true, ..Answer::of(200, "video/mp4", Cache::For(SECONDS), file) }
}

fn still(live: &LiveRendition, segment: &Segment<rblive::ChunkRef>) -> Option<Vec<u8>> {
    let init = InitSegment::parse(live.init(segment.init)?).ok()?;
    let part = &segment.parts.first().filter(|part| part.independent)?.data;
    let beginning = part.part(0..part.size().min(HEAD_BYTES)).to_vec().ok()?;
    let (mut file, frame) = init.still(&beginning, MAX_FRAME_BYTES)?;
    if frame.end > part.size() {
        return None;
    }
    file.extend(part.part(frame).to_vec().ok()?);
    Some(file)
}
