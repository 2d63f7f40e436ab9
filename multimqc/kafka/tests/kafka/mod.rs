//! A real Apache Kafka on loopback: one process that is broker and controller, with its data in a folder that goes with it.

#![allow(dead_code, reason = "each test uses a part")]

use std::fs::File;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tempfile::TempDir;
use testkit::{Process, has, own_port, skip, within};

/// How long a start, a stop or a download may take.
pub const PATIENCE: Duration = Duration::from_secs(240);

/// A Kafka server, which ends when it is dropped.
pub struct Kafka {
    // Before the folder, which goes after it.
    process: Option<Process>,
    folder: TempDir,
    jars: PathBuf,
    port: u16,
}

/// Runs a program to its end. True if it succeeded.
fn succeeds(command: &mut Command, what: &str) -> bool {
    let mut child = command.spawn().unwrap_or_else(|error| panic!("{what}: {error}"));
    let mut status = None;
    within(PATIENCE, what, || {
        status = child.try_wait().expect("a child can be waited for");
        status.is_some()
    });
    status.is_some_and(|status| status.success())
}

/// The folder with Kafka's jars, which Maven fetches once. `None`, with the reason printed, where there is no Java or no Maven.
fn jars() -> Option<PathBuf> {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _one = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("kafka-4.1.0");
    // Of default-jre-headless, and of maven.
    if !has("java", "Kafka") || !folder.join("complete").exists() && !has("mvn", "Kafka") {
        return None;
    }
    if !folder.join("complete").exists() {
        // Tests of other crates use this file too.
        let pom = Path::new(env!("CARGO_MANIFEST_DIR")).join("../multimqc-kafka/tests/pom.xml");
        let mut maven = Command::new("mvn");
        maven.args(["-B", "-q", "-f"]).arg(pom).arg("dependency:copy-dependencies");
        maven.arg(format!("-DoutputDirectory={}", folder.display())).stdin(Stdio::null());
        if !succeeds(&mut maven, "the download of Kafka") {
            skip("Kafka (Maven cannot fetch its jars here)");
            return None;
        }
        File::create(folder.join("complete")).expect("a mark that it is complete");
    }
    Some(folder)
}

impl Kafka {
    /// Starts a new one. `None` where it cannot be had.
    pub fn start() -> Option<Kafka> {
        let mut kafka = Kafka {
            folder: tempfile::tempdir().expect("a folder"),
            jars: jars()?,
            port: own_port(),
            process: None,
        };
        kafka.configure();
        let mut format = kafka.java("kafka.tools.StorageTool");
        format
            .args(["format", "-t", "MkU3OEVBNTcwNTJENDM2Qk", "-c"])
            .arg(kafka.folder.path().join("properties"));
        assert!(succeeds(&mut format, "the format of Kafka's folder"), "Kafka makes its folder");
        kafka.run();
        Some(kafka)
    }

    fn configure(&self) {
        let (port, controller, folder) = (self.port, own_port(), self.folder.path().display());
        let properties = format!(
            "process.roles=broker,controller\nnode.id=1\ncontroller.quorum.voters=1@127.0.0.1:{controller}\n\
             listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}\n\
             advertised.listeners=PLAINTEXT://127.0.0.1:{port}\ncontroller.listener.names=CONTROLLER\n\
             listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT\nlog.dirs={folder}/data\n\
             offsets.topic.replication.factor=1\nauto.create.topics.enable=false\n\
             log.retention.check.interval.ms=500\nlog.segment.delete.delay.ms=100\n\
             log.initial.task.delay.ms=500\ngroup.coordinator.rebalance.protocols=classic\n"
        );
        std::fs::write(self.folder.path().join("properties"), properties).expect("properties");
    }

    fn java(&self, class: &str) -> Command {
        let log = File::create(self.folder.path().join("output")).expect("a file for output");
        let mut java = Command::new("java");
        java.args(["-Xmx256m", "-XX:TieredStopAtLevel=1", "-cp"]).arg(self.jars.join("*")).arg(class);
        java.stdin(Stdio::null()).stdout(log.try_clone().expect("a second handle")).stderr(log);
        java
    }

    /// Starts the process again, on the same data and the same port.
    pub fn run(&mut self) {
        let mut java = self.java("kafka.Kafka");
        java.arg(self.folder.path().join("properties"));
        let mut process = Process::start(java);
        within(PATIENCE, "the start of Kafka", || {
            if !process.is_running() {
                let output = std::fs::read_to_string(self.folder.path().join("output")).unwrap_or_default();
                panic!("Kafka ended: {output}");
            }
            TcpStream::connect(("127.0.0.1", self.port)).is_ok()
        });
        self.process = Some(process);
    }

    /// Its address.
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    fn signal(&self, signal: &str) {
        self.process.as_ref().expect("it runs").signal(signal);
    }

    /// Stops the process where it is; it keeps its connections and answers nothing.
    pub fn pause(&self) {
        self.signal("STOP");
    }

    /// Lets a paused process go on.
    pub fn go_on(&self) {
        self.signal("CONT");
    }

    /// Kills the process. Its data stays.
    pub fn kill(&mut self) {
        drop(self.process.take().expect("it runs"));
    }
}
