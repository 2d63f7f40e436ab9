//! `rbmq-bench handshakes`: TLS handshakes per second and core of a server, full ones and resumed ones.
//!
//! RBMQ's broker and a bare loop with rustls accept, in turn, connections of one client, which leaves after each handshake. The
//! loop does the least that is possible: it accepts, does the handshake with blocking calls, and waits for the end. Both have the
//! same certificate. A client that resumes presents a ticket of its last handshake, and the server makes no signature.

use std::{
    io::{ErrorKind, Read},
    net::TcpListener,
    path::PathBuf,
};

use benchkit::{control::Control, fleet::words, named::Named, view::Columns};
use clap::Args;
use rustls::{ServerConnection, StreamOwned};
use serde::Serialize;

use crate::{
    campaign::Common,
    error::BenchError,
    measure::Middle,
    rbmq_peers::failed,
    systems::System,
    tls::Certificates,
    tls_peers::{Dialler, Shake, server_config},
};

/// Handshakes before the first that counts.
const WARM: u32 = 50;

/// The options of `rbmq-bench handshakes`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  rbmq-bench handshakes --against relay
  rbmq-bench handshakes --handshakes 5000 --reps 10 --against relay --out results")]
pub struct HandshakesArgs {
    #[command(flatten)]
    common: Common,
    /// Handshakes of a measurement, one after the other
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    handshakes: u32,
}

/// The bare loop.
#[derive(Debug, Args)]
pub struct Accept {
    /// The folder of the certificates
    #[arg(long)]
    certificates: PathBuf,
}

/// A measurement: a flat object in the JSON.
#[derive(Debug, Clone, Serialize)]
struct Row {
    system: System,
    shake: Shake,
    system_version: String,
    rep: u32,
    handshakes: u32,
    per_core_s: f64,
    server_cpu_us: f64,
}

/// Runs the bench.
///
/// # Errors
/// Why there is no result.
pub fn run(args: &HandshakesArgs) -> Result<(), BenchError> {
    const NAME: &str = "handshakes";
    let method = args.common.method()?;
    let wanted = |system: &System| matches!(system, System::Rbmq | System::Relay);
    let systems: Vec<System> = args.common.systems().into_iter().filter(wanted).collect();
    if systems.is_empty() {
        return Err(BenchError::NothingToMeasure);
    }
    let certificates = Certificates::new()?;
    let dialler = Dialler::new(certificates.folder())?;
    let kinds = |&system: &System| [Shake::Full, Shake::Resumed].map(|shake| (system, shake));
    let cases: Vec<_> = systems.iter().flat_map(kinds).collect();
    let rows = args.common.series(NAME).run(&[cases], |&(system, shake), rep| {
        let row = measure(system, shake, &certificates, &dialler.of(shake), args.handshakes, rep)?;
        let us = row.server_cpu_us;
        let summary =
            format!("{:<6} {:<8} #{rep}  {us:.0} us of the server's core", system.name(), shake.name());
        Ok::<_, BenchError>((vec![row], summary))
    })?;
    let versions = rows.iter().map(|row| (row.system, row.system_version.as_str()));
    let text = format!("{}\n{}", args.common.head(&method, versions), COLUMNS.table(&rows)?);
    Ok(args.common.output.publish(NAME, &text)?)
}

fn measure(
    system: System,
    shake: Shake,
    certificates: &Certificates,
    dialler: &Dialler,
    handshakes: u32,
    rep: u32,
) -> Result<Row, BenchError> {
    let own = certificates.folder().to_string_lossy();
    let args = match system {
        System::Relay => words(&["tls-accept", "--certificates", &own]),
        _ => words(&["broker"]),
    };
    let mut server = certificates.start("broker or loop", &args)?;
    let (addr, system_version) = Middle::await_ready(&mut server)?;
    for _ in 0..WARM {
        dialler.shake_hands(&addr)?;
    }
    let before = server.cpu_s();
    for _ in 0..handshakes {
        let was = dialler.shake_hands(&addr)?;
        if was != shake {
            let (wanted, was) = (shake.name(), was.name());
            return Err(BenchError::Handshake { wanted, was });
        }
    }
    let cpu_s = server.cpu_s() - before;
    server.kill_and_wait();
    let server_cpu_us = cpu_s * 1e6 / f64::from(handshakes);
    Ok(Row {
        system,
        shake,
        system_version,
        rep,
        handshakes,
        per_core_s: f64::from(handshakes) / cpu_s,
        server_cpu_us,
    })
}

/// Runs the loop.
///
/// # Errors
/// No address, or no certificate.
pub fn accept(args: &Accept) -> Result<(), BenchError> {
    let control = Control::start();
    let config = server_config(&args.certificates)?;
    let listener = TcpListener::bind("127.0.0.1:0")?;
    control.ready(&listener.local_addr()?.to_string());
    loop {
        let (socket, _) = listener.accept()?;
        socket.set_nodelay(true)?;
        let mut stream = StreamOwned::new(ServerConnection::new(config.clone()).map_err(failed)?, socket);
        match stream.read(&mut [0]) {
            Ok(0) => {}
            Ok(_) => return Err(BenchError::Stranger { role: 0 }),
            // A client that leaves at once may reset the connection.
            Err(error) if matches!(error.kind(), ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

const COLUMNS: Columns<'static> =
    Columns { who: &["system"], load: &["shake"], figures: &["per_core_s", "server_cpu_us"], ours: "rbmq" };
