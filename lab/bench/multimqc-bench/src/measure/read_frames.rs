//! How many pulls per second are answered when the clients do not limit it: pulls are frames that the kernel makes.
//!
//! ```text
//!   generator, XDP_TX ──▶ mq1 ─── veth ───▶ mq0: program or socket
//!        sink, counter ◀── mq1 ◀── veth ──── reply
//! ```
//!
//! A reply takes the way that its level gives it. The device of the clients counts it and drops it, as early as it can: in the driver
//! what a program has sent, and in traffic control what a network stack has sent, which the driver would first turn into a frame.

use std::time::{Duration, Instant};

use benchkit::named::Named;
use commands::{Failure, Stop};

use super::options::{Generator, Options};
use super::placement::{Placement, Processors, on};
use super::process::{Process, SoftIrqs, sent_by};
use super::read::{self, START};
use super::row::{self, Row, Rows};
use super::system::{Kind, PULL_PORT, Running, Setup, System, received_by_device};
use super::world::{CLIENT_DEVICE, SERVER_DEVICE, World};

/// The time before each measurement.
const WARMUP: Duration = Duration::from_millis(200);
/// Headers of a frame, and those of a packet without Ethernet's.
const HEADERS: f64 = 42.0;
const IP_HEADERS: f64 = 28.0;
/// A range has room for the bytes that the generator writes each time.
const LEAST: u16 = 22;

/// A measured point: a system, where its processes run, and a load.
#[derive(Clone, Copy)]
struct Case<'a> {
    system: System<'a>,
    placement: Placement,
    clients: &'a [usize],
    range: u16,
    window: Duration,
}

pub fn run(options: &Options) -> Result<(), Failure> {
    let ranges = options.payloads_or(&read::RANGES);
    if let Some(range) = ranges.iter().find(|range| **range < LEAST) {
        return Err(Failure::Failed(format!("a range of {range} bytes: frames pull {LEAST} or more")));
    }
    let stop = Stop::install()?;
    let processors = Processors::find()?;
    let mut world = World::new(processors.count())?;
    world.require_frames()?;
    let placements = if options.placements.is_empty() { &Placement::ALL } else { &options.placements[..] };
    let mut rows = Rows::new(options.json.as_deref());
    let mut run = 0;
    for rep in 0..options.reps {
        for placement in placements {
            world.place_server(processors.of_server(*placement));
            let clients = processors.of_clients(*placement);
            for system in System::all(&world, options).into_iter().filter(answers) {
                if stop.asked() {
                    return rows.end();
                }
                run += 1;
                let running = match start(system, &world, read::setup(&system, options, run)) {
                    Ok(running) => running,
                    Err(why) => {
                        rows.add(&system.describe(), Err(why))?;
                        continue;
                    }
                };
                for range in &ranges {
                    let case = Case {
                        system,
                        placement: *placement,
                        clients,
                        range: *range,
                        window: options.window(),
                    };
                    let row = measure(&running, &world, case).map(|row| Row { rep, ..row });
                    rows.add(&system.describe(), row)?;
                    if stop.asked() {
                        return rows.end();
                    }
                }
            }
        }
    }
    rows.end()
}

/// Starts a system whose log is full, if it has one.
fn start(system: System<'_>, world: &World, setup: Setup) -> Result<Running, Failure> {
    let running = Running::start(system, world, setup)?;
    if !is_sink(system) {
        read::fill(&running, world)?;
    }
    Ok(running)
}

/// Frames need a program in the driver where they arrive, beside which no generic one can be. A broker is not asked for its rate: it
/// answers in milliseconds.
fn answers(system: &System<'_>) -> bool {
    let is_fast = read::answers(system) && !system.uses_kafka() && system.mode != "xdp-generic";
    is_fast || is_sink(*system)
}

fn is_sink(system: System<'_>) -> bool {
    matches!(system.kind, Kind::Sink)
}

fn measure(running: &Running, world: &World, case: Case<'_>) -> Result<Row, Failure> {
    let is_native = case.system.mode == "xdp-native";
    let _program = (!is_native).then(|| world.pass(SERVER_DEVICE)).transpose()?;
    let [p50, p99] = if is_sink(case.system) { [0, 0] } else { round_trips(world, case)? };
    let sink = sink(world, is_native)?;
    let seconds = (2 * WARMUP + case.window).as_secs_f64();
    let more = ["--kind", "frames", "--pull-from", &START.to_string()];
    let generator = |client: &usize| world.generator(Some(*client), PULL_PORT, case.range, seconds, &more);
    let generators = case.clients.iter().map(generator).collect::<Result<Vec<Process>, Failure>>()?;
    let [began, _] = received(&sink, running, case)?;
    std::thread::sleep(WARMUP);
    let kernel_threads = SoftIrqs::find();
    let begin = Instant::now();
    let look = || -> Result<[u64; 5], Failure> {
        let [replies, bytes] = received(&sink, running, case)?;
        let senders = generators.iter().map(Process::cpu_ns).sum::<u64>();
        Ok([replies, bytes, running.cpu_ns(), senders, kernel_threads.cpu_ns()])
    };
    let before = look()?;
    std::thread::sleep(case.window);
    let after = look()?;
    let elapsed = begin.elapsed().as_secs_f64();
    let [count, bytes, server, sender, kernel] =
        std::array::from_fn(|at| after[at].saturating_sub(before[at]) as f64);
    check_length(case, count, bytes)?;
    let sent = sent_by(&generators)?;
    let all = received(&sink, running, case)?[0] - began;
    let per_reply = |nanos: f64| if count > 0.0 { nanos / count } else { 0.0 };
    let micros = |nanos: u64| Some(nanos as f64 / 1e3).filter(|micros| *micros > 0.0);
    Ok(Row {
        part: "read".to_owned(),
        system: case.system.name.to_owned(),
        kernel: row::kernel(),
        level: read::answering(&case.system).to_owned(),
        mode: case.system.mode.to_owned(),
        generator: Some(Generator::Frames.name()),
        placement: Some(case.placement.name()),
        payload_bytes: case.range,
        messages_per_s: count / elapsed,
        cpu_ns_per_message: per_reply(server),
        sender_cpu_ns_per_message: per_reply(sender),
        total_cpu_ns_per_message: per_reply(server + sender + kernel),
        rtt_p50_us: micros(p50),
        rtt_p99_us: micros(p99),
        lost: sent.saturating_sub(all),
        sent,
        ..Row::default()
    })
}

/// The median and 99th percentile of round trips of a client with a socket, in nanoseconds. Every reply has the expected length.
fn round_trips(world: &World, case: Case<'_>) -> Result<[u64; 2], Failure> {
    let _peer = read::peer(case.system, world)?;
    let client = on(&case.clients[..1], &world.client);
    let [replies, _, p50, p99] = read::ask(&client, world, case.range, case.window / 2, 1, |_| {})?;
    if replies == 0 {
        let Case { system, range, .. } = case;
        return Err(Failure::Failed(format!("{} {}: no reply of {range} bytes", system.name, system.mode)));
    }
    Ok([p50, p99])
}

/// Where replies end.
fn sink(world: &World, in_driver: bool) -> Result<Process, Failure> {
    let mut args = ["sink", "--interface", CLIENT_DEVICE].map(str::to_owned).to_vec();
    args.extend((!in_driver).then(|| "--behind-driver".to_owned()));
    Process::start(&world.client, &args, "listening")
}

/// Replies so far, and their bytes: what the clients' device has got. If nothing answers, the pulls that the server's has.
fn received(sink: &Process, running: &Running, case: Case<'_>) -> Result<[u64; 2], Failure> {
    if is_sink(case.system) {
        return Ok([running.stored_messages(case.range)?, 0]);
    }
    received_by_device(sink.id(), CLIENT_DEVICE)
}

/// Whether what has come back are replies of this length, and not something else. Some of the kernel's counters have the Ethernet
/// header, and some not.
fn check_length(case: Case<'_>, replies: f64, bytes: f64) -> Result<(), Failure> {
    let length = f64::from(case.range);
    let good = (length + IP_HEADERS) * 0.98..=(length + HEADERS) * 1.02;
    if is_sink(case.system) || replies == 0.0 || good.contains(&(bytes / replies)) {
        return Ok(());
    }
    let Case { system, range, .. } = case;
    Err(Failure::Failed(format!(
        "{} {}: {replies} packets with {bytes} bytes are no replies of {range} bytes",
        system.name, system.mode
    )))
}
