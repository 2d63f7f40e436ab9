//! Transports between the two devices of scripts/rdma-vm.
#![allow(dead_code, reason = "each test program uses a part of it")]

use std::sync::Arc;
use std::time::Duration;

use rocketnet::conformance::{Flow, Kit, Lab};
use rocketnet::{Down, Event, Transport};
use rocketnet_rdma::{Rdma, RdmaConfig};
use rocketring::Waker;

/// Makes transports that reach each other over the cable.
pub struct RdmaLab {
    pub config: RdmaConfig,
    pub address: String,
}

impl RdmaLab {
    /// None, with a printed line, if there are no test devices.
    pub fn new(config: RdmaConfig) -> Option<Self> {
        let Ok(addresses) = std::env::var("ROCKETBUFS_TEST_RDMA") else {
            println!("skipped: no RDMA devices to test with; scripts/rdma-vm has some");
            return None;
        };
        let address = addresses.split_whitespace().next().expect("an address").to_owned();
        Some(Self { config, address })
    }

    /// A lab with small queues, so that every resource runs out and transfers wait.
    pub fn smallest() -> Option<Self> {
        Self::new(RdmaConfig {
            send_depth: 32,
            receive_depth: 32,
            inline_bytes: 0,
            outbox_bytes: 64 << 10,
            tx_queue_bytes: 16 << 10,
            max_control_bytes: 2_000,
            ..RdmaConfig::default()
        })
    }

    /// A lab whose transports give up soon, but not so soon that a slow emulated processor counts as a peer that does not answer.
    pub fn soon() -> Option<Self> {
        Self::new(RdmaConfig { ack_timeout: 12, retries: 3, ..RdmaConfig::default() })
    }

    /// A lab whose transports poll for completions without sleeping.
    pub fn polling() -> Option<Self> {
        Self::new(RdmaConfig { polling: true, ..RdmaConfig::default() })
    }
}

impl Lab for RdmaLab {
    type Link = Rdma;

    fn transport(&mut self) -> Rdma {
        let waker = Arc::new(Waker::new().expect("an eventfd"));
        Rdma::new(self.config.clone(), waker).expect("libraries and a valid configuration")
    }

    fn listen_address(&mut self) -> String {
        format!("{}:0", self.address)
    }

    fn dead_address(&mut self) -> String {
        format!("{}:1", self.address)
    }

    fn poll(&mut self, link: &mut Rdma, idle: bool, events: &mut Vec<Event>) {
        let pause = if idle { Duration::from_millis(1) } else { Duration::ZERO };
        if self.config.polling {
            // A polling transport does not wait, and the suite limits the number of polls without an event.
            std::thread::sleep(pause);
        }
        link.poll(Some(pause), events);
    }

    // Few bytes, because the processor is emulated.
    fn bytes(&self) -> u64 {
        100_000
    }
}

/// Sends until the sender's end is down. Returns the reason.
pub fn until_down(kit: &mut Kit<'_, RdmaLab>, flow: &mut Flow, size: u64) -> Down {
    kit.until("Down", |kit| {
        flow.settle(kit);
        let down = kit.down(0, 1).is_some();
        if !down && flow.sendable_if_produced(kit) >= size && flow.produce(size) {
            flow.send(kit, size, false);
        }
        down
    });
    kit.down(0, 1).expect("just seen")
}
