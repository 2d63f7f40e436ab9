//! Messages on standard error, whose reader may be slow or gone: they neither hold a command up for ever, nor end it.

use std::fmt::Display;
use std::io::{self, IsTerminal, Write};
use std::os::fd::AsFd;
use std::time::Duration;

use clap::builder::StyledStr;
use locks::Mutex;

use crate::output::PIECE;
use crate::stop::is_writable;
use crate::terminal::colors;

/// How long a message waits for its reader.
const PATIENCE: Duration = Duration::from_secs(1);

/// The number of messages that found no reader, and were not reported yet.
static LEFT_OUT: Mutex<u64> = Mutex::new(0);

/// Takes messages, one with each write. A message waits a moment for its reader. If there is none, it is left out, and so are others until
/// one finds room again, which follows their number. Writes do not fail: there is no other place for their messages.
#[derive(Debug, Clone, Copy, Default)]
pub struct Messages;

impl Write for Messages {
    fn write(&mut self, message: &[u8]) -> io::Result<usize> {
        say(message);
        Ok(message.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn say(message: &[u8]) {
    let mut left_out = LEFT_OUT.lock();
    let patience = if *left_out == 0 { PATIENCE } else { Duration::ZERO };
    if !write(message, *left_out, patience) {
        *left_out += 1;
    } else {
        *left_out = 0;
    }
}

/// Writes a message behind the number of those that were left out before. False if there is no reader.
fn write(message: &[u8], left_out: u64, patience: Duration) -> bool {
    let mut to = io::stderr();
    let note = format!("{left_out} messages were not printed: standard error had no reader\n");
    let note = if left_out > 0 { note.as_bytes() } else { &[] };
    for piece in note.chunks(PIECE).chain(message.chunks(PIECE)) {
        if !is_writable(to.as_fd(), patience) {
            return false;
        }
        // A failure means that the reader is gone.
        let _ = to.write_all(piece);
    }
    true
}

/// Prints a message behind the name of the program on standard error, as [`Messages`] does. Escape sequences of a peer are made harmless.
pub fn print_error(program: &str, text: impl Display) {
    say(format!("{program}: {}\n", text::printable_but(&text.to_string(), &['\n'])).as_bytes());
}

/// Prints a text of the parser of arguments, as [`Messages`] does.
pub(crate) fn print_styled(text: &StyledStr) {
    say(styled(text, &io::stderr()).as_bytes());
}

/// A text of the parser of arguments, with colours if the stream shows them.
pub(crate) fn styled(text: &StyledStr, stream: &impl IsTerminal) -> String {
    if colors(stream) { text.ansi().to_string() } else { text.to_string() }
}
