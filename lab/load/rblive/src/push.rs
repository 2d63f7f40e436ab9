//! `rblive-load push`: live streams without an encoder, over RTMP, whose every byte `rblive-load watch` can check.
//!
//! The parameter sets are real, and the slices carry only stamps and filler, since servers do not decode pictures. So a stream costs
//! only a copy of its bytes, and can have any rate.

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use commands::{Failure, Stop};
use rblive_ingest::rtmp::{Client, ClientState};
use rblive_load::stamp::{MIN_BYTES, Stamp, Stamper};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::task::{JoinHandle, JoinSet};

/// H.264, baseline, 1280x720, 25 frames per second, pictures in decoding order.
const SPS: &[u8] = &[
    0x67, 0x42, 0xC0, 0x1F, 0xDA, 0x01, 0x40, 0x16, 0xE8, 0x40, 0x00, 0x00, 0x03, 0x00, 0x40, 0x00, 0x00,
    0x0C, 0xA1,
];
const PPS: &[u8] = &[0x68, 0xCE, 0x38, 0x80];
/// Headers of a slice of a key frame and of another frame.
const KEY: u8 = 0x65;
const OTHER: u8 = 0x41;
/// The time in which a server must let a stream begin.
const PATIENCE: Duration = Duration::from_secs(10);
/// The time between two checks of the streams.
const TICK: Duration = Duration::from_millis(100);
/// The delay of a frame that is reported: the server, or this machine, is too slow.
const LATE: Duration = Duration::from_secs(1);

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  rblive-load push rtmp://127.0.0.1/live/test
  rblive-load push --streams 100 --mbit 2 rtmp://127.0.0.1/live/s     # s1 to s100
  rblive-load watch --stamped --viewers 100 https://127.0.0.1:8443/live/test/index.m3u8

The frames have no pictures, but stamps and check sums, which rblive-load watch finds and checks through any server that does not change
frames.")]
pub struct Args {
    /// Where to publish: rtmp://HOST[:PORT]/APPLICATION/NAME. With several streams, each name gets its number, from 1 on
    #[arg(value_name = "URL")]
    url: String,
    /// Streams
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    streams: u32,
    /// Mbit per second of a stream
    #[arg(long, value_name = "RATE", default_value_t = 2.0, value_parser = rate)]
    mbit: f64,
    /// Frames per second
    #[arg(long, value_name = "N", default_value_t = 25, value_parser = clap::value_parser!(u32).range(1..=1000))]
    fps: u32,
    /// Seconds between key frames
    #[arg(long, value_name = "S", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=60))]
    key_every: u32,
    /// End after this many seconds instead of Ctrl-C
    #[arg(long, value_name = "S")]
    seconds: Option<u64>,
    /// Print nothing about the progress
    #[arg(long, short)]
    quiet: bool,
}

fn rate(text: &str) -> Result<f64, String> {
    let value = text.parse::<f64>().ok().filter(|value| (0.01..=10_000.0).contains(value));
    value.ok_or_else(|| "a number from 0.01 to 10,000 is needed".to_owned())
}

/// Where streams go.
struct Target {
    address: String,
    app: String,
    name: String,
    url: String,
}

/// Which of the streams it is, and how long after the others its frames come: streams of many encoders do not have them at the same
/// moment.
#[derive(Clone, Copy)]
struct Turn {
    stream: u32,
    offset: Duration,
}

/// The state that all streams share.
struct Source {
    stamper: Stamper,
    fps: u32,
    key_every: u32,
    frame_bytes: usize,
    frames: AtomicU64,
    latest_us: AtomicU64,
}

/// Publishes until the time is over, a signal comes, or a stream fails.
pub fn run(args: &Args) -> Result<(), Failure> {
    let target = target(&args.url)?;
    let stop = Stop::install()?;
    let frame_bytes = (args.mbit * 1e6 / 8.0 / f64::from(args.fps)) as usize;
    if frame_bytes < MIN_BYTES + 9 {
        let least = (MIN_BYTES + 9) as f64 * 8e-6 * f64::from(args.fps);
        return Err(Failure::Failed(format!(
            "a stream of {} frames per second needs --mbit {least:.2} or more",
            args.fps
        )));
    }
    let source = Arc::new(Source {
        stamper: Stamper::new(),
        fps: args.fps,
        key_every: args.fps * args.key_every,
        frame_bytes: frame_bytes - 9,
        frames: AtomicU64::new(0),
        latest_us: AtomicU64::new(0),
    });
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(Failure::failed)?;
    let until = args.seconds.map(|seconds| Instant::now() + Duration::from_secs(seconds));
    let quiet = args.quiet;
    let watching = source.clone();
    runtime.block_on(async move {
        let mut streams = JoinSet::new();
        for number in 1..=args.streams {
            let name = if args.streams == 1 { target.name.clone() } else { numbered(&target.name, number) };
            let target = Target {
                name,
                address: target.address.clone(),
                app: target.app.clone(),
                url: target.url.clone(),
            };
            let offset =
                Duration::from_secs_f64(f64::from(number) / f64::from(args.streams) / f64::from(args.fps));
            streams.spawn(publish(source.clone(), target, Turn { stream: number, offset }));
        }
        watch(&mut streams, &stop, until, (!quiet).then_some(&*watching)).await
    })
}

/// The name of a stream with its number, before the query.
fn numbered(name: &str, number: u32) -> String {
    match name.split_once('?') {
        Some((name, query)) => format!("{name}{number}?{query}"),
        None => format!("{name}{number}"),
    }
}

async fn watch(
    streams: &mut JoinSet<Result<(), String>>,
    stop: &Stop,
    until: Option<Instant>,
    said: Option<&Source>,
) -> Result<(), Failure> {
    let mut line_at = Instant::now() + Duration::from_secs(5);
    loop {
        match tokio::time::timeout(TICK, streams.join_next()).await {
            Ok(Some(Ok(Err(message)))) => return Err(Failure::Failed(message)),
            Ok(Some(Err(error))) => return Err(Failure::failed(error)),
            Ok(Some(Ok(Ok(()))) | None) | Err(_) => {}
        }
        let now = Instant::now();
        if stop.asked() || until.is_some_and(|until| now >= until) {
            return Ok(());
        }
        if let Some(source) = said.filter(|_| now >= line_at) {
            line_at = now + Duration::from_secs(5);
            let (frames, latest) =
                (source.frames.load(Ordering::Relaxed), source.latest_us.swap(0, Ordering::Relaxed));
            let latest_ms = latest as f64 / 1e3;
            let late = if latest > LATE.as_micros() as u64 { ": the server does not keep up" } else { "" };
            // Standard error may be closed.
            let _ = writeln!(
                std::io::stderr(),
                "rblive-load: {frames} frames, at most {latest_ms:.1} ms late{late}"
            );
        }
    }
}

fn target(url: &str) -> Result<Target, Failure> {
    let wrong = || Failure::Failed(format!("'{url}' is no address like rtmp://HOST/APPLICATION/NAME"));
    let rest = url.strip_prefix("rtmp://").ok_or_else(wrong)?;
    let (authority, path) = rest.split_once('/').ok_or_else(wrong)?;
    let (place, query) = path.split_once('?').map_or((path, ""), |(place, query)| (place, query));
    let (app, name) =
        place.rsplit_once('/').filter(|(app, name)| !app.is_empty() && !name.is_empty()).ok_or_else(wrong)?;
    let has_port = authority.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
    let address = if has_port { authority.to_owned() } else { format!("{authority}:1935") };
    let name = if query.is_empty() { name.to_owned() } else { format!("{name}?{query}") };
    Ok(Target { address, app: app.to_owned(), name, url: format!("rtmp://{authority}/{app}") })
}

/// Publishes one stream, for ever.
async fn publish(source: Arc<Source>, target: Target, turn: Turn) -> Result<(), String> {
    let failed = |what: &str, error: &dyn std::fmt::Display| format!("{}: {what}: {error}", target.address);
    let mut socket =
        TcpStream::connect(&target.address).await.map_err(|error| failed("no connection", &error))?;
    socket.set_nodelay(true).map_err(|error| failed("no connection", &error))?;
    let mut client = Client::new(&target.app, &target.name, &target.url);
    match tokio::time::timeout(PATIENCE, connect(&mut client, &mut socket)).await {
        Ok(connected) => connected.map_err(|error| failed(&target.name, &error))?,
        Err(_) => return Err(failed(&target.name, &"the server does not let the stream begin")),
    }
    let (reading, writing) = socket.into_split();
    let answers = tokio::spawn(answers(reading));
    tokio::spawn(frames(source, client, writing, turn, answers))
        .await
        .map_err(|error| error.to_string())?
        .map_err(|error| failed(&target.name, &error))
}

async fn connect(
    client: &mut Client,
    socket: &mut (impl AsyncRead + AsyncWrite + Unpin),
) -> Result<(), String> {
    let mut bytes = vec![0; 4096];
    loop {
        socket.write_all(&client.take_output()).await.map_err(|error| error.to_string())?;
        let read = socket.read(&mut bytes).await.map_err(|error| error.to_string())?;
        if read == 0 {
            return Err("the server closed the connection".to_owned());
        }
        if client.receive(&bytes[..read]).map_err(|error| error.to_string())? == ClientState::Publishing {
            return Ok(());
        }
    }
}

/// Reads the server's messages, until it closes the connection.
async fn answers(mut socket: OwnedReadHalf) -> String {
    let mut bytes = vec![0; 4096];
    loop {
        match socket.read(&mut bytes).await {
            Ok(0) => return "the server closed the connection".to_owned(),
            Ok(_) => {}
            Err(error) => return error.to_string(),
        }
    }
}

/// Sends frames until the server closes the connection.
async fn frames(
    source: Arc<Source>,
    mut client: Client,
    mut socket: OwnedWriteHalf,
    turn: Turn,
    answers: JoinHandle<String>,
) -> Result<(), String> {
    client.metadata(Some(7), None);
    client.video(0, &configuration());
    let begun = tokio::time::Instant::now() + turn.offset;
    let mut payload = Vec::new();
    for number in 0_u64.. {
        let due = begun + Duration::from_secs_f64(number as f64 / f64::from(source.fps));
        tokio::time::sleep_until(due).await;
        if answers.is_finished() {
            break;
        }
        let time_ns = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64);
        let key = number.is_multiple_of(u64::from(source.key_every));
        payload.clear();
        payload.extend([if key { 0x17 } else { 0x27 }, 1, 0, 0, 0]);
        payload.extend((source.frame_bytes as u32).to_be_bytes());
        let header = if key { KEY } else { OTHER };
        source.stamper.write(
            Stamp { stream: turn.stream, number, time_ns },
            header,
            source.frame_bytes,
            &mut payload,
        );
        client.video((number * 1000 / u64::from(source.fps)) as u32, &payload);
        socket.write_all(&client.take_output()).await.map_err(|error| error.to_string())?;
        source.frames.fetch_add(1, Ordering::Relaxed);
        source.latest_us.fetch_max(due.elapsed().as_micros() as u64, Ordering::Relaxed);
    }
    Err(answers.await.map_err(|error| error.to_string())?)
}

/// The video message that configures H.264.
fn configuration() -> Vec<u8> {
    let mut message = vec![0x17, 0, 0, 0, 0, 1, SPS[1], SPS[2], SPS[3], 0xFF, 0xE1, 0, SPS.len() as u8];
    message.extend(SPS);
    message.extend([1, 0, PPS.len() as u8]);
    message.extend(PPS);
    message
}

#[cfg(test)]
mod tests {
    use rblive_media::flv::Demuxer;
    use rblive_media::unit::{Input, TrackConfig};

    use super::*;

    #[test]
    fn the_parameter_sets_are_those_of_the_stream() {
        let input = Demuxer::new().video(0, &configuration().into()).unwrap();
        let Some(Input::Config(TrackConfig::Video(video))) = input else { panic!("it is a configuration") };
        assert_eq!((video.width, video.height, video.frames_per_1000_s), (1280, 720, 25_000));
    }

    #[test]
    fn targets_are_read() {
        let target = target("rtmp://a/live/x/camera?key=a/b").ok().unwrap();
        assert_eq!(
            (&target.address[..], &target.app[..], &target.name[..]),
            ("a:1935", "live/x", "camera?key=a/b")
        );
        assert_eq!(numbered(&target.name, 7), "camera7?key=a/b");
        assert!(
            ["http://a/b/c", "rtmp://a/b", "rtmp://a", "rtmp://a//"]
                .iter()
                .all(|bad| super::target(bad).is_err())
        );
    }
}
