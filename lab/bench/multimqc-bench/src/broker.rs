//! A Kafka broker: one process that is broker and controller, with its data in memory, like the other systems' logs.

use std::fs::{self, File};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use benchkit::folder::Folder;
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
    let served = watch(&mut child, port, folder, stop);
    child.kill()?;
    child.wait()?;
    served
}

/// Until the process is told to end.
fn watch(child: &mut Child, port: u16, folder: &Path, stop: &Stop) -> Result<(), Failure> {
    let deadline = Instant::now() + PATIENCE;
    let mut serves = false;
    while !stop.asked() {
        if let Some(status) = child.try_wait()? {
            return Err(Failure::Failed(format!("Kafka ended with {status}: {}", output(folder))));
        }
        if !serves && TcpStream::connect(("127.0.0.1", port)).is_ok() {
            serves = true;
            println!("listening 127.0.0.1:{port}");
        }
        if !serves && Instant::now() >= deadline {
            return Err(Failure::failed("Kafka did not start"));
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(())
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
