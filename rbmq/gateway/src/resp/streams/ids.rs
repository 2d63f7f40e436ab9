//! The ids of entries: `<time>-<position>`.
//!
//! The time is that of the delivery with which an entry was stored, in milliseconds since 1970, and the position is that of its record in the log
//! of the topic. Nothing else is needed to find it again, and nothing is kept beside the log.

pub use rbmq_broker::EntryId as Id;

use crate::resp::parse::integer;

fn number(text: &[u8]) -> Option<u64> {
    // Leading zeros are allowed, signs are not.
    if text.is_empty() || text.len() > 20 || !text.iter().all(u8::is_ascii_digit) {
        return None;
    }
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// Reads an id, of which the position may be missing: then it is `position`.
pub fn id(text: &[u8], position: u64) -> Option<Id> {
    match text.iter().position(|&byte| byte == b'-') {
        Some(dash) => Some(Id { time: number(&text[..dash])?, position: number(&text[dash + 1..])? }),
        None => Some(Id { time: number(text)?, position }),
    }
}

/// An end of a range of entries, as the lowest id that is inside (`is_start`) or the lowest behind it. `Ok(None)`: nothing is behind it.
///
/// # Errors
/// The text is no id; the error is for the client.
pub fn bound(text: &[u8], is_start: bool) -> Result<Option<Id>, &'static str> {
    const INVALID: &str = "ERR Invalid stream ID specified as stream command argument";
    const INVALID_START: &str = "ERR invalid start ID for the interval";
    const INVALID_END: &str = "ERR invalid end ID for the interval";
    match (text, is_start) {
        (b"-", _) => return Ok(if is_start { Some(Id::MIN) } else { Id::MIN.next() }),
        (b"+", true) => return Ok(Some(Id::MAX)),
        (b"+", false) => return Ok(None),
        _ => {}
    }
    let (is_exclusive, text) = match text.strip_prefix(b"(") {
        Some(rest) => (true, rest),
        None => (false, text),
    };
    let found = id(text, if is_start { 0 } else { u64::MAX }).ok_or(INVALID)?;
    match (is_start, is_exclusive) {
        (true, false) => Ok(Some(found)),
        (true, true) => found.next().map(Some).ok_or(INVALID_START),
        (false, false) => Ok(found.next()),
        (false, true) if found == Id::MIN => Err(INVALID_END),
        (false, true) => Ok(Some(found)),
    }
}

/// A number of entries. Negative ones count as none in some commands, as in Redis.
pub fn count(text: &[u8]) -> Result<usize, &'static str> {
    let value = integer(text).ok_or("ERR value is not an integer or out of range")?;
    Ok(usize::try_from(value).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn of(time: u64, position: u64) -> Option<Id> {
        Some(Id { time, position })
    }

    #[test]
    fn ids_are_read_as_redis_does() {
        assert_eq!(id(b"12-34", 0), of(12, 34));
        assert_eq!(id(b"12", 7), of(12, 7));
        assert_eq!(id(b"18446744073709551615-18446744073709551615", 0), Some(Id::MAX));
        for bad in [&b""[..], b"-", b"-1", b"1-", b"1-2-3", b"+1", b"1-*", b"18446744073709551616", b"1 "] {
            assert_eq!(id(bad, 0), None, "{}", bad.escape_ascii());
        }
    }

    #[test]
    fn bounds_are_half_open() {
        assert_eq!(bound(b"5", true), Ok(of(5, 0)));
        assert_eq!(bound(b"5", false), Ok(of(6, 0)), "all of the millisecond are inside");
        assert_eq!(bound(b"5-3", false), Ok(of(5, 4)));
        assert_eq!(bound(b"(5-3", true), Ok(of(5, 4)));
        assert_eq!(bound(b"(5-3", false), Ok(of(5, 3)));
        assert_eq!((bound(b"-", true), bound(b"+", false)), (Ok(Some(Id::MIN)), Ok(None)));
        assert!(bound(b"(18446744073709551615-18446744073709551615", true).is_err());
        assert!(bound(b"(0-0", false).is_err() && bound(b"$", true).is_err());
    }

    proptest! {
        #[test]
        fn an_id_is_read_as_it_was_written(time: u64, position: u64) {
            let written = Id { time, position };
            prop_assert_eq!(id(written.to_string().as_bytes(), 0), Some(written));
            prop_assert!(written.next().is_none_or(|next| next > written));
        }
    }
}
