//! H.264 as RTP wants it: NAL units behind start codes, with the parameter sets before each key frame.

use std::sync::Arc;

use rblive_media::unit::{VideoCodec, VideoConfig};

const START: [u8; 4] = [0, 0, 0, 1];

const SEQUENCE_SET: u8 = 7;
const DELIMITER: u8 = 9;
const FILLER: u8 = 12;

/// Rewrites the frames of a track.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct AnnexB {
    /// The bytes of a length before a NAL unit.
    length: usize,
    /// The parameter sets, with start codes.
    sets: Vec<u8>,
}

impl AnnexB {
    /// Reads the `avcC` of a track. `None`: it is of another codec, or damaged.
    pub(crate) fn of(config: &VideoConfig) -> Option<Self> {
        if config.codec != VideoCodec::H264 {
            return None;
        }
        let (head, mut rest) = config.record.split_at_checked(5)?;
        let mut sets = Vec::new();
        for mask in [0x1F, 0xFF] {
            let (count, after) = rest.split_first()?;
            rest = after;
            for _ in 0..count & mask {
                let (length, after) = rest.split_first_chunk::<2>()?;
                let (set, after) = after.split_at_checked(usize::from(u16::from_be_bytes(*length)))?;
                sets.extend(START);
                sets.extend(set);
                rest = after;
            }
        }
        Some(Self { length: usize::from(head[4] & 3) + 1, sets })
    }

    /// A frame of the track. `None`: it is damaged, or empty.
    pub(crate) fn frame(&self, unit: &[u8], key: bool) -> Option<Arc<[u8]>> {
        let mut made = Vec::with_capacity(self.sets.len() + unit.len() + 64);
        let has_sets =
            self.units(unit).flatten().any(|nal| nal.first().is_some_and(|kind| kind & 31 == SEQUENCE_SET));
        if key && !has_sets {
            made.extend_from_slice(&self.sets);
        }
        for nal in self.units(unit) {
            let nal = nal?;
            if nal.first().is_none_or(|kind| matches!(kind & 31, DELIMITER | FILLER)) {
                continue;
            }
            made.extend(START);
            made.extend_from_slice(nal);
        }
        Some(made.into()).filter(|made: &Arc<[u8]>| !made.is_empty())
    }

    /// The NAL units of a frame. `None` in place of one that is cut, which is the last one.
    fn units<'a>(&self, unit: &'a [u8]) -> impl Iterator<Item = Option<&'a [u8]>> {
        let (mut rest, count) = (unit, self.length);
        std::iter::from_fn(move || {
            if rest.is_empty() {
                return None;
            }
            let nal = rest.split_at_checked(count).and_then(|(length, after)| {
                let length = length.iter().fold(0, |sum, byte| sum << 8 | usize::from(*byte));
                after.split_at_checked(length)
            });
            rest = nal.map_or(&[], |(_, after)| after);
            Some(nal.map(|(nal, _)| nal))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(record: &[u8]) -> VideoConfig {
        VideoConfig {
            codec: VideoCodec::H264,
            record: record.to_vec().into(),
            name: String::new(),
            width: 0,
            height: 0,
            frames_per_1000_s: 0,
        }
    }

    const RECORD: [u8; 15] = [1, 66, 0, 30, 0xFF, 0xE1, 0, 2, 0x67, 1, 1, 0, 1, 0x68, 0xFC];

    #[test]
    fn a_key_frame_has_the_parameter_sets_before_it_and_others_do_not() {
        let own = AnnexB::of(&config(&RECORD)).unwrap();
        assert_eq!(own.frame(&[0, 0, 0, 1, 0x41], false).unwrap()[..], [0, 0, 0, 1, 0x41]);
        let key = own.frame(&[0, 0, 0, 2, 9, 1, 0, 0, 0, 2, 0x65, 7], true).unwrap();
        assert_eq!(key[..], [0, 0, 0, 1, 0x67, 1, 0, 0, 0, 1, 0x68, 0, 0, 0, 1, 0x65, 7]);
        let own_sets = own.frame(&[0, 0, 0, 2, 0x67, 2, 0, 0, 0, 1, 0x65], true).unwrap();
        assert_eq!(own_sets[..], [0, 0, 0, 1, 0x67, 2, 0, 0, 0, 1, 0x65], "the encoder sends its own");
    }

    #[test]
    fn what_is_damaged_is_no_frame() {
        let own = AnnexB::of(&config(&RECORD)).unwrap();
        for damaged in [&[][..], &[0], &[0, 0, 0, 9, 1], &[0xFF; 4], &[0, 0, 0, 0], &[0, 0, 0, 1, 9]] {
            assert_eq!(own.frame(damaged, false), None, "{damaged:?}");
        }
        for end in 0..RECORD.len() - 1 {
            assert_eq!(AnnexB::of(&config(&RECORD[..end])), None, "{end}");
        }
        let hevc = VideoConfig { codec: VideoCodec::Hevc, ..config(&RECORD) };
        assert_eq!(AnnexB::of(&hevc), None);
    }
}
