//! H.264: `avcC` and sequence parameter sets.

use bytes::Bytes;

use super::bits::{Bits, without_emulation};
use super::error::ConfigError;
use crate::unit::{VideoCodec, VideoConfig};

const DAMAGED: ConfigError = ConfigError::Damaged("H.264");

/// Fields of a sequence parameter set.
struct Sps {
    chroma: u32,
    depths: [u32; 2],
    width: u32,
    height: u32,
    frames_per_1000_s: u32,
}

/// The configuration of a stream with these parameter sets: one sequence, up to 31 pictures.
pub(crate) fn parameter_sets_to_config(sps: &[u8], pps: &[&[u8]]) -> Result<VideoConfig, ConfigError> {
    debug_assert!((1..=31).contains(&pps.len()));
    let [_, profile, compatibility, level, ..] = *sps else { return Err(DAMAGED) };
    let size = |set: &[u8]| u16::try_from(set.len()).map(u16::to_be_bytes).map_err(|_| DAMAGED);
    let parsed = parse_sps(sps).ok_or(DAMAGED)?;
    let mut record = vec![1, profile, compatibility, level, 0xFF, 0xE1];
    record.extend(size(sps)?);
    record.extend(sps);
    record.push(pps.len() as u8);
    for set in pps {
        record.extend(size(set)?);
        record.extend(*set);
    }
    if !matches!(profile, 66 | 77 | 88) {
        let [luma, chroma] = parsed.depths.map(|depth| 0xF8 | depth as u8 & 7);
        record.extend([0xFC | parsed.chroma as u8 & 3, luma, chroma, 0]);
    }
    Ok(config(record.into(), [profile, compatibility, level], &parsed))
}

/// The configuration of a stream with this `avcC`.
pub(super) fn from_record(record: Bytes) -> Result<VideoConfig, ConfigError> {
    let [1, profile, compatibility, level, _, sets, ..] = *record else { return Err(DAMAGED) };
    if sets & 0x1F == 0 {
        return Err(DAMAGED);
    }
    let length = record.get(6..8).ok_or(DAMAGED)?;
    let length = usize::from(u16::from_be_bytes([length[0], length[1]]));
    let sps = record.get(8..8 + length).ok_or(DAMAGED)?;
    let parsed = parse_sps(sps).ok_or(DAMAGED)?;
    Ok(config(record.clone(), [profile, compatibility, level], &parsed))
}

fn config(record: Bytes, [profile, compatibility, level]: [u8; 3], sps: &Sps) -> VideoConfig {
    VideoConfig {
        codec: VideoCodec::H264,
        record,
        name: format!("avc1.{profile:02x}{compatibility:02x}{level:02x}"),
        width: sps.width,
        height: sps.height,
        frames_per_1000_s: sps.frames_per_1000_s,
    }
}

fn parse_sps(nal: &[u8]) -> Option<Sps> {
    let plain = without_emulation(nal);
    let profile = *plain.get(1)?;
    let mut bits = Bits::new(plain.get(4..)?);
    bits.golomb()?;
    let (mut chroma, mut depths, mut separate) = (1, [0, 0], false);
    if matches!(profile, 100 | 110 | 122 | 244 | 44 | 83 | 86 | 118 | 128 | 138 | 139 | 134 | 135) {
        chroma = bits.golomb()?;
        separate = chroma == 3 && bits.flag()?;
        depths = [bits.golomb()?, bits.golomb()?];
        bits.flag()?;
        if bits.flag()? {
            scaling_lists(&mut bits, if chroma == 3 { 12 } else { 8 })?;
        }
    }
    picture_order(&mut bits)?;
    bits.golomb()?;
    bits.flag()?;
    let blocks = [bits.golomb()?, bits.golomb()?].map(|minus_1| u64::from(minus_1) + 1);
    let frames_only = bits.flag()?;
    if !frames_only {
        bits.flag()?;
    }
    bits.flag()?;
    let rows = if frames_only { 1 } else { 2 };
    let crop = crop(&mut bits)?;
    let unit_x = if matches!(chroma, 1 | 2) && !separate { 2 } else { 1 };
    let unit_y = if chroma == 1 && !separate { 2 } else { 1 } * rows;
    let side = |blocks: u64, crop: u64| u32::try_from((blocks * 16).checked_sub(crop)?).ok();
    Some(Sps {
        chroma,
        depths,
        width: side(blocks[0], crop[0] * unit_x)?,
        height: side(blocks[1] * rows, crop[1] * unit_y)?,
        frames_per_1000_s: frame_rate(&mut bits).unwrap_or(0),
    })
}

/// The horizontal and vertical crop, in the format's units.
fn crop(bits: &mut Bits<'_>) -> Option<[u64; 2]> {
    if !bits.flag()? {
        return Some([0, 0]);
    }
    let mut side = || Some(u64::from(bits.golomb()?) + u64::from(bits.golomb()?));
    Some([side()?, side()?])
}

fn scaling_lists(bits: &mut Bits<'_>, lists: usize) -> Option<()> {
    for list in 0..lists {
        if !bits.flag()? {
            continue;
        }
        let (mut last, mut next) = (8i64, 8i64);
        for _ in 0..if list < 6 { 16 } else { 64 } {
            if next != 0 {
                next = (last + bits.signed_golomb()?).rem_euclid(256);
            }
            last = if next == 0 { last } else { next };
        }
    }
    Some(())
}

fn picture_order(bits: &mut Bits<'_>) -> Option<()> {
    bits.golomb()?;
    match bits.golomb()? {
        0 => bits.golomb().map(|_| ()),
        1 => {
            bits.flag()?;
            bits.golomb()?;
            bits.golomb()?;
            let count = bits.golomb()?;
            if count > 255 {
                return None;
            }
            (0..count).try_for_each(|_| bits.golomb().map(|_| ()))
        }
        _ => Some(()),
    }
}

/// Frames in 1,000 seconds, from the usability information.
fn frame_rate(bits: &mut Bits<'_>) -> Option<u32> {
    if !bits.flag()? {
        return None;
    }
    if bits.flag()? && bits.take(8)? == 255 {
        bits.skip(32)?;
    }
    if bits.flag()? {
        bits.flag()?;
    }
    if bits.flag()? {
        bits.skip(4)?;
        if bits.flag()? {
            bits.skip(24)?;
        }
    }
    if bits.flag()? {
        bits.golomb()?;
        bits.golomb()?;
    }
    if !bits.flag()? {
        return None;
    }
    let (ticks, scale) = (u64::from(bits.take(32)?), u64::from(bits.take(32)?));
    let rate = (scale * 1000).checked_div(ticks * 2)?;
    u32::try_from(rate).ok().filter(|rate| (1..=1_000_000).contains(rate))
}
