//! The systems without a third-party program: CMQ, plain sockets, and sockets with the kernel's batches.

use std::{
    io::{self, IoSliceMut},
    net::UdpSocket,
    time::Duration,
};

use benchkit::{
    ends::{End, Role},
    exchange::{self, Link, NUMBER_BYTES},
};
use bytes::Bytes;
use cmq::{Cmq, Config, Key, Popped, PushError, Reliable, SecretKey, Security};
use quinn_udp::{RecvMeta, Transmit, UdpSockRef, UdpSocketState};
use rustix::net::sockopt;

/// The receive buffer of each socket here: the largest that an ordinary system allows.
const RECEIVE_BUFFER: usize = 4 << 20;
/// Bytes of UDP payload in an Ethernet frame.
const FRAME: usize = 1472;
/// The most bytes and segments of one call.
const CALL_BYTES: usize = 64_000;
const CALL_SEGMENTS: usize = 64;

/// Runs one end of a system that is part of this program.
///
/// # Errors
/// The system is unknown, or its sockets failed.
pub fn run(end: &End) -> io::Result<()> {
    match end.system.as_str() {
        "cmq" | "cmq-paper" | "cmq-parity" | "cmq-sealed" | "cmq-reliable" | "cmq-reliable-sealed" => {
            end.run(&mut Queue::open(end)?)
        }
        "udp" => end.run(&mut Plain::open(end)?),
        "gso" => end.run(&mut Batched::open(end)?),
        other => Err(io::Error::other(format!("no link is called {other}"))),
    }
}

/// The keys of an end. Both know each other.
fn keys(end: &End) -> Security {
    let [driver, answerer] = [1, 2].map(|byte| SecretKey::from_bytes([byte; cmq::KEY_BYTES]));
    match end.role {
        Role::Drive => Security::new(driver).default_peer(answerer.public()),
        Role::Answer => Security::new(answerer).default_peer(driver.public()),
    }
}

/// CMQ with raw bytes.
struct Queue {
    queue: Cmq<Bytes>,
    to: Key,
    popped: Popped<Bytes>,
    reliable: bool,
}

impl Queue {
    fn open(end: &End) -> io::Result<Queue> {
        let config = if end.system == "cmq-paper" { Config::paper() } else { Config::default() };
        let mut config = config.qthresh(end.qthresh).timeout(Duration::from_micros(end.timeout_us));
        config.receive_buffer = Some(RECEIVE_BUFFER);
        config.parity_fragments = end.system == "cmq-parity";
        // Like every link here, sends everything before it waits.
        config.flush_on_wait = true;
        let reliable = end.system.starts_with("cmq-reliable");
        config.reliable = reliable.then(Reliable::default);
        config.security = end.system.ends_with("-sealed").then(|| keys(end));
        let queue = cmq::new_raw_rq(end.bind, config).map_err(io::Error::other)?;
        Ok(Queue { queue, to: Key::new(end.to, 0), popped: Popped::default(), reliable })
    }

    #[inline]
    fn next(&mut self, wait: Duration) -> Option<Bytes> {
        loop {
            if let Some((message, _)) = self.popped.next() {
                return Some(message);
            }
            if !self.queue.pop_all(&mut self.popped, Some(wait)) {
                return None;
            }
        }
    }
}

impl Link for Queue {
    #[inline]
    fn send(&mut self, message: &[u8]) -> io::Result<()> {
        if self.reliable {
            // Pushes never wait. A full queue is not reached: outstanding messages are fewer.
            let pushed: Result<u64, PushError> = self.queue.push_reliable_bytes(self.to, message);
            return pushed.map(drop).map_err(io::Error::other);
        }
        self.queue.push_bytes(self.to, message).map_err(io::Error::other)
    }

    #[inline]
    fn receive(&mut self, into: &mut [u8], wait: Duration) -> io::Result<Option<usize>> {
        self.next(wait).map(|message| copy(&message, into)).transpose()
    }

    #[inline]
    fn receive_number(&mut self, _: &mut [u8], wait: Duration) -> io::Result<Option<Option<u32>>> {
        Ok(self.next(wait).map(|message| exchange::number(&message)))
    }

    fn lost(&mut self) -> u64 {
        let counts = self.queue.stats().counts;
        counts.lost + counts.missed
    }

    fn finish(&mut self) -> io::Result<()> {
        self.queue.finish();
        Ok(())
    }
}

fn copy(message: &[u8], into: &mut [u8]) -> io::Result<usize> {
    let Some(into) = into.get_mut(..message.len()) else {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "a message is longer than any that was sent"));
    };
    into.copy_from_slice(message);
    Ok(message.len())
}

/// A connected socket.
fn connected(end: &End) -> io::Result<UdpSocket> {
    let socket = UdpSocket::bind(end.bind)?;
    socket.connect(end.to)?;
    sockopt::set_socket_recv_buffer_size(&socket, RECEIVE_BUFFER)?;
    Ok(socket)
}

/// Turns a refused connection into `nothing`: without a receiver the message is lost, as any UDP datagram.
fn refused_is_lost<R>(result: io::Result<R>, nothing: R) -> io::Result<R> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => Ok(nothing),
        other => other,
    }
}

/// Sets the time-out of a blocking receive, if it changed.
fn wait_at_most(socket: &UdpSocket, now: &mut Duration, wait: Duration) -> io::Result<()> {
    if *now != wait {
        socket.set_read_timeout(Some(wait))?;
        *now = wait;
    }
    Ok(())
}

fn nothing_came(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut | io::ErrorKind::ConnectionRefused
    )
}

/// A system call for each message, each way.
struct Plain {
    socket: UdpSocket,
    wait: Duration,
}

impl Plain {
    fn open(end: &End) -> io::Result<Plain> {
        Ok(Plain { socket: connected(end)?, wait: Duration::ZERO })
    }
}

impl Link for Plain {
    fn send(&mut self, message: &[u8]) -> io::Result<()> {
        refused_is_lost(self.socket.send(message), 0).map(drop)
    }

    fn receive(&mut self, into: &mut [u8], wait: Duration) -> io::Result<Option<usize>> {
        wait_at_most(&self.socket, &mut self.wait, wait)?;
        match self.socket.recv(into) {
            Ok(len) => Ok(Some(len)),
            Err(error) if nothing_came(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// The minimum with the kernel's batches (UDP_SEGMENT, UDP_GRO). A message is as many equal datagrams as it
/// needs, each with its number at the front, and a call sends as many as fit. Messages are not reassembled,
/// and losses are not noticed.
struct Batched {
    socket: UdpSocket,
    state: UdpSocketState,
    wait: Duration,
    /// The datagrams of a message, and their size.
    segments: usize,
    segment: usize,
    out: Vec<u8>,
    /// The bytes of one receive call, the position of the next datagram, and the size of the datagrams.
    received: Vec<u8>,
    at: usize,
    filled: usize,
    stride: usize,
    /// The current message, and how many of its datagrams have arrived.
    number: Option<u32>,
    have: usize,
}

impl Batched {
    fn open(end: &End) -> io::Result<Batched> {
        let socket = connected(end)?;
        let state = UdpSocketState::new(UdpSockRef::from(&socket))?;
        // quinn-udp makes the socket non-blocking.
        socket.set_nonblocking(false)?;
        // Answers may be shorter than messages, and both ends must cut in the same way.
        let segments = end.size.div_ceil(FRAME);
        let segment = end.size.div_ceil(segments);
        let received = vec![0; 65_536];
        let wait = Duration::ZERO;
        Ok(Batched {
            socket,
            state,
            wait,
            segments,
            segment,
            out: Vec::new(),
            received,
            at: 0,
            filled: 0,
            stride: 0,
            number: None,
            have: 0,
        })
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.out.is_empty() {
            return Ok(());
        }
        let several = self.out.len() > self.segment;
        let transmit = Transmit {
            destination: self.socket.peer_addr()?,
            ecn: None,
            contents: &self.out,
            segment_size: several.then_some(self.segment),
            src_ip: None,
        };
        refused_is_lost(self.state.try_send(UdpSockRef::from(&self.socket), &transmit), ())?;
        self.out.clear();
        Ok(())
    }
}

impl Link for Batched {
    fn send(&mut self, message: &[u8]) -> io::Result<()> {
        if message.len() < self.segment {
            self.flush()?;
            return refused_is_lost(self.socket.send(message), 0).map(drop);
        }
        for at in 0..self.segments {
            let begins = self.out.len();
            let from = at * self.segment;
            self.out.extend_from_slice(&message[from..(from + self.segment).min(message.len())]);
            self.out.resize(begins + self.segment, 0);
            self.out[begins..begins + NUMBER_BYTES].copy_from_slice(&message[..NUMBER_BYTES]);
        }
        let room = CALL_SEGMENTS.min(CALL_BYTES / self.segment);
        if self.out.len() / self.segment + self.segments > room {
            self.flush()?;
        }
        Ok(())
    }

    fn receive(&mut self, into: &mut [u8], wait: Duration) -> io::Result<Option<usize>> {
        loop {
            while self.at < self.filled {
                let end = (self.at + self.stride).min(self.filled);
                let datagram = &self.received[self.at..end];
                self.at = end;
                if datagram.len() < self.segment {
                    return copy(datagram, into).map(Some);
                }
                let number = exchange::number(datagram);
                self.have = if number == self.number { self.have + 1 } else { 1 };
                self.number = number;
                if self.have == self.segments {
                    into[..NUMBER_BYTES].copy_from_slice(&datagram[..NUMBER_BYTES]);
                    return Ok(Some(into.len()));
                }
            }
            self.flush()?;
            wait_at_most(&self.socket, &mut self.wait, wait)?;
            let mut metas = [RecvMeta::default()];
            let mut slices = [IoSliceMut::new(&mut self.received)];
            match self.state.recv(UdpSockRef::from(&self.socket), &mut slices, &mut metas) {
                Ok(_) => (self.at, self.filled, self.stride) = (0, metas[0].len, metas[0].stride.max(1)),
                Err(error) if nothing_came(&error) => return Ok(None),
                Err(error) => return Err(error),
            }
        }
    }
}
