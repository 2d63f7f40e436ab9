//! `rbmq-bench tls`: messages per second with TLS 1.3 on every connection.
//!
//! RBMQ's broker, a bare relay with rustls and Redis stand between one publisher and some subscribers, in turn. The relay does the
//! least that is possible in their place: it reads, decrypts, encrypts for each subscriber and writes. All connections have a
//! certificate of the same authority, and the same cipher.

use std::{fs, path::Path};

use benchkit::{
    credit,
    fleet::{Process, words},
    folder::{Folder, unused},
    named::Named,
    sys,
    view::Columns,
};
use clap::Args;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use serde::Serialize;

use crate::{
    campaign::Common,
    error::BenchError,
    measure::{Fleet, Measured, Method, Middle},
    rbmq_peers::failed,
    report::Figures,
    systems::System,
};

/// The options of `rbmq-bench tls`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  rbmq-bench tls --sizes 256 --subscribers 1 --seconds 1 --reps 1
  rbmq-bench tls --against relay,redis --out results")]
pub struct TlsArgs {
    #[command(flatten)]
    common: Common,
    /// Payload bytes of a message, 1 to 65536
    #[arg(long, value_delimiter = ',', default_value = "256,4096,65536")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=65536))]
    sizes: Vec<u32>,
    /// Subscribers, each with all messages
    #[arg(long, value_delimiter = ',', default_value = "1,4")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=64))]
    subscribers: Vec<u32>,
}

/// A measurement: a flat object in the JSON.
#[derive(Debug, Clone, Serialize)]
struct Row {
    system: System,
    system_version: String,
    size_bytes: u32,
    subscribers: u32,
    rep: u32,
    goodput_bytes_per_s: f64,
    lost: u64,
    #[serde(flatten)]
    figures: Figures,
}

/// Runs the bench.
///
/// # Errors
/// Why there is no result.
pub fn run(args: &TlsArgs) -> Result<(), BenchError> {
    const NAME: &str = "tls";
    let method = args.common.method()?;
    let systems: Vec<System> = args.common.systems().into_iter().filter(|system| has_tls(*system)).collect();
    if systems.is_empty() {
        return Err(BenchError::NothingToMeasure);
    }
    let certificates = Certificates::new()?;
    let mut loads = Vec::new();
    for &subscribers in &args.subscribers {
        let point = |size, &system| Point { system, size, subscribers };
        let load = |&size| systems.iter().map(|system| point(size, system)).collect::<Vec<_>>();
        loads.extend(args.sizes.iter().map(load));
    }
    let rows = args.common.series(NAME).run(&loads, |point, rep| {
        let Point { system, size, subscribers } = *point;
        let row = point.measure(&method, &certificates, rep)?;
        Ok::<_, BenchError>((
            vec![row],
            format!("{size:>6} B  {subscribers} subscribers  {:<6} #{rep}", system.name()),
        ))
    })?;
    let versions = rows.iter().map(|row| (row.system, row.system_version.as_str()));
    let text = format!("{}\n{}", args.common.head(&method, versions), COLUMNS.table(&rows)?);
    Ok(args.common.output.publish(NAME, &text)?)
}

/// The systems that this bench can start with TLS.
fn has_tls(system: System) -> bool {
    matches!(system, System::Rbmq | System::Relay | System::Redis)
}

/// A measured point.
#[derive(Clone, Copy)]
struct Point {
    system: System,
    size: u32,
    subscribers: u32,
}

impl Point {
    fn measure(self, method: &Method, certificates: &Certificates, rep: u32) -> Result<Row, BenchError> {
        let folder = Folder::make(unused("rbmq-bench"))?;
        credit::create(folder.path(), 1)?;
        let own = unused("rbmq-bench");
        let mut broker = certificates.start("broker or relay", &self.server(certificates, &own))?;
        let (addr, version) = Middle::await_ready(&mut broker)?;
        let subscribers = (0..self.subscribers)
            .map(|number| self.client(certificates, "subscriber", number, &addr, folder.path()))
            .collect::<Result<Vec<_>, _>>()?;
        for subscriber in &subscribers {
            subscriber.answer("ready")?;
        }
        let publisher = self.client(certificates, "publisher", 0, &addr, folder.path())?;
        publisher.answer("ready")?;
        let fleet = Fleet { publishers: vec![publisher], subscribers, broker };
        let Measured { figures, lost, .. } = fleet.measure(method)?;
        Ok(Row {
            system: self.system,
            system_version: version,
            size_bytes: self.size,
            subscribers: self.subscribers,
            rep,
            goodput_bytes_per_s: figures.delivered_per_s * f64::from(self.size),
            lost,
            figures,
        })
    }

    /// The arguments of the process in the middle.
    fn server(self, certificates: &Certificates, folder: &Path) -> Vec<String> {
        let (own, folder) = (certificates.folder().to_string_lossy(), folder.to_string_lossy());
        match self.system {
            System::Relay => {
                words(&["tls-relay", "--certificates", &own, "--subscribers", &self.subscribers.to_string()])
            }
            System::Redis => {
                words(&["server", "--system", "redis", "--certificates", &own, "--folder", &folder])
            }
            _ => words(&["broker"]),
        }
    }

    fn client(
        self,
        certificates: &Certificates,
        role: &'static str,
        number: u32,
        addr: &str,
        folder: &Path,
    ) -> Result<Process, BenchError> {
        let (size, subscribers, number) =
            (self.size.to_string(), self.subscribers.to_string(), number.to_string());
        let folder = folder.to_string_lossy();
        let load = ["--addr", addr, "--size", &size, "--subscribers", &subscribers, "--folder", &folder];
        let mut args = match (self.system, role) {
            (System::Rbmq, "publisher") => words(&["publisher", "--topic", "0"]),
            (System::Rbmq, _) => words(&["subscriber", "--topics", "1", "--number", &number]),
            _ => {
                let own = certificates.folder().to_string_lossy();
                words(&["tls-client", "--role", role, "--number", &number, "--certificates", &own])
            }
        };
        args.extend(words(&["--system", &self.system.name()]));
        if self.system == System::Rbmq {
            args.extend(words(&["--api", "batch", "--confirm", "none"]));
        }
        args.extend(words(&load));
        certificates.start(role, &args)
    }
}

/// The certificates of all processes: `ca.pem`, `server.pem`, `server-key.pem`.
pub struct Certificates(Folder);

impl Certificates {
    /// New ones.
    ///
    /// # Errors
    /// The folder cannot be written.
    pub fn new() -> Result<Self, BenchError> {
        let folder = Folder::make(unused("rbmq-bench"))?;
        let mut ca = CertificateParams::new(Vec::new()).map_err(failed)?;
        ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let ca_key = KeyPair::generate().map_err(failed)?;
        let ca_cert = ca.self_signed(&ca_key).map_err(failed)?;
        let key = KeyPair::generate().map_err(failed)?;
        let server = CertificateParams::new(vec!["127.0.0.1".to_owned()]).map_err(failed)?;
        let cert = server.signed_by(&key, &Issuer::new(ca, ca_key)).map_err(failed)?;
        for (name, text) in
            [("ca.pem", ca_cert.pem()), ("server.pem", cert.pem()), ("server-key.pem", key.serialize_pem())]
        {
            fs::write(folder.path().join(name), text)?;
        }
        Ok(Self(folder))
    }

    /// The folder with the files.
    pub fn folder(&self) -> &Path {
        self.0.path()
    }

    /// Starts a worker. Workers of RBMQ get TLS by their configuration, as all programs do.
    ///
    /// # Errors
    /// The process does not start.
    pub fn start(&self, role: &'static str, args: &[String]) -> Result<Process, BenchError> {
        let mut command = sys::worker()?;
        command.args(args);
        let file = |name: &str| self.folder().join(name);
        command.env("ROCKETBUFS_TLS_MODE", "require").env("ROCKETBUFS_TLS_CA", file("ca.pem"));
        command
            .env("ROCKETBUFS_TLS_CERT", file("server.pem"))
            .env("ROCKETBUFS_TLS_KEY", file("server-key.pem"));
        Ok(Process::spawn(role, command)?)
    }
}

const COLUMNS: Columns<'static> = Columns {
    who: &["system"],
    load: &["size_bytes", "subscribers"],
    figures: &["delivered_per_s", "goodput_bytes_per_s", "lost"],
    ours: "rbmq",
};
