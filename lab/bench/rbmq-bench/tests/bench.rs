//! Smoke tests of the benches: they measure, every byte arrives, and their output is complete. No test checks a rate.

use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;
use testkit::{Outcome, Process, until};

/// Windows as short as can be: enough to see everything work.
const SHORT: &str = "--seconds 0.1 --warmup 0.05 --reps 1 --retries 0";

fn command<'a>(args: impl IntoIterator<Item = &'a str>) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_rbmq-bench"));
    command.args(args).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.env_remove("RBMQ_LOG");
    command
}

fn bench(line: &str, folder: &Path) -> Outcome {
    exactly(&format!("{line} {SHORT}"), folder)
}

/// As `bench`, for benches with other options.
fn exactly(line: &str, folder: &Path) -> Outcome {
    let mut command = command(line.split_whitespace());
    command.arg("--out").arg(folder);
    Process::start(command).finish().good()
}

/// The rows that a bench wrote: flat objects.
fn rows(folder: &Path, name: &str) -> Vec<Value> {
    let text = std::fs::read_to_string(folder.join(format!("{name}.json"))).unwrap();
    let rows: Vec<Value> = serde_json::from_str(&text).unwrap();
    for row in &rows {
        let fields = row.as_object().unwrap();
        assert!(fields.values().all(|value| !value.is_object() && !value.is_array()), "{row}");
        assert!(fields["congestion_control"].is_string() && fields["command"].is_string(), "{row}");
    }
    rows
}

/// On a busy machine no message may come in so short a window, but all published messages come in the end.
fn nothing_missing(row: &Value) {
    assert_eq!(row["lost"], 0, "{row}");
    let counted = if row["subscribers"] == 0 { "published_per_s" } else { "delivered_per_s" };
    assert!(row[counted].as_f64().unwrap() >= 0.0, "{row}");
}

#[test]
fn throughput_writes_rows_and_a_table() {
    let folder = tempfile::tempdir().unwrap();
    let line = "throughput --against relay --sizes 8,70000 --subscribers 0,2 --api batch,message,wire";
    let outcome = bench(line, folder.path());
    let rows = rows(folder.path(), "throughput");
    assert_eq!(rows.len(), 2 * 2 * 4);
    rows.iter().for_each(nothing_missing);
    for api in ["batch", "message", "wire"] {
        let begin = format!("| 70000 | 2 | 2 | false | 0 | rbmq | {api} | tcp | none |");
        assert!(outcome.text().contains(&begin), "{}", outcome.text());
    }
    let table = std::fs::read_to_string(folder.path().join("throughput.md")).unwrap();
    assert_eq!(table, outcome.text());
    assert!(outcome.stderr.contains("[16/16, 0:00 left]"), "{}", outcome.stderr);
}

#[test]
fn every_transport_carries_every_byte() {
    let folder = tempfile::tempdir().unwrap();
    let ways = ["tcp", "shm", "tcp-shm", "shm-tcp"];
    let over = format!("--against relay --transport {}", ways.join(","));
    let outcome = bench(&format!("throughput {over} --sizes 8,70000 --subscribers 2"), folder.path());
    let throughput = rows(folder.path(), "throughput");
    throughput.iter().for_each(nothing_missing);
    assert!(outcome.text().contains("| rbmq | batch | shm-tcp | none |"), "{}", outcome.text());
    bench(&format!("latency {over} --rates 500"), folder.path());
    let latency = rows(folder.path(), "latency");
    latency.iter().for_each(|row| assert_eq!(row["lost"], 0, "{row}"));
    bench(&format!("cpu {over} --loads 256@2000 --subscribers 1"), folder.path());
    for (rows, times) in [(throughput, 2), (latency, 1), (rows(folder.path(), "cpu"), 1)] {
        let count = |of: &str, over: &str| {
            rows.iter().filter(|row| row["system"] == of && row["transport"] == over).count()
        };
        assert_eq!(ways.map(|way| count("rbmq", way)), [times; 4], "{rows:?}");
        assert_eq!((count("relay", "tcp"), rows.len()), (times, 5 * times), "the relay is on TCP: {rows:?}");
    }
}

#[test]
fn the_number_of_publishers_is_found() {
    let folder = tempfile::tempdir().unwrap();
    let line = "throughput --sizes 64 --subscribers 1 --publishers 1,2,auto --most-publishers 2";
    let outcome = bench(line, folder.path());
    let rows = rows(folder.path(), "throughput");
    let auto: Vec<bool> = rows.iter().map(|row| row["publishers_auto"] == true).collect();
    assert_eq!(auto, [false, false, true]);
    assert!((1..=2).contains(&rows[2]["publishers"].as_u64().unwrap()));
    assert!(outcome.text().contains(" | true | 0 | rbmq | batch |"), "{}", outcome.text());
}

#[test]
fn cpu_is_measured_at_the_load_that_was_asked() {
    let folder = tempfile::tempdir().unwrap();
    bench("cpu --against relay --loads 256@20000,8192@1000 --subscribers 2", folder.path());
    let rows = rows(folder.path(), "cpu");
    assert_eq!(rows.len(), 4);
    rows.iter().for_each(nothing_missing);
    assert_eq!(rows[0]["asked_per_s"], 20_000.0);
}

#[test]
fn round_trips_are_counted_from_when_they_were_due() {
    let folder = tempfile::tempdir().unwrap();
    bench("latency --against relay --rates 500,2000 --beside-saturated", folder.path());
    let rows = rows(folder.path(), "latency");
    assert_eq!(rows.len(), 2 * 2 * 2);
    for row in &rows {
        let us = |key: &str| row[key].as_f64().unwrap();
        assert_eq!(row["lost"], 0, "{row}");
        assert!(us("beside_bytes_per_s") == 0.0 || row["beside_saturated"] == true, "{row}");
        assert!(us("p50_us") > 0.0 && us("p50_us") <= us("p99_us") && us("p99_us") <= us("max_us"), "{row}");
    }
    let text = std::fs::read_to_string(folder.path().join("latency-histograms.json")).unwrap();
    let buckets: Vec<Value> = serde_json::from_str(&text).unwrap();
    let trips = |rate: f64| {
        let of_rate = buckets.iter().filter(|bucket| bucket["asked_per_s"].as_f64() == Some(rate));
        of_rate.map(|bucket| bucket["round_trips"].as_u64().unwrap()).sum::<u64>()
    };
    // Two systems, alone and beside a load, for a tenth of a second each.
    assert_eq!((trips(500.0), trips(2000.0)), (4 * 50, 4 * 200));
}

#[test]
fn flow_control_is_measured_on_and_off() {
    let folder = tempfile::tempdir().unwrap();
    let line = "flow --sizes 256,65536 --seconds 0.1 --reps 1 --valgrind-reps 0 --bursts-per-s 100";
    let outcome = exactly(line, folder.path());
    let rows = rows(folder.path(), "flow");
    let on: Vec<bool> = rows.iter().map(|row| row["flow_control"] == true).collect();
    assert_eq!(on, [true, false, true, false]);
    assert!(rows.iter().all(|row| row["delivered_bytes"] == 10 * 65_536), "{rows:?}");
    for row in &rows {
        let calls: Vec<Option<f64>> = ["publisher", "broker", "subscriber"]
            .map(|side| row[format!("{side}_system_calls_per_mib")].as_f64())
            .to_vec();
        // Either no process can be counted, or every process made system calls.
        assert!(calls.iter().all(Option::is_none) || calls.iter().all(|calls| *calls > Some(0.0)), "{row}");
    }
    assert!(outcome.text().contains("| 65536 | false |"), "{}", outcome.text());
}

/// Whether a bench of this process left a folder or file in shared memory.
fn left_in_memory(bench: u32) -> bool {
    let own = format!("rbmq-direct-{bench}-");
    let entries = std::fs::read_dir("/dev/shm").unwrap().filter_map(Result::ok);
    entries.into_iter().any(|entry| entry.file_name().to_string_lossy().starts_with(&own))
}

/// `systems` are all measured, or left out aloud; ours never are.
fn direct(systems: &str, expected: &[&str]) -> (Outcome, Vec<Value>) {
    let folder = tempfile::tempdir().unwrap();
    let line = format!("direct --sizes 8,1001 --seconds 0.1 --warmup 0.05 --reps 1 --retries 0 {systems}");
    let mut command = command(line.split_whitespace());
    command.arg("--out").arg(folder.path());
    let bench = Process::start(command);
    let number = bench.id();
    let outcome = bench.finish().good();
    assert!(!left_in_memory(number));
    let rows = rows(folder.path(), "direct");
    for system in expected {
        let of: Vec<&Value> =
            rows.iter().filter(|row| row["system"] == *system && row["spin_us"] == 0).collect();
        if of.is_empty() && outcome.stderr.contains(&format!("SKIPPED: {system}")) {
            eprintln!("{}", outcome.stderr);
            continue;
        }
        let sizes: Vec<u64> = of.iter().map(|row| row["size_bytes"].as_u64().unwrap()).collect();
        assert_eq!(sizes, [8, 1001, 34], "{system}");
        assert!(of.iter().all(|row| row["lost"] == 0 && row["rate"].is_number()), "{of:?}");
        assert!(of[0]["p50_ns"].is_null() && of[2]["p50_ns"].as_u64() > Some(0), "{of:?}");
        assert!(of[2]["p50_ns"].as_u64() <= of[2]["p99_ns"].as_u64(), "{of:?}");
    }
    assert!(outcome.text().contains("| one-way | 1001 | rocketbufs | "), "{}", outcome.text());
    (outcome, rows)
}

#[test]
fn two_processes_share_memory_without_a_broker() {
    let (outcome, rows) = direct("--spin-us 20", &["rocketbufs", "rocketbufs-trusting"]);
    let spinning = rows.iter().filter(|row| row["spin_us"] == 20).count();
    // Each row of ours also so, if this build can.
    let each = if outcome.stderr.contains("SKIPPED: spinning") { 0 } else { rows.len() / 2 };
    assert_eq!(spinning, each, "{rows:?}");
}

#[test]
fn other_peoples_shared_memory_loses_nothing() {
    direct("--system rocketbufs --against aeron,iceoryx2", &["rocketbufs", "aeron", "iceoryx2"]);
}

#[test]
fn a_delivery_is_measured_beside_topics_that_do_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let line = "scale --topics 20 --bytes 32768 --connections 4 --deliveries 50 --reps 2 --rest 0 --idle 0.1";
    let outcome = exactly(line, folder.path());
    let rows = rows(folder.path(), "scale");
    let idle: Vec<u64> = rows.iter().map(|row| row["idle_topics"].as_u64().unwrap()).collect();
    assert_eq!(idle, [1, 1, 10, 10, 19, 19]);
    assert!(rows.iter().all(|row| row["round_trip_us"].as_f64().unwrap() > 0.0), "{rows:?}");
    assert!(outcome.text().contains("| bytes through each, one after the other | 32.8 kB |"));
}

#[test]
fn confirmed_messages_are_counted() {
    let folder = tempfile::tempdir().unwrap();
    let line = "throughput --sizes 8,70000 --subscribers 0,1 --api batch,message --confirm accepted,consumed";
    bench(line, folder.path());
    let rows = rows(folder.path(), "throughput");
    assert_eq!(rows.len(), 2 * 2 * 2 * 2);
    rows.iter().for_each(nothing_missing);
}

#[test]
fn a_cut_connection_loses_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let line = "recovery --against relay,redis --seconds 1 --warmup 0 --reps 1 --retries 0";
    let outcome = exactly(line, folder.path());
    assert!(outcome.stderr.contains("the relay has no clients that reconnect"));
    let rows = rows(folder.path(), "recovery");
    let ours: Vec<&Value> = rows.iter().filter(|row| row["system"] == "rbmq").collect();
    assert_eq!(ours.len(), 3);
    for row in ours {
        assert!(row["published"].as_u64().unwrap() > 100, "{row}");
        // A killed broker may have confirmed messages that are lost with it.
        assert!(row["cut"] == "broker" || (row["lost"] == 0 && row["repeated"] == 0), "{row}");
    }
}

fn is_installed(server: &str) -> bool {
    // For RabbitMQ the bench runs the program that the wrapper in PATH starts.
    let path = if server == "rabbitmq-server" { "/usr/lib/rabbitmq/bin/rabbitmq-server" } else { server };
    benchkit::server::find(path).is_some()
}

/// Runs against another system's real server, where it is installed; nothing of it may stay behind.
fn other_system(server: &str, line: &str, expected_rows: usize) {
    let (out, temporary) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let words = line.split_whitespace().chain(SHORT.split_whitespace());
    let mut command = command(words);
    command.arg("--out").arg(out.path()).env("TMPDIR", temporary.path());
    let outcome = Process::start(command).finish();
    if !is_installed(server) {
        // The bench reports the missing server and measures nothing.
        assert!(outcome.stderr.contains("SKIPPED") && !outcome.status.success(), "{}", outcome.stderr);
        return eprintln!("{}", outcome.stderr);
    }
    assert!(!outcome.stderr.contains("SKIPPED"), "{}", outcome.stderr);
    outcome.good();
    let rows = rows(out.path(), "throughput");
    assert_eq!(rows.len(), expected_rows);
    rows.iter().for_each(nothing_missing);
    assert!(rows[0]["system_version"].as_str().unwrap().contains('.'));
    nothing_is_left(temporary.path());
}

/// Programs whose working folder is below `folder`. Servers of a bench have such a folder.
fn working_below(folder: &Path) -> Vec<String> {
    let processes = std::fs::read_dir("/proc").unwrap().filter_map(Result::ok);
    let works_there = |process: &std::fs::DirEntry| {
        std::fs::read_link(process.path().join("cwd")).is_ok_and(|cwd| cwd.starts_with(folder))
    };
    processes.filter(works_there).map(|process| process.file_name().to_string_lossy().into_owned()).collect()
}

fn nothing_is_left(folder: &Path) {
    until("no server and no folder is left", || {
        working_below(folder).is_empty() && std::fs::read_dir(folder).unwrap().next().is_none()
    });
}

#[test]
fn redis_delivers_every_byte() {
    let line = "throughput --system redis --sizes 8,70000 --subscribers 2 --api batch,message";
    other_system("redis-server", &format!("{line} --confirm none,accepted"), 8);
}

#[test]
fn redis_of_many_threads_and_of_many_servers_delivers_every_byte() {
    // Three topics: where there are two servers, one of them has two.
    let line =
        "throughput --system redis-threads,redis-servers --publishers 3 --sizes 8,70000 --subscribers 2";
    other_system("redis-server", &format!("{line} --api batch,message --confirm none,accepted"), 16);
}

#[test]
fn mosquitto_delivers_every_byte() {
    let line = "throughput --system mosquitto --sizes 8,70000 --subscribers 2 --api message";
    other_system("mosquitto", &format!("{line} --confirm none,accepted"), 4);
}

/// Whatever is installed beside them, our gateways are measured in each part, and lose nothing.
#[test]
fn gateways_are_measured_beside_other_servers() {
    let folder = tempfile::tempdir().unwrap();
    let files = folder.path().display();
    let line = format!(
        "gateway --parts bare,trips,benchmark,streams --subscribers 2 --messages 300 --folder {files}"
    );
    let outcome = bench(&line, folder.path());
    let rows = rows(folder.path(), "gateway");
    assert!(rows.iter().all(|row| row["lost"] == 0), "{rows:?}");
    let count = |system: &str| rows.iter().filter(|row| row["system"] == system).count();
    assert!(count("redis") == 0 || count("redis") == count("resp"), "{}", outcome.text());
    assert!(count("mosquitto") == 0 || count("mosquitto") == count("mqtt"), "{}", outcome.text());
    let runs = if is_installed("redis-benchmark") { 8 } else { 0 };
    assert_eq!((count("resp"), count("mqtt")), (3 + 1 + runs + 2, 6 + 1));
    assert!(outcome.text().contains("| bare, QoS 1 | 16384 | 2 | mqtt | "), "{}", outcome.text());
    let read = rows.iter().find(|row| row["load"] == "XREAD COUNT 4096").unwrap();
    assert!(read["per_s"].as_f64() > Some(0.0) && read["server_cpu_us"].is_number(), "{read}");
}

#[test]
fn nats_delivers_every_byte() {
    let line = "throughput --system nats --sizes 8,70000 --subscribers 2 --api batch,message";
    other_system("nats-server", &format!("{line} --confirm none,accepted"), 8);
}

#[test]
fn rabbitmq_delivers_every_byte() {
    let line = "throughput --system rabbitmq --sizes 70000 --subscribers 2 --confirm accepted";
    other_system("rabbitmq-server", line, 1);
}

/// Runs a client library with its server, where both are there; nothing may stay behind.
fn library(name: &str) {
    library_under(name, &["full", "full", "paced", "trips"], "--sizes 64,70000");
}

/// The same with options, which make rows of these loads.
fn library_under(name: &str, expected: &[&str], options: &str) {
    let (out, temporary) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let line = format!("libraries --library {name} --subscribers 2 --paced-per-s 1000 {options} {SHORT}");
    let mut command = command(line.split_whitespace());
    command.arg("--out").arg(out.path()).env("TMPDIR", temporary.path());
    let outcome = Process::start(command).finish();
    if outcome.stderr.contains("SKIPPED") {
        assert!(name != "rbmq" && !outcome.status.success(), "{}", outcome.stderr);
        return eprintln!("{}", outcome.stderr);
    }
    let outcome = outcome.good();
    let rows = rows(out.path(), "libraries");
    let loads: Vec<&str> = rows.iter().map(|row| row["load"].as_str().unwrap()).collect();
    assert_eq!(loads, expected);
    for row in &rows {
        assert_eq!((&row["dropped"], &row["cut_off"]), (&Value::from(0), &Value::from(0)), "{row}");
        assert!(row["received"].as_u64() > Some(0), "{row}");
        assert!(row["library_version"].as_str().unwrap().contains('.'), "{row}");
        assert!(row["system_version"].as_str().unwrap().contains('.'), "{row}");
    }
    for row in rows.iter().filter(|row| row["load"] == "trips") {
        let us = |key: &str| row[key].as_f64().unwrap();
        assert!(us("p50_us") > 0.0 && us("p50_us") <= us("p99_us") && us("p99_us") <= us("max_us"), "{row}");
        assert!(outcome.text().contains("| trips | 64 |"), "{}", outcome.text());
    }
    nothing_is_left(temporary.path());
}

#[test]
fn our_library_delivers_every_message() {
    library("rbmq");
}

#[test]
fn redis_by_its_library_delivers_every_message() {
    library("redis-pipelined");
    library("redis-manager");
}

#[test]
fn nats_by_its_library_delivers_every_message() {
    library("async-nats");
}

#[test]
fn rabbitmq_by_its_library_delivers_every_message() {
    // The server takes seconds to start, and is started for each row.
    library_under("lapin", &["full"], "--loads full --sizes 70000");
}

#[test]
fn mosquitto_by_its_library_delivers_every_message() {
    library("rumqttc");
}

#[test]
fn zenoh_by_its_library_delivers_every_message() {
    library("zenoh");
}

#[test]
fn messages_without_flow_control_are_counted() {
    let folder = tempfile::tempdir().unwrap();
    let line = "libraries --library rbmq,async-nats --loads full --sizes 64 --subscribers 2 --not-held-back";
    bench(line, folder.path());
    for row in rows(folder.path(), "libraries") {
        assert_eq!(row["held_back"], false, "{row}");
        assert!(row["library"] != "rbmq" || row["dropped"] == 0, "{row}");
    }
}

#[test]
fn a_server_ends_with_a_bench_that_is_killed() {
    let temporary = tempfile::tempdir().unwrap();
    let line = "throughput --system redis --sizes 8 --subscribers 0 --seconds 50";
    let mut command = command(line.split_whitespace());
    command.env("TMPDIR", temporary.path());
    let mut bench = Process::start(command);
    let mut skipped = false;
    until("the server runs", || {
        skipped = !bench.is_running();
        skipped || !working_below(temporary.path()).is_empty()
    });
    if skipped {
        return eprintln!("{}", bench.finish().stderr);
    }
    bench.signal("KILL");
    drop(bench);
    nothing_is_left(temporary.path());
}

#[test]
fn a_bench_says_what_is_wrong() {
    let wrong = |line: &str| {
        let outcome = Process::start(command(line.split_whitespace())).finish();
        assert!(!outcome.status.success());
        outcome.stderr
    };
    assert!(wrong("throughput --publishers 65").contains("1 to 64, or auto"));
    assert!(wrong("throughput --seconds 0").contains("--seconds must be above 0"));
    assert!(wrong("throughput --system relay --api message").contains("the relay has --api batch"));
    assert!(wrong("throughput --api wire --transport shm").contains("--api wire has --transport tcp"));
    assert!(wrong("latency --size 7").contains("--size must be at least 8"));
    assert!(wrong("cpu --loads 8").contains("BYTES@MESSAGES_PER_SECOND"));
}
