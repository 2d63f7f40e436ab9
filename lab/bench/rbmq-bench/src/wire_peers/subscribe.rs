//! The subscriber.

use std::{io, net::TcpStream, time::Instant};

use benchkit::control::Control;
use rbmq::wire::{self, Role, Topic};
use rocketbufs::{
    Policy, Position, Start,
    proto::{Coverage, Credit, Message, Subscribe, Subscribed},
};

use super::{
    incoming::{Part, unexpected},
    open, say, say_to_broker,
};
use crate::{
    error::BenchError,
    load::Load,
    pattern::{Cursor, Pattern},
    rbmq_peers::{failed, topic_name},
};

/// The window of a subscriber, which is the library's default ring.
const WINDOW_BYTES: u64 = 1 << 20;

/// A topic of a subscriber.
struct Stream<'a> {
    name: String,
    cursor: Cursor<'a>,
    messages: u64,
    window: u64,
    at: Position,
    /// The position in the last CREDIT.
    credited: Position,
}

/// Reads every topic's stream, walks its records and checks every byte.
///
/// # Errors
/// The broker is gone, bytes were lost, or a byte was wrong.
pub fn subscribe(control: &Control, load: &Load, topics: u8) -> Result<(), BenchError> {
    let patterns: Vec<Pattern> = (0..topics).map(|topic| Pattern::new(u32::from(topic), load.size)).collect();
    let mut streams: Vec<Stream<'_>> = (0..topics).zip(&patterns).map(|(n, of)| Stream::new(n, of)).collect();
    let (mut socket, mut incoming) = open(load, Role::Subscriber)?;
    let filters =
        streams.iter().map(|stream| stream.name.parse().map_err(failed)).collect::<Result<_, _>>()?;
    say_to_broker(&mut socket, &wire::Control::Topics { filters })?;
    control.ready("");
    let mut last_arrival = Instant::now();
    loop {
        if incoming.read(&mut socket)? {
            while let Some(part) = incoming.next()? {
                match part {
                    Part::Data(wire, bytes) => take(&mut streams, wire, bytes)?,
                    Part::Control(message) => on_message(&mut socket, &mut streams, load, message)?,
                }
            }
            for (wire, stream) in (0..).zip(&mut streams) {
                stream.give_back(&mut socket, wire)?;
            }
            last_arrival = Instant::now();
            control.set_messages(streams.iter().map(|stream| stream.messages).sum());
        }
        control.end_if_over(last_arrival, || streams.iter().map(|stream| stream.messages).collect())?;
    }
}

impl<'a> Stream<'a> {
    fn new(topic: u8, pattern: &'a Pattern) -> Stream<'a> {
        let cursor = Cursor::new(pattern);
        Stream { name: topic_name(topic), cursor, messages: 0, window: 0, at: 0, credited: 0 }
    }

    /// Sends CREDIT for the checked bytes once they are a quarter of the window, as the library does.
    fn give_back(&mut self, socket: &mut TcpStream, wire: u32) -> io::Result<()> {
        if self.at - self.credited < self.window.div_ceil(4).max(1) {
            return Ok(());
        }
        self.send_credit(socket, wire)
    }

    fn send_credit(&mut self, socket: &mut TcpStream, wire: u32) -> io::Result<()> {
        let at = self.at;
        self.credited = at;
        let credit = Credit {
            landed: at,
            delivered: at,
            consumed: at,
            grant: at + self.window,
            coverage: Coverage::ONE,
        };
        say(socket, &Message::Credit { wire, credit })
    }
}

fn stream_of<'s, 'a>(streams: &'s mut [Stream<'a>], wire: u32) -> Result<&'s mut Stream<'a>, BenchError> {
    streams.get_mut(wire as usize).ok_or_else(|| unexpected(("id", wire)))
}

fn take(streams: &mut [Stream<'_>], wire: u32, bytes: &[u8]) -> Result<(), BenchError> {
    let stream = stream_of(streams, wire)?;
    stream.at += bytes.len() as u64;
    let after_messages = stream.messages;
    let checked = stream.cursor.check(bytes);
    stream.messages += checked.ok_or(BenchError::WrongByte { topic: u64::from(wire), after_messages })?;
    Ok(())
}

fn on_message(
    socket: &mut TcpStream,
    streams: &mut [Stream<'_>],
    load: &Load,
    message: Message,
) -> Result<(), BenchError> {
    match message {
        Message::Subscribed(Subscribed { wire, start: 0, .. }) => {
            stream_of(streams, wire)?.send_credit(socket, wire)?
        }
        Message::Ask { wire, .. } => stream_of(streams, wire)?.send_credit(socket, wire)?,
        Message::Ping(token) => say(socket, &Message::Pong(token))?,
        Message::App(bytes) => match wire::Control::decode(&bytes).map_err(failed)? {
            wire::Control::Topic(topic) => ask_for(socket, streams, load, &topic)?,
            wire::Control::Rejected { reason, .. } => return Err(BenchError::Refused { reason }),
            _ => {}
        },
        Message::Bye { text, .. } => return Err(BenchError::Refused { reason: text }),
        other => return Err(unexpected(other)),
    }
    Ok(())
}

/// Subscribes to a topic that is there now.
fn ask_for(
    socket: &mut TcpStream,
    streams: &mut [Stream<'_>],
    load: &Load,
    topic: &Topic,
) -> Result<(), BenchError> {
    let mut numbered = (0..).zip(streams);
    let found = numbered.find(|(_, stream)| stream.name == topic.topic.as_str());
    let Some((wire, stream)) = found else {
        return Err(BenchError::StrangeTopic { name: topic.topic.to_string() });
    };
    let least = (2 * topic.max_delivery_bytes).max(WINDOW_BYTES);
    stream.window = load.ring_bytes.unwrap_or(0).max(least).next_power_of_two();
    let subscribe = Subscribe {
        wire,
        bid: topic.bid,
        capacity: stream.window,
        policy: Policy::Block,
        own_memory: false,
        start: Start::Oldest,
        max_lag: 0,
        block_timeout_ms: u32::MAX,
        hold_ms: 0,
        name: Vec::new(),
    };
    Ok(say(socket, &Message::Subscribe(subscribe))?)
}
