//! A peer that speaks the protocol byte by byte, as well or as badly as a test wants.

#![allow(dead_code, reason = "each test program uses a part of it")]

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use rocketbufs::proto::{CloseCode, Coverage, Credit, Hello, Message, Start, Subscribe, Subscribed, VERSION};
use rocketbufs::{Bid, Epoch, Policy};
use rocketnet::wire::{CONTROL_WIRE, Header};

/// Nothing here takes this long unless something is wrong.
pub const WAIT: Duration = Duration::from_secs(60);

/// A CREDIT of an application's own end.
pub fn credit(wire: u32, [landed, delivered, consumed]: [u64; 3], grant: u64) -> Message {
    Message::Credit { wire, credit: Credit { landed, delivered, consumed, grant, coverage: Coverage::ONE } }
}

/// A frame that a peer sent.
#[derive(Debug)]
pub enum Frame {
    Control(Message),
    Data { wire: u32, more: bool, bytes: Vec<u8> },
}

pub struct Raw {
    pub stream: TcpStream,
}

impl Raw {
    pub fn of(stream: TcpStream) -> Self {
        stream.set_read_timeout(Some(WAIT)).unwrap();
        stream.set_write_timeout(Some(WAIT)).unwrap();
        stream.set_nodelay(true).unwrap();
        Self { stream }
    }

    /// Connects and says nothing.
    pub fn silent(addr: &str) -> Self {
        Self::of(TcpStream::connect(addr).unwrap())
    }

    /// Connects from another address of the loopback, and says nothing.
    pub fn silent_from(source: [u8; 4], addr: &str) -> Self {
        let kind = (rustix::net::AddressFamily::INET, rustix::net::SocketType::STREAM);
        let socket = rustix::net::socket(kind.0, kind.1, None).unwrap();
        rustix::net::bind(&socket, &SocketAddr::from((source, 0))).unwrap();
        rustix::net::connect(&socket, &addr.parse::<SocketAddr>().unwrap()).unwrap();
        Self::of(TcpStream::from(socket))
    }

    /// Connects and is welcome.
    pub fn up(addr: &str) -> Self {
        let mut raw = Self::silent(addr);
        raw.say(&Message::Hello(hello()));
        assert!(matches!(raw.hear(), Some(Frame::Control(Message::Welcome(_)))));
        raw
    }

    /// Takes a connection and reads its HELLO.
    pub fn accept(listener: &TcpListener) -> Self {
        let mut raw = Self::of(listener.accept().unwrap().0);
        assert!(matches!(raw.hear(), Some(Frame::Control(Message::Hello(_)))));
        raw
    }

    pub fn say(&mut self, message: &Message) {
        self.send(&frame(message));
    }

    /// Sends bytes. Ignores errors, since the other end may close the connection at any time.
    pub fn send(&mut self, bytes: &[u8]) {
        let _ = self.stream.write_all(bytes);
    }

    pub fn data(&mut self, wire: u32, more: bool, bytes: &[u8]) {
        self.send(&Header { wire, more, size: bytes.len() as u32 }.encode());
        self.send(bytes);
    }

    /// The next thing that comes; none at the end. Panics if nothing comes.
    pub fn hear(&mut self) -> Option<Frame> {
        let mut header = [0; 8];
        match self.stream.read_exact(&mut header) {
            Ok(()) => {}
            Err(error) if matches!(error.kind(), std::io::ErrorKind::WouldBlock) => panic!("nothing came"),
            Err(_) => return None,
        }
        let Header { wire, more, size } = Header::decode(header);
        let mut bytes = vec![0; size as usize];
        self.stream.read_exact(&mut bytes).ok()?;
        Some(match wire {
            CONTROL_WIRE => Frame::Control(Message::decode(&bytes).unwrap()),
            wire => Frame::Data { wire, more, bytes },
        })
    }

    /// Reads frames until `wanted` returns a value.
    pub fn until<R>(&mut self, what: &str, mut wanted: impl FnMut(Frame) -> Option<R>) -> R {
        loop {
            let frame = self.hear().unwrap_or_else(|| panic!("closed while waiting for {what}"));
            if let Frame::Control(Message::Bye { code, text }) = &frame {
                panic!("{code:?} ({text}) while waiting for {what}");
            }
            if let Some(found) = wanted(frame) {
                return found;
            }
        }
    }

    /// The other end's BYE; None if it closes without one.
    pub fn bye(&mut self) -> Option<(CloseCode, String)> {
        loop {
            if let Frame::Control(Message::Bye { code, text }) = self.hear()? {
                return Some((code, text));
            }
        }
    }

    pub fn subscribed(&mut self) -> Subscribed {
        self.until("SUBSCRIBED", |frame| match frame {
            Frame::Control(Message::Subscribed(subscribed)) => Some(subscribed),
            Frame::Control(Message::Refused { code, .. }) => panic!("refused: {code:?}"),
            _ => None,
        })
    }

    /// Waits for PONG: the other end is alive and has handled all earlier messages.
    pub fn ping(&mut self, token: u64) {
        self.say(&Message::Ping(token));
        self.until("PONG", |frame| match frame {
            Frame::Control(Message::Pong(got)) => (got == token).then_some(()),
            _ => None,
        });
    }

    /// Takes an honest SUBSCRIBE and answers it; returns its id.
    pub fn answer(&mut self, start: u64, flow_control: bool) -> u32 {
        let wire = self.until("SUBSCRIBE", |frame| match frame {
            Frame::Control(Message::Subscribe(subscribe)) => Some(subscribe.wire),
            _ => None,
        });
        self.say(&Message::Subscribed(answer(wire, start, flow_control)));
        wire
    }
}

pub fn frame(message: &Message) -> Vec<u8> {
    let bytes = message.encode();
    let mut frame = Header { wire: CONTROL_WIRE, more: false, size: bytes.len() as u32 }.encode().to_vec();
    frame.extend(bytes);
    frame
}

pub fn hello() -> Hello {
    Hello {
        min_version: VERSION,
        max_version: VERSION,
        capabilities: 0,
        instance: 7,
        heartbeat_ms: 0,
        max_control_bytes: 65_536,
        hello: b"raw".to_vec(),
    }
}

pub fn subscribe(wire: u32, bid: Bid) -> Subscribe {
    Subscribe {
        wire,
        bid,
        capacity: 1 << 20,
        policy: Policy::Block,
        own_memory: false,
        start: Start::Newest,
        max_lag: 0,
        block_timeout_ms: u32::MAX,
        hold_ms: 0,
        name: Vec::new(),
    }
}

pub fn answer(wire: u32, start: u64, flow_control: bool) -> Subscribed {
    Subscribed {
        wire,
        epoch: Epoch(9),
        start,
        flow_control,
        restarted: false,
        without_slot: false,
        capacity: 1 << 20,
        max_delivery: 1 << 12,
    }
}
