//! Publisher and subscriber of the bare relay.

use std::{
    io::{self, ErrorKind, Read, Write},
    net::{Shutdown, TcpStream},
    time::Instant,
};

use benchkit::{
    control::Control,
    pace::{CALL_BYTES, Pace, call_bytes},
};
use rustix::{
    buffer::spare_capacity,
    event::{Timespec, epoll},
};

use crate::{
    clients,
    error::BenchError,
    load::Load,
    pattern::{Cursor, Pattern},
    relay::{PUBLISHER, SUBSCRIBER},
};

/// Connects, and sends a role and a topic.
///
/// # Errors
/// The relay does not answer.
pub fn connect(addr: &str, hello: [u8; 2], congestion: Option<&str>) -> io::Result<TcpStream> {
    let mut socket = clients::connect(addr, congestion)?;
    socket.write_all(&hello)?;
    Ok(socket)
}

/// Writes the topic's stream, encoded beforehand, as fast as the relay takes it.
///
/// # Errors
/// The connection failed.
pub fn publish(control: &Control, load: &Load, topic: u8) -> Result<(), BenchError> {
    let pattern = Pattern::new(u32::from(topic), load.size);
    let mut socket = connect(&load.addr, [PUBLISHER, topic], load.congestion.as_deref())?;
    control.ready("");
    control.wait_for_go();
    let mut cursor = Cursor::new(&pattern);
    let mut slices = Vec::with_capacity(128);
    let mut messages = 0;
    let mut pace = Pace::new(load.rate);
    let call = call_bytes(load.rate);
    while !control.stopped() {
        let due = usize::try_from(pace.wait(messages)).unwrap_or(usize::MAX);
        let due = due.saturating_mul(pattern.record_bytes()).saturating_sub(cursor.behind());
        cursor.gather(call.min(due), &mut slices);
        let written = socket.write_vectored(&slices)?;
        messages += cursor.skip(written);
        control.set_messages(messages);
    }
    let mut rest = vec![0; cursor.rest_of_record()];
    messages += cursor.fill(&mut rest);
    socket.write_all(&rest)?;
    socket.shutdown(Shutdown::Write)?;
    control.set_messages(messages);
    control.finish(&[messages])
}

struct Stream<'a> {
    socket: TcpStream,
    cursor: Cursor<'a>,
    messages: u64,
}

/// Reads every topic's stream, walks its records and checks every byte.
///
/// # Errors
/// A connection failed, or a byte was wrong.
pub fn subscribe(control: &Control, load: &Load, topics: u8) -> Result<(), BenchError> {
    let patterns: Vec<Pattern> = (0..topics).map(|topic| Pattern::new(u32::from(topic), load.size)).collect();
    let poll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    let mut streams = Vec::new();
    for (topic, pattern) in (0..topics).zip(&patterns) {
        let mut socket = connect(&load.addr, [SUBSCRIBER, topic], load.congestion.as_deref())?;
        socket.read_exact(&mut [0])?;
        socket.set_nonblocking(true)?;
        epoll::add(&poll, &socket, epoll::EventData::new_u64(u64::from(topic)), epoll::EventFlags::IN)?;
        streams.push(Stream { socket, cursor: Cursor::new(pattern), messages: 0 });
    }
    control.ready("");
    let mut buffer = vec![0; CALL_BYTES];
    let mut events = Vec::with_capacity(64);
    let patience = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };
    let mut last_arrival = Instant::now();
    loop {
        match epoll::wait(&poll, spare_capacity(&mut events), Some(&patience)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        for event in &events {
            let topic: u64 = event.data.u64();
            read_once(&mut streams[topic as usize], topic, &mut buffer)?;
        }
        if !events.is_empty() {
            last_arrival = Instant::now();
            events.clear();
            control.set_messages(streams.iter().map(|stream| stream.messages).sum());
        }
        control.end_if_over(last_arrival, || streams.iter().map(|stream| stream.messages).collect())?;
    }
}

fn read_once(stream: &mut Stream<'_>, topic: u64, buffer: &mut [u8]) -> Result<(), BenchError> {
    match stream.socket.read(buffer) {
        Ok(len) => match stream.cursor.check(&buffer[..len]) {
            Some(records) => {
                stream.messages += records;
                Ok(())
            }
            None => Err(BenchError::WrongByte { topic, after_messages: stream.messages }),
        },
        Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(()),
        Err(error) => Err(error.into()),
    }
}
