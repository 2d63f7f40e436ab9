//! Decoder configurations of the codecs that are remuxed.

mod aac;
mod av1;
mod bits;
mod error;
mod h264;
mod hevc;
pub(crate) mod nal;

pub(crate) use aac::{ADTS_HEADER_BYTES, Adts};
pub(crate) use h264::parameter_sets_to_config as h264_config;
pub(crate) use hevc::parameter_sets_to_config as hevc_config;

pub use error::ConfigError;

use bytes::Bytes;

use crate::unit::{AudioConfig, VideoCodec, VideoConfig};

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

/// Reads an `AudioSpecificConfig`.
///
/// # Errors
/// [`ConfigError`]: the bytes are damaged, or no kind of AAC.
pub fn audio_config(record: Bytes) -> Result<AudioConfig, ConfigError> {
    aac::from_record(record)
}
