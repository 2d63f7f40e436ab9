//! Publishing to all topics of a space.

use std::borrow::Cow;
use std::time::Duration;

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString, PyTuple};
use rbmq::{AttributesBuf, PublishError, TopicFilter, TopicName};

use super::attributes::of_arguments;
use super::writing::{CHUNK_BYTES, HEADER, attributes_size, confirming};
use crate::classes::{closing, getters};
use crate::errors::Raise;
use crate::guarded::Guarded;
use crate::input::Input;
use crate::times;

/// The bytes that the name of a topic adds to the attributes of its records: its kind, its length, and the header of the attributes.
const NAMED: usize = rbmq::wire::ATTRIBUTES_HEADER_BYTES + 3;

/// Publishes to the topics of a space: those of a pattern that the broker keeps in one log. Positions, confirmations and the number of
/// subscribers are those of the log, which all writers of a publisher share. Calls wait only while the ring is full.
#[pyclass(frozen, weakref, module = "rocketbufs.rbmq")]
pub struct SpaceWriter {
    writer: Guarded<rbmq::SpaceWriter>,
    /// The pattern.
    #[pyo3(get)]
    pattern: String,
    /// The name of the log, under which events of the publisher tell of it.
    #[pyo3(get)]
    log: String,
    /// The largest delivery in bytes, with the header and the attributes of each record.
    #[pyo3(get, name = "max_delivery_bytes")]
    max_delivery: usize,
}

/// A message of `publish_many`.
struct Given<'py> {
    topic: TopicName,
    attributes: AttributesBuf,
    data: Bound<'py, PyAny>,
}

impl<'py> Given<'py> {
    /// A message of `(topic, data)` or `(topic, data, attributes)`.
    fn of(object: &Bound<'py, PyAny>) -> PyResult<Self> {
        let wrong =
            || PyTypeError::new_err("a message of a space is (topic, data) or (topic, data, attributes)");
        let parts = object.cast::<PyTuple>().map_err(|_| wrong())?;
        if !(2..=3).contains(&parts.len()) {
            return Err(wrong());
        }
        let topic = name(&parts.get_item(0)?.cast_into::<PyString>().map_err(|_| wrong())?.to_cow()?)?;
        let attributes = match parts.get_item(2) {
            Ok(given) => of_arguments(Some(given.cast::<PyDict>().map_err(|_| wrong())?))?,
            Err(_) => AttributesBuf::new(),
        };
        Ok(Self { topic, attributes, data: parts.get_item(1)? })
    }
}

/// What a message of `bytes` bytes takes of a delivery.
fn size(topic: &TopicName, attributes: &AttributesBuf, bytes: usize) -> usize {
    HEADER + NAMED + topic.as_str().len() + attributes_size(attributes) + bytes
}

/// A message as Rust publishes it.
struct Record<'a> {
    topic: &'a TopicName,
    attributes: &'a AttributesBuf,
    bytes: Cow<'a, [u8]>,
}

/// A message and its bytes.
struct Message<'a, 'py> {
    given: &'a Given<'py>,
    input: Input<'a, 'py>,
}

impl<'a, 'py> Message<'a, 'py> {
    fn of(given: &'a Given<'py>) -> PyResult<Self> {
        Ok(Self { given, input: Input::of(&given.data)? })
    }

    fn size(&self, py: Python<'py>) -> usize {
        size(&self.given.topic, &self.given.attributes, self.input.bytes(py).len())
    }

    fn record<'b>(&'b self, bytes: Cow<'b, [u8]>) -> Record<'b> {
        Record { topic: &self.given.topic, attributes: &self.given.attributes, bytes }
    }
}

/// The name of a topic.
fn name(topic: &str) -> PyResult<TopicName> {
    topic.parse().map_err(|error: rbmq::TopicError| PyValueError::new_err(error.to_string()))
}

/// Publishes the first of several messages as one delivery, up to one that cannot be published. Returns how many they are; the error is that
/// of the first one.
fn deliver<'m>(
    mut batch: rbmq::SpaceBatch<'_>,
    messages: impl Iterator<Item = Record<'m>>,
) -> Result<usize, PublishError> {
    let mut count = 0;
    for message in messages {
        match batch.push(message.topic, message.attributes, &message.bytes) {
            Ok(true) => count += 1,
            Err(error) if count == 0 => return Err(error),
            Ok(false) | Err(_) => break,
        }
    }
    if count > 0 { batch.deliver().map(|_| count) } else { Ok(0) }
}

impl SpaceWriter {
    /// Makes a Python object of a writer.
    pub fn of(writer: rbmq::SpaceWriter) -> Self {
        let pattern = writer.space().pattern().to_string();
        let log = writer.space().log().to_string();
        let max_delivery = usize::try_from(writer.max_delivery_bytes()).unwrap_or(usize::MAX);
        Self { writer: Guarded::new(writer, "space"), pattern, log, max_delivery }
    }

    /// One message.
    fn publish_one(
        &self,
        py: Python<'_>,
        topic: &TopicName,
        attributes: &AttributesBuf,
        input: &Input<'_, '_>,
        timeout: Option<Duration>,
    ) -> PyResult<u64> {
        let bytes = input.bytes(py);
        let publish = |writer: &mut rbmq::SpaceWriter| {
            writer.publish_to_timeout(topic, attributes, bytes, Some(Duration::ZERO))
        };
        match self.writer.at_once(py, size(topic, attributes, bytes.len()), timeout, publish)? {
            Some(position) => Ok(position),
            None => {
                let stable = input.stable(py);
                self.writer.waiting(py, timeout, |writer, step| {
                    writer.publish_to_timeout(topic, attributes, &stable, Some(step))
                })
            }
        }
    }

    /// One delivery of the first ones of several messages, which are `bytes` bytes. Returns how many they are.
    fn publish_chunk(
        &self,
        py: Python<'_>,
        chunk: &[Message<'_, '_>],
        bytes: usize,
        timeout: Option<Duration>,
    ) -> PyResult<usize> {
        let done = self.writer.at_once(py, bytes, timeout, |writer| {
            let batch = writer.batch(bytes as u64, Some(Duration::ZERO))?;
            deliver(batch, chunk.iter().map(|message| message.record(message.input.bytes(py).into())))
        })?;
        if let Some(count) = done {
            return Ok(count);
        }
        let stable: Vec<_> = chunk.iter().map(|message| message.record(message.input.stable(py))).collect();
        self.writer.waiting(py, timeout, |writer, step| {
            let batch = writer.batch(bytes as u64, Some(step))?;
            deliver(
                batch,
                stable.iter().map(|Record { topic, attributes, bytes }| Record {
                    topic,
                    attributes,
                    bytes: bytes.as_ref().into(),
                }),
            )
        })
    }

    /// Publishes messages as few deliveries, and counts those that were published.
    fn publish_all(
        &self,
        py: Python<'_>,
        messages: &[Message<'_, '_>],
        timeout: Option<Duration>,
        published: &mut usize,
    ) -> PyResult<()> {
        let most = CHUNK_BYTES.min(self.max_delivery);
        while *published < messages.len() {
            let rest = &messages[*published..];
            let (mut count, mut bytes) = (0, 0);
            for message in rest {
                let next = bytes + message.size(py);
                if count > 0 && next > most {
                    break;
                }
                (count, bytes) = (count + 1, next);
            }
            count = if count > 1 { self.publish_chunk(py, &rest[..count], bytes, timeout)? } else { 0 };
            if count == 0 {
                count = 1;
                let Message { given, input } = &rest[0];
                self.publish_one(py, &given.topic, &given.attributes, input, timeout)?;
            }
            *published += count;
        }
        Ok(())
    }
}

#[pymethods]
impl SpaceWriter {
    /// Publishes one message to a topic of the space, as `TopicWriter.publish`. Returns the position behind the message, in the log of the
    /// space.
    #[pyo3(signature = (topic, data, timeout=None, **attributes))]
    fn publish_to(
        &self,
        py: Python<'_>,
        topic: &str,
        data: &Bound<'_, PyAny>,
        timeout: Option<f64>,
        attributes: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<u64> {
        let (topic, attributes) = (name(topic)?, of_arguments(attributes)?);
        self.publish_one(py, &topic, &attributes, &Input::of(data)?, times::timeout(timeout)?)
    }

    /// Publishes many messages in few deliveries: pairs of a topic and the data, or triples with a dictionary of attributes. `timeout` is for
    /// each wait for room. Returns the position behind the last one. An exception has the number of messages that were published as
    /// `published`.
    #[pyo3(signature = (messages, timeout=None))]
    fn publish_many(
        &self,
        py: Python<'_>,
        messages: &Bound<'_, PyAny>,
        timeout: Option<f64>,
    ) -> PyResult<u64> {
        let timeout = times::timeout(timeout)?;
        let given = messages.try_iter()?.map(|message| Given::of(&message?)).collect::<PyResult<Vec<_>>>()?;
        let messages = given.iter().map(Message::of).collect::<PyResult<Vec<_>>>()?;
        let mut published = 0;
        if let Err(error) = self.publish_all(py, &messages, timeout, &mut published) {
            error.value(py).setattr("published", published)?;
            return Err(error);
        }
        self.writer.with(py, |writer| writer.position())
    }

    /// Whether a topic is in the space: the pattern matches it, and no earlier rule of the broker does.
    fn contains(&self, py: Python<'_>, topic: &str) -> PyResult<bool> {
        let topic = name(topic)?;
        self.writer.with(py, |writer| writer.contains(&topic))
    }

    /// Whether every topic that a filter matches is in the space.
    fn covers(&self, py: Python<'_>, filter: &str) -> PyResult<bool> {
        let wrong = |error: rbmq::FilterError| PyValueError::new_err(error.to_string());
        let filter: TopicFilter = filter.parse().map_err(wrong)?;
        self.writer.with(py, |writer| writer.covers(&filter))
    }

    /// Waits until the log has `count` subscribers. They receive everything that is published from then on.
    #[pyo3(signature = (count, timeout=None))]
    fn wait_subscribers(&self, py: Python<'_>, count: u32, timeout: Option<f64>) -> PyResult<()> {
        self.writer.wait_for(py, timeout, |writer, step| writer.wait_subscribers(count, Some(step)))
    }

    /// Closes the writer: waits until the broker has everything, at most `timeout` seconds. Other writers of the log stay open. A second call
    /// does nothing.
    #[pyo3(signature = (timeout=Some(10.0)))]
    fn close(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<()> {
        let timeout = times::timeout(timeout)?;
        let Some(writer) = self.writer.take_waiting(py)? else { return Ok(()) };
        times::interruptible(py, move || writer.close_timeout(timeout))?.or_raise(py, "PublisherWaitError")
    }

    fn __repr__(&self) -> String {
        format!("SpaceWriter(pattern='{}')", self.pattern)
    }
}

confirming!(SpaceWriter);

getters! { SpaceWriter.writer:
    /// The number of subscribers of the log, as last reported by the broker.
    subscribers: u32;
    /// The position behind the last published message.
    position: u64;
    /// Why the broker's disk takes nothing of a kept space at the moment, as far as the broker has said. None: it works.
    disk_failure: Option<String>;
}

closing!(SpaceWriter, close, Some(10.0));
