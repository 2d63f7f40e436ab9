//! What the writers of topics and of spaces have in common: they wait for room, for subscribers and for confirmations.

use std::convert::Infallible;
use std::time::Duration;

use pyo3::prelude::*;
use rbmq::{
    AttributesBuf, ConfirmLevel, ConfirmResult, PublishError, PublisherWaitError, SpaceWriter, TopicWriter,
};

use super::confirm::{self, Confirmation, Confirmed};
use super::options;
use crate::errors::Raise;
use crate::guarded::Guarded;
use crate::notify::Notifier;
use crate::times::{self, Deadline};

/// The most bytes of messages that `publish_many` makes one delivery of.
pub const CHUNK_BYTES: usize = 128 << 10;

/// The bytes of the header of a record.
pub const HEADER: usize = rbmq::wire::RECORD_HEADER_BYTES;

/// What attributes add to a record.
pub fn attributes_size(attributes: &AttributesBuf) -> usize {
    match attributes.as_bytes().len() {
        0 => 0,
        size => rbmq::wire::ATTRIBUTES_HEADER_BYTES + size,
    }
}

/// Whether a later try may succeed.
fn may_wait(error: &PublishError) -> bool {
    matches!(error, PublishError::TimedOut { .. } | PublishError::TooFewSubscribers { .. })
}

/// A writer in Rust.
pub trait Writes: Send + 'static {
    /// The room that can be had at once.
    fn free_bytes(&self) -> u64;
    /// The position behind the last published message.
    fn position(&self) -> u64;
    /// Waits for a confirmation.
    fn confirm(&self, position: u64, level: ConfirmLevel, timeout: Option<Duration>) -> ConfirmResult;
    /// Begins a confirmation.
    fn confirmation(&self, position: u64, level: ConfirmLevel) -> rbmq::Confirmation;
}

macro_rules! writes {
    ($($writer:ty),*) => {
        $(impl Writes for $writer {
            fn free_bytes(&self) -> u64 {
                self.free_bytes()
            }

            fn position(&self) -> u64 {
                self.position()
            }

            fn confirm(&self, position: u64, level: ConfirmLevel, timeout: Option<Duration>) -> ConfirmResult {
                self.confirm(position, level, timeout)
            }

            fn confirmation(&self, position: u64, level: ConfirmLevel) -> rbmq::Confirmation {
                self.confirmation(position, level)
            }
        })*
    };
}
writes!(TopicWriter, SpaceWriter);

impl<W: Writes> Guarded<W> {
    /// Tries at once, with the interpreter, if there is room for `bytes` bytes or the call must not wait. None otherwise: a publisher
    /// that is refused asks the broker for room, which one that waits does only in time.
    pub fn at_once<R>(
        &self,
        py: Python<'_>,
        bytes: usize,
        timeout: Option<Duration>,
        attempt: impl FnOnce(&mut W) -> Result<R, PublishError>,
    ) -> PyResult<Option<R>> {
        let tried = self.with(py, |writer| {
            let may_try = timeout == Some(Duration::ZERO) || writer.free_bytes() >= (bytes + HEADER) as u64;
            may_try.then(|| attempt(writer))
        })?;
        match tried {
            Some(Err(error)) if may_wait(&error) && timeout != Some(Duration::ZERO) => Ok(None),
            tried => tried.transpose().or_raise(py, "PublishError"),
        }
    }

    /// Tries without the interpreter until there is room.
    pub fn waiting<R: Send>(
        &self,
        py: Python<'_>,
        timeout: Option<Duration>,
        attempt: impl Fn(&mut W, Duration) -> Result<R, PublishError> + Send + Sync,
    ) -> PyResult<R> {
        let mut last = None;
        let waited =
            self.wait_detached(py, &Deadline::after(timeout), |writer, step| match attempt(writer, step) {
                Ok(done) => Ok(Some(done)),
                Err(error) if may_wait(&error) => {
                    last = Some(error);
                    Ok(None)
                }
                Err(error) => Err(error),
            })?;
        let late = || Err(last.unwrap_or(PublishError::TimedOut { last_error: None }));
        waited.unwrap_or_else(late).or_raise(py, "PublishError")
    }

    /// Waits in steps for what the broker reports.
    pub fn wait_for(
        &self,
        py: Python<'_>,
        timeout: Option<f64>,
        attempt: impl Fn(&mut W, Duration) -> Result<(), PublisherWaitError> + Send + Sync,
    ) -> PyResult<()> {
        let deadline = Deadline::after(times::timeout(timeout)?);
        let waited = self.wait(py, &deadline, |writer, step| match attempt(writer, step) {
            Err(PublisherWaitError::TooFewSubscribers { .. } | PublisherWaitError::NotAccepted { .. }) => {
                Ok(None)
            }
            done => Ok::<_, Infallible>(Some(done)),
        })?;
        let done = match waited {
            Some(Ok(done)) => done,
            None => self.with(py, |writer| attempt(writer, Duration::ZERO))?,
        };
        done.map_err(|error| with_time(error, timeout)).or_raise(py, "PublisherWaitError")
    }

    /// Begins a confirmation of everything below `position` (None: of everything that was published).
    pub fn begin_confirmation(
        &self,
        py: Python<'_>,
        position: Option<u64>,
        level: &str,
        notify: Option<&Bound<'_, Notifier>>,
    ) -> PyResult<Confirmation> {
        let level = options::level(level)?;
        let begun =
            self.with(py, |writer| writer.confirmation(position.unwrap_or(writer.position()), level))?;
        Ok(Confirmation::of(begun, notify.map(|notify| notify.get())))
    }

    /// Waits until everything below `position` (None: everything that was published) is confirmed at a level.
    pub fn wait_confirmed(
        &self,
        py: Python<'_>,
        position: Option<u64>,
        level: &str,
        timeout: Option<f64>,
    ) -> PyResult<Confirmed> {
        let level = options::level(level)?;
        let deadline = Deadline::after(times::timeout(timeout)?);
        let position = match position {
            Some(position) => position,
            None => self.with(py, |writer| writer.position())?,
        };
        let waited =
            self.wait(py, &deadline, |writer, step| match writer.confirm(position, level, Some(step)) {
                Err(rbmq::ConfirmError::TimedOut { .. }) => Ok(None),
                done => Ok::<_, Infallible>(Some(done)),
            })?;
        match waited {
            Some(Ok(done)) => confirm::result(py, done),
            None => {
                let done = self.with(py, |writer| writer.confirm(position, level, Some(Duration::ZERO)))?;
                confirm::result(py, done)
            }
        }
    }
}

/// The error with the time-out of the whole call, which was waited for in steps.
fn with_time(error: PublisherWaitError, timeout: Option<f64>) -> PublisherWaitError {
    let whole = Duration::try_from_secs_f64(timeout.unwrap_or_default()).unwrap_or_default();
    match error {
        PublisherWaitError::TooFewSubscribers { topic, present, wanted, .. } => {
            PublisherWaitError::TooFewSubscribers { topic, present, wanted, waited: whole }
        }
        PublisherWaitError::NotAccepted { topic, confirmed, end, last_error, .. } => {
            PublisherWaitError::NotAccepted { topic, confirmed, end, waited: whole, last_error }
        }
        other => other,
    }
}

/// Gives a writer's class the methods that are the same for topics and spaces: confirmations, `flush` and `closed`.
macro_rules! confirming {
    ($class:ident) => {
        #[pyo3::pymethods]
        impl $class {
            /// The position below which everything is confirmed at a level.
            #[pyo3(signature = (level="accepted"))]
            fn confirmed(&self, py: Python<'_>, level: &str) -> PyResult<u64> {
                let level = $crate::rbmq::options::level(level)?;
                self.writer.with(py, |writer| writer.confirmed(level))
            }

            /// Begins a confirmation of everything below `position` (None: of everything that was published).
            #[pyo3(signature = (position=None, level="delivered", *, notify=None))]
            fn confirmation(
                &self,
                py: Python<'_>,
                position: Option<u64>,
                level: &str,
                notify: Option<&Bound<'_, $crate::notify::Notifier>>,
            ) -> PyResult<$crate::rbmq::confirm::Confirmation> {
                self.writer.begin_confirmation(py, position, level, notify)
            }

            /// Waits until everything below `position` (None: everything that was published) is confirmed at a level.
            #[pyo3(signature = (position=None, level="delivered", timeout=None))]
            fn confirm(
                &self,
                py: Python<'_>,
                position: Option<u64>,
                level: &str,
                timeout: Option<f64>,
            ) -> PyResult<$crate::rbmq::confirm::Confirmed> {
                self.writer.wait_confirmed(py, position, level, timeout)
            }

            /// Accepts a loss that a confirmation reported: confirmations continue behind the range that is returned.
            #[pyo3(signature = (level="delivered"))]
            fn accept_lost(&self, py: Python<'_>, level: &str) -> PyResult<Option<(u64, u64)>> {
                let level = $crate::rbmq::options::level(level)?;
                self.writer.with(py, |writer| writer.accept_lost(level))
            }

            /// Waits until the broker has everything that was published.
            #[pyo3(signature = (timeout=None))]
            fn flush(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<()> {
                self.writer.wait_for(py, timeout, |writer, step| writer.flush(Some(step)))
            }

            /// Whether the writer was closed here.
            #[getter]
            fn closed(&self, py: Python<'_>) -> PyResult<bool> {
                self.writer.is_closed(py)
            }
        }
    };
}
pub(super) use confirming;
