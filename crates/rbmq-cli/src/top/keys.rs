//! What is pressed while `rbmq top` looks, and the page that says so.

use super::text;

/// What somebody at the keyboard wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Key {
    Quit,
    Help,
    /// So many lines down; up, if it is negative.
    Lines(isize),
    /// So many windows down.
    Pages(isize),
    First,
    Last,
    /// Anything else.
    Other,
}

/// What terminals send, in each of the forms that are usual.
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

/// The keys whose bytes came, in their order.
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

/// The length of a sequence that means nothing here: its letters are not keys of their own.
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

/// The page that `?` shows, of which each line has at most `width` characters.
pub(super) fn help(width: usize) -> Vec<String> {
    let page = "\
keys
  q, Ctrl-C           end
  ?, h                this page; any key leaves it
  down, up, j, k      a line down, up
  PgDn, PgUp          a window down, up; also space and b
  Home, End, g, G     the first, the last

columns
  PUBS          publishers that have not ended the topic; end: all have
  SUBS          subscriptions; 1+1: one is there, one is away and has its place
  IN/S, OUT/S   bytes per second from publishers, and to all subscribers
  LAG           how far the slowest subscriber is behind
  RING          the same as a part of the ring: at 100 % nothing is free
  LOST          bytes that slow subscribers lost
  POLICY        what happens when the slowest is too slow: block, drop, disconnect
  SLOWEST       who that is, and for how long it blocks the publisher

rbmq top TOPIC draws a topic's ring, and everybody's place in it";
    page.lines().map(|line| text::cut(line, width)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_of_a_key_is_that_key_and_no_other() {
        for (sent, key) in SENT {
            assert_eq!(keys(sent), [key], "{sent:?}");
        }
        let several: Vec<u8> = SENT.iter().flat_map(|(sent, _)| sent.iter().copied()).collect();
        assert_eq!(keys(&several), SENT.map(|(_, key)| key));
        // A key with a modifier, a function key, what a mouse says, and half of something.
        for other in [&b"\x1b[1;5q"[..], b"\x1b[15~", b"\x1bOq", b"\x1b[", b"\x1b", b"x", b"\xc3"] {
            assert!(keys(other).iter().all(|key| *key == Key::Other), "{other:?}");
        }
        assert_eq!(keys(b"\x1b[1;5Bq"), [Key::Other, Key::Quit]);
    }

    #[test]
    fn the_page_fits() {
        assert!(help(80).len() <= 24);
        assert!(help(30).iter().all(|line| line.chars().count() <= 30));
    }
}
