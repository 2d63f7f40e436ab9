//! The keys of `rbmq top`, and the help page.

use super::text;

/// The meaning of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Key {
    Quit,
    Help,
    /// Scrolls this many lines down, or up if negative.
    Lines(isize),
    /// Scrolls this many windows down, or up if negative.
    Pages(isize),
    First,
    Last,
    /// A key without a meaning.
    Other,
}

/// The byte sequences of the keys, in the usual encodings of terminals.
const SENT: [(&[u8], Key); 27] = [
    (b"q", Key::Quit),
    (b"Q", Key::Quit),
    (b"?", Key::Help),
    (b"h", Key::Help),
    (b"j", Key::Lines(1)),
    (b"\r", Key::Lines(1)),
    (b"\n", Key::Lines(1)),
    (b"\x1b[B", Key::Lines(1)),
    (b"\x1bOB", Key::Lines(1)),
    (b"k", Key::Lines(-1)),
    (b"\x1b[A", Key::Lines(-1)),
    (b"\x1bOA", Key::Lines(-1)),
    (b" ", Key::Pages(1)),
    (b"f", Key::Pages(1)),
    (b"\x1b[6~", Key::Pages(1)),
    (b"b", Key::Pages(-1)),
    (b"\x1b[5~", Key::Pages(-1)),
    (b"g", Key::First),
    (b"\x1b[H", Key::First),
    (b"\x1bOH", Key::First),
    (b"\x1b[1~", Key::First),
    (b"\x1b[7~", Key::First),
    (b"G", Key::Last),
    (b"\x1b[F", Key::Last),
    (b"\x1bOF", Key::Last),
    (b"\x1b[4~", Key::Last),
    (b"\x1b[8~", Key::Last),
];

/// Returns the keys that these bytes encode, in order.
pub(super) fn keys(mut bytes: &[u8]) -> Vec<Key> {
    let mut keys = Vec::new();
    while !bytes.is_empty() {
        let (size, key) = match SENT.iter().find(|(sent, _)| bytes.starts_with(sent)) {
            Some((sent, key)) => (sent.len(), *key),
            None => (unknown(bytes), Key::Other),
        };
        keys.push(key);
        bytes = &bytes[size..];
    }
    keys
}

/// Returns the length of an unknown sequence. Its letters are not keys of their own.
fn unknown(bytes: &[u8]) -> usize {
    match bytes {
        [0x1b, b'[', rest @ ..] => {
            let end = rest.iter().position(|byte| (0x40..=0x7e).contains(byte));
            end.map_or(bytes.len(), |end| end + 3)
        }
        [0x1b, b'O', _, ..] => 3,
        _ => 1,
    }
}

/// The help page, in lines of at most `width` characters.
pub(super) fn help(width: usize) -> Vec<String> {
    let page = "\
keys
  q, Ctrl-C           end
  ?, h                this page; any key closes it
  down, up, j, k      one line down, up
  PgDn, PgUp          one window down, up; also space and b
  Home, End, g, G     to the beginning, to the end

columns
  PUBS          publishers that have not ended the topic; end: all have
  SUBS          subscriptions; 1+1: one is connected, one is durable and offline
  IN/S, OUT/S   bytes per second from publishers, and to all subscribers
  LAG           lag of the slowest subscriber in bytes
  RING          the lag as a share of the ring; 100 %: the ring has no room
  LOST          bytes that slow subscribers lost
  POLICY        policy of the slowest subscriber: block, drop, disconnect
  SLOWEST       its name, and for how long it has made no progress

rbmq top TOPIC draws the topic's ring and the cursors of its subscribers";
    page.lines().map(|line| text::cut(line, width)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_sequence_is_its_key_and_no_other() {
        for (sent, key) in SENT {
            assert_eq!(keys(sent), [key], "{sent:?}");
        }
        let several: Vec<u8> = SENT.iter().flat_map(|(sent, _)| sent.iter().copied()).collect();
        assert_eq!(keys(&several), SENT.map(|(_, key)| key));
        // A key with a modifier, a function key, a mouse event, and incomplete sequences.
        for other in [&b"\x1b[1;5q"[..], b"\x1b[15~", b"\x1bOq", b"\x1b[", b"\x1b", b"x", b"\xc3"] {
            assert!(keys(other).iter().all(|key| *key == Key::Other), "{other:?}");
        }
        assert_eq!(keys(b"\x1b[1;5Bq"), [Key::Other, Key::Quit]);
    }

    #[test]
    fn the_help_page_fits_the_window() {
        assert!(help(80).len() <= 24);
        assert!(help(30).iter().all(|line| line.chars().count() <= 30));
    }
}
