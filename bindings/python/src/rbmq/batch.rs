//! Received messages: a batch in the memory where it landed, its messages, and single copies.

use pyo3::exceptions::{PyIndexError, PyTypeError};
use pyo3::prelude::*;
use pyo3::sync::MutexExt;
use pyo3::types::{PyBytes, PyDict, PyList, PyMemoryView};
use rbmq::wire::{Piece, Records, Unpack, UnpackError};
use rbmq::{Attributes, AttributesBuf, Framing, OwnedBatch, PlacesInSpace, ReceiveError, TopicName};

use super::attributes::{of_arguments, to_dict};
use super::failures::receive_error;
use crate::classes::closing;
use crate::errors::Raise;
use crate::export::{Exporter, Exports, Memory, buffer_protocol};
use crate::input::Input;

/// Whole deliveries of one topic, in the memory where they landed. `release()`, or the end of a `with`, returns their space to
/// the publisher and counts them as consumed. While a memoryview of the batch exists, `release()` raises BufferError.
#[pyclass(frozen, module = "rocketbufs.rbmq")]
pub struct Batch {
    batch: Exporter<OwnedBatch>,
    topic: TopicName,
    framing: Framing,
    /// The log of the publisher.
    #[pyo3(get)]
    epoch: u128,
    /// The position of the first byte.
    #[pyo3(get)]
    position: u64,
    /// The position behind the last byte, at which to resume.
    #[pyo3(get)]
    end: u64,
    /// Whether the bytes are a copy, since another process may write the memory where they landed.
    #[pyo3(get)]
    copied: bool,
    nbytes: usize,
    /// Of a space: the places of the records.
    places: Option<PlacesInSpace>,
}

impl Batch {
    /// Makes a Python object of a batch.
    pub fn of(batch: OwnedBatch) -> Self {
        Self {
            topic: batch.topic().clone(),
            framing: batch.framing(),
            position: batch.position(),
            end: batch.end(),
            epoch: batch.epoch().0,
            copied: batch.is_copy(),
            nbytes: batch.as_slice().len(),
            places: batch.places_in_space(),
            batch: Exporter::new(batch, "batch"),
        }
    }

    /// The messages with their places.
    fn pieces<'a>(&self, bytes: &'a [u8]) -> Box<dyn Iterator<Item = Result<Piece<'a>, UnpackError>> + 'a> {
        match self.framing {
            Framing::Records if let Some(places) = self.places => {
                let records = Unpack::records(bytes).checked();
                let records = records.map(move |piece| piece.map(|piece| places.place(piece)));
                Box::new(places.fault().map(Err).into_iter().chain(records))
            }
            Framing::Records => Box::new(Unpack::records(bytes).checked()),
            Framing::Merged => Box::new(Unpack::merged(bytes).checked()),
            Framing::Raw if bytes.is_empty() => Box::new(std::iter::empty()),
            Framing::Raw => {
                let piece = Piece {
                    record: bytes,
                    attributes: Attributes::EMPTY,
                    publisher: None,
                    from: 0,
                    to: bytes.len(),
                };
                Box::new(std::iter::once(Ok(piece)))
            }
        }
    }

    fn malformed(&self, py: Python<'_>, error: UnpackError) -> PyErr {
        receive_error(py, &ReceiveError::Malformed { topic: self.topic.clone(), error })
    }

    /// Calls `each`, which runs no Python code, for every message.
    fn for_each(
        &self,
        py: Python<'_>,
        mut each: impl FnMut(&Piece<'_>, usize) -> PyResult<()>,
    ) -> PyResult<()> {
        let malformed = self.batch.with(py, |batch| {
            let bytes = batch.as_slice();
            for piece in self.pieces(bytes) {
                match piece {
                    Ok(piece) => each(&piece, offset_in(bytes, piece.record))?,
                    Err(error) => return Ok(Some(error)),
                }
            }
            Ok::<_, PyErr>(None)
        })??;
        malformed.map_or(Ok(()), |error| Err(self.malformed(py, error)))
    }
}

/// Where a part begins in its whole.
fn offset_in(whole: &[u8], part: &[u8]) -> usize {
    (part.as_ptr() as usize).wrapping_sub(whole.as_ptr() as usize)
}

#[pymethods]
impl Batch {
    /// The topic.
    #[getter]
    fn topic(&self) -> &str {
        self.topic.as_str()
    }

    /// "records", "raw" or "merged".
    #[getter]
    fn framing(&self) -> String {
        self.framing.to_string()
    }

    /// Whether the batch was released.
    #[getter]
    fn released(&self, py: Python<'_>) -> bool {
        self.batch.is_released(py)
    }

    /// The number of bytes, including headers.
    #[getter]
    fn nbytes(&self) -> usize {
        self.nbytes
    }

    /// Where the messages are in `view`: a memoryview of unsigned 32-bit numbers with a row of start and end for each message.
    #[getter]
    fn offsets<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let mut offsets = Vec::new();
        self.for_each(py, |piece, start| {
            offsets.extend_from_slice(&(start as u32).to_ne_bytes());
            offsets.extend_from_slice(&((start + piece.record.len()) as u32).to_ne_bytes());
            Ok(())
        })?;
        let rows = offsets.len() / 8;
        let flat = PyMemoryView::from(Bound::new(py, Offsets(Exporter::new(offsets, "offsets")))?.as_any())?;
        match rows {
            0 => flat.call_method1("cast", ("I",)),
            rows => flat.call_method1("cast", ("I", [rows, 2])),
        }
    }

    /// Copies of all messages.
    fn to_list<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let list = PyList::empty(py);
        self.for_each(py, |piece, _| list.append(PyBytes::new(py, piece.record)))?;
        Ok(list)
    }

    /// The number of messages.
    fn __len__(&self, py: Python<'_>) -> PyResult<usize> {
        let mut count = 0;
        self.for_each(py, |_, _| {
            count += 1;
            Ok(())
        })?;
        Ok(count)
    }

    fn __bool__(&self) -> bool {
        true
    }

    fn __iter__(slf: &Bound<'_, Self>) -> BatchIter {
        BatchIter { batch: slf.clone().unbind(), at: std::sync::Mutex::new(Cursor::default()) }
    }

    /// Returns the space to the publisher, and counts the messages as consumed. A second call does nothing.
    fn release(&self, py: Python<'_>) -> PyResult<()> {
        drop(self.batch.take(py)?);
        Ok(())
    }

    /// As `release`, for the messages below a position, which is the `end` of a message. A durable subscriber that returns later
    /// gets the others again.
    fn release_up_to(&self, py: Python<'_>, position: u64) -> PyResult<()> {
        if let Some(batch) = self.batch.take(py)? {
            batch.consume_up_to(position);
        }
        Ok(())
    }

    /// Ends the batch without consuming it: later batches can be received, but no space from here on returns to the publisher
    /// before the result's `consume`. For programs that count messages as consumed only when they are safe elsewhere.
    fn defer(&self, py: Python<'_>) -> PyResult<DeferredBatch> {
        match self.batch.take(py)? {
            Some(batch) => Ok(DeferredBatch(Exporter::new(batch.defer(), "batch"), self.epoch)),
            None => Err(crate::errors::released(py, "batch")),
        }
    }

    fn __repr__(&self, py: Python<'_>) -> String {
        let released = if self.batch.is_released(py) { ", released" } else { "" };
        format!("Batch(topic='{}', positions={}..{}{released})", self.topic, self.position, self.end)
    }
}

closing!(Batch, release);

buffer_protocol! {
    /// All bytes with the headers of records, as a memoryview in place.
    Batch.batch, |batch, py| Ok(Memory::readable(batch.as_slice()))
}

/// A received batch that is not consumed yet. The last reference consumes nothing. Consuming a later batch of the same log
/// consumes this one too.
#[pyclass(frozen, module = "rocketbufs.rbmq")]
pub struct DeferredBatch(
    Exporter<rbmq::DeferredBatch>,
    /// The log of the publisher.
    #[pyo3(get, name = "epoch")]
    u128,
);

#[pymethods]
impl DeferredBatch {
    /// Counts the batch, and all earlier ones of the log, as consumed. A second call does nothing.
    fn consume(&self, py: Python<'_>) -> PyResult<()> {
        if let Some(batch) = self.0.take(py)? {
            batch.consume();
        }
        Ok(())
    }

    /// As `consume`, for the messages below a position, which is the `end` of a message.
    fn consume_up_to(&self, py: Python<'_>, position: u64) -> PyResult<()> {
        if let Some(batch) = self.0.take(py)? {
            batch.consume_up_to(position);
        }
        Ok(())
    }
}

/// The numbers of [`Batch::offsets`].
#[pyclass(frozen)]
pub struct Offsets(Exporter<Vec<u8>>);

buffer_protocol!(Offsets.0, |offsets, py| Ok(Memory::readable(offsets)));

/// The place of an iterator in a batch.
#[derive(Default)]
struct Cursor {
    /// The next bytes: of a run, in a merged topic.
    at: usize,
    /// The run that contains them: its start, its end and its publisher.
    run: Option<(usize, usize, u32)>,
}

/// The messages of a batch, one after the other.
#[pyclass(frozen)]
pub struct BatchIter {
    batch: Py<Batch>,
    at: std::sync::Mutex<Cursor>,
}

/// A message in its batch.
struct Found {
    /// The start of the attributes, which end where the content begins.
    attributes: usize,
    start: usize,
    end: usize,
    resume: usize,
    publisher: Option<u32>,
}

impl BatchIter {
    /// The next message of the bytes, or the end of what is malformed and the error.
    fn advance(cursor: &mut Cursor, framing: Framing, bytes: &[u8]) -> Option<Result<Found, UnpackError>> {
        let rest = bytes.get(cursor.at..).unwrap_or_default();
        if framing == Framing::Raw {
            let (start, end) = (cursor.at, bytes.len());
            let found = Found { attributes: start, start, end, resume: end, publisher: None };
            cursor.at = bytes.len();
            return (!rest.is_empty()).then_some(Ok(found));
        }
        let run = cursor.run.filter(|(_, to, _)| cursor.at < *to);
        let mut records = match (framing, run) {
            (Framing::Merged, Some((_, to, _))) => Records::new(&bytes[cursor.at..to]),
            (Framing::Merged, None) => return Self::begin_run(cursor, bytes),
            _ => Records::new(rest),
        };
        if let Some(record) = records.next_record() {
            cursor.at += records.offset();
            let (start, end) = (cursor.at - record.payload.len(), cursor.at);
            let resume = run.filter(|(_, to, _)| end < *to).map_or(end, |(from, _, _)| from);
            let (attributes, publisher) =
                (start - record.attributes.len(), run.map(|(_, _, publisher)| publisher));
            return Some(Ok(Found { attributes, start, end, resume, publisher }));
        }
        let mut error = records.skip_malformed()?;
        error.offset += cursor.at;
        cursor.at += records.offset();
        Some(Err(match run {
            Some((_, _, publisher)) => UnpackError::Publisher { publisher, error },
            None => UnpackError::Record(error),
        }))
    }

    fn begin_run(cursor: &mut Cursor, bytes: &[u8]) -> Option<Result<Found, UnpackError>> {
        let from = cursor.at;
        let mut runs = rbmq::wire::Runs::new(bytes.get(from..)?);
        match runs.next() {
            Some(run) => {
                cursor.run = Some((from, from + runs.offset(), run.publisher));
                cursor.at = from + rbmq::wire::RUN_HEADER_BYTES;
                Self::advance(cursor, Framing::Merged, bytes)
            }
            None => {
                let mut error = runs.malformed()?;
                error.offset += from;
                cursor.at = bytes.len();
                Some(Err(UnpackError::Run(error)))
            }
        }
    }
}

#[pymethods]
impl BatchIter {
    fn __iter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Option<Message>> {
        let batch = self.batch.get();
        let mut cursor = self.at.lock_py_attached(py).unwrap_or_else(|poisoned| poisoned.into_inner());
        if let Some(fault) = batch.places.and_then(|places| places.fault()).filter(|_| cursor.run.is_none()) {
            // Once: there is no run in the bytes of a space.
            cursor.run = Some((0, 0, 0));
            return Err(batch.malformed(py, fault));
        }
        let next = batch.batch.with(py, |held| Self::advance(&mut cursor, batch.framing, held.as_slice()))?;
        match next {
            None => Ok(None),
            Some(Err(error)) => Err(batch.malformed(py, error)),
            Some(Ok(found)) => {
                let found = match batch.places {
                    Some(places) => Found {
                        resume: places.resume(found.end),
                        publisher: Some(places.publisher()),
                        ..found
                    },
                    None => found,
                };
                Ok(Some(Message(Body::InBatch { batch: self.batch.clone_ref(py), found })))
            }
        }
    }
}

/// One message: a copy, or a part of a batch, whose bytes can be read until the batch is released. `bytes(message)` copies,
/// `memoryview(message)` does not.
#[pyclass(frozen, module = "rocketbufs.rbmq")]
pub struct Message(Body);

enum Body {
    Copied {
        bytes: Py<PyBytes>,
        attributes: AttributesBuf,
        topic: TopicName,
        epoch: u128,
        end: u64,
        publisher: Option<u32>,
    },
    InBatch {
        batch: Py<Batch>,
        found: Found,
    },
}

/// The arguments that make a copy of a message.
type NewArguments<'a, 'py> = (&'a str, Bound<'py, PyBytes>, u128, u64, Option<u32>, Bound<'py, PyDict>);

impl Message {
    /// A copy of a message.
    pub fn copied(py: Python<'_>, message: &rbmq::MessageRef<'_>) -> Self {
        let bytes = PyBytes::new(py, message.bytes).unbind();
        let (attributes, topic) = (message.attributes.into(), message.topic.clone());
        let (epoch, end, publisher) = (message.epoch.0, message.end, message.publisher);
        Self(Body::Copied { bytes, attributes, topic, epoch, end, publisher })
    }

    fn len(&self, py: Python<'_>) -> usize {
        match &self.0 {
            Body::Copied { bytes, .. } => bytes.as_bytes(py).len(),
            Body::InBatch { found, .. } => found.end - found.start,
        }
    }

    fn with<R>(&self, py: Python<'_>, f: impl FnOnce(&[u8]) -> R) -> PyResult<R> {
        match &self.0 {
            Body::Copied { bytes, .. } => Ok(f(bytes.as_bytes(py))),
            Body::InBatch { batch, found } => batch
                .get()
                .batch
                .with(py, |held| f(held.as_slice().get(found.start..found.end).unwrap_or_default())),
        }
    }

    fn with_attributes<R>(&self, py: Python<'_>, f: impl FnOnce(Attributes<'_>) -> R) -> PyResult<R> {
        match &self.0 {
            Body::Copied { attributes, .. } => Ok(f(attributes.attributes())),
            Body::InBatch { batch, found } => batch.get().batch.with(py, |held| {
                let bytes = held.as_slice().get(found.attributes..found.start);
                f(Attributes::checked_before(bytes.unwrap_or_default()))
            }),
        }
    }
}

#[pymethods]
impl Message {
    /// A message of these values, as for tests of a program.
    #[new]
    #[pyo3(signature = (topic, data, epoch=0, end=0, publisher=None, attributes=None))]
    fn new(
        topic: &str,
        data: &Bound<'_, PyAny>,
        epoch: u128,
        end: u64,
        publisher: Option<u32>,
        attributes: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Self> {
        let py = data.py();
        let topic = topic.parse().or_raise(py, "TopicOpenError")?;
        let bytes = PyBytes::new(py, Input::of(data)?.bytes(py)).unbind();
        let attributes = of_arguments(attributes)?;
        Ok(Self(Body::Copied { bytes, attributes, topic, epoch, end, publisher }))
    }

    /// For copies, and pickle: the content is copied too.
    fn __getnewargs__<'py>(&self, py: Python<'py>) -> PyResult<NewArguments<'_, 'py>> {
        let attributes = self.attributes(py)?;
        Ok((self.topic(), self.data(py)?, self.epoch(), self.end(), self.publisher(), attributes))
    }

    /// The topic.
    #[getter]
    fn topic(&self) -> &str {
        match &self.0 {
            Body::Copied { topic, .. } => topic.as_str(),
            Body::InBatch { batch, .. } => batch.get().topic.as_str(),
        }
    }

    /// The content, as `bytes`. A message of a batch is copied by each use.
    #[getter]
    fn data<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        match &self.0 {
            Body::Copied { bytes, .. } => Ok(bytes.bind(py).clone()),
            Body::InBatch { .. } => self.with(py, |bytes| PyBytes::new(py, bytes)),
        }
    }

    /// The log of the publisher.
    #[getter]
    fn epoch(&self) -> u128 {
        match &self.0 {
            Body::Copied { epoch, .. } => *epoch,
            Body::InBatch { batch, .. } => batch.get().epoch,
        }
    }

    /// The position at which to resume behind the message.
    #[getter]
    fn end(&self) -> u64 {
        match &self.0 {
            Body::Copied { end, .. } => *end,
            Body::InBatch { batch, found } => batch.get().position + found.resume as u64,
        }
    }

    /// In a merged topic: the number of the publisher.
    #[getter]
    fn publisher(&self) -> Option<u32> {
        match &self.0 {
            Body::Copied { publisher, .. } => *publisher,
            Body::InBatch { found, .. } => found.publisher,
        }
    }

    /// What the message says about its content, by name: the keyword arguments of `publish`. Empty without attributes.
    #[getter]
    fn attributes<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        self.with_attributes(py, |attributes| to_dict(py, attributes))?
    }

    /// The topic for answers.
    #[getter]
    fn reply_to(&self, py: Python<'_>) -> PyResult<Option<String>> {
        self.with_attributes(py, |attributes| attributes.reply_to().map(str::to_owned))
    }

    /// What an answer repeats.
    #[getter]
    fn correlation_data<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyBytes>>> {
        self.with_attributes(py, |attributes| {
            attributes.correlation_data().map(|data| PyBytes::new(py, data))
        })
    }

    /// The type of the content, such as "application/json".
    #[getter]
    fn content_type(&self, py: Python<'_>) -> PyResult<Option<String>> {
        self.with_attributes(py, |attributes| attributes.content_type().map(str::to_owned))
    }

    /// The properties, keys and values, in order. A key may come several times.
    #[getter]
    fn properties(&self, py: Python<'_>) -> PyResult<Vec<(String, String)>> {
        self.with_attributes(py, |attributes| {
            attributes.properties().map(|(key, value)| (key.to_owned(), value.to_owned())).collect()
        })
    }

    /// The key.
    #[getter]
    fn key<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyBytes>>> {
        self.with_attributes(py, |attributes| attributes.key().map(|key| PyBytes::new(py, key)))
    }

    fn __bytes__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        self.data(py)
    }

    fn __len__(&self, py: Python<'_>) -> usize {
        self.len(py)
    }

    fn __bool__(&self) -> bool {
        true
    }

    fn __getitem__<'py>(slf: &Bound<'py, Self>, index: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let py = slf.py();
        if let Ok(index) = index.extract::<isize>() {
            let len = slf.get().len(py) as isize;
            let at = if index < 0 { index + len } else { index };
            let byte =
                slf.get().with(py, |bytes| usize::try_from(at).ok().and_then(|at| bytes.get(at).copied()))?;
            let byte = byte.ok_or_else(|| PyIndexError::new_err("index out of range"))?;
            return Ok(byte.into_pyobject(py)?.into_any());
        }
        slf.get().data(py)?.get_item(index)
    }

    /// As for `bytes`: a byte, or a part of the content.
    fn __contains__(&self, py: Python<'_>, part: &Bound<'_, PyAny>) -> PyResult<bool> {
        self.data(py)?.contains(part)
    }

    fn __eq__(&self, py: Python<'_>, other: &Bound<'_, PyAny>) -> PyResult<bool> {
        if let Ok(other) = other.cast::<Self>() {
            let other = other.get().data(py)?;
            return self.with(py, |bytes| bytes == other.as_bytes());
        }
        let Ok(input) = Input::of(other) else { return Ok(false) };
        let other = input.stable(py);
        self.with(py, |bytes| bytes == &*other)
    }

    fn __hash__(&self) -> PyResult<isize> {
        Err(PyTypeError::new_err("a message is not hashable; bytes(message) is"))
    }

    fn __repr__(&self, py: Python<'_>) -> String {
        format!("Message(topic='{}', {} bytes)", self.topic(), self.len(py))
    }
}

impl Exports for Message {
    fn export(&self, py: Python<'_>) -> PyResult<Memory> {
        match &self.0 {
            Body::Copied { bytes, .. } => Ok(Memory::readable(bytes.as_bytes(py))),
            Body::InBatch { batch, found } => Ok(batch.get().export(py)?.part(found.start, found.end)),
        }
    }

    fn unexport(&self, py: Python<'_>) {
        if let Body::InBatch { batch, .. } = &self.0 {
            batch.get().unexport(py);
        }
    }
}

buffer_protocol! {
    /// The content, as a memoryview without a copy.
    Message
}
