//! Sizes and times for serde, in structs that are no sections: numbers, or texts with a unit.

use std::time::Duration;

use serde::de::Error;
use serde::{Deserialize, Deserializer};

use super::size::{SIZE_UNITS, parse_bytes};
use super::time::{TIME_UNITS, parse_time};

#[derive(Deserialize)]
#[serde(untagged, expecting = "it must be a number of bytes, or a text as \"64 MiB\"")]
enum Size {
    Number(u64),
    Text(String),
}

/// Reads a number of bytes: 4096, or `"64 MiB"`.
///
/// # Errors
/// The value is no number of bytes, or more than the field can have.
pub fn bytes<'de, D: Deserializer<'de>, T: TryFrom<u64>>(deserializer: D) -> Result<T, D::Error> {
    let bytes = match Size::deserialize(deserializer)? {
        Size::Number(bytes) => bytes,
        Size::Text(text) => parse_bytes(&text).ok_or_else(|| {
            D::Error::custom(format!("'{text}' is no number of bytes with a unit: {SIZE_UNITS}"))
        })?,
    };
    T::try_from(bytes).map_err(|_| D::Error::custom(format!("{bytes} bytes are too many")))
}

/// As [`bytes()`], for an optional field.
///
/// # Errors
/// As [`bytes()`].
pub fn optional_bytes<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    bytes(deserializer).map(Some)
}

#[derive(Deserialize)]
#[serde(untagged, expecting = "it must be a number of milliseconds, or a text as \"10 s\"")]
enum Time {
    Number(u64),
    Text(String),
}

/// Reads a number of milliseconds: 500, or `"10 s"`.
///
/// # Errors
/// The value is no whole number of milliseconds, or more than the field can have.
pub fn millis<'de, D: Deserializer<'de>, T: TryFrom<u64>>(deserializer: D) -> Result<T, D::Error> {
    let (millis, written) = match Time::deserialize(deserializer)? {
        Time::Number(millis) => (millis, millis.to_string()),
        Time::Text(text) => (whole_millis(&text).map_err(D::Error::custom)?, text),
    };
    T::try_from(millis).map_err(|_| D::Error::custom(format!("'{written}' is too long")))
}

/// As [`millis`], for an optional field.
///
/// # Errors
/// As [`millis`].
pub fn optional_millis<'de, D: Deserializer<'de>, T: TryFrom<u64>>(
    deserializer: D,
) -> Result<Option<T>, D::Error> {
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
