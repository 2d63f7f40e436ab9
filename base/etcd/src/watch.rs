//! A stream of news about keys.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Instant;

use serde_json::Value;

use super::connection::Connection;
use super::endpoint::Endpoint;
use super::error::{EtcdError, senseless};
use super::json;

/// The longest message. One with more events ends the watch, and the snapshot after it has them all.
const MAX_MESSAGE: usize = 4 << 20;

/// What a [`Watch`] says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum News {
    /// Nothing in this time.
    None,
    /// Keys have changed, up to this revision at least.
    Changed {
        /// The revision of the store.
        revision: i64,
    },
}

/// Tells that keys with a prefix have changed. What has changed, a snapshot says: so a message that is lost, repeated or skipped does no harm.
pub struct Watch {
    endpoint: Endpoint,
    connection: Connection,
    /// The beginning of a message.
    text: Vec<u8>,
}

impl Watch {
    pub(crate) fn new(endpoint: Endpoint, connection: Connection) -> Self {
        Self { endpoint, connection, text: Vec::new() }
    }

    /// Waits for news. What has arrived is looked at in any case. After an error the watch is of no more use.
    ///
    /// # Errors
    /// [`EtcdError`]: the connection has ended, etcd has ended the watch, or its message makes no sense.
    pub fn wait(&mut self, until: Instant) -> Result<News, EtcdError> {
        self.connection.set_end(until);
        let news = self.next(until);
        news.map_err(|error| EtcdError::of_io(&self.endpoint, error))
    }

    fn next(&mut self, until: Instant) -> io::Result<News> {
        loop {
            if let Some(end) = self.text.iter().position(|byte| *byte == b'\n') {
                let message = parse(&self.text[..end]);
                self.text.drain(..=end);
                match message? {
                    News::None => continue,
                    changed => return Ok(changed),
                }
            }
            if self.text.len() > MAX_MESSAGE {
                return Err(senseless(format!("a message of the watch has more than {MAX_MESSAGE} bytes")));
            }
            match self.connection.read_some(&mut self.text) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(_) => {}
                Err(error)
                    if matches!(
                        error.kind(),
                        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut | io::ErrorKind::Interrupted
                    ) =>
                {
                    if Instant::now() >= until {
                        return Ok(News::None);
                    }
                }
                Err(error) => return Err(error),
            }
        }
    }
}

fn parse(message: &[u8]) -> io::Result<News> {
    if message.trim_ascii().is_empty() {
        return Ok(News::None);
    }
    let message: Value = serde_json::from_slice(message).map_err(|error| senseless(error.to_string()))?;
    if let Some(error) = message.get("error") {
        let words = error["message"].as_str().unwrap_or("no reason given");
        return Err(io::Error::other(format!("the watch has ended: {words}")));
    }
    let result = &message["result"];
    let revision = json::revision(result).map_err(senseless)?;
    if result["canceled"].as_bool() == Some(true) {
        let reason = result["cancel_reason"].as_str().unwrap_or("no reason given");
        return Err(io::Error::other(format!("etcd has ended the watch: {reason}")));
    }
    let has_events = result["events"].as_array().is_some_and(|events| !events.is_empty());
    Ok(if has_events { News::Changed { revision } } else { News::None })
}

impl AsFd for Watch {
    /// The socket: when it can be read, [`wait`](Watch::wait) until there is nothing more.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.connection.as_fd()
    }
}
