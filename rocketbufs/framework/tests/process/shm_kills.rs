//! Shared memory when a process dies: `kill -9` at every step of a publisher and of a subscriber, and at random moments. The
//! surviving process continues, has read to the end of the last delivery, and keeps no descriptor, mapping or memory.
//!
//! `KILLS=1000 cargo test -p rocketbufs --test process shm_kills::` sets the number of random moments, `KILL_SEED=7` their seed.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use rocketbufs::config::TransportKind;
use rocketbufs::{Config, Conn, Context, InEvent, Listener, RIn, ROut, SegmentError};

use crate::alone;

/// The limit of every wait. Only a hanging test reaches it, even if the machine stops for half a minute.
const WAIT: Duration = Duration::from_secs(120);
const RING: u64 = 1 << 18;
/// The environment variables with the part that a child process plays, and with the address of its peer.
const ROLE: &str = "SHM_KILLS_ROLE";
const ADDR: &str = "SHM_KILLS_ADDR";

fn context() -> Context {
    let mut config = Config { transport: TransportKind::Shm, ..Config::default() };
    // The socket reports a dead process. A machine that stopped for a while must not end connections.
    config.session.heartbeat_ms = 0;
    config.session.connect_timeout_ms = WAIT.as_millis() as u32;
    config.session.handshake_timeout_ms = WAIT.as_millis() as u32;
    config.session.block_timeout_ms = 0;
    Context::new(config).unwrap()
}

fn pattern(from: u64, len: usize) -> Vec<u8> {
    (from..from + len as u64).map(|p| (p.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56) as u8).collect()
}

fn env(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(otherwise)
}

/// Writes one delivery of the pattern.
fn deliver(out: &ROut, size: u64, wait: Duration) -> Result<(), SegmentError> {
    let mut segment = out.buffer(1).unwrap().segment(size, Some(wait))?;
    let at = segment.position();
    segment.bytes_mut().copy_from_slice(&pattern(at, size as usize));
    out.deliver(segment, size, None).unwrap();
    Ok(())
}

/// Says that the step is reached, and waits there.
fn reached() -> ! {
    println!("reached");
    std::thread::sleep(Duration::from_secs(3600));
    unreachable!("the child is killed before");
}

/// Not a test: the process that is killed.
#[test]
fn child() {
    let (Ok(role), Ok(addr)) = (std::env::var(ROLE), std::env::var(ADDR)) else { return };
    let ctx = context();
    let conn = Conn::connect_start(&ctx, &addr, role.as_bytes()).unwrap();
    match role.split_once(' ').unwrap() {
        ("publisher", step) => publisher(&ctx, &conn, step),
        (_, step) => subscriber(&conn, step),
    }
}

fn publisher(ctx: &Context, conn: &Conn, step: &str) {
    let out = ROut::new(ctx);
    out.create_buffer(1, RING).unwrap();
    if step == "connecting" {
        reached();
    }
    out.add_conn(conn);
    conn.wait_up(Some(WAIT)).unwrap();
    if step == "connected" {
        reached();
    }
    while out.buffer(1).unwrap().info().unwrap().subscribers == 0 {
        std::thread::sleep(Duration::from_millis(1));
    }
    if step == "full" {
        while deliver(&out, 5_000, Duration::from_millis(300)).is_ok() {}
        reached();
    }
    for n in 0.. {
        deliver(&out, 1 + n * 37 % 20_000, WAIT).unwrap();
        match step {
            "delivered" if n == 5 => reached(),
            "claimed" if n == 5 => {
                let mut segment = out.get_output_segment(1, 3_000, false).unwrap();
                segment.bytes_mut()[..1_000].fill(0xEE);
                reached();
            }
            "destroyed" if n == 5 => {
                out.destroy_buffer(1).unwrap();
                reached();
            }
            "streaming" if n == 0 => println!("reached"),
            _ => {}
        }
    }
}

fn subscriber(conn: &Conn, step: &str) {
    let input = RIn::new(conn);
    if step == "connecting" {
        reached();
    }
    conn.wait_up(Some(WAIT)).unwrap();
    input.subscribe(1, RING).unwrap();
    let mut kept = Vec::new();
    while let Some(received) = input.recv(Some(WAIT)).unwrap() {
        match received {
            InEvent::Subscribed { .. } if step == "subscribed" => reached(),
            InEvent::Subscribed { .. } if step == "streaming" => println!("reached"),
            InEvent::Data(view) if step == "holding" => {
                kept.push(view);
                if kept.len() == 1 {
                    println!("reached");
                }
            }
            InEvent::Data(view) => view.consume(),
            _ => {}
        }
    }
}

/// A process that dies when this is dropped.
struct Mortal(Child);

impl Drop for Mortal {
    fn drop(&mut self) {
        // The child may be dead already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn start(role: &str, listener: &Listener) -> (Mortal, mpsc::Receiver<()>) {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "shm_kills::child", "--nocapture"])
        .env(ROLE, role)
        .env(ADDR, listener.local_addr())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let (tell, told) = mpsc::sync_channel(4);
    std::thread::spawn(move || {
        for line in lines.map_while(Result::ok) {
            if line.contains("reached") {
                let _ = tell.send(());
            }
        }
    });
    (Mortal(child), told)
}

/// What this process holds.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Held {
    /// Descriptors of rings, doorbells, sockets and pipes.
    descriptors: usize,
    /// Mappings of rings and doorbells.
    mappings: usize,
}

fn held() -> Held {
    let of = |entry: std::io::Result<std::fs::DirEntry>| std::fs::read_link(entry.ok()?.path()).ok();
    let files = std::fs::read_dir("/proc/self/fd").unwrap().filter_map(of);
    let kept = |path: &std::path::PathBuf| {
        let path = path.to_string_lossy().into_owned();
        path.contains("rocketring") || path.starts_with("socket:") || path.starts_with("pipe:")
    };
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let mappings = maps.lines().filter(|line| line.contains("rocketring")).count();
    Held { descriptors: files.filter(kept).count(), mappings }
}

/// The descriptors and mappings of this process, after those of an earlier test or child are released.
fn held_at_rest() -> Held {
    let mut last = held();
    loop {
        std::thread::sleep(Duration::from_millis(200));
        let now = held();
        if now == last {
            return now;
        }
        last = now;
    }
}

/// Waits until this process has as many descriptors and mappings as `before`.
fn settle(before: Held, what: &str) {
    until(before, held, &format!("{what}: descriptors and mappings"));
}

/// Waits until something is as it must be.
fn until<T: PartialEq + std::fmt::Debug>(wanted: T, now: impl Fn() -> T, what: &str) {
    for _ in 0..30_000 {
        if now() == wanted {
            return;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    panic!("{what}: {:?}, not {wanted:?}", now());
}

/// Reads a publisher that dies at some time to its end, checking every byte. Holds the first data until `full` says that nothing more fits.
fn read_to_the_end(input: &RIn, mut full: Option<mpsc::Receiver<()>>) -> (u64, bool) {
    let (mut at, mut down) = (0, false);
    loop {
        match input.recv(Some(if down { Duration::ZERO } else { WAIT })).unwrap() {
            Some(InEvent::Data(view)) => {
                assert_eq!(view.position(), at);
                assert!(view.to_vec().unwrap() == pattern(at, view.len()), "wrong bytes at {at}");
                at = view.end();
                if let Some(full) = full.take() {
                    full.recv_timeout(WAIT).unwrap();
                }
                view.consume();
            }
            Some(InEvent::ConnDown { .. }) => down = true,
            Some(InEvent::Closed { .. } | InEvent::Subscribed { .. }) => {}
            Some(other) => panic!("at {at}: {other:?}"),
            None => return (at, down),
        }
    }
}

struct Reader {
    ctx: Context,
    listener: Listener,
}

impl Reader {
    fn new() -> Self {
        let ctx = context();
        let listener = Listener::bind(&ctx, "127.0.0.1:0").unwrap();
        let reader = Self { ctx, listener };
        // The first followed ring makes a doorbell, which stays.
        reader.survive("delivered", Duration::ZERO);
        reader
    }

    /// Reads from a publisher that is killed at a step, or this long `after` its first data. Returns the last position.
    fn survive(&self, step: &str, after: Duration) -> u64 {
        let (child, told) = start(&format!("publisher {step}"), &self.listener);
        let conn = self.listener.accept(Some(WAIT)).unwrap().unwrap();
        let input = RIn::new(&conn);
        input.subscribe(1, RING).unwrap();
        if !step.starts_with("connect") {
            // A publisher counts a subscriber before it answers. A publisher that dies in between has not offered its ring.
            let answer = input.recv(Some(WAIT)).unwrap();
            assert!(matches!(answer, Some(InEvent::Subscribed { .. })), "{step}: {answer:?}");
        }
        let (tell, full) = mpsc::sync_channel(1);
        let (end, down) = std::thread::scope(|scope| {
            scope.spawn(move || {
                told.recv_timeout(WAIT).unwrap();
                std::thread::sleep(after);
                drop(child);
                // Most readers do not wait for it.
                let _ = tell.send(());
            });
            read_to_the_end(&input, (step == "full").then_some(full))
        });
        assert!(down, "{step}: nobody said that it is gone");
        if let Some((_, boundary)) = input.subscription(1).unwrap().position() {
            assert_eq!(end, boundary, "{step}: everything that was delivered was read");
        }
        end
    }
}

#[test]
fn a_publisher_that_dies_at_any_step() {
    let _alone = alone();
    let reader = Reader::new();
    let before = held_at_rest();
    for step in ["connecting", "connected", "delivered", "claimed", "full", "destroyed", "streaming"] {
        let end = reader.survive(step, Duration::ZERO);
        // All deliveries are there, and no bytes that were only claimed.
        let six: u64 = (0..6).map(|n| 1 + n * 37 % 20_000).sum();
        match step {
            "delivered" | "claimed" | "destroyed" => assert_eq!(end, six, "{step}"),
            "full" => assert!(end >= RING / 4, "{step}: {end}"),
            "connecting" | "connected" => assert_eq!(end, 0, "{step}"),
            _ => {}
        }
        settle(before, step);
        // A mapping is counted until a moment after it has gone.
        until((0, 0), || reader.ctx.mapped(), step);
    }
}

#[test]
fn a_publisher_that_dies_at_any_moment() {
    let _alone = alone();
    let reader = Reader::new();
    let before = held_at_rest();
    let (kills, mut seed) = (env("KILLS", 25), env("KILL_SEED", 1));
    let mut bytes = 0;
    for n in 0..kills {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let after = Duration::from_micros((seed >> 33) % 30_000);
        bytes += reader.survive("streaming", after);
        settle(before, &format!("kill {n}"));
    }
    println!(
        "{kills} publishers killed, {bytes} bytes read, {:?} descriptors and mappings as before",
        before
    );
}

/// A publisher whose subscribers die: it continues as soon as they are gone.
struct Writer {
    out: ROut,
    listener: Listener,
}

impl Writer {
    fn new() -> Self {
        let ctx = context();
        let out = ROut::new(&ctx);
        out.create_buffer(1, RING).unwrap();
        let listener = Listener::bind(&ctx, "127.0.0.1:0").unwrap();
        let to = out.clone();
        listener.set_conn_cb(move |conn| to.add_conn(&conn));
        Self { out, listener }
    }

    fn survive(&self, step: &str, after: Duration) {
        let (child, told) = start(&format!("subscriber {step}"), &self.listener);
        std::thread::scope(|scope| {
            let kills = scope.spawn(move || {
                told.recv_timeout(WAIT).unwrap();
                std::thread::sleep(after);
                drop(child);
            });
            // More than the capacity, so that the writer waits for the subscriber that holds the ring. The writer continues until
            // the subscriber has joined, because a subscriber gets only data from then on.
            for n in 0.. {
                if n >= 200 && kills.is_finished() {
                    break;
                }
                deliver(&self.out, 5_000, WAIT).unwrap_or_else(|error| panic!("{step}, {n}: {error}"));
                std::thread::sleep(Duration::from_micros(100));
            }
        });
        until(0, || self.out.buffer(1).unwrap().info().unwrap().subscribers, step);
        // The next delivery releases the doorbells of readers that are gone.
        deliver(&self.out, 1, WAIT).unwrap();
    }
}

#[test]
fn a_subscriber_that_dies_at_any_step_or_moment() {
    let _alone = alone();
    let writer = Writer::new();
    let before = held_at_rest();
    for step in ["connecting", "subscribed", "holding", "streaming"] {
        writer.survive(step, Duration::ZERO);
        settle(before, step);
    }
    let (kills, mut seed) = (env("KILLS", 25), env("KILL_SEED", 1));
    for n in 0..kills {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        writer.survive(
            if seed >> 63 == 0 { "holding" } else { "streaming" },
            Duration::from_micros(seed >> 33 & 0x3FFF),
        );
        settle(before, &format!("kill {n}"));
    }
    println!("{kills} subscribers killed, {before:?} descriptors and mappings as before");
}
