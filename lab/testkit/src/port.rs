//! Ports that a test has for itself, before a process listens there, between two that do, and when none does.
//!
//! A port that the system chose is anybody's as soon as its socket is closed: parallel tests ask for ports all the time. These are below
//! those that the system chooses from, and a process claims them by a name in the abstract namespace, which the kernel takes back
//! when the process ends, and which is another one in each network namespace, as ports are.
//!
//! ```text
//!   16384 .................................. 32767 | 32768 ............ 60999
//!   blocks of 32, each of one process at a time     | what bind(0) and connect choose
//! ```
//!
//! `own_port.py` beside this folder claims the same blocks for Python and for shells.

use std::collections::HashSet;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr as LocalAddr, UnixDatagram};
use std::sync::Mutex;

/// Below are the ports of known services.
const FIRST: u16 = 16_384;
const BLOCK: u16 = 32;
/// Where the system chooses from if it does not say so; the default of Linux.
const USUAL: u16 = 32_768;
const CHOSEN: &str = "/proc/sys/net/ipv4/ip_local_port_range";
/// What is left of a connection whose end both know: a listener may take its port.
const TIME_WAIT: &str = "06";

/// The blocks of this process, up to its end.
struct Blocks {
    claims: Vec<UnixDatagram>,
    /// Ports of the newest block that nobody asked for yet.
    left: Vec<u16>,
}

static OWN: Mutex<Blocks> = Mutex::new(Blocks { claims: Vec::new(), left: Vec::new() });

/// A port that no other test gets, of this process or another one, for TCP and UDP at any address of this machine, up to the end of the
/// process. No socket is bound to it.
///
/// # Panics
/// All are taken.
pub fn own_port() -> u16 {
    let mut own = OWN.lock().expect("no panic");
    loop {
        match own.left.pop() {
            Some(port) => return port,
            None => own.claim(),
        }
    }
}

/// An address of the loopback with a port of this process alone (see [`own_port`]).
///
/// # Panics
/// All ports are taken.
pub fn own_addr() -> String {
    SocketAddr::from((Ipv4Addr::LOCALHOST, own_port())).to_string()
}

impl Blocks {
    fn claim(&mut self) {
        let count = (u32::from(end()) - u32::from(FIRST)) / u32::from(BLOCK);
        // Each process begins elsewhere, so that a block has rested before the next one has it.
        let begin = std::process::id();
        let mut blocks = (0..count).map(|n| FIRST + (begin.wrapping_add(n) % count) as u16 * BLOCK);
        let (first, claim) = blocks.find_map(|first| Some((first, claim(first)?))).expect("a block is left");
        self.claims.push(claim);
        let taken = taken();
        self.left = (first..first + BLOCK).rev().filter(|port| !taken.contains(port)).collect();
    }
}

/// None if another process has it.
fn claim(first: u16) -> Option<UnixDatagram> {
    let name = LocalAddr::from_abstract_name(format!("testkit/ports/{first}")).expect("a short name");
    match UnixDatagram::bind_addr(&name) {
        Ok(claim) => Some(claim),
        Err(error) if error.kind() == std::io::ErrorKind::AddrInUse => None,
        Err(error) => panic!("a name in the abstract namespace: {error}"),
    }
}

/// Where the ports end. Where the system may choose any port, a claim keeps the tests apart, if not other programs.
fn end() -> u16 {
    let chosen = std::fs::read_to_string(CHOSEN).unwrap_or_default();
    let lowest = chosen.split_whitespace().next().and_then(|word| word.parse().ok());
    lowest.filter(|lowest| *lowest >= FIRST + 64 * BLOCK).unwrap_or(USUAL)
}

/// The ports at which a program that knows nothing of claims has a socket, of either kind. The system's lists say so, and no socket that is bound
/// for a moment: a process that another test starts just then would have it too, until it runs its program.
fn taken() -> HashSet<u16> {
    let mut taken = HashSet::new();
    for list in ["tcp", "tcp6", "udp", "udp6"] {
        // A system without IPv6 lacks its lists.
        let text = std::fs::read_to_string(format!("/proc/thread-self/net/{list}")).unwrap_or_default();
        taken.extend(text.lines().skip(1).filter_map(taken_by));
    }
    taken
}

/// The port of a line such as `0: 0100007F:4000 00000000:0000 0A`: the local address, the remote one, the state.
fn taken_by(line: &str) -> Option<u16> {
    let words: Vec<&str> = line.split_whitespace().take(4).collect();
    let [_, local, _, state] = words[..] else { return None };
    let (_, port) = local.rsplit_once(':').filter(|_| state != TIME_WAIT)?;
    u16::from_str_radix(port, 16).ok()
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv6Addr, TcpListener, UdpSocket};
    use std::process::Command;

    use super::*;

    #[test]
    fn each_port_is_given_once_and_is_not_one_that_the_system_chooses() {
        let threads: Vec<_> =
            (0..4).map(|_| std::thread::spawn(|| (0..40).map(|_| own_port()).collect::<Vec<_>>())).collect();
        let ports: Vec<u16> =
            threads.into_iter().flat_map(|thread| thread.join().expect("no panic")).collect();
        assert_eq!(ports.iter().collect::<HashSet<_>>().len(), 160, "{ports:?}");
        assert!(ports.iter().all(|port| (FIRST..end()).contains(port)), "{ports:?}");
        let first = ports[0] - (ports[0] - FIRST) % BLOCK;
        assert!(claim(first).is_none(), "another process does not get the block");
    }

    #[test]
    fn a_port_of_another_program_is_left_out() {
        let port = own_port();
        let tcp = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).expect("nobody has it");
        assert!(taken().contains(&port));
        drop(tcp);
        let _udp = UdpSocket::bind((Ipv6Addr::LOCALHOST, port)).expect("nobody has it");
        assert!(taken().contains(&port));
    }

    #[test]
    fn a_port_can_be_bound_at_once_whatever_other_tests_start() {
        let starts =
            || (0..100).for_each(|_| assert!(Command::new("true").status().expect("a process").success()));
        let threads: Vec<_> = (0..4).map(|_| std::thread::spawn(starts)).collect();
        let mut bound = 0;
        while bound < 500 && !threads.iter().all(std::thread::JoinHandle::is_finished) {
            let port = own_port();
            TcpListener::bind((Ipv4Addr::LOCALHOST, port)).unwrap_or_else(|e| panic!("{port}: {e}"));
            bound += 1;
        }
        threads.into_iter().for_each(|thread| thread.join().expect("processes start"));
    }
}
