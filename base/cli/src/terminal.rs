//! The capabilities of a terminal.

use std::io::{self, IsTerminal};

use rustix::termios;

/// The width of lines that are not printed to a terminal.
const PLAIN_WIDTH: usize = 120;

/// Whether standard output is a terminal.
pub fn is_terminal() -> bool {
    io::stdout().is_terminal()
}

/// Whether to colour words on this stream: only on a terminal, and not with `NO_COLOR` or `TERM=dumb`.
pub fn colors(stream: &impl IsTerminal) -> bool {
    stream.is_terminal() && !is_dumb() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

/// Whether the terminal interprets no escape sequences.
pub fn is_dumb() -> bool {
    std::env::var_os("TERM").is_some_and(|term| term == "dumb")
}

/// The width of lines on standard output, in columns; 120 if it is not a terminal.
pub fn width() -> usize {
    if is_terminal() { size().0 } else { PLAIN_WIDTH }
}

/// The size of the terminal in columns and rows; 80 by 24 if it does not report it.
pub fn size() -> (usize, usize) {
    match termios::tcgetwinsize(io::stdout()) {
        Ok(size) if size.ws_col > 0 && size.ws_row > 0 => (size.ws_col.into(), size.ws_row.into()),
        _ => (80, 24),
    }
}
