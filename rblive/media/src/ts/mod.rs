//! MPEG transport streams (ISO/IEC 13818-1): H.264 or HEVC, and AAC, AC-3 or E-AC-3, of the first program.
//!
//! This is own code, because the demuxers on crates.io read from a `Read`, stop at the first damage, or assemble elementary streams
//! without a limit.

mod elementary;
mod error;
mod psi;
mod sound;

use std::collections::VecDeque;

use crate::unit::{Input, Media, Unwrap};
use elementary::Elementary;
use error::MAX_UNSYNCED_BYTES;
pub use error::TsError;
use psi::{Sections, StreamType};

/// The bytes of a transport packet.
pub const PACKET_BYTES: usize = 188;
const SYNC: u8 = 0x47;
const PAT_PID: u16 = 0;

/// Demultiplexes a transport stream. Needs at most the memory of an unfinished frame for each track.
///
/// Bytes come in pieces of any size. After each [`push`](Self::push), [`next_input`](Self::next_input) returns the complete items.
#[derive(Debug)]
pub struct Demuxer {
    partial: Vec<u8>,
    unsynced: u64,
    damaged: u64,
    pat: Sections,
    pmt: Option<(u16, Sections)>,
    tracks: Vec<Elementary>,
    clock: Unwrap,
    ready: VecDeque<Input>,
    max_unit_bytes: usize,
}

impl Demuxer {
    /// A demuxer that refuses frames of more than `max_unit_bytes`.
    pub fn new(max_unit_bytes: usize) -> Self {
        Self {
            partial: Vec::new(),
            unsynced: 0,
            damaged: 0,
            pat: Sections::default(),
            pmt: None,
            tracks: Vec::new(),
            clock: Unwrap::new(33),
            ready: VecDeque::new(),
            max_unit_bytes,
        }
    }

    /// Reads more of the stream.
    ///
    /// # Errors
    /// [`TsError`]: the demuxer may not be used any more.
    pub fn push(&mut self, mut bytes: &[u8]) -> Result<(), TsError> {
        if !self.partial.is_empty() {
            let missing = (PACKET_BYTES - self.partial.len()).min(bytes.len());
            self.partial.extend_from_slice(&bytes[..missing]);
            bytes = &bytes[missing..];
            if self.partial.len() < PACKET_BYTES {
                return Ok(());
            }
            let packet = std::mem::take(&mut self.partial);
            self.packet(packet.as_slice().try_into().expect("the packet is complete"))?;
        }
        while !bytes.is_empty() {
            if bytes[0] != SYNC {
                let skipped = bytes.iter().position(|byte| *byte == SYNC).unwrap_or(bytes.len());
                self.unsynced += skipped as u64;
                self.damaged += 1;
                if self.unsynced > MAX_UNSYNCED_BYTES {
                    return Err(TsError::NotTs);
                }
                bytes = &bytes[skipped..];
                continue;
            }
            let Some((packet, rest)) = bytes.split_first_chunk::<PACKET_BYTES>() else {
                self.partial = bytes.to_vec();
                break;
            };
            self.packet(packet)?;
            bytes = rest;
        }
        Ok(())
    }

    /// Returns the next item, in the order of the stream. `None`: more bytes are needed.
    pub fn next_input(&mut self) -> Option<Input> {
        self.ready.pop_front()
    }

    /// Ends the stream, or a segment whose successor does not continue its frames. An unfinished frame counts as complete.
    ///
    /// # Errors
    /// [`TsError`], as of [`push`](Self::push).
    pub fn finish(&mut self) -> Result<(), TsError> {
        self.partial.clear();
        for track in &mut self.tracks {
            track.finish(&mut self.clock, &mut self.ready)?;
        }
        Ok(())
    }

    /// How often packets were missing or damaged.
    pub fn damaged(&self) -> u64 {
        self.damaged + self.tracks.iter().map(|track| track.damaged).sum::<u64>()
    }

    fn packet(&mut self, packet: &[u8; PACKET_BYTES]) -> Result<(), TsError> {
        let pid = u16::from_be_bytes([packet[1] & 0x1F, packet[2]]);
        let (failed, begins, scrambled) =
            (packet[1] & 0x80 != 0, packet[1] & 0x40 != 0, packet[3] & 0xC0 != 0);
        let (adapted, has_payload, counter) = (packet[3] & 0x20 != 0, packet[3] & 0x10 != 0, packet[3] & 15);
        let skipped = if adapted { 1 + usize::from(packet[4]) } else { 0 };
        let Some(payload) = packet.get(4 + skipped..).filter(|_| !failed && !scrambled) else {
            self.damaged += 1;
            return Ok(());
        };
        self.unsynced = 0;
        if !has_payload {
            return Ok(());
        }
        if pid == PAT_PID {
            if let Some(section) = self.pat.push(payload, begins) {
                self.program_table(&section);
            }
        } else if let Some((_, sections)) = self.pmt.as_mut().filter(|(pmt, _)| *pmt == pid) {
            if let Some(section) = sections.push(payload, begins) {
                self.stream_table(&section);
            }
        } else if let Some(track) = self.tracks.iter_mut().find(|track| track.pid == pid) {
            track.packet(payload, begins, counter, &mut self.clock, &mut self.ready)?;
        }
        Ok(())
    }

    fn program_table(&mut self, section: &[u8]) {
        let Some(pid) = psi::first_program(section) else { return };
        if self.pmt.as_ref().is_none_or(|(known, _)| *known != pid) {
            self.pmt = Some((pid, Sections::default()));
        }
    }

    fn stream_table(&mut self, section: &[u8]) {
        let Some(streams) = psi::streams(section) else { return };
        let first = |wanted: Media| streams.iter().find(|(kind, _)| kind.media() == wanted).copied();
        // AAC comes first, since more players support it.
        let aac = streams.iter().find(|(kind, _)| *kind == StreamType::Aac).copied();
        let chosen = [first(Media::Video), aac.or_else(|| first(Media::Audio))];
        let known = self.tracks.iter().map(|track| (track.kind, track.pid));
        if chosen.iter().flatten().copied().eq(known) {
            return;
        }
        // A stream that is in the new table too keeps its unfinished frame.
        let mut old = std::mem::take(&mut self.tracks);
        for (kind, pid) in chosen.into_iter().flatten() {
            let kept = old.iter().position(|track| track.kind == kind && track.pid == pid);
            let track = kept.map(|at| old.swap_remove(at));
            self.tracks.push(track.unwrap_or_else(|| Elementary::new(kind, pid, self.max_unit_bytes)));
        }
        self.damaged += old.iter().map(|track| track.damaged).sum::<u64>();
        self.ready.push_back(Input::Tracks { video: chosen[0].is_some(), audio: chosen[1].is_some() });
    }
}

/// The streams that are read.
impl StreamType {
    fn media(self) -> Media {
        match self {
            Self::H264 | Self::Hevc => Media::Video,
            Self::Aac | Self::Ac3 => Media::Audio,
        }
    }
}
