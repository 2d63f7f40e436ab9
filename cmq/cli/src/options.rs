//! Options and helpers of both subcommands.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use cmq::{Cmq, Config, Event, Interface, PublicKey, Reliable, SecretKey, Security};
use commands::{Failure, print_error};

/// Settings of a queue.
#[derive(Debug, clap::Args)]
pub struct Queue {
    /// Use the paper's settings: batches of 512 bytes or 200 ms
    #[arg(long)]
    paper: bool,
    /// Send a batch once it has this many bytes [default: 60000]
    #[arg(long, value_name = "BYTES")]
    qthresh: Option<usize>,
    /// Send a batch once its oldest message has waited this long; a number alone is of milliseconds, and 0 sends each message at once
    /// [default: 5]
    #[arg(long, value_name = "TIME", value_parser = settings::millis_argument)]
    timeout: Option<Duration>,
    /// The network interface for multicast: its name or one of its addresses
    #[arg(long, value_name = "NAME|ADDRESS")]
    interface: Option<Interface>,
    /// The size of the socket's receive buffer [default: 4194304; with --paper the system's]
    #[arg(long, value_name = "BYTES")]
    receive_buffer: Option<usize>,
    /// Use the reliable mode, which both ends need: every message is sent until it is confirmed
    #[arg(long)]
    pub reliable: bool,
    /// Encrypt, with the secret key in this file; cmq keygen makes one. With --peer-key alone, a key of the moment
    #[arg(long, value_name = "FILE")]
    key: Option<PathBuf>,
    /// The public key of the other queue: 64 hexadecimal digits, or a file with them
    #[arg(long, value_name = "KEY|FILE")]
    peer_key: Option<String>,
    /// A secret that both ends have beside their keys, in a file as cmq keygen makes it
    #[arg(long, value_name = "FILE")]
    shared_secret: Option<PathBuf>,
    /// Take an IPv4 address of a name
    #[arg(short = '4', long, conflicts_with = "ipv6")]
    ipv4: bool,
    /// Take an IPv6 address of a name
    #[arg(short = '6', long)]
    ipv6: bool,
}

/// From here on the process has a secret key, which stays out of core dumps.
pub fn protect_secrets() {
    if let Err(error) = commands::secrets::protect("CMQ_CORE_DUMPS") {
        print_error("cmq", format_args!("secrets may be in core dumps of this process: {error}"));
    }
}

/// A public key, or the one in a file.
pub fn public_key(text: &str) -> Result<PublicKey, Failure> {
    text.parse().or_else(|error| {
        // A text of this length that is no key is hardly the name of a file.
        if text.len() == 64 && !Path::new(text).exists() {
            return Err(Failure::Failed(format!("{text}: {error}")));
        }
        PublicKey::read(text).map_err(|error| Failure::Failed(format!("{text}: {error}")))
    })
}

fn secret_key(path: &Path) -> Result<SecretKey, Failure> {
    protect_secrets();
    let failed = |error: &dyn fmt::Display| Failure::Failed(format!("{}: {error}", path.display()));
    SecretKey::read(path).map_err(|error| failed(&error))
}

/// Reports an event of encryption or of the reliable mode that a person wants to know at once.
pub fn report_security(event: &Event) {
    match event {
        Event::Refused { from, why } => {
            print_error("cmq", format_args!("refused a datagram from {from}: {why}"))
        }
        Event::EncryptionRequired { by } => {
            print_error("cmq", format_args!("{by} refuses messages that are not encrypted: use --peer-key"));
        }
        Event::Malformed { from, why: why @ cmq::wire::Malformed::Encrypted } => {
            print_error("cmq", format_args!("dropped a datagram from {from}: {why}"));
        }
        Event::Malformed { from, why: why @ cmq::wire::Malformed::Reliable } => {
            print_error("cmq", format_args!("dropped a datagram from {from}: {why}"));
        }
        Event::Undelivered { to, count, why, .. } => {
            print_error("cmq", format_args!("{count} messages to {to} were not confirmed: {why}"));
        }
        Event::SendFailed { to, messages, errno } => {
            let why = std::io::Error::from_raw_os_error(*errno);
            print_error("cmq", format_args!("{messages} messages to {to} were not sent: {why}"));
        }
        Event::HandshakeFailed { to, messages, why } => {
            print_error("cmq", format_args!("{messages} messages to {to} were not sent: {why}"));
        }
        _ => {}
    }
}

impl Queue {
    /// Opens a queue at an address.
    pub fn open(
        &self,
        addr: SocketAddr,
        reuse_address: bool,
        allowed: &[String],
    ) -> Result<Cmq<Bytes>, Failure> {
        let mut config = if self.paper { Config::paper() } else { Config::default() };
        config.qthresh = self.qthresh.unwrap_or(config.qthresh);
        config.timeout = self.timeout.unwrap_or(config.timeout);
        config.receive_buffer = self.receive_buffer.or(config.receive_buffer);
        config.reuse_address = reuse_address;
        config.reliable = self.reliable.then(Reliable::default);
        config.security = self.security(allowed)?;
        cmq::new_raw_rq(addr, config).map_err(|error| Failure::Failed(format!("{addr}: {error}")))
    }

    /// The keys, if any are given.
    fn security(&self, allowed: &[String]) -> Result<Option<Security>, Failure> {
        let secret = match &self.key {
            Some(path) => secret_key(path)?,
            None if self.peer_key.is_some() => {
                protect_secrets();
                SecretKey::generate().map_err(|error| Failure::Failed(error.to_string()))?
            }
            None if !allowed.is_empty() || self.shared_secret.is_some() => {
                return Err(Failure::Failed(
                    "--allow and --shared-secret need --key or --peer-key".to_owned(),
                ));
            }
            None => return Ok(None),
        };
        let mut security = Security::new(secret);
        if let Some(key) = &self.peer_key {
            security = security.default_peer(public_key(key)?);
        }
        if let Some(path) = &self.shared_secret {
            security.shared_secret = Some(secret_key(path)?);
        }
        for key in allowed {
            security = security.allow(public_key(key)?);
        }
        Ok(Some(security))
    }

    /// The address of HOST:PORT. No answer would tell which one of several is right, so it is the first, and said.
    pub fn resolve(&self, text: &str) -> Result<SocketAddr, Failure> {
        let mut all = peers::resolve(text).map_err(|error| Failure::Failed(format!("{text}: {error}")))?;
        all.retain(|address| if address.is_ipv4() { !self.ipv6 } else { !self.ipv4 });
        let first = *all.first().ok_or_else(|| {
            Failure::Failed(format!(
                "{text}: the name has no address of IPv{}",
                if self.ipv4 { 4 } else { 6 }
            ))
        })?;
        if all.len() > 1 {
            let all: Vec<String> = all.iter().map(SocketAddr::to_string).collect();
            let all = all.join(", ");
            print_error(
                "cmq",
                format_args!("{text} has several addresses: {all}; this is {first} (-4, -6: others)"),
            );
        }
        Ok(first)
    }

    /// The interface for multicast.
    pub fn interface(&self) -> &Interface {
        self.interface.as_ref().unwrap_or(&Interface::Any)
    }
}

/// The unspecified address, with the IP version of another address, and any port.
pub fn any_like(other: SocketAddr) -> SocketAddr {
    let ip: IpAddr =
        if other.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    SocketAddr::new(ip, 0)
}
