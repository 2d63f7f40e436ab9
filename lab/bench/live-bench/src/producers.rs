//! Producers with TLS that send chunk after chunk as fast as they are taken: to an ingest node, or to Redis behind stunnel.

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use benchkit::lines::{Lines, command};
use rblive_load::stamp::Stamper;

use crate::client::{Http, connect};
use crate::failure::Result;
use crate::media::{Chunks, Stream};

#[derive(Debug, clap::Args)]
pub struct Args {
    /// The ingest node's address for HTTPS
    #[arg(long)]
    ingest: Option<String>,
    /// stunnel's address, with Redis behind it
    #[arg(long)]
    redis: Option<String>,
    #[arg(long, default_value_t = 8)]
    producers: u32,
    #[arg(long, default_value_t = 2.0)]
    mbit: f64,
    #[arg(long, default_value_t = 5.0)]
    seconds: f64,
    /// Mbit per second of all producers together; 0: as fast as they can
    #[arg(long, default_value_t = 0.0)]
    rate: f64,
}

/// Prints the bytes per second.
pub fn run(args: &Args) -> Result<()> {
    let (bytes, over) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
    let mut threads = Vec::new();
    for number in 1..=args.producers {
        let (bytes, over) = (bytes.clone(), over.clone());
        let (ingest, redis, mbit) = (args.ingest.clone(), args.redis.clone(), args.mbit);
        let pause_s =
            if args.rate > 0.0 { 1.0 / (args.rate * 1e6 / 8.0 / f64::from(args.producers)) } else { 0.0 };
        threads.push(thread::spawn(move || -> Result<()> {
            let mut sent = |size: usize| {
                bytes.fetch_add(size as u64, Ordering::Relaxed);
                thread::sleep(Duration::from_secs_f64(pause_s * size as f64));
                !over.load(Ordering::Relaxed)
            };
            match (ingest, redis) {
                (Some(address), _) => to_ingest(&address, number, mbit, &mut sent),
                (_, Some(address)) => to_redis(&address, number, mbit, &mut sent),
                _ => Err("--ingest or --redis is needed".into()),
            }
        }));
    }
    // Connections and first buffers are not measured.
    thread::sleep(Duration::from_secs(2));
    println!("begin");
    let before = bytes.load(Ordering::Relaxed);
    thread::sleep(Duration::from_secs_f64(args.seconds));
    let rate = (bytes.load(Ordering::Relaxed) - before) as f64 / args.seconds;
    println!("{rate}");
    over.store(true, Ordering::Relaxed);
    for thread in threads {
        thread.join().map_err(|_| "a producer failed")??;
    }
    Ok(())
}

fn to_ingest(address: &str, number: u32, mbit: f64, sent: &mut impl FnMut(usize) -> bool) -> Result<()> {
    let mut stream = Stream::new(number, mbit, 2)?;
    let part = stream.part(&Stamper::new())?;
    let mut http = Http::connect(address, true)?;
    let path = format!("/live/p{number}");
    http.post(&path, &part.init)?;
    http.answer()?;
    let stamper = Stamper::new();
    loop {
        // Each chunk is another file: the same one again would be a repetition, which is not taken.
        let bytes = stream.part(&stamper)?.to_vec();
        http.post(&path, &bytes)?;
        let status = http.answer()?.status;
        if status != 201 {
            return Err(format!("the ingest node answers with {status}").into());
        }
        if !sent(bytes.len()) {
            return Ok(());
        }
    }
}

fn to_redis(address: &str, number: u32, mbit: f64, sent: &mut impl FnMut(usize) -> bool) -> Result<()> {
    let mut stream = Stream::new(number, mbit, 2)?;
    let stamper = Stamper::new();
    let mut redis = Lines::new(1 << 10, connect(address, true)?);
    let channel = format!("s{number}");
    loop {
        let Chunks([.., media]) = stream.chunks(&stamper)?;
        let mut bytes = Vec::with_capacity(media.len() + 64);
        command(&[b"PUBLISH", channel.as_bytes(), &media], &mut bytes);
        redis.get_mut().write_all(&bytes)?;
        redis.get_mut().flush()?;
        redis.number(':')?;
        if !sent(media.len()) {
            return Ok(());
        }
    }
}
