//! The conformance suite's laboratory on a simulated network.

use rocketnet::conformance::Lab;
use rocketnet::{Event, Transport};
use rocketnet_sim::{SimConfig, SimNet, SimTransport};

/// A lab in which each transport is a host of its own. Virtual time passes when nothing happens, and a little at each poll.
pub struct SimLab {
    net: SimNet,
    seed: u64,
    hosts: u32,
    ports: u32,
    polls: u64,
}

impl SimLab {
    pub fn new(seed: u64, config: SimConfig) -> Self {
        Self { net: SimNet::new(seed, config), seed, hosts: 0, ports: 0, polls: 0 }
    }
}

impl Drop for SimLab {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("seed {}, the last events:\n{}", self.seed, self.net.trace());
        }
    }
}

impl Lab for SimLab {
    type Link = SimTransport;

    fn transport(&mut self) -> SimTransport {
        self.hosts += 1;
        self.net.host(&format!("host{}", self.hosts))
    }

    fn listen_address(&mut self) -> String {
        self.ports += 1;
        format!("host1:{}", self.ports)
    }

    fn dead_address(&mut self) -> String {
        "nowhere:1".to_owned()
    }

    fn poll(&mut self, link: &mut SimTransport, idle: bool, events: &mut Vec<Event>) {
        self.polls += 1;
        if idle || self.polls.is_multiple_of(3) {
            self.net.step();
        }
        link.poll(None, events);
    }

    fn bytes(&self) -> u64 {
        256 << 10
    }
}
