//! The gate: what gateways in this process need of the broker.
//!
//! ```text
//!   clients ──▶ gateway ── Entrance: who is it, what may it do? ──▶ users, rules, quotas, audit log, counters
//!                  └────── publisher and subscriber, over shared memory ──▶ own listener ──▶ broker
//! ```
//!
//! A gateway publishes and subscribes as any program does, but over a listener of its own, which takes nobody else. The kernel says
//! which process is at the other end, so there is no password to keep. What its clients may do is decided at the [`Entrance`].
//!
//! A gateway in a process of its own has a [`Reception`] instead of a broker: the same entrance, of a configuration.

mod clients;
mod counters;
mod desk;
mod entrance;
mod kept;
mod reception;

use std::sync::Arc;
use std::time::Duration;

use rbmq_wire::TopicName;
use rocketbufs::config::TransportKind;
use rocketbufs::{Config, Context, Listener, MeterClock};
use tracing::warn;

use crate::config::GatewaySettings;
use crate::error::BrokerError;
use crate::groups::Groups;
use crate::inbox::{Event, Sender};
use crate::kept::KeptLogs;
use crate::merge::{LocalAsk, LocalPublisher};

pub(crate) use counters::AllGatewayCounters;
pub use counters::{Count, GatewayCounters};
pub(crate) use desk::{Checker, Desk};
pub use entrance::{Entrance, EntranceEvent, Entry};
pub use kept::{Keeping, KeptBatch, KeptLog, KeptRead, KeptReadError, KeptTopics};
pub use reception::Reception;

/// The way into a broker for gateways in its process. Clones are the same gate. It is open until the broker stops.
#[derive(Clone)]
pub struct Gate(Arc<Shared>);

struct Shared {
    address: String,
    config: Config,
    desk: Desk,
    counters: AllGatewayCounters,
    kept: KeptParts,
    events: Sender,
    clock: MeterClock,
}

/// The kept topics of a broker, and their groups.
pub(crate) struct KeptParts {
    pub(crate) logs: KeptLogs,
    pub(crate) groups: Groups,
}

/// The listener for parts of this process. Dropping it stops listening.
pub(crate) struct OwnListener(Listener);

impl OwnListener {
    /// Listens if there is a gateway, before there is the log of a space, which it maps. Of other topics it gets copies.
    pub(crate) fn for_gateways(
        all: &[GatewaySettings],
        ctx: &Context,
        events: &Sender,
    ) -> Result<Option<Self>, BrokerError> {
        (!all.is_empty()).then(|| Self::bind(ctx, events)).transpose()
    }

    pub(crate) fn bind(ctx: &Context, events: &Sender) -> Result<Self, BrokerError> {
        let listener = Listener::bind_locally(ctx, "127.0.0.1:0").map_err(BrokerError::Listen)?;
        let events = events.clone();
        listener.set_conn_cb(move |conn| match conn.peer_identity().unix {
            Some(peer) if peer.pid == std::process::id() => events.event(Event::OwnConnection(conn)),
            _ => {
                warn!(peer = conn.peer_addr(), "refused at the broker's own listener: it is another process");
                conn.reject("only parts of the broker's own process connect here");
            }
        });
        Ok(Self(listener))
    }
}

impl Gate {
    pub(crate) fn new(
        listener: &OwnListener,
        ctx: &Context,
        has_members: bool,
        desk: Desk,
        counters: AllGatewayCounters,
        kept: KeptParts,
        events: Sender,
    ) -> Self {
        let mut config = ctx.config().clone();
        if has_members {
            // The own listener takes shared memory alone. Of the other members, those of other machines need TCP.
            config.transport = TransportKind::Auto;
        } else {
            config.transport = TransportKind::Shm;
            config.tls = rocketbufs::config::TlsSettings::default();
        }
        config.tcp.tcp_num_threads = 1;
        let (address, clock) = (listener.0.local_addr(), ctx.meter_clock());
        Self(Arc::new(Shared { address, config, desk, counters, kept, events, clock }))
    }

    /// The address to which a publisher or subscriber of this process connects, with [`Gate::config`]. It has all rights and no quota.
    pub fn address(&self) -> &str {
        &self.0.address
    }

    /// The framework's configuration of a publisher or subscriber that connects to [`Gate::address`]: one thread, and shared memory;
    /// in a cluster TCP too, with the broker's own certificates, for topics that other members have.
    pub fn config(&self) -> Config {
        self.0.config.clone()
    }

    /// The topics that the broker keeps on disk. `wake` is called from threads of the broker when [`KeptTopics::take_news`] has something, and
    /// not again before it was taken.
    pub fn kept_topics(&self, wake: impl Fn() + Send + Sync + 'static) -> KeptTopics {
        let Shared { kept: KeptParts { logs, groups }, desk, .. } = &*self.0;
        KeptTopics::new(logs.clone(), desk.in_force.clone(), groups.clone(), wake)
    }

    /// A publisher into a merged topic, or the log of a space, without a connection: what it publishes is copied once, mostly by the calling thread, and
    /// by that of the disk if the topic is kept. The topic stays open until the publisher has left and all that it published is merged. `wake` is called when the
    /// publisher may go on; it must only signal another thread, as the log waits for it. None: there is no such log, or the broker has not answered
    /// within `timeout`; [`Gate::address`] is the way.
    pub fn local_publisher(
        &self,
        log: &TopicName,
        timeout: Duration,
        wake: impl Fn() + Send + Sync + 'static,
    ) -> Option<LocalPublisher> {
        let (ask, answer) = LocalAsk::new(log.clone(), wake);
        self.0.events.event(Event::Local(Box::new(ask)));
        answer.recv_timeout(timeout).ok().flatten()
    }

    /// The entrance for the clients of a gateway that listens on an address. `wake` is called from any thread when
    /// [`Entrance::next_event`] has something new. The gateway serves clients until the drop of its entrance: then the broker is not
    /// ready any more (`/ready`), until one at the same address is open.
    pub fn open(
        &self,
        settings: &GatewaySettings,
        address: &str,
        wake: impl Fn() + Send + Sync + 'static,
    ) -> Entrance {
        let counters = self.0.counters.open(settings.protocol, address);
        Entrance::new(self.0.desk.clone(), counters, Arc::new(wake), self.0.clock)
    }
}

impl std::fmt::Debug for Gate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Gate").field("address", &self.0.address).finish_non_exhaustive()
    }
}
