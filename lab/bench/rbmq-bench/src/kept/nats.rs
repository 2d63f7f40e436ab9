//! NATS: a stream of `JetStream`, in files.

use std::fs;
use std::io::Write;
use std::path::Path;

use benchkit::server::{self, Start};

use super::parts::{Incoming, Kept, Messages, Server, pipeline};
use crate::error::BenchError;

const PEER: &str = "nats-server";

/// By default the server ends a subscriber that has 64 MiB before it, which a replay at full speed has.
const LIMITS: &str = "max_pending: 4GB\nwrite_deadline: \"60s\"\n";

pub(super) struct Nats;

/// # Errors
/// NATS is not there, or does not start.
pub(super) fn start(folder: &Path) -> Result<Server, BenchError> {
    let program = server::find(PEER).ok_or(BenchError::NotInstalled { peer: "NATS" })?;
    Server::start(folder, PEER, |folder, port| {
        let config = folder.join("nats.conf");
        // A server that cannot write its configuration says so in its log.
        let _ = fs::write(&config, LIMITS);
        let (config, port) = (config.display().to_string(), port.to_string());
        let folder = folder.join("stream").display().to_string();
        let args = ["-c", &config, "-a", "127.0.0.1", "-p", &port, "-js", "-sd", &folder];
        Start { program: program.clone(), args: args.map(str::to_owned).into(), env: Vec::new() }
    })
}

fn said(line: String) -> BenchError {
    BenchError::PeerSaid { peer: PEER, said: line }
}

impl Incoming {
    /// The next message, for whatever subject; answers to PING and other lines are passed over.
    fn message(&mut self) -> Result<&[u8], BenchError> {
        loop {
            let line = self.line()?;
            if line.starts_with("MSG ") {
                let size = line.rsplit(' ').next().and_then(|size| size.parse().ok());
                return self.exact(size.ok_or_else(|| said(line.clone()))?);
            }
            if line == "PING" {
                self.socket.write_all(b"PONG\r\n")?;
            } else if line.starts_with("-ERR") {
                return Err(said(line));
            }
        }
    }

    /// An answer of the server to a request, which is no error.
    fn answer(&mut self) -> Result<(), BenchError> {
        let text = String::from_utf8_lossy(self.message()?).into_owned();
        if text.contains("\"error\"") { Err(said(text)) } else { Ok(()) }
    }
}

fn request(subject: &str, body: &str) -> String {
    format!("SUB answer 1\r\nPUB {subject} answer {}\r\n{body}\r\n", body.len())
}

const CONNECT: &str = "CONNECT {\"verbose\":false,\"pedantic\":false}\r\n";

impl Kept for Nats {
    fn write(&self, server: &Server, messages: &mut Messages) -> Result<(), BenchError> {
        let mut socket = server.connect()?;
        let mut answers = Incoming::new(socket.try_clone()?);
        let stream = r#"{"name":"M","subjects":["m"],"storage":"file"}"#;
        socket.write_all((CONNECT.to_owned() + &request("$JS.API.STREAM.CREATE.M", stream)).as_bytes())?;
        answers.answer()?;
        let head = format!("PUB m answer {}\r\n", messages.payload.len());
        pipeline(socket, answers, messages, &head, Incoming::answer)
    }

    fn replay(&self, server: &Server, messages: &Messages) -> Result<(), BenchError> {
        let mut socket = server.connect()?;
        let mut incoming = Incoming::new(socket.try_clone()?);
        let consumer = r#"{"stream_name":"M","config":{"deliver_subject":"d","ack_policy":"none","deliver_policy":"all"}}"#;
        let text = format!("{CONNECT}SUB d 2\r\n{}", request("$JS.API.CONSUMER.CREATE.M", consumer));
        socket.write_all(text.as_bytes())?;
        let mut at = 0;
        while at < messages.count {
            let message = incoming.message()?;
            // The answer to the request comes between.
            if message.first() == Some(&b'{') && message.len() != messages.payload.len() {
                continue;
            }
            messages.check(at, message)?;
            at += 1;
        }
        Ok(())
    }
}
