//! The conformance suite over local sockets: rings mapped by the peer, rings copied, and with TCP beside.

use std::sync::Arc;
use std::time::Duration;

use rocketnet::conformance::Lab;
use rocketnet::tcp::{Carry, Tcp, TcpConfig};
use rocketnet::{Event, Transport};
use rocketring::Sleeper;

struct ShmLab {
    config: TcpConfig,
    maps: bool,
}

impl ShmLab {
    fn new(carry: Carry, maps: bool) -> Self {
        Self { config: TcpConfig { carry, ..TcpConfig::default() }, maps }
    }

    /// So that most is cut and waits.
    fn smallest(maps: bool) -> Self {
        let config = TcpConfig {
            send_buffer_bytes: Some(1),
            tx_queue_bytes: 16 << 10,
            staging_bytes: 4 << 10,
            read_bytes: 4 << 10,
            max_control_bytes: 2_000,
            carry: Carry::Shm,
            ..TcpConfig::default()
        };
        Self { config, maps }
    }
}

impl Lab for ShmLab {
    type Link = Tcp;

    fn transport(&mut self) -> Tcp {
        let sleeper = Arc::new(Sleeper::new().expect("an eventfd"));
        Tcp::new(self.config.clone(), sleeper).expect("a valid configuration")
    }

    fn listen_address(&mut self) -> String {
        "127.0.0.1:0".into()
    }

    fn dead_address(&mut self) -> String {
        "127.0.0.1:1".into()
    }

    fn poll(&mut self, link: &mut Tcp, idle: bool, events: &mut Vec<Event>) {
        link.poll(Some(if idle { Duration::from_millis(1) } else { Duration::ZERO }), events);
    }

    fn maps(&self) -> bool {
        self.maps
    }

    fn bytes(&self) -> u64 {
        4 << 20
    }
}

rocketnet::conformance_tests!(mapped, ShmLab::new(Carry::Shm, true));
rocketnet::conformance_tests!(mapped_in_small_pieces, ShmLab::smallest(true));
rocketnet::conformance_tests!(copied, ShmLab::new(Carry::Shm, false));
rocketnet::conformance_tests!(copied_in_small_pieces, ShmLab::smallest(false));
rocketnet::conformance_tests!(auto, ShmLab::new(Carry::Auto, true));
