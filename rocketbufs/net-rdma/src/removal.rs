//! Devices that are removed while they are in use, and return.
//!
//! The kernel reports the removal to every id of the device, of connections and listeners, and waits until all of them are
//! destroyed. So the listener of an address is closed, and opened again as soon as the address has a device again.

use std::time::{Duration, Instant};

use rocketnet::{Down, Event};

use crate::drive::GONE;
use crate::sys::Id;
use crate::transport::{LISTENER, Rdma};

/// The time between attempts to listen again.
const LISTEN_AGAIN: Duration = Duration::from_secs(1);

impl Rdma {
    /// Releases everything of the device: the kernel waits for that.
    pub(crate) fn lose_device(&mut self, index: usize, events: &mut Vec<Event>) {
        let Some(device) = self.devices.try_remove(index) else { return };
        for id in self.conns.ids().collect::<Vec<_>>() {
            let queue_pair = self.conns.get(id).and_then(|conn| conn.queue_pair.as_ref());
            if queue_pair.is_some_and(|queue_pair| queue_pair.goes_over(device.context, None)) {
                self.fail(id, Down::Broken(GONE.into()), events);
            }
        }
    }

    pub(crate) fn lose_listener(&mut self, key: usize) {
        let Some(listening) = self.listeners.get_mut(key) else { return };
        if listening.id.take().is_some() {
            tracing::warn!(
                addr = listening.addr,
                "{GONE}: no peer can connect there over RDMA until it is back"
            );
            self.listen_later(key);
        }
    }

    fn listen_later(&mut self, key: usize) {
        self.deadlines.insert((Instant::now() + LISTEN_AGAIN, LISTENER | key as u64));
    }

    pub(crate) fn listen_again(&mut self, key: usize) {
        let Some(listening) = self.listeners.get_mut(key).filter(|listening| listening.id.is_none()) else {
            return;
        };
        match Id::listen(&self.events, listening.bound, self.config.backlog, LISTENER | key as u64) {
            Ok((id, _)) => {
                tracing::info!(addr = listening.addr, "the RDMA device is back: listening there again");
                listening.id = Some(id);
            }
            Err(error) => {
                tracing::debug!(addr = listening.addr, %error, "not back yet");
                self.listen_later(key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use rocketnet::Transport;
    use rocketring::Waker;

    use super::*;
    use crate::config::RdmaConfig;
    use crate::sys::{CmEvent, Kind};
    use crate::transport::DEVICE;

    fn transport() -> Rdma {
        let waker = Arc::new(Waker::new().expect("an eventfd"));
        Rdma::new(RdmaConfig::default(), waker).expect("libraries and a valid configuration")
    }

    /// Whether the second transport can connect to the first at this address.
    fn reaches(ends: &mut [Rdma; 2], addr: &str) -> bool {
        let dialled = ends[1].connect(addr).expect("an address");
        loop {
            for (n, end) in ends.iter_mut().enumerate() {
                let mut events = Vec::new();
                end.poll(Some(Duration::from_millis(1)), &mut events);
                for event in events {
                    match event {
                        Event::Incoming(accepted) => drop(end.adopt(accepted).expect("a connection")),
                        Event::Connected(id) if n == 1 && id == dialled => return true,
                        Event::Down(id, _) if n == 1 && id == dialled => return false,
                        _ => {}
                    }
                }
            }
        }
    }

    /// The event of rdma_cm for a removed device, for the first of these numbers.
    fn gone(first: u64) -> CmEvent {
        CmEvent { number: first, kind: Kind::DeviceRemoved, private: Vec::new() }
    }

    /// Simulates the removal: Soft-RoCE does not return to a process that had the device.
    #[test]
    fn a_listener_is_made_anew_at_its_address() {
        let Ok(addresses) = std::env::var("ROCKETBUFS_TEST_RDMA") else {
            println!("skipped: no RDMA devices to test with; scripts/rdma-vm has some");
            return;
        };
        let mut ends = [transport(), transport()];
        let own = addresses.split_whitespace().next().expect("an address");
        let addr = ends[0].listen(&format!("{own}:0")).expect("its address");
        assert!(reaches(&mut ends, &addr));
        ends[0].on_event(gone(LISTENER), &mut Vec::new());
        assert!(!reaches(&mut ends, &addr));
        let until = Instant::now() + 20 * LISTEN_AGAIN;
        while !reaches(&mut ends, &addr) {
            assert!(Instant::now() < until, "no listener came back");
        }
        // A connection and the objects for its device end together, and the next connection makes both again.
        let mut events = Vec::new();
        ends.iter_mut().for_each(|end| end.on_event(gone(DEVICE), &mut events));
        let told = |event: &Event| matches!(event, Event::Down(_, Down::Broken(why)) if why == GONE);
        assert!(events.len() >= 2 && events.iter().all(told), "{events:?}");
        assert!(reaches(&mut ends, &addr));
    }
}
