//! The publisher.

use std::{
    io::{IoSlice, Write},
    net::TcpStream,
};

use benchkit::{
    control::Control,
    pace::{Pace, call_bytes},
};
use rbmq::wire::{self, Framing, Role};
use rocketbufs::{
    Epoch, Position,
    proto::{Message, Subscribe, Subscribed},
};
use rocketnet::wire::{CONTROL_WIRE, HEADER_BYTES, Header};

use super::{
    incoming::{Incoming, unexpected},
    open, say, say_to_broker, wait,
};

use crate::{
    error::BenchError,
    load::Load,
    pattern::{Cursor, Pattern},
    rbmq_peers::{failed, topic_name, topic_ring_bytes},
};

/// Pieces of one `writev`.
const PIECES: usize = 128;

/// The publisher's only buffer, and the id of its only subscription to be.
const BID: u32 = 1;

/// A publisher's connection and its state.
struct Publishing {
    socket: TcpStream,
    incoming: Incoming,
    wire: u32,
    epoch: Epoch,
    ring_bytes: u64,
    max_delivery_bytes: u64,
    subscribers: u32,
    sent: Position,
    grant: Position,
    /// The most bytes of a transfer.
    call_bytes: usize,
}

/// Writes the topic's stream, encoded beforehand, as fast as the broker's credit allows.
///
/// # Errors
/// The broker is gone, or refused.
pub fn publish(control: &Control, load: &Load, topic: u8) -> Result<(), BenchError> {
    let pattern = Pattern::new(u32::from(topic), load.size);
    let mut publishing = Publishing::open(load, topic, pattern.record_bytes() as u64)?;
    control.ready("");
    control.wait_for_go();
    let mut cursor = Cursor::new(&pattern);
    let mut messages = 0;
    let mut pace = Pace::new(load.rate);
    while !control.stopped() || cursor.behind() > 0 {
        let due = if cursor.behind() > 0 { u64::MAX } else { pace.wait(messages) };
        messages += publishing.send_some(&mut cursor, pattern.record_bytes(), due)?;
        control.set_messages(messages);
    }
    control.finish(&[messages])
}

impl Publishing {
    /// Connects, makes the topic, and waits for its subscribers.
    fn open(load: &Load, topic: u8, record_bytes: u64) -> Result<Publishing, BenchError> {
        let (socket, incoming) = open(load, Role::Publisher)?;
        let ring_bytes = topic_ring_bytes(load, record_bytes, 0);
        let max_delivery_bytes = (ring_bytes / 4).max(record_bytes);
        let record = usize::try_from(record_bytes).unwrap_or(usize::MAX);
        let epoch = Epoch((u128::from(std::process::id()) << 32) | (u128::from(topic) + 1));
        let mut publishing = Publishing {
            socket,
            incoming,
            wire: CONTROL_WIRE,
            epoch,
            ring_bytes,
            max_delivery_bytes,
            subscribers: 0,
            sent: 0,
            grant: 0,
            call_bytes: call_bytes(load.rate).max(record),
        };
        let create = wire::Control::Create {
            bid: BID,
            framing: Framing::Records,
            ring_bytes,
            max_delivery_bytes,
            min_subscribers: 0,
            topic: topic_name(topic).parse().map_err(failed)?,
        };
        say_to_broker(&mut publishing.socket, &create)?;
        while publishing.grant == 0 || publishing.subscribers < load.subscribers {
            let message = wait(&mut publishing.socket, &mut publishing.incoming)?;
            publishing.on_message(message)?;
        }
        Ok(publishing)
    }

    fn on_message(&mut self, message: Message) -> Result<(), BenchError> {
        match message {
            Message::Subscribe(Subscribe { wire, bid: BID, .. }) => {
                self.wire = wire;
                let subscribed = Subscribed {
                    wire,
                    epoch: self.epoch,
                    start: 0,
                    flow_control: true,
                    restarted: false,
                    without_slot: false,
                    capacity: self.ring_bytes,
                    max_delivery: self.max_delivery_bytes,
                };
                say(&mut self.socket, &Message::Subscribed(subscribed))?;
            }
            Message::Credit { credit, .. } => self.grant = self.grant.max(credit.grant),
            Message::Ping(token) => say(&mut self.socket, &Message::Pong(token))?,
            Message::App(bytes) => match wire::Control::decode(&bytes).map_err(failed)? {
                wire::Control::Subscribers { count, .. } => self.subscribers = count,
                wire::Control::Refused { reason, .. } => return Err(BenchError::Refused { reason }),
                _ => {}
            },
            Message::Bye { text, .. } => return Err(BenchError::Refused { reason: text }),
            other => return Err(unexpected(other)),
        }
        Ok(())
    }

    /// Sends a transfer of at most `due` messages. Returns the number of completed messages.
    fn send_some(
        &mut self,
        cursor: &mut Cursor<'_>,
        record_bytes: usize,
        due: u64,
    ) -> Result<u64, BenchError> {
        let due = usize::try_from(due).unwrap_or(usize::MAX).saturating_mul(record_bytes);
        if due == 0 {
            return Ok(0);
        }
        let reach = self.reach(due.min(self.call_bytes))?.min(due);
        // A transfer ends at a delivery's end if it reaches one. A begun delivery ends first.
        let (len, more) = match cursor.rest_of_record() {
            0 if reach >= record_bytes => (reach / record_bytes * record_bytes, false),
            0 => (reach, true),
            rest => (rest.min(reach), rest > reach),
        };
        let header = Header { wire: self.wire, more, size: u32::try_from(len).unwrap_or(u32::MAX) }.encode();
        let mut slices = Vec::with_capacity(PIECES);
        cursor.gather(len, &mut slices);
        slices.insert(0, IoSlice::new(&header));
        let written = self.socket.write_vectored(&slices)?;
        if written < HEADER_BYTES {
            self.socket.write_all(&header[written..])?;
        }
        let payload = written.saturating_sub(HEADER_BYTES);
        let (mut left, mut messages) = (len - payload, cursor.skip(payload));
        while left > 0 {
            cursor.gather(left, &mut slices);
            let written = self.socket.write_vectored(&slices)?;
            messages += cursor.skip(written);
            left -= written;
        }
        self.sent += len as u64;
        Ok(messages)
    }

    /// How many bytes may go now, at most a call's: at least a quarter of a call if so many are wanted.
    fn reach(&mut self, wanted: usize) -> Result<usize, BenchError> {
        let least = wanted.clamp(1, self.call_bytes / 4) as u64;
        while self.grant - self.sent < least {
            let message = wait(&mut self.socket, &mut self.incoming)?;
            self.on_message(message)?;
        }
        Ok(usize::try_from(self.grant - self.sent).unwrap_or(usize::MAX).min(self.call_bytes))
    }
}
