//! RBLive: the input of encoders, as far as the media are concerned.

use bytes::Bytes;
use rblive_media::segmenter::{Segmenter, SegmenterConfig};
use rblive_media::unit::Input;
use rblive_media::{flv, fmp4, ts};

/// The largest frame that is taken.
const MAX_UNIT: usize = 1 << 14;

/// A segmenter with small limits, and what its parts must be.
struct Checked {
    segmenter: Option<Segmenter>,
    next: (u64, u32),
    end_us: u64,
}

impl Checked {
    fn new() -> Self {
        let config = SegmenterConfig { max_pending_bytes: 1 << 16, ..SegmenterConfig::default() };
        Self { segmenter: Some(Segmenter::new(config, 0)), next: (0, 0), end_us: 0 }
    }

    fn push(&mut self, input: Input) {
        let Some(mut segmenter) = self.segmenter.take() else { return };
        let taken = segmenter.push(input).is_ok();
        self.take_parts(&mut segmenter);
        self.segmenter = taken.then_some(segmenter);
    }

    fn finish(mut self) {
        let Some(mut segmenter) = self.segmenter.take() else { return };
        segmenter.finish();
        self.take_parts(&mut segmenter);
    }

    /// Parts are numbered without holes, their time never goes back, and each is one `moof` and one `mdat`.
    fn take_parts(&mut self, segmenter: &mut Segmenter) {
        while let Some(part) = segmenter.next_part() {
            assert_eq!((part.sequence, part.index), self.next);
            assert!(part.start_us + 1 >= self.end_us, "the timeline goes on");
            self.end_us = part.start_us + u64::from(part.duration_us);
            self.next = if part.last { (part.sequence + 1, 0) } else { (part.sequence, part.index + 1) };
            let bytes = part.to_vec();
            let moof = u32::from_be_bytes(*bytes.first_chunk().expect("a box has a size")) as usize;
            let mdat = u32::from_be_bytes(*bytes[moof..].first_chunk().expect("a box has a size")) as usize;
            assert_eq!((moof + mdat, &bytes[moof + 4..moof + 8]), (bytes.len(), &b"mdat"[..]));
        }
    }
}

/// A transport stream in pieces whose size is the first byte: no panic, and whole parts only.
pub fn rblive_ts(data: &[u8]) {
    let size = data.first().map_or(1, |byte| usize::from(*byte) + 1);
    let (mut demuxer, mut checked) = (ts::Demuxer::new(MAX_UNIT), Checked::new());
    for piece in data.chunks(size) {
        let failed = demuxer.push(piece).is_err();
        while let Some(input) = demuxer.next_input() {
            checked.push(input);
        }
        if failed {
            return;
        }
    }
    if demuxer.finish().is_ok() {
        while let Some(input) = demuxer.next_input() {
            checked.push(input);
        }
        checked.finish();
    }
}

/// The tags of an FLV file, as RTMP messages: no panic, and whole parts only.
pub fn rblive_flv(data: &[u8]) {
    let bytes = Bytes::copy_from_slice(data);
    let (mut demuxer, mut checked, mut at) = (flv::Demuxer::new(), Checked::new(), 13);
    while let Some(head) = bytes.get(at..at + 11) {
        let size = usize::from(head[2]) << 8 | usize::from(head[3]);
        let time = u32::from_be_bytes([head[7], head[4], head[5], head[6]]);
        let end = (at + 11 + size).min(bytes.len());
        let payload = bytes.slice(at + 11..end);
        let input =
            if head[0] & 1 == 0 { demuxer.audio(time, &payload) } else { demuxer.video(time, &payload) };
        if let Ok(Some(input)) = input {
            checked.push(input);
        }
        at = end + 4;
    }
    checked.finish();
}

/// A fragmented MP4 file: no panic, and numbers only if all boxes are whole.
pub fn rblive_fmp4(data: &[u8]) {
    let Ok(init) = fmp4::InitSegment::parse(&Bytes::copy_from_slice(data)) else { return };
    assert!(!init.tracks.is_empty());
    let _ = init.times(data);
    let segment = Bytes::copy_from_slice(data);
    let frames = init.frames(&segment).unwrap_or_default();
    // Each track reads each fragment once, so that the frames are no more than its bytes.
    assert!(frames.len() <= data.len() * init.tracks.len());
    assert!(frames.iter().all(|own| !own.data.is_empty() && own.data.len() <= data.len()));
    assert!(frames.is_sorted_by_key(|own| own.dts));
    // The boxes of a segment may follow those of the initialisation segment.
    if let Some((head, frame)) = init.still(data, 1 << 20) {
        assert!(head.len() < 4096 + data.len() && (1..=1 << 20).contains(&frame.len()));
    }
}
