//! How many messages per second reach the last level (figures 12 and 13 of the paper).

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use super::options::{Generator, Options};
use super::process::{Process, SoftIrqs};
use super::row::{self, Row};
use super::system::{PUSH_PORT, Running, Setup, System, USER_BYTES};
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
    let mut world = World::new()?;
    if options.generator == Generator::Frames && !world.has_kernel {
        return Err(Failure::Failed(
            "frames are sent as root only, with the rights for eBPF; use another --generator".into(),
        ));
    }
    if let Some(command) = &options.broker {
        world.start_broker(command)?;
    }
    let mut rows = Vec::new();
    let mut run = 0;
    for payload in options.payloads_or(&PAYLOADS) {
        for rep in 0..options.reps {
            let systems = System::all(&world, options).into_iter();
            for system in systems.filter(|system| can_take(system, options.generator)) {
                let batches =
                    if system.levels.contains(',') { &options.batches[..] } else { &options.batches[..1] };
                for batch in batches {
                    run += 1;
                    let setup = Setup { batch_bytes: *batch, user_bytes: USER_BYTES, run };
                    let row = Row { rep, ..measure(&world, system, payload, setup, options)? };
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
fn can_take(system: &System<'_>, generator: Generator) -> bool {
    match generator {
        Generator::Sendmmsg => true,
        Generator::Gso => system.sees_cut_messages(),
        Generator::Frames => system.mode != "xdp-generic",
    }
}

fn measure(
    world: &World,
    system: System<'_>,
    payload: u16,
    setup: Setup,
    options: &Options,
) -> Result<Row, Failure> {
    let window = options.window();
    let running = Running::start(system, world, setup)?;
    let needs_program = options.generator == Generator::Frames && system.mode != "xdp-native";
    let _program = needs_program.then(|| world.pass(SERVER_DEVICE)).transpose()?;
    let mut generator = generator(world, payload, (2 * WARMUP + window).as_secs_f64(), options.generator)?;
    std::thread::sleep(WARMUP);
    let kernel_threads = SoftIrqs::find();
    let begin = Instant::now();
    let look = || {
        let broker = if system.uses_kafka() { world.broker_cpu_ns() } else { 0 };
        let server = running.cpu_ns() + broker;
        Ok([running.stored_messages(payload)?, server, generator.cpu_ns(), kernel_threads.cpu_ns()])
    };
    let before = look()?;
    std::thread::sleep(window);
    let after = look()?;
    let elapsed = begin.elapsed().as_secs_f64();
    let [messages, server, sender, kernel] =
        std::array::from_fn(|at| after[at].saturating_sub(before[at]) as f64);
    let sent: u64 = generator.line()?.parse().map_err(|_| Failure::Failed("the generator ended".into()))?;
    let stored = settle(&running, payload)?;
    let per_message = |nanos: f64| if messages > 0.0 { nanos / messages } else { 0.0 };
    Ok(Row {
        part: "write",
        system: system.name.to_owned(),
        kernel: row::kernel(),
        level: system.levels.to_owned(),
        mode: system.mode.to_owned(),
        generator: Some(options.generator.name()),
        payload_bytes: payload,
        batch_bytes: system.levels.contains(',').then_some(setup.batch_bytes),
        messages_per_s: messages / elapsed,
        cpu_ns_per_message: per_message(server),
        sender_cpu_ns_per_message: per_message(sender),
        total_cpu_ns_per_message: per_message(server + sender + kernel),
        lost: sent.saturating_sub(stored),
        sent,
        ..Row::default()
    })
}

/// Starts a generator in the clients' namespace.
fn generator(world: &World, payload: u16, seconds: f64, kind: Generator) -> Result<Process, Failure> {
    let (to, payload) = (SocketAddr::new(world.address, PUSH_PORT).to_string(), payload.to_string());
    let seconds = seconds.to_string();
    let args = ["bench", "generate", "--to", &to, "--payload", &payload, "--seconds", &seconds];
    let mut args: Vec<String> = args.map(str::to_owned).to_vec();
    args.extend(["--kind", kind.name()].map(str::to_owned));
    let mut generator = Process::start(&world.client, &args)?;
    generator.wait_for_line("generating")?;
    Ok(generator)
}

/// Waits until nothing more is stored, and returns how many messages are.
fn settle(running: &Running, payload: u16) -> Result<u64, Failure> {
    let (mut last, mut since) = (running.stored_messages(payload)?, Instant::now());
    while since.elapsed() < SETTLED {
        std::thread::sleep(Duration::from_millis(10));
        let now = running.stored_messages(payload)?;
        if now != last {
            (last, since) = (now, Instant::now());
        }
    }
    Ok(last)
}
