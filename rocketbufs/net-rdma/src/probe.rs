//! The RDMA equipment of this machine: libraries, devices and addresses, and this process's access to them.
//!
//! The kernel lists its devices in `/sys/class/infiniband` whether or not the libraries are installed, so that each missing
//! piece can be named by itself.

use std::fs;
use std::net::{IpAddr, Ipv6Addr};
use std::path::{Path, PathBuf};

use crate::sys::{self, DeviceLimits};

const DEVICES: &str = "/sys/class/infiniband";
const NODES: &str = "/dev/infiniband";

/// The result of a probe.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// The libraries, all of which are needed.
    pub libraries: Vec<Library>,
    /// `/dev/infiniband/rdma_cm`, which makes connections.
    pub connections: Access,
    /// The kernel's devices.
    pub devices: Vec<Device>,
    /// Bytes of memory that this process may lock, as registering memory does. None: no limit.
    pub locked_bytes: Option<u64>,
}

/// A library.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Library {
    /// The file name.
    pub name: &'static str,
    /// Its Debian package.
    pub package: &'static str,
    /// Why the library cannot be loaded, if it cannot.
    pub error: Option<String>,
}

/// Whether a file of the kernel can be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// The file can be used.
    Yes,
    /// The file does not exist: the kernel's module is not loaded.
    Missing,
    /// This user has no permission.
    Denied,
}

/// A device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Device {
    /// The kernel's name: `mlx5_0`, `rxe0`.
    pub name: String,
    /// Its node in `/dev/infiniband`.
    pub node: Access,
    /// Its ports.
    pub ports: Vec<Port>,
    /// The device's limits, or why it could not be asked.
    pub limits: Result<DeviceLimits, String>,
}

/// A port of a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Port {
    /// Its number, from 1.
    pub number: u32,
    /// `ACTIVE`, `DOWN`, …
    pub state: String,
    /// `Ethernet` (RoCE) or `InfiniBand`.
    pub link_layer: String,
    /// The addresses that are set.
    pub gids: Vec<Gid>,
}

/// An address of a port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gid {
    /// The index in the port's table.
    pub index: u32,
    /// The address; for IPv4 the four bytes.
    pub address: IpAddr,
    /// `RoCE v2`, `IB/RoCE v1`.
    pub kind: String,
    /// Its network interface.
    pub interface: String,
}

impl Port {
    /// Whether the port can carry connections.
    pub fn is_active(&self) -> bool {
        self.state == "ACTIVE"
    }

    /// The addresses for RoCE v2, which is routed like UDP; on InfiniBand all addresses.
    pub fn reachable(&self) -> impl Iterator<Item = &Gid> {
        let any = self.link_layer == "InfiniBand";
        self.gids.iter().filter(move |gid| any || (gid.kind == "RoCE v2" && !is_link_local(gid.address)))
    }
}

fn is_link_local(address: IpAddr) -> bool {
    matches!(address, IpAddr::V6(address) if address.is_unicast_link_local())
}

/// Probes this machine, as this user. Opens each device for a moment, and changes nothing.
pub fn probe() -> Report {
    let library = |(name, package): (&'static str, _)| {
        let error = sys::is_loaded(name).err().map(|error| error.to_string());
        Library { name, package, error }
    };
    Report {
        libraries: sys::LIBRARIES.into_iter().map(library).collect(),
        connections: access(&Path::new(NODES).join("rdma_cm")),
        devices: names(Path::new(DEVICES)).into_iter().map(device).collect(),
        locked_bytes: threads::limit(threads::LimitOf::LockedMemory).ok().and_then(|limit| limit.soft),
    }
}

fn device(name: String) -> Device {
    let folder = Path::new(DEVICES).join(&name);
    let node = fs::read_dir(folder.join("device/infiniband_verbs"))
        .or_else(|_| fs::read_dir("/sys/class/infiniband_verbs"))
        .map(|entries| entries.flatten().find(|entry| text(entry.path().join("ibdev")) == name));
    let node = match node {
        Ok(Some(entry)) => access(&Path::new(NODES).join(entry.file_name())),
        Ok(None) | Err(_) => Access::Missing,
    };
    let limits = sys::limits(&name).map_err(|error| error.to_string());
    let mut ports: Vec<_> =
        names(&folder.join("ports")).iter().filter_map(|number| port(&folder, number)).collect();
    ports.sort_by_key(|port| port.number);
    Device { name, node, ports, limits }
}

fn port(device: &Path, number: &str) -> Option<Port> {
    let folder = device.join("ports").join(number);
    // "4: ACTIVE"
    let state = text(folder.join("state"));
    let state = state.rsplit(' ').next().unwrap_or_default().to_owned();
    let mut gids: Vec<_> =
        names(&folder.join("gids")).iter().filter_map(|index| gid(&folder, index)).collect();
    gids.sort_by_key(|gid| gid.index);
    Some(Port { number: number.parse().ok()?, state, link_layer: text(folder.join("link_layer")), gids })
}

fn gid(port: &Path, index: &str) -> Option<Gid> {
    let address: Ipv6Addr = text(port.join("gids").join(index)).parse().ok()?;
    if address.is_unspecified() {
        return None;
    }
    let attribute = |name: &str| text(port.join("gid_attrs").join(name).join(index));
    Some(Gid {
        index: index.parse().ok()?,
        address: address.to_ipv4_mapped().map_or(IpAddr::V6(address), IpAddr::V4),
        kind: attribute("types"),
        interface: attribute("ndevs"),
    })
}

/// The entries of a folder by name; none without the folder.
fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut names: Vec<_> = entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.sort();
    names
}

fn text(path: PathBuf) -> String {
    // An unset entry of a table cannot be read.
    fs::read_to_string(path).unwrap_or_default().trim().to_owned()
}

fn access(path: &Path) -> Access {
    use rustix::fs::Access as Mode;
    match rustix::fs::access(path, Mode::READ_OK | Mode::WRITE_OK) {
        Ok(()) => Access::Yes,
        Err(rustix::io::Errno::ACCESS | rustix::io::Errno::PERM) => Access::Denied,
        Err(_) => Access::Missing,
    }
}
