//! The plan that a seed draws: processes, their options, and faults.

use std::time::Duration;

use rocketbufs::config::Config;
use rocketbufs::{Policy, Position, Start};
use rocketnet_sim::{Mode, SimConfig};

use crate::rng::Rng;

/// A hold that outlasts every fault of a run: under `block` nothing may be lost.
pub const LONG_HOLD: Duration = Duration::from_secs(600);
/// A `linger_ms` that outlasts every fault.
pub const LONG_LINGER_MS: u32 = 3_600_000;

/// The kinds of faults in a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Flavour {
    /// All subscriptions block and are durable for longer than any fault, and no process dies: nothing may be lost. No timer
    /// makes up for a lost wake-up.
    Lossless,
    /// All policies; subscriptions come and go. No timers either.
    Mixed,
    /// Heartbeats, time-outs and lingers, processes that are killed and restarted.
    Deadly,
}

#[derive(Debug, Clone)]
pub struct BufferPlan {
    pub bid: u32,
    pub size: u64,
    pub retain: Option<u64>,
    pub max_delivery: u64,
    pub flow_control: bool,
    pub start: Position,
    /// Bytes that the publisher writes in all.
    pub quota: u64,
    /// Most deliveries are at most this long.
    pub usual: u64,
    /// Written with a [`rocketbufs::OutWriter`] instead of segments of the rOut.
    pub appends: bool,
    /// The ring holds bytes until they are delivered at the ends of all chains.
    pub keep: bool,
    /// The percentage of deliveries whose confirmation the publisher asks for.
    pub asks: u64,
    /// The publisher destroys the buffer as soon as everything is written, while subscribers still receive.
    pub ends_early: bool,
    /// By how much the largest delivery grows meanwhile, at most; 1: not.
    pub grows: u64,
}

impl BufferPlan {
    /// The largest ring after the largest delivery has grown, which at least doubles; 0 if it does not grow.
    pub fn grown_size(&self) -> u64 {
        if self.grows > 1 { (4 * self.max_delivery * self.grows).next_power_of_two().max(4096) } else { 0 }
    }
}

#[derive(Debug, Clone)]
pub struct SubPlan {
    /// The index of the buffer.
    pub buffer: usize,
    /// The buffer's id at the parent and, for a broker, its id for the children.
    pub up_bid: u32,
    pub out_bid: u32,
    pub size: u64,
    /// The largest ring; 0: as it is.
    pub max_size: u64,
    pub retain: Option<u64>,
    pub start: Start,
    pub policy: Policy,
    pub max_lag: u64,
    pub block_timeout: Duration,
    pub name: Vec<u8>,
    pub hold: Duration,
    /// A broker that splices only when the subscription was answered.
    pub splice_late: bool,
}

impl SubPlan {
    /// Whether its durable cursor outlasts every fault.
    pub fn holds_long(&self) -> bool {
        self.policy == Policy::Block && !self.name.is_empty() && self.hold >= LONG_HOLD
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Publisher,
    Broker,
    Subscriber,
}

/// How a subscriber's application behaves.
#[derive(Debug, Clone, Copy)]
pub struct Reader {
    pub callback: bool,
    /// The number of 100 turns in which the application reads, and the most items of a turn.
    pub awake_percent: u64,
    pub items: u64,
    /// The most received items that the application keeps before it releases the oldest.
    pub keeps: usize,
    /// The application uses `get_buf_ref` now and then.
    pub looks: bool,
    /// The application keeps one view for long, and releases the view's bytes and later ones before it drops the view.
    pub holds: bool,
}

#[derive(Debug, Clone)]
pub struct NodePlan {
    pub name: String,
    pub kind: Kind,
    pub parent: usize,
    pub children: Vec<usize>,
    pub depth: usize,
    /// The parent connects to this node, instead of the other way round.
    pub parent_dials: bool,
    pub subs: Vec<SubPlan>,
    pub reader: Reader,
    /// The number of workers, which own the node's connections in turn.
    pub workers: usize,
    /// The bytes that a subscriber's rings share.
    pub budget: Option<u64>,
    /// The bytes per second, in each direction, of the connection over which this node and its parent reach each other.
    pub rate: Option<u64>,
}

impl NodePlan {
    /// Whether the node subscribes to the publisher's buffer with this index.
    pub fn has(&self, buffer: usize) -> bool {
        self.subs.iter().any(|sub| sub.buffer == buffer)
    }
}

/// The number of faults of each kind in 100,000 steps.
#[derive(Debug, Clone, Default)]
pub struct Faults {
    pub cut: u64,
    pub partition: u64,
    pub stall: u64,
    pub resume_live: u64,
    pub resubscribe: u64,
    pub kill_subscriber: u64,
    pub kill_broker: u64,
    pub kill_publisher: u64,
    pub publisher_restarts: bool,
}

#[derive(Debug, Clone)]
pub struct Plan {
    pub seed: u64,
    pub flavour: Flavour,
    pub net: SimConfig,
    pub config: Config,
    pub buffers: Vec<BufferPlan>,
    pub nodes: Vec<NodePlan>,
    pub faults: Faults,
    pub steps: u64,
}

/// Gives some edges of some seeds a rate limit, from a generator of its own.
fn limit(seed: u64, nodes: &mut [NodePlan]) {
    let mut limiting = Rng::new(seed ^ 0x7A7E_11A1);
    if limiting.percent(30) {
        for node in nodes {
            node.rate = limiting.one_of(&[None, None, Some(50_000), Some(1_000_000), Some(20_000_000)]);
        }
    }
}

/// Rings that grow. As for the others, the plans of known seeds stay as they are.
fn grow(seed: u64, buffers: &mut [BufferPlan], nodes: &mut [NodePlan]) {
    let mut growing = Rng::new(seed ^ 0x6207_1A6E);
    if !growing.percent(40) {
        return;
    }
    for buffer in buffers.iter_mut().filter(|buffer| buffer.appends && buffer.flow_control) {
        buffer.grows = growing.one_of(&[1, 2, 3, 8]);
        buffer.quota = buffer.quota.max(4 * buffer.max_delivery * buffer.grows);
    }
    for sub in nodes.iter_mut().flat_map(|node| &mut node.subs) {
        sub.max_size = buffers[sub.buffer].grown_size();
    }
}

impl Plan {
    pub fn new(seed: u64) -> Self {
        let mut rng = Rng::new(seed ^ 0x51B1_A70A);
        let flavour = match rng.below(100) {
            0..45 => Flavour::Lossless,
            45..72 => Flavour::Mixed,
            _ => Flavour::Deadly,
        };
        let mut faults = faults(&mut rng, flavour);
        let mut net = net(&mut rng);
        if net.mode == Mode::OneSided {
            // A receiver that leaves a live one-sided connection releases its rings at once, and with them bytes that the
            // sender knows as landed and that were not announced here.
            faults.resume_live = 0;
        }
        let mut config = config(&mut rng, flavour, &faults);
        let mut buffers: Vec<_> = (0..rng.between(1, 3)).map(|i| buffer(&mut rng, flavour, i)).collect();
        // A generator of its own: the other draws of a seed stay as they are.
        let mut confirming = Rng::new(seed ^ 0xC0F1_24ED);
        for buffer in &mut buffers {
            buffer.keep = confirming.percent(30);
            buffer.asks = confirming.one_of(&[0, 2, 30, 100]);
        }
        // As above.
        let mut ending = Rng::new(seed ^ 0xE7D5_EA41);
        for buffer in &mut buffers {
            buffer.ends_early = ending.percent(15);
        }
        if flavour == Flavour::Deadly {
            deaths(seed, &mut faults, &mut net, &mut config, &mut buffers);
        }
        let mut nodes = nodes(&mut rng, flavour, &buffers);
        // As above.
        let mut saving = Rng::new(seed ^ 0xB0D6_E7ED);
        for node in nodes.iter_mut().filter(|node| node.kind == Kind::Subscriber) {
            let least = node.subs.iter().map(|sub| buffers[sub.buffer].max_delivery).max();
            let least = least.map_or(0, |bytes| (2 * bytes).next_power_of_two().max(4096));
            node.budget =
                saving.one_of(&[None, None, Some(1), Some(2), Some(5), Some(16)]).map(|n| n * least);
        }
        // As above.
        let mut holding = Rng::new(seed ^ 0x401D_71E3);
        for node in &mut nodes {
            node.reader.holds = holding.percent(25);
        }
        // As above.
        let mut sharing = Rng::new(seed ^ 0x5A4D_3081);
        for node in &mut nodes {
            node.workers = sharing.one_of(&[1, 1, 1, 2, 3]);
        }
        limit(seed, &mut nodes);
        if net.mode == Mode::Stream {
            grow(seed, &mut buffers, &mut nodes);
        }
        let steps = rng.one_of(&[1_500, 3_000, 6_000]);
        Self { seed, flavour, net, config, buffers, nodes, faults, steps }
    }

    /// Whether no timer runs: pending data must then be delivered without one.
    pub fn timeless(&self) -> bool {
        self.flavour != Flavour::Deadly
    }

    /// A subtree's nodes, the root of it included.
    pub fn below(&self, root: usize) -> Vec<usize> {
        let mut all = vec![root];
        let mut at = 0;
        while at < all.len() {
            all.extend(&self.nodes[all[at]].children);
            at += 1;
        }
        all
    }

    pub fn depth(&self) -> usize {
        self.nodes.iter().map(|node| node.depth).max().unwrap_or(0)
    }
}

/// Deaths of the publisher, from generators of their own: the other draws of a seed stay as they are.
fn deaths(
    seed: u64,
    faults: &mut Faults,
    net: &mut SimConfig,
    config: &mut Config,
    buffers: &mut [BufferPlan],
) {
    // The publisher restarts under subscribers that resume by position.
    let mut restarting = Rng::new(seed ^ 0x2E57_A27D);
    if restarting.percent(15) {
        (faults.kill_publisher, faults.publisher_restarts) = (300, true);
        faults.resubscribe = 1_500;
    }
    // The publisher dies for good, most likely inside a delivery of many writes.
    let mut dying = Rng::new(seed ^ 0xD1E5_1451);
    if !faults.publisher_restarts && dying.percent(30) {
        faults.kill_publisher = 300;
        config.session.linger_ms = 20;
        (net.max_write_bytes, net.window_bytes) = (512, 256);
        for buffer in buffers {
            buffer.usual = buffer.max_delivery;
        }
    }
}

fn faults(rng: &mut Rng, flavour: Flavour) -> Faults {
    let mut faults = Faults::default();
    if rng.percent(80) {
        faults.cut = rng.one_of(&[20, 100, 300]);
    }
    if rng.percent(50) {
        faults.partition = 60;
        faults.stall = 100;
    }
    if rng.percent(25) {
        faults.resume_live = 60;
    }
    if flavour != Flavour::Lossless && rng.percent(60) {
        faults.resubscribe = 200;
    }
    if flavour == Flavour::Deadly {
        faults.kill_subscriber = rng.one_of(&[0, 40, 80]);
        faults.kill_broker = rng.one_of(&[0, 40, 80]);
        faults.kill_publisher = rng.one_of(&[0, 0, 30]);
        faults.publisher_restarts = rng.percent(50);
    }
    faults
}

fn net(rng: &mut Rng) -> SimConfig {
    let mut net = if rng.percent(65) { SimConfig::stream() } else { SimConfig::one_sided() };
    (net.min_delay_ns, net.max_delay_ns) =
        rng.one_of(&[(1_000, 200_000), (1_000, 20_000), (100_000, 5_000_000)]);
    net.window_bytes = rng.one_of(&[256, 2 << 10, 8 << 10, 32 << 10]);
    net.send_depth = rng.one_of(&[1, 4, 16]);
    net.receive_depth = rng.one_of(&[1, 4, 16]);
    net.queue_writes = rng.one_of(&[1, 4, 16]);
    net.max_write_bytes = rng.one_of(&[512, 4 << 10, 32 << 10]);
    net.queue_bytes = net.max_write_bytes * rng.one_of(&[1, 2, 4]);
    // A stalled application reads no control messages; their limit is not under test.
    net.queue_controls = 4_096;
    net.trace_lines = 0;
    net
}

fn config(rng: &mut Rng, flavour: Flavour, faults: &Faults) -> Config {
    let mut config = Config::default();
    config.buffers.reservation_bytes = 1 << 20;
    config.buffers.max_ring_bytes = 16 << 20;
    // Rings become idle within a run, and history is short.
    config.buffers.idle_trim_ms = 10;
    config.buffers.idle_retain_bytes = 16 << 10;
    config.limits.max_buffers = 64;
    config.limits.max_control_bytes = 4 << 10;
    config.tcp.max_transfer_bytes = rng.one_of(&[4 << 10, 16 << 10, 256 << 10]);
    let session = &mut config.session;
    session.heartbeat_ms = 0;
    session.max_silence_ms = 0;
    session.block_timeout_ms = 0;
    session.handshake_timeout_ms = 3_600_000;
    session.connect_timeout_ms = 3_600_000;
    session.linger_ms = LONG_LINGER_MS;
    if flavour == Flavour::Deadly {
        session.heartbeat_ms = rng.one_of(&[0, 50, 1_000]);
        // Follows the heartbeat instead of a draw of its own: the plans of known seeds stay as they are.
        session.max_silence_ms = if session.heartbeat_ms == 50 { 0 } else { 120 };
        session.block_timeout_ms = rng.one_of(&[0, 0, 500]);
        session.handshake_timeout_ms = rng.one_of(&[500, 5_000]);
        session.connect_timeout_ms = rng.one_of(&[500, 5_000]);
        if (faults.kill_publisher > 0 && !faults.publisher_restarts) || rng.percent(40) {
            session.linger_ms = rng.one_of(&[20, 300, 2_000]);
        }
    }
    config
}

fn buffer(rng: &mut Rng, flavour: Flavour, index: u64) -> BufferPlan {
    let size = rng.one_of(&[4 << 10, 8 << 10, 16 << 10, 64 << 10]);
    let flow_control = flavour == Flavour::Lossless || rng.percent(80);
    let max_delivery = rng.one_of(&[size / 4, size / 4, size / 16, size / 64]);
    let usual = rng.one_of(&[8, 64, max_delivery / 2, max_delivery]).clamp(1, max_delivery);
    let start = match rng.below(4) {
        0 => 0,
        1 => (1 << 32) - rng.below(3 * size),
        2 => (1 << 63) - rng.below(3 * size),
        _ => rng.below(1 << 40),
    };
    BufferPlan {
        bid: 1 + index as u32,
        size,
        retain: rng.one_of(&[None, Some(0), Some(size / 4), Some(size / 2)]),
        max_delivery,
        flow_control,
        start,
        quota: (usual * rng.between(20, 300)).min(size * rng.between(2, 8)),
        usual,
        appends: rng.percent(30),
        keep: false,
        asks: 0,
        ends_early: false,
        grows: 1,
    }
}

fn nodes(rng: &mut Rng, flavour: Flavour, buffers: &[BufferPlan]) -> Vec<NodePlan> {
    let levels = rng.below(4) as usize;
    let mut nodes = vec![node(rng, Kind::Publisher, 0, 0, "publisher".to_owned())];
    let mut parents = vec![0];
    for level in 1..=levels {
        let wide = if level == 1 && rng.percent(25) { 2 } else { 1 };
        for _ in 0..wide {
            let parent = *parents.last().expect("the publisher is one");
            let above: Vec<usize> = (0..nodes.len()).filter(|n| nodes[*n].depth + 1 == level).collect();
            let parent = if above.is_empty() { parent } else { rng.one_of(&above) };
            let name = format!("broker{}", nodes.len());
            let made = node(rng, Kind::Broker, parent, nodes[parent].depth + 1, name);
            parents.push(nodes.len());
            add(&mut nodes, made);
        }
    }
    for _ in 0..rng.between(1, if levels > 1 { 4 } else { 6 }) {
        let parent = if rng.percent(60) { *parents.last().expect("as above") } else { rng.one_of(&parents) };
        let name = format!("subscriber{}", nodes.len());
        let made = node(rng, Kind::Subscriber, parent, nodes[parent].depth + 1, name);
        add(&mut nodes, made);
    }
    for at in 1..nodes.len() {
        let up: Vec<u32> = match nodes[at].parent {
            0 => buffers.iter().map(|buffer| buffer.bid).collect(),
            parent => nodes[parent].subs.iter().map(|sub| sub.out_bid).collect(),
        };
        nodes[at].subs = subs(rng, flavour, buffers, &nodes[at], &up);
    }
    nodes
}

fn add(nodes: &mut Vec<NodePlan>, node: NodePlan) {
    let at = nodes.len();
    nodes[node.parent].children.push(at);
    nodes.push(node);
}

fn node(rng: &mut Rng, kind: Kind, parent: usize, depth: usize, name: String) -> NodePlan {
    let (awake_percent, items) = rng.one_of(&[(100, 64), (50, 3), (20, 1), (3, 64)]);
    NodePlan {
        name,
        kind,
        parent,
        children: Vec::new(),
        depth,
        parent_dials: rng.percent(25),
        subs: Vec::new(),
        reader: Reader {
            callback: rng.percent(50),
            awake_percent,
            items,
            keeps: rng.one_of(&[0, 0, 2, 5]),
            looks: rng.percent(25),
            holds: false,
        },
        budget: None,
        rate: None,
        workers: 1,
    }
}

fn subs(
    rng: &mut Rng,
    flavour: Flavour,
    buffers: &[BufferPlan],
    node: &NodePlan,
    up: &[u32],
) -> Vec<SubPlan> {
    let broker = node.kind == Kind::Broker;
    let renames = rng.percent(50);
    let mut subs = Vec::new();
    for (at, buffer) in buffers.iter().enumerate() {
        if !broker && at > 0 && rng.percent(40) {
            continue;
        }
        let least = (2 * buffer.max_delivery).next_power_of_two();
        let size = (least << rng.below(3)).min(64 << 10).max(least);
        let policy = policy(rng, flavour, buffer.flow_control, broker);
        let lossless = flavour == Flavour::Lossless;
        let named = lossless || rng.percent(60);
        let hold =
            if lossless || rng.percent(60) { LONG_HOLD } else { Duration::from_millis(rng.between(1, 200)) };
        let splice_late = broker && rng.percent(15);
        let retain = match (splice_late, broker) {
            (true, _) => Some(buffer.max_delivery.max(size / 4)),
            (false, true) => rng.one_of(&[None, Some(0), Some(size / 4)]),
            (false, false) => rng.one_of(&[None, None, Some(size / 8)]),
        };
        subs.push(SubPlan {
            buffer: at,
            up_bid: up[at],
            out_bid: if renames { 1_000 * node.depth as u32 + 17 * at as u32 } else { up[at] },
            size,
            max_size: 0,
            retain,
            start: rng.one_of(&[Start::Newest, Start::Oldest, Start::Last, Start::Ago(200)]),
            policy,
            max_lag: if rng.percent(50) { 0 } else { rng.between(size / 8, size) },
            block_timeout: if flavour == Flavour::Deadly && rng.percent(20) {
                Duration::from_millis(rng.between(300, 2_000))
            } else {
                Duration::ZERO
            },
            name: if named { node.name.clone().into_bytes() } else { Vec::new() },
            hold,
            splice_late,
        });
    }
    subs
}

fn policy(rng: &mut Rng, flavour: Flavour, flow_control: bool, broker: bool) -> Policy {
    let chance = rng.below(100);
    match (flow_control, broker) {
        _ if flavour == Flavour::Lossless => Policy::Block,
        (true, true) if chance < 80 => Policy::Block,
        (true, true) => Policy::Drop,
        (true, false) if chance < 55 => Policy::Block,
        (true, false) if chance < 80 => Policy::Drop,
        (true, false) => Policy::Disconnect,
        (false, false) if chance < 20 => Policy::Disconnect,
        (false, _) => Policy::Overwrite,
    }
}
