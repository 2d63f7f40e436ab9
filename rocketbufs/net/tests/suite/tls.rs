//! The conformance suite over TLS: as it comes, with the smallest buffers, and cut at every byte.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use rocketnet::conformance::Lab;
use rocketnet::conformance::proxy::Proxy;
use rocketnet::tcp::{Carry, Tcp, TcpConfig};
use rocketnet::{Event, Transport};
use rocketring::Waker;
use testkit::own_addr;

use crate::authority::{Authority, tls};

struct TlsLab {
    config: TcpConfig,
    /// The largest write and the largest read of a proxy between the two ends.
    cut: Option<(usize, usize)>,
    proxies: Vec<Proxy>,
    bytes: u64,
}

impl TlsLab {
    fn new(config: TcpConfig, cut: Option<(usize, usize)>, bytes: u64) -> Self {
        let config = TcpConfig { tls: Some(tls(Authority::new().server())), ..config };
        Self { config, cut, proxies: Vec::new(), bytes }
    }

    fn plain() -> Self {
        Self::new(TcpConfig::default(), None, 16 << 20)
    }

    /// Local sockets are off here, as the addresses of the proxies are no listener's.
    fn auto() -> Self {
        Self::new(TcpConfig { carry: Carry::Auto, ..TcpConfig::default() }, Some((1 << 20, 1 << 20)), 4 << 20)
    }

    /// The kernel raises both to its minimum, a few KiB, so that every write is partial and every read short.
    fn smallest_buffers() -> Self {
        let config = TcpConfig {
            send_buffer_bytes: Some(1),
            receive_buffer_bytes: Some(1),
            tx_queue_bytes: 64 << 10,
            staging_bytes: 4 << 10,
            read_bytes: 4 << 10,
            ..TcpConfig::default()
        };
        Self::new(config, None, 1 << 20)
    }

    fn cut(max_write: usize, max_read: usize, bytes: u64) -> Self {
        let config = TcpConfig { tx_queue_bytes: 16 << 10, max_control_bytes: 2_000, ..TcpConfig::default() };
        Self::new(config, Some((max_write, max_read)), bytes)
    }
}

impl Lab for TlsLab {
    type Link = Tcp;

    fn transport(&mut self) -> Tcp {
        let waker = Arc::new(Waker::new().expect("an eventfd"));
        Tcp::new(self.config.clone(), waker).expect("a valid configuration")
    }

    fn listen_address(&mut self) -> String {
        own_addr()
    }

    fn dial_address(&mut self, listening: &str) -> String {
        let Some((max_write, max_read)) = self.cut else { return listening.into() };
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

    fn bytes(&self) -> u64 {
        self.bytes
    }
}

rocketnet::conformance_tests!(plain, TlsLab::plain());
rocketnet::conformance_tests!(auto, TlsLab::auto());
rocketnet::conformance_tests!(smallest_buffers, TlsLab::smallest_buffers());
rocketnet::conformance_tests!(every_byte, TlsLab::cut(1, 4_096, 100_000));
rocketnet::conformance_tests!(odd_pieces, TlsLab::cut(13, 7_000, 400_000));
