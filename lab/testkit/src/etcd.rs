//! A real etcd on loopback, of one or more members, as Debian packages it.

use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::{Process, has, own_port, until};

/// An etcd, which ends when it is dropped. Its data stays in the folder of the test.
pub struct Etcd {
    members: Vec<Member>,
}

struct Member {
    data: PathBuf,
    client: u16,
    peer: u16,
    process: Option<Process>,
    options: Vec<String>,
}

impl Etcd {
    /// Starts an etcd of so many members, with their data in a folder. None, and a line on standard error, where the machine has no etcd.
    ///
    /// # Panics
    /// A member of etcd does not start.
    pub fn start(folder: &Path, members: usize) -> Option<Self> {
        Self::start_with(folder, members, &[])
    }

    /// The same, with further arguments for each member.
    ///
    /// # Panics
    /// A member of etcd does not start.
    pub fn start_with(folder: &Path, members: usize, options: &[&str]) -> Option<Self> {
        if !has("etcd", "brokers that are a cluster") {
            return None;
        }
        let member = |n| Member {
            data: folder.join(format!("etcd-{n}")),
            client: own_port(),
            peer: own_port(),
            process: None,
            options: options.iter().map(|&option| option.to_owned()).collect(),
        };
        let mut etcd = Self { members: (0..members).map(member).collect() };
        etcd.run_all();
        Some(etcd)
    }

    /// The URLs for clients.
    pub fn endpoints(&self) -> Vec<String> {
        let scheme = |member: &Member| if member.is_encrypted() { "https" } else { "http" };
        self.members
            .iter()
            .map(|member| format!("{}://127.0.0.1:{}", scheme(member), member.client))
            .collect()
    }

    /// The number of members, running or not.
    pub fn size(&self) -> usize {
        self.members.len()
    }

    /// The running process of a member.
    ///
    /// # Panics
    /// The member does not run.
    pub fn process(&self, member: usize) -> &Process {
        self.members[member].process.as_ref().expect("it runs")
    }

    /// Kills a member.
    pub fn kill(&mut self, member: usize) {
        self.members[member].process = None;
    }

    /// Starts a member, with the data that it has.
    ///
    /// # Panics
    /// The member does not listen.
    pub fn run(&mut self, member: usize) {
        self.launch(member);
        self.wait_for(member);
    }

    /// Starts all members that do not run.
    ///
    /// # Panics
    /// A member does not listen.
    pub fn run_all(&mut self) {
        for n in 0..self.members.len() {
            if self.members[n].process.is_none() {
                self.launch(n);
            }
        }
        (0..self.members.len()).for_each(|n| self.wait_for(n));
    }

    fn launch(&mut self, n: usize) {
        let peers: Vec<String> =
            self.members.iter().enumerate().map(|(n, member)| member.as_peer(n)).collect();
        let member = &mut self.members[n];
        let clients =
            format!("{}://127.0.0.1:{}", if member.is_encrypted() { "https" } else { "http" }, member.client);
        let peer = format!("http://127.0.0.1:{}", member.peer);
        let mut command = Command::new("etcd");
        command
            .args(["--name", &format!("m{n}"), "--data-dir"])
            .arg(&member.data)
            .args(["--listen-client-urls", &clients, "--advertise-client-urls", &clients])
            .args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer])
            .args([
                "--initial-cluster",
                &peers.join(","),
                "--heartbeat-interval",
                "50",
                "--election-timeout",
                "500",
            ])
            .args(["--logger", "zap", "--log-level", "error"])
            .args(&member.options)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        member.process = Some(Process::start(command));
    }

    fn wait_for(&mut self, n: usize) {
        let member = &mut self.members[n];
        let address = ("127.0.0.1", member.client);
        let process = member.process.as_mut().expect("it was started");
        until("etcd listens", || {
            assert!(process.is_running(), "etcd has ended");
            TcpStream::connect(address).is_ok()
        });
    }
}

impl Member {
    fn is_encrypted(&self) -> bool {
        self.options.iter().any(|option| option == "--cert-file")
    }

    fn as_peer(&self, n: usize) -> String {
        format!("m{n}=http://127.0.0.1:{}", self.peer)
    }
}
