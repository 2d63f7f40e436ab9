//! Multicast between three network namespaces joined by a bridge (as root).

use std::process::{Command, Stdio};

use testkit::{Process, skip};

/// The namespaces of this test. Dropping them removes them.
struct Net {
    names: [String; 3],
}

fn run(command: &str) -> Result<(), String> {
    let output = Command::new("sh").args(["-ec", command]).output().map_err(|e| e.to_string())?;
    let error = || format!("{command}: {}", String::from_utf8_lossy(&output.stderr).trim());
    if output.status.success() { Ok(()) } else { Err(error()) }
}

impl Net {
    /// The first namespace has a bridge `net0`. The other two are connected to it, each with an end called
    /// `net0`.
    fn new() -> Result<Net, String> {
        let id = std::process::id();
        let net = Net { names: ["a", "b", "c"].map(|name| format!("cmq-{id}-{name}")) };
        let [a, b, c] = &net.names;
        run(&format!("ip netns add {a}; ip netns add {b}; ip netns add {c}"))?;
        run(&format!("ip -n {a} link add net0 type bridge mcast_snooping 0"))?;
        for (port, other) in [("pb", b), ("pc", c)] {
            run(&format!("ip -n {a} link add {port} type veth peer name net0 netns {other}"))?;
            run(&format!("ip -n {a} link set {port} master net0 up"))?;
        }
        for (number, name) in net.names.iter().enumerate() {
            let ip = format!("ip -n {name}");
            run(&format!("{ip} addr add 10.78.0.{}/24 dev net0", number + 1))?;
            run(&format!("{ip} addr add fd78::{}/64 dev net0 nodad", number + 1))?;
            run(&format!("{ip} link set lo up; {ip} link set net0 up"))?;
        }
        Ok(net)
    }

    fn cmq(&self, at: usize, args: &[&str]) -> Process {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.names[at], env!("CARGO_BIN_EXE_cmq")]).args(args);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        Process::start(command)
    }

    /// A receiver that has joined the group.
    fn member(&self, at: usize, any: &str, group: &str) -> Process {
        // A datagram that is lost on a busy machine may be the last one, with which the sender closes.
        let args =
            ["receive", any, "--join", group, "--interface", "net0", "--closed", "--idle", "20", "--strict"];
        let mut member = self.cmq(at, &args);
        let line = member.error_line();
        assert!(line.contains("receiving at"), "{line}");
        member
    }

    /// Whether two messages come to both other members of a group.
    fn comes(&self, from: usize, any: &str, group: &str, to: &str) -> bool {
        let members = [(from + 1) % 3, (from + 2) % 3].map(|at| self.member(at, any, group));
        let mut sender = self.cmq(from, &["send", to, "--interface", "net0", "--ttl", "2"]);
        sender.feed(b"one\ntwo\n");
        sender.finish().good();
        let outcomes = members.map(Process::finish);
        outcomes.iter().all(|outcome| outcome.status.success() && outcome.stdout == b"one\ntwo\n")
    }
}

impl Drop for Net {
    fn drop(&mut self) {
        self.names.iter().for_each(|name| drop(run(&format!("ip netns del {name}"))));
    }
}

#[test]
fn between_three_namespaces() {
    if !rustix::process::geteuid().is_root() {
        return skip("multicast between network namespaces needs root");
    }
    let net = match Net::new() {
        Ok(net) => net,
        Err(error) => return skip(&format!("no network namespaces joined by a bridge here: {error}")),
    };
    for (any, group) in [("0.0.0.0:4711", "239.77.0.1"), ("[::]:4711", "ff15::77")] {
        let to = if group.contains(':') { format!("[{group}]:4711") } else { format!("{group}:4711") };
        for from in 0..3 {
            // Datagrams may be lost, but not each time.
            let comes = (0..5).any(|_| net.comes(from, any, group, &to));
            assert!(comes, "from {from} to {group}");
        }
    }
}
