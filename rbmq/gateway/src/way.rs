//! The ways of gateways to their broker: in its process, or in a process of their own.
//!
//! ```text
//!   inside:  gateway ── shared memory ──▶ broker's own listener       users, rules, quotas: the broker's
//!                └───── TCP, TLS, the broker's login ──▶ other members of its cluster, to publish topics that they have
//!   beside:  gateway ── TCP, TLS, a login ──▶ broker                  users, rules, quotas: those of the gateway's own configuration
//! ```

use std::time::Duration;

use rbmq::{ConnectError, Login, Publisher, SlowPolicy, Subscriber};
use rbmq_broker::{BrokerConfig, Gate, GatewaySettings, Reception, UpstreamSettings};
use rbmq_wire::{Credentials, TopicFilter};
use rocketbufs::{Config, Context};
use tracing::warn;

use crate::floor::hall::BrokerDoor;
use crate::floor::openings::{Receiving, Side};
use crate::floor::wake::Bell;

/// A broker in another process, and how gateways log in there. They are one user of it, whatever users their clients are.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Link {
    /// The address of the broker.
    pub address: String,
    /// The framework's configuration of the connections, with their TLS.
    pub config: Config,
    /// The user or token.
    pub login: Login,
    /// The time for which the broker keeps the places of the gateways while their connection is lost. Default 10 s. Too small: messages are lost in
    /// longer interruptions. Too large: publishers wait for this time for gateways that do not come back.
    pub hold: Duration,
    /// Spaces that the broker has, besides the one for all topics. Of these, gateways receive everything from the start, and a subscription
    /// of a client costs the broker nothing. Default none: topics of other spaces work too.
    pub spaces: Vec<TopicFilter>,
}

impl Link {
    /// A broker at an address, without a login.
    pub fn new(address: &str) -> Self {
        let (address, config, login) = (address.to_owned(), Config::default(), Login::default());
        Self { address, config, login, hold: Duration::from_secs(10), spaces: Vec::new() }
    }

    /// Connects once, and closes the connection again: whether the broker is there and takes the login.
    ///
    /// # Errors
    /// It is not, or does not.
    pub fn check(&self) -> Result<(), ConnectError> {
        let publisher = Publisher::builder().name("rbmq gateway").config(self.config.clone());
        publisher.login(self.login.clone()).connect(&self.address).map(Publisher::close)
    }
}

/// A gateway's connections to its broker.
pub(crate) struct Connected {
    /// That of both.
    pub(crate) context: Context,
    pub(crate) publisher: Publisher,
    pub(crate) subscriber: Subscriber,
    pub(crate) receiving: Receiving,
}

/// The way of one process's gateways.
#[derive(Clone, Copy)]
pub(crate) enum Way<'a> {
    Inside(&'a Gate, &'a BrokerConfig),
    Beside(&'a Reception, &'a Link),
}

impl Way<'_> {
    /// The configuration with the gateways.
    pub(crate) fn config(&self) -> &BrokerConfig {
        match self {
            Self::Inside(_, config) => config,
            Self::Beside(reception, _) => reception.config(),
        }
    }

    /// The patterns of the broker's spaces. With gateways inside, all topics without another rule are in one.
    pub(crate) fn spaces(&self) -> Vec<TopicFilter> {
        match self {
            Self::Inside(_, config) => {
                let all = TopicFilter::all();
                let own = config.broker.topics.iter().filter(|rule| rule.space && rule.pattern != all);
                own.map(|rule| rule.pattern.clone()).chain([all.clone()]).collect()
            }
            Self::Beside(_, link) => link.spaces.clone(),
        }
    }

    /// Topics that come from elsewhere, whatever the rules say: of other brokers, and of levels of MultiMQC. They have logs of their own, also those
    /// whose names are in a space of this broker.
    pub(crate) fn foreign(&self) -> Vec<TopicFilter> {
        let Self::Inside(_, config) = self else { return Vec::new() };
        let settings = &config.broker;
        let upstream = settings.upstream.iter().flat_map(|upstream| upstream.topics.clone());
        let ingest =
            settings.ingest.iter().filter_map(|ingest| ingest.topic_name().ok()?.as_str().parse().ok());
        let mut all: Vec<TopicFilter> = Vec::new();
        for pattern in upstream.chain(ingest) {
            if !all.iter().any(|other| other.covers(&pattern)) {
                all.retain(|other| !pattern.covers(other));
                all.push(pattern);
            }
        }
        all
    }

    /// Connects to the broker.
    pub(crate) fn connect(&self, name: &str) -> Result<Connected, ConnectError> {
        let (publisher, subscriber) = (Publisher::builder().name(name), Subscriber::builder().name(name));
        let subscriber = subscriber.slow(SlowPolicy::BlockIfAllowed);
        let (address, config) = match self {
            Self::Inside(gate, _) => (gate.address(), gate.config()),
            Self::Beside(_, link) => {
                let mut config = link.config.clone();
                // What the broker has not taken is kept for as long as it is away.
                config.limits.max_hold_ms = u32::MAX;
                (&*link.address, config)
            }
        };
        let context = Context::new(config)?;
        let (mut publisher, mut subscriber) = (publisher.context(&context), subscriber.context(&context));
        let receiving = Receiving::default();
        if let Self::Inside(_, config) = self
            && let Some(first) = config.broker.upstream.first().cloned()
        {
            publisher = publisher.login_elsewhere(Login::anew(move || login_of(&first)));
        }
        if let Self::Beside(_, link) = self {
            publisher = publisher.login(link.login.clone());
            subscriber = subscriber.login(link.login.clone()).durable(&place(name)?, link.hold);
            let receives = receiving.clone();
            publisher = publisher.resume_when(move |instance| receives.is_from(instance));
        }
        let (publisher, subscriber) = (publisher.connect(address)?, subscriber.connect(address)?);
        // From the first subscription on, the gateway's thread looks itself at the logs that it maps.
        subscriber.attend(true);
        Ok(Connected { context, publisher, subscriber, receiving })
    }

    /// Opens the entrance of a gateway that listens on an address.
    pub(crate) fn open(
        &self,
        settings: &GatewaySettings,
        address: &str,
        bell: &Bell,
        receiving: Receiving,
    ) -> (BrokerDoor, Side) {
        let rung = bell.clone();
        let wake = move || rung.ring();
        match self {
            Self::Inside(gate, _) => {
                let grown = bell.clone();
                let kept = gate.kept_topics(move || grown.ring());
                let side = Side::Inside { kept, gate: Gate::clone(gate), bell: bell.clone() };
                (BrokerDoor(gate.open(settings, address, wake)), side)
            }
            Self::Beside(reception, _) => {
                let door = BrokerDoor(reception.entrance(settings, address, wake));
                (door, Side::Beside(bell.clone(), receiving))
            }
        }
    }
}

/// The login at other members of the cluster, which is that of the first upstream broker.
fn login_of(first: &UpstreamSettings) -> Login {
    let credentials = first.read_credentials().unwrap_or_else(|why| {
        warn!("no login at the other members of the cluster: {why}");
        Credentials::None
    });
    Login::of(credentials).allow_plaintext(first.allow_plaintext)
}

/// The name under which the broker keeps the place of a gateway while its connection is lost. Another gateway must not have it.
fn place(name: &str) -> Result<String, ConnectError> {
    let number = rbmq_wire::connect::random().map_err(|error| ConnectError::Random(error.to_string()))?;
    Ok(format!("{name} {number:032x}"))
}
