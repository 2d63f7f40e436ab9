//! A peer that speaks the framework's protocol byte by byte, with any introduction.

use std::io::{Read, Write};
use std::net::TcpStream;

use rocketbufs::proto::{Hello, Message, VERSION};

use crate::LONG;

/// The id of control messages.
const CONTROL: u32 = 0x7fff_ffff;

/// A connection of which nothing but control messages is looked at.
pub struct Raw<S = TcpStream>(S);

impl Raw {
    /// Over a TCP connection, on which it waits at most [`LONG`].
    ///
    /// # Panics
    /// The system refuses the time-out.
    pub fn of(stream: TcpStream) -> Self {
        stream.set_read_timeout(Some(LONG)).expect("a time");
        Self(stream)
    }

    /// Connects as the process `instance`, and is welcome.
    ///
    /// # Panics
    /// Nobody listens, or the answer is not a welcome.
    pub fn connect(addr: &str, instance: u128, hello: Vec<u8>) -> Self {
        Self::of(TcpStream::connect(addr).expect("a broker listens")).welcome(instance, hello)
    }
}

impl<S: Read + Write> Raw<S> {
    /// Over a connection of any kind.
    pub fn over(stream: S) -> Self {
        Self(stream)
    }

    /// Introduces itself as the process `instance`, and is welcome.
    ///
    /// # Panics
    /// The answer is not a welcome.
    pub fn welcome(mut self, instance: u128, hello: Vec<u8>) -> Self {
        self.say(&Message::Hello(introduction(instance, 65_536, hello)));
        assert!(matches!(self.hear(), Some(Message::Welcome(_))));
        self
    }

    /// Sends a control message.
    pub fn say(&mut self, message: &Message) {
        let bytes = message.encode();
        let header = [CONTROL.to_le_bytes(), (bytes.len() as u32).to_le_bytes()].concat();
        // The other end may close the connection in the middle.
        let _ = self.0.write_all(&[header, bytes].concat());
    }

    /// The next control message; none at the end.
    ///
    /// # Panics
    /// The message cannot be decoded.
    pub fn hear(&mut self) -> Option<Message> {
        loop {
            let (mut wire, mut size) = ([0; 4], [0; 4]);
            self.0.read_exact(&mut wire).and_then(|()| self.0.read_exact(&mut size)).ok()?;
            let mut bytes = vec![0; u32::from_le_bytes(size) as usize];
            self.0.read_exact(&mut bytes).ok()?;
            if u32::from_le_bytes(wire) == CONTROL {
                return Some(Message::decode(&bytes).expect("a message"));
            }
        }
    }

    /// Reads messages until `wanted` returns a value.
    ///
    /// # Panics
    /// The connection ends before.
    pub fn until<R>(&mut self, what: &str, wanted: impl Fn(Message) -> Option<R>) -> R {
        std::iter::from_fn(|| self.hear()).find_map(wanted).unwrap_or_else(|| panic!("never: {what}"))
    }
}

/// The first message of a peer.
pub fn introduction(instance: u128, max_control_bytes: u32, hello: Vec<u8>) -> Hello {
    Hello {
        min_version: VERSION,
        max_version: VERSION,
        capabilities: 0,
        instance,
        heartbeat_ms: 0,
        max_control_bytes,
        hello,
    }
}
