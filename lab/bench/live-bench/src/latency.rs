//! From the last byte of a chunk into an ingest node to its first byte at a viewer, which waits for it at a delivery node.

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use rblive_load::stamp::Stamper;

use crate::client::{Answer, Http};
use crate::failure::Result;
use crate::media::Stream;

#[derive(Debug, clap::Args)]
pub struct Args {
    /// The ingest node's address for HTTP
    #[arg(long)]
    ingest: String,
    /// The delivery node's address for viewers
    #[arg(long)]
    viewers: String,
    #[arg(long, default_value_t = 200)]
    samples: u64,
    /// Mbit per second of the stream, whose chunks have two seconds
    #[arg(long, default_value_t = 2.0)]
    mbit: f64,
    /// Milliseconds between two chunks
    #[arg(long, default_value_t = 50)]
    every_ms: u64,
}

/// Prints the sorted times in microseconds as a JSON list.
pub fn run(args: &Args) -> Result<()> {
    let stamper = Stamper::new();
    let mut stream = Stream::new(1, args.mbit, 2)?;
    let mut encoder = Http::connect(&args.ingest, false)?;
    let mut send = |stream: &mut Stream, first: bool| -> Result<_> {
        let part = stream.part(&stamper)?;
        if first {
            encoder.post("/live/latency", &part.init)?;
            encoder.answer()?;
        }
        let sent = encoder.post("/live/latency", &part.to_vec())?;
        let status = encoder.answer()?.status;
        if status == 201 { Ok(sent) } else { Err(format!("the ingest node answers with {status}").into()) }
    };
    send(&mut stream, true)?;
    // The delivery node must know the stream before somebody can wait for its next segment.
    thread::sleep(Duration::from_millis(500));
    let (asked, asks) = mpsc::sync_channel(1);
    let (arrived, arrivals) = mpsc::sync_channel(1);
    let mut viewer = Http::connect(&args.viewers, true)?;
    let newest = newest_segment(&mut viewer)?;
    let samples = args.samples;
    let viewer = thread::spawn(move || -> Result<()> {
        for number in newest + 1..=newest + samples {
            viewer.get(&format!("/live/latency/1/{number}.0.m4s"))?;
            asked.send(())?;
            let Answer { status, first, .. } = viewer.answer()?;
            if status != 200 {
                return Err(format!("the delivery node answers with {status}").into());
            }
            arrived.send(first)?;
        }
        Ok(())
    });
    let mut times = Vec::new();
    for _ in 0..samples {
        if asks.recv().is_err() {
            break;
        }
        thread::sleep(Duration::from_millis(args.every_ms));
        let sent = send(&mut stream, false)?;
        let Ok(first) = arrivals.recv() else { break };
        times.push(first.saturating_duration_since(sent).as_micros() as u64);
    }
    viewer.join().map_err(|_| "the viewer failed")??;
    times.sort_unstable();
    println!("{}", serde_json::to_string(&times)?);
    Ok(())
}

/// The number of the newest segment that the playlist lists. Numbers need not begin with 0.
fn newest_segment(viewer: &mut Http) -> Result<u64> {
    viewer.get("/live/latency/1/media.m3u8")?;
    let answer = viewer.answer()?;
    let text = String::from_utf8(answer.body)?;
    let last = text.lines().rfind(|line| line.ends_with(".m4s") && !line.starts_with('#'));
    let name = last.and_then(|line| line.rsplit('/').next()).unwrap_or("");
    let number = name.split('.').next().unwrap_or("").parse();
    number.map_err(|_| format!("the playlist has no segment ({})", answer.status).into())
}
