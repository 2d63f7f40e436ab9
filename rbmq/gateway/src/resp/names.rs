//! Channels are bytes and topics are names: what a name cannot hold is written as `%XX`, reversibly.
//!
//! ```text
//!   channel  news/eu   100%   a+b     $x      \xFF    (empty)   %2B
//!   topic    news/eu   100%   a%2Bb   %24x    %FF     %25       %252B
//! ```
//!
//! A `%` is written as `%25` only where it would be read as an escape, so that nearly all channels are their own topics. The `$` at the beginning is
//! escaped, as such names are the broker's own: no client of a gateway reaches them.

use rbmq_wire::{MAX_TOPIC_BYTES, TopicFilter, TopicName};

use super::glob::Glob;
use super::parse::hex_byte;

/// The topic of the channel without bytes. No other channel has it, as a `%` before the end is never escaped.
const EMPTY: &str = "%25";

/// The topic of a channel. None: its name would be too long.
pub fn topic_of(channel: &[u8]) -> Option<TopicName> {
    escape(channel).parse().ok()
}

/// Whether the channel has a topic: its name is not too long for one.
pub fn has_topic(channel: &[u8]) -> bool {
    // Each byte has three in the topic at most.
    channel.len() <= MAX_TOPIC_BYTES / 3
        || channel.len() <= MAX_TOPIC_BYTES && escape(channel).len() <= MAX_TOPIC_BYTES
}

/// The channel of a topic.
pub fn channel_of(topic: &str) -> Vec<u8> {
    if topic == EMPTY {
        return Vec::new();
    }
    let bytes = topic.as_bytes();
    let (mut channel, mut at) = (Vec::with_capacity(bytes.len()), 0);
    while at < bytes.len() {
        match escaped(&bytes[at..], at == 0) {
            Some(byte) => {
                channel.push(byte);
                at += 3;
            }
            None => {
                channel.push(bytes[at]);
                at += 1;
            }
        }
    }
    channel
}

/// The narrowest filter that selects the topics of all channels which a pattern matches. None: no topic is long enough.
pub fn filter_of(pattern: &Glob) -> Option<TopicFilter> {
    if let Some(channel) = pattern.as_name() {
        return topic_of(&channel).map(|topic| TopicFilter::from(&topic));
    }
    let prefix = pattern.prefix();
    let Some(slash) = prefix.iter().rposition(|&byte| byte == b'/') else { return Some(TopicFilter::all()) };
    let mut filter = escape(&prefix[..=slash]);
    if filter.len() > MAX_TOPIC_BYTES {
        return None;
    }
    if filter.len() == MAX_TOPIC_BYTES {
        // There is no room for the wildcard: its parent has some.
        filter.pop();
        filter.truncate(filter.rfind('/').map_or(0, |slash| slash + 1));
    }
    filter.push('#');
    filter.parse().ok()
}

/// The byte whose escape is here, if there is one. Only what a name cannot hold has an escape.
fn escaped(text: &[u8], is_first: bool) -> Option<u8> {
    let [b'%', digits @ ..] = text.get(..3)? else { return None };
    if digits.iter().any(u8::is_ascii_lowercase) {
        return None;
    }
    let byte = hex_byte(digits)?;
    let has_escape = match byte {
        b'%' | b'+' | b'#' => true,
        b'$' => is_first,
        _ => byte.is_ascii_control() || !byte.is_ascii(),
    };
    has_escape.then_some(byte)
}

fn escape(channel: &[u8]) -> String {
    if channel.is_empty() {
        return EMPTY.to_owned();
    }
    let mut topic = String::with_capacity(channel.len() + 8);
    let write = |topic: &mut String, bytes: &[u8]| {
        const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
        for &byte in bytes {
            topic.push('%');
            topic.push(char::from(DIGITS[usize::from(byte >> 4)]));
            topic.push(char::from(DIGITS[usize::from(byte & 15)]));
        }
    };
    let mut at = 0;
    for chunk in channel.utf8_chunks() {
        for character in chunk.valid().chars() {
            let len = character.len_utf8();
            let is_escaped = match character {
                '+' | '#' => true,
                '$' => at == 0,
                '%' => escaped(&channel[at..], at == 0).is_some(),
                _ => character.is_control(),
            };
            if is_escaped {
                write(&mut topic, &channel[at..at + len]);
            } else {
                topic.push(character);
            }
            at += len;
        }
        write(&mut topic, chunk.invalid());
        at += chunk.invalid().len();
    }
    topic
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn topic(channel: &[u8]) -> String {
        topic_of(channel).unwrap().to_string()
    }

    #[test]
    fn only_what_a_name_cannot_hold_is_escaped() {
        for (channel, expected) in [
            (&b"news/eu"[..], "news/eu"),
            (b"a:b.c", "a:b.c"),
            ("Grüße".as_bytes(), "Grüße"),
            (b"100%", "100%"),
            (b"%41", "%41"),
            (b"%2b", "%2b"),
            (b"a$", "a$"),
            (b"a%24", "a%24"),
            (b"%24", "%2524"),
            (b"$SYS/x", "%24SYS/x"),
            (b"a+b#", "a%2Bb%23"),
            (b"%2B", "%252B"),
            (b"a\0\x7f", "a%00%7F"),
            (b"\xff\xc3", "%FF%C3"),
            ("\u{85}".as_bytes(), "%C2%85"),
            (b"", "%25"),
            (b"%", "%"),
            (b"%25", "%2525"),
        ] {
            assert_eq!(topic(channel), expected);
            assert_eq!(channel_of(expected), channel, "{expected}");
        }
    }

    #[test]
    fn a_channel_whose_name_is_too_long_has_no_topic() {
        assert!(topic_of(&[b'x'; 255]).is_some());
        assert_eq!(topic_of(&[b'x'; 256]), None);
        assert_eq!(topic_of(&[0xFF; 86]), None);
    }

    #[test]
    fn filters_are_as_narrow_as_they_can_be() {
        let filter =
            |pattern: &str| filter_of(&Glob::new(pattern.as_bytes())).map(|filter| filter.to_string());
        for (pattern, expected) in [
            ("a/b/*", "a/b/#"),
            ("a/b*", "a/#"),
            ("a/b", "a/b"),
            ("a\\*b", "a*b"),
            ("*", "#"),
            ("[a]/b", "#"),
            ("a+/?", "a%2B/#"),
            ("$x/*", "%24x/#"),
            ("", "%25"),
        ] {
            assert_eq!(filter(pattern).as_deref(), Some(expected), "{pattern}");
        }
        let long = "x".repeat(253);
        assert_eq!(filter(&format!("{long}/*")), Some(format!("{long}/#")));
        assert_eq!(filter(&format!("a/{}/*", &long[1..])).as_deref(), Some("a/#"));
        assert_eq!(filter(&format!("{long}xxx/*")), None);
    }

    proptest! {
        #[test]
        fn every_channel_is_found_again(channel in proptest::collection::vec(
            prop_oneof![any::<u8>(), Just(b'%'), Just(b'2'), Just(b'5'), Just(b'B'), Just(b'$'), Just(b'+'), Just(0xC2), Just(0x85)], 0..80)) {
            let topic = topic_of(&channel).expect("the longest escape has three bytes");
            prop_assert_eq!(channel_of(topic.as_str()), channel);
        }

        #[test]
        fn channels_have_a_topic_or_none(channel in proptest::collection::vec(any::<u8>(), 80..260)) {
            prop_assert_eq!(has_topic(&channel), topic_of(&channel).is_some());
        }

        #[test]
        fn a_filter_matches_each_topic_that_its_pattern_matches(
            pattern in r"[ab/*?%$+\]\[\\2B]{0,12}", channel in r"[ab/%$+2B]{0,10}",
        ) {
            let glob = Glob::new(pattern.as_bytes());
            if glob.matches(channel.as_bytes()) {
                let filter = filter_of(&glob).expect("the channel is short");
                prop_assert!(filter.matches(&topic_of(channel.as_bytes()).unwrap()), "{} {}", filter, channel);
            }
        }
    }
}
