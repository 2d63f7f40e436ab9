//! Attaching, replacing and detaching programs.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use crate::config::Mode;
use crate::error::KernelError;
use crate::maps::Kept;
use crate::programs::{ATTACH_NETFILTER, ATTACH_TCX, ATTACH_XDP, Kind, Loaded};
use crate::sys::{self, Target};

const XDP_GENERIC: u32 = 1 << 1;
const XDP_NATIVE: u32 = 1 << 2;

/// Netfilter's PREROUTING, and the priority of the level there: before connection tracking.
const PREROUTING: u32 = 0;
const PRIORITY: i32 = -300;

/// A kept link's name begins with one of these.
const LINK_NAMES: [&str; 4] = ["native-", "generic-", "tcx-", "netfilter-"];

/// An attached program.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) fd: OwnedFd,
    /// The kind of attachment, for reports.
    pub(crate) mode: &'static str,
    /// The name under which it is kept.
    name: String,
}

impl Link {
    /// Whether its interface still exists.
    pub(crate) fn is_attached(&self) -> bool {
        matches!(sys::link_interface(self.fd.as_fd()), Ok(None | Some(1..)))
    }
}

/// One way to attach a program.
struct Way {
    mode: &'static str,
    target: Target,
}

fn ways(kind: Kind, mode: Mode, index: u32) -> Vec<Way> {
    let xdp = |mode, flags| Way { mode, target: Target::Interface { index, attach_type: ATTACH_XDP, flags } };
    let (native, generic) = (xdp("xdp-native", XDP_NATIVE), xdp("xdp-generic", XDP_GENERIC));
    match (kind, mode) {
        (Kind::Xdp, Mode::XdpNative) => vec![native],
        (Kind::Xdp, Mode::XdpGeneric) => vec![generic],
        (Kind::Xdp, _) => vec![native, generic],
        (Kind::Tcx, _) => {
            vec![Way { mode: "tcx", target: Target::Interface { index, attach_type: ATTACH_TCX, flags: 0 } }]
        }
        (Kind::Netfilter, _) => {
            let (attach_type, hook, priority) = (ATTACH_NETFILTER, PREROUTING, PRIORITY);
            vec![Way { mode: "netfilter", target: Target::Netfilter { attach_type, hook, priority } }]
        }
    }
}

/// Attaches any XDP program in an interface's driver.
pub(crate) fn attach_native(program: BorrowedFd<'_>, index: u32) -> io::Result<OwnedFd> {
    sys::create_link(program, Target::Interface { index, attach_type: ATTACH_XDP, flags: XDP_NATIVE })
}

/// Attaches any program for packets at an interface's ingress in traffic control.
pub(crate) fn attach_tcx(program: BorrowedFd<'_>, index: u32) -> io::Result<OwnedFd> {
    sys::create_link(program, Target::Interface { index, attach_type: ATTACH_TCX, flags: 0 })
}

/// The name of a kept link. A bpf file system allows no dots.
fn link_name(mode: &str, interface: &str) -> String {
    format!("{}-{}", mode.trim_start_matches("xdp-"), interface.replace('.', "%2E"))
}

/// Attaches a program to an interface, or replaces the program of a kept link in one step.
pub(crate) fn attach(
    loaded: &Loaded,
    mode: Mode,
    interface: &str,
    kept: Option<&Kept>,
) -> Result<Link, KernelError> {
    let index = sys::interface_index(interface)
        .map_err(|error| KernelError::Interface { name: interface.to_owned(), error })?;
    let ways = ways(loaded.kind, mode, index);
    if let Some(kept) = kept
        && let Some(link) = replace(loaded, &ways, interface, index, kept)?
    {
        return Ok(link);
    }
    let link = attach_first(loaded, ways, interface)?;
    if let Some(kept) = kept {
        kept.put(&link.name, link.fd.as_fd())?;
    }
    Ok(link)
}

/// Tries the ways in their order. The error is that of the last.
fn attach_first(loaded: &Loaded, ways: Vec<Way>, interface: &str) -> Result<Link, KernelError> {
    let mut last = None;
    for Way { mode, target } in ways {
        match sys::create_link(loaded.program.as_fd(), target) {
            Ok(fd) => return Ok(Link { fd, mode, name: link_name(mode, interface) }),
            Err(error) => {
                let taken = error.raw_os_error() == Some(libc::EBUSY);
                last = Some(KernelError::Attach { interface: interface.to_owned(), mode, error });
                // Another program has the hook, which a slower way would only hide.
                if taken {
                    break;
                }
            }
        }
    }
    Err(last.expect("there is at least one way"))
}

/// Replaces the program of a kept link. `None`: no link is kept, or its interface is gone.
fn replace(
    loaded: &Loaded,
    ways: &[Way],
    interface: &str,
    index: u32,
    kept: &Kept,
) -> Result<Option<Link>, KernelError> {
    for Way { mode, .. } in ways {
        let name = link_name(mode, interface);
        let Some(fd) = kept.get(&name)? else { continue };
        let found = sys::link_interface(fd.as_fd()).map_err(KernelError::call("look at a kept link"))?;
        if found == Some(index) {
            sys::update_link(fd.as_fd(), loaded.program.as_fd())
                .map_err(KernelError::call("replace a program"))?;
            return Ok(Some(Link { fd, mode, name }));
        }
        // Netfilter replaces no program, and two of one priority exclude each other. An interface that is gone has no program.
        let _ = sys::detach_link(fd.as_fd());
        std::fs::remove_file(kept.folder.join(&name)).map_err(KernelError::call("remove a kept link"))?;
    }
    Ok(None)
}

/// Detaches the programs that are kept in a folder, and removes the folder with its rings, after the process that used them has
/// ended or crashed. Returns whether anything was kept.
///
/// # Errors
/// [`KernelError::InUse`] while a process has the level.
pub fn detach(folder: &Path) -> Result<bool, KernelError> {
    if !folder.exists() {
        return Ok(false);
    }
    let kept = Kept::open(folder)?;
    remove(&kept).map_err(KernelError::call("remove what is kept"))?;
    Ok(true)
}

/// Removes everything that is kept. Programs are removed first, so that no message is stored while the rings are removed.
pub(crate) fn remove(kept: &Kept) -> io::Result<()> {
    let names = kept.names()?;
    let (links, maps): (Vec<&String>, Vec<&String>) =
        names.iter().partition(|name| LINK_NAMES.iter().any(|link| name.starts_with(link)));
    for name in links {
        let path = kept.folder.join(name);
        if let Ok(fd) = sys::get_pinned(&path) {
            // The link of an interface that is gone cannot be detached, and is gone as well.
            let _ = sys::detach_link(fd.as_fd());
        }
        std::fs::remove_file(path)?;
    }
    for name in maps {
        std::fs::remove_file(kept.folder.join(name))?;
    }
    std::fs::remove_dir(&kept.folder)
}
