//! The process that simulates the NIC.

use std::io::{BufRead, BufReader, Write};
use std::net::Ipv4Addr;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use commands::Failure;

use crate::server::Log;

/// Returns the program: the one that was named, or the first that exists.
pub fn find(named: Option<&Path>) -> Result<PathBuf, Failure> {
    const HOW: &str = "`scripts/nic setup tap` in the source tree builds it (with Verilator); --simulator or MULTIMQC_NIC_SIM names it";
    if let Some(named) = named {
        if named.is_file() {
            return Ok(named.to_owned());
        }
        return Err(Failure::Failed(format!("{}: there is no simulator; {HOW}", named.display())));
    }
    let command = std::env::current_exe()?;
    let folder = command.parent().unwrap_or(Path::new("."));
    // In the source tree the command is in target/debug or target/release.
    let places = [folder.join("nic_tap"), folder.join("../rtl/nic/nic_tap")];
    let found = places.iter().find(|place| place.is_file()).cloned();
    found.ok_or_else(|| {
        let places: Vec<String> = places.iter().map(|place| place.display().to_string()).collect();
        Failure::Failed(format!("there is no simulator at {}; {HOW}", places.join(" or ")))
    })
}

/// The simulator, which ends with its handle, and its devices with it.
pub struct Simulator {
    child: Child,
    orders: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
}

impl Simulator {
    /// Starts the program, which makes the devices.
    pub fn start(
        program: &Path,
        cable: &str,
        card: &str,
        from: Ipv4Addr,
        to: Ipv4Addr,
    ) -> Result<Simulator, Failure> {
        let mut child = Command::new(program)
            .args([cable, card, &from.to_string(), &to.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            // Ctrl-C ends this command, which then ends its processes in order.
            .process_group(0)
            .spawn()
            .map_err(|error| Failure::Failed(format!("{}: {error}", program.display())))?;
        let orders = child.stdin.take();
        let answers = BufReader::new(child.stdout.take().expect("a pipe"));
        let mut simulator = Simulator { child, orders, answers };
        match simulator.answer()?.as_str() {
            "devices" => Ok(simulator),
            other => Err(Failure::Failed(format!(
                "{}: {other:?} is no greeting of a simulator",
                program.display()
            ))),
        }
    }

    /// Opens the topic of a log in the NIC, which continues at its end. Batches go to the interface with this hardware address.
    pub fn open(&mut self, mac: &str, log: &Log) -> Result<(), Failure> {
        self.ask(&format!("open {mac} {} {} {}", log.topic, log.epoch, log.head), "opened")
    }

    /// Sets the levels of the NIC that answer: bit 0 level 1, bit 1 level 2.
    pub fn set_levels(&mut self, bits: u8) -> Result<(), Failure> {
        self.ask(&format!("levels {bits}"), "set")
    }

    /// The counters of the NIC, by their names.
    pub fn counters(&mut self) -> Result<Vec<(String, u64)>, Failure> {
        self.order("count")?;
        let answer = self.answer()?;
        let words: Vec<&str> = answer.split_whitespace().collect();
        let counter = |pair: &[&str]| Some((pair[0].to_owned(), pair[1].parse().ok()?));
        let counters: Option<Vec<_>> = words.chunks_exact(2).map(counter).collect();
        counters.ok_or_else(|| Failure::Failed(format!("the simulator: {answer:?} is no list of counters")))
    }

    /// # Errors
    /// The simulator has ended.
    pub fn check(&mut self) -> Result<(), Failure> {
        match self.child.try_wait()? {
            None => Ok(()),
            Some(status) => Err(Failure::Failed(format!("the simulator has ended: {status}"))),
        }
    }

    /// Sends a line to the simulator, which must send this answer.
    fn ask(&mut self, order: &str, expected: &str) -> Result<(), Failure> {
        self.order(order)?;
        match self.answer()? {
            answer if answer == expected => Ok(()),
            answer => Err(Failure::Failed(format!("the simulator answers {order:?} with {answer:?}"))),
        }
    }

    fn order(&mut self, order: &str) -> Result<(), Failure> {
        let orders = self.orders.as_mut().expect("until the end");
        writeln!(orders, "{order}").map_err(|error| Failure::Failed(format!("the simulator: {error}")))
    }

    fn answer(&mut self) -> Result<String, Failure> {
        let mut line = String::new();
        self.answers.read_line(&mut line)?;
        match line.trim_end() {
            "" => Err(Failure::Failed("the simulator has ended; its message is above".into())),
            line => Ok(line.to_owned()),
        }
    }
}

impl Drop for Simulator {
    fn drop(&mut self) {
        // The simulator ends with its standard input.
        self.orders = None;
        let _ = self.child.wait();
    }
}
