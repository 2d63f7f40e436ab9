//! A simulated network: TCP's twin and RDMA's, on a virtual clock, all from a seed.
//!
//! ```text
//!   host "a"                     SimNet: virtual clock, seed                  host "b"
//!  ┌──────────────┐   ┌──────────────────────────────────────────────┐   ┌──────────────┐
//!  │ SimTransport │──▶│ outbox ─▶ Stream: window, cut anywhere ─────▶ │──▶│ SimTransport │
//!  │  (a worker)  │   │        ─▶ OneSided: land, notify, complete ─▶ │   │              │
//!  └──────────────┘   └──────────────────────────────────────────────┘   └──────────────┘
//!      poll()                 step(), cut(), partition(), kill()              poll()
//! ```
//!
//! The network has no real time and no threads. The caller polls its transports, which returns what is ready *now*, and calls
//! [`SimNet::step`] for time to pass. Everything that varies (delays, where reads and writes are cut, how
//! far a poll reads, what a broken connection loses) is drawn from the seed in the order of the calls: the same
//! calls on the same seed give the same history: see [`SimNet::trace`] and [`SimNet::fingerprint`].
//! When and where connections fail is the caller's choice.
//!
//! The bytes of a range are read from its ring at the time when the network takes them (a stream into its
//! window, a one-sided write as it lands), so space that is freed too early shows as wrong bytes. Only
//! flushed ranges are sent.
//!
//! A transport whose [`Transport::poll`](rocketnet::Transport::poll) appends nothing has no event before the next step. After a control
//! message a poll returns no more arrivals of that connection: the session may have to bind or unbind first.
//!
//! ```
//! use rocketnet_sim::{SimConfig, SimNet};
//! use rocketnet::{Event, Transport};
//!
//! let net = SimNet::new(42, SimConfig::default());
//! let (mut a, mut b) = (net.host("a"), net.host("b"));
//! let addr = b.listen("b:0").unwrap();
//! let conn = a.connect(&addr).unwrap();
//! let mut events = Vec::new();
//! while events.is_empty() && net.step() {
//!     b.poll(None, &mut events);
//! }
//! let Some(Event::Incoming(accepted)) = events.pop() else { panic!("no connection") };
//! b.adopt(accepted).unwrap();
//! while net.step() {}
//! a.poll(None, &mut events);
//! assert!(matches!(events[..], [Event::Connected(id)] if id == conn));
//! ```
#![deny(unsafe_code)]

mod clock;
mod config;
mod conn;
mod end;
mod fabric;
#[allow(unsafe_code, reason = "one-sided writes into the memory of rings")]
mod memory;
mod net;
mod outbox;
mod rng;
mod stream;
mod trace;
mod transport;
mod world;

pub use config::{BUGS, Mode, SimConfig};
pub use net::SimNet;
pub use transport::SimTransport;
