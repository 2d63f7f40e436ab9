//! How many messages per second reach the last level (figures 12 and 13 of the paper).

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use super::options::{Generator, Options};
use super::process::Process;
use super::row::{self, Row};
use super::system::{PUSH_PORT, Running, System};
use super::world::{SERVER_DEVICE, World};
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
    if options.generator == Generator::Frames && !world.has_kernel {
        return Err(Failure::Failed(
            "frames are sent as root only, with the rights for eBPF; use another --generator".into(),
        ));
    }
    let mut rows = Vec::new();
    for payload in options.payloads_or(&PAYLOADS) {
        for rep in 0..options.reps {
            let systems = System::all(&world).into_iter();
            for system in systems.filter(|system| can_take(*system, options.generator)) {
                let batches =
                    if system.levels.contains(',') { &options.batches[..] } else { &options.batches[..1] };
                for batch in batches {
                    let row = Row { rep, ..measure(&world, system, payload, *batch, options)? };
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

/// Whether a system gets what this generator sends message by message. Frames of XDP need a native program where they arrive, beside
/// which no generic one can be.
fn can_take(system: System, generator: Generator) -> bool {
    match generator {
        Generator::Sendmmsg => true,
        Generator::Gso => system.sees_cut_messages(),
        Generator::Frames => system.mode != "xdp-generic",
    }
}

fn measure(
    world: &World,
    system: System,
    payload: u16,
    batch: u64,
    options: &Options,
) -> Result<Row, Failure> {
    let window = options.window();
    let running = Running::start(system, world, batch)?;
    let needs_program = options.generator == Generator::Frames && system.mode != "xdp-native";
    let _program = needs_program.then(|| world.pass(SERVER_DEVICE)).transpose()?;
    let seconds = (2 * WARMUP + window).as_secs_f64();
    let to = SocketAddr::new(world.address, PUSH_PORT);
    let args = ["bench", "generate", "--to", &to.to_string(), "--payload", &payload.to_string()];
    let mut args: Vec<String> = args.map(str::to_owned).to_vec();
    args.extend(["--seconds".into(), seconds.to_string()]);
    args.extend(["--kind", options.generator.name()].map(str::to_owned));
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
        generator: Some(options.generator.name()),
        payload_bytes: payload,
        batch_bytes: system.levels.contains(',').then_some(batch),
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
