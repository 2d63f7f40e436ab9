//! A publisher and a subscriber that speak RBMQ's protocol without the client library, like the clients of the other systems
//! here.
//!
//! The client library keeps published bytes in a ring until the broker has them, and received bytes in another ring until the
//! application releases them. This copying is not the broker's work. These two ends have no rings: the publisher writes the
//! same prepared bytes again and again, and the subscriber reads into the same memory. So the bench measures the broker
//! alone, beside a relay whose ends do as little.
//!
//! ```text
//!   publisher   HELLO · CREATE ── SUBSCRIBE? SUBSCRIBED ── transfers up to the grant ──▶ ◀── CREDIT
//!   subscriber  HELLO · TOPICS ── TOPIC? SUBSCRIBE ── SUBSCRIBED? CREDIT ◀── transfers ── CREDIT
//! ```

mod incoming;
mod publish;
mod subscribe;

use std::{
    io::{self, ErrorKind, Write},
    net::TcpStream,
    time::{Duration, Instant},
};

use rbmq::wire::{self, Hello, Role};
use rocketbufs::proto::{self, Message, VERSION};
use rocketnet::wire::{CONTROL_WIRE, Header};

pub use publish::publish;
pub use subscribe::subscribe;

use crate::{
    clients::{self, LOOK},
    error::BenchError,
    load::Load,
};
use incoming::{Incoming, MAX_CONTROL_BYTES, Part, unexpected};

/// A broker that says nothing for so long, where something must come, is stuck.
const WITHIN: Duration = Duration::from_secs(20);

/// Says something.
fn say(socket: &mut TcpStream, message: &Message) -> io::Result<()> {
    let body = message.encode();
    let size = u32::try_from(body.len()).unwrap_or(u32::MAX);
    let header = Header { wire: CONTROL_WIRE, more: false, size }.encode();
    socket.write_all(&[&header[..], &body].concat())
}

fn say_to_broker(socket: &mut TcpStream, message: &wire::Control) -> io::Result<()> {
    say(socket, &Message::App(message.encode()))
}

/// Connects and is welcome.
fn open(load: &Load, role: Role) -> Result<(TcpStream, Incoming), BenchError> {
    let mut socket = clients::connect(&load.addr, load.congestion.as_deref())?;
    socket.set_read_timeout(Some(LOOK))?;
    let client = u128::from(std::process::id()) << 64 | u128::from(benchkit::sys::unique_number());
    let hello = proto::Hello {
        min_version: VERSION,
        max_version: VERSION,
        capabilities: 0,
        instance: client,
        heartbeat_ms: 0,
        max_control_bytes: MAX_CONTROL_BYTES,
        hello: Hello { role, client, name: "bench".to_owned() }.encode(),
    };
    say(&mut socket, &Message::Hello(hello))?;
    let mut incoming = Incoming::new();
    match wait(&mut socket, &mut incoming)? {
        Message::Welcome(_) => Ok((socket, incoming)),
        Message::Bye { text, .. } => Err(BenchError::Refused { reason: text }),
        other => Err(unexpected(other)),
    }
}

/// Waits for the next control message, at an end that gets no data yet.
fn wait(socket: &mut TcpStream, incoming: &mut Incoming) -> Result<Message, BenchError> {
    let begun = Instant::now();
    loop {
        match incoming.next()? {
            Some(Part::Control(message)) => return Ok(message),
            Some(Part::Data(wire, _)) => return Err(unexpected(("a transfer", wire))),
            None if begun.elapsed() > WITHIN => {
                return Err(io::Error::from(ErrorKind::TimedOut).into());
            }
            None => incoming.read(socket)?,
        };
    }
}
