//! The test field: two network namespaces joined by a veth pair, and a packet filter that drops.
//!
//! ```text
//!   driver's namespace                     answerer's namespace
//!   10.77.0.1  near ────── veth ────── far  10.77.0.2   (a broker is here as well)
//!                                       │
//!                                       └ input hook: 14 of 1,000 packets are dropped and counted (figure 6)
//! ```
//!
//! In figure 6 the kernel cuts large segments before they enter the pair (`gso_max_segs 1`), as a network
//! card does, so that a loss is one packet and not sixty. The runs without loss pass the same filter, which
//! then drops nothing: looking at each packet costs more than a sixth of the time of an exchange of 4 KiB.
//! The filter keeps the headers of CMQ's dropped datagrams, so that the receiver's reports can be compared
//! message by message.

use std::{
    collections::HashMap,
    io::{self, Write},
    net::SocketAddr,
    process::{Command, Stdio},
};

use benchkit::netns::Namespace;
use serde_json::Value;

use super::system::System;

/// The driver's address.
pub const NEAR: &str = "10.77.0.1";
/// The answerer's address.
pub const FAR: &str = "10.77.0.2";
/// The port of both ends.
pub const PORT: u16 = 7077;
/// The packets of each thousand that are dropped, as in the paper.
pub const DROPPED_OF_1000: u32 = 14;

/// The two namespaces, which exist while this value or a process in them does.
pub struct Field {
    /// The driver's namespace.
    pub near: Namespace,
    /// The answerer's namespace.
    pub far: Namespace,
    /// The packets of each thousand that are dropped.
    dropped_of_1000: u32,
}

/// Packets that the filter dropped.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Dropped {
    /// Packets of any kind.
    pub packets: u64,
    /// Complete messages of CMQ in them.
    messages: u64,
    /// Messages of CMQ of which one fragment was in them, or more than one.
    one_fragment: u64,
    more_fragments: u64,
}

impl Dropped {
    /// The dropped messages of CMQ. Datagrams of other systems may begin with the same byte, and are not
    /// counted.
    pub fn messages_of(&self, system: System) -> u64 {
        match (system.is_ours(), system.has_parity()) {
            (true, true) => self.messages + self.more_fragments,
            (true, false) => self.messages + self.one_fragment + self.more_fragments,
            (false, _) => 0,
        }
    }
}

impl Field {
    /// Makes the namespaces, where this many packets of each thousand are dropped. With `cut` packets are no larger than a frame and pass the filter, also if it
    /// drops nothing. Needs root, and the programs `unshare`, `ip` and, for loss, `nft`.
    ///
    /// # Errors
    /// A program is missing or failed.
    pub fn new(congestion: &str, dropped_of_1000: u32, cut: bool) -> io::Result<Field> {
        let field =
            Field { near: Namespace::new(congestion)?, far: Namespace::new(congestion)?, dropped_of_1000 };
        let segments: &[&str] = if cut { &["gso_max_segs", "1"] } else { &[] };
        field.far.inside(|| {
            // The pair is made by a thread that can name the other namespace, through a process in it.
            let mut holder = field.near.inside(|| Command::new("sleep").arg("60").spawn()).flatten()?;
            let there = holder.id().to_string();
            let pair =
                [&["link", "add", "far"], segments, &["type", "veth", "peer", "name", "near"], segments];
            let made = ip(&[&pair.concat()[..], &["netns", &there]].concat());
            let _ = holder.kill();
            let _ = holder.wait();
            made?;
            ip(&["addr", "add", &format!("{FAR}/24"), "dev", "far"])?;
            ip(&["link", "set", "far", "up"])
        })??;
        field.near.inside(|| {
            ip(&["addr", "add", &format!("{NEAR}/24"), "dev", "near"])?;
            ip(&["link", "set", "near", "up"])
        })??;
        if cut {
            field.far.inside(|| nft(&rules(dropped_of_1000)))??;
        }
        Ok(field)
    }

    /// The addresses of the driver and of the answerer.
    pub fn addresses() -> (SocketAddr, SocketAddr) {
        let at = |ip: &str| SocketAddr::new(ip.parse().expect("an address"), PORT);
        (at(NEAR), at(FAR))
    }

    /// The packets that the filter dropped so far.
    ///
    /// # Errors
    /// The filter does not answer.
    pub fn dropped(&self) -> io::Result<Dropped> {
        if self.dropped_of_1000 == 0 {
            return Ok(Dropped::default());
        }
        let list = || Command::new("nft").args(["-j", "list", "table", "inet", "loss"]).output();
        let listed: Value = serde_json::from_slice(&self.far.inside(list)??.stdout)?;
        Ok(read(&listed))
    }
}

/// Drops packets at the hook and with the probability of the paper (`iptables -A INPUT -m statistic`). Keeps
/// the kind, count and first number of CMQ's dropped headers, and the index of fragments.
fn rules(dropped_of_1000: u32) -> String {
    format!(
        "table inet loss {{
           counter dropped {{ }}
           set headers {{ typeof @th,72,24 . @th,192,64; size 65535; flags dynamic; }}
           set fragments {{ typeof @th,192,64 . @th,320,32; size 65535; flags dynamic; }}
           chain lose {{
             counter name dropped
             udp dport {PORT} @th,64,16 0xc511 add @fragments {{ @th,192,64 . @th,320,32 }}
             udp dport {PORT} @th,64,16 0xc510 add @headers {{ @th,72,24 . @th,192,64 }}
             drop
           }}
           chain input {{
             type filter hook input priority 0;
             iifname far numgen random mod 1000 < {dropped_of_1000} jump lose
           }}
         }}"
    )
}

/// A batch counts for its number of messages. All fragments of a message have the same number.
fn read(listed: &Value) -> Dropped {
    let mut dropped = Dropped::default();
    let mut fragments: HashMap<u64, u64> = HashMap::new();
    for object in listed["nftables"].as_array().into_iter().flatten() {
        dropped.packets += object["counter"]["packets"].as_u64().unwrap_or(0);
        for element in object["set"]["elem"].as_array().into_iter().flatten() {
            // For a fragment this is the number of its message, for a batch the bytes before it.
            let first = unsigned(&element["concat"][0]);
            if object["set"]["name"] == "fragments" {
                *fragments.entry(first).or_default() += 1;
            } else {
                let [_, _, low, high] = (first as u32).to_be_bytes();
                dropped.messages += u64::from(u16::from_le_bytes([low, high]));
            }
        }
    }
    dropped.one_fragment = fragments.values().filter(|&&lost| lost == 1).count() as u64;
    dropped.more_fragments = fragments.len() as u64 - dropped.one_fragment;
    dropped
}

/// nft prints 64-bit numbers of the upper half as negative ones.
fn unsigned(value: &Value) -> u64 {
    value.as_u64().or_else(|| value.as_i64().map(i64::cast_unsigned)).unwrap_or(0)
}

fn ip(args: &[&str]) -> io::Result<()> {
    let output = Command::new("ip").args(args).output()?;
    if output.status.success() {
        return Ok(());
    }
    Err(io::Error::other(format!(
        "ip {}: {}",
        args.join(" "),
        String::from_utf8_lossy(&output.stderr).trim()
    )))
}

fn nft(rules: &str) -> io::Result<()> {
    let mut child = Command::new("nft")
        .args(["-f", "-"])
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| io::Error::new(error.kind(), format!("nft (package nftables): {error}")))?;
    if let Some(mut input) = child.stdin.take() {
        input.write_all(rules.as_bytes())?;
    }
    let output = child.wait_with_output()?;
    if output.status.success() {
        return Ok(());
    }
    Err(io::Error::other(format!("nft: {}", String::from_utf8_lossy(&output.stderr).trim())))
}

#[cfg(test)]
mod tests {
    use cmq::wire::{Header, Kind};

    use super::*;

    #[test]
    fn dropped_messages_are_read_from_headers() {
        let number = |first: u64| i64::from_be_bytes(first.to_le_bytes());
        let batch = |count, first| {
            let kind = Kind::Batch;
            let header = Header { kind, count, stream: 1, epoch: 2, first, mailbox: 3 }.encode();
            let mut head = [0; 4];
            head[1..].copy_from_slice(&header[1..4]);
            serde_json::json!({ "concat": [u32::from_be_bytes(head), number(first)] })
        };
        let fragment =
            |first, index: u32| serde_json::json!({ "concat": [number(first), index.swap_bytes()] });
        let fragments = [fragment(307, 0), fragment(307, 2), fragment(0xF0, 1), fragment(0xF1, 3)];
        let listed = serde_json::json!({ "nftables": [
            { "metainfo": {} },
            { "counter": { "name": "dropped", "packets": 7 } },
            { "set": { "name": "headers", "elem": [batch(300, 0), batch(7, 300)] } },
            { "set": { "name": "fragments", "elem": fragments } },
        ]});
        let dropped = read(&listed);
        assert_eq!(dropped, Dropped { packets: 7, messages: 307, one_fragment: 2, more_fragments: 1 });
        let of = [System::CmqPaper, System::CmqParity, System::Udp].map(|s| dropped.messages_of(s));
        assert_eq!(of, [310, 308, 0]);
    }
}
