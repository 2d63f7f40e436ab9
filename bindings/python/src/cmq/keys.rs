//! Keys of queues that encrypt: secret and public ones.

use std::path::{Path, PathBuf};

use cmq::{KEY_BYTES, KeyError};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::errors::{self, Raise};

/// The public key of a queue, which its senders know: of 64 hexadecimal digits or of 32 bytes.
#[pyclass(frozen, eq, hash, ord, module = "rocketbufs.cmq")]
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PublicKey(pub cmq::PublicKey);

#[pymethods]
impl PublicKey {
    #[new]
    fn new(py: Python<'_>, key: &Bound<'_, PyAny>) -> PyResult<Self> {
        if let Ok(digits) = key.extract::<&str>() {
            return digits.parse().map(Self).or_raise(py, "CmqKeyError");
        }
        Ok(Self(cmq::PublicKey(bytes_of(key)?)))
    }

    /// Reads a public key from a file, as `cmq keygen` writes it.
    #[staticmethod]
    fn read(py: Python<'_>, path: PathBuf) -> PyResult<Self> {
        cmq::PublicKey::read(&path).map(Self).map_err(|error| of_file(py, &path, &error))
    }

    fn __bytes__<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.0.0)
    }

    fn __str__(&self) -> String {
        self.0.to_string()
    }

    /// For copies, and pickle.
    fn __getnewargs__(&self) -> (String,) {
        (self.0.to_string(),)
    }

    fn __repr__(&self) -> String {
        format!("PublicKey('{}')", self.0)
    }
}

/// The secret key of a queue, of 32 bytes. The key is erased from memory with the object, and no output shows it.
#[pyclass(frozen, module = "rocketbufs.cmq")]
pub struct SecretKey(pub cmq::SecretKey);

#[pymethods]
impl SecretKey {
    #[new]
    fn new(key: &Bound<'_, PyAny>) -> PyResult<Self> {
        Ok(Self(cmq::SecretKey::from_bytes(bytes_of(key)?)))
    }

    /// A new random key.
    #[staticmethod]
    fn generate(py: Python<'_>) -> PyResult<Self> {
        cmq::SecretKey::generate().map(Self).or_raise(py, "CmqKeyError")
    }

    /// Reads a secret key from a file that only its owner has a right to.
    #[staticmethod]
    fn read(py: Python<'_>, path: PathBuf) -> PyResult<Self> {
        cmq::SecretKey::read(&path).map(Self).map_err(|error| of_file(py, &path, &error))
    }

    /// Writes the key into a new file that only its owner may read.
    fn write_new(&self, py: Python<'_>, path: PathBuf) -> PyResult<()> {
        self.0.write_new(&path).map_err(|error| of_file(py, &path, &error))
    }

    /// The public key that belongs to this key.
    #[getter]
    fn public(&self) -> PublicKey {
        PublicKey(self.0.public())
    }

    fn __bytes__<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, self.0.as_bytes())
    }

    fn __repr__(&self) -> String {
        format!("SecretKey of {}", self.0.public())
    }
}

/// The exception of an error with a file, whose name it then has.
pub fn of_file(py: Python<'_>, path: &Path, error: &KeyError) -> PyErr {
    errors::raise(py, "CmqKeyError", &errors::variant(error), &format!("{}: {error}", path.display()))
}

fn bytes_of(key: &Bound<'_, PyAny>) -> PyResult<[u8; KEY_BYTES]> {
    let bytes = key.cast::<PyBytes>().ok().and_then(|bytes| bytes.as_bytes().try_into().ok());
    bytes.ok_or_else(|| PyTypeError::new_err(format!("a key has {KEY_BYTES} bytes")))
}
