//! Redis: a stream in the append-only file.

use std::io::Write;
use std::path::Path;

use benchkit::server::{self, Start};

use super::parts::{Incoming, Kept, Messages, Server, pipeline};
use crate::error::BenchError;

const PEER: &str = "redis";
/// Entries that are asked for at once.
const ENTRIES: u64 = 4096;

pub(super) struct Redis;

/// # Errors
/// Redis is not there, or does not start.
pub(super) fn start(folder: &Path) -> Result<Server, BenchError> {
    let program = server::find("redis-server").ok_or(BenchError::NotInstalled { peer: "Redis" })?;
    Server::start(folder, PEER, |folder, port| {
        let (port, folder) = (port.to_string(), folder.display().to_string());
        let args = ["--port", &port, "--bind", "127.0.0.1", "--dir", &folder, "--save", ""];
        let mut args: Vec<String> = args.map(str::to_owned).into();
        args.extend(["--appendonly", "yes", "--appendfsync", "everysec"].map(str::to_owned));
        Start { program: program.clone(), args, env: Vec::new() }
    })
}

/// RBMQ's gateway, with every topic kept.
///
/// # Errors
/// It does not start.
pub(super) fn start_gateway(folder: &Path) -> Result<Server, BenchError> {
    let program = std::env::current_exe()?;
    Server::start(folder, "resp", |folder, port| {
        let (listen, keep) = (format!("127.0.0.1:{port}"), folder.join("kept").display().to_string());
        let args = ["worker", "gateway", "--protocol", "resp", "--listen", &listen, "--keep", &keep];
        Start { program: program.clone(), args: args.map(str::to_owned).into(), env: Vec::new() }
    })
}

fn said(line: String) -> BenchError {
    BenchError::PeerSaid { peer: PEER, said: line }
}

/// The number in a line that begins with a type.
fn number(line: &str, kind: char) -> Result<usize, BenchError> {
    line.strip_prefix(kind).and_then(|rest| rest.parse().ok()).ok_or_else(|| said(line.to_owned()))
}

impl Kept for Redis {
    fn write(&self, server: &Server, messages: &mut Messages) -> Result<(), BenchError> {
        let socket = server.connect()?;
        let answers = Incoming::new(socket.try_clone()?);
        let head =
            format!("*5\r\n$4\r\nXADD\r\n$1\r\nm\r\n$1\r\n*\r\n$1\r\np\r\n${}\r\n", messages.payload.len());
        pipeline(socket, answers, messages, &head, |answers| {
            let length = number(&answers.line()?, '$')?;
            answers.exact(length).map(drop)
        })
    }

    fn replay(&self, server: &Server, messages: &Messages) -> Result<(), BenchError> {
        let mut socket = server.connect()?;
        let mut answers = Incoming::new(socket.try_clone()?);
        let (mut last, mut at) = ("0-0".to_owned(), 0);
        while at < messages.count {
            let count = ENTRIES.to_string();
            let words = ["XREAD", "COUNT", &count, "STREAMS", "m", &last];
            let mut text = format!("*{}\r\n", words.len());
            words.iter().for_each(|word| text += &format!("${}\r\n{word}\r\n", word.len()));
            socket.write_all(text.as_bytes())?;
            // A list of streams, each its name and a list of entries.
            for kind in ["*1", "*2", "$1", "m"] {
                let line = answers.line()?;
                if line != kind {
                    return Err(said(line));
                }
            }
            for _ in 0..number(&answers.line()?, '*')? {
                answers.line()?;
                let length = number(&answers.line()?, '$')?;
                last = String::from_utf8_lossy(answers.exact(length)?).into_owned();
                for _ in 0..3 {
                    answers.line()?;
                }
                let length = number(&answers.line()?, '$')?;
                messages.check(at, answers.exact(length)?)?;
                at += 1;
            }
        }
        Ok(())
    }
}
