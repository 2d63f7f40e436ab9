//! Attributes of messages: keyword arguments of `publish`, and a dictionary of a message.

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyMapping};
use rbmq::{Attribute, AttributeTooLong, Attributes, AttributesBuf};

use crate::input::Input;

/// The attributes of keyword arguments. None is as if the argument were not there.
pub fn of_arguments(arguments: Option<&Bound<'_, PyDict>>) -> PyResult<AttributesBuf> {
    let mut attributes = AttributesBuf::new();
    for (name, value) in arguments.into_iter().flatten() {
        if !value.is_none() {
            set(&mut attributes, &name, &value)?;
        }
    }
    Ok(attributes)
}

fn set(attributes: &mut AttributesBuf, name: &Bound<'_, PyAny>, value: &Bound<'_, PyAny>) -> PyResult<()> {
    let py = value.py();
    let name: &str = &name.extract::<String>()?;
    match name {
        "topic" => fits(attributes.topic(&value.extract::<String>()?)),
        "reply_to" => fits(attributes.reply_to(&value.extract::<String>()?)),
        "correlation_data" => fits(attributes.correlation_data(Input::of(value)?.bytes(py))),
        "content_type" => fits(attributes.content_type(&value.extract::<String>()?)),
        "properties" => {
            let pairs = match value.cast::<PyMapping>() {
                Ok(mapping) => mapping.items()?.into_any(),
                Err(_) => value.clone(),
            };
            for pair in pairs.try_iter()? {
                let (key, value) = pair?.extract::<(String, String)>()?;
                fits(attributes.property(&key, &value))?;
            }
            Ok(())
        }
        "key" => fits(attributes.key(Input::of(value)?.bytes(py))),
        "time_ms" => fits(attributes.time_ms(value.extract()?)),
        "expiry_ms" => fits(attributes.expiry_ms(value.extract()?)),
        "payload_is_utf8" => fits(attributes.payload_is_utf8(value.extract()?)),
        "retain" => fits(attributes.retain(value.extract()?)),
        "qos" => fits(attributes.qos(value.extract()?)),
        other => Err(PyTypeError::new_err(format!("'{other}' is no attribute of a message"))),
    }
}

fn fits<T>(set: Result<T, AttributeTooLong>) -> PyResult<()> {
    set.map(drop).map_err(|error| PyValueError::new_err(error.to_string()))
}

/// The attributes as `of_arguments` takes them: only those that the message has. Unknown ones are left out.
pub fn to_dict<'py>(py: Python<'py>, attributes: Attributes<'_>) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    let properties: Vec<_> = attributes.properties().collect();
    for attribute in attributes.iter() {
        match attribute {
            Attribute::Topic(topic) => dict.set_item("topic", topic)?,
            Attribute::ReplyTo(topic) => dict.set_item("reply_to", topic)?,
            Attribute::CorrelationData(data) => dict.set_item("correlation_data", PyBytes::new(py, data))?,
            Attribute::ContentType(text) => dict.set_item("content_type", text)?,
            Attribute::Key(key) => dict.set_item("key", PyBytes::new(py, key))?,
            Attribute::TimeMs(ms) => dict.set_item("time_ms", ms)?,
            Attribute::ExpiryMs(ms) => dict.set_item("expiry_ms", ms)?,
            Attribute::PayloadIsUtf8 => dict.set_item("payload_is_utf8", true)?,
            Attribute::Retain => dict.set_item("retain", true)?,
            Attribute::Qos(qos) => dict.set_item("qos", qos)?,
            _ => {}
        }
    }
    if !properties.is_empty() {
        dict.set_item("properties", properties)?;
    }
    Ok(dict)
}
