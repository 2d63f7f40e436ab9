//! HEVC: `hvcC` and sequence parameter sets.

use bytes::Bytes;

use super::bits::{Bits, without_emulation};
use super::error::ConfigError;
use crate::unit::{VideoCodec, VideoConfig};

const DAMAGED: ConfigError = ConfigError::Damaged("HEVC");
const VPS: u8 = 32;
const SPS: u8 = 33;
const PPS: u8 = 34;

/// Fields of a sequence parameter set.
struct Sps {
    /// The general profile, tier and level: 12 bytes as `hvcC` has them.
    profile: [u8; 12],
    layers: u8,
    nested: bool,
    chroma: u32,
    depths: [u32; 2],
    width: u32,
    height: u32,
}

/// The configuration of a stream with these parameter sets.
pub(crate) fn parameter_sets_to_config(
    vps: &[u8],
    sps: &[u8],
    pps: &[&[u8]],
) -> Result<VideoConfig, ConfigError> {
    let parsed = parse_sps(sps).ok_or(DAMAGED)?;
    let mut record = vec![1];
    record.extend(parsed.profile);
    let [luma, chroma] = parsed.depths.map(|depth| 0xF8 | depth as u8 & 7);
    record.extend([0xF0, 0, 0xFC, 0xFC | parsed.chroma as u8 & 3, luma, chroma, 0, 0]);
    record.push(parsed.layers << 3 | u8::from(parsed.nested) << 2 | 3);
    record.push(3);
    for (kind, sets) in [(VPS, &[vps][..]), (SPS, &[sps]), (PPS, pps)] {
        record.extend([0x80 | kind, 0, sets.len() as u8]);
        for set in sets {
            let length = u16::try_from(set.len()).map_err(|_| DAMAGED)?;
            record.extend(length.to_be_bytes());
            record.extend(*set);
        }
    }
    Ok(config(record.into(), &parsed))
}

/// The configuration of a stream with this `hvcC`.
pub(super) fn from_record(record: Bytes) -> Result<VideoConfig, ConfigError> {
    let sps = first_sps(&record).ok_or(DAMAGED)?;
    let parsed = parse_sps(sps).ok_or(DAMAGED)?;
    Ok(config(record.clone(), &parsed))
}

fn first_sps(record: &[u8]) -> Option<&[u8]> {
    if record.first() != Some(&1) {
        return None;
    }
    let mut rest = record.get(23..)?;
    for _ in 0..*record.get(22)? {
        let kind = rest.first()? & 0x3F;
        let count = u16::from_be_bytes([*rest.get(1)?, *rest.get(2)?]);
        rest = &rest[3..];
        for _ in 0..count {
            let length = usize::from(u16::from_be_bytes([*rest.first()?, *rest.get(1)?]));
            let set = rest.get(2..2 + length)?;
            if kind == SPS {
                return Some(set);
            }
            rest = &rest[2 + length..];
        }
    }
    None
}

fn config(record: Bytes, sps: &Sps) -> VideoConfig {
    VideoConfig {
        codec: VideoCodec::Hevc,
        record,
        name: name(&sps.profile),
        width: sps.width,
        height: sps.height,
        frames_per_1000_s: 0,
    }
}

/// The codec as in RFC 6381 and annex E of ISO/IEC 14496-15.
fn name(profile: &[u8; 12]) -> String {
    let space = ["", "A", "B", "C"][usize::from(profile[0] >> 6)];
    let tier = if profile[0] & 0x20 == 0 { 'L' } else { 'H' };
    let compatibility = u32::from_be_bytes([profile[1], profile[2], profile[3], profile[4]]).reverse_bits();
    let mut name = format!("hvc1.{space}{}.{compatibility:X}.{tier}{}", profile[0] & 0x1F, profile[11]);
    let constraints = &profile[5..11];
    let used = constraints.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    for byte in &constraints[..used] {
        name.push_str(&format!(".{byte:X}"));
    }
    name
}

fn parse_sps(nal: &[u8]) -> Option<Sps> {
    let plain = without_emulation(nal);
    let profile: [u8; 12] = plain.get(3..15)?.try_into().ok()?;
    let head = *plain.get(2)?;
    let sub_layers = head >> 1 & 7;
    let mut bits = Bits::new(&plain[15..]);
    skip_sub_layers(&mut bits, sub_layers)?;
    bits.golomb()?;
    let chroma = bits.golomb()?;
    let separate = chroma == 3 && bits.flag()?;
    let coded = [u64::from(bits.golomb()?), u64::from(bits.golomb()?)];
    let mut crop = [0; 2];
    if bits.flag()? {
        for side in &mut crop {
            *side = u64::from(bits.golomb()?) + u64::from(bits.golomb()?);
        }
    }
    let unit_x = if matches!(chroma, 1 | 2) && !separate { 2 } else { 1 };
    let unit_y = if chroma == 1 && !separate { 2 } else { 1 };
    let side = |coded: u64, crop: u64| u32::try_from(coded.checked_sub(crop)?).ok();
    Some(Sps {
        profile,
        layers: sub_layers + 1,
        nested: head & 1 == 1,
        chroma,
        depths: [bits.golomb()?, bits.golomb()?],
        width: side(coded[0], crop[0] * unit_x)?,
        height: side(coded[1], crop[1] * unit_y)?,
    })
}

/// Passes the profiles and levels of temporal layers below the highest.
fn skip_sub_layers(bits: &mut Bits<'_>, count: u8) -> Option<()> {
    let mut present = Vec::new();
    for _ in 0..count {
        present.push((bits.flag()?, bits.flag()?));
    }
    if count > 0 {
        bits.skip(2 * (8 - usize::from(count)))?;
    }
    for (profile, level) in present {
        bits.skip(if profile { 88 } else { 0 } + if level { 8 } else { 0 })?;
    }
    Some(())
}
