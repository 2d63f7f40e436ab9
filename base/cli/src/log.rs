//! The log on standard error: of a client, which waits for its reader a moment, and of a server, which never does.

use std::io::{self, Write};

use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;

use crate::failure::Failure;
use crate::lines::{self, Lines};
use crate::messages::Messages;
use crate::terminal::colors;

/// How a log writes its lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LineFormat {
    /// Text.
    Plain,
    /// Text with colors, which `tracing-subscriber` makes; it escapes those that are in an event.
    Colored,
    /// A JSON object for each event.
    Json,
}

impl LineFormat {
    /// Text on standard error, with colors on a terminal.
    pub fn of_stderr() -> Self {
        if colors(&io::stderr()) { Self::Colored } else { Self::Plain }
    }
}

/// The end of every log: whatever strangers have put into an event, its line moves and hides nothing.
#[derive(Debug)]
pub struct SafeLines<W>(pub W, pub LineFormat);

impl<W: Write> Write for SafeLines<W> {
    /// The log writes each event at once.
    fn write(&mut self, event: &[u8]) -> io::Result<usize> {
        let line = String::from_utf8_lossy(event);
        let safe = match self.1 {
            LineFormat::Plain => text::printable_but(&line, &['\n']),
            LineFormat::Colored => text::printable_but(&line, &['\n', '\x1b']),
            LineFormat::Json => text::json(&line),
        };
        self.0.write_all(safe.as_bytes()).map(|()| event.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

/// Starts the log. The environment variable takes precedence over `level`; parts of it that are no filter are ignored.
///
/// # Panics
/// If the process has a log already.
pub fn start(variable: &str, level: LevelFilter) {
    let format = LineFormat::of_stderr();
    tracing_subscriber::fmt()
        .with_env_filter(filter(variable, level))
        .with_writer(move || SafeLines(Messages, format))
        .with_ansi(format == LineFormat::Colored)
        .with_target(false)
        .init();
}

/// The log of a server. Dropping it waits a short time until all lines are written.
pub struct ServerLog(Lines);

/// Starts the log of a server, as [`start`] that of a client.
///
/// # Errors
/// `Failed`: the system refuses the thread that writes.
///
/// # Panics
/// If the process has a log already.
pub fn start_server(variable: &str, level: LevelFilter) -> Result<ServerLog, Failure> {
    let (log, format) = (ServerLog::queue()?, LineFormat::of_stderr());
    let queue = log.lines().clone();
    tracing_subscriber::fmt()
        .with_env_filter(filter(variable, level))
        .with_writer(move || SafeLines(queue.clone(), format))
        .with_ansi(format == LineFormat::Colored)
        .with_target(false)
        .init();
    Ok(log)
}

impl ServerLog {
    /// A queue of lines in front of standard error, for a log of one's own.
    ///
    /// # Errors
    /// `Failed`: the system refuses the thread that writes.
    pub fn queue() -> Result<Self, Failure> {
        let report = |lines| tracing::warn!(lines, "lines of this log were dropped: its reader is too slow");
        let lines = Lines::start("log", std::io::stderr(), lines::MAX_BYTES, report);
        lines.map(Self).map_err(|error| Failure::Failed(format!("cannot start the log: {error}")))
    }

    /// The queue.
    pub fn lines(&self) -> &Lines {
        &self.0
    }
}

impl Drop for ServerLog {
    fn drop(&mut self) {
        self.0.flush();
    }
}

/// The filter of the environment variable, with this level as the default.
pub fn filter(variable: &str, level: LevelFilter) -> EnvFilter {
    filter_of(&std::env::var(variable).unwrap_or_default(), level)
}

fn filter_of(text: &str, level: LevelFilter) -> EnvFilter {
    let filter = EnvFilter::builder().with_default_directive(level.into()).parse_lossy(text);
    // The library of HTTP/2 warns of odd frames, of which any client may send many. Whoever names it has them.
    let quiet = "h2=error".parse().ok().filter(|_| !text.contains("h2"));
    quiet.into_iter().fold(filter, EnvFilter::add_directive)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn http_2_is_quiet_unless_it_is_named() {
        for (text, expected) in
            [("", "h2=error,warn"), ("debug", "h2=error,debug"), ("info,h2=debug", "h2=debug,info")]
        {
            let filter = filter_of(text, LevelFilter::WARN).to_string();
            let mut own: Vec<_> = filter.split(',').collect();
            own.sort_unstable_by_key(|directive| !directive.contains('='));
            assert_eq!(own.join(","), expected, "{text}");
        }
    }

    #[test]
    fn a_line_moves_and_hides_nothing() {
        let event = "WARN topic 'a/\u{202e}gnp.exe\u{9b}2J'\n";
        for (format, line) in [
            (LineFormat::Plain, "WARN topic 'a/\\u{202e}gnp.exe\\u{9b}2J'\n"),
            (LineFormat::Json, "WARN topic 'a/\\u202egnp.exe\\u009b2J'\n"),
        ] {
            let mut log = SafeLines(Vec::new(), format);
            log.write_all(event.as_bytes()).expect("memory");
            assert_eq!(String::from_utf8(log.0).expect("text"), line);
        }
        let mut log = SafeLines(Vec::new(), LineFormat::Colored);
        log.write_all(b"\x1b[33mWARN\x1b[0m a\n").expect("memory");
        assert_eq!(log.0, b"\x1b[33mWARN\x1b[0m a\n");
    }
}
