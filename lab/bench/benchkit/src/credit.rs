//! Flow control for publishers of other systems. Those systems drop messages, or queue them without a limit, when
//! publishers are faster than subscribers; neither gives a usable rate.
//!
//! ```text
//!   subscriber a ──┐  "I have 81,920 messages of topic 3"
//!   subscriber b ──┼──▶ FIFO of topic 3 ──▶ its publisher: at most `window` messages ahead of the slowest
//! ```
//!
//! A token is a subscriber's number and the number of messages of the topic that it has checked. Counts only grow, so a
//! publisher needs only the newest token of each subscriber. A publisher reads tokens only when its window is used up, and
//! sleeps in the read; no process polls. At most `TOKENS` tokens per window and subscriber are in flight, which fits into a
//! pipe.
//!
//! RBMQ and the relay need none of this: their flow control reaches the publisher.

use std::{
    fs::{File, OpenOptions},
    io::{self, Read, Write},
    path::{Path, PathBuf},
    time::Duration,
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fs::{CWD, FileType, Mode, mknodat},
};

/// Bytes in flight per topic, but at least `LEAST_MESSAGES` messages: enough that no end waits for the other end's next turn,
/// and little compared with the limits of the servers' queues.
pub const WINDOW_BYTES: usize = 4 << 20;
const LEAST_MESSAGES: u64 = 16;

/// Tokens per window and subscriber.
const TOKENS: u64 = 8;

const TOKEN_BYTES: usize = 16;

fn window(record_bytes: usize) -> u64 {
    ((WINDOW_BYTES / record_bytes) as u64).max(LEAST_MESSAGES)
}

fn path(folder: &Path, topic: u8) -> PathBuf {
    folder.join(format!("credit-{topic}"))
}

/// Makes the FIFOs of all topics.
///
/// # Errors
/// The folder cannot be written.
pub fn create(folder: &Path, topics: u8) -> io::Result<()> {
    (0..topics).try_for_each(|topic| {
        Ok(mknodat(CWD, path(folder, topic), FileType::Fifo, Mode::RUSR | Mode::WUSR, 0)?)
    })
}

/// Opened for both directions, an end of a FIFO neither waits for the other end nor sees it go.
fn open(folder: &Path, topic: u8) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).open(path(folder, topic))
}

/// A subscriber's end, for one topic.
pub struct Grants {
    fifo: File,
    subscriber: u32,
    every: u64,
    told: u64,
}

impl Grants {
    /// Opens the end of subscriber number `subscriber`.
    ///
    /// # Errors
    /// The FIFO does not exist.
    pub fn open(folder: &Path, topic: u8, subscriber: u32, record_bytes: usize) -> io::Result<Grants> {
        let every = (window(record_bytes) / TOKENS).max(1);
        Ok(Grants { fifo: open(folder, topic)?, subscriber, every, told: 0 })
    }

    /// So many messages of the topic have been checked so far.
    ///
    /// # Errors
    /// The FIFO is gone.
    pub fn received(&mut self, messages: u64) -> io::Result<()> {
        if messages - self.told < self.every {
            return Ok(());
        }
        self.told = messages;
        let mut token = [0; TOKEN_BYTES];
        token[..8].copy_from_slice(&u64::from(self.subscriber).to_le_bytes());
        token[8..].copy_from_slice(&messages.to_le_bytes());
        // Shorter than PIPE_BUF: never mixed with another subscriber's.
        self.fifo.write_all(&token)
    }
}

/// A publisher's end.
pub struct Credit {
    fifo: File,
    window: u64,
    /// The count of each subscriber. Without subscribers it is empty, and the publisher does not wait.
    received: Vec<u64>,
}

impl Credit {
    /// Opens the publisher's end.
    ///
    /// # Errors
    /// The FIFO does not exist.
    pub fn open(folder: &Path, topic: u8, subscribers: u32, record_bytes: usize) -> io::Result<Credit> {
        let received = vec![0; subscribers as usize];
        Ok(Credit { fifo: open(folder, topic)?, window: window(record_bytes), received })
    }

    /// Waits until more may be sent than the `sent` messages that were. Returns how many more.
    ///
    /// # Errors
    /// The FIFO is gone.
    pub fn wait(&mut self, sent: u64) -> io::Result<u64> {
        loop {
            match self.room(sent) {
                0 => self.read_token()?,
                room => return Ok(room),
            }
        }
    }

    /// As [`Credit::wait`], for a system that may drop messages: messages that no subscriber reports within `limit` count as
    /// dropped, and make room.
    ///
    /// # Errors
    /// The FIFO is gone.
    pub fn wait_at_most(&mut self, sent: u64, limit: Duration) -> io::Result<u64> {
        let limit = Timespec::try_from(limit).map_err(io::Error::other)?;
        while self.room(sent) == 0 {
            let mut ready = [PollFd::new(&self.fifo, PollFlags::IN)];
            if poll(&mut ready, Some(&limit))? == 0 {
                self.received.fill(sent);
            } else {
                self.read_token()?;
            }
        }
        Ok(self.room(sent))
    }

    /// How many more messages than `sent` may be sent now.
    pub fn room(&self, sent: u64) -> u64 {
        let Some(slowest) = self.received.iter().min() else { return u64::MAX };
        (slowest + self.window).saturating_sub(sent)
    }

    fn read_token(&mut self) -> io::Result<()> {
        let mut token = [0; TOKEN_BYTES];
        self.fifo.read_exact(&mut token)?;
        let (subscriber, messages) = token.split_at(8);
        let number = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().expect("eight bytes"));
        let subscriber = usize::try_from(number(subscriber)).unwrap_or(usize::MAX);
        if let Some(received) = self.received.get_mut(subscriber) {
            *received = number(messages).max(*received);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_publisher_is_at_most_a_window_ahead_of_the_slowest() {
        let folder = tempfile::tempdir().unwrap();
        create(folder.path(), 2).unwrap();
        let record = WINDOW_BYTES / 100;
        let mut credit = Credit::open(folder.path(), 1, 2, record).unwrap();
        let window = credit.wait(0).unwrap();
        assert_eq!(window, 100);
        let mut grants: Vec<Grants> =
            (0..2).map(|n| Grants::open(folder.path(), 1, n, record).unwrap()).collect();
        grants[0].received(90).unwrap();
        grants[1].received(11).unwrap();
        grants[1].received(13).unwrap();
        grants[1].received(30).unwrap();
        assert_eq!(credit.wait(100).unwrap(), 13);
        assert_eq!(credit.wait(113).unwrap(), 17);
    }

    #[test]
    fn unreported_messages_count_as_dropped() {
        let folder = tempfile::tempdir().unwrap();
        create(folder.path(), 1).unwrap();
        let record = WINDOW_BYTES / 100;
        let mut credit = Credit::open(folder.path(), 0, 2, record).unwrap();
        assert_eq!(credit.wait_at_most(100, Duration::from_millis(1)).unwrap(), 100);
        Grants::open(folder.path(), 0, 1, record).unwrap().received(120).unwrap();
        assert_eq!(credit.wait_at_most(200, Duration::from_millis(1)).unwrap(), 100);
    }

    #[test]
    fn no_publisher_waits_for_missing_subscribers() {
        let folder = tempfile::tempdir().unwrap();
        create(folder.path(), 1).unwrap();
        assert_eq!(Credit::open(folder.path(), 0, 0, 8).unwrap().wait(u64::MAX - 1).unwrap(), u64::MAX);
    }

    #[test]
    fn large_messages_have_a_window_too() {
        assert_eq!(window(16 << 20), LEAST_MESSAGES);
    }
}
