//! How many messages per second reach the last level (figures 12 and 13 of the paper).

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use super::options::Options;
use super::process::Process;
use super::row::{self, Row};
use super::system::{PUSH_PORT, Running, System};
use super::world::World;
use crate::failure::Failure;
use crate::stop::Stop;

const PAYLOADS: [u16; 4] = [4, 32, 128, 512];
/// The time before each measurement.
const WARMUP: Duration = Duration::from_millis(200);
/// The time without growth after which nothing more arrives.
const SETTLED: Duration = Duration::from_millis(200);

pub fn run(options: &Options) -> Result<(), Failure> {
    // After a signal everything that the bench has made is removed on the way out.
    let stop = Stop::install()?;
    let world = World::new()?;
    let mut rows = Vec::new();
    for payload in options.payloads_or(&PAYLOADS) {
        for rep in 0..options.reps {
            for system in System::all(&world) {
                let batches =
                    if system.levels.contains(',') { &options.batches[..] } else { &options.batches[..1] };
                for batch in batches {
                    let row = measure(&world, system, payload, *batch, rep, options.window())?;
                    row.print()?;
                    rows.push(row);
                    row::save(&rows, options.json.as_deref())?;
                    if stop.asked() {
                        return Ok(());
                    }
                }
            }
        }
    }
    Ok(())
}

fn measure(
    world: &World,
    system: System,
    payload: u16,
    batch: u64,
    rep: u32,
    window: Duration,
) -> Result<Row, Failure> {
    let running = Running::start(system, world, batch)?;
    let seconds = (2 * WARMUP + window).as_secs_f64();
    let to = SocketAddr::new(world.address, PUSH_PORT);
    let args = ["bench", "generate", "--to", &to.to_string(), "--payload", &payload.to_string()];
    let mut args: Vec<String> = args.map(str::to_owned).to_vec();
    args.extend(["--seconds".into(), seconds.to_string()]);
    let mut generator = Process::start(&world.client, &args)?;
    generator.wait_for_line("generating")?;
    std::thread::sleep(WARMUP);
    let begin = Instant::now();
    let before = (running.stored_bytes()?, running.cpu_ns(), generator.cpu_ns());
    std::thread::sleep(window);
    let after = (running.stored_bytes()?, running.cpu_ns(), generator.cpu_ns());
    let elapsed = begin.elapsed().as_secs_f64();
    let sent: u64 = generator.line()?.parse().map_err(|_| Failure::Failed("the generator ended".into()))?;
    let stored = settle(&running)? / u64::from(payload);
    let messages = (after.0 - before.0) as f64 / f64::from(payload);
    let per_message = |nanos: u64| if messages > 0.0 { nanos as f64 / messages } else { 0.0 };
    Ok(Row {
        part: "write",
        system: system.name,
        level: system.levels.to_owned(),
        mode: system.mode.to_owned(),
        payload_bytes: payload,
        batch_bytes: system.levels.contains(',').then_some(batch),
        rep,
        messages_per_s: messages / elapsed,
        cpu_ns_per_message: per_message(after.1.saturating_sub(before.1)),
        sender_cpu_ns_per_message: per_message(after.2.saturating_sub(before.2)),
        lost: sent.saturating_sub(stored),
        sent,
        ..Row::default()
    })
}

/// Waits until nothing more is stored, and returns how much is.
fn settle(running: &Running) -> Result<u64, Failure> {
    let (mut last, mut since) = (running.stored_bytes()?, Instant::now());
    while since.elapsed() < SETTLED {
        std::thread::sleep(Duration::from_millis(10));
        let now = running.stored_bytes()?;
        if now != last {
            (last, since) = (now, Instant::now());
        }
    }
    Ok(last)
}
