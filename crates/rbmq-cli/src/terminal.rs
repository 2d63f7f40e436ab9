//! The capabilities of a terminal, and messages on standard error.

use std::io::{IsTerminal, Write};

/// Whether to colour words on this stream: only on a terminal, and not with `NO_COLOR` or `TERM=dumb`.
pub(super) fn colors(stream: &impl IsTerminal) -> bool {
    stream.is_terminal() && !is_dumb() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

/// Whether the terminal interprets no escape sequences.
pub(super) fn is_dumb() -> bool {
    std::env::var_os("TERM").is_some_and(|term| term == "dumb")
}

/// Prints a message on standard error. A failure to write is ignored, and escape sequences of a peer are made harmless.
pub(super) fn print_error(text: &str) {
    let _ = writeln!(std::io::stderr(), "rbmq: {}", printable(text));
}

/// The text with escapes for its control characters, except for newlines.
fn printable(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '\n' => safe.push('\n'),
            other if other.is_control() => safe.extend(other.escape_debug()),
            other => safe.push(other),
        }
    }
    safe
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_of_a_peer_cannot_move_the_cursor() {
        assert_eq!(printable("refused:\n\x1b[2J\u{9b}2Jä 'x'"), "refused:\n\\u{1b}[2J\\u{9b}2Jä 'x'");
    }
}
