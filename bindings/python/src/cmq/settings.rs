//! The settings of a queue, as keywords.

use std::time::Duration;

use cmq::{Config, Delivery, OverflowPolicy, Oversize};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use super::security;
use crate::arguments::{choice, keywords};
use crate::times::seconds;

fn overflow(name: &str) -> PyResult<OverflowPolicy> {
    let policies = [("drop_newest", OverflowPolicy::DropNewest), ("drop_oldest", OverflowPolicy::DropOldest)];
    choice("policy", name, policies)
}

fn oversize(name: &str) -> PyResult<Oversize> {
    choice("value of oversize", name, [("fragment", Oversize::Fragment), ("reject", Oversize::Reject)])
}

fn preset(name: &str) -> PyResult<Config> {
    let presets: [(_, fn() -> Config); 3] =
        [("default", Config::default), ("paper", Config::paper), ("immediate", Config::immediate)];
    Ok(choice("preset", name, presets)?())
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
        if !set_order(&mut order, &name, &value)? {
            set(&mut config, &name, &value)?;
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

fn set(config: &mut Config, name: &str, value: &Bound<'_, PyAny>) -> PyResult<()> {
    keywords!(config, name, value, "a queue has no setting";
        qthresh, qmessages, pending_bytes, mailbox_messages, mailbox_bytes, reorder_bytes, max_message, fragment_bytes,
        max_datagram, max_senders, max_destinations, max_events, receive_buffer, send_buffer, flush_on_wait,
        parity_fragments, segmentation_offload, reuse_address;
        seconds: timeout, spin, fragment_timeout;
        overflow = overflow(&value.extract::<String>()?)?,
        oversize = oversize(&value.extract::<String>()?)?,
        security = security::security_of(value)?,
        reliable = security::reliable_of(value)?,
    );
    Ok(())
}
