//! How many messages per second reach the last level (figures 12 and 13 of the paper).

use std::time::{Duration, Instant};

use benchkit::named::Named;
use commands::{Failure, Stop};

use super::options::{Generator, Options};
use super::placement::{Placement, Processors};
use super::process::{Process, SoftIrqs, sent_by};
use super::row::{self, Row, Rows};
use super::system::{Kind, PUSH_PORT, Running, Setup, System, USER_BYTES};
use super::world::{SERVER_DEVICE, World};

const PAYLOADS: [u16; 4] = [4, 32, 128, 512];
/// The time before each measurement.
const WARMUP: Duration = Duration::from_millis(200);
/// The time without growth after which nothing more arrives.
const SETTLED: Duration = Duration::from_millis(200);

pub fn run(options: &Options) -> Result<(), Failure> {
    if !options.placements.is_empty() && options.generator != Generator::Frames {
        return Err(Failure::Failed("--placements is for --generator frames".into()));
    }
    // After a signal everything that the bench has made is removed on the way out.
    let stop = Stop::install()?;
    let processors = Processors::find()?;
    let mut world = World::new(if options.placements.is_empty() { 1 } else { processors.count() })?;
    if options.generator == Generator::Frames {
        world.require_frames()?;
    }
    let placements: Vec<Option<Placement>> = match &options.placements[..] {
        [] => vec![None],
        placements => placements.iter().copied().map(Some).collect(),
    };
    let mut rows = Rows::new(options.json.as_deref());
    if let Some(Err(why)) = options.broker.as_ref().map(|command| world.start_broker(command)) {
        rows.add("kafka", Err(why))?;
    }
    let mut run = 0;
    for payload in options.payloads_or(&PAYLOADS) {
        for (rep, placement) in (0..options.reps).flat_map(|rep| placements.iter().map(move |at| (rep, *at)))
        {
            if let Some(placement) = placement {
                world.place_server(processors.of_server(placement));
            }
            let clients = placement.map(|placement| processors.of_clients(placement));
            let systems = System::all(&world, options).into_iter();
            for system in systems.filter(|system| can_take(system, options.generator, placement)) {
                let batches =
                    if system.levels.contains(',') { &options.batches[..] } else { &options.batches[..1] };
                for batch in batches {
                    run += 1;
                    let setup = Setup { batch_bytes: *batch, user_bytes: USER_BYTES, run };
                    let row = measure(&world, system, payload, setup, options, clients);
                    let row = row.map(|row| Row {
                        rep,
                        placement: placement.map(|placement| placement.name()),
                        ..row
                    });
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

/// Whether a system gets what this generator sends message by message. Frames of XDP need a native program where they arrive, beside
/// which no generic one can be. A peer with a program of its own takes what arrives in one queue.
fn can_take(system: &System<'_>, generator: Generator, placement: Option<Placement>) -> bool {
    let takes_one_queue = matches!(system.kind, Kind::Peer(_)) && system.mode == "xdp-native";
    if takes_one_queue && placement == Some(Placement::Everywhere) {
        return false;
    }
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
    clients: Option<&[usize]>,
) -> Result<Row, Failure> {
    let window = options.window();
    let running = Running::start(system, world, setup)?;
    let needs_program = options.generator == Generator::Frames && system.mode != "xdp-native";
    let _program = needs_program.then(|| world.pass(SERVER_DEVICE)).transpose()?;
    let generators = generators(world, payload, options, clients)?;
    std::thread::sleep(WARMUP);
    let kernel_threads = SoftIrqs::find();
    let begin = Instant::now();
    let look = || -> Result<[u64; 4], Failure> {
        let broker = if system.uses_kafka() { world.broker_cpu_ns() } else { 0 };
        let server = running.cpu_ns() + broker;
        let senders = generators.iter().map(Process::cpu_ns).sum();
        Ok([running.stored_messages(payload)?, server, senders, kernel_threads.cpu_ns()])
    };
    let before = look()?;
    std::thread::sleep(window);
    let after = look()?;
    let elapsed = begin.elapsed().as_secs_f64();
    let [messages, server, sender, kernel] =
        std::array::from_fn(|at| after[at].saturating_sub(before[at]) as f64);
    let sent = sent_by(&generators)?;
    let stored = settle(&running, payload)?;
    let per_message = |nanos: f64| if messages > 0.0 { nanos / messages } else { 0.0 };
    Ok(Row {
        part: "write".to_owned(),
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

/// Starts a generator on each of these processors, or one on any.
fn generators(
    world: &World,
    payload: u16,
    options: &Options,
    clients: Option<&[usize]>,
) -> Result<Vec<Process>, Failure> {
    let seconds = (2 * WARMUP + options.window()).as_secs_f64();
    let places = clients.map_or_else(|| vec![None], |clients| clients.iter().copied().map(Some).collect());
    let kind = ["--kind", &options.generator.name()];
    places.into_iter().map(|place| world.generator(place, PUSH_PORT, payload, seconds, &kind)).collect()
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
