//! A subscriber: receives topics.

use std::time::Duration;

use pyo3::prelude::*;
use pyo3::types::PyBytes;
use rbmq::{Message as Copied, MessageRef, Notice, OwnedBatch, ReceiveError};

use super::batch::{Batch, Message};
use super::failures::receive_error;
use super::options;
use super::resources::{Resources, resources};
use crate::arguments::given;
use crate::classes::{closing, getters};
use crate::errors::Raise;
use crate::event::{Event, event, fields};
use crate::framework::Context;
use crate::guarded::Guarded;
use crate::notify::Pollable;
use crate::times::{self, Deadline};

/// Receives topics from a broker, and reconnects by itself: message by message as copies (`recv`, iteration), or in batches in
/// the memory where they landed (`recv_batch`).
#[pyclass(frozen, weakref, module = "rocketbufs.rbmq")]
pub struct Subscriber {
    subscriber: Guarded<rbmq::Subscriber>,
    poll: Pollable,
    addr: String,
    until_ended: bool,
}

/// The result of [`Subscriber::next_event`], before it is a Python object.
enum Next {
    Batch(OwnedBatch),
    Notice(Notice),
}

/// Turns the outcome of a wait into a result.
fn received<T>(py: Python<'_>, waited: Option<Result<T, ReceiveError>>) -> PyResult<Option<T>> {
    waited.transpose().map_err(|error| receive_error(py, &error))
}

/// Whether nothing more comes.
enum Got<T> {
    One(T),
    Ended,
}

impl Subscriber {
    /// The next message, as `of` makes it; none after the time-out, or at the end of all topics.
    fn next<R>(
        &self,
        py: Python<'_>,
        timeout: Option<Duration>,
        of: impl Fn(Python<'_>, &MessageRef<'_>) -> R,
    ) -> PyResult<Option<R>> {
        // From the ring into the Python object, if the message is there already.
        let first = self.subscriber.with(py, |subscriber| {
            let found = subscriber.recv_ref(Some(Duration::ZERO))?;
            Ok(found.map(|message| of(py, &message)))
        })?;
        let first = received(py, first.transpose())?;
        if first.is_some() || timeout == Some(Duration::ZERO) {
            return Ok(first);
        }
        let until_ended = self.until_ended;
        let waited = self.subscriber.wait(py, &Deadline::after(timeout), |subscriber, step| {
            Ok(match subscriber.recv(Some(step))? {
                Some(message) => Some(Got::One(message)),
                None => (until_ended && subscriber.ended()).then_some(Got::Ended),
            })
        })?;
        Ok(match received(py, waited)? {
            Some(Got::One(Copied { topic, bytes, attributes, epoch, end, publisher, framing })) => {
                let (topic, bytes, attributes) = (&topic, &bytes, attributes.attributes());
                Some(of(py, &MessageRef { topic, bytes, attributes, epoch, end, publisher, framing }))
            }
            Some(Got::Ended) | None => None,
        })
    }
}

/// The content of a message.
fn bytes_of(py: Python<'_>, message: &MessageRef<'_>) -> Py<PyBytes> {
    PyBytes::new(py, message.bytes).unbind()
}

/// The contents of a subscriber's messages, one after the other.
#[pyclass(frozen)]
pub struct BytesIter(Py<Subscriber>);

#[pymethods]
impl BytesIter {
    fn __iter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Option<Py<PyBytes>>> {
        self.0.get().next(py, None, bytes_of)
    }
}

#[pymethods]
impl Subscriber {
    /// Connects to a broker. With `hold` (seconds) the subscriber is durable under its name. `config` is a `Config`, a dict of
    /// settings or the path of a file. With a `context` the subscriber shares its memory and its threads.
    #[new]
    #[pyo3(signature = (addr, *, name="", hold=None, confirm_consumed=false, until_ended=false, slow=None, ring_bytes=None,
        batch_bytes=None, budget_bytes=None, max_message_bytes=None, config=None, context=None, user=None, password=None, token=None, allow_plaintext=false))]
    #[expect(clippy::too_many_arguments, reason = "they are keywords in Python")]
    fn new(
        py: Python<'_>,
        addr: &str,
        name: &str,
        hold: Option<f64>,
        confirm_consumed: bool,
        until_ended: bool,
        slow: Option<&Bound<'_, PyAny>>,
        ring_bytes: Option<u64>,
        batch_bytes: Option<u64>,
        budget_bytes: Option<u64>,
        max_message_bytes: Option<u64>,
        config: Option<&Bound<'_, PyAny>>,
        context: Option<&Bound<'_, Context>>,
        user: Option<&str>,
        password: Option<&str>,
        token: Option<&str>,
        allow_plaintext: bool,
    ) -> PyResult<Self> {
        let mut builder = rbmq::Subscriber::builder()
            .name(name)
            .confirm_consumed(confirm_consumed)
            .until_ended(until_ended)
            .login(options::login(user, password, token, allow_plaintext)?);
        builder = match resources(config, context)? {
            Resources::Own(config) => builder.config(*config),
            Resources::Shared(context) => builder.context(&context),
        };
        if let Some(hold) = times::timeout(hold)? {
            builder = builder.durable(name, hold);
        }
        if let Some(slow) = slow {
            builder = builder.slow(options::slow_policy(slow)?);
        }
        given!(builder; ring_bytes, batch_bytes, budget_bytes, max_message_bytes);
        let to = addr.to_owned();
        let subscriber =
            times::interruptible(py, move || builder.connect(&to))?.or_raise(py, "ConnectError")?;
        let subscriber = Guarded::new(subscriber, "subscriber");
        Ok(Self { subscriber, poll: Pollable::default(), addr: addr.to_owned(), until_ended })
    }

    /// Subscribes to a topic, or to every topic that a filter matches (`+` is any one level, `#` the rest). `start` is "newest",
    /// "oldest", "last", a position, a datetime, or a dict of positions by log. Returns without waiting.
    #[pyo3(signature = (topics, start=None))]
    fn subscribe(&self, py: Python<'_>, topics: &str, start: Option<&Bound<'_, PyAny>>) -> PyResult<()> {
        let start = start.map(options::start_from).transpose()?.unwrap_or_default();
        self.subscriber
            .with(py, |subscriber| subscriber.subscribe_from(topics, start))?
            .or_raise(py, "SubscribeTopicError")
    }

    /// Ends the subscription of a topic or filter, exactly as it was subscribed.
    fn unsubscribe(&self, py: Python<'_>, topics: &str) -> PyResult<()> {
        self.subscriber
            .with(py, |subscriber| subscriber.unsubscribe(topics))?
            .or_raise(py, "SubscribeTopicError")
    }

    /// A copy of the next message, waiting at most `timeout` seconds; None if nothing came, or if every topic has ended
    /// (`until_ended`).
    #[pyo3(signature = (timeout=None))]
    fn recv(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<Option<Message>> {
        self.next(py, times::timeout(timeout)?, Message::copied)
    }

    /// As `recv`, only the content: it costs half, for programs that need neither the topic nor the position.
    #[pyo3(signature = (timeout=None))]
    fn recv_bytes(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<Option<Py<PyBytes>>> {
        self.next(py, times::timeout(timeout)?, bytes_of)
    }

    /// The contents of the messages, as an iterator: to `recv_bytes` what iteration of the subscriber is to `recv`.
    fn iter_bytes(slf: Py<Self>) -> BytesIter {
        BytesIter(slf)
    }

    /// The next messages in the memory where they landed, waiting at most `timeout` seconds; None as for `recv`. Release the
    /// batch, or use it in a `with`: its space returns to the publisher then.
    #[pyo3(signature = (timeout=None))]
    fn recv_batch(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<Option<Batch>> {
        let deadline = Deadline::after(times::timeout(timeout)?);
        let until_ended = self.until_ended;
        let waited = self.subscriber.wait(py, &deadline, |subscriber, step| {
            let batch = subscriber.next_batch(Some(step))?.map(|batch| batch.into_owned());
            Ok(match batch {
                Some(batch) => Some(Got::One(batch)),
                None => (until_ended && subscriber.ended()).then_some(Got::Ended),
            })
        })?;
        Ok(match received(py, waited)? {
            Some(Got::One(batch)) => Some(Batch::of(batch)),
            Some(Got::Ended) | None => None,
        })
    }

    /// The next batch or event (`Joined`, `Lost`, `Closed`, `Gone`, `LogReplaced`, `Refused`, `OptionClamped`, `Disconnected`,
    /// `Reconnected`), waiting at most `timeout` seconds; None if nothing came.
    #[pyo3(signature = (timeout=None))]
    fn next_event<'py>(&self, py: Python<'py>, timeout: Option<f64>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let deadline = Deadline::after(times::timeout(timeout)?);
        let waited = self.subscriber.wait(py, &deadline, |subscriber, step| {
            Ok(match subscriber.next_event(Some(step))? {
                Some(rbmq::Event::Batch(batch)) => Some(Next::Batch(batch.into_owned())),
                Some(rbmq::Event::Notice(notice)) => Some(Next::Notice(notice)),
                _ => None,
            })
        })?;
        match received(py, waited)? {
            None => Ok(None),
            Some(Next::Batch(batch)) => Ok(Some(Bound::new(py, Batch::of(batch))?.into_any())),
            Some(Next::Notice(notice)) => Ok(Some(Bound::new(py, notice_of(py, notice)?)?.into_any())),
        }
    }

    fn __iter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Option<Message>> {
        self.next(py, None, Message::copied)
    }

    /// A descriptor that is readable while a call that receives would return something, or say that the subscriber is closed. The
    /// descriptor belongs to the subscriber: only poll it, and then receive with a time-out of zero until None is returned.
    fn fileno(&self, py: Python<'_>) -> PyResult<i32> {
        let copy = |subscriber: &rbmq::Subscriber| subscriber.pollable()?.try_clone_to_owned();
        Ok(self.subscriber.with(py, |subscriber| self.poll.descriptor(|| copy(subscriber)))??)
    }

    /// Closes the connection, waiting at most `timeout` seconds. Batches stay valid until they are released. A second call does
    /// nothing.
    #[pyo3(signature = (timeout=Some(10.0)))]
    fn close(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<()> {
        let timeout = times::timeout(timeout)?;
        let Some(subscriber) = self.subscriber.take_waiting(py)? else { return Ok(()) };
        self.poll.end();
        times::interruptible(py, move || subscriber.close_timeout(timeout))
    }

    /// Whether the subscriber was closed here.
    #[getter]
    fn closed(&self, py: Python<'_>) -> PyResult<bool> {
        self.subscriber.is_closed(py)
    }

    fn __repr__(&self) -> String {
        format!("Subscriber('{}')", self.addr)
    }
}

getters! { Subscriber.subscriber:
    /// Whether every subscribed topic and filter has matched a publisher's log, and all matched logs have ended and were received.
    ended: bool;
    /// Whether the connection to the broker is up.
    is_connected: bool;
}

closing!(Subscriber, close, Some(10.0));

fn notice_of(py: Python<'_>, notice: Notice) -> PyResult<Event> {
    let of_log = |kind, topic: rbmq::TopicName, epoch: rocketbufs::Epoch| -> PyResult<Event> {
        Ok(event!(py, kind; topic = topic.as_str(), epoch = epoch.0))
    };
    Ok(match notice {
        Notice::Joined { topic, epoch, start } => fields!(py, of_log("Joined", topic, epoch)?; start),
        Notice::Lost { topic, epoch, from, to } => {
            fields!(py, of_log("Lost", topic, epoch)?; start = from, end = to)
        }
        Notice::Closed { topic, epoch, end } => fields!(py, of_log("Closed", topic, epoch)?; end),
        Notice::Gone { topic, epoch, end } => fields!(py, of_log("Gone", topic, epoch)?; end),
        Notice::LogReplaced { topic, epoch } => of_log("LogReplaced", topic, epoch)?,
        Notice::Refused { topic, reason } => {
            event!(py, "Refused"; topic = topic.as_ref().map(|topic| topic.as_str()), reason)
        }
        Notice::OptionClamped(text) => event!(py, "OptionClamped"; text),
        Notice::Disconnected(reason) => event!(py, "Disconnected"; reason),
        Notice::Reconnected => event!(py, "Reconnected"),
        other => event!(py, "Other"; text = format!("{other:?}")),
    })
}
