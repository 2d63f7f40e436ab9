//! A subscriber of any peer: all topics on one connection, as that system's users have it.

use std::{io::Write, net::TcpStream, time::Instant};

use super::{
    Next, Peer,
    socket::{Reader, connect},
    topic_number,
};
use crate::bench::{
    Api, BenchError,
    clients::LOOK,
    control::Control,
    credit::Grants,
    pattern::{Cursor, Pattern},
    worker::Load,
};

struct Stream<'a> {
    pattern: &'a Pattern,
    cursor: Cursor<'a>,
    messages: u64,
    grants: Grants,
}

/// Takes what a server sends apart and checks it.
struct Checker<'a> {
    peer: Peer,
    /// Compare by the block, as far as that is possible.
    by_block: bool,
    streams: Vec<Stream<'a>>,
    /// Whose record the last bytes belonged to.
    current: usize,
}

/// Receives every topic and checks every byte.
///
/// # Errors
/// The connection failed, or a byte was not what it had to be.
pub fn subscribe(
    control: &Control,
    load: &Load,
    peer: Peer,
    topics: u8,
    number: u32,
) -> Result<(), BenchError> {
    let constant = peer.delivered_around(0, load.size).is_some();
    let by_block = constant && load.api == Api::Batch;
    let patterns: Vec<Pattern> = (0..topics).map(|topic| pattern(peer, topic, load.size)).collect();
    let record = patterns[0].record_bytes();
    let mut reader = Reader::for_messages(record + 1024);
    let mut socket = connect(&load.addr, load.congestion.as_deref())?;
    let all: Vec<u8> = (0..topics).collect();
    peer.open_subscriber(&mut socket, &mut reader, &all)?;
    socket.set_read_timeout(Some(LOOK))?;
    let mut streams = Vec::new();
    for (topic, pattern) in (0..).zip(&patterns) {
        // Publishers count in their own records.
        let (prefix, suffix) = peer.around(topic, load.size);
        let published = prefix.len() + load.size + suffix.len();
        let grants = Grants::open(load.folder()?, topic, number, published)?;
        streams.push(Stream { pattern, cursor: Cursor::new(pattern), messages: 0, grants });
    }
    let mut checker = Checker { peer, by_block, streams, current: 0 };
    control.ready("");
    checker.run(control, &mut socket, &mut reader)
}

fn pattern(peer: Peer, topic: u8, size: usize) -> Pattern {
    match peer.delivered_around(topic, size) {
        Some((prefix, suffix)) => Pattern::framed(u32::from(topic), size, prefix, suffix),
        // Only the payloads are compared.
        None => Pattern::framed(u32::from(topic), size, vec![0; 4], Vec::new()),
    }
}

impl Checker<'_> {
    fn run(
        &mut self,
        control: &Control,
        socket: &mut TcpStream,
        reader: &mut Reader,
    ) -> Result<(), BenchError> {
        let mut last_arrival = Instant::now();
        loop {
            if reader.fill(socket)? {
                last_arrival = Instant::now();
                let used = self.take(reader.data(), socket)?;
                reader.used(used);
                control.set_messages(self.streams.iter().map(|stream| stream.messages).sum());
                for stream in &mut self.streams {
                    stream.grants.received(stream.messages)?;
                }
            }
            let totals = || self.streams.iter().map(|stream| stream.messages).collect();
            control.end_if_over(last_arrival, totals)?;
        }
    }

    /// Returns how many bytes were used; what is left is the beginning of something.
    fn take(&mut self, data: &[u8], socket: &mut TcpStream) -> Result<usize, BenchError> {
        let mut at = 0;
        while at < data.len() {
            let step = if self.by_block { self.by_block(&data[at..])? } else { 0 };
            let step = if step > 0 { step } else { self.parse(&data[at..], socket)? };
            if step == 0 {
                break;
            }
            at += step;
        }
        Ok(at)
    }

    /// Compares with what the present topic goes on with, or else any other one. Returns the bytes used: none if
    /// this is no topic's next message, or not enough of it to tell.
    fn by_block(&mut self, data: &[u8]) -> Result<usize, BenchError> {
        let current = self.current;
        let stream = &mut self.streams[current];
        let rest = stream.cursor.rest_of_record();
        if rest > 0 {
            let now = &data[..rest.min(data.len())];
            let wrong = BenchError::WrongByte { topic: current as u64, after_messages: stream.messages };
            stream.messages += stream.cursor.check(now).ok_or(wrong)?;
            return Ok(now.len());
        }
        let topics = self.streams.len();
        for topic in (current..topics).chain(0..current) {
            let stream = &mut self.streams[topic];
            let (len, records) = stream.cursor.take(data);
            stream.messages += records;
            if len > 0 {
                self.current = topic;
                return Ok(len);
            }
        }
        match self.streams.iter().position(|stream| data.starts_with(stream.pattern.prefix())) {
            Some(topic) if data.len() >= self.streams[topic].pattern.record_bytes() => {
                let after_messages = self.streams[topic].messages;
                Err(BenchError::WrongByte { topic: topic as u64, after_messages })
            }
            _ => Ok(0),
        }
    }

    /// Parses one item, and checks it if it is a message. Returns its bytes, none if its end is missing.
    #[inline]
    fn parse(&mut self, data: &[u8], socket: &mut TcpStream) -> Result<usize, BenchError> {
        match self.peer.next(data)? {
            Next::More => Ok(0),
            Next::Other { len, answer, .. } => {
                socket.write_all(answer.unwrap_or_default())?;
                Ok(len)
            }
            Next::Message { topic, payload, len } => {
                let strange =
                    || BenchError::StrangeTopic { name: String::from_utf8_lossy(topic).into_owned() };
                let number = topic_number(topic).ok_or_else(strange)?;
                let stream = self.streams.get_mut(usize::from(number)).ok_or_else(strange)?;
                if !stream.cursor.check_message(payload) {
                    let after_messages = stream.messages;
                    return Err(BenchError::WrongByte { topic: u64::from(number), after_messages });
                }
                stream.messages += 1;
                Ok(len)
            }
        }
    }
}
