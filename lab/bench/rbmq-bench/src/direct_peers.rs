//! The two processes over RocketBufs' shared memory, made with the framework alone, without a broker.
//!
//! ```text
//!   publish: ROut ──▶ RIn: subscribe          ping: ROut ──▶ RIn :pong      a connection each way,
//!                                                   RIn  ◀── ROut           both made by the second process
//! ```
//!
//! A buffer is bytes, so each message has its length before it, as RBMQ's records do: the receiver walks from one message to
//! the next as the other systems' receivers do. Environment variables configure the rest.

use std::{
    io,
    time::{Duration, Instant},
};

use benchkit::{
    control::Control,
    direct::{End, Port, Role},
};
use rocketbufs::{
    Bid, BufSeg, Conn, Context, InEvent, InRead, InReader, Listener, OutWriter, RIn, ROut,
    config::TransportKind,
};

use crate::{
    clients::LOOK,
    error::BenchError,
    rbmq_peers::{config, failed},
};

/// The buffers of the first process and of the second.
const THERE: Bid = 1;
const BACK: Bid = 2;

/// The hello of the second process on a connection.
const SUBSCRIBES: &[u8] = b"subscribes";
const PUBLISHES: &[u8] = b"publishes";

/// How long each waits for the other at the start.
const SET_UP_WITHIN: Duration = Duration::from_secs(15);

/// Bytes that are copied at once out of memory that another process writes: few enough to be still in the cache when
/// they are looked at.
const PIECE: usize = 64 * 1024;

/// The ring, unless a larger one is configured. Room is reported for parts of the ring, and each report wakes the writer's worker
/// on a busy core, so a small ring costs time. A log of Aeron has three times 64 MiB by default.
const RING_BYTES: u64 = 16 << 20;

const LENGTH_BYTES: usize = 4;

/// Runs one of the two processes.
///
/// # Errors
/// The other process does not answer, or received bytes differ from the sent ones.
pub fn run(end: &End) -> Result<(), BenchError> {
    let control = Control::start();
    let (mut port, at) = if end.role.is_first() { listen(end)? } else { (connect(end)?, String::new()) };
    Ok(end.run(&control, &mut port, &at)?)
}

/// This side's buffer and the other's.
struct Shared {
    context: Context,
    listener: Option<Listener>,
    out: ROut,
    writer: OutWriter,
    /// None at a publisher, and until the other process is connected.
    input: Option<InReader>,
    copy: Vec<u8>,
    ring_bytes: u64,
}

impl Shared {
    fn new(own: Bid) -> Result<Shared, BenchError> {
        let config = config(TransportKind::Shm, None)?;
        let ring_bytes = RING_BYTES.max(config.buffers.size_bytes);
        let context = Context::new(config).map_err(failed)?;
        let out = ROut::new(&context);
        out.create_buffer(own, ring_bytes).map_err(failed)?;
        let writer = out.buffer(own).unwrap().writer().map_err(failed)?;
        let copy = vec![0; PIECE];
        Ok(Shared { context, listener: None, out, writer, input: None, copy, ring_bytes })
    }
}

/// The first of the two, and where it is found.
fn listen(end: &End) -> Result<(Shared, String), BenchError> {
    let mut shared = Shared::new(THERE)?;
    let listener = Listener::bind(&shared.context, "127.0.0.1:0").map_err(failed)?;
    let at = listener.local_addr();
    if end.role == Role::Publish {
        let out = shared.out.clone();
        listener.set_conn_cb(move |conn| out.add_conn(&conn));
    }
    shared.listener = Some(listener);
    Ok((shared, at))
}

/// The second, which has subscribed and, if it is to send, is subscribed to.
fn connect(end: &End) -> Result<Shared, BenchError> {
    let mut shared = Shared::new(BACK)?;
    let connect = |shared: &Shared, hello| Conn::connect(&shared.context, &end.at, hello).map_err(failed);
    let input = RIn::new(&connect(&shared, SUBSCRIBES)?);
    input.subscribe(THERE, shared.ring_bytes).map_err(failed)?;
    let mut input = input.reader().map_err(failed)?;
    let sends = end.role == Role::Ping;
    if sends {
        shared.out.add_conn(&connect(&shared, PUBLISHES)?);
    }
    let has_subscriber = |shared: &Shared| {
        shared.out.buffer(BACK).and_then(|buffer| buffer.info()).is_some_and(|of| of.subscribers > 0)
    };
    let began = Instant::now();
    let mut subscribed = false;
    while !subscribed || (sends && !has_subscriber(&shared)) {
        match input.recv(Some(LOOK), |_, _| ()).map_err(failed)? {
            InRead::TimedOut => {}
            InRead::Event(InEvent::Subscribed { .. }) => subscribed = true,
            other => return Err(unexpected(&other).into()),
        }
        if began.elapsed() > SET_UP_WITHIN {
            return Err(io::Error::from(io::ErrorKind::TimedOut).into());
        }
    }
    shared.input = Some(input);
    Ok(shared)
}

fn unexpected(what: &InRead) -> io::Error {
    io::Error::other(format!("unexpected: {what:?}"))
}

impl Shared {
    /// Of a pong: waits for the ping's connections.
    fn accept(&mut self) -> io::Result<()> {
        match self.listener.as_ref().and_then(|listener| listener.accept(Some(LOOK)).ok()?) {
            Some(conn) if conn.peer_hello() == PUBLISHES => {
                let input = RIn::new(&conn);
                input.subscribe(BACK, self.ring_bytes).map_err(io::Error::other)?;
                self.input = Some(input.reader().map_err(io::Error::other)?);
            }
            Some(conn) => self.out.add_conn(&conn),
            None => {}
        }
        Ok(())
    }
}

impl Port for Shared {
    #[inline]
    fn send(&mut self, message: &[u8]) -> io::Result<()> {
        send(&mut self.writer, message)
    }

    fn receive(&mut self, each: &mut impl FnMut(&[u8])) -> io::Result<()> {
        match &mut self.input {
            Some(input) => take(input, &mut self.copy, each),
            None => self.accept(),
        }
    }

    fn answer(&mut self) -> io::Result<()> {
        let Some(input) = &mut self.input else { return self.accept() };
        let mut sent = Ok(());
        take(input, &mut self.copy, &mut |message| {
            if sent.is_ok() {
                sent = send(&mut self.writer, message);
            }
        })?;
        sent
    }
}

#[inline]
fn send(writer: &mut OutWriter, message: &[u8]) -> io::Result<()> {
    let length = (message.len() as u32).to_le_bytes();
    writer.append_blocking(&[&length, message], None).map(drop).map_err(io::Error::other)
}

#[inline]
fn take(input: &mut InReader, copy: &mut [u8], each: &mut impl FnMut(&[u8])) -> io::Result<()> {
    let mut walked = Ok(());
    let read = input.recv(Some(LOOK), |_, seg| walked = walk_seg(seg, copy, each));
    match read.map_err(io::Error::other)? {
        InRead::Data | InRead::TimedOut | InRead::Event(InEvent::Subscribed { .. }) => walked,
        other => Err(unexpected(&other)),
    }
}

/// Walks the messages in place, or in a copy if another process that is not trusted can write the memory.
#[inline]
fn walk_seg(seg: &BufSeg<'_>, copy: &mut [u8], each: &mut impl FnMut(&[u8])) -> io::Result<()> {
    if let Some(bytes) = seg.as_slice() {
        walk(bytes, each);
        return Ok(());
    }
    let mut at = 0;
    while at < seg.len() {
        let piece = copy.len().min(seg.len() - at);
        seg.copy_to(at, &mut copy[..piece]).map_err(io::Error::other)?;
        match walk(&copy[..piece], each) {
            0 => return Err(io::Error::other("a message is longer than the received bytes")),
            whole => at += whole,
        }
    }
    Ok(())
}

/// Returns the bytes of whole messages.
#[inline]
fn walk(bytes: &[u8], each: &mut impl FnMut(&[u8])) -> usize {
    let mut rest = bytes;
    while let Some((length, behind)) = rest.split_first_chunk::<LENGTH_BYTES>() {
        let Some((message, next)) = behind.split_at_checked(u32::from_le_bytes(*length) as usize) else {
            break;
        };
        each(message);
        rest = next;
    }
    bytes.len() - rest.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_messages_are_walked_and_the_rest_is_left() {
        let bytes = [3, 0, 0, 0, 1, 2, 3, 0, 0, 0, 0, 2, 0, 0, 0, 9];
        let mut seen = Vec::new();
        assert_eq!(walk(&bytes, &mut |message| seen.push(message.to_vec())), 11);
        assert_eq!(seen, [vec![1, 2, 3], vec![]]);
        assert_eq!(walk(&bytes[..3], &mut |_| unreachable!()), 0);
    }
}
