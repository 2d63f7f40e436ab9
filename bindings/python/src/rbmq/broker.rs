//! A broker in this process.

use std::path::PathBuf;

use pyo3::prelude::*;
use rbmq_broker::BrokerConfig;

use crate::classes::{closing, getters};
use crate::errors::Raise;
use crate::guarded::Guarded;

/// A broker in this process, with threads of its own: for tests, and for programs that bring their broker.
#[pyclass(frozen, weakref, module = "rocketbufs.rbmq")]
pub struct Broker {
    broker: Guarded<rbmq_broker::Broker>,
    /// The address in use.
    #[pyo3(get)]
    addr: String,
}

#[pymethods]
impl Broker {
    /// Starts a broker. `listen` overrides the address of the file; port 0 takes a free one.
    #[new]
    #[pyo3(signature = (listen=None, *, config_file=None))]
    fn new(py: Python<'_>, listen: Option<&str>, config_file: Option<PathBuf>) -> PyResult<Self> {
        let mut config = BrokerConfig::load(config_file.as_deref()).or_raise(py, "ConfigError")?;
        if let Some(listen) = listen {
            listen.clone_into(&mut config.broker.listen);
        }
        let broker = py.detach(|| rbmq_broker::Broker::start(config)).or_raise(py, "BrokerError")?;
        let addr = broker.addr();
        Ok(Self { broker: Guarded::new(broker, "broker"), addr })
    }

    /// Stops the broker in order: clients get the bytes that are on their way. Returns the number of bytes that were still
    /// to be delivered. A second call does nothing, and returns 0.
    fn stop(&self, py: Python<'_>) -> PyResult<u64> {
        let Some(broker) = self.broker.take_waiting(py)? else { return Ok(0) };
        crate::times::interruptible(py, move || broker.stop())
    }

    fn __repr__(&self) -> String {
        format!("Broker('{}')", self.addr)
    }
}

getters! { Broker.broker:
    /// The bytes of all rings.
    memory_in_use: u64;
}

closing!(Broker, stop);
