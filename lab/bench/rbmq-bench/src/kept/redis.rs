//! Redis: a stream in the append-only file; and RBMQ's gateway for its clients.

use std::io::Write;

use benchkit::lines::{Lines, command};

use super::parts::{BUFFER, Kept, Load, connect, pipeline};
use crate::{error::BenchError, peers::Guard};

/// Entries that are asked for at once.
const ENTRIES: &[u8] = b"4096";

pub(super) struct Redis;

impl Kept for Redis {
    fn write(&self, server: &Guard, load: &mut Load) -> Result<(), BenchError> {
        let socket = connect(server)?;
        let answers = Lines::new(BUFFER, socket.try_clone()?);
        let head = format!("*5\r\n$4\r\nXADD\r\n$1\r\nm\r\n$1\r\n*\r\n$1\r\np\r\n${}\r\n", load.size);
        pipeline(socket, answers, load, &head, |answers| answers.bulk().map(drop))
    }

    fn replay(&self, server: &Guard, load: &Load) -> Result<(), BenchError> {
        let mut socket = connect(server)?;
        let mut answers = Lines::new(BUFFER, socket.try_clone()?);
        let (mut last, mut at, mut request) = (b"0-0".to_vec(), 0, Vec::new());
        while at < load.count {
            request.clear();
            command(&[b"XREAD", b"COUNT", ENTRIES, b"STREAMS", b"m", &last], &mut request);
            socket.write_all(&request)?;
            // A list of streams, each its name and a list of entries: each its id, and a list of a field and its value.
            answers.number('*')?;
            answers.number('*')?;
            answers.bulk()?;
            for _ in 0..answers.number('*')? {
                answers.number('*')?;
                last.clone_from(answers.bulk()?);
                answers.number('*')?;
                answers.bulk()?;
                load.check(at, answers.bulk()?)?;
                at += 1;
            }
        }
        Ok(())
    }
}
