//! Where `sub` puts what it receives.

use std::collections::HashMap;
use std::io::{BufWriter, StdoutLock, Write};
use std::path::Path;
use std::time::{Duration, Instant};

use rbmq::{Batch, Framing, ReceiveError, TopicName};
use rocketbufs::{Epoch, Position};

use super::Failure;
use super::files::{OutputFile, file_name};
use super::stop::Stop;

/// How messages are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Format {
    pub(super) json: bool,
    pub(super) print_topic: bool,
}

/// The output of a subscriber.
pub(super) enum Sink {
    Stdout(BufWriter<StdoutLock<'static>>, Format),
    Files(HashMap<TopicName, OutputFile>, Format),
}

impl Sink {
    pub(super) fn stdout(format: Format) -> Self {
        Self::Stdout(BufWriter::with_capacity(64 << 10, std::io::stdout().lock()), format)
    }

    /// One file for each topic: `output` itself, or files in it if it is a directory.
    pub(super) fn files(output: &Path, topics: &[TopicName], format: Format) -> Result<Self, Failure> {
        let directory = output.is_dir();
        if topics.len() > 1 && !directory {
            return Err(Failure::Failed(format!(
                "{} topics need a directory to write to, and {} is none; make it, or receive one topic",
                topics.len(),
                output.display()
            )));
        }
        let open = |topic: &TopicName| {
            let path = if directory { output.join(file_name(topic)) } else { output.to_owned() };
            Ok((topic.clone(), OutputFile::open(&path, topic)?))
        };
        Ok(Self::Files(topics.iter().map(open).collect::<Result<_, _>>()?, format))
    }

    /// Where a topic goes on, if it does.
    pub(super) fn positions(&self, topic: &TopicName) -> Option<Vec<(Epoch, Position)>> {
        match self {
            Self::Stdout(..) => None,
            Self::Files(files, _) => files.get(topic).and_then(OutputFile::positions),
        }
    }

    /// Writes a batch, at most `most` messages of it; returns how many. `pace` is told of every message's bytes.
    pub(super) fn write(&mut self, batch: Batch<'_>, most: u64, pace: &mut Pace<'_>) -> Result<u64, Failure> {
        let (count, end) = {
            let format = match self {
                Self::Stdout(_, format) | Self::Files(_, format) => *format,
            };
            let piece = pace.piece();
            let mut line = Vec::new();
            let mut put = |message: &[u8], at: Position| {
                line.clear();
                format.line(&batch, message, at, &mut line);
                self.put(batch.topic(), &line)?;
                pace.spend(message.len());
                Ok::<(), Failure>(())
            };
            match batch.framing() {
                Framing::Raw => {
                    for (n, bytes) in batch.as_slice().chunks(piece).enumerate() {
                        put(bytes, batch.position() + (n * piece) as u64)?;
                    }
                    (1, batch.end())
                }
                Framing::Records => {
                    let mut records = batch.records();
                    let mut count = 0;
                    while count < most
                        && let Some(record) = records.next()
                    {
                        count += 1;
                        put(record, batch.position() + (records.offset() - record.len() - 4) as u64)?;
                    }
                    if let (true, Some(error)) = (count < most, records.malformed()) {
                        let topic = batch.topic().clone();
                        return Err(Failure::failed(ReceiveError::Malformed { topic, error }));
                    }
                    (count, batch.position() + records.offset() as u64)
                }
            }
        };
        if let Self::Files(files, _) = self {
            let (topic, epoch) = (batch.topic().clone(), batch.epoch());
            if let Some(file) = files.get_mut(&topic) {
                file.reached(epoch, end, batch.keep())?;
            }
        }
        Ok(count)
    }

    fn put(&mut self, topic: &TopicName, bytes: &[u8]) -> Result<(), Failure> {
        match self {
            Self::Stdout(out, _) => out.write_all(bytes).map_err(|e| Failure::output(&e)),
            Self::Files(files, _) => files.get_mut(topic).map_or(Ok(()), |file| file.write(bytes)),
        }
    }

    /// Whether something is written that [`Sink::settle`] would push on.
    pub(super) fn is_pending(&self) -> bool {
        match self {
            Self::Stdout(out, _) => !out.buffer().is_empty(),
            Self::Files(files, _) => files.values().any(OutputFile::is_pending),
        }
    }

    /// There is nothing else to do now: pushes out and records what was written.
    pub(super) fn settle(&mut self) -> Result<(), Failure> {
        match self {
            Self::Stdout(out, _) => out.flush().map_err(|e| Failure::output(&e)),
            Self::Files(files, _) => files.values_mut().try_for_each(OutputFile::record),
        }
    }
}

impl Format {
    fn line(self, batch: &Batch<'_>, message: &[u8], at: Position, line: &mut Vec<u8>) {
        if self.json {
            let mut object = serde_json::json!({
                "topic": batch.topic().as_str(),
                "epoch": batch.epoch().to_string(),
                "position": at,
            });
            match std::str::from_utf8(message) {
                Ok(text) => object["text"] = text.into(),
                // What is no text is given byte by byte: JSON has no bytes.
                Err(_) => object["bytes"] = message.into(),
            }
            line.extend_from_slice(object.to_string().as_bytes());
            line.push(b'\n');
            return;
        }
        if batch.framing() == Framing::Raw {
            line.extend_from_slice(message);
            return;
        }
        if self.print_topic {
            line.extend_from_slice(batch.topic().as_str().as_bytes());
            line.push(b'\t');
        }
        line.extend_from_slice(message);
        line.push(b'\n');
    }
}

/// Holds a subscriber to a number of bytes per second.
pub(super) struct Pace<'a> {
    rate: Option<f64>,
    stop: &'a Stop,
    /// When what was spent is paid for.
    due: Instant,
}

impl<'a> Pace<'a> {
    pub(super) fn new(bytes_per_second: Option<u64>, stop: &'a Stop) -> Self {
        Self { rate: bytes_per_second.map(|rate| rate.max(1) as f64), stop, due: Instant::now() }
    }

    /// How many raw bytes to write at a time.
    fn piece(&self) -> usize {
        match self.rate {
            None => usize::MAX,
            Some(rate) => ((rate / 50.0) as usize).clamp(1, 1 << 20),
        }
    }

    fn spend(&mut self, bytes: usize) {
        let Some(rate) = self.rate else { return };
        let now = Instant::now();
        self.due = self.due.max(now) + Duration::from_secs_f64(bytes as f64 / rate);
        let ahead = self.due.saturating_duration_since(now);
        if ahead > Duration::from_millis(20) && !self.stop.asked() {
            self.stop.wait(Some(ahead));
        }
    }
}
