//! A server whose process, interface or disk fails: the view of its clients, and the counts.

use std::fs::File;
use std::io::{Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime};

use serde_json::Value;
use testkit::{Process, Random, until};

use crate::common::{Server, in_world, multimqc, must, numbered, output, push};

/// A tunnel or a line of DSL takes less than an Ethernet frame: long replies go in fragments.
#[test]
fn long_replies_pass_a_narrow_link() {
    in_world("faults::long_replies_pass_a_narrow_link", || {
        must("ip link set lo mtu 1280");
        for address in ["127.0.0.1", "::1"] {
            let folder = tempfile::tempdir().expect("a folder");
            let server =
                Server::start(folder.path(), &["--levels", "user", "--topic", "0", "--address", address]);
            let line = format!("{}\n", "x".repeat(5000));
            push(&server, &line);
            server.wait_for_pushes(1);
            let pulled = output(&mut server.client(&["pull"]));
            assert!(pulled.status.success(), "{address}: {}", String::from_utf8_lossy(&pulled.stderr));
            assert_eq!(pulled.stdout, line.as_bytes());
        }
    });
}

/// The bytes of a message that wastes little of the room of a socket.
const LARGE: usize = 15_000;

/// Writes a configuration file, and returns its path.
fn configuration(folder: &Path, text: &str) -> String {
    let path = folder.join("multimqc.toml");
    std::fs::write(&path, text).expect("a file");
    path.display().to_string()
}

/// The report of a level.
fn level(stat: &Value, name: &str) -> Value {
    let levels = stat["topics"][0]["levels"].as_array().expect("a list");
    levels.iter().find(|level| level["level"] == name).expect("the level").clone()
}

fn wait_for_head(server: &Server, name: &str, head: u64) {
    until(&format!("{name} comes to {head}"), || level(&server.stat(), name)["head"] == head);
}

/// Sends numbered messages of a size. A server that is not scheduled meanwhile loses none if its socket has room for all: 8 MiB as the
/// kernel counts, which takes 768 bytes for each small message, and 16.5 KiB for one of [`LARGE`].
fn pusher(server: &Server, count: u64, size: usize, rate: &str) -> Process {
    let (count, size) = (count.to_string(), size.to_string());
    Process::start(server.client(&["push", "--count", &count, "--size", &size, "--rate", rate]))
}

/// Everything from the beginning on, with the status and the error.
fn pull(server: &Server) -> (Option<i32>, Vec<u8>, String) {
    let pulled = output(&mut server.client(&["pull", "--from", "0"]));
    (pulled.status.code(), pulled.stdout, String::from_utf8_lossy(&pulled.stderr).into_owned())
}

/// The ring is kept and stores on, so a server that is killed under load, again and again, loses nothing.
#[test]
fn kills_under_load_lose_nothing() {
    in_world("faults::kills_under_load_lose_nothing", || {
        const COUNT: u64 = 40_000;
        let kills = std::env::var("KILLS").map_or(8, |kills| kills.parse().expect("a number"));
        let now =
            SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("a clock").as_nanos() as u64;
        let seed = std::env::var("KILL_SEED").map_or(now, |seed| seed.parse().expect("a number"));
        eprintln!("KILL_SEED={seed}");
        let mut random = Random::new(seed);
        let folder = tempfile::tempdir().expect("a folder");
        let text = "levels = [\"kernel\", \"user\", \"disk\"]\nmax_age_ms = 5\n[kernel]\ninterface = \"lo\"\n\
                    keep = \"/sys/fs/bpf/kills\"\n[[topics]]\nid = 0\n";
        let file = configuration(folder.path(), text);
        let start = || Server::start(folder.path(), &["--config", &file, "--port", "19997"]);
        let mut server = start();
        let sending = pusher(&server, COUNT, 32, "4000");
        for _ in 0..kills {
            std::thread::sleep(Duration::from_millis(random.below(1200)));
            drop(server);
            std::thread::sleep(Duration::from_millis(random.below(100)));
            server = start();
        }
        sending.finish().good();
        wait_for_head(&server, "disk", COUNT * 32);
        let stat = server.stat();
        assert_eq!(
            (&level(&stat, "kernel")["messages"], &stat["repairs"]),
            (&COUNT.into(), &Value::Array(vec![]))
        );
        assert!(
            pull(&server) == (Some(0), numbered(COUNT, 32), String::new()),
            "every byte, from all levels"
        );
        server.end("INT");
        must(&format!("{} detach /sys/fs/bpf/kills", env!("CARGO_BIN_EXE_multimqc")));
    });
}

/// A process that keeps a network namespace while it lives.
fn namespace() -> Process {
    let mut sleeper = Command::new("unshare");
    sleeper.args(["-n", "sleep", "600"]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    Process::start(sleeper)
}

/// The interface is removed and made again while the server runs.
#[test]
fn an_interface_that_comes_back_is_attached_again() {
    in_world("faults::an_interface_that_comes_back_is_attached_again", || {
        let client = namespace();
        let pid = client.id();
        let here = std::fs::read_link("/proc/self/ns/net").expect("a namespace");
        until("the client's namespace", || {
            std::fs::read_link(format!("/proc/{pid}/ns/net")).is_ok_and(|there| there != here)
        });
        let add = || {
            must(&format!("ip link add v0 type veth peer name v1 netns {pid}"));
            must("ip addr add 10.9.8.2/24 dev v0");
            must("ip link set v0 up");
            must(&format!("nsenter -t {pid} -n ip addr add 10.9.8.1/24 dev v1"));
            must(&format!("nsenter -t {pid} -n ip link set v1 up"));
        };
        let folder = tempfile::tempdir().expect("a folder");
        add();
        // Replies of a driver of this kind need a program at the other end as well, so not in the driver.
        let options = ["--levels", "kernel,user,disk", "--interface", "v0", "--mode", "xdp-generic"];
        let address = ["--address", "10.9.8.2", "--port", "19997", "--topic", "0"];
        let server = Server::start(folder.path(), &[options, address].concat());
        let at_client = |args: &[&str]| {
            let mut command = Command::new("nsenter");
            command.args(["-t", &pid.to_string(), "-n", env!("CARGO_BIN_EXE_multimqc")]).args(args);
            output(command.args(["--server", "10.9.8.2:19997"]).stdin(Stdio::null()))
        };
        let send = || at_client(&["push", "--count", "100", "--size", "32", "--rate", "10000"]);
        assert!(send().status.success());
        wait_for_head(&server, "disk", 3200);
        must("ip link del v0");
        until("the loss is told", || server.stat()["kernel"]["attached"] == false);
        assert_eq!(level(&server.stat(), "kernel")["head"], 3200, "the ring is still there");
        add();
        until("the return is told", || server.stat()["kernel"]["attached"] == true);
        assert_eq!(server.stat()["kernel"]["returns"], 1);
        assert!(send().status.success());
        wait_for_head(&server, "disk", 6400);
        assert_eq!(level(&server.stat(), "kernel")["messages"], 200, "the programs have stored them");
        let pulled = at_client(&["pull", "--from", "0"]);
        assert!(pulled.stdout == [numbered(100, 32), numbered(100, 32)].concat(), "every byte");
        server.end("INT");
    });
}

/// A disk of 3 MiB. Readers notice nothing as long as the level before it has the bytes.
#[test]
fn a_full_disk_is_filled_up_once_it_has_room() {
    in_world("faults::a_full_disk_is_filled_up_once_it_has_room", || {
        const COUNT: u64 = 420;
        const SIZE: usize = LARGE;
        let folder = tempfile::tempdir().expect("a folder");
        let disk = folder.path().join("disk");
        std::fs::create_dir(&disk).expect("a folder");
        must(&format!("mount -t tmpfs -o size=3m tmpfs {}", disk.display()));
        let file = configuration(folder.path(), "[disk]\nsegment_bytes = 262144\n[[topics]]\nid = 0\n");
        let server = Server::start(folder.path(), &["--config", &file]);
        pusher(&server, COUNT, SIZE, "20000").finish().good();
        server.wait_for_pushes(COUNT);
        until("the failure is told", || {
            let stat = server.stat();
            let error = stat["transfers"][0]["last_error"].as_str().unwrap_or_default().to_owned();
            error.contains("no space left") && level(&stat, "disk")["refused"].as_u64() > Some(0)
        });
        assert!(pull(&server) == (Some(0), numbered(COUNT, SIZE), String::new()), "from the ring");
        must(&format!("mount -o remount,size=64m {}", disk.display()));
        wait_for_head(&server, "disk", COUNT * SIZE as u64);
        let stat = server.stat();
        assert_eq!((&level(&stat, "disk")["holes"], &stat["transfers"][0]["holes"]), (&0.into(), &0.into()));
        assert!(stat["transfers"][0]["last_error"].is_null(), "{stat}");
        server.end("INT");
        let server = Server::start(folder.path(), &["--levels", "disk", "--topic", "0"]);
        assert!(pull(&server) == (Some(0), numbered(COUNT, SIZE), String::new()), "from the disk");
        server.end("INT");
        must(&format!("umount {}", disk.display()));
    });
}

/// A server does not start on a disk without any room, and says why.
#[test]
fn a_server_on_a_disk_without_room_says_so() {
    in_world("faults::a_server_on_a_disk_without_room_says_so", || {
        let folder = tempfile::tempdir().expect("a folder");
        let disk = folder.path().join("disk");
        std::fs::create_dir(&disk).expect("a folder");
        must(&format!("mount -t tmpfs -o size=64k tmpfs {}", disk.display()));
        must(&format!("dd if=/dev/zero of={}/other bs=65536 count=1 status=none", disk.display()));
        let directory = disk.display().to_string();
        let failed =
            output(&mut multimqc(&["serve", "--port", "0", "--topic", "0", "--directory", &directory]));
        let error = String::from_utf8_lossy(&failed.stderr);
        assert_eq!(failed.status.code(), Some(1));
        assert!(error.contains("topic 0 in the level disk: no space left"), "{error}");
        must(&format!("umount {}", disk.display()));
    });
}

/// The segment files of topic 0, in order.
fn segments(folder: &Path) -> Vec<PathBuf> {
    let mut segments: Vec<_> = std::fs::read_dir(folder.join("disk/topic-00000"))
        .expect("a folder")
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "seg"))
        .collect();
    segments.sort();
    segments
}

/// Bytes at the end of the last file are gone after an orderly end: they are a hole, and their offsets are not used again.
#[test]
fn a_cut_end_is_a_hole() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = configuration(folder.path(), "[[topics]]\nid = 0\npush_port = 0\n");
    let server = Server::start(folder.path(), &["--config", &file]);
    pusher(&server, 1000, 32, "20000").finish().good();
    wait_for_head(&server, "disk", 32_000);
    server.end("INT");
    let last = segments(folder.path()).pop().expect("a segment");
    let file = File::options().write(true).open(last).expect("a segment");
    file.set_len(file.metadata().expect("a length").len() - 50).expect("a cut");
    let server = Server::start(folder.path(), &["--levels", "disk", "--topic", "0"]);
    assert!(level(&server.stat(), "disk")["damaged"].as_u64() > Some(0), "{}", server.stat());
    push(&server, "and on");
    wait_for_head(&server, "disk", 32_006);
    let (status, bytes, error) = pull(&server);
    assert_eq!(status, Some(3), "bytes are missing");
    assert!(error.contains("were lost (a hole)"), "{error}");
    let kept = bytes.strip_suffix(b"and on").expect("what came later");
    assert!(numbered(1000, 32).starts_with(kept) && kept.len() < 32_000);
    let log = server.end("INT");
    let told = format!(
        "topic 0: {} bytes from offset {} to 32000 are damaged or missing",
        32_000 - kept.len(),
        kept.len()
    );
    assert!(log.contains(&told), "{log}");
}

/// A block of a segment file is damaged: its range is a hole, and everything else is answered.
#[test]
fn a_damaged_segment_is_a_hole() {
    const COUNT: u64 = 8_000;
    let folder = tempfile::tempdir().expect("a folder");
    let file =
        configuration(folder.path(), "[disk]\nsegment_bytes = 65536\n[[topics]]\nid = 0\npush_port = 0\n");
    let server = Server::start(folder.path(), &["--config", &file]);
    pusher(&server, COUNT, 32, "20000").finish().good();
    wait_for_head(&server, "disk", COUNT * 32);
    server.end("INT");
    let segments = segments(folder.path());
    let mut damaged = File::options().write(true).open(&segments[1]).expect("a segment");
    damaged.seek(SeekFrom::Start(20_000)).expect("a place");
    damaged.write_all(&[0xA5; 512]).expect("damage");
    let server = Server::start(folder.path(), &["--levels", "disk", "--topic", "0"]);
    let (status, bytes, error) = pull(&server);
    assert_eq!(status, Some(3), "bytes are missing");
    assert!(error.contains("were lost (a hole)"), "{error}");
    let all = numbered(COUNT, 32);
    let before = bytes.iter().zip(&all).take_while(|(got, sent)| got == sent).count();
    let rest = &bytes[before..];
    assert!(before > 0 && !rest.is_empty() && all.ends_with(rest), "everything but the damage, in its order");
    assert!(level(&server.stat(), "disk")["damaged"].as_u64() > Some(0), "{}", server.stat());
    push(&server, "and on");
    wait_for_head(&server, "disk", COUNT * 32 + 6);
}

/// A server that is killed with a full disk goes on, once there is room, behind the gap that its clients are told.
#[test]
fn a_server_killed_on_a_full_disk_goes_on() {
    in_world("faults::a_server_killed_on_a_full_disk_goes_on", || {
        const COUNT: u64 = 210;
        const SIZE: usize = LARGE;
        let folder = tempfile::tempdir().expect("a folder");
        let disk = folder.path().join("disk");
        std::fs::create_dir(&disk).expect("a folder");
        must(&format!("mount -t tmpfs -o size=2m tmpfs {}", disk.display()));
        let text = "[disk]\nsegment_bytes = 262144\nrestart_gap_bytes = 8388608\n[[topics]]\nid = 0\n";
        let file = configuration(folder.path(), text);
        let server = Server::start(folder.path(), &["--config", &file]);
        pusher(&server, COUNT, SIZE, "20000").finish().good();
        until("the disk is full", || level(&server.stat(), "disk")["refused"].as_u64() > Some(0));
        let kept = level(&server.stat(), "disk")["head"].as_u64().expect("a head");
        drop(server);
        must(&format!("mount -o remount,size=64m {}", disk.display()));
        let server = Server::start(folder.path(), &["--config", &file]);
        push(&server, "after\n");
        wait_for_head(&server, "disk", kept + 8_388_608 + 6);
        let (status, bytes, error) = pull(&server);
        assert_eq!(status, Some(3), "bytes are missing");
        assert!(error.contains("were lost (a hole)"), "{error}");
        let expected = [&numbered(COUNT, SIZE)[..kept as usize], b"after\n"].concat();
        assert!(bytes == expected, "what the disk had, and what came after");
        server.end("INT");
        must(&format!("umount {}", disk.display()));
    });
}
