//! The level at an interface, and the sockets beside it.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Duration;

use multimqc::functions::Record;
use multimqc::levels::{UserConfig, UserLevel};
use multimqc::{Functions, Level, Server, ServerConfig, Stack, TopicConfig, TopicId};
use multimqc_kernel::{Config, Kernel, KernelError, KernelLevel, Ports, Topic};
use rbmq_broker::{IngestLevel, IngestSettings};
use rustix::net::netdevice::name_to_index;
use rustix::net::{AddressFamily, SocketType, socket};
use tracing::warn;

use super::error::{IngestError, is_missing_right};

/// The level in the kernel wakes its reader as soon as there is a byte: the worker decides how long others are waited for.
const WAKE_BYTES: u64 = 1;

/// An interface with the level that stores the messages from there.
pub(crate) struct Interface {
    name: String,
    level: Arc<dyn Level>,
    kernel: Option<Arc<KernelLevel>>,
    stack: Arc<Stack>,
    config: ServerConfig,
    /// Closed while the interface is gone.
    server: Option<Server>,
    /// The number of the interface; none while it is gone.
    index: Option<u32>,
    /// Number of messages that earlier sockets refused.
    refused_before: u64,
}

impl Interface {
    /// Makes the level of an interface, whose entries these are, and begins to take messages.
    pub fn open(name: &str, entries: &[&IngestSettings]) -> Result<Self, IngestError> {
        let index = interface_index(name)?.ok_or_else(|| IngestError::NoInterface(name.to_owned()))?;
        let kernel = kernel_level(name, entries)?;
        let level: Arc<dyn Level> = match &kernel {
            Some(kernel) => kernel.clone(),
            None => user_level(name, entries)?,
        };
        let stack = Stack::new(vec![level.clone()]);
        let stack =
            Arc::new(stack.map_err(|error| IngestError::Stack { interface: name.to_owned(), error })?);
        let config = server_config(name, entries);
        let (name, index, server) = (name.to_owned(), Some(index), None);
        let mut opened = Self { name, level, kernel, stack, config, server, index, refused_before: 0 };
        opened.listen()?;
        Ok(opened)
    }

    pub fn level(&self) -> &Arc<dyn Level> {
        &self.level
    }

    /// The ring of a topic of the level in the kernel.
    pub fn ring(&self, topic: TopicId) -> Option<Topic> {
        self.kernel.as_ref()?.kernel().topic(topic)
    }

    /// How messages are taken, for people.
    pub fn describe(&self) -> String {
        match &self.kernel {
            Some(kernel) => format!("level kernel, {}", kernel.kernel().modes().join(", ")),
            None => "level user".into(),
        }
    }

    /// Opens the sockets: for all messages, or for those that the level in the kernel leaves to the network stack.
    fn listen(&mut self) -> Result<(), IngestError> {
        let record = |topic: &TopicConfig| {
            let functions = Functions { input: Some(Box::new(Record)), output: None };
            (topic.id, functions)
        };
        let functions = self.config.topics.iter().map(record).collect();
        let server = Server::start(self.stack.clone(), &self.config, functions);
        let failed = |error| IngestError::Sockets { interface: self.name.clone(), error };
        self.server = Some(server.map_err(failed)?);
        Ok(())
    }

    /// Looks whether the interface was removed or came back. Returns whether messages can arrive.
    pub fn check(&mut self) -> bool {
        let index = interface_index(&self.name).unwrap_or_default();
        if index == self.index && index.is_some() {
            return true;
        }
        if self.index.take().is_some() {
            warn!("ingest: interface {} is gone; waiting for it", self.name);
            self.refused_before = self.refused();
            self.server = None;
        }
        let Some(index) = index else { return false };
        match self.reopen() {
            Ok(()) => {
                tracing::info!("ingest: interface {} is back", self.name);
                self.index = Some(index);
            }
            Err(error) => warn!("{error}; trying again"),
        }
        self.index.is_some()
    }

    fn reopen(&mut self) -> Result<(), IngestError> {
        if let Some(kernel) = &self.kernel {
            let attached = kernel.kernel().attach(&self.name);
            attached.map_err(|error| IngestError::Kernel { interface: self.name.clone(), error })?;
        }
        self.listen()
    }

    /// Messages that the sockets refused.
    pub fn refused(&self) -> u64 {
        let now = self.server.as_ref().map_or(0, |server| {
            let report = server.report();
            report.refused + report.foreign + report.broken + report.version
        });
        self.refused_before + now
    }
}

/// The number of an interface of this thread's network namespace, if there is one.
fn interface_index(name: &str) -> Result<Option<u32>, IngestError> {
    let socket = socket(AddressFamily::INET, SocketType::DGRAM, None).map_err(std::io::Error::from)?;
    Ok(name_to_index(socket, name).ok())
}

fn ports(settings: &IngestSettings) -> (TopicId, Ports) {
    let push = settings.plain_push_port().unwrap_or(0);
    (TopicId(settings.source.topic), Ports { push, pull: 0, header: settings.port })
}

/// The level in the kernel. None where it cannot be had and is not required.
fn kernel_level(name: &str, entries: &[&IngestSettings]) -> Result<Option<Arc<KernelLevel>>, IngestError> {
    let first = entries[0];
    if first.level == IngestLevel::User {
        return Ok(None);
    }
    let config = Config::default()
        .ring_bytes(first.ring_bytes)
        .max_topics(entries.len() as u32)
        .batch_bytes(WAKE_BYTES)
        .records(true)
        .keep(first.keep.clone());
    let kernel = Kernel::new(config).and_then(|kernel| kernel.attach(name).map(|()| kernel));
    match kernel {
        Ok(kernel) => Ok(Some(Arc::new(KernelLevel::new(kernel, entries.iter().map(|entry| ports(entry)))))),
        Err(KernelError::Interface { name, .. }) => Err(IngestError::NoInterface(name)),
        Err(error) if first.level == IngestLevel::Auto && is_missing_right(&error) => {
            warn!(
                "ingest: no level in the kernel at {name} ({error}): its messages come through sockets, at a higher cost"
            );
            Ok(None)
        }
        Err(error) => Err(IngestError::Kernel { interface: name.to_owned(), error }),
    }
}

fn user_level(name: &str, entries: &[&IngestSettings]) -> Result<Arc<UserLevel>, IngestError> {
    let config = UserConfig {
        capacity_bytes: entries[0].ring_bytes,
        max_topics: entries.len(),
        batch_bytes: WAKE_BYTES,
    };
    let level = UserLevel::new(config);
    level
        .map(Arc::new)
        .map_err(|error| IngestError::User { interface: name.to_owned(), reason: error.to_string() })
}

fn server_config(name: &str, entries: &[&IngestSettings]) -> ServerConfig {
    let topic = |entry: &&IngestSettings| TopicConfig {
        id: TopicId(entry.source.topic),
        push_port: entry.plain_push_port(),
        pull_port: None,
    };
    ServerConfig {
        address: IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        interface: Some(name.to_owned()),
        header_port: Some(entries[0].port),
        topics: entries.iter().map(topic).collect(),
        ..ServerConfig::default()
    }
}

/// How long the interface is not looked at.
pub(crate) const CHECK_INTERVAL: Duration = Duration::from_millis(500);
