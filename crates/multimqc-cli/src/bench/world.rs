//! Where a bench runs: two network namespaces joined by a veth pair, or the loopback interface.

use std::net::{IpAddr, Ipv4Addr};
use std::process::Command;

use super::process::Process;
use crate::failure::Failure;

/// The device of the server, and that of the clients.
pub const SERVER_DEVICE: &str = "mq0";
pub const CLIENT_DEVICE: &str = "mq1";

/// The two sides.
pub struct World {
    /// The address of the server.
    pub address: IpAddr,
    /// The commands that enter the server's and the clients' namespace; empty on the loopback interface.
    pub server: Vec<String>,
    pub client: Vec<String>,
    /// Processes that keep the namespaces.
    holders: Vec<Process>,
}

impl World {
    /// Namespaces as root, and otherwise the loopback interface.
    pub fn new() -> Result<World, Failure> {
        let mut world = World {
            address: IpAddr::V4(Ipv4Addr::LOCALHOST),
            server: Vec::new(),
            client: Vec::new(),
            holders: Vec::new(),
        };
        if !rustix::process::geteuid().is_root() {
            eprintln!("multimqc: not root: over the loopback interface, without the level in the kernel");
            return Ok(world);
        }
        for side in 0..2 {
            let keep = ["-n", "sh", "-c", "ip link set lo up && echo ready && exec sleep infinity"];
            let mut holder = Process::spawn(Command::new("unshare").args(keep))?;
            holder.wait_for_line("ready")?;
            let enter = ["nsenter", "-t", &holder.id().to_string(), "-n"].map(str::to_owned).to_vec();
            if side == 0 {
                world.server = enter
            } else {
                world.client = enter
            }
            world.holders.push(holder);
        }
        world.address = IpAddr::V4(Ipv4Addr::new(10, 9, 9, 2));
        world.join()?;
        Ok(world)
    }

    /// Whether there are namespaces, and so the level in the kernel.
    pub fn has_namespaces(&self) -> bool {
        !self.holders.is_empty()
    }

    fn join(&self) -> Result<(), Failure> {
        let peer = self.holders[1].id();
        self.run(
            &self.server,
            &format!("ip link add {SERVER_DEVICE} type veth peer name {CLIENT_DEVICE} netns {peer}"),
        )?;
        for (enter, device, address) in
            [(&self.server, SERVER_DEVICE, "10.9.9.2/24"), (&self.client, CLIENT_DEVICE, "10.9.9.1/24")]
        {
            self.run(enter, &format!("ip addr add {address} dev {device}"))?;
            self.run(enter, &format!("ip link set {device} up"))?;
        }
        Ok(())
    }

    fn run(&self, enter: &[String], command: &str) -> Result<(), Failure> {
        let output = Command::new(&enter[0]).args(&enter[1..]).args(command.split(' ')).output();
        let output = output.map_err(|error| Failure::Failed(format!("{command}: {error}")))?;
        if output.status.success() {
            return Ok(());
        }
        Err(Failure::Failed(format!("{command}: {}", String::from_utf8_lossy(&output.stderr).trim())))
    }
}
