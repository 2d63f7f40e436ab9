//! The terminal of `rbmq top`: the alternate screen, without echo, and back however it ends.

use std::io::{self, IsTerminal, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;

use rustix::termios::{self, LocalModes, OptionalActions, Termios};
use signal_hook::consts::{SIGINT, SIGWINCH};
use signal_hook::iterator::{Handle, Signals};

use super::keys::{Key, keys};
use crate::stop::{IMPATIENT, Stop};

/// A terminal that was taken over; given back when it is dropped.
pub(super) struct Screen {
    /// What the keyboard was set to, if standard input is one.
    keyboard: Option<Termios>,
    /// Readable when the window has another size.
    resized: UnixStream,
    /// Ends the thread that looks for impatience.
    impatience: Handle,
}

/// Whether there is a terminal to take over.
pub(crate) fn is_terminal() -> bool {
    io::stdout().is_terminal()
}

/// Columns of text that is not for a terminal.
const PLAIN_WIDTH: usize = 120;

/// Columns of what is printed line by line.
pub(crate) fn width() -> usize {
    if is_terminal() { size().0 } else { PLAIN_WIDTH }
}

/// Columns and rows; what a terminal has usually where it does not say.
pub(super) fn size() -> (usize, usize) {
    match termios::tcgetwinsize(io::stdout()) {
        Ok(size) if size.ws_col > 0 && size.ws_row > 0 => (size.ws_col.into(), size.ws_row.into()),
        _ => (80, 24),
    }
}

impl Screen {
    /// Takes it over, and with it what a second SIGINT does.
    pub(super) fn open(stop: &Stop) -> io::Result<Self> {
        let (resized, sender) = UnixStream::pair()?;
        resized.set_nonblocking(true)?;
        sender.set_nonblocking(true)?;
        signal_hook::low_level::pipe::register(SIGWINCH, sender)?;
        // In this order: there is no moment in which nobody hears it, and none in which the terminal is not given back.
        let mut signals = Signals::new([SIGINT])?;
        stop.remove_second();
        let keyboard = io::stdin().is_terminal().then(|| termios::tcgetattr(io::stdin())).transpose()?;
        if let Some(keyboard) = &keyboard {
            // Keys come one by one and leave no trace; Ctrl-C stays a signal.
            let mut quiet = keyboard.clone();
            quiet.local_modes.remove(LocalModes::ICANON | LocalModes::ECHO);
            termios::tcsetattr(io::stdin(), OptionalActions::Now, &quiet)?;
        }
        let screen = Self { keyboard: keyboard.clone(), resized, impatience: signals.handle() };
        let second = move || {
            // The first is heard of by those who wait; a broker that does not answer is not waited for twice.
            if signals.forever().nth(1).is_some() {
                give_back(keyboard.as_ref());
                std::process::exit(IMPATIENT);
            }
        };
        std::thread::Builder::new().name("rbmq-screen".into()).spawn(second)?;
        write("\x1b[?1049h\x1b[?25l")?;
        Ok(screen)
    }

    /// Shows these lines, from the top, as many as there is room for.
    pub(super) fn draw(&self, lines: &[String]) -> io::Result<()> {
        let (_, rows) = size();
        let mut text = String::from("\x1b[H");
        for (n, line) in lines.iter().take(rows).enumerate() {
            text.push_str(if n == 0 { "" } else { "\r\n" });
            text.push_str(line);
            text.push_str("\x1b[K");
        }
        text.push_str("\x1b[J");
        write(&text)
    }

    /// What to wait for besides time and signals.
    pub(super) fn sources(&self) -> Vec<BorrowedFd<'_>> {
        let mut sources = vec![self.resized.as_fd()];
        if self.keyboard.is_some() {
            sources.push(rustix::stdio::stdin());
        }
        sources
    }

    /// Takes the keys that came, after one of the sources was readable. A keyboard that is no more ends it.
    pub(super) fn take(&self, readable: &[bool]) -> Vec<Key> {
        let mut bytes = [0; 64];
        // The signal's bytes say nothing more.
        let _ = (&self.resized).read(&mut bytes);
        if readable.get(1) != Some(&true) {
            return Vec::new();
        }
        match io::stdin().read(&mut bytes) {
            Ok(0) | Err(_) => vec![Key::Quit],
            Ok(n) => keys(&bytes[..n]),
        }
    }
}

fn write(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}

/// The terminal as it was. Whoever closed it does not need it back.
fn give_back(keyboard: Option<&Termios>) {
    let _ = write("\x1b[?25h\x1b[?1049l");
    if let Some(keyboard) = keyboard {
        let _ = termios::tcsetattr(io::stdin(), OptionalActions::Now, keyboard);
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        self.impatience.close();
        give_back(self.keyboard.as_ref());
    }
}
