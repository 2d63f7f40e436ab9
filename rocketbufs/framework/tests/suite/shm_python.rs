//! Any language: a Python script without a library of ours receives a buffer through shared memory, byte for byte.

use std::io::Read;
use std::process::{Command, Stdio};
use std::time::Duration;

use rocketbufs::config::TransportKind;
use rocketbufs::{Config, Context, Listener, OutEvent, ROut};

const WAIT: Duration = Duration::from_secs(60);
const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/python/shm_subscribe.py");

fn bytes(from: u64, len: usize) -> Vec<u8> {
    (from..from + len as u64).map(|p| (p.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56) as u8).collect()
}

fn has_python() -> bool {
    let knows = "import socket; socket.recv_fds";
    let has = Command::new("python3").args(["-c", knows]).status().is_ok_and(|status| status.success());
    if !has {
        println!("SKIPPED: no python3 of at least 3.9 here");
    }
    has
}

/// An rOut that serves every connection over shared memory.
fn listening() -> (Context, ROut, Listener) {
    let ctx = Context::new(Config { transport: TransportKind::Shm, ..Config::default() }).unwrap();
    let out = ROut::new(&ctx);
    let listener = Listener::bind(&ctx, "127.0.0.1:0").unwrap();
    let to = out.clone();
    listener.set_conn_cb(move |conn| to.add_conn(&conn));
    (ctx, out, listener)
}

/// The exit code of the script, and the line that it prints.
fn ends(args: &[&str]) -> (Option<i32>, String) {
    let output = Command::new("python3").arg(SCRIPT).args(args).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(said.lines().count(), 1, "{said}");
    (output.status.code(), said)
}

#[test]
fn a_script_names_the_fault_in_one_line() {
    if !has_python() {
        return;
    }
    let (_ctx, _out, listener) = listening();
    let addr = listener.local_addr();
    for (args, status, says) in [
        (&[][..], 2, "usage: "),
        (&["here", "7"], 2, "'here' is no address"),
        (&[&addr, "seven"], 2, "'seven' is no buffer number"),
        (&["127.0.0.1:1", "7"], 1, "no process listens at 127.0.0.1:1"),
        (&[&addr, "7"], 1, "buffer 7 was refused: there is no such buffer"),
    ] {
        let (ended, said) = ends(args);
        assert!(ended == Some(status) && said.contains(says), "{ended:?}: {said}");
    }
}

#[test]
fn a_script_without_a_library_receives_every_byte() {
    if !has_python() {
        return;
    }
    let (_ctx, out, listener) = listening();
    out.create_buffer(7, 1 << 16).unwrap();
    let (tell, told) = std::sync::mpsc::sync_channel(16);
    out.set_event_cb(move |event| {
        if matches!(event, OutEvent::Subscribed { .. }) {
            let _ = tell.try_send(());
        }
    });

    let mut script = Command::new("python3")
        .args([SCRIPT, &listener.local_addr(), "7"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdout = script.stdout.take().unwrap();
    let reader = std::thread::spawn(move || {
        let mut all = Vec::new();
        stdout.read_to_end(&mut all).unwrap();
        all
    });
    told.recv_timeout(WAIT).unwrap();
    let total = 2 << 20;
    let mut left = total;
    for n in 0.. {
        let size = (1 + n * 1_237 % 15_000).min(left);
        let mut segment = out.buffer(7).unwrap().segment(size, Some(WAIT)).unwrap();
        let at = segment.position();
        segment.bytes_mut().copy_from_slice(&bytes(at, size as usize));
        out.deliver(segment, size, None).unwrap();
        left -= size;
        if left == 0 {
            break;
        }
    }
    out.destroy_buffer(7).unwrap();
    out.buffer(7).map_or(Ok(()), |buffer| buffer.drain(Some(WAIT))).unwrap();
    assert!(reader.join().unwrap() == bytes(0, total as usize), "the bytes are not the written ones");
    assert!(script.wait().unwrap().success());
}
