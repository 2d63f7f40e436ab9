//! A bad network in user space: a proxy that decides the fate of each datagram. A wait for events, and one for an address.

use std::io::ErrorKind;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use bytes::Bytes;
use cmq::wire::{Body, Datagram};
use cmq::{Cmq, Event, OpenError};
use testkit::LONG;

/// The fate of a datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// The datagram arrives.
    Passes,
    /// The datagram is lost.
    Lost,
    /// The datagram arrives twice.
    Twice,
    /// The datagram arrives after this many later ones.
    After(usize),
}

/// The counters of a proxy.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ProxyCounts {
    /// Messages in datagrams that were lost.
    pub lost: u64,
    /// Messages in datagrams that arrived twice.
    pub twice: u64,
    /// Messages in datagrams that arrived later.
    pub after: u64,
}

/// A proxy between senders and one receiver. Answers go to the sender that sent last.
pub struct Proxy {
    addr: SocketAddr,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<ProxyCounts>>,
}

impl Proxy {
    /// Starts a proxy. `fate` gets the number and the bytes of each datagram to the receiver.
    pub fn start(receiver: SocketAddr, fate: impl FnMut(u64, &[u8]) -> Fate + Send + 'static) -> Proxy {
        Proxy::start_with(receiver, fate, messages)
    }

    /// As [`Proxy::start`], for datagrams that the proxy cannot read. This proxy counts datagrams and not messages.
    pub fn start_blind(receiver: SocketAddr, fate: impl FnMut(u64, &[u8]) -> Fate + Send + 'static) -> Proxy {
        Proxy::start_with(receiver, fate, |_| 1)
    }

    fn start_with(
        receiver: SocketAddr,
        fate: impl FnMut(u64, &[u8]) -> Fate + Send + 'static,
        count: fn(&[u8]) -> u64,
    ) -> Proxy {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
        rustix::net::sockopt::set_socket_recv_buffer_size(&socket, 4 << 20).expect("a large buffer");
        socket.set_read_timeout(Some(Duration::from_millis(20))).expect("a timeout");
        let addr = socket.local_addr().expect("the socket is bound");
        let stop = Arc::new(AtomicBool::new(false));
        let asked = Arc::clone(&stop);
        let thread = std::thread::spawn(move || carry(&socket, receiver, fate, count, &asked));
        Proxy { addr, stop, thread: Some(thread) }
    }

    /// The address for senders.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Ends the proxy, once it is idle.
    pub fn finish(mut self) -> ProxyCounts {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.take().expect("the proxy is stopped once").join().expect("the proxy does not panic")
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

fn carry(
    socket: &UdpSocket,
    receiver: SocketAddr,
    mut fate: impl FnMut(u64, &[u8]) -> Fate,
    count: fn(&[u8]) -> u64,
    stop: &AtomicBool,
) -> ProxyCounts {
    let (mut done, mut number, mut sender) = (ProxyCounts::default(), 0, receiver);
    let mut later: Vec<(u64, Vec<u8>)> = Vec::new();
    let mut buffer = vec![0; 65_536];
    loop {
        let Ok((length, from)) = socket.recv_from(&mut buffer) else {
            if stop.load(Ordering::Relaxed) {
                later.drain(..).for_each(|(_, bytes)| drop(socket.send_to(&bytes, receiver)));
                return done;
            }
            continue;
        };
        let bytes = &buffer[..length];
        if from == receiver {
            socket.send_to(bytes, sender).expect("loopback");
            continue;
        }
        sender = from;
        let messages = count(bytes);
        match fate(number, bytes) {
            Fate::Passes => drop(socket.send_to(bytes, receiver)),
            Fate::Lost => done.lost += messages,
            Fate::Twice => {
                done.twice += messages;
                (0..2).for_each(|_| drop(socket.send_to(bytes, receiver)));
            }
            Fate::After(count) => {
                done.after += messages;
                later.push((number + count as u64, bytes.to_vec()));
            }
        }
        number += 1;
        later.retain(|(due, bytes)| *due >= number || socket.send_to(bytes, receiver).is_err());
    }
}

/// The number of messages in a datagram. A fragment counts as one.
pub fn messages(bytes: &[u8]) -> u64 {
    match Datagram::parse(bytes).expect("a queue sent it").body {
        Body::Batch(messages) => messages.len() as u64,
        Body::Fragment(_) => 1,
        Body::Close | Body::Segment(_) | Body::Ack(_) | Body::End(_) => 0,
    }
}

/// Waits for an event that `wanted` accepts.
pub fn event(of: &Cmq<Bytes>, wanted: impl Fn(&Event) -> bool) -> Event {
    let until = Instant::now() + LONG;
    loop {
        match of.next_event() {
            Some(event) if wanted(&event) => return event,
            Some(_) => {}
            None => {
                assert!(Instant::now() < until, "the event does not come");
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    }
}

/// A queue at the address of one that has left. A process that another test starts has its socket too, until it runs its program.
pub fn again<T: Send + 'static>(open: impl Fn() -> Result<Cmq<T>, OpenError>) -> Cmq<T> {
    let until = Instant::now() + LONG;
    loop {
        match open() {
            Err(OpenError::Bind(error)) if error.kind() == ErrorKind::AddrInUse && Instant::now() < until => {
                std::thread::yield_now();
            }
            queue => return queue.expect("the first one has left"),
        }
    }
}
