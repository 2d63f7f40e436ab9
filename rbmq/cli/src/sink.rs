//! The output of `sub`: standard output, or files.

use std::path::Path;
use std::time::{Duration, Instant};

use commands::{Failure, Stdout, Stop};
use rbmq::wire::{Piece, UnpackError};
use rbmq::{Attributes, Batch, DeferredBatch, Framing, ReceiveError, Space, TopicFilter, TopicName};
use rocketbufs::{Epoch, Position};
use serde::Serialize;
use tracing::warn;

use super::attributes::Said;
use super::outputs::Outputs;

/// Lines are gathered up to this size before a write, as long as more messages wait.
const GATHERED_BYTES: usize = 64 << 10;

/// How messages are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Format {
    pub(super) json: bool,
    pub(super) print_topic: bool,
}

/// The written part of a batch.
struct Written {
    count: u64,
    /// The position at which a later run can resume.
    end: Position,
    /// Written bytes behind `end`: those of an incomplete run of a merged topic.
    loose: u64,
    /// The written pieces of the rest of the batch, and how many of them are behind `end`.
    pieces: usize,
    open: usize,
}

/// The output of a subscriber.
pub(super) struct Sink<'a> {
    to: To<'a>,
    format: Format,
    /// Lines that are not written yet. Lines for a file are of one batch.
    lines: Vec<u8>,
    /// The batches of the lines for standard output, and the positions up to which to consume them after the write.
    unwritten: Vec<(DeferredBatch, Position)>,
}

enum To<'a> {
    Stdout(Stdout<'a>),
    Files(Box<Outputs>),
}

impl<'a> Sink<'a> {
    pub(super) fn stdout(format: Format, stop: &'a Stop) -> Result<Self, Failure> {
        Ok(Self::new(To::Stdout(Stdout::open(stop)?), format))
    }

    /// A file for each topic: `output` itself, or files in it if it is a directory. `durable`: syncs files before recording. New files
    /// are made by [`make`](Self::make).
    pub(super) fn files(
        output: &Path,
        filters: &[TopicFilter],
        format: Format,
        durable: bool,
    ) -> Result<Self, Failure> {
        Ok(Self::new(To::Files(Box::new(Outputs::new(output, filters, durable)?)), format))
    }

    fn new(to: To<'a>, format: Format) -> Self {
        Self { to, format, lines: Vec::new(), unwritten: Vec::new() }
    }

    /// Makes the output of the topics that the arguments name.
    pub(super) fn make(&mut self) -> Result<(), Failure> {
        match &mut self.to {
            To::Stdout(_) => Ok(()),
            To::Files(outputs) => outputs.make(),
        }
    }

    /// The positions at which topics of the filter continue, if there are any.
    pub(super) fn positions(&self, filter: &TopicFilter) -> Option<Vec<(Epoch, Position)>> {
        match &self.to {
            To::Stdout(_) => None,
            To::Files(outputs) => outputs.positions(filter),
        }
    }

    /// A log of a topic begins at a position, which a later run can resume at or not.
    pub(super) fn begin(
        &mut self,
        topic: &TopicName,
        epoch: Epoch,
        start: Position,
        resumable: bool,
    ) -> Result<(), Failure> {
        let To::Files(outputs) = &mut self.to else { return Ok(()) };
        if Space::of_log(topic).is_some() {
            return outputs.begin_space(topic, epoch, start, resumable);
        }
        if resumable { outputs.begin(topic, epoch, start) } else { Ok(()) }
    }

    /// A log of a topic has ended.
    pub(super) fn end(&mut self, topic: &TopicName, epoch: Epoch) {
        let To::Files(outputs) = &mut self.to else { return };
        match Space::of_log(topic) {
            None => outputs.end(topic, epoch),
            Some(_) => outputs.end_space(topic, epoch),
        }
    }

    /// Writes at most `most` messages of a batch, at the given pace. Returns the number of messages.
    pub(super) fn write(
        &mut self,
        mut batch: Batch<'_>,
        most: u64,
        pace: &mut Pace<'_>,
    ) -> Result<u64, Failure> {
        let in_space = batch.places_in_space().is_some();
        if let To::Files(outputs) = &mut self.to
            && in_space
            && outputs.has(batch.topic(), batch.epoch(), batch.position())
        {
            return outputs.skip(batch).map(|()| 0);
        }
        let written = match batch.framing() {
            Framing::Raw => self.write_raw(&mut batch, pace),
            Framing::Records | Framing::Merged => self.write_records(&mut batch, most, pace),
        };
        let written = match written {
            Ok(written) => written,
            Err(failure) => {
                // Dropping the batch would consume it. Unwritten messages stay with the broker.
                drop(batch.defer());
                return Err(failure);
            }
        };
        if matches!(self.to, To::Files(_)) {
            self.put_lines(batch.topic())?;
        }
        match &mut self.to {
            To::Stdout(_) if self.lines.is_empty() => batch.consume_up_to(written.end),
            To::Stdout(_) => self.unwritten.push((batch.defer(), written.end)),
            To::Files(outputs) => {
                let (topic, epoch) = (batch.topic().clone(), batch.epoch());
                if in_space {
                    let bytes = if written.count > 0 { batch.as_slice().len() as u64 } else { 0 };
                    let end = (written.end > batch.position()).then_some(written.end);
                    outputs.reached_in_space(&topic, epoch, bytes, end, batch.defer())?;
                    return Ok(written.count);
                }
                outputs.reached(&topic, epoch, written.end, written.loose, batch.defer())?;
            }
        }
        Ok(written.count)
    }

    fn write_raw(&mut self, batch: &mut Batch<'_>, pace: &mut Pace<'_>) -> Result<Written, Failure> {
        let mut written = 0;
        while let Some(rest) = batch.as_slice().get(written..).filter(|rest| !rest.is_empty()) {
            let bytes = &rest[..pace.piece().min(rest.len())];
            let n = bytes.len();
            if self.format.json {
                let piece =
                    Piece { record: bytes, attributes: Attributes::EMPTY, publisher: None, from: 0, to: n };
                self.format.line(batch, &piece, batch.position() + written as u64, &mut self.lines);
            }
            self.put_lines(batch.topic())?;
            if !self.format.json {
                self.put(batch.topic(), bytes)?;
            }
            pace.spend(n);
            pace.wait();
            written += n;
            if matches!(self.to, To::Stdout(_)) {
                // The publisher need not wait for the rest of the batch.
                batch.consume_part(batch.position() + n as u64);
                written = 0;
            }
        }
        Ok(Written { count: 1, end: batch.end(), loose: 0, pieces: 1, open: 0 })
    }

    fn write_records(
        &mut self,
        batch: &mut Batch<'_>,
        most: u64,
        pace: &mut Pace<'_>,
    ) -> Result<Written, Failure> {
        let mut written = Written { count: 0, end: batch.position(), loose: 0, pieces: 0, open: 0 };
        while self.write_some(batch, most, pace, &mut written)? {
            // The reader of the output may be slow. The publisher need not wait for the rest of the batch.
            batch.consume_part(written.end);
            written.pieces = written.open;
        }
        Ok(written)
    }

    /// Writes messages until lines have reached standard output. False at the end of the batch.
    fn write_some(
        &mut self,
        batch: &Batch<'_>,
        most: u64,
        pace: &mut Pace<'_>,
        written: &mut Written,
    ) -> Result<bool, Failure> {
        let mut pieces = batch.pieces().skip(written.pieces);
        while written.count < most {
            let piece = match pieces.next() {
                Some(Ok(piece)) => piece,
                Some(Err(error)) if leaves_others(&error) => {
                    warn!("{error}");
                    (written.pieces, written.open) = (written.pieces + 1, written.open + 1);
                    continue;
                }
                Some(Err(error)) => return Err(Failure::failed(error)),
                None => {
                    (written.end, written.loose) = (batch.end(), 0);
                    break;
                }
            };
            let at = batch.position() + piece.from as u64;
            let before = self.lines.len();
            self.format.line(batch, &piece, at, &mut self.lines);
            written.loose += (self.lines.len() - before) as u64;
            written.count += 1;
            (written.pieces, written.open) = (written.pieces + 1, written.open + 1);
            if piece.to > piece.from {
                (written.end, written.loose, written.open) = (batch.position() + piece.to as u64, 0, 0);
            }
            let wait = pace.spend(piece.record.len());
            let puts = wait || self.lines.len() >= GATHERED_BYTES;
            if puts {
                self.put_lines(batch.topic())?;
            }
            if wait {
                pace.wait();
            }
            if puts && matches!(self.to, To::Stdout(_)) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The lines for standard output were written, or lost. Only written messages are consumed.
    fn consume_written(&mut self, written: bool) {
        self.unwritten
            .drain(..)
            .filter(|_| written)
            .for_each(|(batch, position)| batch.consume_up_to(position));
    }

    /// Writes the lines that were gathered.
    fn put_lines(&mut self, topic: &TopicName) -> Result<(), Failure> {
        if self.lines.is_empty() {
            return Ok(());
        }
        let mut lines = std::mem::take(&mut self.lines);
        let put = self.put(topic, &lines);
        self.consume_written(put.is_ok());
        // The room of a huge message is not kept.
        lines.clear();
        lines.shrink_to(2 * GATHERED_BYTES);
        self.lines = lines;
        put
    }

    fn put(&mut self, topic: &TopicName, bytes: &[u8]) -> Result<(), Failure> {
        match &mut self.to {
            To::Stdout(out) => out.write(bytes),
            To::Files(outputs) => outputs.write(topic, bytes),
        }
    }

    /// Whether [`Sink::settle`] has something to flush or to record.
    pub(super) fn is_pending(&self) -> bool {
        match &self.to {
            To::Stdout(_) => !self.lines.is_empty(),
            To::Files(outputs) => outputs.is_pending(),
        }
    }

    /// Flushes and records written bytes, when no message waits.
    pub(super) fn settle(&mut self) -> Result<(), Failure> {
        match &mut self.to {
            To::Stdout(out) => {
                let put = out.write(&self.lines);
                self.lines.clear();
                self.consume_written(put.is_ok());
                put
            }
            To::Files(outputs) => outputs.record(),
        }
    }

    /// Whether the reader of standard output has closed it. Only pipes and sockets report that.
    pub(super) fn is_abandoned(&self) -> bool {
        matches!(&self.to, To::Stdout(out) if out.is_abandoned())
    }
}

/// Whether the error is the fault of one publisher of a merged topic, or of one message, and the others continue.
fn leaves_others(error: &ReceiveError) -> bool {
    match error {
        ReceiveError::Malformed { error: UnpackError::Publisher { .. }, .. } => true,
        ReceiveError::Malformed { error: UnpackError::Record(error), .. } => !error.ends_bytes(),
        _ => false,
    }
}

/// A message as a JSON object. A message that is not UTF-8 is an array of its bytes.
#[derive(Serialize)]
struct Object<'m> {
    #[serde(skip_serializing_if = "Option::is_none")]
    attributes: Option<Said<'m>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    bytes: Option<&'m [u8]>,
    #[serde(serialize_with = "as_text")]
    epoch: Epoch,
    position: Position,
    #[serde(skip_serializing_if = "Option::is_none")]
    publisher: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<&'m str>,
    topic: &'m str,
}

fn as_text<S: serde::Serializer>(epoch: &Epoch, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(epoch)
}

impl Format {
    fn line(self, batch: &Batch<'_>, piece: &Piece<'_>, at: Position, line: &mut Vec<u8>) {
        let Piece { record: message, publisher, .. } = *piece;
        if self.json {
            let text = std::str::from_utf8(message).ok();
            let bytes = text.is_none().then_some(message);
            let (epoch, topic) = (batch.epoch(), batch.topic().as_str());
            let attributes = (!piece.attributes.is_empty()).then_some(Said(piece.attributes));
            let object = Object { attributes, bytes, epoch, position: at, publisher, text, topic };
            // Writing numbers and strings to memory cannot fail.
            let _ = serde_json::to_writer(&mut *line, &object);
        } else {
            if self.print_topic {
                line.extend_from_slice(batch.topic().as_str().as_bytes());
                line.push(b'\t');
            }
            line.extend_from_slice(message);
        }
        line.push(b'\n');
    }
}

/// Limits the bytes per second.
pub(super) struct Pace<'a> {
    rate: Option<f64>,
    stop: &'a Stop,
    /// When the written bytes are within the limit.
    due: Instant,
}

impl<'a> Pace<'a> {
    pub(super) fn new(bytes_per_second: Option<u64>, stop: &'a Stop) -> Self {
        Self { rate: bytes_per_second.map(|rate| rate.max(1) as f64), stop, due: Instant::now() }
    }

    /// The number of raw bytes to write at a time.
    fn piece(&self) -> usize {
        match self.rate {
            None => usize::MAX,
            Some(rate) => ((rate / 50.0) as usize).clamp(1, 1 << 20),
        }
    }

    /// Counts bytes. True if it is too early for more.
    fn spend(&mut self, bytes: usize) -> bool {
        let Some(rate) = self.rate else { return false };
        let now = Instant::now();
        self.due = self.due.max(now) + Duration::from_secs_f64(bytes as f64 / rate);
        self.due.saturating_duration_since(now) > Duration::from_millis(20)
    }

    /// Waits until more bytes are within the limit, or the command is asked to end.
    fn wait(&self) {
        let ahead = self.due.saturating_duration_since(Instant::now());
        if self.rate.is_some() && ahead > Duration::from_millis(20) && !self.stop.asked() {
            self.stop.wait(Some(ahead));
        }
    }
}
