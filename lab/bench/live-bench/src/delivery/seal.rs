//! The cost of sealing: pieces are encrypted, one after the other, into a buffer that nobody reads.

use std::io::Write;
use std::sync::Arc;
use std::time::Instant;

use commands::Failure;
use rustls::{ClientConnection, ServerConnection};

use super::node::Certificate;
use super::records::{OVERHEAD, PLAIN, Sealer};

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Which way: `rustls`, or `in-place`
    #[arg(long, default_values_t = ["rustls".to_owned(), "in-place".to_owned()], value_delimiter = ',')]
    ways: Vec<String>,
    /// Bytes that are encrypted at once
    #[arg(long, default_value_t = 128 << 10)]
    piece: usize,
    /// The ring from which they come
    #[arg(long, default_value_t = 4 << 20)]
    ring: usize,
    /// MiB to encrypt in each turn
    #[arg(long, default_value_t = 2048)]
    mib: usize,
    /// Turns of each way
    #[arg(long, default_value_t = 5)]
    turns: usize,
}

pub fn run(args: &Args) -> Result<(), Failure> {
    let ring: Vec<u8> = (0..args.ring).map(|at| at as u8).collect();
    let pieces: Vec<&[u8]> = ring.chunks_exact(args.piece).collect();
    let count = (args.mib << 20) / args.piece;
    let mut all: Vec<(String, Vec<f64>)> = args.ways.iter().map(|way| (way.clone(), Vec::new())).collect();
    for _ in 0..args.turns {
        for (way, times) in &mut all {
            let began = Instant::now();
            match way.as_str() {
                "rustls" => by_rustls(&pieces, count)?,
                "in-place" => in_place(&pieces, count)?,
                other => return Err(Failure::Failed(format!("there is no way '{other}'"))),
            }
            times.push(began.elapsed().as_secs_f64());
        }
    }
    for (way, times) in &mut all {
        times.sort_by(f64::total_cmp);
        let gbit = (count * args.piece) as f64 * 8.0 / 1e9;
        println!(
            "{way}: {:.4} s of a processor per Gbit (median of {})",
            times[times.len() / 2] / gbit,
            args.turns
        );
    }
    Ok(())
}

/// A connection after its handshake.
fn connected() -> Result<ServerConnection, Failure> {
    let certificate = Certificate::new()?;
    let name = rustls::pki_types::ServerName::try_from("localhost")?;
    let mut client = ClientConnection::new(Arc::new(certificate.client()?), name)?;
    let mut server = ServerConnection::new(Arc::new(certificate.server()?))?;
    while client.is_handshaking() || server.is_handshaking() || client.wants_write() || server.wants_write() {
        let mut bytes = Vec::new();
        client.write_tls(&mut bytes)?;
        server.read_tls(&mut bytes.as_slice())?;
        server.process_new_packets()?;
        bytes.clear();
        server.write_tls(&mut bytes)?;
        client.read_tls(&mut bytes.as_slice())?;
        client.process_new_packets()?;
    }
    Ok(server)
}

fn by_rustls(pieces: &[&[u8]], count: usize) -> Result<(), Failure> {
    let mut server = connected()?;
    server.set_buffer_limit(Some(256 << 10));
    for piece in pieces.iter().cycle().take(count) {
        server.writer().write_all(piece)?;
        while server.wants_write() {
            server.write_tls(&mut std::io::sink())?;
        }
    }
    Ok(())
}

fn in_place(pieces: &[&[u8]], count: usize) -> Result<(), Failure> {
    let (sequence, secrets) = connected()?.dangerous_extract_secrets()?.tx;
    let mut sealer = Sealer::new(sequence, secrets)?;
    let mut to = vec![0; pieces[0].len() + pieces[0].len().div_ceil(PLAIN) * OVERHEAD];
    for piece in pieces.iter().cycle().take(count) {
        sealer.seal(piece, &mut to)?;
    }
    Ok(())
}
