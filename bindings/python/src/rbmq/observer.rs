//! An observer: a broker's state.

use pyo3::prelude::*;
use rbmq::{ObserveError, TopicFilter, TopicName};

use super::options;
use crate::classes::closing;
use crate::errors::Raise;
use crate::guarded::Guarded;
use crate::settings;
use crate::times;

/// Asks a broker for its topics, their buffers and subscribers. Results are dictionaries, with the names of `rbmq top --json`.
#[pyclass(frozen, module = "rocketbufs.rbmq")]
pub struct Observer {
    observer: Guarded<rbmq::Observer>,
}

impl Observer {
    /// Asks without the interpreter, and makes Python objects of the answer.
    fn ask<'py>(
        &self,
        py: Python<'py>,
        ask: impl FnOnce(&mut rbmq::Observer) -> Result<serde_json::Value, ObserveError> + Send,
    ) -> PyResult<Bound<'py, PyAny>> {
        let answer = self.observer.call(py, ask)?.or_raise(py, "ObserveError")?;
        py.import("json")?.call_method1("loads", (answer.to_string(),))
    }
}

fn json<T: serde::Serialize>(value: &T) -> serde_json::Value {
    serde_json::to_value(value).unwrap_or_default()
}

#[pymethods]
impl Observer {
    /// Connects to a broker. `timeout` in seconds is for each answer.
    #[new]
    #[pyo3(signature = (addr, *, name="", timeout=Some(10.0), config=None, user=None, password=None, token=None,
        allow_plaintext=false))]
    #[expect(clippy::too_many_arguments, reason = "they are keywords in Python")]
    fn new(
        py: Python<'_>,
        addr: &str,
        name: &str,
        timeout: Option<f64>,
        config: Option<&Bound<'_, PyAny>>,
        user: Option<&str>,
        password: Option<&str>,
        token: Option<&str>,
        allow_plaintext: bool,
    ) -> PyResult<Self> {
        let builder = rbmq::Observer::builder()
            .name(name)
            .timeout(times::timeout(timeout)?)
            .login(options::login(user, password, token, allow_plaintext)?)
            .config(settings::of_argument(config)?);
        let to = addr.to_owned();
        let observer =
            times::interruptible(py, move || builder.connect(&to))?.or_raise(py, "ConnectError")?;
        Ok(Self { observer: Guarded::new(observer, "observer") })
    }

    /// The state of the broker as a whole.
    fn summary<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.ask(py, |observer| observer.summary().map(|summary| json(&summary)))
    }

    /// The topics that a filter matches (None: all), sorted by name.
    #[pyo3(signature = (filter=None))]
    fn topics<'py>(&self, py: Python<'py>, filter: Option<&str>) -> PyResult<Bound<'py, PyAny>> {
        let filter = filter.map(str::parse::<TopicFilter>).transpose().or_raise(py, "SubscribeTopicError")?;
        self.ask(py, move |observer| observer.topics(filter.as_ref()).map(|topics| json(&topics)))
    }

    /// A topic with its buffers and all their subscriptions.
    fn topic<'py>(&self, py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyAny>> {
        let topic = name.parse::<TopicName>().or_raise(py, "TopicOpenError")?;
        self.ask(py, move |observer| observer.topic(&topic).map(|detail| json(&detail)))
    }

    /// Closes the connection. A second call does nothing.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        let observer = self.observer.take(py)?;
        py.detach(|| drop(observer));
        Ok(())
    }
}

closing!(Observer, close);
