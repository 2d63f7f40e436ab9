//! The simulated world: processes, the network between them, and faults.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rocketbufs::worker::Reactor;
use rocketbufs::{Conn, Context, Epoch, Position};
use rocketnet::ConnId;
use rocketnet_sim::{Mode, SimNet, SimTransport};

use super::broker::Broker;
use super::link::{Acceptor, Dialer};
use super::oracle::{Env, Excuse};
use super::plan::{Kind, LONG_LINGER_MS, Plan};
use super::publisher::Publisher;
use super::subscriber::Subscriber;

/// A process: a context, its workers, and its application.
pub struct Process {
    pub ctx: Context,
    pub cores: Vec<Reactor<SimTransport>>,
    pub app: App,
    /// Connects to the parent; none if the parent connects.
    pub up: Option<Dialer>,
    /// The listener to which the parent connects.
    pub up_door: Option<Acceptor>,
    /// The listener to which children connect.
    pub door: Option<Acceptor>,
    /// Connections to the children that do not connect by themselves.
    pub down: Vec<Dialer>,
    pub confirmed: Arc<Mutex<VecDeque<(u32, u64)>>>,
}

/// The application of a process.
pub enum App {
    /// Waits for its first connection to the parent.
    Waiting,
    Publisher(Publisher),
    Broker(Broker),
    Subscriber(Subscriber),
}

pub struct Node {
    pub process: Option<Process>,
    /// The number of earlier processes of the node.
    pub lives: u64,
    restart_at: Option<u64>,
    stalled_until: u64,
    pub places: Vec<Option<(Epoch, Position)>>,
}

/// A subscription when it was first seen.
#[derive(Debug, Clone, Copy)]
pub struct Joined {
    pub conn: u64,
    /// The head of the parent's ring.
    pub head: Position,
    pub start: Position,
}

pub struct World<'p> {
    pub plan: &'p Plan,
    pub env: Env,
    pub nodes: Vec<Node>,
    publisher_killed: bool,
    /// The publisher's subscriptions after its last turn: buffer and connection.
    pub present: BTreeSet<(u32, u64)>,
    /// The subscriptions that were seen first, by child and buffer.
    pub joined: BTreeMap<(usize, usize), Joined>,
}

fn door_of(name: &str) -> String {
    format!("{name}:1")
}

fn up_door_of(name: &str) -> String {
    format!("{name}:2")
}

impl<'p> World<'p> {
    pub fn new(plan: &'p Plan) -> Self {
        let net = SimNet::new(plan.seed, plan.net.clone());
        let mut env = Env::new(plan.seed, net, plan.nodes.len(), plan.buffers.len(), plan.timeless());
        env.rates = plan.nodes.iter().map(|node| node.rate).collect();
        let node =
            || Node { process: None, lives: 0, restart_at: Some(0), stalled_until: 0, places: Vec::new() };
        let nodes = plan.nodes.iter().map(|_| node()).collect();
        let mut world = Self {
            plan,
            env,
            nodes,
            publisher_killed: false,
            present: BTreeSet::new(),
            joined: BTreeMap::new(),
        };
        world.excuse_policies();
        for node in 0..plan.nodes.len() {
            world.start(node);
        }
        world
    }

    /// Sets the excuses that follow from the policies alone.
    fn excuse_policies(&mut self) {
        for (at, node) in self.plan.nodes.iter().enumerate() {
            for sub in &node.subs {
                let lossless = sub.policy == rocketbufs::Policy::Block && sub.block_timeout.is_zero();
                if !lossless {
                    let slow = Excuse { lost: true, gone: !sub.block_timeout.is_zero(), refused: false };
                    self.excuse(at, Some(sub.buffer), slow);
                }
                if !sub.block_timeout.is_zero() {
                    // A broker that was disconnected for slowness has no more data for its children.
                    let over = Excuse { lost: true, gone: true, refused: true };
                    self.excuse(at, Some(sub.buffer), over);
                }
                // Slowness ends the whole connection.
                if sub.policy == rocketbufs::Policy::Disconnect || !sub.block_timeout.is_zero() {
                    self.disturb(at);
                }
            }
            // Time-outs end connections without a fault.
            if !self.plan.timeless() && at > 0 {
                self.disturb(at);
            }
        }
    }

    /// From now on a node and its descendants have this excuse.
    fn excuse(&mut self, node: usize, buffer: Option<usize>, excuse: Excuse) {
        for below in self.plan.below(node) {
            for (at, known) in self.env.excuses[below].iter_mut().enumerate() {
                if buffer.is_none_or(|buffer| buffer == at) {
                    known.lost |= excuse.lost;
                    known.gone |= excuse.gone;
                    known.refused |= excuse.refused;
                }
            }
        }
    }

    /// A fault touches the edge to the parent: data that is not held may be lost, and descendants may get GONE.
    fn disturb(&mut self, child: usize) {
        self.env.disturbed[child] = true;
        for sub in &self.plan.nodes[child].subs {
            // A one-sided connection that times out ends like a closed one: see `Plan::new`.
            let left = !self.plan.timeless() && self.plan.net.mode == Mode::OneSided;
            let lost = left || !sub.holds_long();
            self.excuse(child, Some(sub.buffer), Excuse { lost, ..Excuse::default() });
        }
        if self.plan.config.session.linger_ms < LONG_LINGER_MS {
            self.excuse(child, None, Excuse { lost: false, gone: true, refused: true });
        }
    }

    /// The publisher destroyed a buffer. Children that have not subscribed find no such buffer, nor do their descendants.
    fn excuse_latecomers(&mut self, buffer: usize) {
        let Some(Process { app: App::Publisher(publisher), .. }) = self.nodes[0].process.as_ref() else {
            return;
        };
        let bid = self.plan.buffers[buffer].bid;
        let subscribers = publisher.out.buffer(bid).map_or(Vec::new(), |buffer| buffer.subscribers());
        let durable = publisher.out.buffer(bid).map_or(Vec::new(), |buffer| buffer.durable_cursors());
        for &child in &self.plan.nodes[0].children {
            let name = self.plan.nodes[child].name.as_bytes();
            let here = subscribers.iter().any(|sub| self.nodes[0].child_of(sub.conn) == Some(child));
            if !here && !durable.iter().any(|cursor| cursor.name == name) {
                self.excuse(child, Some(buffer), Excuse { refused: true, ..Excuse::default() });
            }
        }
    }

    /// A process begins.
    pub fn start(&mut self, at: usize) {
        let plan = &self.plan.nodes[at];
        let net = self.env.net.clone();
        let mut entropy = crate::rng::Rng::new(self.env.rng.next());
        let random = Box::new(move || u128::from(entropy.next()) << 64 | u128::from(entropy.next()));
        let config = self.plan.config.clone();
        let made = Context::manual(config, plan.workers, random, |_| net.host(&plan.name));
        let (ctx, cores) = made.expect("a context");
        let app = match plan.kind {
            Kind::Publisher => App::Publisher(Publisher::new(&mut self.env, self.plan, &ctx)),
            _ => App::Waiting,
        };
        let up = (at > 0 && !plan.parent_dials)
            .then(|| Dialer::new(at, door_of(&self.plan.nodes[plan.parent].name)));
        let up_door = (at > 0 && plan.parent_dials).then(|| Acceptor::new(&ctx, &up_door_of(&plan.name)));
        let door = (plan.kind == Kind::Publisher).then(|| Acceptor::new(&ctx, &door_of(&plan.name)));
        let dials = |child: &&usize| self.plan.nodes[**child].parent_dials;
        let dialer = |child: &usize| Dialer::new(*child, up_door_of(&self.plan.nodes[*child].name));
        let down = plan.children.iter().filter(dials).map(dialer).collect();
        let confirmed = Arc::new(Mutex::new(VecDeque::new()));
        if let App::Publisher(publisher) = &app {
            let told = confirmed.clone();
            publisher.out.set_data_out_cb(move |bid, context| {
                told.lock().expect("no panics").push_back((bid, context));
            });
        }
        self.nodes[at].process = Some(Process { ctx, cores, app, up, up_door, door, down, confirmed });
        self.nodes[at].restart_at = None;
        self.env.note("start", [at as u64, self.nodes[at].lives, 0, 0]);
    }

    /// A process ends at once, with its memory. The peers of its host learn of it later.
    pub fn kill(&mut self, at: usize) {
        let Some(mut process) = self.nodes[at].process.take() else { return };
        self.env.note("kill", [at as u64, 0, 0, 0]);
        self.env.net.kill(&self.plan.nodes[at].name);
        if let App::Subscriber(subscriber) = &process.app {
            self.nodes[at].places = subscriber.places();
        }
        process.app = App::Waiting;
        (process.up, process.up_door, process.door) = (None, None, None);
        process.down.clear();
        let Process { ctx, mut cores, .. } = process;
        // Commands that the handles left for the workers are dropped with the workers.
        for core in &mut cores {
            core.turn(self.env.now());
        }
        drop(cores);
        let left = ctx.memory_in_use();
        self.env.check("memory comes back", left == 0, || format!("node {at} died with {left} bytes"));
        self.nodes[at].lives += 1;
        self.nodes[at].restart_at = Some(self.env.later());
        for child in self.plan.nodes[at].children.clone() {
            self.disturb(child);
        }
        let all = Excuse { lost: true, gone: true, refused: true };
        match self.plan.nodes[at].kind {
            Kind::Publisher => self.excuse(at, None, all),
            Kind::Broker => self.excuse(at, None, all),
            Kind::Subscriber => self.excuse(at, None, Excuse { lost: true, ..Excuse::default() }),
        }
        if at > 0 {
            self.disturb(at);
        }
    }

    /// A turn of a node's workers. True if one of them did anything.
    pub fn turn(&mut self, at: usize) -> bool {
        let now = self.env.now();
        if now < self.nodes[at].stalled_until {
            return false;
        }
        let plan = &self.plan.nodes[at];
        let Some(process) = &mut self.nodes[at].process else { return false };
        let mut did = false;
        for core in &mut process.cores {
            // A worker beside others skips some turns.
            if plan.workers == 1 || self.env.calm || self.env.rng.percent(70) {
                did |= core.next_delay_end().is_some_and(|end| end <= now);
                did |= core.turn(now);
            }
        }
        if did {
            self.env.stats.count("turns of workers", 1);
            self.inspect(at);
        }
        did
    }

    /// A turn of a node's application. True if it did anything.
    pub fn act(&mut self, at: usize) -> bool {
        let now = self.env.now();
        if now < self.nodes[at].stalled_until {
            return false;
        }
        if self.nodes[at].restart_at.is_some_and(|time| time <= now) {
            self.start(at);
            return true;
        }
        let plan = self.plan;
        let stranded = self.env.calm && self.is_stranded(at);
        let node = &mut self.nodes[at];
        let Some(process) = &mut node.process else { return false };
        let env = &mut self.env;
        process.up.iter_mut().for_each(|up| up.hopeless = stranded);
        let again = node.lives > 0;
        let mut did = false;
        // Every turn looks at its connections; most of them are as they were.
        let mut fresh: Vec<Conn> = Vec::new();
        fresh.extend(process.up.as_mut().and_then(|up| up.poll(env, &process.ctx)));
        if let Some(door) = &mut process.up_door {
            fresh.extend(door.poll(env).into_iter().map(|(conn, _)| conn));
        }
        for conn in fresh {
            did = true;
            attach_up(env, plan, at, process, &conn, again, &node.places);
        }
        did |= attach_down(env, process);
        if let App::Broker(broker) = &process.app
            && broker.ready()
            && process.door.is_none()
        {
            process.door = Some(Acceptor::new(&process.ctx, &door_of(&plan.nodes[at].name)));
            did = true;
        }
        did | match &mut process.app {
            App::Waiting => false,
            App::Publisher(publisher) => {
                let ended = env.ended_early.clone();
                let acted = publisher.act(env);
                for buffer in (0..ended.len()).filter(|buffer| !ended[*buffer]) {
                    if self.env.ended_early[buffer] {
                        self.excuse_latecomers(buffer);
                    }
                }
                acted
            }
            App::Broker(broker) => broker.act(env),
            App::Subscriber(subscriber) => subscriber.act(env),
        }
    }

    /// Draws a fault, or none.
    pub fn fault(&mut self) {
        let faults = self.plan.faults.clone();
        let chance = self.env.rng.below(100_000);
        let mut least = 0;
        let mut hit = |rate: u64| {
            let here = (least..least + rate * 10).contains(&chance);
            least += rate * 10;
            here
        };
        let (cut, partition) = (hit(faults.cut), hit(faults.partition));
        let (stall, resume) = (hit(faults.stall), hit(faults.resume_live));
        let (leave, subscriber) = (hit(faults.resubscribe), hit(faults.kill_subscriber));
        let (broker, publisher) = (hit(faults.kill_broker), hit(faults.kill_publisher));
        let any = self.env.rng.index(self.nodes.len());
        let edge = 1 + self.env.rng.index(self.nodes.len() - 1);
        if cut {
            self.cut();
        } else if partition {
            self.partition(edge);
        } else if stall {
            self.env.fault("processes stalled");
            self.nodes[any].stalled_until = self.env.now() + self.env.rng.between(10_000, 20_000_000);
        } else if resume {
            self.resume_live(edge);
        } else if leave {
            if let Some(Process { app: App::Subscriber(subscriber), .. }) = &mut self.nodes[any].process {
                subscriber.leave(&mut self.env);
            }
        } else if subscriber {
            self.kill_one(Kind::Subscriber, "subscribers killed");
        } else if broker {
            self.kill_one(Kind::Broker, "brokers killed");
        } else if publisher && !self.publisher_killed {
            self.publisher_killed = true;
            self.kill_one(Kind::Publisher, "publishers killed");
            if !faults.publisher_restarts {
                self.nodes[0].restart_at = None;
            } else if faults.resubscribe > 200 {
                // Subscribers come back with positions of a log that is no more.
                for node in &mut self.nodes {
                    if let Some(Process { app: App::Subscriber(subscriber), .. }) = &mut node.process {
                        subscriber.leave(&mut self.env);
                    }
                }
            }
        }
    }

    fn kill_one(&mut self, kind: Kind, name: &'static str) {
        let nodes = &self.plan.nodes;
        let of_kind: Vec<usize> = (0..nodes.len()).filter(|at| nodes[*at].kind == kind).collect();
        if of_kind.is_empty() {
            return;
        }
        let at = self.env.rng.one_of(&of_kind);
        if self.nodes[at].process.is_some() {
            self.env.fault(name);
            self.kill(at);
        }
    }

    fn cut(&mut self) {
        if self.env.dials == 0 {
            return;
        }
        let number = self.env.dials - self.env.rng.below(self.env.dials.min(self.nodes.len() as u64));
        self.env.fault("connections cut");
        self.env.note("cut", [number, 0, 0, 0]);
        // Only the network knows to which edge the connection belongs.
        for edge in 1..self.nodes.len() {
            self.disturb(edge);
        }
        self.env.net.cut(ConnId(number * 2));
    }

    fn partition(&mut self, edge: usize) {
        let until = self.env.now() + self.env.rng.between(100_000, 50_000_000);
        let nodes = &self.plan.nodes;
        let (child, parent) = (&nodes[edge].name, &nodes[nodes[edge].parent].name);
        self.env.fault("partitions");
        self.env.note("partition", [edge as u64, until, 0, 0]);
        self.env.net.partition(child, parent, until);
        self.disturb(edge);
    }

    /// Subscriptions resume over another connection while the old one is up.
    fn resume_live(&mut self, edge: usize) {
        let Some(process) = &mut self.nodes[edge].process else { return };
        let (Some(up), true) = (&mut process.up, !matches!(process.app, App::Waiting)) else { return };
        if up.conn.as_ref().is_none_or(|conn| !conn.is_up()) {
            return;
        }
        self.env.fault("resumed over a live connection");
        let conn = up.dial(&mut self.env, &process.ctx);
        match &process.app {
            App::Broker(broker) => broker.rin.resume(&conn),
            App::Subscriber(subscriber) => subscriber.rin.resume(&conn),
            App::Waiting | App::Publisher(_) => {}
        }
        self.disturb(edge);
    }

    /// The time of an application's next timer.
    pub fn next_timer(&self) -> Option<u64> {
        let now = self.env.now();
        let mut next: Option<u64> = None;
        let mut at = |time: Option<u64>| {
            if let Some(time) = time.filter(|time| *time > now) {
                next = Some(next.map_or(time, |next| next.min(time)));
            }
        };
        for node in &self.nodes {
            at(node.restart_at);
            at(Some(node.stalled_until));
            let Some(process) = &node.process else { continue };
            process.cores.iter().for_each(|core| at(core.next_delay_end()));
            at(process.up.as_ref().and_then(Dialer::timer));
            process.down.iter().for_each(|dialer| at(dialer.timer()));
            if let App::Subscriber(subscriber) = &process.app {
                at(subscriber.timer());
            }
        }
        next
    }

    /// The publisher never comes back, and no ancestor has any of its data.
    pub fn is_stranded(&self, at: usize) -> bool {
        let alone = self.nodes[0].process.is_none() && self.nodes[0].restart_at.is_none();
        let parent = self.plan.nodes[at].parent;
        let waits = |p: &Process| matches!(p.app, App::Waiting);
        alone
            && (parent == 0
                || (self.nodes[parent].process.as_ref().is_none_or(waits) && self.is_stranded(parent)))
    }

    /// Faults stop: all processes run and reach each other.
    pub fn calm_down(&mut self) {
        self.env.calm = true;
        self.nodes.iter_mut().for_each(|node| node.stalled_until = 0);
        for node in &self.plan.nodes[1..] {
            self.env.net.heal(&node.name, &self.plan.nodes[node.parent].name);
        }
    }
}

type Places<'a> = &'a [Option<(Epoch, Position)>];

impl Node {
    /// The child at the other end of a connection of this node's process.
    fn child_of(&self, conn: u64) -> Option<usize> {
        self.process.as_ref().and_then(|process| process.child_of(conn))
    }
}

/// A connection to the parent: the first one makes the application, others carry it on.
fn attach_up(
    env: &mut Env,
    plan: &Plan,
    at: usize,
    process: &mut Process,
    conn: &Conn,
    again: bool,
    places: Places<'_>,
) {
    match &process.app {
        App::Waiting if plan.nodes[at].kind == Kind::Broker => {
            let broker = Broker::new(env, at, &plan.nodes[at], &process.ctx, conn, again);
            process.app = App::Broker(broker);
        }
        App::Waiting => {
            process.app = App::Subscriber(Subscriber::new(at, &plan.nodes[at], conn, places));
        }
        App::Broker(broker) => broker.rin.resume(conn),
        App::Subscriber(subscriber) => subscriber.rin.resume(conn),
        App::Publisher(_) => {}
    }
}

/// Connections to children. True if there was a new one.
fn attach_down(env: &mut Env, process: &mut Process) -> bool {
    let out = match &process.app {
        App::Publisher(publisher) => publisher.out.clone(),
        App::Broker(broker) if broker.ready() => broker.out.clone(),
        _ => return false,
    };
    let mut did = false;
    for dialer in &mut process.down {
        if let Some(conn) = dialer.poll(env, &process.ctx) {
            out.add_conn(&conn);
            did = true;
        }
    }
    if let Some(door) = &mut process.door {
        for (conn, _) in door.poll(env) {
            out.add_conn(&conn);
            did = true;
        }
    }
    did
}

/// The peers of a process's connections.
impl Process {
    /// The child at the other end of a connection.
    pub fn child_of(&self, conn: u64) -> Option<usize> {
        let dialed = self.down.iter().find(|d| d.conn.as_ref().is_some_and(|c| c.id() == conn));
        let taken = self.door.iter().flat_map(|door| &door.conns).find(|(c, _)| c.id() == conn);
        dialed.map(Dialer::edge).or(taken.map(|(_, edge)| *edge))
    }

    /// Closes everything in order.
    pub fn close(&mut self) {
        let doors = self.door.iter().chain(&self.up_door).flat_map(|door| &door.conns);
        let dialed = self.up.iter().chain(&self.down).filter_map(|dialer| dialer.conn.as_ref());
        doors.map(|(conn, _)| conn).chain(dialed).for_each(|conn| conn.close("the run is over"));
        if let App::Subscriber(subscriber) = &mut self.app {
            subscriber.let_go();
        }
    }
}

/// How much time may pass without an event before pending data counts as stuck.
pub const PATIENCE: Duration = Duration::from_secs(5_000);
