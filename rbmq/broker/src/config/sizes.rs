//! Sizes and times in the broker's own sections: numbers, or texts with a unit, as in RocketBufs' sections.

use std::time::Duration;

use rocketbufs::config::{TIME_UNITS, parse_bytes, parse_time};
use serde::de::Error;
use serde::{Deserialize, Deserializer};

#[derive(Deserialize)]
#[serde(untagged, expecting = "it must be a number of bytes, or a text as \"64 MiB\"")]
enum Size {
    Number(u64),
    Text(String),
}

/// A number of bytes.
pub(crate) fn bytes<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    match Size::deserialize(deserializer)? {
        Size::Number(bytes) => Ok(bytes),
        Size::Text(text) => parse_bytes(&text).ok_or_else(|| {
            let units = "KiB, MiB, GiB (of 1024) or kB, MB, GB (of 1000)";
            D::Error::custom(format!("'{text}' is no number of bytes with a unit: {units}"))
        }),
    }
}

/// An optional number of bytes.
pub(crate) fn optional_bytes<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    bytes(deserializer).map(Some)
}

#[derive(Deserialize)]
#[serde(untagged, expecting = "it must be a number of milliseconds, or a text as \"10 s\"")]
enum Time {
    Number(u64),
    Text(String),
}

/// A number of milliseconds.
pub(crate) fn millis<'de, D: Deserializer<'de>, T: TryFrom<u64>>(deserializer: D) -> Result<T, D::Error> {
    let (millis, written) = match Time::deserialize(deserializer)? {
        Time::Number(millis) => (millis, millis.to_string()),
        Time::Text(text) => (whole_millis(&text).map_err(D::Error::custom)?, text),
    };
    T::try_from(millis).map_err(|_| D::Error::custom(format!("'{written}' is too long")))
}

/// An optional number of milliseconds.
pub(crate) fn optional_millis<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u32>, D::Error> {
    millis(deserializer).map(Some)
}

/// An optional number of milliseconds, also of many days.
pub(crate) fn optional_long_millis<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<u64>, D::Error> {
    millis(deserializer).map(Some)
}

fn whole_millis(text: &str) -> Result<u64, String> {
    let time = parse_time(text, Duration::from_millis(1))
        .ok_or_else(|| format!("'{text}' is no time with a unit: {TIME_UNITS}"))?;
    match time.subsec_nanos() % 1_000_000 {
        0 => u64::try_from(time.as_millis()).map_err(|_| format!("'{text}' is too long")),
        _ => Err(format!("'{text}' is no whole number of milliseconds")),
    }
}
