//! Floods of connections that say nothing of use, from addresses of their own, against a listener of any product.

use std::io::{ErrorKind, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::process::Command;

use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, connect, socket_with};

use crate::{LONG, skip, until};

/// What a stranger sends before it stays silent, and what a listener may keep of that.
const POURED: usize = 512 << 10;
/// The most memory that a stranger may take, in KiB, and that a process may take besides.
const KIB_OF_EACH: u64 = 128;
const KIB_BESIDES: u64 = 4 << 10;
/// Set in a network namespace of a test.
const OWN_NETWORK: &str = "TESTKIT_OWN_NETWORK";

/// A listener of a process, whose places strangers try to take.
pub struct Door {
    /// What it is for.
    pub name: &'static str,
    /// Where it listens.
    pub address: SocketAddr,
    /// How many connections it has at most.
    pub places: u32,
    /// How a stranger begins, and what every other one sends after that again and again.
    pub begin: [Vec<u8>; 2],
    /// Whether a client is served.
    pub serves: fn(TcpStream) -> bool,
}

/// Connects from an address of this machine.
///
/// # Panics
/// It is none, or the other end does not listen.
pub fn connect_from(source: IpAddr, to: SocketAddr) -> TcpStream {
    let family = if to.is_ipv6() { AddressFamily::INET6 } else { AddressFamily::INET };
    let socket = socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, None).expect("a socket");
    bind(&socket, &SocketAddr::new(source, 0)).unwrap_or_else(|e| panic!("{source}: {e}"));
    connect(&socket, &to).unwrap_or_else(|e| panic!("{to}: {e}"));
    let stream = TcpStream::from(socket);
    stream.set_read_timeout(Some(LONG)).expect("a time");
    stream
}

impl Door {
    /// Strangers at these addresses take places until twice as many have tried as there are, and a client of another address is
    /// served all the same. The memory of the process stays bounded.
    ///
    /// # Panics
    /// It is not so.
    pub fn is_open_to_others(&self, strangers: impl Fn(u32) -> IpAddr, client: IpAddr, process: u32) {
        let Self { name, address, places, .. } = self;
        let before = resident_kib(process);
        let mut flood: Vec<TcpStream> = Vec::new();
        for n in 0..2 * places {
            flood.push(self.stranger(strangers(n), n % 2 == 1));
        }
        for n in 0..4 {
            let is_served = (self.serves)(connect_from(client, *address));
            assert!(is_served, "{name}: a client of another address is not served");
            flood.push(self.stranger(strangers(n), false));
        }
        let most = before + u64::from(*places) * KIB_OF_EACH + KIB_BESIDES;
        let after = resident_kib(process);
        assert!(after <= most, "{name}: {} KiB for at most {places} strangers", after - before);
        drop(flood);
        until("a client is served after the flood", || (self.serves)(connect_from(client, *address)));
    }

    fn stranger(&self, source: IpAddr, pours: bool) -> TcpStream {
        let stream = connect_from(source, self.address);
        stream.set_nonblocking(true).expect("a socket");
        let [first, again] = &self.begin;
        let mut sent = 0;
        // The listener takes no more, or has closed the connection: both are right.
        let mut pour = |bytes: &[u8]| match (&stream).write(bytes) {
            Ok(count) => {
                sent += count;
                sent < POURED && count == bytes.len()
            }
            Err(error) => error.kind() == ErrorKind::Interrupted,
        };
        let mut goes_on = pour(first) && pours;
        while goes_on {
            goes_on = pour(again);
        }
        stream
    }
}

/// The memory of a process in KiB, without the pages of files, such as its program: the system drops and reads these as it likes.
///
/// # Panics
/// There is no such process.
pub fn resident_kib(process: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).expect("a process");
    let kib = |name| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)).expect("its memory");
        line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number")
    };
    kib("RssAnon:") + kib("RssShmem:")
}

/// Whether this is a network namespace of a test, in which 2001:db8::/64 and 2001:db8:0:1::/64 are addresses of this machine. If not, runs
/// the test of this name there, and fails if it fails; that needs root, and is left out otherwise.
///
/// # Panics
/// The test fails there.
pub fn is_in_own_network(test: &str) -> bool {
    if std::env::var_os(OWN_NETWORK).is_some() {
        return true;
    }
    let prepare = "ip link set lo up && ip -6 route add local 2001:db8::/63 dev lo && \
                   echo 1 > /proc/sys/net/ipv6/ip_nonlocal_bind";
    let mut probe = Command::new("unshare");
    probe.args(["-n", "sh", "-c", prepare]);
    if !probe.output().is_ok_and(|output| output.status.success()) {
        skip(&format!("{test} (it needs root, unshare and ip, and IPv6)"));
        return false;
    }
    let program = std::env::current_exe().expect("this program");
    let mut again = Command::new("unshare");
    again.args(["-n", "sh", "-c", &format!("{prepare} && exec \"$0\" --exact \"$1\" --nocapture")]);
    let status = again.arg(program).arg(test).env(OWN_NETWORK, "1").status().expect("unshare");
    assert!(status.success(), "{test}, in a network namespace");
    false
}
