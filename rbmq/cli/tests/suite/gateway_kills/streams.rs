//! Clients of streams that write and read over all kills.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use testkit::{LONG, until};

use super::{Dice, STREAM, Watch};

/// The time and the position of an entry.
pub type Id = (u64, u64);

/// Who has written an entry, and as which of its own.
pub type Key = (u64, u64);

/// What a writer knows at the end.
#[derive(Default)]
pub struct Written {
    pub answered: Vec<(Id, Key)>,
    /// Of these half a command was sent.
    pub cut: Vec<Key>,
}

/// A reply.
#[derive(Debug)]
pub(super) enum Value {
    Text(Vec<u8>),
    Number(i64),
    List(Vec<Value>),
    Nothing,
}

impl Value {
    pub(super) fn text(self) -> String {
        match self {
            Self::Text(text) => String::from_utf8(text).expect("UTF-8"),
            other => panic!("{other:?}"),
        }
    }

    pub(super) fn list(self) -> Vec<Self> {
        match self {
            Self::List(list) => list,
            other => panic!("{other:?}"),
        }
    }
}

/// An entry of a stream.
pub struct Entry {
    pub id: Id,
    fields: Vec<String>,
}

impl Entry {
    fn of(value: Value) -> Self {
        let [id, fields] = value.list().try_into().expect("an id and fields");
        Self { id: id_of(&id.text()), fields: fields.list().into_iter().map(Value::text).collect() }
    }

    /// Whose entry this is. All its bytes are as they were written.
    pub fn key(&self) -> Key {
        let number = |at: usize| self.fields[at].parse().expect("a number");
        let key = (number(1), number(3));
        assert_eq!(self.fields, fields_of(key));
        key
    }

    /// The number that a client of MQTT has published.
    pub fn number(&self) -> usize {
        assert_eq!((self.fields.len().is_multiple_of(2), &*self.fields[0]), (true, "payload"));
        self.fields[1].parse().expect("a number")
    }
}

pub(super) fn id_of(text: &str) -> Id {
    let (time, position) = text.split_once('-').expect("an id");
    (time.parse().expect("a time"), position.parse().expect("a position"))
}

fn fields_of(key: Key) -> Vec<String> {
    let (writer, number) = key;
    let long = "x".repeat((number * 37 % 400) as usize);
    let (writer, number) = (writer.to_string(), number.to_string());
    ["writer", &writer, "number", &number, &long, "end"].map(str::to_owned).to_vec()
}

fn add(key: Key) -> Vec<u8> {
    let fields = fields_of(key);
    let fields: Vec<&str> = fields.iter().map(String::as_str).collect();
    command(&[&["XADD", STREAM, "*"], &fields[..]].concat())
}

fn command(words: &[&str]) -> Vec<u8> {
    let words = words.iter().map(|word| format!("${}\r\n{word}\r\n", word.len()));
    let count = format!("*{}\r\n", words.len());
    std::iter::once(count).chain(words).collect::<String>().into_bytes()
}

pub(super) struct Redis(BufReader<TcpStream>);

impl Redis {
    pub(super) fn connect(addr: &str) -> Self {
        let mut stream = None;
        until("the gateway listens", || {
            stream = TcpStream::connect(addr).ok();
            stream.is_some()
        });
        let stream = stream.expect("a connection");
        stream.set_read_timeout(Some(LONG)).expect("a time-out");
        stream.set_nodelay(true).expect("a socket");
        Self(BufReader::new(stream))
    }

    fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.0.get_mut().write_all(bytes)
    }

    fn line(&mut self) -> io::Result<String> {
        let mut line = String::new();
        self.0.read_line(&mut line)?;
        line.strip_suffix("\r\n").map(str::to_owned).ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
    }

    fn reply(&mut self) -> io::Result<Value> {
        let line = self.line()?;
        let (kind, rest) = line.split_at(1);
        let count = rest.parse::<i64>().unwrap_or(-1);
        match (kind, count) {
            ("$" | "*", -1) => Ok(Value::Nothing),
            (":", number) => Ok(Value::Number(number)),
            ("+", _) => Ok(Value::Text(rest.into())),
            ("$", _) => {
                let mut bytes = vec![0; count as usize + 2];
                self.0.read_exact(&mut bytes)?;
                bytes.truncate(count as usize);
                Ok(Value::Text(bytes))
            }
            ("*", _) => (0..count).map(|_| self.reply()).collect::<io::Result<_>>().map(Value::List),
            _ => panic!("{line}"),
        }
    }

    /// Sends a command, to whose answer nobody listens.
    pub(super) fn send_only(&mut self, words: &[&str]) {
        // Whether it comes there is what nobody knows.
        let _ = self.send(&command(words));
    }

    pub(super) fn ask(&mut self, words: &[&str]) -> io::Result<Value> {
        self.send(&command(words))?;
        self.reply()
    }
}

/// Writes entries until it is told to stop. Each is written once, whatever becomes of it.
pub fn write_all(addr: &str, writer: u64, stop: &AtomicBool, watch: &Watch, mut dice: Dice) -> Written {
    let (mut written, mut next) = (Written::default(), 0);
    while !stop.load(Ordering::Relaxed) {
        let mut redis = Redis::connect(addr);
        while !stop.load(Ordering::Relaxed) {
            watch.go_on();
            let keys: Vec<Key> = (next..next + 1 + dice.below(8)).map(|number| (writer, number)).collect();
            next += keys.len() as u64;
            let is_going_on = write(&mut redis, &keys, &mut written, &mut dice);
            if !matches!(is_going_on, Ok(true)) {
                break;
            }
            watch.entries.fetch_add(1, Ordering::Relaxed);
            if dice.is_one_of(4) {
                std::thread::sleep(Duration::from_millis(dice.below(10)));
            }
        }
    }
    written
}

/// Writes these entries in one piece. False: the client leaves, without the answers, and perhaps in the middle of a command.
fn write(redis: &mut Redis, keys: &[Key], written: &mut Written, dice: &mut Dice) -> io::Result<bool> {
    let mut bytes: Vec<u8> = keys.iter().copied().flat_map(add).collect();
    let leaves = dice.is_one_of(60);
    if leaves && dice.is_one_of(2) {
        let last = keys[keys.len() - 1];
        bytes.truncate(bytes.len() - 1 - dice.below(add(last).len() as u64 - 1) as usize);
        written.cut.push(last);
    }
    redis.send(&bytes)?;
    if leaves {
        return Ok(false);
    }
    for key in keys {
        written.answered.push((id_of(&redis.reply()?.text()), *key));
    }
    Ok(true)
}

/// Reads what comes, waiting for it, until everything is written and read.
pub fn read_all(
    addr: &str,
    count: Option<u32>,
    is_written: &AtomicBool,
    watch: &Watch,
    mut dice: Dice,
) -> Vec<(Id, Key)> {
    let mut all: Vec<(Id, Key)> = Vec::new();
    let count = count.map(|count| count.to_string());
    loop {
        let mut redis = Redis::connect(addr);
        loop {
            watch.go_on();
            let is_last = is_written.load(Ordering::Relaxed);
            let (time, position) = all.last().map_or((0, 0), |last| last.0);
            let from = format!("{time}-{position}");
            let count = count.iter().flat_map(|count| ["COUNT", count]);
            let words: Vec<_> = ["XREAD"]
                .into_iter()
                .chain(count)
                .chain(["BLOCK", "200", "STREAMS", STREAM, &from])
                .collect();
            if dice.is_one_of(100) {
                // It leaves while it waits.
                let _ = redis.send(&command(&words));
                break;
            }
            match redis.ask(&words) {
                Err(_) => break,
                Ok(Value::Nothing) if is_last => return all,
                Ok(Value::Nothing) => {}
                Ok(found) => all.extend(entries_of(found).iter().map(|entry| (entry.id, entry.key()))),
            }
        }
    }
}

/// The entries of a reply to XREAD for one stream.
fn entries_of(reply: Value) -> Vec<Entry> {
    let [stream] = reply.list().try_into().expect("one stream");
    let [_, entries] = stream.list().try_into().expect("a name and entries");
    entries.list().into_iter().map(Entry::of).collect()
}

/// All entries of a stream.
pub fn whole(addr: &str, stream: &str) -> Vec<Entry> {
    let (mut redis, mut all) = (Redis::connect(addr), Vec::<Entry>::new());
    loop {
        let from = all.last().map_or("-".to_owned(), |last| format!("({}-{}", last.id.0, last.id.1));
        let some = redis.ask(&["XRANGE", stream, &from, "+", "COUNT", "1000"]).expect("a reply").list();
        if some.is_empty() {
            return all;
        }
        all.extend(some.into_iter().map(Entry::of));
    }
}
