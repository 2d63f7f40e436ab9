//! An elementary stream: packets into PES packets, and these into frames.

use std::collections::VecDeque;

use bytes::Bytes;

use super::error::TsError;
use super::psi::StreamType;
use super::sound::Framed;
use crate::codec::{h264_config, hevc_config, nal};
use crate::unit::{AccessUnit, Input, Media, TICKS_PER_SECOND, TrackConfig, Unwrap};

/// The most picture parameter sets of a configuration.
const MAX_PICTURE_SETS: usize = 31;

#[derive(Debug)]
pub(super) struct Elementary {
    pub(super) kind: StreamType,
    pub(super) pid: u16,
    /// How often bytes of the stream were missing.
    pub(super) damaged: u64,
    counter: Option<u8>,
    pes: Vec<u8>,
    /// The PES packet is being read: its beginning was seen, and nothing was missing since.
    open: bool,
    config: Option<TrackConfig>,
    /// The part of a frame of sound at the end of a PES packet.
    partial_audio: Vec<u8>,
    next_audio: Option<i64>,
    max_unit_bytes: usize,
}

impl Elementary {
    pub(super) fn new(kind: StreamType, pid: u16, max_unit_bytes: usize) -> Self {
        Self {
            kind,
            pid,
            damaged: 0,
            counter: None,
            pes: Vec::new(),
            open: false,
            config: None,
            partial_audio: Vec::new(),
            next_audio: None,
            max_unit_bytes,
        }
    }

    pub(super) fn packet(
        &mut self,
        payload: &[u8],
        begins: bool,
        counter: u8,
        clock: &mut Unwrap,
        ready: &mut VecDeque<Input>,
    ) -> Result<(), TsError> {
        let previous = self.counter.replace(counter);
        if previous == Some(counter) && !begins {
            return Ok(());
        }
        if !begins && previous.is_some_and(|previous| (previous + 1) & 15 != counter) {
            self.damaged += u64::from(self.open);
            self.open = false;
            self.partial_audio.clear();
        }
        if begins {
            self.finish(clock, ready)?;
            self.open = true;
        }
        if !self.open {
            return Ok(());
        }
        if self.pes.len() + payload.len() > self.max_unit_bytes {
            return Err(TsError::TooLarge(self.max_unit_bytes));
        }
        self.pes.extend_from_slice(payload);
        let length = match *self.pes {
            [0, 0, 1, _, high, low, ..] => usize::from(u16::from_be_bytes([high, low])),
            _ => 0,
        };
        if length != 0 && self.pes.len() >= 6 + length {
            self.finish(clock, ready)?;
        }
        Ok(())
    }

    /// Takes the PES packet as complete.
    pub(super) fn finish(&mut self, clock: &mut Unwrap, ready: &mut VecDeque<Input>) -> Result<(), TsError> {
        let pes = std::mem::take(&mut self.pes);
        if !std::mem::take(&mut self.open) {
            return Ok(());
        }
        let Some((times, content)) = parse_pes(&pes) else {
            self.damaged += u64::from(!pes.is_empty());
            return Ok(());
        };
        let times = times.map(|(pts, dts)| {
            let decoded = clock.extend(dts);
            (decoded + clock.difference(pts as i64, dts as i64), decoded)
        });
        match (self.kind, times) {
            (StreamType::Aac | StreamType::Ac3, times) => {
                self.audio(times.map(|(pts, _)| pts), content, ready)?
            }
            (_, Some((pts, dts))) => self.video(pts, dts, content, ready)?,
            // A picture without a time has no place on the timeline.
            (_, None) => self.damaged += 1,
        }
        // Kept for its memory; the next PES packet is about as long.
        self.pes = pes;
        self.pes.clear();
        Ok(())
    }

    fn video(
        &mut self,
        pts: i64,
        dts: i64,
        content: &[u8],
        ready: &mut VecDeque<Input>,
    ) -> Result<(), TsError> {
        let (mut kept, mut key) = (Vec::new(), false);
        let mut sets: [Vec<&[u8]>; 3] = Default::default();
        for unit in nal::split(content) {
            let role = if self.kind == StreamType::Hevc { hevc_role(unit) } else { h264_role(unit) };
            match role {
                Role::Set(index) if sets[index].len() < MAX_PICTURE_SETS => sets[index].push(unit),
                Role::Set(_) | Role::Dropped => {}
                Role::Key => {
                    key = true;
                    kept.push(unit);
                }
                Role::Other => kept.push(unit),
            }
        }
        self.video_config(&sets, ready)?;
        if !kept.is_empty() && self.config.is_some() {
            let data = nal::with_lengths(&kept);
            ready.push_back(Input::Unit(AccessUnit { media: Media::Video, dts, pts, key, data }));
        }
        Ok(())
    }

    fn video_config(&mut self, sets: &[Vec<&[u8]>; 3], ready: &mut VecDeque<Input>) -> Result<(), TsError> {
        let config = match (self.kind, &sets[0][..], &sets[1][..], &sets[2][..]) {
            (StreamType::H264, _, [sps, ..], pps @ [_, ..]) => h264_config(sps, pps)?,
            (StreamType::Hevc, [vps, ..], [sps, ..], pps @ [_, ..]) => hevc_config(vps, sps, pps)?,
            _ => return Ok(()),
        };
        self.configure(TrackConfig::Video(config), ready);
        Ok(())
    }

    fn configure(&mut self, config: TrackConfig, ready: &mut VecDeque<Input>) {
        if self.config.as_ref() != Some(&config) {
            self.config = Some(config.clone());
            ready.push_back(Input::Config(config));
        }
    }

    fn audio(
        &mut self,
        pts: Option<i64>,
        content: &[u8],
        ready: &mut VecDeque<Input>,
    ) -> Result<(), TsError> {
        let carried = self.partial_audio.len();
        let joined = [std::mem::take(&mut self.partial_audio), content.to_vec()].concat();
        let bytes = Bytes::from(joined);
        let mut at = 0;
        // The time of a PES packet is that of the first frame that begins in it.
        let mut pts = pts;
        while bytes.len() - at >= Framed::header_bytes(self.kind) {
            let Some(frame) = Framed::parse(self.kind, &bytes[at..]) else {
                self.damaged += 1;
                let next = bytes[at + 1..].iter().position(|byte| *byte == Framed::sync(self.kind));
                at = next.map_or(bytes.len(), |next| at + 1 + next);
                continue;
            };
            if bytes.len() - at < frame.total {
                break;
            }
            if let Some(config) = frame.config()? {
                let (rate, samples) = (i64::from(config.sample_rate), i64::from(config.frame_samples));
                self.configure(TrackConfig::Audio(config), ready);
                let stated = if at >= carried { pts.take() } else { None };
                if let Some(time) = stated.or(self.next_audio) {
                    let data = bytes.slice(at + frame.header..at + frame.total);
                    let unit = AccessUnit { media: Media::Audio, dts: time, pts: time, key: true, data };
                    ready.push_back(Input::Unit(unit));
                    self.next_audio = Some(time + samples * TICKS_PER_SECOND / rate);
                }
            }
            at += frame.total;
        }
        self.partial_audio = bytes[at..].to_vec();
        Ok(())
    }
}

/// The role of a NAL unit.
enum Role {
    /// A parameter set: video, sequence or picture.
    Set(usize),
    /// A slice of a picture at which decoding can begin.
    Key,
    /// A delimiter or filling.
    Dropped,
    /// Any other.
    Other,
}

fn h264_role(unit: &[u8]) -> Role {
    match unit[0] & 0x1F {
        7 => Role::Set(1),
        8 => Role::Set(2),
        5 => Role::Key,
        // A recovery point at this very picture: streams with open groups of pictures have no other key frames.
        6 if matches!(unit, [_, 6, _, recovery, ..] if recovery & 0x80 != 0) => Role::Key,
        9 | 12 => Role::Dropped,
        _ => Role::Other,
    }
}

fn hevc_role(unit: &[u8]) -> Role {
    match unit[0] >> 1 & 0x3F {
        kind @ 32..=34 => Role::Set(usize::from(kind - 32)),
        16..=21 => Role::Key,
        35 | 38 => Role::Dropped,
        _ => Role::Other,
    }
}

/// The times (presentation, decoding), if there are any, and the content of a PES packet.
type Pes<'a> = (Option<(u64, u64)>, &'a [u8]);

fn parse_pes(pes: &[u8]) -> Option<Pes<'_>> {
    let [0, 0, 1, _, high, low, _, flags, header_bytes, ..] = *pes else { return None };
    let length = usize::from(u16::from_be_bytes([high, low]));
    let end = if length == 0 { pes.len() } else { pes.len().min(6 + length) };
    let header = pes.get(9..9 + usize::from(header_bytes))?;
    let content = pes.get(9 + usize::from(header_bytes)..end)?;
    let pts = if flags & 0x80 != 0 { header.first_chunk().map(time) } else { None };
    let dts =
        if flags & 0x40 != 0 { header.get(5..).and_then(|rest| rest.first_chunk()).map(time) } else { None };
    Some((pts.map(|pts| (pts, dts.unwrap_or(pts))), content))
}

/// A time of 33 bits in five bytes.
fn time(bytes: &[u8; 5]) -> u64 {
    let part = |at: usize| u64::from(u16::from_be_bytes([bytes[at], bytes[at + 1]]) >> 1);
    u64::from(bytes[0] >> 1 & 7) << 30 | part(1) << 15 | part(3)
}
