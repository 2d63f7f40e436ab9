//! NATS: a stream of `JetStream`, in files.

use std::io::Write;

use benchkit::lines::{CONNECT, Lines, request};

use super::parts::{BUFFER, Kept, Load, connect, pipeline};
use crate::{error::BenchError, peers::Guard};

pub(super) struct Nats;

impl Kept for Nats {
    fn write(&self, server: &Guard, load: &mut Load) -> Result<(), BenchError> {
        let mut socket = connect(server)?;
        let mut answers = Lines::new(BUFFER, socket.try_clone()?);
        let stream = r#"{"name":"M","subjects":["m"],"storage":"file"}"#;
        socket.write_all((CONNECT.to_owned() + &request("$JS.API.STREAM.CREATE.M", stream)).as_bytes())?;
        answers.answer()?;
        pipeline(socket, answers, load, &format!("PUB m answer {}\r\n", load.size), Lines::answer)
    }

    fn replay(&self, server: &Guard, load: &Load) -> Result<(), BenchError> {
        let mut socket = connect(server)?;
        let mut incoming = Lines::new(BUFFER, socket.try_clone()?);
        let consumer = r#"{"stream_name":"M","config":{"deliver_subject":"d","ack_policy":"none","deliver_policy":"all"}}"#;
        let text = format!("{CONNECT}SUB d 2\r\n{}", request("$JS.API.CONSUMER.CREATE.M", consumer));
        socket.write_all(text.as_bytes())?;
        let mut at = 0;
        while at < load.count {
            let message = incoming.message()?;
            // The answer to the request comes between.
            if message.first() == Some(&b'{') && message.len() != load.size {
                continue;
            }
            load.check(at, message)?;
            at += 1;
        }
        Ok(())
    }
}
