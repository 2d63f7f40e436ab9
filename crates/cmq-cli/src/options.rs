//! Options and helpers of both subcommands.

use std::error::Error;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs};
use std::process::ExitCode;
use std::time::Duration;

use bytes::Bytes;
use cmq::{Cmq, Config, Interface};

/// The result of a subcommand.
pub type Done = Result<ExitCode, Box<dyn Error>>;

/// Settings of a queue.
#[derive(Debug, clap::Args)]
pub struct Queue {
    /// Use the paper's settings: batches of 512 bytes or 200 ms
    #[arg(long)]
    paper: bool,
    /// Send a batch once it has this many bytes [default: 60000]
    #[arg(long, value_name = "BYTES")]
    qthresh: Option<usize>,
    /// Send a batch once its oldest message has waited this long; 0 sends each message at once [default: 5]
    #[arg(long, value_name = "MS")]
    timeout: Option<u64>,
    /// The network interface for multicast: its name or one of its addresses
    #[arg(long, value_name = "NAME|ADDRESS")]
    interface: Option<Interface>,
    /// The size of the socket's receive buffer [default: 4194304; with --paper the system's]
    #[arg(long, value_name = "BYTES")]
    receive_buffer: Option<usize>,
}

impl Queue {
    /// Opens a queue at an address.
    pub fn open(&self, addr: SocketAddr, reuse_address: bool) -> Result<Cmq<Bytes>, Box<dyn Error>> {
        let mut config = if self.paper { Config::paper() } else { Config::default() };
        config.qthresh = self.qthresh.unwrap_or(config.qthresh);
        config.timeout = self.timeout.map_or(config.timeout, Duration::from_millis);
        config.receive_buffer = self.receive_buffer.or(config.receive_buffer);
        config.reuse_address = reuse_address;
        Ok(cmq::new_raw_rq(addr, config).map_err(|error| format!("{addr}: {error}"))?)
    }

    /// The interface for multicast.
    pub fn interface(&self) -> &Interface {
        self.interface.as_ref().unwrap_or(&Interface::Any)
    }
}

/// Resolves HOST:PORT to its first address.
pub fn resolve(text: &str) -> Result<SocketAddr, Box<dyn Error>> {
    let none = || io::Error::other("the name has no address");
    let found = text.to_socket_addrs().and_then(|mut found| found.next().ok_or_else(none));
    Ok(found.map_err(|error| format!("{text}: {error} (expected HOST:PORT)"))?)
}

/// The unspecified address, with the IP version of another address, and any port.
pub fn any_like(other: SocketAddr) -> SocketAddr {
    let ip: IpAddr =
        if other.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    SocketAddr::new(ip, 0)
}
