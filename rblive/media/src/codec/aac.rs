//! AAC: `AudioSpecificConfig` and ADTS headers.

use bytes::Bytes;

use super::bits::Bits;
use super::error::ConfigError;
use crate::unit::{AudioCodec, AudioConfig};

const DAMAGED: ConfigError = ConfigError::Damaged("AAC");
const RATES: [u32; 13] =
    [96_000, 88_200, 64_000, 48_000, 44_100, 32_000, 24_000, 22_050, 16_000, 12_000, 11_025, 8000, 7350];

/// The first byte of an ADTS header.
pub(crate) const ADTS_SYNC: u8 = 0xFF;

/// The bytes of an ADTS header without a check sum.
pub(crate) const ADTS_HEADER_BYTES: usize = 7;

/// The configuration of a stream with this `AudioSpecificConfig`.
pub(super) fn from_record(record: Bytes) -> Result<AudioConfig, ConfigError> {
    let mut bits = Bits::new(&record);
    let (object, rate, channels, short) = parse(&mut bits).ok_or(DAMAGED)?;
    if !matches!(object, 1..=5 | 29 | 42) {
        return Err(ConfigError::Unsupported("kind of audio (only AAC is)"));
    }
    let channels = match channels {
        0 => 2,
        7 => 8,
        count => count as u16,
    };
    if !(1..=768_000).contains(&rate) {
        return Err(DAMAGED);
    }
    let frame_samples = if short { 960 } else { 1024 };
    let name = format!("mp4a.40.{object}");
    Ok(AudioConfig { codec: AudioCodec::Aac, record, name, sample_rate: rate, channels, frame_samples })
}

/// The layout of channels with this `AudioSpecificConfig`, if its frames have the elements of AAC.
pub(super) fn layout(record: &[u8]) -> Option<u32> {
    let (object, _, channels, _) = parse(&mut Bits::new(record))?;
    matches!(object, 1..=5 | 29).then_some(channels)
}

/// The object type, the core's rate, the channels, and whether frames are short.
fn parse(bits: &mut Bits<'_>) -> Option<(u32, u32, u32, bool)> {
    let object = object_type(bits)?;
    let rate = rate(bits)?;
    let channels = bits.take(4)?;
    if matches!(object, 5 | 29) {
        self::rate(bits)?;
        object_type(bits)?;
    }
    Some((object, rate, channels, bits.flag().unwrap_or(false)))
}

fn object_type(bits: &mut Bits<'_>) -> Option<u32> {
    match bits.take(5)? {
        31 => Some(32 + bits.take(6)?),
        object => Some(object),
    }
}

fn rate(bits: &mut Bits<'_>) -> Option<u32> {
    match bits.take(4)? {
        15 => bits.take(24),
        index => RATES.get(index as usize).copied(),
    }
}

/// The header of an ADTS frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Adts {
    /// The bytes of the header.
    pub(crate) header: usize,
    /// The bytes of the frame with its header.
    pub(crate) total: usize,
    fixed: [u8; 2],
}

impl Adts {
    /// Reads the header at the beginning of `bytes`, which has at least [`ADTS_HEADER_BYTES`]. `None` if there is no header.
    pub(crate) fn parse(bytes: &[u8]) -> Option<Self> {
        let [0xFF, second, third, fourth, fifth, sixth, seventh] =
            *bytes.first_chunk::<ADTS_HEADER_BYTES>()?
        else {
            return None;
        };
        let header = if second & 1 == 1 { 7 } else { 9 };
        let total = usize::from(fourth & 3) << 11 | usize::from(fifth) << 3 | usize::from(sixth >> 5);
        // Of several raw blocks in one frame there is no use outside of ADTS, and encoders make none.
        let valid = second & 0xF6 == 0xF0 && total > header && seventh & 3 == 0 && third >> 2 & 15 < 13;
        valid.then_some(Self { header, total, fixed: [third, fourth] })
    }

    /// The configuration that the header implies.
    pub(crate) fn config(&self) -> Result<AudioConfig, ConfigError> {
        let [third, fourth] = self.fixed;
        let (object, rate) = ((third >> 6) + 1, third >> 2 & 15);
        let channels = (third & 1) << 2 | fourth >> 6;
        from_record(Bytes::copy_from_slice(&[object << 3 | rate >> 1, rate << 7 | channels << 3]))
    }
}
