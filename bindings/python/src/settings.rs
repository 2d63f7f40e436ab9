//! The framework's configuration.

use std::path::PathBuf;
use std::sync::Mutex;

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict};

use crate::errors::Raise;

/// The settings of a context: defaults, a file, the environment, or values of the program (docs/CONFIGURATION.md).
#[pyclass(frozen, module = "rocketbufs")]
pub struct Config {
    config: Mutex<rocketbufs::Config>,
}

impl Config {
    /// Makes a Python object of settings.
    pub fn of(config: rocketbufs::Config) -> Self {
        Self { config: Mutex::new(config) }
    }

    fn get(&self) -> rocketbufs::Config {
        self.config.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).clone()
    }
}

#[pymethods]
impl Config {
    /// The defaults, changed by `settings`: `{"transport": "auto", "tcp": {"nodelay": False}}`.
    #[new]
    #[pyo3(signature = (settings=None))]
    fn new(py: Python<'_>, settings: Option<&Bound<'_, PyDict>>) -> PyResult<Self> {
        let mut config = rocketbufs::Config::default();
        if let Some(settings) = settings {
            assign(&mut config, "", settings)?;
        }
        config.validate().or_raise(py, "ConfigError")?;
        Ok(Self::of(config))
    }

    /// The settings of a file, if there is one, and of the environment (`ROCKETBUFS_…`).
    #[staticmethod]
    #[pyo3(signature = (path=None))]
    fn load(py: Python<'_>, path: Option<PathBuf>) -> PyResult<Self> {
        let config = rocketbufs::Config::load(path.as_deref());
        config.map(Self::of).or_raise(py, "ConfigError")
    }

    /// The settings of a TOML text.
    #[staticmethod]
    fn from_toml(py: Python<'_>, text: &str) -> PyResult<Self> {
        let config = rocketbufs::Config::from_toml(text);
        config.map(Self::of).or_raise(py, "ConfigError")
    }

    /// Changes a setting by its name: `config["tcp.nodelay"] = False`.
    fn __setitem__(&self, py: Python<'_>, name: &str, value: &Bound<'_, PyAny>) -> PyResult<()> {
        let mut changed = self.get();
        set(py, &mut changed, name, value)?;
        changed.validate().or_raise(py, "ConfigError")?;
        *self.config.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) = changed;
        Ok(())
    }

    /// All settings as TOML.
    fn to_toml(&self) -> String {
        self.get().to_toml()
    }

    fn __repr__(&self) -> String {
        format!("Config({:?})", self.get().transport)
    }
}

fn assign(config: &mut rocketbufs::Config, prefix: &str, settings: &Bound<'_, PyDict>) -> PyResult<()> {
    for (name, value) in settings.iter() {
        let name = format!("{prefix}{}", name.extract::<String>()?);
        match value.cast::<PyDict>() {
            Ok(section) => assign(config, &format!("{name}."), section)?,
            Err(_) => set(settings.py(), config, &name, &value)?,
        }
    }
    Ok(())
}

fn set(
    py: Python<'_>,
    config: &mut rocketbufs::Config,
    name: &str,
    value: &Bound<'_, PyAny>,
) -> PyResult<()> {
    let text = match value.cast::<PyBool>() {
        Ok(truth) => truth.is_true().to_string(),
        Err(_) if value.is_none() => String::new(),
        Err(_) => value.str()?.to_string(),
    };
    config.set(name, &text).or_raise(py, "ConfigError")
}

/// The configuration that a call takes: none, a [`Config`], a dictionary of settings, or the path of a file.
///
/// # Errors
/// A wrong type, or a setting that the framework refuses.
pub fn of_argument(argument: Option<&Bound<'_, PyAny>>) -> PyResult<rocketbufs::Config> {
    let Some(argument) = argument else { return Ok(rocketbufs::Config::default()) };
    let py = argument.py();
    if let Ok(config) = argument.cast::<Config>() {
        return Ok(config.get().get());
    }
    if let Ok(settings) = argument.cast::<PyDict>() {
        return Ok(Config::new(py, Some(settings))?.get());
    }
    match argument.extract::<PathBuf>() {
        Ok(path) => Ok(Config::load(py, Some(path))?.get()),
        Err(_) => Err(PyTypeError::new_err(format!(
            "config is a Config, a dict of settings or the path of a file, not {}",
            argument.get_type().name()?
        ))),
    }
}
