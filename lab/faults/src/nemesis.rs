//! What goes wrong, and when: all of it follows from a seed.

use std::time::Duration;

use testkit::{Random, skip};

use crate::cluster::{Cluster, Means, NAME, OnLoss, Plan, clock_library, etcd_client};
use crate::disk::Disk;
use crate::network::{Cut, End, MEMBERS, Net};

/// A fault, which begins and ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// A broker is killed (kill -9), and started again at the end.
    Kill(usize),
    /// A broker ends in order, and is started again at the end.
    Restart(usize),
    /// A broker stands still.
    Stop(usize),
    /// A machine reaches nobody, and nobody reaches it.
    Alone(usize),
    /// What a machine sends arrives nowhere. It hears the others.
    Mute(usize),
    /// A machine hears nobody. The others hear it.
    Deaf(usize),
    /// A machine has no etcd.
    NoEtcd(usize),
    /// A broker and the other brokers do not reach each other, while clients and etcd reach all.
    NoPeers(usize),
    /// The disk of a broker is full.
    FullDisk(usize),
    /// The disk of a broker is full, and at the end the broker is killed and started again with room.
    FullDiskKill(usize),
    /// A member of etcd is killed, and started again at the end.
    KillEtcd(usize),
    /// A member of etcd stands still.
    StopEtcd(usize),
    /// All of etcd is killed, and started again at the end.
    NoEtcdAtAll,
    /// An operator gives the group of a topic to a broker.
    Move {
        /// The number of the topic.
        topic: usize,
        /// The broker.
        to: usize,
    },
    /// An operator drains a broker, until the end.
    Drain(usize),
    /// The disk of a broker is slow, and stands still now and then.
    SlowDisk {
        /// The broker.
        broker: usize,
        /// Decides how slow.
        seed: u64,
    },
    /// The machine of a broker loses its power, and is started again at the end.
    PowerCut {
        /// The broker.
        broker: usize,
        /// Decides what the disk has of what it did not sync.
        seed: u64,
    },
    /// A broker is killed, a file of its disk is damaged, and it is started again at the end.
    Damage {
        /// The broker.
        broker: usize,
        /// Decides which file, and how.
        seed: u64,
    },
    /// The clock of a broker makes a step, and another one back at the end.
    ClockStep {
        /// The broker.
        broker: usize,
        /// The first step.
        seconds: i64,
    },
    /// A machine does not reach the object store.
    NoStore(usize),
    /// The object store stands still.
    StopStore,
    /// The object store is slow: it stands still again and again.
    SlowStore {
        /// Decides for how long.
        seed: u64,
    },
    /// A broker ends in order, and is started again with the other version.
    Upgrade(usize),
}

/// Faults that begin together, and what is between them and the next ones.
#[derive(Debug, Clone)]
pub struct Step {
    /// One or two.
    pub faults: Vec<Fault>,
    /// From their beginning to their end.
    pub lasts: Duration,
    /// From their end to the next ones.
    pub rest: Duration,
}

/// How often a fault is drawn until there is one that is wanted.
const DRAWS: usize = 100_000;

impl Fault {
    /// One that the plan wants, and that this machine can bring about.
    fn draw(random: &mut Random, plan: &Plan, can: Means, topics: usize) -> Self {
        let is_wanted = |fault: &Self| {
            let name = format!("{fault:?}");
            let kind = name.split(['(', ' ']).next().unwrap_or_default();
            let Means { disks, clocks, store } = fault.means();
            let can = (can.disks || !disks) && (can.clocks || !clocks) && (can.store || !store);
            can && (plan.only.is_empty() || plan.only.iter().any(|only| only == kind))
        };
        let drawn = (0..DRAWS).map(|_| Self::any(random, plan.on_loss, topics)).find(is_wanted);
        drawn.unwrap_or_else(|| panic!("this machine brings about none of {:?}", plan.only))
    }

    /// The means that it needs.
    pub(crate) fn means(self) -> Means {
        Means {
            disks: matches!(self, Self::SlowDisk { .. } | Self::PowerCut { .. }),
            clocks: matches!(self, Self::ClockStep { .. }),
            store: matches!(self, Self::NoStore(_) | Self::StopStore | Self::SlowStore { .. }),
        }
    }

    fn any(random: &mut Random, on_loss: OnLoss, topics: usize) -> Self {
        let n = random.below(MEMBERS as u64) as usize;
        let moved = Self::Move { topic: random.below(topics as u64) as usize, to: n };
        let (broker, seed) = (n, random.draw() % 1_000_000);
        let seconds = if random.percent(50) { -5_400 } else { 5_400 };
        // Members give topics away only where others go on with them; only `Archive` has a store.
        let kinds = match on_loss {
            OnLoss::Wait => 17,
            OnLoss::NewLog => 20,
            OnLoss::Archive => 23,
        };
        match random.below(kinds) {
            0 => Self::Kill(n),
            1 => Self::Restart(n),
            2 => Self::Stop(n),
            3 => Self::Alone(n),
            4 => Self::Mute(n),
            5 => Self::Deaf(n),
            6 => Self::NoEtcd(n),
            7 => Self::NoPeers(n),
            8 => Self::FullDisk(n),
            9 => Self::FullDiskKill(n),
            10 => Self::KillEtcd(n),
            11 => Self::StopEtcd(n),
            12 => Self::NoEtcdAtAll,
            13 => Self::SlowDisk { broker, seed },
            14 => Self::PowerCut { broker, seed },
            15 => Self::Damage { broker, seed },
            16 => Self::ClockStep { broker, seconds },
            17 => Self::Drain(n),
            20 => Self::NoStore(n),
            21 => Self::StopStore,
            22 => Self::SlowStore { seed },
            _ => moved,
        }
    }

    /// Whether a broker forgets what only its memory has.
    pub fn is_death(self) -> bool {
        let is_kill = matches!(self, Self::Kill(_) | Self::FullDiskKill(_) | Self::Damage { .. });
        is_kill || self.is_cut()
    }

    /// Whether the disk of a broker forgets what it has not synced.
    pub fn is_cut(self) -> bool {
        matches!(self, Self::PowerCut { .. })
    }

    /// The fault begins.
    pub fn begin(self, cluster: &mut Cluster) {
        match self {
            Self::Kill(n) => cluster.kill_broker(n),
            Self::Restart(n) | Self::Upgrade(n) => cluster.signal_broker(n, "TERM"),
            Self::Stop(n) => cluster.signal_broker(n, "STOP"),
            Self::FullDisk(n) | Self::FullDiskKill(n) => fill(cluster, n),
            Self::KillEtcd(n) => cluster.kill_etcd(n),
            Self::StopEtcd(n) => cluster.signal_etcd(n, "STOP"),
            Self::NoEtcdAtAll => (0..MEMBERS).for_each(|n| cluster.kill_etcd(n)),
            Self::Move { topic, to } => {
                cluster.operate(&format!("move k/{topic} m{to} --new-log"));
            }
            Self::Drain(n) => {
                cluster.operate(&format!("drain m{n}"));
            }
            Self::StopStore => cluster.store().signal("STOP"),
            Self::SlowStore { seed } => cluster.store().slow_down(seed),
            Self::SlowDisk { broker, seed } => cluster.slow_down(broker, Some(seed)),
            Self::PowerCut { broker, seed } => cluster.cut_power(broker, seed),
            Self::Damage { broker, seed } => cluster.damage(broker, seed),
            Self::ClockStep { broker, seconds } => cluster.set_clock(broker, seconds),
            cut => cut.cuts().into_iter().for_each(|cut| cluster.network.cut(cut)),
        }
    }

    /// The fault ends.
    pub fn end(self, cluster: &mut Cluster) {
        match self {
            Self::Kill(broker) | Self::PowerCut { broker, .. } | Self::Damage { broker, .. } => {
                cluster.run_broker(broker);
            }
            Self::Restart(n) | Self::Upgrade(n) => {
                cluster.wait_for_end(n);
                if matches!(self, Self::Upgrade(_)) {
                    cluster.change_version(n);
                }
                cluster.run_broker(n);
            }
            Self::StopStore => cluster.store().signal("CONT"),
            Self::SlowStore { .. } => cluster.store().go_on(),
            Self::SlowDisk { broker, .. } => cluster.slow_down(broker, None),
            Self::ClockStep { broker, .. } => cluster.set_clock(broker, 0),
            Self::Stop(n) => cluster.signal_broker(n, "CONT"),
            Self::FullDisk(n) => make_room(cluster, n),
            Self::FullDiskKill(n) => {
                cluster.kill_broker(n);
                make_room(cluster, n);
                cluster.run_broker(n);
            }
            Self::KillEtcd(n) => cluster.run_etcd(n),
            Self::StopEtcd(n) => cluster.signal_etcd(n, "CONT"),
            Self::NoEtcdAtAll => (0..MEMBERS).for_each(|n| cluster.run_etcd(n)),
            Self::Move { .. } => {}
            Self::Drain(n) => {
                cluster.operate(&format!("drain m{n} --undo"));
            }
            _ => cluster.network.heal(),
        }
    }

    /// The ways that do not exist.
    fn cuts(self) -> Vec<Cut> {
        let all: &[Net] = &[Net::Brokers, Net::Etcd, Net::Store];
        let (from_it, to_it, nets, clients, n) = match self {
            Self::Alone(n) => (true, true, all, true, n),
            Self::Mute(n) => (true, false, all, true, n),
            Self::Deaf(n) => (false, true, all, true, n),
            Self::NoEtcd(n) => (true, true, &[Net::Etcd][..], false, n),
            Self::NoPeers(n) => (true, true, &[Net::Brokers][..], false, n),
            Self::NoStore(n) => (true, true, &[Net::Store][..], true, n),
            _ => return Vec::new(),
        };
        let (own, others) = (End::Machine(n), (0..MEMBERS).filter(|other| *other != n).map(End::Machine));
        let others = others.chain(clients.then_some(End::Clients));
        let both = others.flat_map(|other| [(from_it, own, other), (to_it, other, own)]);
        let ways = both.filter(|(is_cut, ..)| *is_cut);
        ways.flat_map(|(_, from, to)| nets.iter().map(move |net| Cut { from, to, net: *net })).collect()
    }
}

fn ballast(cluster: &Cluster, n: usize) -> std::path::PathBuf {
    cluster.kept(n).join("ballast")
}

fn fill(cluster: &Cluster, n: usize) {
    let mut file = std::fs::File::create(ballast(cluster, n)).expect("a file");
    let page = [0; 4096];
    // Until there is no room.
    while std::io::Write::write_all(&mut file, &page).is_ok() {}
}

fn make_room(cluster: &Cluster, n: usize) {
    // Two faults may have filled one disk.
    let _ = std::fs::remove_file(ballast(cluster, n));
}

/// Nobody is drained any more. An operator says it again until etcd has heard it.
fn undrain(cluster: &Cluster) {
    testkit::until("no member is drained any more", || {
        (0..MEMBERS).for_each(|n| {
            cluster.operate(&format!("drain m{n} --undo"));
        });
        let wishes = etcd_client().range(&format!("/rbmq/{NAME}/drain/"));
        wishes.is_ok_and(|snapshot| snapshot.keys.is_empty())
    });
}

/// The faults of a round of about this time.
pub fn schedule(random: &mut Random, plan: &Plan, topics: usize, time: Duration) -> Vec<Step> {
    let store = plan.on_loss == OnLoss::Archive;
    let can = Means { disks: Disk::can_mount(), clocks: clock_library().is_some(), store };
    if !can.disks || !can.clocks {
        skip(&format!("some faults (they need /dev/fuse, and the package faketime): {can:?}"));
    }
    let (mut steps, mut left) = (Vec::new(), time);
    while !left.is_zero() {
        let count = 1 + usize::from(random.percent(30));
        let faults = (0..count).map(|_| Fault::draw(random, plan, can, topics)).collect();
        // Some are over before a lease is, and some are not.
        let lasts = Duration::from_millis(if random.percent(50) {
            random.between(100, 1_500)
        } else {
            random.between(2_500, 4_500)
        });
        let rest = Duration::from_millis(random.between(100, 1_500));
        left = left.saturating_sub(lasts + rest);
        steps.push(Step { faults, lasts, rest });
    }
    steps
}

/// Brings the faults about, one step after the other, and leaves a cluster without any.
pub fn bring_about(steps: &[Step], cluster: &mut Cluster) {
    for step in steps {
        step.faults.iter().for_each(|fault| fault.begin(cluster));
        std::thread::sleep(step.lasts);
        step.faults.iter().rev().for_each(|fault| fault.end(cluster));
        std::thread::sleep(step.rest);
    }
    if steps.iter().flat_map(|step| &step.faults).any(|fault| matches!(fault, Fault::Drain(_))) {
        undrain(cluster);
    }
}
