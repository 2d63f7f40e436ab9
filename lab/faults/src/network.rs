//! A network of three machines that hold a broker and a member of etcd each, and of the clients: network namespaces at one bridge.
//!
//! ```text
//!   clients (the test) 10.77.1.254 ──┐ bridge
//!                      10.77.2.254   ├── machine 0: broker 10.77.1.1, etcd 10.77.2.1
//!                                    ├── machine 1: broker 10.77.1.2, etcd 10.77.2.2
//!                                    └── machine 2: …
//! ```
//!
//! Packets from and to an etcd have addresses of the second net, and those from and to the object store have addresses of a third one, so that each can
//! be cut off alone. A way is cut by a neighbour that nobody is: packets leave, and arrive nowhere, in one direction.

use std::ffi::OsStr;
use std::process::{Command, Stdio};

use testkit::{Process, skip};

/// The brokers, and the members of etcd.
pub const MEMBERS: usize = 3;
/// The number of the clients in both nets.
const CLIENTS: usize = 253;
/// Set in the namespaces of a test.
const OWN_MACHINE: &str = "FAULTS_OWN_MACHINE";
/// What a network namespace has to have, in the words of `unshare`.
const OWN: [&str; 7] = ["-n", "-m", "-p", "--fork", "--kill-child", "--mount-proc", "--"];

/// One of the two nets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Net {
    /// Of brokers and clients.
    Brokers,
    /// Of etcd.
    Etcd,
    /// The address of the object store, which is where the clients are.
    Store,
}

/// An end of a way: a machine, or the clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// The machine of this number.
    Machine(usize),
    /// The test itself.
    Clients,
}

/// The machines. They end with this value.
pub struct Network {
    holders: Vec<Process>,
    cuts: Vec<Cut>,
}

/// Packets that arrive nowhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cut {
    /// Who sends them.
    pub from: End,
    /// Whom they do not reach.
    pub to: End,
    /// In which net.
    pub net: Net,
}

/// The address of a machine, or of the clients.
pub fn address(end: End, net: Net) -> String {
    let number = match end {
        End::Machine(number) => number,
        End::Clients => CLIENTS,
    };
    format!("10.77.{}.{}", net as usize + 1, number + 1)
}

/// Whether this is a machine of the test's own: namespaces of networks, mounts and processes. If not, runs the test of this name there, and
/// fails if it fails; that needs root, and is left out otherwise.
///
/// # Panics
/// The test fails there.
pub fn is_in_own_machine(test: &str) -> bool {
    if std::env::var_os(OWN_MACHINE).is_some() {
        return true;
    }
    let can = "ip link add probe type bridge && mount -t tmpfs none /proc/fs";
    let mut probe = Command::new("unshare");
    if !probe.args(OWN).args(["sh", "-c", can]).output().is_ok_and(|output| output.status.success()) {
        skip(&format!("{test} (it needs root, unshare, ip and mount)"));
        return false;
    }
    let program = std::env::current_exe().expect("this program");
    let mut again = Command::new("unshare");
    again.args(OWN).arg(program).args(["--exact", test, "--nocapture"]).env(OWN_MACHINE, "1");
    if std::env::args().any(|word| word == "--ignored" || word == "--include-ignored") {
        again.arg("--include-ignored");
    }
    let status = again.status().expect("unshare");
    assert!(status.success(), "{test}, on a machine of its own");
    false
}

impl Network {
    /// Makes the machines, in a network namespace that has nothing yet.
    ///
    /// # Panics
    /// The system refuses it.
    pub fn build() -> Self {
        let ours = |net| format!("ip addr add {}/24 dev hub", address(End::Clients, net));
        run(&format!(
            "ip link set lo up && ip link add hub type bridge && {} && {} && {} && ip link set hub up",
            ours(Net::Brokers),
            ours(Net::Etcd),
            ours(Net::Store)
        ));
        let mut network = Self { holders: Vec::new(), cuts: Vec::new() };
        (0..MEMBERS).for_each(|n| network.add(n));
        network
    }

    fn add(&mut self, n: usize) {
        let mut holder = Command::new("unshare");
        // The line says that the namespace is there.
        holder.args(["-n", "sh", "-c", "echo up && exec sleep infinity"]).stdout(Stdio::piped());
        let mut holder = Process::start(holder);
        assert_eq!(holder.line(), "up\n", "a namespace");
        let id = holder.id();
        self.holders.push(holder);
        run(&format!(
            "ip link add v{n} type veth peer name eth0 netns {id} && ip link set v{n} master hub up"
        ));
        let its = |net| format!("ip addr add {}/24 dev eth0", address(End::Machine(n), net));
        self.run(
            End::Machine(n),
            &format!(
                "ip link set lo up && {} && {} && {} && ip link set eth0 up",
                its(Net::Brokers),
                its(Net::Etcd),
                its(Net::Store)
            ),
        );
    }

    /// A command on a machine.
    pub fn command(&self, machine: usize, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net=/proc/{}/ns/net", self.holders[machine].id())).arg("--").arg(program);
        command
    }

    fn run(&self, end: End, script: &str) {
        match end {
            End::Machine(n) => {
                let mut command = self.command(n, "sh");
                finish(command.args(["-c", script]));
            }
            End::Clients => run(script),
        }
    }

    /// Packets of this kind arrive nowhere from now on.
    ///
    /// # Panics
    /// The system refuses it.
    pub fn cut(&mut self, cut: Cut) {
        if cut.from != cut.to && !self.cuts.contains(&cut) {
            let (to, device) = (address(cut.to, cut.net), device(cut.from));
            let nobody = "lladdr 02:00:00:00:00:01";
            self.run(cut.from, &format!("ip neigh replace {to} {nobody} dev {device} nud permanent"));
            self.cuts.push(cut);
        }
    }

    /// Everything reaches everybody.
    ///
    /// # Panics
    /// The system refuses it.
    pub fn heal(&mut self) {
        for Cut { from, to, net } in std::mem::take(&mut self.cuts) {
            self.run(from, &format!("ip neigh del {} dev {}", address(to, net), device(from)));
        }
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        let ours = ["hub".to_owned()].into_iter().chain((0..self.holders.len()).map(|n| format!("v{n}")));
        for name in ours {
            // The next network of this test has the same names.
            let _ = Command::new("ip").args(["link", "del", &name]).status();
        }
    }
}

fn device(end: End) -> &'static str {
    if end == End::Clients { "hub" } else { "eth0" }
}

fn run(script: &str) {
    finish(Command::new("sh").args(["-c", script]));
}

fn finish(command: &mut Command) {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
}
