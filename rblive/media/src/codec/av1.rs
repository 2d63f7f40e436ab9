//! AV1: `av1C` and its sequence header.

use bytes::Bytes;

use super::bits::Bits;
use super::error::ConfigError;
use crate::unit::{VideoCodec, VideoConfig};

const DAMAGED: ConfigError = ConfigError::Damaged("AV1");
const SEQUENCE_HEADER: u8 = 1;

/// The configuration of a stream with this `av1C`.
pub(super) fn from_record(record: Bytes) -> Result<VideoConfig, ConfigError> {
    let [0x81, second, third, _, ..] = *record else { return Err(DAMAGED) };
    let (profile, level) = (second >> 5, second & 0x1F);
    let tier = if third & 0x80 == 0 { 'M' } else { 'H' };
    let depth = match (third & 0x40, third & 0x20) {
        (0, _) => 8,
        (_, 0) => 10,
        _ => 12,
    };
    // The OBUs in the record are optional; without them the size of the picture is unknown.
    let size = sequence_header(&record[4..]).and_then(picture_size);
    let (width, height) = size.unwrap_or((0, 0));
    Ok(VideoConfig {
        codec: VideoCodec::Av1,
        record,
        name: format!("av01.{profile}.{level:02}{tier}.{depth:02}"),
        width,
        height,
        frames_per_1000_s: 0,
    })
}

fn sequence_header(mut obus: &[u8]) -> Option<&[u8]> {
    loop {
        let header = *obus.first()?;
        let (kind, extension, sized) = (header >> 3 & 15, header & 4 != 0, header & 2 != 0);
        let mut at = 1 + usize::from(extension);
        let mut size = obus.len().checked_sub(at)?;
        if sized {
            size = 0;
            for index in 0..8 {
                let byte = *obus.get(at)?;
                at += 1;
                size |= usize::from(byte & 0x7F) << (7 * index);
                if byte & 0x80 == 0 {
                    break;
                }
            }
        }
        let content = obus.get(at..at.checked_add(size)?)?;
        if kind == SEQUENCE_HEADER {
            return Some(content);
        }
        obus = &obus[at + size..];
    }
}

/// The largest width and height, in pixels.
fn picture_size(sequence_header: &[u8]) -> Option<(u32, u32)> {
    let mut bits = Bits::new(sequence_header);
    bits.skip(4)?;
    if bits.flag()? {
        bits.skip(5)?;
    } else {
        skip_operating_points(&mut bits)?;
    }
    let (width_bits, height_bits) = (bits.take(4)? + 1, bits.take(4)? + 1);
    Some((bits.take(width_bits)?.checked_add(1)?, bits.take(height_bits)?.checked_add(1)?))
}

fn skip_operating_points(bits: &mut Bits<'_>) -> Option<()> {
    let mut delay_bits = None;
    if bits.flag()? {
        bits.skip(64)?;
        if bits.flag()? {
            bits.golomb()?;
        }
        if bits.flag()? {
            delay_bits = Some(bits.take(5)? as usize + 1);
            bits.skip(42)?;
        }
    }
    let display_delays = bits.flag()?;
    for _ in 0..=bits.take(5)? {
        bits.skip(12)?;
        if bits.take(5)? > 7 {
            bits.skip(1)?;
        }
        if let Some(delay_bits) = delay_bits
            && bits.flag()?
        {
            bits.skip(2 * delay_bits + 1)?;
        }
        if display_delays && bits.flag()? {
            bits.skip(4)?;
        }
    }
    Some(())
}
