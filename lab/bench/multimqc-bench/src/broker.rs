//! A Kafka broker: one process that is broker and controller, with its data in memory, like the other systems' logs.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use benchkit::folder::Folder;
use benchkit::server::wait_listening;
use commands::{Failure, Stop};
use testkit::own_port;

const PATIENCE: Duration = Duration::from_secs(120);

#[derive(Debug, clap::Args)]
pub struct Args {
    /// The folder with Kafka's jars
    #[arg(long)]
    jars: PathBuf,
}

pub fn run(args: &Args) -> Result<(), Failure> {
    let stop = Stop::install()?;
    let folder = Folder::in_memory("multimqc-kafka")?;
    serve(&args.jars, folder.path(), &stop)
}

fn serve(jars: &Path, folder: &Path, stop: &Stop) -> Result<(), Failure> {
    let (port, controller) = (own_port(), own_port());
    let data = folder.display();
    let properties = format!(
        "process.roles=broker,controller\nnode.id=1\ncontroller.quorum.voters=1@127.0.0.1:{controller}\n\
         listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}\n\
         advertised.listeners=PLAINTEXT://127.0.0.1:{port}\ncontroller.listener.names=CONTROLLER\n\
         listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT\nlog.dirs={data}/data\n\
         offsets.topic.replication.factor=1\nauto.create.topics.enable=true\nlog.retention.bytes=268435456\n\
         log.segment.bytes=67108864\nlog.retention.check.interval.ms=1000\nlog.segment.delete.delay.ms=100\n\
         log.initial.task.delay.ms=500\n"
    );
    let file = folder.join("properties");
    fs::write(&file, properties)?;
    let mut format = java(jars, folder, "kafka.tools.StorageTool")?;
    let status = format.args(["format", "-t", "MkU3OEVBNTcwNTJENDM2Qk", "-c"]).arg(&file).status()?;
    if !status.success() {
        return Err(Failure::Failed(format!("Kafka could not make its folder: {}", output(folder))));
    }
    let mut child = java(jars, folder, "kafka.Kafka")?.arg(&file).spawn()?;
    let address = format!("127.0.0.1:{port}");
    let served = wait_listening(&address, PATIENCE, || stop.asked() || !matches!(child.try_wait(), Ok(None)));
    if served.is_ok() {
        println!("listening {address}");
    }
    while served.is_ok() && !stop.asked() && child.try_wait()?.is_none() {
        std::thread::sleep(Duration::from_millis(50));
    }
    child.kill()?;
    child.wait()?;
    if stop.asked() { Ok(()) } else { Err(Failure::Failed(format!("Kafka ended: {}", output(folder)))) }
}

fn java(jars: &Path, folder: &Path, class: &str) -> Result<Command, Failure> {
    let log = File::options().create(true).append(true).open(folder.join("output"))?;
    let mut java = Command::new("java");
    java.args(["-Xms1g", "-Xmx1g", "-cp"]).arg(jars.join("*")).arg(class);
    java.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
    Ok(java)
}

fn output(folder: &Path) -> String {
    fs::read_to_string(folder.join("output")).unwrap_or_default()
}
