//! The processes: a broker and a member of etcd on each machine.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rbmq_cluster::etcd::{Client, ClientSettings, Endpoint};
use tempfile::TempDir;
use testkit::{Process, until};

use crate::damage::damage;
use crate::disk::Disk;
use crate::network::{End, MEMBERS, Net, Network, address};
use crate::store::Store;

/// The name of the cluster.
pub const NAME: &str = "lab";

/// How long a lease lasts, in seconds: as short as the configuration allows, or as `CLUSTER_TTL_S` says.
pub fn ttl_s() -> u64 {
    std::env::var("CLUSTER_TTL_S").ok().and_then(|text| text.parse().ok()).unwrap_or(2)
}

/// Room for what a broker keeps, in bytes. A round fills a part of it.
const DISK: usize = 32 << 20;
/// Room for a member of etcd, which reserves much of it at its start.
const ETCD_DISK: usize = 512 << 20;

/// Starts a program on a machine with a number of its own, as all running systems have one.
const ON_MACHINE: &str = r#"mount --bind "$0" /proc/sys/kernel/random/boot_id && exec "$@""#;

/// The lines of each log that are shown.
const LINES: usize = 400;

/// How long a broker may take to end in order.
const ORDERLY: Duration = Duration::from_secs(10);

/// What happens to the topics of a broker that is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnLoss {
    /// They wait for it.
    Wait,
    /// Others take them, with new logs.
    NewLog,
    /// Others take them, and go on where the archive ends.
    Archive,
}

impl OnLoss {
    /// As in the configuration.
    pub fn word(self) -> &'static str {
        match self {
            Self::Wait => "wait",
            Self::NewLog => "new-log",
            Self::Archive => "archive",
        }
    }
}

/// How a cluster is made, and what happens to it.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Decides what happens, and when.
    pub seed: u64,
    /// The command `rbmq`.
    pub rbmq: PathBuf,
    /// The rule of all brokers.
    pub on_loss: OnLoss,
    /// The level at which publishers wait. None: all levels take turns.
    pub level: Option<rbmq::ConfirmLevel>,
    /// The kinds of faults, by their names. Empty: all.
    pub only: Vec<String>,
    /// Variables of the brokers.
    pub variables: Vec<[String; 2]>,
    /// Another version of the command, with which all brokers begin.
    pub old: Option<PathBuf>,
}

/// The means that the faults of a round need.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Means {
    /// Disks that can be slow and lose their power.
    pub(crate) disks: bool,
    /// Clocks that can be set.
    pub(crate) clocks: bool,
    /// An object store.
    pub(crate) store: bool,
}

/// Three brokers and three members of etcd, which end with this value.
pub struct Cluster {
    /// The ways between them.
    pub network: Network,
    plan: Plan,
    folder: TempDir,
    brokers: [Option<Process>; MEMBERS],
    etcd: [Option<Process>; MEMBERS],
    means: Means,
    store: Option<Store>,
    /// The disks of brokers that can lose their power.
    power: Vec<Disk>,
    /// How often each machine was started.
    boots: [u32; MEMBERS],
    /// Whether a broker has the other version of the command.
    is_new: [bool; MEMBERS],
    /// The files that were damaged.
    damaged: Vec<PathBuf>,
}

/// Where clients reach a broker.
pub fn broker_address(n: usize) -> String {
    format!("{}:7411", address(End::Machine(n), Net::Brokers))
}

/// Where clients reach all brokers, this one first.
pub fn addresses_from(first: usize) -> String {
    let all = (0..MEMBERS).map(|n| broker_address((first + n) % MEMBERS));
    all.collect::<Vec<_>>().join(",")
}

fn etcd_url(n: usize, port: u16) -> String {
    format!("http://{}:{port}", address(End::Machine(n), Net::Etcd))
}

/// A client of etcd, as the test needs it.
///
/// # Panics
/// Never: the addresses are those of this network.
pub fn etcd_client() -> Client {
    let endpoint = |n| etcd_url(n, 2379).parse::<Endpoint>().expect("an address");
    let endpoints = (0..MEMBERS).map(endpoint).collect();
    let timeout = Duration::from_millis(500);
    Client::new(ClientSettings { endpoints, timeout, login: None, tls: None })
}

impl Cluster {
    /// Starts everything, in namespaces that have nothing yet.
    ///
    /// # Panics
    /// Something does not start.
    pub(crate) fn start(plan: Plan, means: Means) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let (network, brokers, etcd) = (Network::build(), Default::default(), Default::default());
        let (power, boots, is_new, damaged) = (Vec::new(), [0; MEMBERS], [false; MEMBERS], Vec::new());
        let store = (plan.on_loss == OnLoss::Archive).then(Store::start);
        let mut cluster =
            Self { network, plan, folder, brokers, etcd, means, store, power, boots, is_new, damaged };
        for n in 0..MEMBERS {
            cluster.make_disk(n);
            cluster.run_etcd(n);
        }
        until("etcd answers", || etcd_client().range("/").is_ok());
        (0..MEMBERS).for_each(|n| cluster.run_broker(n));
        until("the brokers are members", || {
            let members = etcd_client().range(&format!("/rbmq/{NAME}/members/"));
            members.is_ok_and(|snapshot| snapshot.keys.len() == MEMBERS)
        });
        cluster
    }

    /// A small disk of its own for what a broker keeps, and for its etcd.
    fn make_disk(&mut self, n: usize) {
        for disk in self.disks(n) {
            std::fs::create_dir(&disk).expect("a folder");
            let is_of_broker = disk == self.kept(n);
            if is_of_broker && self.means.disks {
                self.power.push(Disk::mount(&disk, DISK).expect("a file system"));
                continue;
            }
            let size = if is_of_broker { DISK } else { ETCD_DISK };
            let mut mount = Command::new("mount");
            mount.args(["-t", "tmpfs", "-o", &format!("size={size}"), "none"]).arg(&disk);
            assert!(mount.status().is_ok_and(|status| status.success()), "mount");
        }
        std::fs::write(self.config(n), self.settings(n)).expect("a file");
        self.boot(n);
        self.set_clock(n, 0);
    }

    /// The machine of a broker has started: it has another number of its own.
    fn boot(&mut self, n: usize) {
        self.boots[n] += 1;
        let id = format!("{n:08x}-0000-4000-8000-{:012x}\n", self.boots[n]);
        std::fs::write(self.path(&format!("boot-{n}")), id).expect("a file");
    }

    /// The clock of a broker is so many seconds ahead from now on.
    ///
    /// # Panics
    /// There is no file for it.
    pub fn set_clock(&self, n: usize, seconds: i64) {
        // The whole file at once: the broker may read it at any time.
        let (path, new) = (self.clock(n), self.path("clock-new"));
        std::fs::write(&new, format!("{seconds:+}\n")).expect("a file");
        std::fs::rename(new, path).expect("a file");
    }

    fn clock(&self, n: usize) -> PathBuf {
        self.path(&format!("clock-{n}"))
    }

    /// A broker dies with its machine: what its disk has not synced is lost in part.
    pub fn cut_power(&mut self, n: usize, seed: u64) {
        self.kill_broker(n);
        self.power[n].cut(seed);
        self.boot(n);
    }

    /// The disk of a broker is slow from now on, or is not.
    pub fn slow_down(&self, n: usize, seed: Option<u64>) {
        self.power[n].slow_down(seed);
    }

    /// A broker dies, and a file of its disk is damaged.
    pub fn damage(&mut self, n: usize, seed: u64) {
        self.kill_broker(n);
        self.damaged.extend(damage(&self.kept(n).join("kept"), seed));
    }

    /// The files that were damaged.
    pub fn damaged(&self) -> &[PathBuf] {
        &self.damaged
    }

    /// From its next start on a broker is of the other version.
    pub fn change_version(&mut self, n: usize) {
        self.is_new[n] ^= true;
    }

    fn settings(&self, n: usize) -> String {
        let urls: Vec<String> = (0..MEMBERS).map(|n| etcd_url(n, 2379)).collect();
        let (archive, store) = match self.plan.on_loss {
            OnLoss::Archive => ("archive = 's3'\n", Store::settings(self.folder.path())),
            _ => ("", String::new()),
        };
        format!(
            "[broker]\nlisten = '{}'\nkeep_dir = '{}/kept'\nkeep_sync_ms = 10\n[access]\ninsecure = true\n\
             [[broker.topics]]\npattern = 'k/#'\nkeep = true\n{archive}{store}\
             [session]\nheartbeat_ms = 500\nmax_silence_ms = 3000\n\
             [cluster]\nname = '{NAME}'\nid = 'm{n}'\nttl_ms = '{}s'\ngroup_levels = 2\non_loss = '{}'\netcd = {urls:?}\n",
            broker_address(n),
            self.kept(n).display(),
            ttl_s(),
            self.plan.on_loss.word(),
        )
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn disks(&self, n: usize) -> [PathBuf; 2] {
        [self.kept(n), self.path(&format!("etcd-{n}"))]
    }

    /// The disk of a broker.
    pub fn kept(&self, n: usize) -> PathBuf {
        self.path(&format!("disk-{n}"))
    }

    fn config(&self, n: usize) -> PathBuf {
        self.path(&format!("{n}.toml"))
    }

    /// Whether a broker has this log on its disk.
    pub fn has_log(&self, n: usize, epoch: rocketbufs::Epoch) -> bool {
        let wanted = epoch.0.to_le_bytes();
        let mut folders = vec![self.kept(n).join("kept")];
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
                let path = entry.path();
                if path.is_dir() {
                    folders.push(path);
                } else if begins_with(&path, &wanted) {
                    return true;
                }
            }
        }
        false
    }

    /// Starts a broker, unless it runs.
    ///
    /// # Panics
    /// The system starts nothing.
    pub fn run_broker(&mut self, n: usize) {
        if self.brokers[n].is_none() {
            let program = self.plan.old.as_ref().filter(|_| !self.is_new[n]).unwrap_or(&self.plan.rbmq);
            let mut command = self.network.command(n, "unshare");
            command.args(["-m", "sh", "-c", ON_MACHINE]).arg(self.path(&format!("boot-{n}"))).arg(program);
            command.args(["serve", "--config"]).arg(self.config(n));
            if self.means.clocks {
                command.env("LD_PRELOAD", clock_library().expect("faketime"));
                command.env("FAKETIME_TIMESTAMP_FILE", self.clock(n));
                command.envs(
                    ["FAKETIME_NO_CACHE", "FAKETIME_DONT_FAKE_MONOTONIC", "NO_FAKE_STAT"]
                        .map(|name| (name, "1")),
                );
            }
            command.env_remove("RBMQ_BROKER").env_remove("RBMQ_CONFIG");
            command.envs(self.plan.variables.iter().map(|[name, value]| (name, value)));
            self.brokers[n] = Some(self.launch(command, &format!("broker-{n}.log")));
        }
    }

    /// Starts a member of etcd, unless it runs.
    ///
    /// # Panics
    /// The system starts nothing.
    pub fn run_etcd(&mut self, n: usize) {
        if self.etcd[n].is_none() {
            let (clients, peers) = (etcd_url(n, 2379), etcd_url(n, 2380));
            let all: Vec<String> = (0..MEMBERS).map(|n| format!("m{n}={}", etcd_url(n, 2380))).collect();
            let mut command = self.network.command(n, "etcd");
            command.arg("--data-dir").arg(self.path(&format!("etcd-{n}")).join("data"));
            command.args(["--name", &format!("m{n}"), "--initial-cluster", &all.join(",")]);
            command.args(["--listen-client-urls", &clients, "--advertise-client-urls", &clients]);
            command.args(["--listen-peer-urls", &peers, "--initial-advertise-peer-urls", &peers]);
            command.args(["--heartbeat-interval", "100", "--election-timeout", "1000"]);
            command.args(["--logger", "zap", "--log-level", "error"]);
            self.etcd[n] = Some(self.launch(command, &format!("etcd-{n}.log")));
        }
    }

    fn launch(&self, mut command: Command, log: &str) -> Process {
        let log = File::options().create(true).append(true).open(self.path(log)).expect("a file");
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        Process::start(command)
    }

    /// The object store.
    ///
    /// # Panics
    /// The round has none.
    pub(crate) fn store(&mut self) -> &mut Store {
        self.store.as_mut().expect("a store")
    }

    /// A broker ends at once.
    pub fn kill_broker(&mut self, n: usize) {
        self.brokers[n] = None;
    }

    /// A member of etcd ends at once.
    pub fn kill_etcd(&mut self, n: usize) {
        self.etcd[n] = None;
    }

    /// A broker that was told to end has ended, or is killed after a while.
    pub fn wait_for_end(&mut self, n: usize) {
        if let Some(mut process) = self.brokers[n].take() {
            process.signal("CONT");
            let told = Instant::now();
            while process.is_running() && told.elapsed() < ORDERLY {
                std::thread::sleep(Duration::from_millis(2));
            }
        }
    }

    /// Sends a signal to a broker that runs.
    pub fn signal_broker(&self, n: usize, name: &str) {
        self.brokers[n].iter().for_each(|process| process.signal(name));
    }

    /// Sends a signal to a member of etcd that runs.
    pub fn signal_etcd(&self, n: usize, name: &str) {
        self.etcd[n].iter().for_each(|process| process.signal(name));
    }

    /// `rbmq cluster ARGS`, from the clients. It may fail while etcd is away.
    pub fn operate(&self, args: &str) -> bool {
        let mut command = Command::new(&self.plan.rbmq);
        command.arg("cluster").args(args.split_whitespace()).arg("--config").arg(self.config(0));
        command.output().is_ok_and(|output| output.status.success())
    }

    /// What the processes wrote to their logs last.
    pub fn logs(&self) -> String {
        let name = |n: usize| [format!("broker-{n}.log"), format!("etcd-{n}.log")];
        let end = |name: String| {
            let text = std::fs::read_to_string(self.path(&name)).unwrap_or_default();
            let lines: Vec<&str> = text.lines().collect();
            format!("--- {name}\n{}\n", lines[lines.len().saturating_sub(LINES)..].join("\n"))
        };
        (0..MEMBERS).flat_map(name).map(end).collect()
    }

    /// What the brokers did not survive: a broker that was to run and does not.
    pub fn dead(&mut self) -> Vec<usize> {
        let is_dead = |process: &mut Option<Process>| process.as_mut().is_some_and(|one| !one.is_running());
        (0..MEMBERS).filter(|n| is_dead(&mut self.brokers[*n])).collect()
    }
}

/// The library that gives a process another clock: Debian has it in the package faketime.
pub(crate) fn clock_library() -> Option<PathBuf> {
    let folders = std::fs::read_dir("/usr/lib").ok()?.flatten().map(|entry| entry.path());
    folders.map(|folder| folder.join("faketime/libfaketimeMT.so.1")).find(|path| path.exists())
}

/// Whether these bytes are in the first page of a file.
fn begins_with(path: &Path, wanted: &[u8; 16]) -> bool {
    let mut page = Vec::new();
    let read = File::open(path)
        .and_then(|file| std::io::Read::read_to_end(&mut std::io::Read::take(file, 4096), &mut page));
    read.is_ok() && page.windows(wanted.len()).any(|window| window == wanted)
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.brokers = Default::default();
        self.etcd = Default::default();
        self.power.clear();
        if std::thread::panicking() {
            eprintln!("{}", self.logs());
        }
        for disk in (0..MEMBERS).flat_map(|n| self.disks(n)) {
            // Otherwise it goes with the namespace of the test. A disk that can lose its power is not mounted any more.
            let _ = Command::new("umount").arg(disk).output();
        }
    }
}
