//! The media of a segment: frames and times.

/// The units of a raw stream of H.264 (Annex B).
pub fn annexb(raw: &[u8]) -> Vec<&[u8]> {
    let starts: Vec<usize> =
        (0..raw.len().saturating_sub(2)).filter(|at| raw[*at..].starts_with(&[0, 0, 1])).collect();
    let ends = starts.iter().skip(1).copied().chain([raw.len()]);
    // A start code may have a zero more; a unit does not end with one.
    let unit = |(start, end): (&usize, usize)| {
        let bytes = &raw[start + 3..end];
        &bytes[..bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1)]
    };
    starts.iter().zip(ends).map(unit).collect()
}

/// Whether a unit is a frame; others are parameters and remarks.
pub fn is_picture(nal: &[u8]) -> bool {
    nal.first().is_some_and(|byte| matches!(byte & 31, 1 | 5))
}

/// The times and the frames of a segment.
pub struct Segment<'a> {
    /// The decoding time of the first frame, and that after the last one, in the units of the track.
    pub begin: u64,
    pub end: u64,
    pub frames: Vec<&'a [u8]>,
}

/// Reads a segment of CMAF parts with one track.
pub fn segment(bytes: &[u8]) -> Segment<'_> {
    let mut segment = Segment { begin: 0, end: 0, frames: Vec::new() };
    let mut has_begun = false;
    for (kind, content) in boxes(bytes) {
        match &kind {
            b"moof" => {
                let (begin, end) = times(content);
                assert!(!has_begun || begin == segment.end, "each part goes on where the one before ended");
                segment.begin = if has_begun { segment.begin } else { begin };
                (has_begun, segment.end) = (true, end);
            }
            b"mdat" => segment.frames.extend(units(content).into_iter().filter(|nal| is_picture(nal))),
            b"styp" | b"sidx" | b"prft" => {}
            other => panic!("a segment has a box {}", String::from_utf8_lossy(other)),
        }
    }
    segment
}

/// The boxes of a file. They fill it to its last byte.
fn boxes(mut bytes: &[u8]) -> Vec<([u8; 4], &[u8])> {
    let mut all = Vec::new();
    while !bytes.is_empty() {
        let size = be32(bytes, 0) as usize;
        all.push((bytes[4..8].try_into().unwrap(), &bytes[8..size]));
        bytes = &bytes[size..];
    }
    all
}

fn be32(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(bytes[at..at + 4].try_into().unwrap())
}

/// The units of a part, each after its length.
fn units(mut bytes: &[u8]) -> Vec<&[u8]> {
    let mut all = Vec::new();
    while !bytes.is_empty() {
        let end = 4 + be32(bytes, 0) as usize;
        all.push(&bytes[4..end]);
        bytes = &bytes[end..];
    }
    all
}

/// The decoding times of a `moof`: of its first frame, and after its last one.
fn times(moof: &[u8]) -> (u64, u64) {
    let (_, traf) = boxes(moof).into_iter().find(|(kind, _)| kind == b"traf").expect("one track");
    let (mut begin, mut duration, mut usual) = (0, 0, 0);
    for (kind, content) in boxes(traf) {
        let flags = be32(content, 0) & 0xff_ffff;
        match &kind {
            b"tfhd" => usual = usual_duration(flags, content),
            b"tfdt" if content[0] == 1 => {
                begin = u64::from(be32(content, 4)) << 32 | u64::from(be32(content, 8))
            }
            b"tfdt" => begin = be32(content, 4).into(),
            b"trun" => duration += duration_of(flags, content, usual),
            _ => {}
        }
    }
    (begin, begin + duration)
}

/// The duration that frames have where the run says nothing (ISO/IEC 14496-12, 8.8.7).
fn usual_duration(flags: u32, tfhd: &[u8]) -> u64 {
    let before = 8 + 8 * usize::from(flags & 1 != 0) + 4 * usize::from(flags & 2 != 0);
    if flags & 8 != 0 { be32(tfhd, before).into() } else { 0 }
}

/// The duration of a run (ISO/IEC 14496-12, 8.8.8).
fn duration_of(flags: u32, trun: &[u8], usual: u64) -> u64 {
    let count = be32(trun, 4) as usize;
    if flags & 0x100 == 0 {
        return usual * count as u64;
    }
    let first = 8 + 4 * usize::from(flags & 1 != 0) + 4 * usize::from(flags & 4 != 0);
    let row = 4 * [0x100, 0x200, 0x400, 0x800].iter().filter(|flag| flags & **flag != 0).count();
    (0..count).map(|index| u64::from(be32(trun, first + index * row))).sum()
}
