//! The processes that a bench consists of, each one of them this same program started as `rbmq-bench worker …`.

use std::path::PathBuf;

use benchkit::{control::Control, pace};
use clap::Subcommand;
use rocketbufs::config::TransportKind;

use crate::{
    clients::{Numbers, Whom},
    counting, direct_peers,
    error::BenchError,
    flow_peers, handshakes, library_end,
    load::Load,
    peers::{self, Peer},
    ping::{self, Ping},
    rbmq_peers, relay, relay_peers, scale,
    systems::{Api, Setup, System},
    tls_peers, wire_peers,
};

/// A process of a bench. The bench starts it, and sends commands on its standard input.
#[derive(Debug, Subcommand)]
pub enum Worker {
    /// The broker
    Broker {
        /// Where it listens
        #[arg(long, default_value = "127.0.0.1:0")]
        listen: String,
        /// The transport
        #[arg(long, default_value_t)]
        transport: TransportKind,
        /// Congestion control to set on every socket
        #[arg(long)]
        congestion: Option<String>,
        /// Where its HTTP endpoint listens, which has the console; else it has none
        #[arg(long)]
        http: Option<String>,
    },
    /// The broker with a gateway
    Gateway {
        /// The protocol of the gateway
        #[arg(long)]
        protocol: String,
        /// Where it listens
        #[arg(long)]
        listen: String,
        /// A folder in which every topic is kept
        #[arg(long)]
        keep: Option<String>,
    },
    /// The bare fan-out relay
    Relay {
        /// Bytes read from a publisher at once
        #[arg(long)]
        read_bytes: usize,
        /// Congestion control to set on every socket
        #[arg(long)]
        congestion: Option<String>,
    },
    /// The guard of another system's server
    Server {
        /// The system
        #[arg(long, value_enum)]
        system: System,
        /// The server's folder, which is made now and removed at the end
        #[arg(long)]
        folder: PathBuf,
        #[command(flatten)]
        setup: Setup,
    },
    /// Becomes another system's server, which ends with the process that started it
    BecomeServer {
        /// The server's program
        program: PathBuf,
        /// Its arguments
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<String>,
    },
    /// The bare relay with TLS
    TlsRelay(tls_peers::Relay),
    /// A client of one of them
    TlsClient(tls_peers::End),
    /// Accepts connections with TLS, and nothing else
    TlsAccept(handshakes::Accept),
    /// Sends, and measures how long it takes to come back
    Ping(Ping),
    /// Sends back
    Echo(Whom),
    /// Publishes numbers, also after it was cut off
    PublishNumbers(Numbers),
    /// Reports the received numbers, also after it was cut off
    CountNumbers(Numbers),
    /// Delivers with or without flow control
    FlowSource(flow_peers::Source),
    /// Hands that on
    FlowHop(flow_peers::Hop),
    /// Receives it
    FlowSink(flow_peers::Hop),
    /// RBMQ's client library, as other systems' are in lab/bench/peers/libraries
    Library(benchkit::library::End),
    /// A process of an exchange over shared memory
    Direct(benchkit::direct::End),
    /// Receives all topics of the bench `scale`
    ScaleSubscriber(scale::All),
    /// Publishes a topic
    Publisher {
        #[command(flatten)]
        load: Load,
        /// Number of its topic
        #[arg(long)]
        topic: u8,
    },
    /// Subscribes to every topic
    Subscriber {
        #[command(flatten)]
        load: Load,
        /// How many topics there are
        #[arg(long)]
        topics: u8,
        /// The number of this subscriber
        #[arg(long)]
        number: u32,
    },
}

/// Runs one worker until the harness ends it.
///
/// # Errors
/// The reason why a measurement is impossible; the harness reports it and gives up.
pub fn run(worker: Worker) -> Result<(), BenchError> {
    match worker {
        Worker::Server { system, folder, setup } => peers::guard(system, setup, folder),
        Worker::BecomeServer { program, args } => Ok(benchkit::server::become_server(&program, &args)?),
        Worker::Broker { listen, transport, congestion, http } => {
            rbmq_peers::serve(&Control::start(), &listen, transport, congestion.as_deref(), http)
        }
        Worker::Gateway { protocol, listen, keep } => rbmq_peers::serve_gateway(&protocol, &listen, keep),
        Worker::Relay { read_bytes, congestion } => {
            relay::run(&Control::start(), read_bytes, congestion.as_deref())
        }
        Worker::TlsRelay(args) => tls_peers::relay(&args),
        Worker::TlsClient(args) => tls_peers::client(&args),
        Worker::TlsAccept(args) => handshakes::accept(&args),
        Worker::Ping(args) => ping::ping(&args),
        Worker::Echo(whom) => ping::echo(&whom),
        Worker::PublishNumbers(args) => counting::publish_numbers(&args),
        Worker::CountNumbers(args) => counting::count_numbers(&args),
        Worker::FlowSource(args) => flow_peers::source(&args),
        Worker::FlowHop(args) => flow_peers::hop(&args),
        Worker::FlowSink(args) => flow_peers::sink(&args),
        Worker::Library(end) => library_end::run(&end),
        Worker::Direct(end) => direct_peers::run(&end),
        Worker::ScaleSubscriber(args) => scale::subscribe(&args),
        Worker::Publisher { load, topic } => {
            pace::sleep_exactly()?;
            let control = Control::start();
            match (load.system, Peer::of(load.system)) {
                (_, Some(peer)) => peers::publish(&control, &load, peer, topic),
                (System::Relay, None) => relay_peers::publish(&control, &load, topic),
                (_, None) if load.api == Api::Wire => wire_peers::publish(&control, &load, topic),
                (_, None) => rbmq_peers::publish(&control, &load, topic),
            }
        }
        Worker::Subscriber { load, topics, number } => {
            let control = Control::start();
            match (load.system, Peer::of(load.system)) {
                (_, Some(peer)) => peers::subscribe(&control, &load, peer, topics, number),
                (System::Relay, None) => relay_peers::subscribe(&control, &load, topics),
                (_, None) if load.api == Api::Wire => wire_peers::subscribe(&control, &load, topics),
                (_, None) => rbmq_peers::subscribe(&control, &load, topics),
            }
        }
    }
}
