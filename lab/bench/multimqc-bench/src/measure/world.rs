//! Where a bench runs: two network namespaces joined by a veth pair, or the loopback interface.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::process::Command;

use commands::{Failure, print_error};
use multimqc_kernel::Kernel;

use super::placement::on;
use super::process::{Process, multimqc};

/// The device of the server, and that of the clients.
pub const SERVER_DEVICE: &str = "mq0";
pub const CLIENT_DEVICE: &str = "mq1";

/// Their addresses.
pub const SERVER_MAC: [u8; 6] = [2, 0, 0, 9, 9, 2];
pub const CLIENT_MAC: [u8; 6] = [2, 0, 0, 9, 9, 1];
const SERVER_ADDRESS: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 9, 9, 2));
pub const CLIENT_ADDRESS: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 9, 9, 1));

/// The two sides.
pub struct World {
    /// The address of the server.
    pub address: IpAddr,
    /// The commands that enter the server's and the clients' namespace; empty on the loopback interface.
    pub server: Vec<String>,
    pub client: Vec<String>,
    /// Whether there are namespaces, and the rights for the level in the kernel.
    pub has_kernel: bool,
    /// A Kafka broker, and its address.
    broker: Option<(Process, String)>,
    /// Processes that keep the namespaces.
    holders: Vec<Process>,
    /// `server` on any processor.
    unplaced: Vec<String>,
}

impl World {
    /// Namespaces as root, and otherwise the loopback interface. Frames that processors send at the same time are taken at
    /// the same time if the devices have as many `queues`.
    pub fn new(queues: usize) -> Result<World, Failure> {
        let mut world = World {
            address: IpAddr::V4(Ipv4Addr::LOCALHOST),
            server: Vec::new(),
            client: Vec::new(),
            has_kernel: false,
            broker: None,
            holders: Vec::new(),
            unplaced: Vec::new(),
        };
        if !rustix::process::geteuid().is_root() {
            print_error(
                "multimqc-bench",
                "not root: over the loopback interface, without the level in the kernel",
            );
            return Ok(world);
        }
        // Under BBR, which paces, everything over loopback TCP is slower.
        const KEEP: &str = "echo cubic > /proc/sys/net/ipv4/tcp_congestion_control; \
                            ip link set lo up && echo ready && exec sleep infinity";
        for side in 0..2 {
            let keep = ["-n", "sh", "-c", KEEP].map(str::to_owned);
            let holder = match Process::start_other(&[], "unshare".as_ref(), &keep, "ready") {
                Ok((holder, _)) => holder,
                Err(Failure::Failed(why)) => {
                    print_error(
                        "multimqc-bench",
                        format_args!("no namespaces, so over the loopback interface: {why}"),
                    );
                    (world.server, world.holders) = (Vec::new(), Vec::new());
                    return Ok(world);
                }
                Err(other) => return Err(other),
            };
            let enter = ["nsenter", "-t", &holder.id().to_string(), "-n"].map(str::to_owned).to_vec();
            if side == 0 {
                world.server = enter
            } else {
                world.client = enter
            }
            world.holders.push(holder);
        }
        world.address = SERVER_ADDRESS;
        world.unplaced.clone_from(&world.server);
        world.join(queues)?;
        let small = multimqc_kernel::Config::default().ring_bytes(1 << 16).batch_bytes(1 << 12);
        world.has_kernel = !matches!(Kernel::new(small), Err(error) if error.is_missing_right());
        Ok(world)
    }

    /// # Errors
    /// The kernel's own frames cannot be sent here.
    pub fn require_frames(&self) -> Result<(), Failure> {
        const WHY: &str = "frames are sent as root only, with the rights for eBPF; use another --generator";
        if self.has_kernel { Ok(()) } else { Err(Failure::Failed(WHY.into())) }
    }

    fn join(&self, queues: usize) -> Result<(), Failure> {
        let peer = self.holders[1].id();
        let queues = format!("numtxqueues {queues} numrxqueues {queues}");
        let devices = format!("{SERVER_DEVICE} {queues} type veth peer name {CLIENT_DEVICE} {queues}");
        self.run(&self.server, &format!("ip link add {devices} netns {peer}"))?;
        for (enter, device, address, mac) in [
            (&self.server, SERVER_DEVICE, SERVER_ADDRESS, SERVER_MAC),
            (&self.client, CLIENT_DEVICE, CLIENT_ADDRESS, CLIENT_MAC),
        ] {
            let mac = mac.map(|byte| format!("{byte:02x}")).join(":");
            self.run(enter, &format!("ip link set {device} address {mac}"))?;
            self.run(enter, &format!("ip addr add {address}/24 dev {device}"))?;
            self.run(enter, &format!("ip link set {device} up"))?;
        }
        Ok(())
    }

    /// Lets servers run on these processors from now on.
    pub fn place_server(&mut self, processors: &[usize]) {
        self.server = on(processors, &self.unplaced);
    }

    /// Starts a Kafka broker in the server's namespace, with a command that prints its address.
    pub fn start_broker(&mut self, command: &str) -> Result<(), Failure> {
        let mut words = command.split_whitespace().map(str::to_owned);
        let program = words.next().ok_or_else(|| Failure::Failed("--broker is empty".into()))?;
        let words: Vec<String> = words.collect();
        let (process, line) = Process::start_other(&self.server, program.as_ref(), &words, "listening")?;
        let address = line.split_whitespace().last().unwrap_or_default().to_owned();
        self.broker = Some((process, address));
        Ok(())
    }

    /// The address of the Kafka broker, empty without one.
    pub fn broker_address(&self) -> &str {
        self.broker.as_ref().map_or("", |(_, address)| address)
    }

    /// The processor time of the Kafka broker so far.
    pub fn broker_cpu_ns(&self) -> u64 {
        self.broker.as_ref().map_or(0, |(process, _)| process.cpu_ns())
    }

    /// A program on a device that lets everything pass. With one, the other end of the pair can send frames of XDP.
    pub fn pass(&self, device: &str) -> Result<Process, Failure> {
        let (enter, address) = match device {
            SERVER_DEVICE => (&self.server, SERVER_ADDRESS),
            _ => (&self.client, CLIENT_ADDRESS),
        };
        let control = format!("multimqc-bench-{}-{device}.sock", std::process::id());
        let control = std::env::temp_dir().join(control).display().to_string();
        let address = address.to_string();
        let args = [
            "serve",
            "--levels",
            "kernel",
            "--interface",
            device,
            "--address",
            &address,
            "--mode",
            "xdp-native",
        ];
        let more = ["--topic", "1", "--port", "19997", "--control", &control];
        let args: Vec<String> = args.iter().chain(&more).map(|arg| (*arg).to_owned()).collect();
        Ok(Process::start_other(enter, &multimqc()?, &args, "listening")?.0)
    }

    /// Starts a generator in the clients' namespace, on a processor or any: for so many seconds, to a port of the server.
    pub fn generator(
        &self,
        processor: Option<usize>,
        port: u16,
        payload: u16,
        seconds: f64,
        more: &[&str],
    ) -> Result<Process, Failure> {
        let to = SocketAddr::new(self.address, port).to_string();
        let (payload, seconds) = (payload.to_string(), seconds.to_string());
        let args = ["generate", "--to", &to, "--payload", &payload, "--seconds", &seconds];
        let args: Vec<String> = args.iter().chain(more).map(|arg| (*arg).to_owned()).collect();
        let enter = processor.map_or_else(|| self.client.clone(), |processor| on(&[processor], &self.client));
        Process::start(&enter, &args, "generating")
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
