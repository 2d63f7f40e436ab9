//! A publisher: a connection and the topics that are published over it.

use std::convert::Infallible;
use std::sync::Arc;

use pyo3::prelude::*;
use rbmq::{PublisherEvent, TopicOptions};

use super::options;
use super::resources::{Resources, resources};
use super::space::SpaceWriter;
use super::writer::TopicWriter;
use crate::arguments::given;
use crate::classes::{closing, getters};
use crate::errors::{self, Raise};
use crate::event::{Event, event};
use crate::framework::Context;
use crate::guarded::Guarded;
use crate::notify::Pollable;
use crate::times::{self, Deadline};

/// Publishes to a broker, and reconnects by itself. `topic` opens a topic.
#[pyclass(frozen, weakref, module = "rocketbufs.rbmq")]
pub struct Publisher {
    publisher: Guarded<Arc<rbmq::Publisher>>,
    poll: Pollable,
    addr: String,
}

#[pymethods]
impl Publisher {
    /// Connects to a broker. `config` is a `Config`, a dict of settings or the path of a file. With a `context` the publisher
    /// shares its memory and its threads; messages that the broker has not accepted are then kept for `limits.max_hold_ms` of that
    /// context while the broker is away.
    #[new]
    #[pyo3(signature = (addr, *, name="", config=None, context=None, user=None, password=None, token=None,
        allow_plaintext=false))]
    #[expect(clippy::too_many_arguments, reason = "they are keywords in Python")]
    fn new(
        py: Python<'_>,
        addr: &str,
        name: &str,
        config: Option<&Bound<'_, PyAny>>,
        context: Option<&Bound<'_, Context>>,
        user: Option<&str>,
        password: Option<&str>,
        token: Option<&str>,
        allow_plaintext: bool,
    ) -> PyResult<Self> {
        let builder = rbmq::Publisher::builder().name(name).login(options::login(
            user,
            password,
            token,
            allow_plaintext,
        )?);
        let builder = match resources(config, context)? {
            Resources::Own(config) => builder.config(*config),
            Resources::Shared(context) => builder.context(&context),
        };
        let to = addr.to_owned();
        let publisher =
            times::interruptible(py, move || builder.connect(&to))?.or_raise(py, "ConnectError")?;
        let publisher = Guarded::new(Arc::new(publisher), "publisher");
        Ok(Self { publisher, poll: Pollable::default(), addr: addr.to_owned() })
    }

    /// Opens a topic, and waits until the broker has taken it, at most `open_timeout` seconds.
    #[pyo3(signature = (name, *, framing="records", ring_bytes=None, max_delivery_bytes=None, open_timeout=Some(10.0),
        keep_until_delivered=false, min_subscribers=0, max_confirmations=65536))]
    #[expect(clippy::too_many_arguments, reason = "they are keywords in Python")]
    fn topic(
        &self,
        py: Python<'_>,
        name: &str,
        framing: &str,
        ring_bytes: Option<u64>,
        max_delivery_bytes: Option<u64>,
        open_timeout: Option<f64>,
        keep_until_delivered: bool,
        min_subscribers: u32,
        max_confirmations: usize,
    ) -> PyResult<TopicWriter> {
        let framing = options::framing(framing)?;
        let mut options = TopicOptions::default()
            .framing(framing)
            .open_timeout(times::timeout(open_timeout)?)
            .keep_until_delivered(keep_until_delivered)
            .min_subscribers(min_subscribers)
            .max_confirmations(max_confirmations);
        given!(options; ring_bytes, max_delivery_bytes);
        let (publisher, name) = (self.publisher.shared(py)?, name.to_owned());
        let writer = times::interruptible(py, move || publisher.topic_with(&name, options))?
            .or_raise(py, "TopicOpenError")?;
        Ok(TopicWriter::of(writer, framing))
    }

    /// Opens a space, all topics of a pattern such as "devices/#" that the broker keeps in one log, to publish to any of them. Waits until the
    /// broker has taken it, at most `open_timeout` seconds.
    #[pyo3(signature = (pattern, *, ring_bytes=None, max_delivery_bytes=None, open_timeout=Some(10.0),
        keep_until_delivered=false, max_confirmations=65536))]
    #[expect(clippy::too_many_arguments, reason = "they are keywords in Python")]
    fn space(
        &self,
        py: Python<'_>,
        pattern: &str,
        ring_bytes: Option<u64>,
        max_delivery_bytes: Option<u64>,
        open_timeout: Option<f64>,
        keep_until_delivered: bool,
        max_confirmations: usize,
    ) -> PyResult<SpaceWriter> {
        let mut options = TopicOptions::default()
            .open_timeout(times::timeout(open_timeout)?)
            .keep_until_delivered(keep_until_delivered)
            .max_confirmations(max_confirmations);
        given!(options; ring_bytes, max_delivery_bytes);
        let (publisher, pattern) = (self.publisher.shared(py)?, pattern.to_owned());
        let writer = times::interruptible(py, move || publisher.space_with(&pattern, options))?
            .or_raise(py, "TopicOpenError")?;
        Ok(SpaceWriter::of(writer))
    }

    /// The next event, waiting at most `timeout` seconds; None if nothing happened. Events are collected from the first call of
    /// this or of `fileno` on, at most 256.
    #[pyo3(signature = (timeout=None))]
    fn next_event(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<Option<Event>> {
        let deadline = Deadline::after(times::timeout(timeout)?);
        let waited = self.publisher.wait_shared(py, &deadline, |publisher, step| {
            Ok::<_, Infallible>(publisher.next_event(Some(step)))
        })?;
        match waited {
            Some(Ok(event)) => event_of(py, event).map(Some),
            None => Ok(None),
        }
    }

    /// A descriptor that is readable while `next_event` would return an event, or say that the publisher is closed. The descriptor
    /// belongs to the publisher: only poll it.
    fn fileno(&self, py: Python<'_>) -> PyResult<i32> {
        Ok(self.publisher.with(py, |publisher| self.poll.descriptor_of(publisher.pollable()))??)
    }

    /// Closes the connection after the queued data, waiting at most `timeout` seconds. Close the topics before. A second call
    /// does nothing.
    #[pyo3(signature = (timeout=Some(10.0)))]
    fn close(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<()> {
        let timeout = times::timeout(timeout)?;
        let deadline = Deadline::after(timeout);
        let Some(publisher) = self.publisher.take_waiting(py)? else { return Ok(()) };
        self.poll.end();
        times::interruptible(py, move || publisher.close_timeout(deadline.left()))
    }

    /// Whether the publisher was closed here.
    #[getter]
    fn closed(&self, py: Python<'_>) -> PyResult<bool> {
        self.publisher.is_closed(py)
    }

    fn __repr__(&self) -> String {
        format!("Publisher('{}')", self.addr)
    }
}

getters! { Publisher.publisher:
    /// Whether the connection to the broker is up.
    is_connected: bool;
}

closing!(Publisher, close, Some(10.0));

fn event_of(py: Python<'_>, event: PublisherEvent) -> PyResult<Event> {
    Ok(match event {
        PublisherEvent::Disconnected(reason) => event!(py, "Disconnected"; reason),
        PublisherEvent::Reconnected => event!(py, "Reconnected"),
        PublisherEvent::TopicRefused { topic, code, reason } => {
            event!(py, "TopicRefused"; topic = topic.as_str(), code = errors::variant(&code), reason)
        }
        PublisherEvent::Subscribers { topic, count } => {
            event!(py, "Subscribers"; topic = topic.as_str(), count)
        }
        PublisherEvent::Room { topic } => event!(py, "Room"; topic = topic.as_str()),
        PublisherEvent::DiskFailed { topic, reason } => {
            event!(py, "DiskFailed"; topic = topic.as_str(), reason)
        }
        PublisherEvent::DiskRecovered { topic } => event!(py, "DiskRecovered"; topic = topic.as_str()),
        PublisherEvent::Missed { events } => event!(py, "Missed"; events),
        PublisherEvent::Ended { shut_down, reason } => {
            let kind = if shut_down { "ShutDown" } else { "Closed" };
            return Err(errors::raise(py, "Closed", kind, &reason));
        }
        other => event!(py, "Other"; text = format!("{other:?}")),
    })
}
