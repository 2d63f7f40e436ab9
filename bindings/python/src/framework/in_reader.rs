//! The right to read an rIn alone.

use std::time::Duration;

use pyo3::prelude::*;
use pyo3::types::PyBytes;
use rocketbufs::{Bid, BufSeg, InEvent, InRead, Lapped};

use super::subscription::received;
use crate::classes::closing;
use crate::errors::Raise;
use crate::guarded::Guarded;
use crate::times::{self, Deadline};

/// The right to read an rIn alone. `RIn.reader` takes the right; until `close`, the end of a `with`, or the last reference, `recv`
/// of the rIn and of its subscriptions fail. Data is copied and released at once. Over shared memory with `shm.busy_poll_us` a
/// small delivery comes sooner than with `RIn.recv`; large ones are better received by `RIn.recv`, which does not copy.
#[pyclass(frozen, module = "rocketbufs")]
pub struct InReader(Guarded<rocketbufs::InReader>);

/// A copy of what was handed out: the buffer's id and the bytes.
type Copied = Option<Result<(Bid, Vec<u8>), Lapped>>;

/// The data or the event that a call received.
enum Got {
    Data(Copied),
    Event(InEvent),
}

/// Receives once, and waits at most `timeout`.
fn recv(
    reader: &mut rocketbufs::InReader,
    timeout: Duration,
) -> Result<Option<Got>, rocketbufs::error::RecvError> {
    let mut copied = None;
    let each = |bid: Bid, seg: &BufSeg<'_>| {
        let mut bytes = vec![0; seg.len()];
        copied = Some(seg.copy_to(0, &mut bytes).map(|()| (bid, bytes)));
    };
    Ok(match reader.recv(Some(timeout), each)? {
        InRead::Data => Some(Got::Data(copied)),
        InRead::Event(event) => Some(Got::Event(event)),
        _ => None,
    })
}

impl InReader {
    /// Makes a Python object of a reader.
    pub fn of(reader: rocketbufs::InReader) -> Self {
        Self(Guarded::new(reader, "reader"))
    }
}

#[pymethods]
impl InReader {
    /// The next data, as a copy of one or several whole deliveries with the id of their buffer, or the next `Event`, which
    /// follows all data that was received before. Waits at most `timeout` seconds; None if nothing came.
    #[pyo3(signature = (timeout=None))]
    fn recv(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<Option<Py<PyAny>>> {
        let waited = self.0.wait(py, &Deadline::after(times::timeout(timeout)?), recv)?;
        match waited.transpose().or_raise(py, "RecvError")? {
            None | Some(Got::Data(None)) => Ok(None),
            Some(Got::Data(Some(copied))) => {
                let (bid, bytes) = copied.or_raise(py, "LappedError")?;
                Ok(Some((bid, PyBytes::new(py, &bytes)).into_pyobject(py)?.into_any().unbind()))
            }
            Some(Got::Event(event)) => received(py, event).map(Some),
        }
    }

    /// Gives the right back. A second call does nothing.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        let reader = self.0.take(py)?;
        py.detach(|| drop(reader));
        Ok(())
    }

    /// Whether the right was given back.
    #[getter]
    fn closed(&self, py: Python<'_>) -> PyResult<bool> {
        self.0.is_closed(py)
    }
}

closing!(InReader, close);
