//! Where `sub` puts what it receives.

use std::io::{BufWriter, StdoutLock, Write};
use std::path::Path;
use std::time::{Duration, Instant};

use rbmq::wire::UnpackError;
use rbmq::{Batch, Framing, ReceiveError, TopicFilter, TopicName};
use rocketbufs::{Epoch, Position};
use tracing::warn;

use super::Failure;
use super::outputs::Outputs;
use super::stop::Stop;

/// How messages are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Format {
    pub(super) json: bool,
    pub(super) print_topic: bool,
}

/// What was written of a batch.
struct Written {
    count: u64,
    /// Where one can go on.
    end: Position,
    /// Bytes that were written and lie behind that: those of a run of a merged topic of which there is more.
    loose: u64,
}

/// The output of a subscriber.
pub(super) enum Sink {
    Stdout(BufWriter<StdoutLock<'static>>, Format),
    Files(Outputs, Format),
}

impl Sink {
    pub(super) fn stdout(format: Format) -> Self {
        Self::Stdout(BufWriter::with_capacity(64 << 10, std::io::stdout().lock()), format)
    }

    /// One file for each topic: `output` itself, or files in it if it is a directory.
    pub(super) fn files(output: &Path, filters: &[TopicFilter], format: Format) -> Result<Self, Failure> {
        Ok(Self::Files(Outputs::new(output, filters)?, format))
    }

    /// Where the topics that a filter matches go on, if they do.
    pub(super) fn positions(&self, filter: &TopicFilter) -> Option<Vec<(Epoch, Position)>> {
        match self {
            Self::Stdout(..) => None,
            Self::Files(outputs, _) => outputs.positions(filter),
        }
    }

    /// A log of a topic begins at a position.
    pub(super) fn begin(&mut self, topic: &TopicName, epoch: Epoch, start: Position) -> Result<(), Failure> {
        match self {
            Self::Stdout(..) => Ok(()),
            Self::Files(outputs, _) => outputs.begin(topic, epoch, start),
        }
    }

    /// Writes a batch, at most `most` messages of it; returns how many. `pace` is told of every message's bytes.
    pub(super) fn write(&mut self, batch: Batch<'_>, most: u64, pace: &mut Pace<'_>) -> Result<u64, Failure> {
        let written = match batch.framing() {
            Framing::Raw => self.write_raw(&batch, pace)?,
            Framing::Records | Framing::Merged => self.write_records(&batch, most, pace)?,
        };
        if let Self::Files(outputs, _) = self {
            let (topic, epoch) = (batch.topic().clone(), batch.epoch());
            outputs.reached(&topic, (epoch, written.end), written.loose, batch.keep())?;
        }
        Ok(written.count)
    }

    fn write_raw(&mut self, batch: &Batch<'_>, pace: &mut Pace<'_>) -> Result<Written, Failure> {
        let piece = pace.piece();
        for (n, bytes) in batch.as_slice().chunks(piece).enumerate() {
            self.put_line(batch, (bytes, None), batch.position() + (n * piece) as u64, pace)?;
        }
        Ok(Written { count: 1, end: batch.end(), loose: 0 })
    }

    fn write_records(
        &mut self,
        batch: &Batch<'_>,
        most: u64,
        pace: &mut Pace<'_>,
    ) -> Result<Written, Failure> {
        let mut written = Written { count: 0, end: batch.position(), loose: 0 };
        let mut pieces = batch.pieces();
        while written.count < most {
            let piece = match pieces.next() {
                Some(Ok(piece)) => piece,
                // One publisher's fault, in a topic of many: the others go on.
                Some(Err(error @ ReceiveError::Malformed { error: UnpackError::Publisher { .. }, .. })) => {
                    warn!("{error}");
                    continue;
                }
                Some(Err(error)) => return Err(Failure::failed(error)),
                None => {
                    (written.end, written.loose) = (batch.end(), 0);
                    break;
                }
            };
            let at = batch.position() + piece.from as u64;
            written.loose += self.put_line(batch, (piece.record, piece.publisher), at, pace)?;
            written.count += 1;
            if piece.to > piece.from {
                (written.end, written.loose) = (batch.position() + piece.to as u64, 0);
            }
        }
        Ok(written)
    }

    /// Writes one message; returns how many bytes it is.
    fn put_line(
        &mut self,
        batch: &Batch<'_>,
        message: (&[u8], Option<u32>),
        at: Position,
        pace: &mut Pace<'_>,
    ) -> Result<u64, Failure> {
        let (Self::Stdout(_, format) | Self::Files(_, format)) = self;
        let mut line = Vec::with_capacity(message.0.len() + 1);
        format.line(batch, message, at, &mut line);
        self.put(batch.topic(), &line)?;
        pace.spend(message.0.len());
        Ok(line.len() as u64)
    }

    fn put(&mut self, topic: &TopicName, bytes: &[u8]) -> Result<(), Failure> {
        match self {
            Self::Stdout(out, _) => out.write_all(bytes).map_err(|e| Failure::output(&e)),
            Self::Files(outputs, _) => outputs.write(topic, bytes),
        }
    }

    /// Whether something is written that [`Sink::settle`] would push on.
    pub(super) fn is_pending(&self) -> bool {
        match self {
            Self::Stdout(out, _) => !out.buffer().is_empty(),
            Self::Files(outputs, _) => outputs.is_pending(),
        }
    }

    /// There is nothing else to do now: pushes out and records what was written.
    pub(super) fn settle(&mut self) -> Result<(), Failure> {
        match self {
            Self::Stdout(out, _) => out.flush().map_err(|e| Failure::output(&e)),
            Self::Files(outputs, _) => outputs.record(),
        }
    }
}

impl Format {
    fn line(
        self,
        batch: &Batch<'_>,
        (message, publisher): (&[u8], Option<u32>),
        at: Position,
        line: &mut Vec<u8>,
    ) {
        if self.json {
            let mut object = serde_json::json!({
                "topic": batch.topic().as_str(),
                "epoch": batch.epoch().to_string(),
                "position": at,
            });
            if let Some(publisher) = publisher {
                object["publisher"] = publisher.into();
            }
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
