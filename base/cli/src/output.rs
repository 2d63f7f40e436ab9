//! Texts on standard output, and messages on standard error.

use std::fmt::Display;
use std::io::{self, Write};

use clap::Command;
use clap_complete::Shell;

use crate::failure::Failure;

/// Writes a text, or bytes, to standard output.
///
/// # Errors
/// [`Failure::OutputClosed`] if the reader is gone, and `Failed` if the output takes no more.
pub fn print(text: impl AsRef<[u8]>) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_ref()).and_then(|()| out.flush()).map_err(|error| Failure::output(&error))
}

/// Prints the script by which a shell completes the arguments of this command.
///
/// # Errors
/// As [`print()`].
pub fn print_completions(shell: Shell, mut command: Command) -> Result<(), Failure> {
    let (mut script, name) = (Vec::new(), command.get_name().to_owned());
    clap_complete::generate(shell, &mut command, name, &mut script);
    print(script)
}

/// Prints a message behind the name of the program on standard error. A failure to write is ignored, and escape sequences of a
/// peer are made harmless.
pub fn print_error(program: &str, text: impl Display) {
    let _ = writeln!(io::stderr(), "{program}: {}", printable(&text.to_string()));
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
