//! Decoder configurations of the codecs that are remuxed.

mod aac;
mod ac3;
mod av1;
mod bits;
mod error;
mod h264;
mod hevc;
pub(crate) mod nal;
mod silence;

pub(crate) use aac::{ADTS_HEADER_BYTES, ADTS_SYNC, Adts};
pub(crate) use ac3::{AC3_HEADER_BYTES, AC3_SYNC, SyncFrame};
pub(crate) use h264::parameter_sets_to_config as h264_config;
pub(crate) use hevc::parameter_sets_to_config as hevc_config;

pub use error::ConfigError;
pub(crate) use silence::silence;

use bytes::Bytes;

use crate::unit::{AudioCodec, AudioConfig, VideoCodec, VideoConfig};

/// Reads a decoder configuration record: the content of `avcC`, `hvcC` or `av1C`.
///
/// # Errors
/// [`ConfigError`]: the record is damaged.
pub fn video_config(codec: VideoCodec, record: Bytes) -> Result<VideoConfig, ConfigError> {
    match codec {
        VideoCodec::H264 => h264::from_record(record),
        VideoCodec::Hevc => hevc::from_record(record),
        VideoCodec::Av1 => av1::from_record(record),
    }
}

/// Reads an `AudioSpecificConfig`, or the content of `dac3` or `dec3`.
///
/// # Errors
/// [`ConfigError`]: the bytes are damaged, or of another codec.
pub fn audio_config(codec: AudioCodec, record: Bytes) -> Result<AudioConfig, ConfigError> {
    match codec {
        AudioCodec::Aac => aac::from_record(record),
        AudioCodec::Ac3 | AudioCodec::EAc3 => ac3::from_record(codec, record),
    }
}
