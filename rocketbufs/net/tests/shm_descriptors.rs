//! Descriptors that offers carry: an offer in the queue uses no descriptor, and where the process has no room for one more, a
//! subscription is refused and the connection continues. And descriptors of which a child has copies.

#[path = "suite/wait.rs"]
mod wait;

use std::io::Read;
use std::os::fd::OwnedFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use rocketnet::tcp::{Carry, Tcp, TcpConfig};
use rocketnet::{ConnId, Event, Transport};
use rocketring::{MapError, Pool, PoolConfig, Ring, RingConfig, Waker};
use rustix::net::sockopt;
use rustix::process::{
    PidfdFlags, PidfdGetfdFlags, Resource, Rlimit, getpid, getrlimit, pidfd_getfd, pidfd_open, setrlimit,
};
use wait::wait;

/// Descriptors are those of the whole process: one test at a time.
static ALONE: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    ALONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

fn link() -> Tcp {
    let config = TcpConfig { carry: Carry::Shm, ..TcpConfig::default() };
    Tcp::new(config, Arc::new(Waker::new().expect("an eventfd"))).expect("a transport")
}

/// A connection of a transport that listens, and its peer.
fn accepted(link: &mut Tcp, connect: impl FnOnce(&str) -> UnixStream) -> (ConnId, UnixStream) {
    let addr = link.listen("127.0.0.1:0").expect("a free name");
    let peer = connect(&addr);
    let accepted =
        wait(link, |event| if let Event::Incoming(accepted) = event { Some(accepted) } else { None });
    (link.adopt(accepted).expect("place for one"), peer)
}

fn stream(addr: &str) -> UnixStream {
    let name = SocketAddr::from_abstract_name(format!("rocketbufs/{addr}")).expect("a short name");
    UnixStream::connect_addr(&name).expect("a process listens")
}

fn ring() -> Ring {
    let pool = Pool::new(PoolConfig::default()).expect("a pool");
    pool.shared_ring(RingConfig { capacity_bytes: 64 << 10, ..RingConfig::default() }).expect("a ring")
}

/// The environment variable that marks the child process without privileges.
const ROLE: &str = "SHM_DESCRIPTORS_ROLE";

fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").expect("the file exists").count()
}

/// The port of a listener for shared memory is not free for TCP, because a client that connects to it tries shared memory
/// first.
#[test]
fn a_port_for_shared_memory_is_reserved() {
    let _alone = alone();
    let mut link = link();
    let before = descriptors();
    let addr = link.listen("127.0.0.1:0").expect("a free name");
    let taken = std::net::TcpListener::bind(&addr).map(|_| ());
    assert_eq!(taken.map_err(|error| error.kind()), Err(std::io::ErrorKind::AddrInUse));
    link.unlisten(&addr);
    // Whoever asks for a port may get it now.
    assert_eq!(descriptors(), before);
}

#[test]
fn offers_that_wait_cost_no_descriptors() {
    let _alone = alone();
    let (mut link, ring) = (link(), ring());
    let (conn, _peer) = accepted(&mut link, stream);
    let before = descriptors();
    for wire in 0..100 {
        assert!(link.offer(conn, wire, &ring, 0));
    }
    assert_eq!(descriptors(), before);
}

#[test]
fn a_process_without_descriptors_refuses_the_ring_and_keeps_the_connection() {
    let _alone = alone();
    let (mut to, mut from, ring) = (link(), link(), ring());
    let addr = to.listen("127.0.0.1:0").expect("a free name");
    let sender = from.connect(&addr).expect("an address");
    let accepted =
        wait(&mut to, |event| if let Event::Incoming(accepted) = event { Some(accepted) } else { None });
    to.adopt(accepted).expect("place for one");
    wait(&mut from, |event| matches!(event, Event::Connected(_)).then_some(()));
    let mut offer = |wire| {
        assert!(from.offer(sender, wire, &ring, 0));
        assert!(from.flush(sender));
        wait(&mut to, |event| match event {
            Event::Offered(_, of, offered) if of == wire => Some(offered.ring),
            Event::Down(_, why) => panic!("{why}"),
            _ => None,
        })
    };
    let before = getrlimit(Resource::Nofile);
    // All that are below are in use.
    setrlimit(Resource::Nofile, Rlimit { current: Some(3), ..before }).expect("less is allowed");
    let refused = offer(1);
    setrlimit(Resource::Nofile, before).expect("as it was");
    assert!(matches!(refused, Err(MapError::Os(_))), "{refused:?}");
    assert!(offer(2).is_ok());
}

/// Not a test: a user may have only so many descriptors under way, unless it is privileged.
#[test]
fn child() {
    if std::env::var_os(ROLE).is_none() {
        return;
    }
    let (mut link, ring) = (link(), ring());
    let (conn, mut peer) = accepted(&mut link, stream);
    setrlimit(Resource::Nofile, Rlimit { current: Some(32), ..getrlimit(Resource::Nofile) }).expect("less");
    for wire in 0..200 {
        assert!(link.offer(conn, wire, &ring, 0));
    }
    assert!(!link.flush(conn), "more than may be under way");
    peer.set_nonblocking(true).expect("a socket");
    let mut left = 200 * rocketnet::wire::LOCAL_BYTES;
    for _ in 0..60_000 {
        let mut events = Vec::new();
        link.poll(Some(Duration::from_millis(1)), &mut events);
        for event in events {
            assert!(!matches!(event, Event::Down(..)), "{event:?}");
        }
        // Descriptors that are read as bytes are closed.
        left -= peer.read(&mut [0; 1 << 10]).unwrap_or(0);
        if left == 0 {
            return println!("all came");
        }
    }
}

#[test]
fn too_many_descriptors_under_way_wait() {
    let _alone = alone();
    let mut child = Command::new(std::env::current_exe().expect("the program of this test"));
    child.args(["--exact", "child", "--nocapture"]).env(ROLE, "1");
    if rustix::process::geteuid().is_root() {
        child.uid(65_534).gid(65_534);
    }
    let done = match child.output() {
        Err(e) if e.kind() == std::io::ErrorKind::PermissionDenied => {
            println!("SKIPPED: another user cannot run this program");
            return;
        }
        done => done.expect("a process"),
    };
    let said = String::from_utf8_lossy(&done.stdout);
    assert!(done.status.success() && said.contains("all came"), "{said}");
}

/// Copies of all sockets of this process, as a child of `fork` has them until it runs another program or ends. None where a process may not
/// copy its own descriptors, as in some sandboxes.
fn copies() -> Option<Vec<OwnedFd>> {
    let own = pidfd_open(getpid(), PidfdFlags::empty()).ok()?;
    pidfd_getfd(&own, 0, PidfdGetfdFlags::empty()).ok()?;
    let open = std::fs::read_dir("/proc/self/fd").expect("the file exists").flatten();
    let numbers = open.filter_map(|fd| fd.file_name().to_str()?.parse().ok());
    let copies = numbers.filter_map(|fd| pidfd_getfd(&own, fd, PidfdGetfdFlags::empty()).ok());
    Some(copies.filter(|fd| sockopt::socket_type(fd).is_ok()).collect())
}

/// What all epoll sets of this process watch.
fn watched() -> usize {
    let all = std::fs::read_dir("/proc/self/fdinfo").expect("the file exists").flatten();
    let texts = all.filter_map(|info| std::fs::read_to_string(info.path()).ok());
    texts.map(|text| text.lines().filter(|line| line.starts_with("tfd:")).count()).sum()
}

/// Whoever has copies: the peer learns of the end, nothing is watched in vain, and another listener gets the address.
#[test]
fn the_end_of_a_socket_of_which_a_child_has_a_copy_is_an_end() {
    let _alone = alone();
    for carry in [Carry::Tcp, Carry::Shm] {
        let start = || {
            let config = TcpConfig { carry, ..TcpConfig::default() };
            Tcp::new(config, Arc::new(Waker::new().expect("an eventfd"))).expect("a transport")
        };
        let (mut listens, mut dials, mut stays) = (start(), start(), start());
        let before = watched();
        let addr = listens.listen(&testkit::own_addr()).expect("an address of its own");
        let mut meet = |end: &mut Tcp| {
            let conn = end.connect(&addr).expect("an address");
            let accepted =
                wait(&mut listens, |event| if let Event::Incoming(one) = event { Some(one) } else { None });
            listens.adopt(accepted).expect("place for one");
            wait(end, |event| matches!(event, Event::Connected(_)).then_some(()));
            conn
        };
        let (_gone, closed) = (meet(&mut dials), meet(&mut stays));
        let Some(copies) = copies() else {
            return println!("SKIPPED: a process may not copy its own descriptors here");
        };
        assert!(copies.len() >= 5, "a listener and two ends of two connections: {}", copies.len());
        drop(dials);
        stays.close(closed, "enough", Duration::ZERO);
        let mut left = 2;
        wait(&mut listens, |event| {
            left -= i32::from(matches!(event, Event::Down(..)));
            (left == 0).then_some(())
        });
        listens.unlisten(&addr);
        // The waker of the transport that is gone.
        assert_eq!(watched(), before - 1, "{carry:?}");
        if carry == Carry::Tcp {
            listens.listen(&addr).expect("the address is free");
        }
        drop(copies);
    }
}
