//! RBMQ: a kept topic.

use std::path::Path;

use benchkit::server::{self, Start};
use rbmq::{ConfirmLevel, Publisher, StartFrom, Subscriber};

use super::parts::{ANSWER_WITHIN, Kept, Messages, Server, UNCONFIRMED};
use crate::error::BenchError;

pub(super) struct Rbmq;

/// # Errors
/// The command is not there, or does not start.
pub(super) fn start(folder: &Path, command: Option<&Path>) -> Result<Server, BenchError> {
    let beside = || Some(std::env::current_exe().ok()?.with_file_name("rbmq")).filter(|path| path.is_file());
    let program = command.map(Path::to_owned).or_else(beside).or_else(|| server::find("rbmq"));
    let program = program.and_then(|path| path.canonicalize().ok());
    let program = program.ok_or(BenchError::NotInstalled { peer: "the command rbmq" })?;
    Server::start(folder, "rbmq", |folder, port| {
        let keep = folder.join("kept").display().to_string();
        let args = ["serve", "--quiet", "--listen", &format!("127.0.0.1:{port}"), "--keep", &keep];
        Start { program: program.clone(), args: args.map(str::to_owned).into(), env: Vec::new() }
    })
}

fn failed(error: impl std::error::Error + Send + Sync + 'static) -> BenchError {
    BenchError::System(Box::new(error))
}

impl Kept for Rbmq {
    fn write(&self, server: &Server, messages: &mut Messages) -> Result<(), BenchError> {
        let publisher = Publisher::connect(&server.addr()).map_err(failed)?;
        let mut writer = publisher.topic("m").map_err(failed)?;
        let mut asked = std::collections::VecDeque::new();
        for number in 0..messages.count {
            writer.publish(messages.numbered(number)).map_err(failed)?;
            if number % (UNCONFIRMED / 4) == 0 {
                asked.push_back(writer.position());
            }
            if asked.len() == 4
                && let Some(position) = asked.pop_front()
            {
                writer.confirm(position, ConfirmLevel::Accepted, Some(ANSWER_WITHIN)).map_err(failed)?;
            }
        }
        let end = writer.position();
        writer.confirm(end, ConfirmLevel::Accepted, Some(ANSWER_WITHIN)).map_err(failed)?;
        Ok(())
    }

    fn replay(&self, server: &Server, messages: &Messages) -> Result<(), BenchError> {
        let mut subscriber = Subscriber::connect(&server.addr()).map_err(failed)?;
        subscriber.subscribe_from("m", StartFrom::Oldest).map_err(failed)?;
        for number in 0..messages.count {
            let message = subscriber.recv(Some(ANSWER_WITHIN)).map_err(failed)?;
            messages.check(number, message.as_ref().map_or(&[], |message| &message.bytes))?;
        }
        Ok(())
    }
}
