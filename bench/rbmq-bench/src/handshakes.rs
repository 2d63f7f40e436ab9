//! `rbmq-bench handshakes`: TLS handshakes per second and core of a server.
//!
//! RBMQ's broker and a bare loop with rustls accept, in turn, connections of one client, which leaves after each handshake. The
//! loop does the least that is possible: it accepts, does the handshake with blocking calls, and waits for the end. Both have the
//! same certificate, and no client resumes a session.

use std::{
    fmt::Write,
    io::{ErrorKind, Read},
    net::TcpListener,
    path::PathBuf,
};

use benchkit::{control::Control, output, stats, turns::in_turn};
use clap::Args;
use rustls::{ServerConnection, StreamOwned};
use serde::Serialize;

use crate::{
    campaign::Common,
    error::BenchError,
    measure::{Middle, words},
    rbmq_peers::failed,
    systems::System,
    tls::Certificates,
    tls_peers::{Dialler, server_config},
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
    let mut progress = output::Progress::new(systems.len() * args.common.reps as usize);
    let mut rows = Vec::new();
    for rep in 0..args.common.reps {
        for &system in in_turn(&systems, rep) {
            let row = measure(system, &certificates, &dialler, args.handshakes, rep)?;
            progress.one(&format!(
                "{:<6} #{rep}  {:.0} us of the server's core",
                system.name(),
                row.server_cpu_us
            ));
            rows.push(row);
        }
    }
    args.common.output.write_rows(NAME, &rows)?;
    let versions = rows.iter().map(|row| (row.system, row.system_version.as_str()));
    let text = format!("{}\n{}", args.common.head(&method, versions), table(&rows));
    Ok(args.common.output.publish(NAME, &text, &[])?)
}

fn measure(
    system: System,
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
        dialler.shake_hands(&addr)?;
    }
    let cpu_s = server.cpu_s() - before;
    server.kill_and_wait();
    let server_cpu_us = cpu_s * 1e6 / f64::from(handshakes);
    Ok(Row {
        system,
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

/// A line for each system.
fn table(rows: &[Row]) -> String {
    let mut out = String::from(
        "| system | handshakes per core and second | 95 % | us of a core | × relay |\n|---|---:|---:|---:|---:|\n",
    );
    let of = |system: System| -> Vec<(u32, f64)> {
        rows.iter().filter(|row| row.system == system).map(|row| (row.rep, row.per_core_s)).collect()
    };
    for row in rows.iter().filter(|row| row.rep == 0) {
        let own = of(row.system);
        let all: Vec<f64> = own.iter().map(|&(_, rate)| rate).collect();
        let Some(estimate) = stats::estimate(&all) else { continue };
        let times = match stats::times(&own, &of(System::Relay)) {
            Some(times) if row.system != System::Relay => format!("{times:.2}"),
            _ => String::new(),
        };
        // Writing to a String cannot fail.
        let _ = writeln!(
            out,
            "| {} | {} | {} | {:.0} | {times} |",
            row.system.name(),
            output::human(estimate.median),
            output::span(estimate.interval, output::human),
            1e6 / estimate.median,
        );
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_compares_with_the_loop() {
        let row = |system, rep, per_core_s| Row {
            system,
            system_version: "1".into(),
            rep,
            handshakes: 10,
            per_core_s,
            server_cpu_us: 1e6 / per_core_s,
        };
        let rows: Vec<Row> = (0..2)
            .flat_map(|rep| [row(System::Rbmq, rep, 2000.0), row(System::Relay, rep, 2500.0)])
            .collect();
        let text = table(&rows);
        let line = text.lines().find(|line| line.contains("| rbmq |")).unwrap();
        assert!(line.ends_with("| 500 | 0.80 |"), "{line}");
        assert_eq!(text.lines().count(), 4);
    }
}
