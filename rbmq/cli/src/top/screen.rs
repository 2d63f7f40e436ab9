//! The terminal of `rbmq top`: the alternate screen, without echo. The former state is restored at any end.

use std::io::{self, IsTerminal, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;

use commands::{IMPATIENT, Stop, terminal};
use rustix::termios::{self, LocalModes, OptionalActions, Termios};
use signal_hook::consts::{SIGINT, SIGWINCH};
use signal_hook::iterator::{Handle, Signals};

use super::keys::{Key, keys};

/// The terminal in use by `rbmq top`. Dropping it restores the terminal.
pub(super) struct Screen {
    /// The former settings of standard input, if it is a terminal.
    keyboard: Option<Termios>,
    /// Readable after the size of the window has changed.
    resized: UnixStream,
    /// Ends the thread that waits for a second SIGINT.
    impatience: Handle,
}

impl Screen {
    /// Switches the terminal to the alternate screen, and takes over the handling of a second SIGINT.
    pub(super) fn open(stop: &Stop) -> io::Result<Self> {
        let (resized, sender) = UnixStream::pair()?;
        resized.set_nonblocking(true)?;
        sender.set_nonblocking(true)?;
        signal_hook::low_level::pipe::register(SIGWINCH, sender)?;
        // In this order, a second SIGINT is handled at any moment, and the terminal is always restored.
        let mut signals = Signals::new([SIGINT])?;
        stop.remove_second();
        let keyboard = io::stdin().is_terminal().then(|| termios::tcgetattr(io::stdin())).transpose()?;
        if let Some(keyboard) = &keyboard {
            // Keys arrive one by one and without echo. Ctrl-C stays a signal.
            let mut quiet = keyboard.clone();
            quiet.local_modes.remove(LocalModes::ICANON | LocalModes::ECHO);
            termios::tcsetattr(io::stdin(), OptionalActions::Now, &quiet)?;
        }
        let screen = Self { keyboard: keyboard.clone(), resized, impatience: signals.handle() };
        let second = move || {
            // The first SIGINT ends the waiting calls. The second one ends the process, even if the broker does not answer.
            if signals.forever().nth(1).is_some() {
                restore(keyboard.as_ref());
                std::process::exit(IMPATIENT);
            }
        };
        threads::spawn("rbmq-screen", second)?;
        write("\x1b[?1049h\x1b[?25l")?;
        Ok(screen)
    }

    /// Shows these lines from the top of the window, as many as fit.
    pub(super) fn draw(&self, lines: &[String]) -> io::Result<()> {
        let (_, rows) = terminal::size();
        let mut text = String::from("\x1b[H");
        for (n, line) in lines.iter().take(rows).enumerate() {
            text.push_str(if n == 0 { "" } else { "\r\n" });
            text.push_str(line);
            text.push_str("\x1b[K");
        }
        text.push_str("\x1b[J");
        write(&text)
    }

    /// The descriptors to wait for.
    pub(super) fn sources(&self) -> Vec<BorrowedFd<'_>> {
        let mut sources = vec![self.resized.as_fd()];
        if self.keyboard.is_some() {
            sources.push(rustix::stdio::stdin());
        }
        sources
    }

    /// Reads the keys after one of the sources was readable. The end of standard input counts as the key `q`.
    pub(super) fn take(&self, readable: &[bool]) -> Vec<Key> {
        let mut bytes = [0; 64];
        // The bytes only wake the thread.
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

/// Restores the terminal. Errors are ignored: the terminal may be closed.
fn restore(keyboard: Option<&Termios>) {
    let _ = write("\x1b[?25h\x1b[?1049l");
    if let Some(keyboard) = keyboard {
        let _ = termios::tcsetattr(io::stdin(), OptionalActions::Now, keyboard);
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        self.impatience.close();
        restore(self.keyboard.as_ref());
    }
}
