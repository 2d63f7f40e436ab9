//! Whether bytes are media: boxes, packets, times, and the frames of `rblive-load push`.

use bytes::Bytes;
use rblive_load::stamp;
use rblive_media::fmp4::InitSegment;
use rblive_media::ts::{Demuxer, PACKET_BYTES};
use rblive_media::unit::{AccessUnit, Input};

/// The largest frame.
const MAX_FRAME: usize = 32 << 20;
/// How far the times of two pieces of media may be from each other, in microseconds: roundings.
const TOLERANCE_US: u64 = 50_000;

/// Facts about a segment or a part.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Facts {
    /// When it begins, and its duration, where the container says both.
    pub times_us: Option<(u64, u64)>,
    pub stamps: Option<Stamps>,
}

/// The frames of `rblive-load push` in a segment or a part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stamps {
    pub stream: u32,
    pub first: u64,
    pub last: u64,
    /// When the last one was made, in nanoseconds since 1970.
    pub newest_ns: u64,
}

impl Facts {
    /// Why `self` does not continue `before`, if it does not.
    pub fn gap_after(&self, before: &Self) -> Option<String> {
        if let (Some(before), Some(own)) = (before.stamps, self.stamps) {
            return match (before.stream == own.stream, before.last + 1 == own.first) {
                (false, _) => Some("the frames are those of another stream".to_owned()),
                (_, false) => Some(format!("frame {} follows frame {}", own.first, before.last)),
                _ => None,
            };
        }
        let ((start, duration), (own, _)) = (before.times_us?, self.times_us?);
        let expected = start + duration;
        let away = own.abs_diff(expected);
        (away > TOLERANCE_US)
            .then(|| format!("the media begins {away} us away from the end of the media before"))
    }
}

/// Inspects a segment or a part. `init` is the initialisation segment of fragmented MP4.
///
/// # Errors
/// The bytes are no whole media, or have frames of `rblive-load push` that were changed or are not consecutive.
pub fn media(bytes: &[u8], init: Option<&InitSegment>) -> Result<Facts, String> {
    match bytes {
        [] => Err("the media has no bytes".to_owned()),
        [0x47, ..] if bytes.len().is_multiple_of(PACKET_BYTES) => transport_stream(bytes),
        _ => fragmented(bytes, init),
    }
}

fn transport_stream(bytes: &[u8]) -> Result<Facts, String> {
    if let Some(at) = bytes.chunks(PACKET_BYTES).position(|packet| packet[0] != 0x47) {
        return Err(format!("packet {at} of the transport stream does not begin with 0x47"));
    }
    let mut demuxer = Demuxer::new(MAX_FRAME);
    demuxer.push(bytes).and_then(|()| demuxer.finish()).map_err(|error| error.to_string())?;
    if demuxer.damaged() > 0 {
        return Err(format!("{} packets of the transport stream are missing or damaged", demuxer.damaged()));
    }
    let mut frames = Frames::default();
    let mut units = 0;
    while let Some(input) = demuxer.next_input() {
        if let Input::Unit(AccessUnit { data, .. }) = input {
            units += 1;
            frames.take(&data)?;
        }
    }
    if units == 0 {
        return Err("the transport stream has no frame".to_owned());
    }
    Ok(Facts { times_us: None, stamps: frames.0 })
}

fn fragmented(bytes: &[u8], init: Option<&InitSegment>) -> Result<Facts, String> {
    let (mut rest, mut fragments, mut frames) = (bytes, 0, Frames::default());
    while !rest.is_empty() {
        let (kind, content, after) = next_box(rest).ok_or_else(|| {
            format!("the box at byte {} of {} is cut, or none", bytes.len() - rest.len(), bytes.len())
        })?;
        match kind {
            b"moof" => fragments += 1,
            b"mdat" if fragments == 0 => return Err("an mdat comes before any moof".to_owned()),
            b"mdat" => frames.take(content)?,
            _ => {}
        }
        rest = after;
    }
    if fragments == 0 {
        return Err("there is no moof".to_owned());
    }
    // A part may have none of the frames of the track that gives the times.
    let times = init.and_then(|init| init.times(bytes).ok());
    Ok(Facts { times_us: times.map(|own| (own.start_us, own.duration_us)), stamps: frames.0 })
}

/// The kind and the content of the first box, and what follows it.
fn next_box(bytes: &[u8]) -> Option<(&[u8; 4], &[u8], &[u8])> {
    let (size, rest) = bytes.split_first_chunk()?;
    let (kind, rest) = rest.split_first_chunk()?;
    if !kind.iter().all(u8::is_ascii_graphic) {
        return None;
    }
    let (content, after) = match u32::from_be_bytes(*size) {
        1 => {
            let (size, rest) = rest.split_first_chunk()?;
            rest.split_at_checked(usize::try_from(u64::from_be_bytes(*size).checked_sub(16)?).ok()?)?
        }
        size => rest.split_at_checked(size.checked_sub(8)? as usize)?,
    };
    Some((kind, content, after))
}

/// Reads an initialisation segment. `None`: it has no track that is known here, which is no fault.
///
/// # Errors
/// The bytes are no whole MP4.
pub fn init(bytes: &[u8]) -> Result<Option<InitSegment>, String> {
    let (mut rest, mut has_moov) = (bytes, false);
    while !rest.is_empty() {
        let (kind, _, after) = next_box(rest).ok_or("the initialisation segment is cut, or no MP4")?;
        has_moov |= kind == b"moov";
        rest = after;
    }
    if !has_moov {
        return Err("the initialisation segment has no moov".to_owned());
    }
    Ok(InitSegment::parse(&Bytes::copy_from_slice(bytes)).ok())
}

/// The stamped frames so far.
#[derive(Default)]
struct Frames(Option<Stamps>);

impl Frames {
    /// Looks for stamped frames in NAL units with their lengths. Other bytes have none.
    fn take(&mut self, mut units: &[u8]) -> Result<(), String> {
        while let Some((length, rest)) = units.split_first_chunk() {
            let Some((unit, after)) = rest.split_at_checked(u32::from_be_bytes(*length) as usize) else {
                break;
            };
            if let Some(stamp) = stamp::read(unit) {
                self.add(stamp?)?;
            }
            units = after;
        }
        Ok(())
    }

    fn add(&mut self, stamp: stamp::Stamp) -> Result<(), String> {
        let (stream, number) = (stamp.stream, stamp.number);
        let before =
            self.0.unwrap_or(Stamps { stream, first: number, last: number.wrapping_sub(1), newest_ns: 0 });
        if before.stream != stream || before.last.wrapping_add(1) != number {
            return Err(format!(
                "frame {number} of stream {stream} follows frame {} of {}",
                before.last, before.stream
            ));
        }
        self.0 = Some(Stamps { last: number, newest_ns: stamp.time_ns, ..before });
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rblive_load::stamp::{Stamp, Stamper};

    fn boxed(kind: &[u8; 4], content: &[u8]) -> Vec<u8> {
        let size = (content.len() as u32 + 8).to_be_bytes();
        [&size[..], kind, content].concat()
    }

    fn frames(numbers: impl IntoIterator<Item = u64>) -> Vec<u8> {
        let mut all = Vec::new();
        for number in numbers {
            all.extend(500_u32.to_be_bytes());
            Stamper::new().write(Stamp { stream: 7, number, time_ns: number }, 0x41, 500, &mut all);
        }
        all
    }

    #[test]
    fn stamped_frames_are_found_and_compared() {
        let part = |from, to| [boxed(b"moof", b"x"), boxed(b"mdat", &frames(from..to))].concat();
        let [first, second] = [media(&part(1, 4), None).unwrap(), media(&part(4, 6), None).unwrap()];
        assert_eq!(first.stamps, Some(Stamps { stream: 7, first: 1, last: 3, newest_ns: 3 }));
        assert_eq!(second.gap_after(&first), None);
        assert!(first.gap_after(&second).unwrap().contains("frame 1 follows frame 5"));
        let hole = [boxed(b"moof", b"x"), boxed(b"mdat", &frames([1, 3]))].concat();
        assert!(media(&hole, None).unwrap_err().contains("follows"));
        let whole = part(1, 4);
        for at in 20..whole.len() {
            let mut changed = whole.clone();
            changed[at] ^= 0x80;
            let found = media(&changed, None);
            assert!(found.as_ref() != Ok(&first), "byte {at}");
        }
    }

    #[test]
    fn damaged_containers_are_refused() {
        let good = [boxed(b"styp", b""), boxed(b"moof", b"x"), boxed(b"mdat", b"abc")].concat();
        assert_eq!(media(&good, None), Ok(Facts::default()));
        assert!((0..good.len()).all(|end| end == 8 + 9 || media(&good[..end], None).is_err()));
        assert!(media(&boxed(b"mdat", b"abc"), None).is_err());
        assert!(media(&[0x47; 376], None).unwrap_err().contains("transport stream"));
        assert!(init(&boxed(b"ftyp", b"")).is_err());
        assert_eq!(init(&boxed(b"moov", b"")), Ok(None));
    }

    #[test]
    fn times_must_continue() {
        let at = |start, duration| Facts { times_us: Some((start, duration)), stamps: None };
        assert_eq!(at(2_000_000, 1).gap_after(&at(0, 1_999_990)), None);
        assert!(at(4_000_000, 1).gap_after(&at(0, 2_000_000)).is_some());
        assert_eq!(at(4_000_000, 1).gap_after(&Facts::default()), None);
    }
}
