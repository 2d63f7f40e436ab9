//! AC-3 and E-AC-3 (ETSI TS 102 366): the headers of their frames, and the boxes `dac3` and `dec3`.

use bytes::Bytes;

use super::bits::Bits;
use super::error::ConfigError;
use crate::unit::{AudioCodec, AudioConfig};

/// The bytes at the beginning of a frame that are read.
pub(crate) const AC3_HEADER_BYTES: usize = 8;

/// The first byte of a frame.
pub(crate) const AC3_SYNC: u8 = 0x0B;

const RATES: [u32; 3] = [48_000, 44_100, 32_000];
/// Kbit per second of AC-3.
const BIT_RATES: [u32; 19] =
    [32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320, 384, 448, 512, 576, 640];
/// Loudspeakers without that for low frequencies.
const CHANNELS: [u16; 8] = [2, 1, 2, 3, 3, 4, 4, 5];
const BLOCK_SAMPLES: u32 = 256;
/// The highest `bsid` of AC-3 frames at the full rate, and those of E-AC-3.
const MAX_AC3_ID: u32 = 8;
const E_AC3_IDS: std::ops::RangeInclusive<u32> = 11..=16;

/// The header of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SyncFrame {
    codec: AudioCodec,
    /// The bytes of the frame.
    pub(crate) total: usize,
    /// Whether the frame belongs to the first independent substream. Others have more channels or another programme, and decoders
    /// without them play the first one.
    pub(crate) is_main: bool,
    rate_code: u32,
    rate: u32,
    samples: u32,
    id: u32,
    service: u32,
    mode: u32,
    low_frequencies: bool,
    /// Of AC-3: the place in the table of bit rates.
    bit_rate: u32,
}

impl SyncFrame {
    /// Reads the header at the beginning of `bytes`, which has at least [`AC3_HEADER_BYTES`]. `None` if there is no header.
    pub(crate) fn parse(bytes: &[u8]) -> Option<Self> {
        let header = bytes.first_chunk::<AC3_HEADER_BYTES>()?;
        if header[..2] != [AC3_SYNC, 0x77] {
            return None;
        }
        match u32::from(header[5] >> 3) {
            0..=MAX_AC3_ID => Self::ac3(Bits::new(&header[4..])),
            id if E_AC3_IDS.contains(&id) => Self::e_ac3(Bits::new(&header[2..])),
            _ => None,
        }
    }

    fn ac3(mut bits: Bits<'_>) -> Option<Self> {
        let (rate_code, size) = (bits.take(2)?, bits.take(6)?);
        let (rate, kbit) = (*RATES.get(rate_code as usize)?, *BIT_RATES.get(size as usize / 2)?);
        let (id, service, mode) = (bits.take(5)?, bits.take(3)?, bits.take(3)?);
        // The levels at which the centre and the surround channels are mixed, or the kind of two channels.
        let center = mode & 1 == 1 && mode != 1;
        bits.skip([center, mode & 4 != 0, mode == 2].into_iter().filter(|is| *is).count() * 2)?;
        let samples = 6 * BLOCK_SAMPLES;
        let words = kbit * 1000 / 16 * samples / rate + if rate == 44_100 { size & 1 } else { 0 };
        Some(Self {
            codec: AudioCodec::Ac3,
            total: 2 * words as usize,
            is_main: true,
            rate_code,
            rate,
            samples,
            id,
            service,
            mode,
            low_frequencies: bits.flag()?,
            bit_rate: size / 2,
        })
    }

    fn e_ac3(mut bits: Bits<'_>) -> Option<Self> {
        let (kind, number, size) = (bits.take(2)?, bits.take(3)?, bits.take(11)?);
        let (rate_code, next) = (bits.take(2)?, bits.take(2)?);
        let (rate, blocks) = match rate_code {
            // Half of the rate.
            3 => (*RATES.get(next as usize)? / 2, 6),
            code => (RATES[code as usize], [1, 2, 3, 6][next as usize]),
        };
        let (mode, low_frequencies, id) = (bits.take(3)?, bits.flag()?, bits.take(5)?);
        let total = 2 * (size as usize + 1);
        (total >= AC3_HEADER_BYTES && kind != 3).then_some(Self {
            codec: AudioCodec::EAc3,
            total,
            is_main: kind != 1 && number == 0,
            rate_code,
            rate,
            samples: blocks * BLOCK_SAMPLES,
            id,
            service: 0,
            mode,
            low_frequencies,
            bit_rate: 0,
        })
    }

    /// The configuration that the header implies.
    pub(crate) fn config(&self) -> AudioConfig {
        let low = u32::from(self.low_frequencies);
        let head = self.rate_code << 22 | self.id << 17;
        let record = if self.codec == AudioCodec::EAc3 {
            let [_, fields @ ..] = (head | self.service << 12 | self.mode << 9 | low << 8).to_be_bytes();
            // The bit rate, which is left at 0 because frames of one stream have several sizes, and one substream.
            [&[0, 0], &fields[..]].concat()
        } else {
            let rest = self.service << 14 | self.mode << 11 | low << 10 | self.bit_rate << 5;
            (head | rest).to_be_bytes()[1..].to_vec()
        };
        AudioConfig {
            codec: self.codec,
            record: record.into(),
            name: name(self.codec).to_owned(),
            sample_rate: self.rate,
            channels: channels(self.mode, self.low_frequencies),
            frame_samples: self.samples,
        }
    }
}

/// The configuration of a stream with this `dac3` or `dec3`.
pub(super) fn from_record(codec: AudioCodec, record: Bytes) -> Result<AudioConfig, ConfigError> {
    let (rate, channels) = parse_record(codec, &record).ok_or(ConfigError::Damaged("AC-3"))?;
    let frame_samples = 6 * BLOCK_SAMPLES;
    Ok(AudioConfig {
        codec,
        record,
        name: name(codec).to_owned(),
        sample_rate: rate,
        channels,
        frame_samples,
    })
}

fn parse_record(codec: AudioCodec, record: &[u8]) -> Option<(u32, u16)> {
    let mut bits = Bits::new(record);
    let enhanced = codec == AudioCodec::EAc3;
    bits.skip(if enhanced { 16 } else { 0 })?;
    // The record does not distinguish half rates.
    let rate = *RATES.get(bits.take(2)? as usize)?;
    bits.skip(if enhanced { 10 } else { 8 })?;
    Some((rate, channels(bits.take(3)?, bits.flag()?)))
}

fn channels(mode: u32, low_frequencies: bool) -> u16 {
    CHANNELS[mode as usize] + u16::from(low_frequencies)
}

/// The codec as in RFC 6381.
fn name(codec: AudioCodec) -> &'static str {
    if codec == AudioCodec::EAc3 { "ec-3" } else { "ac-3" }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The beginning of a frame of ffmpeg: 448 kbit/s, 48 kHz, 5.1.
    const AC3: [u8; 8] = [0x0B, 0x77, 0x11, 0x22, 0x1E, 0x40, 0xE1, 0x00];

    #[test]
    fn a_header_of_ac3_says_its_length_and_its_box() {
        let frame = SyncFrame::parse(&AC3).unwrap();
        assert_eq!((frame.total, frame.samples, frame.is_main), (1792, 1536, true));
        let config = frame.config();
        assert_eq!((config.sample_rate, config.channels, &*config.name), (48_000, 6, "ac-3"));
        assert_eq!(from_record(AudioCodec::Ac3, config.record.clone()).unwrap(), config);
        // At 44.1 kHz every other frame is one word longer.
        let at_44 = |size: u8| SyncFrame::parse(&[0x0B, 0x77, 0, 0, 0x40 | size, 0x40, 0x40, 0]).unwrap();
        assert_eq!((at_44(0).total, at_44(1).total, at_44(37).total), (138, 140, 2788));
        assert_eq!(at_44(0).config(), at_44(1).config());
    }

    #[test]
    fn a_header_of_e_ac3_says_its_length_and_its_box() {
        // 5.1, 768 bytes, six blocks.
        let e_ac3 = [0x0B, 0x77, 0x01, 0x7F, 0x3F, 0x86, 0, 0];
        let frame = SyncFrame::parse(&e_ac3).unwrap();
        assert_eq!((frame.total, frame.samples, frame.is_main), (768, 1536, true));
        let config = frame.config();
        assert_eq!((config.channels, &*config.name), (6, "ec-3"));
        assert_eq!(from_record(AudioCodec::EAc3, config.record.clone()).unwrap(), config);
        // A dependent substream, and another independent one.
        for second in [0x41, 0x09] {
            let mut other = e_ac3;
            other[2] = second;
            assert!(!SyncFrame::parse(&other).unwrap().is_main);
        }
    }

    #[test]
    fn what_is_no_header_is_refused() {
        for (at, byte) in [(0, 0x0C), (1, 0x78), (4, 0xDE), (4, 0x3F), (5, 0x48), (5, 0x88)] {
            let mut bad = AC3;
            bad[at] = byte;
            assert_eq!(SyncFrame::parse(&bad), None, "{at} {byte:x}");
        }
        assert_eq!(SyncFrame::parse(&AC3[..7]), None);
        assert!(from_record(AudioCodec::Ac3, Bytes::from_static(&[0xC0, 0, 0])).is_err());
        assert!(from_record(AudioCodec::EAc3, Bytes::from_static(&[0, 0, 0x20])).is_err());
    }
}
