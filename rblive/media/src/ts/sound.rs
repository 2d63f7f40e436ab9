//! Frames of sound, each with a header of its own.

use super::psi::StreamType;
use crate::codec::{AC3_HEADER_BYTES, AC3_SYNC, ADTS_HEADER_BYTES, ADTS_SYNC, Adts, ConfigError, SyncFrame};
use crate::unit::AudioConfig;

/// The header of a frame, and the bytes of the frame that MP4 stores.
#[derive(Debug)]
pub(super) struct Framed {
    /// The bytes at the beginning that MP4 does not store.
    pub(super) header: usize,
    /// The bytes of the frame with its header.
    pub(super) total: usize,
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    Aac(Adts),
    Ac3(SyncFrame),
}

impl Framed {
    /// The bytes of a header of this kind of stream.
    pub(super) fn header_bytes(kind: StreamType) -> usize {
        if kind == StreamType::Ac3 { AC3_HEADER_BYTES } else { ADTS_HEADER_BYTES }
    }

    /// The byte with which a header begins.
    pub(super) fn sync(kind: StreamType) -> u8 {
        if kind == StreamType::Ac3 { AC3_SYNC } else { ADTS_SYNC }
    }

    /// Reads the header at the beginning of `bytes`. `None` if there is no header.
    pub(super) fn parse(kind: StreamType, bytes: &[u8]) -> Option<Self> {
        Some(if kind == StreamType::Ac3 {
            let frame = SyncFrame::parse(bytes)?;
            Self { header: 0, total: frame.total, kind: Kind::Ac3(frame) }
        } else {
            let adts = Adts::parse(bytes)?;
            Self { header: adts.header, total: adts.total, kind: Kind::Aac(adts) }
        })
    }

    /// The configuration that the header implies. `None`: the frame is not played.
    pub(super) fn config(&self) -> Result<Option<AudioConfig>, ConfigError> {
        match &self.kind {
            Kind::Aac(adts) => adts.config().map(Some),
            Kind::Ac3(frame) => Ok(frame.is_main.then(|| frame.config())),
        }
    }
}
