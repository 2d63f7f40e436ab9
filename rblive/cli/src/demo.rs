//! `rblive demo`: a live picture from a real encoder to viewers, in one process with three nodes.
//!
//! ```text
//!   ffmpeg ── RTMP ──▶ ingest ──┬──▶ delivery1 ── HTTPS ──▶ viewers
//!                               └──▶ delivery2 ── HTTPS ──▶ viewers
//! ```

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use commands::{Failure, Stop};
use rblive::{Config, Node, NodeId, NodeRole, RsManager, Rule};
use rblive_deliver::Settings;
use rblive_ingest::{Ingest, IngestSettings};

use super::config::Control;
use super::control::{Endpoint, Parts};
use super::deliver::Viewers;

/// The time between two lines.
const EVERY: Duration = Duration::from_secs(2);
/// The time in which the first chunks must reach the delivery nodes.
const PATIENCE: Duration = Duration::from_secs(30);
/// The time for queued data to be sent at the end.
const GRACE: Duration = Duration::from_secs(1);
const STREAM: &str = "demo";

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  rblive demo
  rblive demo --seconds 10
  ffplay -tls_verify 0 https://127.0.0.1:8443/live/demo/index.m3u8")]
pub struct Args {
    /// End after this many seconds instead of Ctrl-C
    #[arg(long, value_name = "N", env = "DEMO_SECONDS")]
    seconds: Option<u64>,
}

/// A node that delivers.
struct Delivery {
    rs: RsManager,
    viewers: Viewers,
}

/// The encoder, which ends with this value.
struct Encoder(Child);

impl Drop for Encoder {
    fn drop(&mut self) {
        // The encoder may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Runs the demonstration until a signal or the given time ends it.
pub fn run(args: &Args) -> Result<(), Failure> {
    let stop = Stop::install()?;
    let deliveries = [
        Delivery::start("delivery1", 2, "127.0.0.1:8443")?,
        Delivery::start("delivery2", 3, "127.0.0.1:8444")?,
    ];
    let rs = RsManager::new(ingest_node(&deliveries)).map_err(Failure::failed)?;
    let settings = IngestSettings { rtmp: "127.0.0.1:0".to_owned(), ..IngestSettings::default() };
    let ingest = Ingest::start(rs.clone(), settings).map_err(Failure::failed)?;
    let Some(address) = ingest.addresses().rtmp else {
        return Err(Failure::Failed("there is no address for the encoder".to_owned()));
    };
    let ingest = Arc::new(ingest);
    let control = control(&rs, &ingest)?;
    let encoder = Encoder::start(address)?;
    let shown = show(&stop, args.seconds.map(Duration::from_secs), &deliveries, control.address(), encoder);
    drop((control, ingest));
    rs.shutdown(GRACE);
    for Delivery { rs, viewers } in deliveries {
        drop(viewers);
        rs.shutdown(GRACE);
    }
    shown
}

/// The control page of the node that takes the picture. If another program has its address, a free port is used.
fn control(rs: &RsManager, ingest: &Arc<Ingest>) -> Result<Endpoint, Failure> {
    let parts = || Parts { ingest: Some(ingest.clone()), ..Parts::default() };
    let start = |settings: &Control| Endpoint::start(rs.clone(), parts(), settings);
    start(&Control::default())
        .or_else(|_| start(&Control { listen: "127.0.0.1:0".to_owned(), ..Control::default() }))
}

fn node(name: &str, id: NodeId, role: NodeRole, address: String) -> Node {
    Node { name: name.to_owned(), id, role, address }
}

/// The configuration of the node that takes the picture and gives it to `deliveries`.
fn ingest_node(deliveries: &[Delivery]) -> Config {
    let mut nodes = vec![node("ingest", 1, NodeRole::Dissemination, String::new())];
    let address = |own: &Delivery| own.rs.address().unwrap_or_default();
    nodes.extend(deliveries.iter().map(|own| Node { address: address(own), ..own.rs.node().clone() }));
    let names = deliveries.iter().map(|own| own.rs.node().name.clone()).collect();
    let rules = vec![Rule { streams: "*".to_owned(), nodes: names }];
    Config { node: "ingest".to_owned(), nodes, rules, ..Config::default() }
}

impl Delivery {
    /// Starts a node. If another program has the address for viewers, a free port is used.
    fn start(name: &str, id: NodeId, listen: &str) -> Result<Self, Failure> {
        let own = node(name, id, NodeRole::Delivery, "127.0.0.1:0".to_owned());
        let nodes = vec![node("ingest", 1, NodeRole::Dissemination, String::new()), own];
        let config = Config { node: name.to_owned(), nodes, ..Config::default() };
        let rs = RsManager::new(config).map_err(Failure::failed)?;
        let settings = Settings { listen: listen.to_owned(), threads: 1, ..Settings::default() };
        let webrtc = rblive_webrtc::Settings { listen: "127.0.0.1:0".to_owned(), ..Default::default() };
        let viewers = Viewers::start(&rs, &settings, &webrtc).or_else(|_| {
            Viewers::start(&rs, &Settings { listen: "127.0.0.1:0".to_owned(), ..settings }, &webrtc)
        })?;
        Ok(Self { rs, viewers })
    }

    fn playlist(&self) -> String {
        format!("{}live/{STREAM}/index.m3u8", self.viewers.address())
    }

    /// The chunks that arrived.
    fn chunks(&self) -> u64 {
        self.rs.inbound().iter().map(|stream| stream.chunks).sum()
    }

    /// A line about the node.
    fn line(&self) -> String {
        let (name, chunks) = (&self.rs.node().name, self.chunks());
        let streams = self.viewers.streams();
        let Some(stream) = streams.iter().find(|stream| stream.name == STREAM) else {
            return format!("{name}: {chunks} chunks, no stream yet");
        };
        let age = stream.age.as_millis();
        format!("{name}: {chunks} chunks, the newest {age} ms old, {} viewers", stream.viewers)
    }
}

impl Encoder {
    /// Starts ffmpeg, which encodes a picture with a clock and a tone, and pushes both.
    fn start(address: SocketAddr) -> Result<Self, Failure> {
        let inputs = "-nostdin -v error -re -f lavfi -i testsrc2=size=640x360:rate=25 \
             -re -f lavfi -i sine=frequency=440:sample_rate=48000";
        let coding = "-c:v libx264 -preset ultrafast -tune zerolatency -pix_fmt yuv420p -b:v 1M -g 50 \
             -c:a aac -b:a 96k -f flv";
        let mut command = Command::new("ffmpeg");
        command.args(inputs.split_whitespace()).args(coding.split_whitespace());
        // Ctrl-C in a terminal is for this process, which ends the encoder itself.
        command.process_group(0);
        let spawned = command.arg(format!("rtmp://{address}/live/{STREAM}")).stdout(Stdio::null()).spawn();
        spawned.map(Self).map_err(|error| match error.kind() {
            ErrorKind::NotFound => Failure::Failed(
                "the demonstration needs ffmpeg, which encodes its picture: on Debian and Ubuntu, apt-get install ffmpeg"
                    .to_owned(),
            ),
            _ => Failure::Failed(format!("cannot start ffmpeg: {error}")),
        })
    }

    /// Fails if the encoder has ended.
    fn check(&mut self) -> Result<(), Failure> {
        match self.0.try_wait() {
            Ok(None) => Ok(()),
            Ok(Some(status)) => Err(Failure::Failed(format!("ffmpeg has ended ({status})"))),
            Err(error) => Err(Failure::Failed(format!("cannot watch ffmpeg: {error}"))),
        }
    }
}

/// Prints the addresses, and a line at each interval, until the end.
fn show(
    stop: &Stop,
    time: Option<Duration>,
    deliveries: &[Delivery],
    control: SocketAddr,
    mut encoder: Encoder,
) -> Result<(), Failure> {
    let begun = Instant::now();
    while deliveries.iter().any(|own| own.viewers.streams().is_empty()) {
        if stop.wait(Some(Duration::from_millis(50))) {
            return Ok(());
        }
        encoder.check()?;
        if begun.elapsed() > PATIENCE {
            return Err(Failure::Failed("no chunk reaches the delivery nodes".to_owned()));
        }
    }
    let [page, list] = [deliveries[0].viewers.address(), deliveries[0].playlist()];
    say(&format!(
        "A picture with a clock and a tone go by RTMP to an ingest node, and from there to two delivery nodes.\n\
         The page:      {page} (its certificate is made by the node itself: let the browser accept it)\n\
         Control:       http://{control}/\n\
         The playlists: {list}\n               {}\n\
         A player:      ffplay -tls_verify 0 {list}\n\
         Ctrl-C ends it.",
        deliveries[1].playlist()
    ))?;
    let until = time.map(|time| Instant::now() + time);
    loop {
        let left = until.map_or(EVERY, |until| until.saturating_duration_since(Instant::now()));
        if stop.wait(Some(left.min(EVERY))) {
            return Ok(());
        }
        encoder.check()?;
        let lines: Vec<_> = deliveries.iter().map(Delivery::line).collect();
        say(&lines.join("; "))?;
        if until.is_some_and(|until| Instant::now() >= until) {
            return Ok(());
        }
    }
}

fn say(text: &str) -> Result<(), Failure> {
    commands::print(format!("{text}\n"))
}
