//! What the conformance suite needs of TCP, which TLS and local sockets share.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use rocketnet::conformance::Lab;
use rocketnet::conformance::proxy::Proxy;
use rocketnet::tcp::{Tcp, TcpConfig};
use rocketnet::{Event, Transport};
use rocketring::Waker;
use testkit::own_addr;

/// How a proxy between the two ends cuts the stream.
#[derive(Clone, Copy)]
pub struct Cut {
    pub max_write: usize,
    pub max_read: usize,
}

pub struct TcpLab {
    pub config: TcpConfig,
    pub cut: Option<Cut>,
    /// Whether both ends map the peer's rings.
    pub maps: bool,
    pub bytes: u64,
    pub proxies: Vec<Proxy>,
}

impl TcpLab {
    pub fn new(config: TcpConfig, bytes: u64) -> Self {
        Self { config, cut: None, maps: false, bytes, proxies: Vec::new() }
    }

    pub fn plain() -> Self {
        Self::new(TcpConfig::default(), 16 << 20)
    }

    /// The kernel raises both to its minimum, a few KiB, so that every write is partial and every read short.
    pub fn smallest_buffers() -> Self {
        let config = TcpConfig {
            send_buffer_bytes: Some(1),
            receive_buffer_bytes: Some(1),
            tx_queue_bytes: 64 << 10,
            staging_bytes: 4 << 10,
            read_bytes: 4 << 10,
            ..TcpConfig::default()
        };
        Self::new(config, 1 << 20)
    }

    pub fn cut(max_write: usize, max_read: usize, bytes: u64) -> Self {
        let config = TcpConfig { tx_queue_bytes: 16 << 10, max_control_bytes: 2_000, ..TcpConfig::default() };
        Self { cut: Some(Cut { max_write, max_read }), ..Self::new(config, bytes) }
    }
}

impl Lab for TcpLab {
    type Link = Tcp;

    fn transport(&mut self) -> Tcp {
        let waker = Arc::new(Waker::new().expect("an eventfd"));
        Tcp::new(self.config.clone(), waker).expect("a valid configuration")
    }

    fn listen_address(&mut self) -> String {
        own_addr()
    }

    fn dial_address(&mut self, listening: &str) -> String {
        let Some(Cut { max_write, max_read }) = self.cut else { return listening.into() };
        let target: SocketAddr = listening.parse().expect("listen returns a socket address");
        let proxy = Proxy::new(target, max_write, max_read).expect("a proxy");
        let address = proxy.address().to_string();
        self.proxies.push(proxy);
        address
    }

    fn dead_address(&mut self) -> String {
        own_addr()
    }

    fn poll(&mut self, link: &mut Tcp, idle: bool, events: &mut Vec<Event>) {
        link.poll(Some(if idle { Duration::from_millis(1) } else { Duration::ZERO }), events);
    }

    fn maps(&self) -> bool {
        self.maps
    }

    fn bytes(&self) -> u64 {
        self.bytes
    }
}
