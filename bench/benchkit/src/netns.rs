//! Network namespaces, and TCP's congestion control in them.
//!
//! A system default that paces (BBR) makes everything on one machine slower and hides differences; a namespace has its
//! own setting, which reaches everybody's sockets.

use std::{
    fs::{self, File},
    io::{self, BufRead, BufReader},
    os::{fd::AsFd, unix::fs::FileExt},
    process::{Child, Command, Stdio},
};

use rustix::thread::{ThreadNameSpaceType, move_into_thread_name_spaces};

const CONGESTION_FILE: &str = "/proc/sys/net/ipv4/tcp_congestion_control";
const ALLOWED_FILE: &str = "/proc/sys/net/ipv4/tcp_allowed_congestion_control";

/// A network namespace with loopback up. It lives as long as this, and as long as anybody is in it.
#[derive(Debug)]
pub struct Namespace {
    file: File,
}

/// Brings this thread back where it was.
struct Back(File);

impl Drop for Back {
    fn drop(&mut self) {
        // Who was there may be there.
        let _ = move_into_thread_name_spaces(self.0.as_fd(), ThreadNameSpaceType::NETWORK);
    }
}

impl Namespace {
    /// Makes one, in which this congestion control is in force. Needs root, and the programs `unshare` and `ip`.
    ///
    /// # Errors
    /// One of those is missing, or the kernel has no such congestion control.
    pub fn new(congestion: &str) -> io::Result<Namespace> {
        let mut holder = Command::new("unshare")
            .args(["--net", "sh", "-c", "ip link set lo up && echo up && read -r _"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()?;
        let file = opened(&mut holder);
        // Its input ends, and so does it: the open file holds the namespace.
        drop(holder.stdin.take());
        holder.wait()?;
        let namespace = Namespace { file: file? };
        namespace.choose(congestion)?;
        Ok(namespace)
    }

    /// Moves this thread there, and with it everything that it starts.
    ///
    /// # Errors
    /// The kernel refused.
    pub fn enter(&self) -> io::Result<()> {
        Ok(move_into_thread_name_spaces(self.file.as_fd(), ThreadNameSpaceType::NETWORK)?)
    }

    /// Does something there: sockets opened and processes started by it stay there, this thread comes back.
    ///
    /// # Errors
    /// The kernel refused.
    pub fn inside<R>(&self, what: impl FnOnce() -> R) -> io::Result<R> {
        let _back = Back(File::open("/proc/thread-self/ns/net")?);
        self.enter()?;
        Ok(what())
    }

    /// Namespaces may choose only among what the first one allows to everybody. What was allowed is put back at once:
    /// only the choice needs it.
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

/// Whether the kernel, which says `now`, did what it was told: a sandbox may take the word and change nothing.
fn in_force(now: &str, wanted: &str) -> io::Result<()> {
    match now.trim() {
        now if now == wanted => Ok(()),
        now => Err(io::Error::other(format!("the congestion control stays {now}, and was to be {wanted}"))),
    }
}

/// The namespace that `holder` is in, once it says that it is there.
fn opened(holder: &mut Child) -> io::Result<File> {
    let output = holder.stdout.take().ok_or(io::ErrorKind::BrokenPipe)?;
    let mut line = String::new();
    BufReader::new(output).read_line(&mut line)?;
    if line.trim() != "up" {
        return Err(io::Error::other("unshare or ip failed"));
    }
    File::open(format!("/proc/{}/ns/net", holder.id()))
}

/// How TCP's congestion control was made the same for everybody.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Congestion {
    /// The network namespace's setting: sockets need not be told.
    Namespace(String),
    /// Every socket is told.
    Sockets(String),
}

impl Congestion {
    /// The congestion control's name.
    pub fn name(&self) -> &str {
        let (Congestion::Namespace(name) | Congestion::Sockets(name)) = self;
        name
    }

    /// What a worker has to set on its sockets, if anything.
    pub fn for_sockets(&self) -> Option<&str> {
        match self {
            Congestion::Namespace(_) => None,
            Congestion::Sockets(name) => Some(name),
        }
    }
}

/// Sees to it that everybody runs under `wanted`. As root this thread, and with it everything that it starts, moves
/// into a new network namespace, which has its own setting; otherwise sockets have to be told one by one.
pub fn settle_congestion(wanted: &str) -> Congestion {
    let in_force = || fs::read_to_string(CONGESTION_FILE).is_ok_and(|now| now.trim() == wanted);
    if !in_force() && rustix::process::geteuid().is_root() {
        match Namespace::new(wanted).and_then(|namespace| namespace.enter()) {
            Ok(()) => {}
            Err(error) => {
                eprintln!("no network namespace with {wanted} ({error}): sockets are told one by one")
            }
        }
    }
    if in_force() { Congestion::Namespace(wanted.to_owned()) } else { Congestion::Sockets(wanted.to_owned()) }
}

/// What runs in no namespace and on sockets that nobody told anything.
pub fn default_congestion() -> String {
    fs::read_to_string(CONGESTION_FILE).map_or_else(|_| "unknown".to_owned(), |name| name.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_in_force_is_told() {
        assert!(in_force("cubic\n", "cubic").is_ok());
        let error = in_force("bbr\n", "cubic").unwrap_err().to_string();
        assert_eq!(error, "the congestion control stays bbr, and was to be cubic");
    }
}
