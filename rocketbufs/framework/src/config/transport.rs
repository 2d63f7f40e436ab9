//! Which transport carries the bytes.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use settings::{Range, Setting, Spec};
use toml::Value;

/// The transport that carries the bytes. A program does not change with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum TransportKind {
    /// TCP.
    #[default]
    Tcp,
    /// Shared memory: peers on this machine.
    Shm,
    /// Shared memory where both ends are on one machine and may map each other's memory, TCP otherwise.
    Auto,
    /// RDMA for connections that this end opens; a listener takes peers of every kind.
    Rdma,
}

impl TransportKind {
    /// Its name in a configuration.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Shm => "shm",
            Self::Auto => "auto",
            Self::Rdma => "rdma",
        }
    }
}

impl Setting for TransportKind {
    fn read(&mut self, value: &Value, _: &Spec) -> bool {
        value.as_str().and_then(|v| v.parse().ok()).map(|v| *self = v).is_some()
    }

    fn value(&self) -> Option<Value> {
        Some(Value::String(self.as_str().to_owned()))
    }

    fn fits(&self, range: &Range) -> bool {
        matches!(range, Range::Choice(words) if words.contains(&self.as_str()))
    }
}

impl fmt::Display for TransportKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for TransportKind {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "tcp" => Ok(Self::Tcp),
            "shm" => Ok(Self::Shm),
            "auto" => Ok(Self::Auto),
            "rdma" => Ok(Self::Rdma),
            other => Err(format!("'{other}' is no transport of this build; there are: tcp, shm, auto, rdma")),
        }
    }
}
