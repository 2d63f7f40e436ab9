//! The settings of a queue, as keywords.

use std::time::Duration;

use cmq::{Config, Delivery, OverflowPolicy, Oversize};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use super::security;
use crate::times::seconds;

fn overflow(name: &str) -> PyResult<OverflowPolicy> {
    match name {
        "drop_newest" => Ok(OverflowPolicy::DropNewest),
        "drop_oldest" => Ok(OverflowPolicy::DropOldest),
        _ => {
            Err(PyValueError::new_err(format!("'{name}' is no policy; it is 'drop_newest' or 'drop_oldest'")))
        }
    }
}

fn oversize(name: &str) -> PyResult<Oversize> {
    match name {
        "fragment" => Ok(Oversize::Fragment),
        "reject" => Ok(Oversize::Reject),
        _ => Err(PyValueError::new_err(format!("oversize is 'fragment' or 'reject', not '{name}'"))),
    }
}

fn preset(name: &str) -> PyResult<Config> {
    match name {
        "default" => Ok(Config::default()),
        "paper" => Ok(Config::paper()),
        "immediate" => Ok(Config::immediate()),
        _ => Err(PyValueError::new_err(format!(
            "'{name}' is no preset; it is 'default', 'paper' or 'immediate'"
        ))),
    }
}

/// How messages are put in order: three keywords make one setting.
struct Order {
    ordered: bool,
    wait: Duration,
    window: usize,
}

impl Order {
    fn of(delivery: Delivery) -> Self {
        match delivery {
            Delivery::Ordered { wait, window } => Self { ordered: true, wait, window },
            Delivery::Unordered { wait, window } => Self { ordered: false, wait, window },
        }
    }

    fn delivery(&self) -> Delivery {
        let (wait, window) = (self.wait, self.window);
        if self.ordered { Delivery::Ordered { wait, window } } else { Delivery::Unordered { wait, window } }
    }
}

/// The configuration of a preset and of keywords with the names of the fields of `cmq::Config` (docs/CMQ.md). Times are in
/// seconds. `ordered`, `reorder_wait` and `reorder_window` are the parts of `delivery`.
///
/// # Errors
/// An unknown keyword, or a value of the wrong type.
pub fn of_keywords(name: &str, given: Option<&Bound<'_, PyDict>>) -> PyResult<Config> {
    let mut config = preset(name)?;
    let mut order = Order::of(config.delivery);
    for (name, value) in given.into_iter().flat_map(|given| given.iter()) {
        let name: String = name.extract()?;
        if !set_order(&mut order, &name, &value)? && !set_size(&mut config, &name, &value)? {
            set_other(&mut config, &name, &value)?;
        }
    }
    config.delivery = order.delivery();
    Ok(config)
}

fn set_order(order: &mut Order, name: &str, value: &Bound<'_, PyAny>) -> PyResult<bool> {
    match name {
        "ordered" => order.ordered = value.extract()?,
        "reorder_wait" => order.wait = seconds(name, value)?,
        "reorder_window" => order.window = value.extract()?,
        _ => return Ok(false),
    }
    Ok(true)
}

fn set_size(config: &mut Config, name: &str, value: &Bound<'_, PyAny>) -> PyResult<bool> {
    let field = match name {
        "qthresh" => &mut config.qthresh,
        "pending_bytes" => &mut config.pending_bytes,
        "mailbox_messages" => &mut config.mailbox_messages,
        "mailbox_bytes" => &mut config.mailbox_bytes,
        "reorder_bytes" => &mut config.reorder_bytes,
        "max_message" => &mut config.max_message,
        "fragment_bytes" => &mut config.fragment_bytes,
        "max_senders" => &mut config.max_senders,
        "max_destinations" => &mut config.max_destinations,
        "max_events" => &mut config.max_events,
        _ => return Ok(false),
    };
    *field = value.extract()?;
    Ok(true)
}

fn set_other(config: &mut Config, name: &str, value: &Bound<'_, PyAny>) -> PyResult<()> {
    match name {
        "qmessages" => config.qmessages = value.extract()?,
        "max_datagram" => config.max_datagram = value.extract()?,
        "receive_buffer" => config.receive_buffer = value.extract()?,
        "send_buffer" => config.send_buffer = value.extract()?,
        "timeout" => config.timeout = seconds(name, value)?,
        "spin" => config.spin = seconds(name, value)?,
        "fragment_timeout" => config.fragment_timeout = seconds(name, value)?,
        "flush_on_wait" => config.flush_on_wait = value.extract()?,
        "parity_fragments" => config.parity_fragments = value.extract()?,
        "segmentation_offload" => config.segmentation_offload = value.extract()?,
        "reuse_address" => config.reuse_address = value.extract()?,
        "overflow" => config.overflow = overflow(&value.extract::<String>()?)?,
        "security" => config.security = security::security_of(value)?,
        "reliable" => config.reliable = security::reliable_of(value)?,
        "oversize" => config.oversize = oversize(&value.extract::<String>()?)?,
        other => return Err(PyTypeError::new_err(format!("a queue has no setting '{other}'"))),
    }
    Ok(())
}
