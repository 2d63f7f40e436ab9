//! The publisher's side of an RTMP connection, without I/O.

use bytes::BytesMut;

use super::amf::{self, Value};
use super::chunks::{self, ChunkStreamError, Message, OUT_CHUNK, Reader};

/// The bytes of each part of the handshake after the first byte.
const HANDSHAKE: usize = 1536;
/// The longest message that a server sends to a publisher.
const MAX_MESSAGE: usize = 64 << 10;
/// The most bytes between two acknowledgements, whatever the server's window is.
const WINDOW: u64 = 1 << 20;

/// The state of a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClientState {
    /// The server has not answered everything yet.
    Connecting,
    /// Media may be sent.
    Publishing,
}

/// Why a connection is over.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ClientError {
    /// The first byte is not RTMP's version.
    #[error("the server does not speak RTMP: it begins with {0:#04x}")]
    NotRtmp(u8),
    /// The server's chunk stream is damaged.
    #[error("the server's answer is damaged: {0}")]
    Chunks(#[from] ChunkStreamError),
    /// A message of the server is damaged.
    #[error("the server sent a damaged message of kind {0}")]
    Damaged(u8),
    /// The server refuses.
    #[error("the server refuses to take the stream: {0}")]
    Refused(String),
}

/// The steps, each of which waits for an answer of the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    Hello,
    Echo,
    Connect,
    Create,
    Publish,
    Publishing,
}

/// A publisher's connection.
///
/// ```
/// use rblive_ingest::rtmp::{Client, Session, SessionEvent};
///
/// let mut client = Client::new("live", "camera?key=secret", "rtmp://localhost/live");
/// let mut server = Session::new(1 << 20);
/// let event = loop {
///     server.receive(&client.take_output());
///     if let Some(event) = server.next_event()? {
///         break event;
///     }
///     client.receive(&server.take_output())?;
/// };
/// assert_eq!(event, SessionEvent::Publish { app: "live".into(), name: "camera?key=secret".into() });
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Client {
    step: Step,
    app: String,
    name: String,
    url: String,
    stream: u32,
    input: BytesMut,
    output: Vec<u8>,
    reader: Reader,
    received: u64,
    acknowledged: u64,
}

fn text(text: &str) -> Value {
    Value::Text(text.to_owned())
}

impl Client {
    /// A connection that publishes `name` in the application `app`. `url` is the address without the name.
    pub fn new(app: &str, name: &str, url: &str) -> Self {
        let mut output = vec![3];
        output.resize(1 + HANDSHAKE, 0);
        Self {
            step: Step::Hello,
            app: app.to_owned(),
            name: name.to_owned(),
            url: url.to_owned(),
            stream: 0,
            input: BytesMut::new(),
            output,
            reader: Reader::new(MAX_MESSAGE),
            received: 0,
            acknowledged: 0,
        }
    }

    /// Reads bytes of the server, and returns the state of the connection.
    ///
    /// # Errors
    /// [`ClientError`]: the connection is to be closed.
    pub fn receive(&mut self, bytes: &[u8]) -> Result<ClientState, ClientError> {
        self.received += bytes.len() as u64;
        self.input.extend_from_slice(bytes);
        loop {
            match self.step {
                Step::Hello if self.input.len() > HANDSHAKE => self.hello()?,
                Step::Echo if self.input.len() >= HANDSHAKE => {
                    let _ = self.input.split_to(HANDSHAKE);
                    self.connect();
                }
                Step::Hello | Step::Echo => break,
                _ => {
                    let Some(complete) = self.reader.chunk(&mut self.input)? else { break };
                    if let Some(message) = complete {
                        self.message(&message)?;
                    }
                }
            }
        }
        if self.received - self.acknowledged >= WINDOW {
            self.acknowledged = self.received;
            chunks::write(2, 3, 0, &(self.received as u32).to_be_bytes(), &mut self.output);
        }
        let publishing = self.step == Step::Publishing;
        Ok(if publishing { ClientState::Publishing } else { ClientState::Connecting })
    }

    /// Takes the bytes to send to the server since the last call.
    pub fn take_output(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.output)
    }

    /// Sends a message of video, as in an FLV tag. Before the server accepts media, the message is dropped.
    pub fn video(&mut self, timestamp_ms: u32, payload: &[u8]) {
        if self.step == Step::Publishing {
            chunks::write_at(timestamp_ms, 6, 9, self.stream, payload, &mut self.output);
        }
    }

    /// Announces the codecs of the stream, by the numbers of FLV: 7 is H.264, 10 is AAC.
    pub fn metadata(&mut self, video: Option<u8>, audio: Option<u8>) {
        let codecs = [("videocodecid", video), ("audiocodecid", audio)];
        let member = |(name, codec): (&str, Option<u8>)| {
            codec.map(|codec| (name.to_owned(), Value::Number(f64::from(codec))))
        };
        let members = codecs.into_iter().filter_map(member).collect();
        let mut payload = Vec::new();
        for value in [text("@setDataFrame"), text("onMetaData"), Value::Object(members)] {
            amf::encode(&value, &mut payload);
        }
        chunks::write(4, 18, self.stream, &payload, &mut self.output);
    }

    /// Ends the stream.
    pub fn end(&mut self) {
        self.command("deleteStream", 0.0, &[Value::Null, Value::Number(f64::from(self.stream))]);
    }

    fn hello(&mut self) -> Result<(), ClientError> {
        let hello = self.input.split_to(1 + HANDSHAKE);
        if hello[0] != 3 {
            return Err(ClientError::NotRtmp(hello[0]));
        }
        self.output.extend_from_slice(&hello[1..]);
        self.step = Step::Echo;
        Ok(())
    }

    fn connect(&mut self) {
        chunks::write(2, 1, 0, &(OUT_CHUNK as u32).to_be_bytes(), &mut self.output);
        let members =
            [("app", &self.app[..]), ("type", "nonprivate"), ("flashVer", "FMLE/3.0"), ("tcUrl", &self.url)];
        let members = members.map(|(name, value)| (name.to_owned(), text(value)));
        self.command("connect", 1.0, &[Value::Object(members.to_vec())]);
        self.step = Step::Connect;
    }

    fn message(&mut self, message: &Message) -> Result<(), ClientError> {
        let payload = &message.payload;
        let damaged = || ClientError::Damaged(message.kind);
        match message.kind {
            1 => {
                let size = payload.first_chunk().copied().map(u32::from_be_bytes).ok_or_else(damaged)?;
                self.reader.set_chunk(size)?;
            }
            4 => {
                if let [0, 6, time @ ..] = &payload[..] {
                    chunks::write(2, 4, 0, &[&[0, 7], time].concat(), &mut self.output);
                }
            }
            20 => self.answer(&amf::decode(payload).ok_or_else(damaged)?)?,
            _ => {}
        }
        Ok(())
    }

    fn answer(&mut self, values: &[Value]) -> Result<(), ClientError> {
        let name = values.first().and_then(Value::text).unwrap_or("");
        let transaction = values.get(1).and_then(Value::number).unwrap_or(0.0);
        let said =
            |member| values.get(3).and_then(|own| own.member(member)).and_then(Value::text).unwrap_or("");
        let fails = name == "_error" || (name == "onStatus" && said("level") == "error");
        if fails && self.step != Step::Publishing {
            return Err(ClientError::Refused(
                format!("{} {}", said("code"), said("description")).trim().to_owned(),
            ));
        }
        match (self.step, name) {
            (Step::Connect, "_result") if transaction == 1.0 => {
                self.command("createStream", 2.0, &[Value::Null]);
                self.step = Step::Create;
            }
            (Step::Create, "_result") if transaction == 2.0 => {
                let stream = values.get(3).and_then(Value::number).ok_or(ClientError::Damaged(20))?;
                self.stream = stream as u32;
                let arguments = [Value::Null, text(&self.name), text("live")];
                self.command("publish", 3.0, &arguments);
                self.step = Step::Publish;
            }
            (Step::Publish, "onStatus") => self.step = Step::Publishing,
            _ => {}
        }
        Ok(())
    }

    fn command(&mut self, name: &str, transaction: f64, arguments: &[Value]) {
        let mut payload = Vec::new();
        amf::encode(&text(name), &mut payload);
        amf::encode(&Value::Number(transaction), &mut payload);
        arguments.iter().for_each(|value| amf::encode(value, &mut payload));
        chunks::write(3, 20, self.stream, &payload, &mut self.output);
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Session, SessionEvent};
    use super::*;

    /// Moves bytes in pieces of `piece` bytes until the server has an event.
    fn until_event(
        client: &mut Client,
        server: &mut Session,
        piece: usize,
    ) -> Result<SessionEvent, ClientError> {
        for _ in 0..20 {
            for bytes in client.take_output().chunks(piece) {
                server.receive(bytes);
                if let Some(event) = server.next_event().unwrap() {
                    return Ok(event);
                }
            }
            for bytes in server.take_output().chunks(piece) {
                client.receive(bytes)?;
            }
        }
        panic!("the two come to an end")
    }

    #[test]
    fn a_server_gets_what_is_published() {
        for piece in [1, 100, 1 << 20] {
            let mut client = Client::new("live", "camera", "rtmp://a/live");
            let mut server = Session::new(1 << 20);
            client.video(0, &[1]);
            let publish = until_event(&mut client, &mut server, piece).unwrap();
            assert_eq!(publish, SessionEvent::Publish { app: "live".into(), name: "camera".into() });
            server.accept();
            assert_eq!(client.receive(&server.take_output()), Ok(ClientState::Publishing));
            client.metadata(Some(7), None);
            let tracks = until_event(&mut client, &mut server, piece).unwrap();
            assert_eq!(tracks, SessionEvent::Tracks { video: true, audio: false, bits_per_second: 0 });
            for timestamp in [0, 40, 0xFF_FFFE, 0xFF_FFFF, 0x1234_5678] {
                let payload: Vec<u8> = (0..10_000_u32).map(|byte| byte as u8).collect();
                client.video(timestamp, &payload);
                let event = until_event(&mut client, &mut server, piece).unwrap();
                assert_eq!(event, SessionEvent::Video { timestamp, payload: payload.into() });
            }
            client.end();
            assert_eq!(until_event(&mut client, &mut server, piece).unwrap(), SessionEvent::Unpublish);
        }
    }

    #[test]
    fn a_refusal_has_its_reason() {
        let mut client = Client::new("live", "camera", "rtmp://a/live");
        let mut server = Session::new(1 << 20);
        until_event(&mut client, &mut server, 1000).unwrap();
        server.refuse("the key is wrong");
        let refused = client.receive(&server.take_output()).unwrap_err();
        assert!(refused.to_string().contains("the key is wrong"), "{refused}");
        let mut client = Client::new("live", "camera", "rtmp://a/live");
        assert_eq!(client.receive(&[b'H'; 2000]), Err(ClientError::NotRtmp(b'H')));
    }
}
