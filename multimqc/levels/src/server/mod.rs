//! The server: sockets, and a thread for each of them.
//!
//! ```text
//!   19999 ─▶ thread ─┐                         ┌─▶ append ─▶ ┌ Stack ┐ ◀─ Transfers, a thread for each pair of levels
//!   19998 ◀▶ thread ─┼─▶ Service (no sockets) ─┤             └───────┘
//!   19997 ◀▶ thread ─┘                         └─▶ read  ──▶ reply
//! ```
//!
//! A thread sleeps until its socket is readable, takes up to [`BATCH`](socket::BATCH) datagrams with one call, appends all of their
//! messages with one call, and sends all replies with one call.

mod receive;
mod socket;
mod stop;

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::thread::JoinHandle;

use crate::service::{Functions, Service, ServiceConfig, ServiceReport};
use crate::stack::{Stack, StackError};
use crate::topic::{Epoch, TopicId};
use crate::transfer::{ProgressReport, TransferConfig, Transfers};
use crate::wire::{HEADER_PORT, PULL_PORT, PUSH_PORT};
use receive::{Port, Role};
use socket::Socket;
use stop::Stop;

/// The settings of a [`Server`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerConfig {
    /// The address of all sockets; default 127.0.0.1.
    pub address: IpAddr,
    /// The network interface at which all datagrams must arrive; default none: any.
    pub interface: Option<String>,
    /// The port for the header form; default 19997, 0 for any, none for no such socket.
    pub header_port: Option<u16>,
    /// The topics; default topic 0 with the ports 19999 and 19998.
    pub topics: Vec<TopicConfig>,
    /// Bytes of each socket's receive buffer; default 4 MiB, which the system may limit (`net.core.rmem_max`). Datagrams
    /// that arrive while the buffer is full are lost, and counted by the system only.
    pub receive_buffer_bytes: usize,
    /// How datagrams are handled.
    pub service: ServiceConfig,
    /// How bytes move between levels.
    pub transfer: TransferConfig,
}

/// A topic and its plain ports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TopicConfig {
    /// The topic.
    pub id: TopicId,
    /// The port for pushes, 0 for any; none for no such socket.
    pub push_port: Option<u16>,
    /// The port for pulls, 0 for any; none for no such socket.
    pub pull_port: Option<u16>,
}

impl Default for ServerConfig {
    fn default() -> Self {
        let topic = TopicConfig { id: TopicId(0), push_port: Some(PUSH_PORT), pull_port: Some(PULL_PORT) };
        ServerConfig {
            address: IpAddr::V4(Ipv4Addr::LOCALHOST),
            interface: None,
            header_port: Some(HEADER_PORT),
            topics: vec![topic],
            receive_buffer_bytes: 4 << 20,
            service: ServiceConfig::default(),
            transfer: TransferConfig::default(),
        }
    }
}

/// Why a server did not start. No socket is left bound.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// A level did not open a topic.
    #[error(transparent)]
    Stack(#[from] StackError),
    /// The configuration's: another socket has the address, or it is none of this machine.
    #[error("cannot bind {address}: {error}")]
    Bind {
        /// The address.
        address: SocketAddr,
        /// Why.
        error: io::Error,
    },
    /// The machine's: no thread, no descriptor or no random number.
    #[error("the system refused: {0}")]
    System(#[from] io::Error),
}

/// The bound addresses.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Addresses {
    /// The header form.
    pub header: Option<SocketAddr>,
    /// For each topic: pushes and pulls of the plain form.
    pub topics: Vec<(TopicId, Option<SocketAddr>, Option<SocketAddr>)>,
}

/// A running server. Dropping it closes the sockets, and then moves all bytes to the last level.
pub struct Server {
    service: Arc<Service>,
    stack: Arc<Stack>,
    addresses: Addresses,
    stop: Arc<Stop>,
    threads: Vec<JoinHandle<()>>,
    // Dropped last: the transfers move the bytes that the threads have stored.
    transfers: Transfers,
}

impl Server {
    /// Opens the topics and starts to serve. `functions` has the functions of topics that have some.
    ///
    /// # Errors
    /// [`StartError`].
    pub fn start(
        stack: Arc<Stack>,
        config: &ServerConfig,
        functions: Vec<(TopicId, Functions)>,
    ) -> Result<Server, StartError> {
        let topics = config.topics.iter().map(|topic| Ok((topic.id, random_epoch()?)));
        stack.open_all(&topics.collect::<io::Result<Vec<_>>>()?)?;
        let mut service = Service::new(Arc::clone(&stack), config.service.clone());
        for (topic, functions) in functions {
            service.set_functions(topic, functions);
        }
        let service = Arc::new(service);
        let (addresses, ports) = bind(config)?;
        let stop = Arc::new(Stop::new()?);
        let transfers = Transfers::start(&stack, &config.transfer)?;
        let mut server = Server { service, stack, addresses, stop, threads: Vec::new(), transfers };
        for port in ports {
            let (service, stop) = (Arc::clone(&server.service), Arc::clone(&server.stop));
            let name = port.role.name();
            server.threads.push(threads::spawn(name, move || receive::run(port, &service, &stop))?);
        }
        Ok(server)
    }

    /// The bound addresses.
    pub fn addresses(&self) -> &Addresses {
        &self.addresses
    }

    /// The stack that is served.
    pub fn stack(&self) -> &Arc<Stack> {
        &self.stack
    }

    /// The counters of the sockets.
    pub fn report(&self) -> ServiceReport {
        self.service.report()
    }

    /// The progress of the transfers, for each pair of neighbouring levels.
    pub fn transfers(&self) -> Vec<ProgressReport> {
        self.transfers.progress()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.ask();
        for thread in self.threads.drain(..) {
            // A thread that panicked serves no more.
            let _ = thread.join();
        }
    }
}

/// Binds the sockets of a configuration.
fn bind(config: &ServerConfig) -> Result<(Addresses, Vec<Port>), StartError> {
    let (mut addresses, mut ports) = (Addresses::default(), Vec::new());
    let mut open = |port: Option<u16>, role: Role| -> Result<Option<SocketAddr>, StartError> {
        let Some(port) = port else { return Ok(None) };
        let address = SocketAddr::new(config.address, port);
        let socket = Socket::bind(address, config.interface.as_deref(), config.receive_buffer_bytes)
            .map_err(|error| StartError::Bind { address, error })?;
        let bound = socket.address()?;
        ports.push(Port { socket, role });
        Ok(Some(bound))
    };
    addresses.header = open(config.header_port, Role::Header)?;
    for topic in &config.topics {
        let push = open(topic.push_port, Role::Push(topic.id))?;
        let pull = open(topic.pull_port, Role::Pull(topic.id))?;
        addresses.topics.push((topic.id, push, pull));
    }
    Ok((addresses, ports))
}

/// A random epoch, which is not 0.
fn random_epoch() -> io::Result<Epoch> {
    let random = getrandom::u32().map_err(io::Error::other)?;
    Ok(Epoch(random.max(1)))
}
