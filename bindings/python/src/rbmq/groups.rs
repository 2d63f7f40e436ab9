//! The groups of a broker, for those who look after them.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use rbmq::{GroupError, GroupStart, GroupStats};

use super::failures::group_error;
use super::options;
use crate::classes::closing;
use crate::errors::Raise;
use crate::guarded::Guarded;
use crate::settings;
use crate::times;

/// Lists, resets and deletes the groups of a broker. The connection is not made again.
#[pyclass(frozen, module = "rocketbufs.rbmq")]
pub struct Groups {
    groups: Guarded<rbmq::Groups>,
}

/// A group as `rbmq groups list --json` prints it.
fn row(stats: &GroupStats) -> serde_json::Value {
    let mut row = serde_json::to_value(stats).unwrap_or_default();
    row["lag_bytes"] = stats.lag_bytes().into();
    row["unread_bytes"] = stats.unread_bytes().into();
    row
}

fn start(to: &Bound<'_, PyAny>) -> PyResult<GroupStart> {
    if let Ok(position) = to.extract::<u64>() {
        return Ok(GroupStart::Position(position));
    }
    match to.extract::<String>().ok().as_deref() {
        Some("oldest") => Ok(GroupStart::Oldest),
        Some("newest") => Ok(GroupStart::Newest),
        _ => Err(PyValueError::new_err(format!(
            "{} is no start of a group; it is 'oldest', 'newest' or a position",
            to.repr()?
        ))),
    }
}

impl Groups {
    fn ask<R: Send>(
        &self,
        py: Python<'_>,
        ask: impl FnOnce(&mut rbmq::Groups) -> Result<R, GroupError> + Send,
    ) -> PyResult<R> {
        self.groups.call(py, ask)?.map_err(|error| group_error(py, &error))
    }
}

#[pymethods]
impl Groups {
    /// Connects to a broker.
    #[new]
    #[pyo3(signature = (addr, *, name="", config=None, user=None, password=None, token=None, allow_plaintext=false))]
    #[expect(clippy::too_many_arguments, reason = "they are keywords in Python")]
    fn new(
        py: Python<'_>,
        addr: &str,
        name: &str,
        config: Option<&Bound<'_, PyAny>>,
        user: Option<&str>,
        password: Option<&str>,
        token: Option<&str>,
        allow_plaintext: bool,
    ) -> PyResult<Self> {
        let builder = rbmq::Subscriber::builder()
            .name(name)
            .login(options::login(user, password, token, allow_plaintext)?)
            .config(settings::of_argument(config)?);
        let to = addr.to_owned();
        let groups = times::interruptible(py, move || builder.groups(&to))?.or_raise(py, "ConnectError")?;
        Ok(Self { groups: Guarded::new(groups, "client of groups") })
    }

    /// All groups of the topics that the user may subscribe to, sorted by topic and name: dictionaries, with the names of
    /// `rbmq groups list --json`.
    fn list<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let rows = self.ask(py, rbmq::Groups::list)?;
        let answer = serde_json::Value::Array(rows.iter().map(row).collect());
        py.import("json")?.call_method1("loads", (answer.to_string(),))
    }

    /// Lets a group begin anew: at the "oldest" message that is kept, with the next ("newest"), or at a position of the log. Its workers
    /// connect again, and what they have not acknowledged is forgotten.
    fn reset(&self, py: Python<'_>, topic: &str, group: &str, to: &Bound<'_, PyAny>) -> PyResult<()> {
        let start = start(to)?;
        self.ask(py, |groups| groups.reset(topic, group, start))
    }

    /// Forgets a group: its workers end with an error.
    fn delete(&self, py: Python<'_>, topic: &str, group: &str) -> PyResult<()> {
        self.ask(py, |groups| groups.delete(topic, group))
    }

    /// Closes the connection. A second call does nothing.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        let groups = self.groups.take(py)?;
        py.detach(|| drop(groups));
        Ok(())
    }
}

closing!(Groups, close);
