//! How many pulls per second are answered, and how long a reply takes (figures 14 and 15 of the paper).

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use commands::{Failure, Stop};

use super::options::{Generator, Options};
use super::process::{Process, SoftIrqs};
use super::row::{self, Row, Rows};
use super::system::{Kind, PULL_PORT, PUSH_PORT, Running, Setup, System, USER_BYTES};
use super::world::{CLIENT_DEVICE, World};

pub const RANGES: [u16; 3] = [32, 512, 1472];
/// The bytes of the log: more than the largest range, and than the smallest level `user`.
const MESSAGES: u64 = 8192;
const MESSAGE_BYTES: u16 = 128;
/// Where each range begins.
pub const START: u64 = 1000;
/// Pulls that are under way when the rate is measured.
const WINDOW: u32 = 32;
const PATIENCE: Duration = Duration::from_secs(20);

pub fn run(options: &Options) -> Result<(), Failure> {
    if options.generator != Generator::Sendmmsg {
        return Err(Failure::Failed("pulls are sent by sendmmsg, or as frames".into()));
    }
    // After a signal everything that the bench has made is removed on the way out.
    let stop = Stop::install()?;
    let mut world = World::new(1)?;
    let mut rows = Rows::new(options.json.as_deref());
    if let Some(Err(why)) = options.broker.as_ref().map(|command| world.start_broker(command)) {
        rows.add("kafka", Err(why))?;
    }
    let mut run = 0;
    for rep in 0..options.reps {
        for system in System::all(&world, options).into_iter().filter(answers) {
            if stop.asked() {
                return rows.end();
            }
            run += 1;
            let (running, _peer) = match start(system, &world, setup(&system, options, run)) {
                Ok(started) => started,
                Err(why) => {
                    rows.add(&system.describe(), Err(why))?;
                    continue;
                }
            };
            for range in options.payloads_or(&RANGES) {
                let row = measure(&running, &world, system, range, rep, options.window());
                rows.add(&system.describe(), row)?;
                if stop.asked() {
                    return rows.end();
                }
            }
        }
    }
    rows.end()
}

/// Starts a system whose log is full, and what it needs at the other end.
fn start(system: System<'_>, world: &World, setup: Setup) -> Result<(Running, Option<Process>), Failure> {
    let running = Running::start(system, world, setup)?;
    let peer = peer(system, world)?;
    fill(&running, world)?;
    Ok((running, peer))
}

/// Netfilter cannot reply: its pulls are those of the next level. Two systems that only differ in how they write are one. A peer
/// takes pushes only.
pub fn answers(system: &System<'_>) -> bool {
    let replies = matches!(system.kind, Kind::Levels | Kind::Standalone);
    let is_another =
        matches!(system.levels, "kernel" | "user,disk" | "kernel,user,kafka") || system.name == "recvmmsg";
    replies && !is_another && system.mode != "netfilter"
}

/// Kafka is never the only level: the one before it is so small that it no longer has the range.
pub fn setup(system: &System<'_>, options: &Options, run: u32) -> Setup {
    let user_bytes = if system.uses_kafka() { 1 << 19 } else { USER_BYTES };
    Setup { batch_bytes: options.batches[0], user_bytes, run }
}

/// The level that answers.
pub fn answering<'a>(system: &System<'a>) -> &'a str {
    let mut levels = system.levels.split(',');
    let level = if system.uses_kafka() { levels.next_back() } else { levels.next() };
    level.unwrap_or_default()
}

/// A native XDP program can send on a veth pair only if the other end has a program too.
pub fn peer(system: System<'_>, world: &World) -> Result<Option<Process>, Failure> {
    if system.mode == "xdp-native" { world.pass(CLIENT_DEVICE).map(Some) } else { Ok(None) }
}

/// Pushes the log, slowly enough that nothing is lost.
pub fn fill(running: &Running, world: &World) -> Result<(), Failure> {
    let more = ["--count", &MESSAGES.to_string()];
    world.generator(None, PUSH_PORT, MESSAGE_BYTES, 0.0, &more)?.line()?;
    let deadline = Instant::now() + PATIENCE;
    let least = MESSAGES * u64::from(MESSAGE_BYTES) / 2;
    while running.stored_bytes()? < least {
        if Instant::now() >= deadline {
            return Err(Failure::Failed(format!("the log did not fill: {}", running.report()?)));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

fn measure(
    running: &Running,
    world: &World,
    system: System<'_>,
    range: u16,
    rep: u32,
    window: Duration,
) -> Result<Row, Failure> {
    let [_, alone_lost, p50, p99] = ask(&world.client, world, range, window / 2, 1, |_| {})?;
    let kernel_threads = SoftIrqs::find();
    let look = || {
        let broker = if system.uses_kafka() { world.broker_cpu_ns() } else { 0 };
        [running.cpu_ns() + broker, kernel_threads.cpu_ns()]
    };
    let before = look();
    let mut sender_ns = 0;
    let [replies, lost, _, _] =
        ask(&world.client, world, range, window, WINDOW, |client| sender_ns = client.cpu_ns())?;
    let after = look();
    let [server_ns, kernel_ns] = std::array::from_fn(|at| after[at].saturating_sub(before[at]));
    let per_reply = |nanos: u64| if replies > 0 { nanos as f64 / replies as f64 } else { 0.0 };
    let micros = |nanos: u64| Some(nanos as f64 / 1e3).filter(|micros| *micros > 0.0);
    Ok(Row {
        part: "read".to_owned(),
        system: system.name.to_owned(),
        kernel: row::kernel(),
        level: answering(&system).to_owned(),
        mode: system.mode.to_owned(),
        payload_bytes: range,
        rep,
        messages_per_s: replies as f64 / window.as_secs_f64(),
        cpu_ns_per_message: per_reply(server_ns),
        sender_cpu_ns_per_message: per_reply(sender_ns),
        total_cpu_ns_per_message: per_reply(server_ns + sender_ns + kernel_ns),
        rtt_p50_us: micros(p50),
        rtt_p99_us: micros(p99),
        lost: lost + alone_lost,
        sent: replies + lost + alone_lost,
        ..Row::default()
    })
}

/// Runs a client, by way of a command that enters its namespace. `nearly_done` is called when most of the time is over.
pub fn ask(
    enter: &[String],
    world: &World,
    range: u16,
    time: Duration,
    window: u32,
    nearly_done: impl FnOnce(&Process),
) -> Result<[u64; 4], Failure> {
    let to = SocketAddr::new(world.address, PULL_PORT).to_string();
    let (length, seconds, window) = (range.to_string(), time.as_secs_f64().to_string(), window.to_string());
    let start = START.to_string();
    let args = [
        "ask",
        "--to",
        &to,
        "--start",
        &start,
        "--length",
        &length,
        "--seconds",
        &seconds,
        "--window",
        &window,
    ];
    let client = Process::start(enter, &args.map(str::to_owned), "asking")?;
    std::thread::sleep(time.mul_f64(0.95));
    nearly_done(&client);
    let line = client.line()?;
    let numbers: Vec<u64> = line.split(' ').filter_map(|number| number.parse().ok()).collect();
    numbers.try_into().map_err(|_| Failure::Failed(format!("a client of the bench ended: {line}")))
}
