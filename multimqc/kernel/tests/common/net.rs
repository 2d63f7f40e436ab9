//! Two network namespaces that are joined by a veth pair, and a mount namespace with a bpf file system of its own: real traffic
//! without a trace on the machine. Everything goes when the thread and its last socket end.
//!
//! ```text
//!   client  v1 10.9.0.1 ──────── v0 10.9.0.2  server
//! ```

use std::fs::File;
use std::io;
use std::net::{Ipv4Addr, UdpSocket};
use std::os::fd::AsRawFd;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

pub const CLIENT: Ipv4Addr = Ipv4Addr::new(10, 9, 0, 1);
pub const SERVER: Ipv4Addr = Ipv4Addr::new(10, 9, 0, 2);

/// The namespaces. The thread is in the server's.
pub struct World {
    client: File,
    server: File,
    /// Lives in the client's namespace, so that a device can be moved there by its number.
    holder: Child,
}

impl Drop for World {
    fn drop(&mut self) {
        let _ = self.holder.kill();
        let _ = self.holder.wait();
    }
}

fn check(result: libc::c_int) -> io::Result<()> {
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

fn unshare(what: libc::c_int) -> io::Result<()> {
    // SAFETY: changes namespaces of this thread only; no memory is involved.
    check(unsafe { libc::unshare(what) })
}

fn this_network() -> io::Result<File> {
    File::open("/proc/thread-self/ns/net")
}

/// Runs `ip`.
pub fn ip(arguments: &str) -> io::Result<String> {
    let output = Command::new("ip").args(arguments.split(' ')).output()?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    Err(io::Error::other(format!("ip {arguments}: {}", String::from_utf8_lossy(&output.stderr))))
}

impl World {
    fn new() -> io::Result<World> {
        unshare(libc::CLONE_NEWNS | libc::CLONE_NEWNET)?;
        // SAFETY: all strings end with a zero.
        check(unsafe {
            let flags = libc::MS_REC | libc::MS_PRIVATE;
            libc::mount(c"none".as_ptr(), c"/".as_ptr(), std::ptr::null(), flags, std::ptr::null())
        })?;
        // The new network's own /sys, and a bpf file system on it.
        // SAFETY: as above.
        check(unsafe {
            libc::mount(c"sysfs".as_ptr(), c"/sys".as_ptr(), c"sysfs".as_ptr(), 0, std::ptr::null())
        })?;
        ip("link set lo up")?;
        let client = this_network()?;
        let holder = Command::new("sleep").arg("600").stdout(Stdio::null()).spawn()?;
        let mut world = World { server: this_network()?, client, holder };
        unshare(libc::CLONE_NEWNET)?;
        world.server = this_network()?;
        ip("link set lo up")?;
        world.add_devices()?;
        Ok(world)
    }

    /// Makes the pair.
    pub fn add_devices(&self) -> io::Result<()> {
        ip(&format!("link add v0 type veth peer name v1 netns {}", self.holder.id()))?;
        ip("addr add 10.9.0.2/24 dev v0")?;
        ip("link set v0 up")?;
        self.in_client(|| {
            ip("addr add 10.9.0.1/24 dev v1")?;
            ip("link set v1 up")
        })?;
        Ok(())
    }

    fn enter(network: &File) {
        // SAFETY: changes the network namespace of this thread only.
        check(unsafe { libc::setns(network.as_raw_fd(), libc::CLONE_NEWNET) })
            .expect("a namespace can be entered");
    }

    /// Runs something in the client's network.
    pub fn in_client<T>(&self, run: impl FnOnce() -> T) -> T {
        World::enter(&self.client);
        let result = run();
        World::enter(&self.server);
        result
    }

    /// A socket of the client, with a time-out for replies.
    pub fn client_socket(&self) -> UdpSocket {
        self.in_client(|| socket(CLIENT, 0))
    }
}

/// A socket in this thread's network.
pub fn socket(address: Ipv4Addr, port: u16) -> UdpSocket {
    let socket = UdpSocket::bind((address, port)).expect("a socket");
    socket.set_read_timeout(Some(Duration::from_secs(20))).expect("a time-out");
    socket
}

/// Runs a test in a world of its own. Says aloud if that cannot be had.
pub fn in_world(test: impl FnOnce(&World) + Send) {
    std::thread::scope(|scope| {
        let run = scope.spawn(|| match World::new() {
            Ok(world) => test(&world),
            Err(error) => {
                super::skip(&format!("network namespaces and veth need root and iproute2 ({error})"))
            }
        });
        if let Err(panic) = run.join() {
            std::panic::resume_unwind(panic);
        }
    });
}
