//! The settings of encryption and of the reliable mode.

use std::path::PathBuf;
use std::time::Duration;

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use super::key;
use super::keys::{PublicKey, SecretKey, of_file};
use crate::times::seconds;

/// The settings of a queue that encrypts (docs/CMQ.md): its secret key, which is a `SecretKey` or the path of a file, and as keywords
/// `shared_secret` (the same), `peers` ({(host, port): PublicKey}), `default_peer`, `allowed` (public keys, or None for every queue),
/// `rekey_after`, `rekey_bytes`, `handshake_timeout`, `max_sessions` and `max_half_open`. Times are in seconds.
#[pyclass(frozen, module = "rocketbufs.cmq")]
pub struct Security(pub cmq::Security);

#[pymethods]
impl Security {
    #[new]
    #[pyo3(signature = (secret, **settings))]
    fn new(secret: &Bound<'_, PyAny>, settings: Option<&Bound<'_, PyDict>>) -> PyResult<Self> {
        let mut made = cmq::Security::new(secret_of(secret)?);
        for (name, value) in settings.into_iter().flat_map(|settings| settings.iter()) {
            made = set(made, &name.extract::<String>()?, &value)?;
        }
        Ok(Self(made))
    }

    fn __repr__(&self) -> String {
        format!("Security of {}", self.0.secret.public())
    }
}

fn secret_of(argument: &Bound<'_, PyAny>) -> PyResult<cmq::SecretKey> {
    if let Ok(key) = argument.cast::<SecretKey>() {
        return Ok(key.get().0.clone());
    }
    let path: PathBuf = argument
        .extract()
        .map_err(|_| PyTypeError::new_err("a secret key is a SecretKey or the path of a file with one"))?;
    cmq::SecretKey::read(&path).map_err(|error| of_file(argument.py(), &path, &error))
}

fn set(mut made: cmq::Security, name: &str, value: &Bound<'_, PyAny>) -> PyResult<cmq::Security> {
    match name {
        "shared_secret" => made.shared_secret = (!value.is_none()).then(|| secret_of(value)).transpose()?,
        "peers" => {
            for (address, peer) in value.cast::<PyDict>()?.iter() {
                made = made.peer(key::of_argument(&address)?.addr, public_of(&peer)?);
            }
        }
        "default_peer" => made.default_peer = (!value.is_none()).then(|| public_of(value)).transpose()?,
        "allowed" if value.is_none() => made.allowed = None,
        "allowed" => {
            made.allowed.get_or_insert_default();
            for key in value.try_iter()? {
                made = made.allow(public_of(&key?)?);
            }
        }
        "rekey_after" => made.rekey_after = seconds(name, value)?,
        "rekey_bytes" => made.rekey_bytes = value.extract()?,
        "handshake_timeout" => made.handshake_timeout = seconds(name, value)?,
        "max_sessions" => made.max_sessions = value.extract()?,
        "max_half_open" => made.max_half_open = value.extract()?,
        other => return Err(PyTypeError::new_err(format!("Security has no setting '{other}'"))),
    }
    Ok(made)
}

fn public_of(argument: &Bound<'_, PyAny>) -> PyResult<cmq::PublicKey> {
    let key = argument.cast::<PublicKey>();
    Ok(key.map_err(|_| PyTypeError::new_err("a peer's key is a PublicKey: PublicKey.read(path)"))?.get().0)
}

/// The settings of the reliable mode (docs/CMQ.md), as keywords: `window`, `send_bytes`, `receive_bytes`, `give_up`, `idle`, `max_keys`
/// and `max_links`. Times are in seconds.
#[pyclass(frozen, module = "rocketbufs.cmq")]
pub struct Reliable(pub cmq::Reliable);

#[pymethods]
impl Reliable {
    #[new]
    #[pyo3(signature = (**settings))]
    fn new(settings: Option<&Bound<'_, PyDict>>) -> PyResult<Self> {
        let mut made = cmq::Reliable::default();
        for (name, value) in settings.into_iter().flat_map(|settings| settings.iter()) {
            set_reliable(&mut made, &name.extract::<String>()?, &value)?;
        }
        Ok(Self(made))
    }

    fn __repr__(&self) -> String {
        format!("{:?}", self.0)
    }
}

fn set_reliable(made: &mut cmq::Reliable, name: &str, value: &Bound<'_, PyAny>) -> PyResult<()> {
    let time: &mut Duration = match name {
        "give_up" => &mut made.give_up,
        "idle" => &mut made.idle,
        _ => {
            let size = match name {
                "window" => &mut made.window,
                "send_bytes" => &mut made.send_bytes,
                "receive_bytes" => &mut made.receive_bytes,
                "max_keys" => &mut made.max_keys,
                "max_links" => &mut made.max_links,
                other => return Err(PyTypeError::new_err(format!("Reliable has no setting '{other}'"))),
            };
            *size = value.extract()?;
            return Ok(());
        }
    };
    *time = seconds(name, value)?;
    Ok(())
}

/// The setting `security` of a queue: a [`Security`], or None.
///
/// # Errors
/// Another type.
pub fn security_of(value: &Bound<'_, PyAny>) -> PyResult<Option<cmq::Security>> {
    if value.is_none() {
        return Ok(None);
    }
    let security = value.cast::<Security>();
    Ok(Some(security.map_err(|_| PyTypeError::new_err("security is a Security or None"))?.get().0.clone()))
}

/// The setting `reliable` of a queue: a [`Reliable`], True for the defaults, or False or None.
///
/// # Errors
/// Another type.
pub fn reliable_of(value: &Bound<'_, PyAny>) -> PyResult<Option<cmq::Reliable>> {
    if let Ok(reliable) = value.cast::<Reliable>() {
        return Ok(Some(reliable.get().0.clone()));
    }
    let on: Option<bool> =
        value.extract().map_err(|_| PyTypeError::new_err("reliable is True, False, None or a Reliable"))?;
    Ok(on.unwrap_or(false).then(cmq::Reliable::default))
}
