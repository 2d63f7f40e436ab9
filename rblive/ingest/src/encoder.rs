//! The encoders that publish, as operators see them.

use std::net::IpAddr;
use std::time::{Duration, SystemTime};

use rblive_media::rendition::Rendition;

/// An encoder that publishes a stream, or one of its renditions. [`Ingest::encoders`](crate::Ingest::encoders) lists them.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Encoder {
    /// The number of its publication, which no other one has since the start of the node.
    pub number: u64,
    /// The name under which it publishes.
    pub name: String,
    /// The stream of which that is a rendition, if it is one.
    pub rendition_of: Option<String>,
    /// The user whose password it has shown.
    pub user: Option<String>,
    /// Its address.
    pub address: IpAddr,
    /// How it publishes: `rtmp` or `http`.
    pub protocol: &'static str,
    /// Since when.
    pub since: SystemTime,
    /// Its codecs, its picture, and the rate of its newest segment in bits per second, 0 before there is one.
    pub media: Rendition,
    /// How far its newest two key frames are apart; of files that pass as they come, the length of the newest one.
    pub key_frames: Option<Duration>,
}
