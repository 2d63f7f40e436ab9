//! The bare fan-out relay: the least that a program between publishers and subscribers can do.
//!
//! The relay has one thread and one epoll set. The relay reads a publisher's bytes, up to `read_bytes` at once, and writes
//! the same bytes to every subscriber of that topic, without parsing them. While a subscriber's socket is full, the rest is
//! kept, and that publisher is not read from: TCP's windows are the flow control.
//!
//! ```text
//!   publisher 0 ──▶ lane 0: one buffer ──▶ subscriber a, socket 0 · subscriber b, socket 0 · …
//!   publisher 1 ──▶ lane 1: one buffer ──▶ subscriber a, socket 1 · subscriber b, socket 1 · …
//! ```
//!
//! A subscriber has one connection per topic, so that streams need no framing between relay and subscriber.
//! A client begins with two bytes: its role and the topic's number. Sockets are edge-triggered, so no
//! system call changes the events that the relay waits for.

use std::{
    io::{ErrorKind, Read, Write},
    net::{TcpListener, TcpStream},
    time::Duration,
};

use benchkit::control::Control;
use rustix::{
    buffer::spare_capacity,
    event::{Timespec, epoll},
    net::sockopt,
};

use crate::error::BenchError;

/// First byte of a publisher's connection; the second is the topic.
pub const PUBLISHER: u8 = b'P';
/// First byte of a subscriber's connection; the second is the topic.
pub const SUBSCRIBER: u8 = b'S';

const LISTENER: u64 = u64::MAX;
const LANE_BITS: u32 = 32;

/// Runs the relay until the harness ends.
///
/// # Errors
/// A socket cannot be made, or a client connected that is no bench worker.
pub fn run(control: &Control, read_bytes: usize, congestion: Option<&str>) -> Result<(), BenchError> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    if let Some(name) = congestion {
        sockopt::set_tcp_congestion(&listener, name)?;
    }
    control.ready(&listener.local_addr()?.to_string());
    Relay::new(listener, read_bytes)?.run()
}

/// A topic: its publisher, the bytes read last, and the subscribers that still need some of them.
struct Lane {
    source: Option<TcpStream>,
    /// The source may have more: set by epoll, cleared when a read comes back short.
    readable: bool,
    ended: bool,
    buffer: Vec<u8>,
    len: usize,
    sinks: Vec<Sink>,
    /// Sinks that have not taken all of `buffer[..len]`.
    behind: usize,
}

struct Sink {
    socket: TcpStream,
    sent: usize,
}

struct Relay {
    listener: TcpListener,
    epoll: rustix::fd::OwnedFd,
    lanes: Vec<Lane>,
    read_bytes: usize,
}

impl Relay {
    fn new(listener: TcpListener, read_bytes: usize) -> Result<Relay, BenchError> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        epoll::add(&epoll, &listener, epoll::EventData::new_u64(LISTENER), epoll::EventFlags::IN)?;
        Ok(Relay { listener, epoll, lanes: Vec::new(), read_bytes })
    }

    fn run(mut self) -> Result<(), BenchError> {
        let mut events = Vec::with_capacity(64);
        loop {
            let runnable = self.lanes.iter().any(Lane::runnable);
            let timeout = runnable.then_some(Timespec { tv_sec: 0, tv_nsec: 0 });
            match epoll::wait(&self.epoll, spare_capacity(&mut events), timeout.as_ref()) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            for event in events.drain(..) {
                let data: u64 = event.data.u64();
                if data == LISTENER {
                    self.accept()?;
                    continue;
                }
                let (lane, end) = ((data >> LANE_BITS) as usize, (data & u64::from(u32::MAX)) as usize);
                let lane = &mut self.lanes[lane];
                match end.checked_sub(1) {
                    None => lane.readable = true,
                    Some(sink) => lane.flush(sink)?,
                }
            }
            for lane in self.lanes.iter_mut().filter(|lane| lane.runnable()) {
                lane.pump()?;
            }
        }
    }

    fn accept(&mut self) -> Result<(), BenchError> {
        let (mut socket, _) = self.listener.accept()?;
        let mut hello = [0; 2];
        socket.set_read_timeout(Some(Duration::from_secs(10)))?;
        socket.read_exact(&mut hello)?;
        socket.set_nodelay(true)?;
        socket.set_nonblocking(true)?;
        let number = usize::from(hello[1]);
        while self.lanes.len() <= number {
            self.lanes.push(Lane::new(self.read_bytes));
        }
        let lane = &mut self.lanes[number];
        let (end, flags) = match hello[0] {
            PUBLISHER => (0, epoll::EventFlags::IN),
            SUBSCRIBER => (1 + lane.sinks.len(), epoll::EventFlags::OUT),
            other => return Err(BenchError::Stranger { role: other }),
        };
        let data = epoll::EventData::new_u64((number as u64) << LANE_BITS | end as u64);
        epoll::add(&self.epoll, &socket, data, flags | epoll::EventFlags::ET)?;
        match end {
            0 => lane.source = Some(socket),
            _ => {
                // Tells the subscriber that it will miss nothing from now on.
                socket.write_all(&[SUBSCRIBER])?;
                lane.sinks.push(Sink { socket, sent: lane.len });
            }
        }
        Ok(())
    }
}

impl Lane {
    fn new(read_bytes: usize) -> Lane {
        Lane {
            source: None,
            readable: false,
            ended: false,
            buffer: vec![0; read_bytes],
            len: 0,
            sinks: Vec::new(),
            behind: 0,
        }
    }

    fn runnable(&self) -> bool {
        self.readable && self.behind == 0 && !self.ended
    }

    /// Reads once, and writes the bytes to all subscribers.
    fn pump(&mut self) -> Result<(), BenchError> {
        let Some(source) = &mut self.source else { return Ok(()) };
        match source.read(&mut self.buffer) {
            Ok(0) => {
                self.ended = true;
                return Ok(());
            }
            Ok(len) => self.len = len,
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                self.readable = false;
                return Ok(());
            }
            Err(error) => return Err(error.into()),
        }
        self.behind = self.sinks.len();
        for at in 0..self.sinks.len() {
            self.sinks[at].sent = 0;
            self.write(at)?;
        }
        Ok(())
    }

    /// A subscriber's socket has room again.
    fn flush(&mut self, sink: usize) -> Result<(), BenchError> {
        if self.sinks[sink].sent < self.len { self.write(sink) } else { Ok(()) }
    }

    fn write(&mut self, at: usize) -> Result<(), BenchError> {
        let sink = &mut self.sinks[at];
        while sink.sent < self.len {
            match sink.socket.write(&self.buffer[sink.sent..self.len]) {
                Ok(written) => sink.sent += written,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error.into()),
            }
        }
        self.behind -= 1;
        Ok(())
    }
}
