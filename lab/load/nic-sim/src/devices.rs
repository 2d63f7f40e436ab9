//! The network namespace and the addresses of the two TAP devices.

use std::net::Ipv4Addr;
use std::path::Path;
use std::process::Command;

use commands::{Failure, print_error};

/// The network namespace at the other end of the cable.
pub struct Namespace {
    pub name: String,
    /// Whether this command has made it.
    own: bool,
}

impl Namespace {
    /// Makes the namespace, unless there is one of this name.
    pub fn new(name: &str) -> Result<Namespace, Failure> {
        // The folder of `ip netns`.
        let own = !Path::new("/run/netns").join(name).exists();
        if own {
            ip(&["netns", "add", name])?;
        }
        Ok(Namespace { name: name.to_owned(), own })
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        if self.own
            && let Err(Failure::Failed(why)) = ip(&["netns", "del", &self.name])
        {
            print_error("nic-sim", why);
        }
    }
}

/// A device, and the address that it gets.
#[derive(Debug, Clone, Copy)]
pub struct Device<'a> {
    pub name: &'a str,
    pub address: Ipv4Addr,
}

/// The devices, ready for use. They end with the simulator, which has made them.
pub struct Devices {
    /// The hardware address of the card.
    pub mac: String,
}

impl Devices {
    /// Moves the cable into the namespace, and gives both devices their addresses.
    pub fn set_up(namespace: &Namespace, cable: Device<'_>, card: Device<'_>) -> Result<Devices, Failure> {
        ip(&["link", "set", cable.name, "netns", &namespace.name])?;
        let there: &[&str] = &["-n", &namespace.name];
        for (place, device) in [(there, cable), (&[], card)] {
            let (device, address) = (device.name, format!("{}/24", device.address));
            // Frames of other protocols would go through the simulation too.
            for change in [
                &["link", "set", device, "addrgenmode", "none"][..],
                &["addr", "add", &address, "dev", device],
                &["link", "set", device, "up"],
            ] {
                ip(&[place, change].concat())?;
            }
        }
        ip(&["-n", &namespace.name, "link", "set", "lo", "up"])?;
        let card = card.name;
        let shown: serde_json::Value = serde_json::from_str(&ip(&["-json", "link", "show", "dev", card])?)?;
        match shown[0]["address"].as_str() {
            Some(mac) => Ok(Devices { mac: mac.to_owned() }),
            None => Err(Failure::Failed(format!("ip link show dev {card}: no hardware address: {shown}"))),
        }
    }
}

/// Runs `ip`, and returns its output.
fn ip(args: &[&str]) -> Result<String, Failure> {
    let output = Command::new("ip")
        .args(args)
        .output()
        .map_err(|error| Failure::Failed(format!("ip cannot be started: {error}; install iproute2")))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let why = String::from_utf8_lossy(&output.stderr);
    Err(Failure::Failed(format!("ip {}: {}", args.join(" "), why.trim())))
}
