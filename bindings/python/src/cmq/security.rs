//! The settings of encryption and of the reliable mode.

use std::path::PathBuf;

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use super::key;
use super::keys::{PublicKey, SecretKey, of_file};
use crate::arguments::keywords;

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
        "peers" => {
            for (address, peer) in value.cast::<PyDict>()?.iter() {
                made = made.peer(key::of_argument(&address)?.addr, public_of(&peer)?);
            }
        }
        "allowed" if value.is_none() => made.allowed = None,
        "allowed" => {
            made.allowed.get_or_insert_default();
            for key in value.try_iter()? {
                made = made.allow(public_of(&key?)?);
            }
        }
        _ => keywords!(made, name, value, "Security has no setting";
            rekey_bytes, max_sessions, max_half_open; seconds: rekey_after, handshake_timeout;
            shared_secret = (!value.is_none()).then(|| secret_of(value)).transpose()?,
            default_peer = (!value.is_none()).then(|| public_of(value)).transpose()?,
        ),
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
    keywords!(made, name, value, "Reliable has no setting";
        window, send_bytes, receive_bytes, max_keys, max_links; seconds: give_up, idle);
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
