//! The receiving half of a manager: connections of sending nodes, their announcements, and their chunks.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use rocketbufs::{BufSeg, Conn, InEvent, Policy, RIn, Start, SubscribeOptions};

use super::inner::Inner;
use super::source::{InStream, Source};
use super::stream_event::StreamEvent;
use crate::chunk::ChunkRef;
use crate::content::MAX_NAME_BYTES;
use crate::ids::NodeId;
use crate::trust;
use crate::wire::{Announce, Hello, Message, PROOF_BYTES, encode_answer};

const _: () = assert!(MAX_NAME_BYTES <= u8::MAX as usize, "the length of a name is one byte of ANNOUNCE");

impl Inner {
    /// Accepts or refuses the connection of a node.
    pub(super) fn accept(self: &Arc<Self>, conn: &Conn) {
        let (node, answer) = match self.admit(conn) {
            Ok(admitted) => admitted,
            Err(why) => {
                self.refusals.node(&conn.peer_addr(), &why);
                return conn.reject(&why);
            }
        };
        self.take_or_resume(node, conn);
        if let Some(answer) = answer {
            // If the connection is lost meanwhile, the sender connects again.
            let _ = conn.send_control(&encode_answer(&answer));
        }
    }

    /// Checks the node that connects. Returns the node, and the answer that proves to it that this node knows the token.
    fn admit(&self, conn: &Conn) -> Result<(NodeId, Option<[u8; PROOF_BYTES]>), String> {
        let hello = Hello::decode(&conn.take_peer_hello()).map_err(|error| error.to_string())?;
        let node = hello.node;
        let known = self.known_node(node);
        let known = known.ok_or_else(|| match self.config.finds_nodes {
            false => format!("node {node} is not in this node's configuration"),
            true => {
                format!("node {node} is neither in this node's configuration nor known to be in the cluster")
            }
        })?;
        let names = self.config.dissemination.certificates.get(&known.name);
        trust::check_certificate(&known.name, names, &conn.peer_identity())?;
        Ok((node, trust::check(self.token.as_deref(), &hello, self.node.id)?))
    }

    fn take_or_resume(self: &Arc<Self>, node: NodeId, conn: &Conn) {
        let known = self.sources.read().get(&node).cloned();
        match known {
            Some(source) if source.instance == conn.peer_instance() => {
                source.note_up();
                source.input.resume(conn);
                for stream in source.streams() {
                    self.report(&stream, StreamEvent::Resumed);
                }
            }
            known => {
                if let Some(source) = known {
                    self.end_source(&source);
                }
                self.take(node, conn);
            }
        }
    }

    /// Accepts the connection of a node that is new, or was restarted.
    fn take(self: &Arc<Self>, node: NodeId, conn: &Conn) {
        let input = RIn::new(conn);
        let source = Arc::new(Source::new(node, conn.peer_instance(), input.clone()));
        self.sources.write().insert(node, source.clone());
        let of = |source: &Arc<Source>| (Arc::downgrade(self), Arc::downgrade(source));
        let both = |(inner, source): &(Weak<Self>, Weak<Source>)| Some((inner.upgrade()?, source.upgrade()?));
        let weak = of(&source);
        input.set_data_in_cb(move |bid, data| {
            if let Some((inner, source)) = both(&weak) {
                inner.on_data(&source, bid, data);
            }
        });
        let weak = of(&source);
        input.set_event_cb(move |event| {
            if let Some((inner, source)) = both(&weak) {
                inner.on_event(&source, &event);
            }
        });
        let weak = of(&source);
        input.set_control_msg_cb(move |_, message| {
            if let Some((inner, source)) = both(&weak) {
                inner.on_message(&source, message);
            }
        });
    }

    fn on_data(&self, source: &Source, bid: u32, data: &BufSeg<'_>) {
        if let Some(stream) = source.stream(bid) {
            stream.activity.count(data.len());
            self.callbacks.chunk(ChunkRef::of(stream.id, data.range_ref()));
        }
    }

    fn on_event(&self, source: &Source, event: &InEvent) {
        match event {
            InEvent::Lost { bid, from, to } => {
                if let Some(stream) = source.stream(*bid) {
                    let bytes = to - from;
                    stream.lost_bytes.fetch_add(bytes, Ordering::Relaxed);
                    self.report(&stream, StreamEvent::Lost { bytes });
                }
            }
            InEvent::Closed { bid, .. }
            | InEvent::Gone { bid, .. }
            | InEvent::Restarted { bid, .. }
            | InEvent::Refused { bid, .. } => {
                if let Some(stream) = source.stream(*bid) {
                    if let InEvent::Refused { error, .. } = event {
                        tracing::warn!(
                            stream = &*stream.name,
                            "the sending node refuses the stream: {error}"
                        );
                    }
                    self.end_stream(source, &stream);
                }
            }
            InEvent::ConnDown { .. } => {
                source.note_down();
                for stream in source.streams() {
                    self.report(&stream, StreamEvent::Interrupted);
                }
                self.wake_keeper();
            }
            _ => {}
        }
    }

    fn on_message(self: &Arc<Self>, source: &Arc<Source>, message: &[u8]) {
        match Message::decode(message) {
            Ok(Message::Announce(announce)) => {
                source.note_announced(announce.id);
                if let Err(why) = self.subscribe(source, &announce) {
                    tracing::warn!(stream = announce.name, node = source.node, "a stream is refused: {why}");
                }
            }
            Ok(Message::Withdraw(id)) => {
                if let Some(stream) = source.of_id(id) {
                    self.end_stream(source, &stream);
                }
            }
            Ok(Message::Complete) => {
                for stream in source.not_announced() {
                    self.end_stream(source, &stream);
                }
            }
            Err(error) => source.input.conn().close(&error.to_string()),
        }
    }

    /// Subscribes to a stream that a node has announced.
    fn subscribe(self: &Arc<Self>, source: &Source, announce: &Announce) -> Result<(), String> {
        let (id, bid, limits) = (announce.id, announce.bid, &self.config.streams);
        if source.stream(bid).is_some_and(|known| known.id == id) {
            return Ok(());
        }
        if announce.capacity > limits.max_buffer_bytes {
            let max = limits.max_buffer_bytes;
            return Err(format!(
                "its buffer has {} bytes, streams.max_buffer_bytes = {max}",
                announce.capacity
            ));
        }
        let own = source.node == self.node.id;
        if !own && id.node() == self.node.id {
            return Err("it comes from this node".to_owned());
        }
        let sources: Vec<_> = self.sources.read().values().cloned().collect();
        let elsewhere = sources.iter().find(|other| other.node != source.node && other.of_id(id).is_some());
        if let Some(other) = elsewhere.filter(|other| !own && other.node != self.node.id) {
            return Err(format!("node {} sends it already", other.node));
        }
        if sources.iter().map(|source| source.streams().len()).sum::<usize>() >= limits.max_streams {
            return Err(format!("streams.max_streams = {}", limits.max_streams));
        }
        let relayed = !own && self.node.role.disseminates();
        let stream = Arc::new(InStream::new(id, bid, &announce.name, relayed));
        let options = SubscribeOptions::new()
            .size_bytes(announce.capacity)
            .policy(Policy::Overwrite)
            .start(Start::Oldest)
            .linger(Some(Duration::from_millis(self.config.dissemination.linger_ms)));
        source.insert(stream.clone());
        let subscribed = if relayed {
            self.relay(&source.input, announce, options)
        } else {
            self.report(&stream, StreamEvent::Began { name: stream.name.clone() });
            source.input.subscribe_with(bid, options).map(drop).map_err(|error| error.to_string())
        };
        if subscribed.is_err() {
            self.end_stream(source, &stream);
        }
        subscribed
    }

    /// Reports an event to the application, if the stream is one that it receives.
    fn report(&self, stream: &InStream, event: StreamEvent) {
        if !stream.relayed {
            self.callbacks.event(stream.id, event);
        }
    }

    /// Ends a received stream.
    fn end_stream(&self, source: &Source, stream: &InStream) {
        if !source.remove(stream) {
            return;
        }
        source.input.unsubscribe(stream.bid);
        if stream.relayed {
            self.forget_outbound(stream.id);
        }
        self.report(stream, StreamEvent::Ended);
    }

    /// Ends all streams of a node.
    fn end_source(&self, source: &Source) {
        for stream in source.streams() {
            self.end_stream(source, &stream);
        }
    }

    /// Ends the streams of nodes that have been disconnected for too long. Returns the time until the next check.
    pub(super) fn end_lingering(&self) -> Option<Duration> {
        let linger = Duration::from_millis(self.config.dissemination.linger_ms);
        let now = Instant::now();
        let sources: Vec<_> = self.sources.read().values().cloned().collect();
        let mut next = None;
        for source in sources {
            let Some(since) = source.down_since() else { continue };
            let left = linger.saturating_sub(now.saturating_duration_since(since));
            if left.is_zero() {
                let same = |known: &Arc<Source>| Arc::ptr_eq(known, &source) && known.down_since().is_some();
                let mut sources = self.sources.write();
                if sources.get(&source.node).is_some_and(same) {
                    sources.remove(&source.node);
                    drop(sources);
                    self.end_source(&source);
                }
            } else {
                next = Some(next.map_or(left, |earlier: Duration| earlier.min(left)));
            }
        }
        next
    }

    /// Wakes the keeper for a check.
    pub(super) fn wake_keeper(&self) {
        self.keeper.woken.lock().1 = true;
        self.keeper.changed.notify_all();
    }
}
