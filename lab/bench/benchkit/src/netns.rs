//! Network namespaces, and the TCP congestion control in them.
//!
//! A default that paces (BBR) slows everything on one machine and hides differences. A namespace has its own
//! setting, which applies to the sockets of every system.

use std::{
    fs::{self, File},
    io::{self, BufRead, BufReader},
    os::{fd::AsFd, unix::fs::FileExt},
    process::{Child, Command, Stdio},
};

use rustix::thread::{ThreadNameSpaceType, move_into_thread_name_spaces};

const CONGESTION_FILE: &str = "/proc/sys/net/ipv4/tcp_congestion_control";
const ALLOWED_FILE: &str = "/proc/sys/net/ipv4/tcp_allowed_congestion_control";

/// A network namespace with loopback up. The namespace exists while this value or a process in it does.
#[derive(Debug)]
pub struct Namespace {
    file: File,
}

/// Returns the thread to its namespace.
struct Back(File);

impl Drop for Back {
    fn drop(&mut self) {
        // A thread may always return to its namespace.
        let _ = move_into_thread_name_spaces(self.0.as_fd(), ThreadNameSpaceType::NETWORK);
    }
}

impl Namespace {
    /// Makes a namespace with this congestion control. Needs root, and the programs `unshare` and `ip`.
    ///
    /// # Errors
    /// A program is missing, or the kernel lacks the congestion control.
    pub fn new(congestion: &str) -> io::Result<Namespace> {
        let mut holder = Command::new("unshare")
            .args(["--net", "sh", "-c", "ip link set lo up && echo up && read -r _"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()?;
        let file = opened(&mut holder);
        // The end of its input ends the holder. The open file keeps the namespace.
        drop(holder.stdin.take());
        holder.wait()?;
        let namespace = Namespace { file: file? };
        namespace.choose(congestion)?;
        Ok(namespace)
    }

    /// Moves this thread into the namespace, and everything that it starts.
    ///
    /// # Errors
    /// The kernel refused.
    pub fn enter(&self) -> io::Result<()> {
        Ok(move_into_thread_name_spaces(self.file.as_fd(), ThreadNameSpaceType::NETWORK)?)
    }

    /// Runs `what` in the namespace. Its sockets and processes stay there; this thread returns.
    ///
    /// # Errors
    /// The kernel refused.
    pub fn inside<R>(&self, what: impl FnOnce() -> R) -> io::Result<R> {
        let _back = Back(File::open("/proc/thread-self/ns/net")?);
        self.enter()?;
        Ok(what())
    }

    /// Sets the congestion control. A namespace may select only what the first namespace allows. The list is
    /// extended for the selection and restored at once.
    fn choose(&self, wanted: &str) -> io::Result<()> {
        let allowed = fs::read_to_string(ALLOWED_FILE)?;
        let listed = allowed.split_whitespace().any(|name| name == wanted);
        let list = fs::OpenOptions::new().write(true).open(ALLOWED_FILE)?;
        if !listed {
            list.write_all_at(format!("{} {wanted}", allowed.trim()).as_bytes(), 0)?;
        }
        let chosen = self.inside(|| {
            fs::write(CONGESTION_FILE, wanted)?;
            in_force(&fs::read_to_string(CONGESTION_FILE)?, wanted)
        });
        let chosen = chosen.flatten();
        if !listed {
            list.write_all_at(allowed.trim().as_bytes(), 0)?;
        }
        chosen
    }
}

/// Checks that the kernel applied the setting: a sandbox may accept it without effect.
fn in_force(now: &str, wanted: &str) -> io::Result<()> {
    match now.trim() {
        now if now == wanted => Ok(()),
        now => {
            Err(io::Error::other(format!("the congestion control is {now}, and cannot be set to {wanted}")))
        }
    }
}

/// The namespace of `holder`, once it is up.
fn opened(holder: &mut Child) -> io::Result<File> {
    let output = holder.stdout.take().ok_or(io::ErrorKind::BrokenPipe)?;
    let mut line = String::new();
    BufReader::new(output).read_line(&mut line)?;
    if line.trim() != "up" {
        return Err(io::Error::other("unshare or ip failed"));
    }
    File::open(format!("/proc/{}/ns/net", holder.id()))
}

/// How all systems get the same congestion control.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Congestion {
    /// The setting of the network namespace.
    Namespace(String),
    /// An option of each socket.
    Sockets(String),
}

impl Congestion {
    /// The name of the congestion control.
    pub fn name(&self) -> &str {
        let (Congestion::Namespace(name) | Congestion::Sockets(name)) = self;
        name
    }

    /// The name that workers must set on their sockets, if necessary.
    pub fn for_sockets(&self) -> Option<&str> {
        match self {
            Congestion::Namespace(_) => None,
            Congestion::Sockets(name) => Some(name),
        }
    }
}

/// Makes `wanted` the congestion control of all systems. As root, this thread and everything that it starts
/// moves into a new network namespace. Otherwise each socket must be set.
pub fn set_congestion(wanted: &str) -> Congestion {
    let in_force = || fs::read_to_string(CONGESTION_FILE).is_ok_and(|now| now.trim() == wanted);
    if !in_force() && rustix::process::geteuid().is_root() {
        match Namespace::new(wanted).and_then(|namespace| namespace.enter()) {
            Ok(()) => {}
            Err(error) => {
                eprintln!("no network namespace with {wanted} ({error}): each socket is set instead")
            }
        }
    }
    if in_force() { Congestion::Namespace(wanted.to_owned()) } else { Congestion::Sockets(wanted.to_owned()) }
}

/// The congestion control outside of any namespace.
pub fn default_congestion() -> String {
    fs::read_to_string(CONGESTION_FILE).map_or_else(|_| "unknown".to_owned(), |name| name.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_setting_without_effect_is_an_error() {
        assert!(in_force("cubic\n", "cubic").is_ok());
        let error = in_force("bbr\n", "cubic").unwrap_err().to_string();
        assert_eq!(error, "the congestion control is bbr, and cannot be set to cubic");
    }
}
