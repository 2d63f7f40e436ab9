//! Sizes in the broker's own sections: numbers, or texts with a unit, as in RocketBufs' sections.

use rocketbufs::config::parse_bytes;
use serde::de::Error;
use serde::{Deserialize, Deserializer};

#[derive(Deserialize)]
#[serde(untagged, expecting = "it must be a number of bytes, or a text as \"64 MiB\"")]
enum Size {
    Number(u64),
    Text(String),
}

/// A number of bytes.
pub(in crate::broker) fn bytes<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    match Size::deserialize(deserializer)? {
        Size::Number(bytes) => Ok(bytes),
        Size::Text(text) => parse_bytes(&text).ok_or_else(|| {
            let units = "KiB, MiB, GiB (of 1024) or kB, MB, GB (of 1000)";
            D::Error::custom(format!("'{text}' is no number of bytes with a unit: {units}"))
        }),
    }
}

/// One that may be left out.
pub(in crate::broker) fn optional_bytes<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<u64>, D::Error> {
    bytes(deserializer).map(Some)
}
