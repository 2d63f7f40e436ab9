//! Texts that strangers chose: names, reasons, addresses. On a terminal, in a line of a log and in JSON, a character of such a text
//! must not begin a line, move a cursor, turn the direction of writing or be there without being seen.
//!
//! ```text
//!   control characters (C0, DEL, C1: U+0085 and U+009B too) · ends of lines (U+2028, U+2029)       move what follows
//!   marks of direction (U+202A to U+202E, U+2066 to U+2069, U+061C, U+200E, U+200F)              turn what follows
//!   marks without a width (U+200B to U+200D, U+FEFF, U+00AD, tags, variation selectors, fillers)   are not seen
//! ```
//!
//! They are written as escapes. Letters that look like others (`а` for `a`) stay as they are: each may be right.

#![forbid(unsafe_code)]

use std::borrow::Cow;
use std::fmt::Write as _;

/// Whether a character moves or turns the text around it, or is not seen. These are Unicode's control characters, ends of lines,
/// default ignorable code points and marks of annotations.
///
/// ```
/// assert!(['\n', '\u{9b}', '\u{2028}', '\u{202e}', '\u{200b}'].into_iter().all(text::is_hidden));
/// assert!(!['a', 'ä', ' ', '日', '"', '\u{301}'].into_iter().any(text::is_hidden));
/// ```
#[inline]
pub fn is_hidden(c: char) -> bool {
    if c.is_ascii() { c.is_ascii_control() } else { is_hidden_beyond_ascii(c) }
}

fn is_hidden_beyond_ascii(c: char) -> bool {
    matches!(c,
        '\u{80}'..='\u{9f}' | '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}'..='\u{1160}' | '\u{17b4}'..='\u{17b5}'
        | '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
        | '\u{3164}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{ffa0}' | '\u{fff0}'..='\u{fffb}'
        | '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}')
}

/// A text for a line of a log or a terminal.
///
/// ```
/// assert_eq!(text::printable("it's ä\n\x1b[2J\u{202e}"), "it's ä\\n\\u{1b}[2J\\u{202e}");
/// ```
pub fn printable(text: &str) -> Cow<'_, str> {
    printable_but(text, &[])
}

/// The longest text that [`short`] gives, in characters.
const SHORT: usize = 100;

/// As [`printable`], at most 100 characters of it: others may choose long texts, and cause many lines.
///
/// ```
/// assert_eq!(text::short("a\u{1b}b"), "a\\u{1b}b");
/// assert_eq!(text::short(&"x".repeat(6000)), format!("{}…", "x".repeat(100)));
/// ```
pub fn short(text: &str) -> Cow<'_, str> {
    match text.char_indices().nth(SHORT) {
        None => printable(text),
        Some((end, _)) => Cow::Owned(format!("{}…", printable(&text[..end]))),
    }
}

/// As [`printable`], but some characters stay: the ends of lines of a message with several, the colors of a log.
pub fn printable_but<'a>(text: &'a str, kept: &[char]) -> Cow<'a, str> {
    without(text, |c| is_hidden(c) && !kept.contains(&c), escape)
}

/// `escape_debug` leaves some of the characters as they are.
fn escape(to: &mut String, c: char) {
    if c.is_control() { to.extend(c.escape_debug()) } else { to.extend(c.escape_unicode()) }
}

/// A name in quotes, which end where they seem to end.
///
/// ```
/// assert_eq!(text::quoted("ann's\u{200b}"), r"'ann\'s\u{200b}'");
/// ```
pub fn quoted(name: &str) -> String {
    let escape = |to: &mut String, c: char| match c {
        '\'' | '\\' => to.extend(['\\', c]),
        other => escape(to, other),
    };
    format!("'{}'", without(name, |c| matches!(c, '\'' | '\\') || is_hidden(c), escape))
}

/// A JSON text that means the same: JSON leaves most of these characters as they are, and has escapes for all of them.
///
/// ```
/// assert_eq!(text::json("{\"name\":\"a\u{9b}b\"}"), r#"{"name":"a\u009bb"}"#);
/// ```
pub fn json(json: &str) -> Cow<'_, str> {
    // Outside of its strings, JSON has no characters beyond ASCII, and inside of them no control characters of ASCII.
    without(
        json,
        |c| !c.is_ascii() && is_hidden(c),
        |to, c| {
            for unit in c.encode_utf16(&mut [0; 2]) {
                // Writing to a text does not fail.
                let _ = write!(to, "\\u{unit:04x}");
            }
        },
    )
}

fn without(text: &str, is_bad: impl Fn(char) -> bool, escape: impl Fn(&mut String, char)) -> Cow<'_, str> {
    let Some(first) = text.find(&is_bad) else { return Cow::Borrowed(text) };
    let mut safe = String::with_capacity(text.len() + 16);
    safe.push_str(&text[..first]);
    for c in text[first..].chars() {
        if is_bad(c) { escape(&mut safe, c) } else { safe.push(c) }
    }
    Cow::Owned(safe)
}

#[cfg(test)]
mod tests {
    use super::*;

    const BAD: &str = "a\u{9b}31m\u{85}\u{2028}\u{202e}\u{200b}\u{feff}\u{3164}\u{e0041}\x7f";

    #[test]
    fn nothing_hidden_is_left_and_nothing_else_is_changed() {
        for safe in [printable(BAD), quoted(BAD).into(), json(&BAD.replace('\x7f', ""))] {
            assert!(safe.is_ascii() && !safe.chars().any(is_hidden), "{safe}");
        }
        assert_eq!(printable_but("one\ntwo\r\t\x1b", &['\n']), "one\ntwo\\r\\t\\u{1b}");
        for plain in ["", "it's \"ä\" \\ 日本 e\u{301}", "😀"] {
            assert!(matches!(printable(plain), Cow::Borrowed(same) if same == plain));
        }
    }

    #[test]
    fn text_of_a_peer_cannot_move_the_cursor() {
        let text = "refused:\n\x1b[2J\u{9b}2Jä 'x'";
        assert_eq!(printable_but(text, &['\n']), "refused:\n\\u{1b}[2J\\u{9b}2Jä 'x'");
    }

    #[test]
    fn a_name_seems_to_end_where_it_ends() {
        assert_eq!(quoted("a' at 'b\\"), r"'a\' at \'b\\'");
    }
}
