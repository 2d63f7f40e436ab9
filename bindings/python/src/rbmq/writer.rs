//! Publishing to one topic.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use pyo3::prelude::*;
use pyo3::types::PyDict;
use rbmq::{AttributesBuf, Framing, PublishError};

use super::attributes::of_arguments;
use super::segment::MessageSegment;
use super::writing::{CHUNK_BYTES, HEADER, attributes_size, confirming};
use crate::classes::{closing, getters};
use crate::errors::Raise;
use crate::guarded::Guarded;
use crate::input::{Input, inputs_of};
use crate::times;

/// Publishes to one topic. `publish` copies any object with the buffer protocol into the ring; `segment` gives the memory of the
/// ring itself. Calls wait only while the ring is full.
#[pyclass(frozen, weakref, module = "rocketbufs.rbmq")]
pub struct TopicWriter {
    writer: Arc<Guarded<rbmq::TopicWriter>>,
    /// The topic.
    #[pyo3(get)]
    topic: String,
    framing: Framing,
    /// The largest delivery in bytes; each record has a header of 4.
    #[pyo3(get, name = "max_delivery_bytes")]
    max_delivery: usize,
}

impl TopicWriter {
    /// Makes a Python object of a writer.
    pub fn of(writer: rbmq::TopicWriter, framing: Framing) -> Self {
        let topic = writer.topic().to_string();
        let max_delivery = usize::try_from(writer.max_delivery_bytes()).unwrap_or(usize::MAX);
        Self { writer: Arc::new(Guarded::new(writer, "topic")), topic, framing, max_delivery }
    }

    /// One message, or in a raw topic one piece.
    fn publish_bytes(
        &self,
        py: Python<'_>,
        input: &Input<'_, '_>,
        attributes: &AttributesBuf,
        timeout: Option<Duration>,
    ) -> PyResult<u64> {
        if self.framing == Framing::Raw && attributes.is_empty() {
            return self.publish_raw(py, &input.stable(py), timeout);
        }
        let bytes = input.bytes(py);
        let publish = |writer: &mut rbmq::TopicWriter| {
            writer.publish_with_timeout(attributes, bytes, Some(Duration::ZERO))
        };
        match self.writer.at_once(py, bytes.len() + attributes_size(attributes), timeout, publish)? {
            Some(position) => Ok(position),
            None => {
                let stable = input.stable(py);
                self.writer.waiting(py, timeout, |writer, step| {
                    writer.publish_with_timeout(attributes, &stable, Some(step))
                })
            }
        }
    }

    fn publish_raw(&self, py: Python<'_>, bytes: &[u8], timeout: Option<Duration>) -> PyResult<u64> {
        for piece in bytes.chunks(self.max_delivery) {
            let publish = |writer: &mut rbmq::TopicWriter, step| {
                let fill = |room: &mut [u8]| {
                    room.copy_from_slice(piece);
                    Ok::<_, Infallible>(piece.len())
                };
                writer.fill_raw(piece.len() as u64, Some(step), fill).map(drop)
            };
            if self
                .writer
                .at_once(py, piece.len(), timeout, |writer| publish(writer, Duration::ZERO))?
                .is_none()
            {
                self.writer.waiting(py, timeout, publish)?;
            }
        }
        self.writer.with(py, |writer| writer.position())
    }

    /// One delivery of the first ones of several messages, which are `bytes` bytes with their headers. Returns how many they are.
    fn publish_chunk(
        &self,
        py: Python<'_>,
        chunk: &[Input<'_, '_>],
        bytes: usize,
        timeout: Option<Duration>,
    ) -> PyResult<usize> {
        let done = self.writer.at_once(py, bytes, timeout, |writer| {
            let batch = writer.batch_timeout(bytes as u64, Some(Duration::ZERO))?;
            deliver(batch, chunk.iter().map(|input| input.bytes(py)))
        })?;
        if let Some(count) = done {
            return Ok(count);
        }
        let stable: Vec<_> = chunk.iter().map(|input| input.stable(py)).collect();
        self.writer.waiting(py, timeout, |writer, step| {
            let batch = writer.batch_timeout(bytes as u64, Some(step))?;
            deliver(batch, stable.iter().map(|message| &**message))
        })
    }

    /// Publishes messages as few deliveries, and counts those that were published.
    fn publish_all(
        &self,
        py: Python<'_>,
        inputs: &[Input<'_, '_>],
        timeout: Option<Duration>,
        published: &mut usize,
    ) -> PyResult<()> {
        let most = CHUNK_BYTES.min(self.max_delivery);
        while *published < inputs.len() {
            let rest = &inputs[*published..];
            let (mut count, mut bytes) = (0, 0);
            for input in rest {
                let next = bytes + HEADER + input.bytes(py).len();
                if count > 0 && next > most {
                    break;
                }
                (count, bytes) = (count + 1, next);
            }
            count = match (self.framing, count) {
                (Framing::Records, 2..) => self.publish_chunk(py, &rest[..count], bytes, timeout)?,
                _ => 0,
            };
            if count == 0 {
                count = 1;
                self.publish_bytes(py, &rest[0], &AttributesBuf::new(), timeout)?;
            }
            *published += count;
        }
        Ok(())
    }
}

/// Publishes the first messages, as many as the batch takes: in a topic of a space each has the name of the topic. Returns how many they are.
fn deliver<'m>(
    mut batch: rbmq::WriteBatch<'_>,
    messages: impl Iterator<Item = &'m [u8]>,
) -> Result<usize, PublishError> {
    let count = messages.take_while(|message| batch.push(message)).count();
    batch.deliver().map(|_| count)
}

#[pymethods]
impl TopicWriter {
    /// "records" or "raw".
    #[getter]
    fn framing(&self) -> String {
        self.framing.to_string()
    }

    /// Publishes one message: a copy of any object with the buffer protocol. Waits while the ring is full, at most `timeout`
    /// seconds. Returns the position behind the message. `attributes` say something about the content: `reply_to`,
    /// `correlation_data`, `content_type`, `properties` (a mapping or pairs of texts), `key`, `time_ms`, `expiry_ms`,
    /// `payload_is_utf8`, `retain`, `qos`, `topic`. What is None is left out.
    #[pyo3(signature = (data, timeout=None, **attributes))]
    fn publish(
        &self,
        py: Python<'_>,
        data: &Bound<'_, PyAny>,
        timeout: Option<f64>,
        attributes: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<u64> {
        let attributes = of_arguments(attributes)?;
        self.publish_bytes(py, &Input::of(data)?, &attributes, times::timeout(timeout)?)
    }

    /// Publishes many messages in few deliveries, so that each costs little. `timeout` is for each wait for room. Returns the
    /// position behind the last one. An exception has the number of messages that were published as `published`.
    #[pyo3(signature = (messages, timeout=None))]
    fn publish_many(
        &self,
        py: Python<'_>,
        messages: &Bound<'_, PyAny>,
        timeout: Option<f64>,
    ) -> PyResult<u64> {
        let timeout = times::timeout(timeout)?;
        let objects = messages.try_iter()?.collect::<PyResult<Vec<_>>>()?;
        let inputs = inputs_of(&objects)?;
        let mut published = 0;
        if let Err(error) = self.publish_all(py, &inputs, timeout, &mut published) {
            error.value(py).setattr("published", published)?;
            return Err(error);
        }
        self.writer.with(py, |writer| writer.position())
    }

    /// Room for one message of `size` bytes in the memory that it is sent from: a writable buffer, which `publish_segment`, or
    /// the end of a `with`, publishes. Waits while the ring is full. `attributes` are those of `publish`.
    #[pyo3(signature = (size, timeout=None, **attributes))]
    fn segment(
        &self,
        py: Python<'_>,
        size: u64,
        timeout: Option<f64>,
        attributes: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<MessageSegment> {
        let attributes = of_arguments(attributes)?;
        let timeout = times::timeout(timeout)?;
        let headers = HEADER + attributes_size(&attributes);
        let bytes = usize::try_from(size).unwrap_or(usize::MAX).min(usize::MAX - headers) + headers - HEADER;
        let claim = |writer: &mut rbmq::TopicWriter, step| writer.claim_with(&attributes, size, Some(step));
        let segment = match self.writer.at_once(py, bytes, timeout, |writer| claim(writer, Duration::ZERO))? {
            Some(segment) => segment,
            None => self.writer.waiting(py, timeout, claim)?,
        };
        Ok(MessageSegment::of(segment, self.writer.clone()))
    }

    /// Waits until the topic has `count` subscribers. They receive everything that is published from then on.
    #[pyo3(signature = (count, timeout=None))]
    fn wait_subscribers(&self, py: Python<'_>, count: u32, timeout: Option<f64>) -> PyResult<()> {
        self.writer.wait_for(py, timeout, |writer, step| writer.wait_subscribers(count, Some(step)))
    }

    /// Closes the topic: waits until the broker has everything and the end of the topic, at most `timeout` seconds. A second
    /// call does nothing.
    #[pyo3(signature = (timeout=Some(10.0)))]
    fn close(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<()> {
        let timeout = times::timeout(timeout)?;
        let Some(writer) = self.writer.take_waiting(py)? else { return Ok(()) };
        times::interruptible(py, move || writer.close_timeout(timeout))?.or_raise(py, "PublisherWaitError")
    }

    fn __repr__(&self) -> String {
        format!("TopicWriter(topic='{}')", self.topic)
    }
}

confirming!(TopicWriter);

getters! { TopicWriter.writer:
    /// The number of subscribers, as last reported by the broker.
    subscribers: u32;
    /// The position behind the last published message.
    position: u64;
    /// Why the broker's disk takes nothing of a kept topic at the moment, as far as the broker has said. None: it works.
    disk_failure: Option<String>;
}

closing!(TopicWriter, close, Some(10.0));
