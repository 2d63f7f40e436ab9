//! A broker as an operator sees it: its log is read while it runs, and it is sent signals.

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use testkit::{Process, until};

use super::rbmq;

/// A running broker, with everything that it has logged.
pub struct Operated {
    process: Process,
    pub addr: String,
    /// The broker's standard output after the address.
    pub said: Arc<Mutex<String>>,
    log: Arc<Mutex<String>>,
    readers: Vec<JoinHandle<()>>,
}

impl Operated {
    /// With a configuration file, on a free port.
    pub fn start(config: &Path, args: &[&str]) -> Self {
        let config = ["--config", config.to_str().expect("UTF-8")];
        Self::start_with(&config.iter().chain(args).copied().collect::<Vec<_>>())
    }

    /// With a configuration file and these variables.
    pub fn start_in(config: &Path, variables: &[(&str, &str)]) -> Self {
        Self::start_as(&["--config", config.to_str().expect("UTF-8")], variables)
    }

    pub fn start_with(args: &[&str]) -> Self {
        Self::start_as(args, &[])
    }

    pub fn start_as(args: &[&str], variables: &[(&str, &str)]) -> Self {
        Self::start_at("127.0.0.1:0", args, variables)
    }

    pub fn start_at(addr: &str, args: &[&str], variables: &[(&str, &str)]) -> Self {
        let args = ["serve", "--listen", addr].into_iter().chain(args.iter().copied());
        let mut command = rbmq(args);
        command.envs(variables.iter().copied());
        Self::begin(command, "rbmq: listening on ")
    }

    /// Gateways beside a broker, with these arguments; the address is that of the broker.
    pub fn gateway(args: &[&str]) -> Self {
        Self::begin(
            rbmq(["gateway"].into_iter().chain(args.iter().copied())),
            "rbmq: connected to the broker at ",
        )
    }

    /// A command whose first line begins so, with an address.
    fn begin(command: Command, begin: &str) -> Self {
        let mut process = Process::start(command);
        let (said, log) = (Arc::default(), Arc::default());
        let mut stdout = process.stdout();
        let stderr = process.stderr();
        let mut line = String::new();
        stdout.read_line(&mut line).expect("it prints an address");
        let readers = vec![keep(stdout, &said), keep(stderr, &log)];
        let Some(addr) = line.trim().strip_prefix(begin) else {
            drop(process);
            readers.into_iter().for_each(|reader| reader.join().expect("a reader"));
            panic!("{line}{}", log.lock().expect("a log"));
        };
        Self { process, addr: addr.to_owned(), said, log, readers }
    }

    pub fn pid(&self) -> u32 {
        self.process.id()
    }

    pub fn signal(&self, name: &str) {
        self.process.signal(name);
    }

    pub fn log(&self) -> String {
        self.log.lock().expect("a log").clone()
    }

    /// Waits until the log has this.
    pub fn wait_log(&self, text: &str) {
        until(&format!("{text:?} in the log"), || self.log().contains(text));
    }

    /// Waits for a line on standard output that begins so; what follows in it.
    pub fn wait_said(&self, begin: &str) -> String {
        let mut rest = None;
        until(&format!("a line that begins with {begin:?}"), || {
            let said = self.said.lock().expect("its lines");
            rest = said.lines().find_map(|line| line.strip_prefix(begin)).map(str::to_owned);
            rest.is_some()
        });
        rest.expect("the reader has ended")
    }

    /// Kills the process, and waits until it is gone.
    pub fn kill(mut self) {
        self.signal("KILL");
        self.process.finish();
        self.readers.drain(..).for_each(|reader| reader.join().expect("a reader"));
    }

    /// Ends the broker with SIGTERM. Returns its log.
    pub fn end(mut self) -> String {
        self.signal("TERM");
        self.process.finish().good();
        self.readers.drain(..).for_each(|reader| reader.join().expect("a reader"));
        let log = self.log.lock().expect("a log");
        log.clone()
    }
}

fn keep(stream: BufReader<impl Read + Send + 'static>, to: &Arc<Mutex<String>>) -> JoinHandle<()> {
    let to = to.clone();
    std::thread::spawn(move || {
        for line in stream.lines() {
            let line = line.expect("text");
            to.lock().expect("a log").push_str(&format!("{line}\n"));
        }
    })
}
