//! The protocol with clients, topics and rights in memory. Each trap that other servers fell into has a test.

use std::time::{Duration, Instant, SystemTime};

use super::deliver::SHARD;
use super::machine::{Resp, Settings};
use crate::double::{MemoryUser, World};
use crate::protocol::{ConnId, PublishError};

mod commands;
mod groups;
mod login;
mod messages;
mod stream_limits;
mod streams;
mod subscriptions;
mod transactions;

const MAX_MESSAGE: u64 = 1 << 20;

fn world() -> World<Resp> {
    let now = Instant::now();
    let began = SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000);
    let settings =
        Settings { max_message_bytes: MAX_MESSAGE, max_reply_bytes: 8 << 20, version: "1.2.3", began };
    World::new(Resp::new(settings, now), now)
}

/// A user who may publish to `public/#` and receive `news/#`.
fn reader() -> MemoryUser {
    MemoryUser {
        name: "ada",
        secret: "secret",
        is_token: false,
        publish: "public/#".parse().unwrap(),
        subscribe: "news/#".parse().unwrap(),
    }
}

/// A command as clients write it.
fn command(words: &[&str]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", words.len());
    words.iter().for_each(|word| bytes += &format!("${}\r\n{word}\r\n", word.len()));
    bytes.into_bytes()
}

/// A command in one line, with blanks between its words, and a reply in one line: line ends are blanks.
trait Ask {
    fn say(&mut self, conn: ConnId, line: &str) -> String;
    fn line(&mut self, conn: ConnId) -> String;
    fn resp3(&mut self) -> ConnId;
    fn max_reply(&mut self, bytes: usize);
}

impl Ask for World<Resp> {
    fn say(&mut self, conn: ConnId, line: &str) -> String {
        self.feed(conn, command(&line.split(' ').collect::<Vec<_>>()));
        self.line(conn)
    }

    fn line(&mut self, conn: ConnId) -> String {
        self.text(conn).replace("\r\n", " ").trim_end().to_owned()
    }

    /// Replies with entries have so many bytes.
    fn max_reply(&mut self, bytes: usize) {
        self.protocol.max_reply_bytes = bytes;
    }

    /// A client that speaks RESP3.
    fn resp3(&mut self) -> ConnId {
        let conn = self.open();
        assert!(self.say(conn, "HELLO 3").starts_with("%7 $6 server"));
        conn
    }
}
