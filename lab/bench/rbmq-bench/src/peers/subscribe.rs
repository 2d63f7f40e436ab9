//! A subscriber of any peer: all topics on one connection, as that system's users have it, or one for each server.

use std::{io::Write, net::TcpStream, time::Instant};

use benchkit::{control::Control, credit::Grants};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
};

use super::{
    Peer,
    message::{Next, topic_number},
    socket::{Reader, connect, server_of},
};

use crate::{
    clients::LOOK,
    error::BenchError,
    load::Load,
    pattern::{Cursor, Pattern},
    systems::Api,
};

struct Stream<'a> {
    pattern: &'a Pattern,
    cursor: Cursor<'a>,
    messages: u64,
    grants: Grants,
}

/// A connection to one server.
struct Connection {
    socket: TcpStream,
    reader: Reader,
    place: Place,
}

/// The topics at a server, and the topic of the bytes received last.
struct Place {
    topics: Vec<usize>,
    /// The topic of the last record, an index of `topics`.
    current: usize,
}

/// Takes the data of servers apart and checks it.
struct Checker<'a> {
    peer: Peer,
    /// Compare by the block, as far as that is possible.
    by_block: bool,
    streams: Vec<Stream<'a>>,
    /// The answers to the messages of one read.
    answers: Vec<u8>,
}

/// Receives every topic and checks every byte.
///
/// # Errors
/// The connection failed, or a byte was wrong.
pub fn subscribe(
    control: &Control,
    load: &Load,
    peer: Peer,
    topics: u8,
    number: u32,
) -> Result<(), BenchError> {
    let peer = peer.with(load.confirm);
    let constant = peer.delivered_around(0, load.size).is_some();
    let by_block = constant && load.api == Api::Batch;
    let patterns: Vec<Pattern> = (0..topics).map(|topic| pattern(peer, topic, load.size)).collect();
    let record = patterns[0].record_bytes();
    let mut connections = Vec::new();
    for server in load.addr.split(',') {
        let mut reader = Reader::for_messages(record + 1024);
        let mut socket = connect(server, load.congestion.as_deref())?;
        let here: Vec<u8> = (0..topics).filter(|topic| server_of(&load.addr, *topic) == server).collect();
        if here.is_empty() {
            continue;
        }
        peer.open_subscriber(&mut socket, &mut reader, &here)?;
        socket.set_read_timeout(Some(LOOK))?;
        let place = Place { topics: here.into_iter().map(usize::from).collect(), current: 0 };
        connections.push(Connection { socket, reader, place });
    }
    let mut streams = Vec::new();
    for (topic, pattern) in (0..).zip(&patterns) {
        // Publishers count in their own records.
        let (prefix, suffix) = peer.around(topic, load.size);
        let published = prefix.len() + load.size + suffix.len();
        let grants = Grants::open(load.folder()?, topic, number, peer.weight(published))?;
        streams.push(Stream { pattern, cursor: Cursor::new(pattern), messages: 0, grants });
    }
    let mut checker = Checker { peer, by_block, streams, answers: Vec::new() };
    control.ready("");
    checker.run(control, &mut connections)
}

fn pattern(peer: Peer, topic: u8, size: usize) -> Pattern {
    match peer.delivered_around(topic, size) {
        Some((prefix, suffix)) => Pattern::framed(u32::from(topic), size, prefix, suffix),
        // Only the payloads are compared.
        None => Pattern::framed(u32::from(topic), size, vec![0; 4], Vec::new()),
    }
}

/// Puts the readable connections into `there`. A single connection is always read, since the read waits for bytes.
fn ready(connections: &[Connection], there: &mut Vec<usize>) -> Result<(), BenchError> {
    there.clear();
    if connections.len() == 1 {
        there.push(0);
        return Ok(());
    }
    let mut fds: Vec<PollFd<'_>> =
        connections.iter().map(|connection| PollFd::new(&connection.socket, PollFlags::IN)).collect();
    let patience = Timespec { tv_sec: 0, tv_nsec: i64::from(LOOK.subsec_nanos()) };
    match poll(&mut fds, Some(&patience)) {
        Ok(_) | Err(Errno::INTR) => {}
        Err(error) => return Err(std::io::Error::from(error).into()),
    }
    there.extend((0..).zip(&fds).filter(|(_, fd)| !fd.revents().is_empty()).map(|(at, _)| at));
    Ok(())
}

impl Checker<'_> {
    fn run(&mut self, control: &Control, connections: &mut [Connection]) -> Result<(), BenchError> {
        let mut last_arrival = Instant::now();
        let mut there = Vec::new();
        loop {
            let mut arrived = false;
            ready(connections, &mut there)?;
            for &at in &there {
                arrived |= self.receive(&mut connections[at])?;
            }
            if arrived {
                last_arrival = Instant::now();
                control.set_messages(self.streams.iter().map(|stream| stream.messages).sum());
                for stream in &mut self.streams {
                    stream.grants.received(stream.messages)?;
                }
            }
            let totals = || self.streams.iter().map(|stream| stream.messages).collect();
            control.end_if_over(last_arrival, totals)?;
        }
    }

    /// Reads once. Returns whether bytes came.
    fn receive(&mut self, from: &mut Connection) -> Result<bool, BenchError> {
        let Connection { socket, reader, place } = from;
        let came = reader.fill(socket)?;
        if came {
            let used = self.take(reader.data(), socket, place)?;
            reader.used(used);
        }
        Ok(came)
    }

    /// Returns the number of used bytes. The rest is the beginning of an item.
    fn take(&mut self, data: &[u8], socket: &mut TcpStream, place: &mut Place) -> Result<usize, BenchError> {
        let mut at = 0;
        while at < data.len() {
            let step = if self.by_block { self.by_block(&data[at..], place)? } else { 0 };
            let step = if step > 0 { step } else { self.parse(&data[at..], socket)? };
            if step == 0 {
                break;
            }
            at += step;
        }
        socket.write_all(&self.answers)?;
        self.answers.clear();
        Ok(at)
    }

    /// Compares with the next bytes of the current topic, and then of the server's other topics. Returns the number of used
    /// bytes: 0 if the bytes are no topic's next message, or too few to decide.
    fn by_block(&mut self, data: &[u8], place: &mut Place) -> Result<usize, BenchError> {
        let topic = place.topics[place.current];
        let stream = &mut self.streams[topic];
        let rest = stream.cursor.rest_of_record();
        if rest > 0 {
            let now = &data[..rest.min(data.len())];
            let wrong = BenchError::WrongByte { topic: topic as u64, after_messages: stream.messages };
            stream.messages += stream.cursor.check(now).ok_or(wrong)?;
            return Ok(now.len());
        }
        for at in (place.current..place.topics.len()).chain(0..place.current) {
            let stream = &mut self.streams[place.topics[at]];
            let (len, records) = stream.cursor.take(data);
            stream.messages += records;
            if len > 0 {
                place.current = at;
                return Ok(len);
            }
        }
        let begins = |topic: &&usize| data.starts_with(self.streams[**topic].pattern.prefix());
        match place.topics.iter().find(begins) {
            Some(&topic) if data.len() >= self.streams[topic].pattern.record_bytes() => {
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
                self.peer.acknowledge(&data[..len], payload.len(), &mut self.answers);
                Ok(len)
            }
        }
    }
}
