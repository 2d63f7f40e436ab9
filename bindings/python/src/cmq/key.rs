//! Keys: an address and a mailbox.

use std::net::SocketAddr;

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;

/// An address and a mailbox there: where a message goes, or who sent it and to which mailbox.
#[pyclass(frozen, eq, hash, ord, module = "rocketbufs.cmq")]
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key(pub cmq::Key);

#[pymethods]
impl Key {
    /// A name is looked up. Of several addresses it is the first.
    #[new]
    #[pyo3(signature = (host, port, id=0))]
    fn new(py: Python<'_>, host: &str, port: u16, id: u32) -> PyResult<Self> {
        let found = match py.detach(|| peers::resolve_host(host, port)) {
            Err(peers::AddressError::Unknown(error)) => return Err(error.into()),
            found => found.map_err(|error| PyValueError::new_err(format!("'{host}': {error}")))?,
        };
        Ok(Self(cmq::Key::new(found[0], id)))
    }

    /// The address of the host.
    #[getter]
    fn host(&self) -> String {
        self.0.addr.ip().to_string()
    }

    /// The port.
    #[getter]
    fn port(&self) -> u16 {
        self.0.addr.port()
    }

    /// The mailbox.
    #[getter]
    fn id(&self) -> u32 {
        self.0.id
    }

    /// For copies, and pickle.
    fn __getnewargs__(&self) -> (String, u16, u32) {
        (self.host(), self.port(), self.0.id)
    }

    fn __repr__(&self) -> String {
        format!("Key('{}', {}, {})", self.host(), self.port(), self.0.id)
    }
}

/// A key from an argument: a [`Key`], or (host, port) or (host, port, id).
///
/// # Errors
/// None of these, or a host without an address.
pub fn of_argument(argument: &Bound<'_, PyAny>) -> PyResult<cmq::Key> {
    if let Ok(key) = argument.cast::<Key>() {
        return Ok(key.get().0);
    }
    let py = argument.py();
    if let Ok((host, port, id)) = argument.extract::<(String, u16, u32)>() {
        return Ok(Key::new(py, &host, port, id)?.0);
    }
    match argument.extract::<(String, u16)>() {
        Ok((host, port)) => Ok(Key::new(py, &host, port, 0)?.0),
        Err(_) => Err(PyTypeError::new_err(format!(
            "a key is a Key, (host, port) or (host, port, id), not {}",
            argument.repr()?
        ))),
    }
}

/// An address as Python's sockets have it.
pub fn address(addr: SocketAddr) -> (String, u16) {
    (addr.ip().to_string(), addr.port())
}
