//! Secrets that a person types, and secrets in files.

use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::Path;

use commands::Failure;
use private_files::GivenFile;
use rbmq::wire::Secret;
use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};
use tracing::warn;

use super::secrets;

/// More than any password or token has.
const MAX_BYTES: usize = 4096;

/// Restores the modes of a terminal.
struct Restore {
    terminal: File,
    modes: Termios,
}

impl Drop for Restore {
    fn drop(&mut self) {
        // The terminal may be gone.
        let _ = tcsetattr(&self.terminal, OptionalActions::Flush, &self.modes);
    }
}

/// Asks for a secret on the terminal, and shows nothing of what is typed.
///
/// # Errors
/// The process has no terminal, or the person gives up (Ctrl-C, Ctrl-D).
pub(super) fn ask(question: &str, without_terminal: &str) -> Result<Secret, Failure> {
    let terminal = OpenOptions::new().read(true).write(true).open("/dev/tty");
    secrets::protect();
    let mut terminal = terminal
        .map_err(|_| Failure::Failed(format!("there is no terminal to ask on; {without_terminal}")))?;
    let modes = tcgetattr(&terminal).map_err(io::Error::from)?;
    let restore = Restore { terminal: terminal.try_clone()?, modes: modes.clone() };
    let mut silent = modes;
    // Ctrl-C is read as a byte: a signal would leave the terminal silent.
    silent.local_modes.remove(LocalModes::ECHO | LocalModes::ICANON | LocalModes::ISIG);
    tcsetattr(&terminal, OptionalActions::Flush, &silent).map_err(io::Error::from)?;
    write!(terminal, "{question}: ")?;
    let typed = read_typed(&mut terminal);
    writeln!(terminal)?;
    drop(restore);
    typed
}

fn read_typed(terminal: &mut File) -> Result<Secret, Failure> {
    // A text that grows would leave copies in memory.
    let mut bytes = Vec::with_capacity(MAX_BYTES);
    let mut byte = [0];
    loop {
        match terminal.read(&mut byte)? {
            0 => return Err(Failure::Failed("the terminal is gone".into())),
            _ => match byte[0] {
                b'\n' | b'\r' => return secret(bytes),
                0x03 | 0x04 => return Err(Failure::Failed("nothing was changed".into())),
                0x08 | 0x7f => drop_character(&mut bytes),
                0x15 => bytes.clear(),
                _ if bytes.len() == MAX_BYTES => return Err(too_long()),
                typed => bytes.push(typed),
            },
        }
    }
}

/// Removes the last character, which may have several bytes.
fn drop_character(bytes: &mut Vec<u8>) {
    while bytes.pop().is_some_and(|byte| byte & 0xC0 == 0x80) {}
}

fn too_long() -> Failure {
    Failure::Failed(format!("a password or token has at most {MAX_BYTES} bytes"))
}

fn secret(bytes: Vec<u8>) -> Result<Secret, Failure> {
    let text = String::from_utf8(bytes);
    text.map(Secret::from).map_err(|_| Failure::Failed("a password or token must be UTF-8".into()))
}

/// The first line of an input.
pub(super) fn first_line(input: impl Read) -> Result<Secret, Failure> {
    secrets::protect();
    let mut bytes = Vec::with_capacity(MAX_BYTES + 2);
    BufReader::new(input).take(MAX_BYTES as u64 + 2).read_until(b'\n', &mut bytes)?;
    while bytes.last().is_some_and(|byte| matches!(byte, b'\n' | b'\r')) {
        bytes.pop();
    }
    if bytes.len() > MAX_BYTES { Err(too_long()) } else { secret(bytes) }
}

/// The first line of a file; `-` is standard input.
pub(super) fn of_file(path: &Path) -> Result<Secret, Failure> {
    if path == Path::new("-") {
        return first_line(io::stdin());
    }
    let failed = |error: io::Error| Failure::Failed(format!("{}: {error}", path.display()));
    let file = GivenFile::open(path).map_err(failed)?;
    if file.metadata().is_file() && file.mode() & 0o044 != 0 {
        warn!("{} can be read by others; run: chmod 600 {}", path.display(), path.display());
    }
    first_line(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_the_first_line() {
        let line = |text: &[u8]| first_line(text).map(|secret| secret.expose().to_owned()).ok();
        assert_eq!(line(b"pass word\r\nmore\n").as_deref(), Some("pass word"));
        assert_eq!(line(b"p").as_deref(), Some("p"));
        assert_eq!(line(b"").as_deref(), Some(""));
        assert_eq!(line(b"\xff\n"), None);
        assert_eq!(line(&[b'x'; MAX_BYTES + 1]), None);
        assert!(line(&[b'x'; MAX_BYTES]).is_some());
    }

    #[test]
    fn backspace_removes_a_whole_character() {
        let mut bytes = "aü".as_bytes().to_vec();
        drop_character(&mut bytes);
        assert_eq!(bytes, b"a");
        drop_character(&mut bytes);
        drop_character(&mut bytes);
        assert!(bytes.is_empty());
    }
}
