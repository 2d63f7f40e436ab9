//! The server's side of an RTMP connection, without I/O: bytes in, bytes and events out.

use bytes::{Bytes, BytesMut};

use super::amf::{self, Value};
use super::chunks::{self, ChunkStreamError, Message, OUT_CHUNK, Reader};

/// A window that no encoder fills before it is acknowledged.
const WINDOW: u32 = 2_500_000;
/// The bytes of each part of the handshake after the first byte.
const HANDSHAKE: usize = 1536;
/// The message stream that publishers get.
const STREAM: u32 = 1;
/// The longest command.
const MAX_COMMAND: usize = 64 << 10;
/// The most bytes of messages of a peer whose publish was not accepted: commands have some hundred.
const STRANGERS_BYTES: usize = 16 << 10;

/// An event of a session, for its owner.
#[derive(Debug, Clone, PartialEq)]
pub enum SessionEvent {
    /// The peer wants to publish. The owner answers with [`Session::accept`] or [`Session::refuse`].
    Publish {
        /// The application in the URL.
        app: String,
        /// The name of the stream, often a key, with its query.
        name: String,
    },
    /// A message of audio, as in an FLV tag.
    Audio {
        /// In milliseconds.
        timestamp: u32,
        /// The content.
        payload: Bytes,
    },
    /// A message of video, as in an FLV tag.
    Video {
        /// In milliseconds.
        timestamp: u32,
        /// The content.
        payload: Bytes,
    },
    /// The tracks that the publisher announces.
    Tracks {
        /// The publisher has video.
        video: bool,
        /// The publisher has audio.
        audio: bool,
        /// The rate of both in bits per second, 0 if it is not known.
        bits_per_second: u64,
    },
    /// The publisher has ended its stream.
    Unpublish,
}

/// Why a session is over.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SessionError {
    /// The first byte is not RTMP's version.
    #[error("the peer does not speak RTMP: it begins with {0:#04x}")]
    NotRtmp(u8),
    /// The chunk stream is damaged.
    #[error(transparent)]
    Chunks(#[from] ChunkStreamError),
    /// A command is damaged.
    #[error("the encoder sent a damaged command")]
    Command,
    /// A control message is too short.
    #[error("the encoder sent a damaged control message of kind {0}")]
    Control(u8),
    /// The peer wants to play; this server takes streams only.
    #[error("the peer wants to play the stream; RTMP is for publishing only here")]
    Play,
    /// Media without a publish before.
    #[error("the encoder sent media before its publish was accepted")]
    Early,
    /// A second publish on the connection.
    #[error("the encoder published twice on one connection")]
    Twice,
    /// A message with several others in it ends within one of them.
    #[error("the encoder sent a damaged aggregate message")]
    Aggregate,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Waits for the peer's first two parts of the handshake.
    Hello,
    /// Waits for the peer's third part.
    Echo,
    Commands,
    /// The owner decides on a publish.
    Asked,
    Publishing,
}

/// A connection. A connection keeps an incomplete chunk and unfinished messages, bounded by `max_message`, and by less before its publish.
#[derive(Debug)]
pub struct Session {
    state: State,
    input: BytesMut,
    output: Vec<u8>,
    reader: Reader,
    app: String,
    publish_stream: u32,
    /// What is left of an aggregate message.
    aggregate: Aggregate,
    max_message: usize,
    received: u64,
    acknowledged: u64,
    window: u64,
}

impl Session {
    /// A session that refuses messages of more than `max_message` bytes. Until a publish is accepted, all messages on the way may have
    /// 16 KiB.
    pub fn new(max_message: usize) -> Self {
        Self {
            state: State::Hello,
            input: BytesMut::new(),
            output: Vec::new(),
            reader: Reader::new(max_message.min(STRANGERS_BYTES)),
            max_message,
            app: String::new(),
            publish_stream: STREAM,
            aggregate: Aggregate::default(),
            received: 0,
            acknowledged: 0,
            window: u64::from(WINDOW),
        }
    }

    /// Takes bytes of the peer.
    pub fn receive(&mut self, bytes: &[u8]) {
        self.received += bytes.len() as u64;
        self.input.extend_from_slice(bytes);
    }

    /// Takes the bytes to send to the peer since the last call.
    pub fn take_output(&mut self) -> Vec<u8> {
        if self.state != State::Hello && self.received - self.acknowledged >= self.window / 2 {
            self.acknowledged = self.received;
            chunks::write(2, 3, 0, &(self.received as u32).to_be_bytes(), &mut self.output);
        }
        std::mem::take(&mut self.output)
    }

    /// The next event in the received bytes. `None`: more bytes are needed, or an answer of the owner.
    ///
    /// # Errors
    /// [`SessionError`]: the connection must be closed once the bytes of [`take_output`](Self::take_output) are sent.
    pub fn next_event(&mut self) -> Result<Option<SessionEvent>, SessionError> {
        loop {
            match self.state {
                State::Echo if self.input.len() < HANDSHAKE => return Ok(None),
                State::Hello => {
                    if !self.hello()? {
                        return Ok(None);
                    }
                    self.state = State::Echo;
                }
                State::Echo => {
                    let _ = self.input.split_to(HANDSHAKE);
                    self.state = State::Commands;
                }
                State::Asked => return Ok(None),
                State::Commands | State::Publishing => {
                    let complete = match self.aggregate.next()? {
                        Some(message) => Some(message),
                        None => match self.reader.chunk(&mut self.input)? {
                            Some(complete) => complete,
                            None => return Ok(None),
                        },
                    };
                    let Some(message) = complete else { continue };
                    if let Some(event) = self.message(message)? {
                        return Ok(Some(event));
                    }
                }
            }
        }
    }

    /// Accepts the publish of the peer.
    pub fn accept(&mut self) {
        self.state = State::Publishing;
        self.reader.admit(self.max_message);
        chunks::write(2, 4, 0, &[0, 0, 0, 0, 0, 0, 0, 1], &mut self.output);
        self.status("status", "NetStream.Publish.Start", "the stream is live");
    }

    /// Refuses the publish of the peer, which gets the reason.
    pub fn refuse(&mut self, reason: &str) {
        self.state = State::Commands;
        self.status("error", "NetStream.Publish.BadName", reason);
    }

    /// Tells the peer why the connection ends. A peer whose handshake is not complete is told nothing.
    pub fn fail(&mut self, reason: &str) {
        match self.state {
            State::Hello | State::Echo => {}
            State::Commands | State::Asked => self.status("error", "NetConnection.Call.Failed", reason),
            State::Publishing => self.status("error", "NetStream.Publish.Failed", reason),
        }
    }

    /// Answers the handshake; false if it is not complete. The answer has no digest, since no encoder needs one.
    fn hello(&mut self) -> Result<bool, SessionError> {
        if let Some(&first) = self.input.first()
            && first != 3
        {
            return Err(SessionError::NotRtmp(first));
        }
        if self.input.len() < 1 + HANDSHAKE {
            return Ok(false);
        }
        let hello = self.input.split_to(1 + HANDSHAKE);
        self.output.push(3);
        self.output.resize(self.output.len() + HANDSHAKE, 0);
        self.output.extend_from_slice(&hello[1..]);
        Ok(true)
    }

    fn message(&mut self, message: Message) -> Result<Option<SessionEvent>, SessionError> {
        let Message { kind, stream, timestamp, payload } = message;
        let word =
            || payload.first_chunk().copied().map(u32::from_be_bytes).ok_or(SessionError::Control(kind));
        match kind {
            1 => self.reader.set_chunk(word()?)?,
            2 => self.reader.abort(word()?),
            5 => self.window = u64::from(word()?.clamp(64 << 10, WINDOW)),
            4 => self.ping(&payload),
            8 | 9 | 22 if self.state != State::Publishing => return Err(SessionError::Early),
            8 => return Ok(Some(SessionEvent::Audio { timestamp, payload })),
            9 => return Ok(Some(SessionEvent::Video { timestamp, payload })),
            18 => return Ok(tracks(&payload)),
            20 => return self.command(stream, &payload),
            // Commands and data in AMF3 begin with a byte of their own, and are AMF0 after it.
            17 => return self.command(stream, payload.get(1..).unwrap_or(&[])),
            15 => return Ok(tracks(payload.get(1..).unwrap_or(&[]))),
            22 => self.aggregate = Aggregate { rest: payload, timestamp, first: None },
            _ => {}
        }
        Ok(None)
    }

    /// Answers a ping request.
    fn ping(&mut self, payload: &[u8]) {
        if let [0, 6, time @ ..] = payload
            && time.len() == 4
        {
            chunks::write(2, 4, 0, &[&[0, 7], time].concat(), &mut self.output);
        }
    }

    fn command(&mut self, stream: u32, payload: &[u8]) -> Result<Option<SessionEvent>, SessionError> {
        let values = if payload.len() > MAX_COMMAND { None } else { amf::decode(payload) };
        let values = values.ok_or(SessionError::Command)?;
        let name = values.first().and_then(Value::text).ok_or(SessionError::Command)?;
        let transaction = values.get(1).and_then(Value::number).unwrap_or(0.0);
        match name {
            "connect" => self.connect(transaction, values.get(2)),
            "createStream" => self.result(transaction, Value::Null, Value::Number(f64::from(STREAM))),
            "releaseStream" | "FCPublish" | "_checkbw" => self.result(transaction, Value::Null, Value::Null),
            "play" | "play2" => return Err(SessionError::Play),
            "publish" => {
                if self.state != State::Commands {
                    return Err(SessionError::Twice);
                }
                let name = values.get(3).and_then(Value::text).ok_or(SessionError::Command)?.to_owned();
                (self.state, self.publish_stream) = (State::Asked, stream);
                return Ok(Some(SessionEvent::Publish { app: self.app.clone(), name }));
            }
            "FCUnpublish" | "deleteStream" | "closeStream" if self.state == State::Publishing => {
                self.state = State::Commands;
                return Ok(Some(SessionEvent::Unpublish));
            }
            _ => {}
        }
        Ok(None)
    }

    fn connect(&mut self, transaction: f64, object: Option<&Value>) {
        let app = object.and_then(|object| object.member("app")).and_then(Value::text).unwrap_or("");
        self.app = app.trim_matches('/').to_owned();
        chunks::write(2, 5, 0, &WINDOW.to_be_bytes(), &mut self.output);
        chunks::write(2, 6, 0, &[&WINDOW.to_be_bytes()[..], &[2]].concat(), &mut self.output);
        chunks::write(2, 1, 0, &(OUT_CHUNK as u32).to_be_bytes(), &mut self.output);
        let text = |text: &str| Value::Text(text.to_owned());
        let codecs = ["avc1", "hvc1", "av01", "mp4a"].map(text).to_vec();
        let server = vec![
            ("fmsVer".to_owned(), text("FMS/3,5,7,7009")),
            ("capabilities".to_owned(), Value::Number(31.0)),
            ("fourCcList".to_owned(), Value::List(codecs)),
        ];
        let information = vec![
            ("level".to_owned(), text("status")),
            ("code".to_owned(), text("NetConnection.Connect.Success")),
            ("description".to_owned(), text("connected")),
            ("objectEncoding".to_owned(), Value::Number(0.0)),
        ];
        self.result(transaction, Value::Object(server), Value::Object(information));
    }

    fn result(&mut self, transaction: f64, first: Value, second: Value) {
        self.send(0, &[Value::Text("_result".to_owned()), Value::Number(transaction), first, second]);
    }

    fn status(&mut self, level: &str, code: &str, description: &str) {
        let members = [("level", level), ("code", code), ("description", description)];
        let members = members.map(|(name, text)| (name.to_owned(), Value::Text(text.to_owned())));
        let values = [
            Value::Text("onStatus".to_owned()),
            Value::Number(0.0),
            Value::Null,
            Value::Object(members.to_vec()),
        ];
        self.send(self.publish_stream, &values);
    }

    fn send(&mut self, stream: u32, values: &[Value]) {
        let mut payload = Vec::new();
        values.iter().for_each(|value| amf::encode(value, &mut payload));
        chunks::write(3, 20, stream, &payload, &mut self.output);
    }
}

/// A message with several others: each has the head of an FLV tag before it, and its size behind it.
#[derive(Debug, Default)]
struct Aggregate {
    rest: Bytes,
    /// The time of the whole message, and in the heads that of its first one. Others are as much later as their heads say.
    timestamp: u32,
    first: Option<u32>,
}

impl Aggregate {
    /// The next message of audio, video or data. Others have no place in an aggregate, and are left out.
    fn next(&mut self) -> Result<Option<Message>, SessionError> {
        const HEAD: usize = 11;
        const SIZE: usize = 4;
        while !self.rest.is_empty() {
            let head: [u8; HEAD] = *self.rest.first_chunk().ok_or(SessionError::Aggregate)?;
            let [kind, high, middle, low, ..] = head;
            let end = HEAD + u32::from_be_bytes([0, high, middle, low]) as usize;
            if end > self.rest.len() {
                return Err(SessionError::Aggregate);
            }
            let payload = self.rest.split_to(end).slice(HEAD..);
            // The size behind the last one is left out by some.
            let _ = self.rest.split_to(SIZE.min(self.rest.len()));
            let own = u32::from_be_bytes([head[7], head[4], head[5], head[6]]);
            let since = own.wrapping_sub(*self.first.get_or_insert(own));
            if matches!(kind, 8 | 9 | 15 | 18) {
                let timestamp = self.timestamp.wrapping_add(since);
                return Ok(Some(Message { kind, stream: STREAM, timestamp, payload }));
            }
        }
        Ok(None)
    }
}

/// The tracks of the metadata, if the message is metadata.
fn tracks(payload: &[u8]) -> Option<SessionEvent> {
    let values = amf::decode(payload)?;
    let is_metadata = values.iter().take(2).any(|value| value.text() == Some("onMetaData"));
    let metadata = values.iter().find(|value| is_metadata && matches!(value, Value::Object(_)))?;
    let (video, audio) =
        (metadata.member("videocodecid").is_some(), metadata.member("audiocodecid").is_some());
    let kbit = |name| metadata.member(name).and_then(Value::number).unwrap_or(0.0).max(0.0);
    let bits_per_second = ((kbit("videodatarate") + kbit("audiodatarate")) * 1000.0) as u64;
    (video || audio).then_some(SessionEvent::Tracks { video, audio, bits_per_second })
}
