//! Workers of groups, and their messages.

use std::time::Duration;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use rbmq::{AttributesBuf, GroupBuilder, GroupError};

use super::attributes::to_dict;
use super::failures::group_error;
use super::options;
use super::resources::{Resources, resources};
use crate::arguments::given;
use crate::classes::{closing, getters};
use crate::errors;
use crate::export::{Exports, Memory, buffer_protocol};
use crate::framework::Context;
use crate::guarded::Guarded;
use crate::times::{self, Deadline};

/// A message that a worker of a group has: it is acknowledged (`ack`), given back (`nack`, `release`) or, once it is not used any more, comes
/// again when the time of the group is over, which is a failed attempt. The end of a `with` acknowledges it; an exception there is no word.
/// Any thread may use it, also when the worker is closed.
#[pyclass(frozen, weakref, module = "rocketbufs.rbmq")]
pub struct GroupMessage {
    /// Taken by the word that ends it.
    message: Guarded<rbmq::GroupMessage>,
    data: Py<PyBytes>,
    attributes: AttributesBuf,
    /// The position in the log of the topic: the name of the message among those of the group.
    #[pyo3(get)]
    position: u64,
    /// 1, or more if earlier attempts have failed.
    #[pyo3(get)]
    attempt: u16,
}

impl GroupMessage {
    fn of(py: Python<'_>, mut message: rbmq::GroupMessage) -> Self {
        let data = PyBytes::new(py, &std::mem::take(&mut message.bytes)).unbind();
        let attributes = std::mem::take(&mut message.attributes);
        let (position, attempt) = (message.position, message.attempt);
        Self { message: Guarded::new(message, "message"), data, attributes, position, attempt }
    }

    /// Says the last word, without the interpreter.
    fn say(&self, py: Python<'_>, word: impl FnOnce(rbmq::GroupMessage) + Send) -> PyResult<()> {
        let Some(message) = self.message.take(py)? else { return Err(settled(py)) };
        py.detach(|| word(message));
        Ok(())
    }
}

fn settled(py: Python<'_>) -> PyErr {
    let text = "the message was acknowledged, given back or dropped before";
    errors::raise(py, "GroupError", "Settled", text)
}

/// A time that is no time-out, in seconds.
fn time(seconds: f64) -> PyResult<Duration> {
    Ok(times::timeout(Some(seconds))?.unwrap_or(Duration::MAX))
}

#[pymethods]
impl GroupMessage {
    /// The message is done, and does not come again. Returns at once: `GroupWorker.flush` waits until the broker has it.
    fn ack(&self, py: Python<'_>) -> PyResult<()> {
        self.say(py, rbmq::GroupMessage::ack)
    }

    /// An attempt has failed: others, or this worker, get the message after `delay` seconds, at most 12 hours.
    #[pyo3(signature = (delay=0.0))]
    fn nack(&self, py: Python<'_>, delay: f64) -> PyResult<()> {
        let delay = time(delay)?;
        self.say(py, move |message| message.nack(delay))
    }

    /// The worker gets `seconds` from now on, at most 12 hours. Without effect if the time of the message was over already.
    fn extend(&self, py: Python<'_>, seconds: f64) -> PyResult<()> {
        let time = time(seconds)?;
        if self.message.is_closed(py)? {
            return Err(settled(py));
        }
        self.message.with(py, |message| message.extend(time))
    }

    /// The worker has not begun with the message and gives it back. That is no failed attempt.
    fn release(&self, py: Python<'_>) -> PyResult<()> {
        self.say(py, rbmq::GroupMessage::release)
    }

    /// Whether a word was said: the message was acknowledged, given back or dropped.
    #[getter]
    fn settled(&self, py: Python<'_>) -> PyResult<bool> {
        self.message.is_closed(py)
    }

    /// The content, as `bytes`.
    #[getter]
    fn data(&self, py: Python<'_>) -> Py<PyBytes> {
        self.data.clone_ref(py)
    }

    /// The attributes of the message, by name: the keyword arguments of `publish`. Empty without attributes.
    #[getter]
    fn attributes<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        to_dict(py, self.attributes.attributes())
    }

    /// The key.
    #[getter]
    fn key<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyBytes>> {
        self.attributes.attributes().key().map(|key| PyBytes::new(py, key))
    }

    /// The properties, keys and values, in order. A key may come several times.
    #[getter]
    fn properties(&self) -> Vec<(String, String)> {
        let properties =
            self.attributes.attributes().properties().map(|(key, value)| (key.into(), value.into()));
        properties.collect()
    }

    fn __bytes__(&self, py: Python<'_>) -> Py<PyBytes> {
        self.data.clone_ref(py)
    }

    fn __len__(&self, py: Python<'_>) -> usize {
        self.data.as_bytes(py).len()
    }

    fn __bool__(&self) -> bool {
        true
    }

    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    /// Acknowledges the message, unless a word was said; after an exception the message is dropped, and comes again after its time.
    #[pyo3(signature = (kind=None, _error=None, _traceback=None))]
    fn __exit__(
        &self,
        py: Python<'_>,
        kind: Option<&Bound<'_, PyAny>>,
        _error: Option<&Bound<'_, PyAny>>,
        _traceback: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        let failed = kind.is_some();
        let Some(message) = self.message.take(py)? else { return Ok(()) };
        py.detach(|| if failed { drop(message) } else { message.ack() });
        Ok(())
    }

    fn __repr__(&self, py: Python<'_>) -> String {
        let Self { position, attempt, .. } = self;
        format!("GroupMessage(position={position}, attempt={attempt}, {} bytes)", self.__len__(py))
    }
}

impl Exports for GroupMessage {
    fn export(&self, py: Python<'_>) -> PyResult<Memory> {
        Ok(Memory::readable(self.data.as_bytes(py)))
    }

    fn unexport(&self, _py: Python<'_>) {}
}

buffer_protocol! {
    /// The content, as a memoryview without a copy.
    GroupMessage
}

/// Receives messages of a group, and reconnects by itself in the calls that wait: workers share a kept topic, and each message goes to one
/// of them until it is acknowledged.
#[pyclass(frozen, weakref, module = "rocketbufs.rbmq")]
pub struct GroupWorker {
    worker: Guarded<rbmq::GroupWorker>,
    text: String,
}

impl GroupWorker {
    fn next(&self, py: Python<'_>, timeout: Option<Duration>) -> PyResult<Option<GroupMessage>> {
        let deadline = Deadline::after(timeout);
        // Not with the interpreter, even without waiting: the call may connect again.
        let waited = self.worker.wait_detached(py, &deadline, |worker, step| worker.recv(Some(step)))?;
        let received = waited.transpose().map_err(|error| group_error(py, &error))?;
        Ok(received.map(|message| GroupMessage::of(py, message)))
    }
}

/// Adds the topic of dead letters, which has a number of attempts.
fn letters(builder: GroupBuilder, attempts: Option<u16>, topic: Option<&str>) -> PyResult<GroupBuilder> {
    match (attempts, topic) {
        (None, None) => Ok(builder),
        (Some(attempts @ 1..), Some(topic)) => Ok(builder.dead_letters(attempts, topic)),
        (Some(0), _) => Err(PyValueError::new_err("max_attempts is at least 1")),
        _ => Err(PyValueError::new_err("max_attempts and dead_letters belong together: give both or none")),
    }
}

#[pymethods]
impl GroupWorker {
    /// Joins a group for a kept topic. The keywords from `ack_time` (seconds) to `from_newest` are for a new group, which its first worker
    /// makes. `credit` is the most messages that this worker has at a time. After `max_attempts` failed attempts a message goes to the kept
    /// topic `dead_letters`.
    #[new]
    #[pyo3(signature = (addr, topic, group, *, credit=None, ack_time=None, max_attempts=None, dead_letters=None, ordered=false,
        from_newest=false, name="", config=None, context=None, user=None, password=None, token=None, allow_plaintext=false))]
    #[expect(clippy::too_many_arguments, reason = "they are keywords in Python")]
    fn new(
        py: Python<'_>,
        addr: &str,
        topic: &str,
        group: &str,
        credit: Option<u32>,
        ack_time: Option<f64>,
        max_attempts: Option<u16>,
        dead_letters: Option<&str>,
        ordered: bool,
        from_newest: bool,
        name: &str,
        config: Option<&Bound<'_, PyAny>>,
        context: Option<&Bound<'_, Context>>,
        user: Option<&str>,
        password: Option<&str>,
        token: Option<&str>,
        allow_plaintext: bool,
    ) -> PyResult<Self> {
        let login = options::login(user, password, token, allow_plaintext)?;
        let client = rbmq::Subscriber::builder().name(name).login(login);
        let client = match resources(config, context)? {
            Resources::Own(config) => client.config(*config),
            Resources::Shared(context) => client.context(&context),
        };
        let mut builder = client.group(group).ordered(ordered).from_newest(from_newest);
        let ack_time = ack_time.map(time).transpose()?;
        given!(builder; credit, ack_time);
        let builder = letters(builder, max_attempts, dead_letters)?;
        let (to, of) = (addr.to_owned(), topic.to_owned());
        let joined = times::interruptible(py, move || builder.join(&to, &of))?;
        let worker = joined.map_err(|error| group_error(py, &error))?;
        let text = format!("GroupWorker('{addr}', '{topic}', '{group}')");
        Ok(Self { worker: Guarded::new(worker, "worker"), text })
    }

    /// The next message, waiting at most `timeout` seconds; None if nothing came. A broker that is away is waited for.
    #[pyo3(signature = (timeout=None))]
    fn recv(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<Option<GroupMessage>> {
        self.next(py, times::timeout(timeout)?)
    }

    fn __iter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Option<GroupMessage>> {
        self.next(py, None)
    }

    /// Waits until everything that was acknowledged is in the broker's journal, at most `timeout` seconds. Raises a `GroupError` of the kind
    /// "InVain", once, if acknowledgements do not count.
    #[pyo3(signature = (timeout=None))]
    fn flush(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<()> {
        let timeout = times::timeout(timeout)?;
        let deadline = Deadline::after(timeout);
        let waited =
            self.worker.wait_detached(py, &deadline, |worker, step| match worker.flush(Some(step)) {
                Ok(()) => Ok(Some(())),
                Err(GroupError::TimedOut { .. }) => Ok(None),
                Err(error) => Err(error),
            })?;
        let late = || Err(GroupError::TimedOut { waited: timeout.unwrap_or_default() });
        waited.unwrap_or_else(late).map_err(|error| group_error(py, &error))
    }

    /// The time for which a worker may have a message, in seconds, as the group says.
    #[getter]
    fn ack_time(&self, py: Python<'_>) -> PyResult<f64> {
        self.worker.with(py, |worker| worker.ack_time().as_secs_f64())
    }

    /// Gives back what was not received, and waits until the broker has everything that was acknowledged, at most 2 s for each. A message
    /// that was received and has no word yet is a failed attempt. Raises as `flush`. A second call does nothing.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        let Some(worker) = self.worker.take_waiting(py)? else { return Ok(()) };
        times::interruptible(py, move || worker.close())?.map_err(|error| group_error(py, &error))
    }

    /// Whether the worker was closed here.
    #[getter]
    fn closed(&self, py: Python<'_>) -> PyResult<bool> {
        self.worker.is_closed(py)
    }

    fn __repr__(&self) -> &str {
        &self.text
    }
}

getters! { GroupWorker.worker:
    /// Whether there is a connection, and the group is joined.
    is_joined: bool;
}

closing!(GroupWorker, close);
