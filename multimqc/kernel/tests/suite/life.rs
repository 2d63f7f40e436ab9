//! Rings outlive processes: kept, killed, upgraded, detached; and interfaces go.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use multimqc::wire::PUSH_PORT;
use multimqc::{Epoch, Stop, TopicId};
use multimqc_kernel::{Config, Kernel, KernelError, Mode, Ports, Topic, detach};

use crate::common;
use crate::common::net::{self, SERVER, in_world};

const TOPIC: TopicId = TopicId(7);
const KEEP: &str = "/sys/fs/bpf/multimqc-test";
/// Set for a process that holds the level until it is killed: the mode.
const CHILD: &str = "MULTIMQC_TEST_CHILD";

fn config() -> Config {
    Config::default().ring_bytes(1 << 16).batch_bytes(4096).keep(Some(PathBuf::from(KEEP)))
}

fn open(config: Config, start: u64) -> Option<(Kernel, Topic)> {
    let kernel = common::kernel(config)?;
    let topic = kernel.open(TOPIC, Ports::default(), start, Epoch(start as u32 + 1)).expect("a topic");
    kernel.attach("v0").expect("it can be attached");
    Some((kernel, topic))
}

/// The whole window.
fn content(topic: &Topic) -> Vec<u8> {
    let window = topic.window();
    let mut out = vec![0; window.bytes() as usize + 1];
    let found = topic.read(window.first, &mut out);
    assert_eq!((found.bytes as u64, found.stop), (window.bytes(), Stop::Head));
    out.truncate(found.bytes);
    out
}

fn wait_for(topic: &Topic, expected: &[u8]) {
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(20);
    while content(topic) != expected {
        assert!(std::time::Instant::now() < deadline, "{:?}", String::from_utf8_lossy(&content(topic)));
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
}

/// Not a test of its own: the process that is killed.
#[test]
fn child() {
    let Ok(mode) = std::env::var(CHILD) else { return };
    let mode = if mode == "netfilter" { Mode::Netfilter } else { Mode::Auto };
    let Some(_level) = open(config().mode(mode), 100) else { return };
    println!("\nattached");
    loop {
        std::thread::park();
    }
}

/// Starts a process that holds the level.
fn start_child(mode: &str) -> std::process::Child {
    // Not by its path, which is another one in a namespace of mounts that was made in a chroot.
    let mut child = Command::new("/proc/self/exe")
        .args(["life::child", "--exact", "--nocapture"])
        .env(CHILD, mode)
        .stdout(Stdio::piped())
        .spawn()
        .expect("a process");
    let output = BufReader::new(child.stdout.take().expect("a pipe"));
    assert!(output.lines().map_while(Result::ok).any(|line| line == "attached"), "it is attached");
    child
}

fn killed_and_restarted(mode: Mode, name: &str) {
    in_world(|world| {
        if common::kernel(Config::default().ring_bytes(4096).batch_bytes(1024)).is_none() {
            return;
        }
        let client = world.client_socket();
        let mut child = start_child(name);
        let refused = Kernel::new(config().mode(mode)).expect_err("another process has it");
        assert!(matches!(refused, KernelError::InUse(_)), "{refused}");
        client.send_to(b"before, ", (SERVER, PUSH_PORT)).expect("sent");
        child.kill().expect("killed");
        child.wait().expect("gone");
        client.send_to(b"meanwhile, ", (SERVER, PUSH_PORT)).expect("sent");
        let Some((kernel, topic)) = open(config().mode(mode), 5_000) else { return };
        client.send_to(b"after", (SERVER, PUSH_PORT)).expect("sent");
        wait_for(&topic, b"before, meanwhile, after");
        let window = topic.window();
        assert_eq!((window.first, window.epoch), (100, Epoch(101)), "the log goes on, with its epoch");
        let refused = detach(KEEP.as_ref()).expect_err("it is used");
        assert!(matches!(refused, KernelError::InUse(_)), "{refused}");
        drop(kernel);
        assert!(detach(KEEP.as_ref()).expect("detached"));
        assert!(!detach(KEEP.as_ref()).expect("nothing is left"));
        assert!(!std::path::Path::new(KEEP).exists());
        assert!(!net::ip("-d link show v0").expect("ip").contains("xdp"), "nothing is attached");
        let socket = net::socket(SERVER, PUSH_PORT);
        client.send_to(b"to user space", (SERVER, PUSH_PORT)).expect("sent");
        assert_eq!(socket.recv_from(&mut [0; 100]).expect("untouched").0, 13);
        wait_for(&topic, b"before, meanwhile, after");
    });
}

#[test]
fn a_killed_process_keeps_its_ring() {
    killed_and_restarted(Mode::Auto, "auto");
}

#[test]
fn a_killed_process_keeps_its_ring_in_netfilter() {
    killed_and_restarted(Mode::Netfilter, "netfilter");
}

#[test]
fn a_level_that_is_not_kept_ends_with_its_owner() {
    in_world(|world| {
        let Some((kernel, topic)) = open(config().keep(None), 0) else { return };
        let client = world.client_socket();
        client.send_to(b"message", (SERVER, PUSH_PORT)).expect("sent");
        wait_for(&topic, b"message");
        drop(kernel);
        assert!(!net::ip("-d link show v0").expect("ip").contains("xdp"), "nothing is attached");
        wait_for(&topic, b"message");
    });
}

#[test]
fn a_kept_ring_of_other_sizes_is_refused() {
    in_world(|_| {
        let Some((kernel, _)) = open(config(), 0) else { return };
        drop(kernel);
        let other = config().ring_bytes(1 << 17);
        let refused = Kernel::new(other.clone()).expect_err("another size").to_string();
        assert!(refused.contains("1 x 69632 bytes kept, 1 x 135168 bytes wanted"), "{refused}");
        assert!(detach(KEEP.as_ref()).expect("detached"));
    });
}

#[test]
fn an_interface_that_is_gone_takes_no_ring_with_it() {
    in_world(|world| {
        let Some((kernel, topic)) = open(config(), 0) else { return };
        let client = world.client_socket();
        client.send_to(b"before, ", (SERVER, PUSH_PORT)).expect("sent");
        wait_for(&topic, b"before, ");
        assert!(kernel.is_attached());
        net::ip("link del v0").expect("deleted");
        assert!(!kernel.is_attached());
        wait_for(&topic, b"before, ");
        let missing = kernel.attach("v0").expect_err("no interface");
        assert!(matches!(missing, KernelError::Interface { .. }), "{missing}");
        world.add_devices().expect("a new one");
        kernel.attach("v0").expect("it can be attached");
        assert!(kernel.is_attached());
        world.client_socket().send_to(b"after", (SERVER, PUSH_PORT)).expect("sent");
        wait_for(&topic, b"before, after");
        kernel.detach().expect("detached");
        assert!(!std::path::Path::new(KEEP).exists());
    });
}

#[test]
fn two_levels_exclude_each_other_on_an_interface() {
    in_world(|_| {
        let Some(_first) = open(config().keep(None), 0) else { return };
        let second = Kernel::new(config().keep(None)).expect("a level");
        let refused = second.attach("v0").expect_err("taken").to_string();
        assert!(refused.contains("cannot attach to v0 as xdp-native"), "{refused}");
    });
}

#[test]
fn topics_and_ports_have_limits() {
    let Some(kernel) = common::kernel(config().keep(None).max_topics(2)) else { return };
    let ports = |push, header| Ports { push, pull: 0, header };
    let open = |id, ports| kernel.open(TopicId(id), ports, 0, Epoch(1)).map(|topic| topic.id());
    assert_eq!(open(1, ports(1000, 500)).expect("a topic"), TopicId(1));
    assert!(matches!(open(2, ports(1000, 0)), Err(KernelError::PortTaken(1000))));
    assert!(matches!(open(2, ports(500, 0)), Err(KernelError::PortTaken(500))));
    assert!(matches!(open(2, ports(7, 7)), Err(KernelError::PortTaken(7))));
    assert_eq!(open(2, ports(1001, 500)).expect("a topic"), TopicId(2));
    assert_eq!(open(1, ports(1000, 500)).expect("open already"), TopicId(1));
    let full = open(3, ports(1002, 0)).expect_err("full").to_string();
    assert!(full.contains("no room for topic 3: the level has 2"), "{full}");
}
