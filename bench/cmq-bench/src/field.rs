//! Where everybody is measured: two network namespaces joined by a veth pair, and what drops packets on the way.
//!
//! ```text
//!   driver's namespace                     answerer's namespace
//!   10.77.0.1  near ────── veth ────── far  10.77.0.2   (a broker is here as well)
//!                                       │
//!                                       └ input hook: 14 of 1,000 packets are dropped and counted (figure 6)
//! ```
//!
//! In figure 6 the kernel cuts large segments before they enter the pair (`gso_max_segs 1`), as a network card does: so
//! what is lost is a packet and not sixty of them. Without loss they pass the same filter, which drops none: looking at each
//! packet costs more than a sixth of the time of an exchange of 4 KiB. Of what is dropped of CMQ the filter keeps the
//! headers, so that what the receiver reports can be compared with it message by message.

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
/// The answerer's.
pub const FAR: &str = "10.77.0.2";
/// Everybody's port there.
pub const PORT: u16 = 7077;
/// Of a thousand packets that come in, as many are dropped as the paper dropped.
pub const DROPPED_OF_1000: u32 = 14;

/// The two namespaces; both go when this does and nobody is in them any more.
pub struct Field {
    /// Where the driver is.
    pub near: Namespace,
    /// Where the answerer is.
    pub far: Namespace,
    lossy: bool,
}

/// What was dropped since the field was made.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Dropped {
    /// Packets of any kind.
    pub packets: u64,
    /// Messages that were in them whole, if they were CMQ's.
    messages: u64,
    /// Messages of which some pieces were in them: of each one, or more.
    one_piece: u64,
    more_pieces: u64,
}

impl Dropped {
    /// Messages of CMQ that were in them. Others' messages may begin with the same byte, and are not counted.
    pub fn messages_of(&self, system: System) -> u64 {
        match (system.is_ours(), system.has_parity()) {
            (true, true) => self.messages + self.more_pieces,
            (true, false) => self.messages + self.one_piece + self.more_pieces,
            (false, _) => 0,
        }
    }
}

impl Field {
    /// Makes them; `cut`: packets are no larger than a frame, and pass the filter, also where it drops none. Needs root, and the programs `unshare`, `ip` and (for loss) `nft`.
    ///
    /// # Errors
    /// One of those is missing or refuses.
    pub fn new(congestion: &str, lossy: bool, cut: bool) -> io::Result<Field> {
        let field = Field { near: Namespace::new(congestion)?, far: Namespace::new(congestion)?, lossy };
        let segments: &[&str] = if cut { &["gso_max_segs", "1"] } else { &[] };
        field.far.inside(|| {
            // The pair is made where this thread can name the other namespace: by a process that is there.
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
            field.far.inside(|| nft(&rules(if lossy { DROPPED_OF_1000 } else { 0 })))??;
        }
        Ok(field)
    }

    /// The driver's and the answerer's address.
    pub fn addresses() -> (SocketAddr, SocketAddr) {
        let at = |ip: &str| SocketAddr::new(ip.parse().expect("an address"), PORT);
        (at(NEAR), at(FAR))
    }

    /// What was dropped so far.
    ///
    /// # Errors
    /// The filter does not answer.
    pub fn dropped(&self) -> io::Result<Dropped> {
        if !self.lossy {
            return Ok(Dropped::default());
        }
        let list = || Command::new("nft").args(["-j", "list", "table", "inet", "loss"]).output();
        let listed: Value = serde_json::from_slice(&self.far.inside(list)??.stdout)?;
        Ok(read(&listed))
    }
}

/// Drops at the hook and with the share of the paper (`iptables -A INPUT -m statistic`). What is dropped of CMQ is kept
/// by the kind, count and first number of its header, and of pieces by their numbers.
fn rules(dropped_of_1000: u32) -> String {
    format!(
        "table inet loss {{
           counter dropped {{ }}
           set headers {{ typeof @th,72,24 . @th,192,64; size 65535; flags dynamic; }}
           set pieces {{ typeof @th,192,64 . @th,320,32; size 65535; flags dynamic; }}
           chain lose {{
             counter name dropped
             udp dport {PORT} @th,64,16 0xc511 add @pieces {{ @th,192,64 . @th,320,32 }}
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

/// A batch is as many messages as it says; all pieces of a message carry its number.
fn read(listed: &Value) -> Dropped {
    let mut dropped = Dropped::default();
    let mut pieces: HashMap<u64, u64> = HashMap::new();
    for object in listed["nftables"].as_array().into_iter().flatten() {
        dropped.packets += object["counter"]["packets"].as_u64().unwrap_or(0);
        for element in object["set"]["elem"].as_array().into_iter().flatten() {
            // Of pieces the number of their message, of batches the bytes before it.
            let first = unsigned(&element["concat"][0]);
            if object["set"]["name"] == "pieces" {
                *pieces.entry(first).or_default() += 1;
            } else {
                let [_, _, low, high] = (first as u32).to_be_bytes();
                dropped.messages += u64::from(u16::from_le_bytes([low, high]));
            }
        }
    }
    dropped.one_piece = pieces.values().filter(|&&lost| lost == 1).count() as u64;
    dropped.more_pieces = pieces.len() as u64 - dropped.one_piece;
    dropped
}

/// nft writes the upper half of the numbers of 64 bits as negative ones.
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
    fn what_was_dropped_is_read_from_headers() {
        let number = |first: u64| i64::from_be_bytes(first.to_le_bytes());
        let batch = |count, first| {
            let kind = Kind::Batch;
            let header = Header { kind, count, stream: 1, epoch: 2, first, mailbox: 3 }.encode();
            let mut head = [0; 4];
            head[1..].copy_from_slice(&header[1..4]);
            serde_json::json!({ "concat": [u32::from_be_bytes(head), number(first)] })
        };
        let piece = |first, index: u32| serde_json::json!({ "concat": [number(first), index.swap_bytes()] });
        let pieces = [piece(307, 0), piece(307, 2), piece(0xF0, 1), piece(0xF1, 3)];
        let listed = serde_json::json!({ "nftables": [
            { "metainfo": {} },
            { "counter": { "name": "dropped", "packets": 7 } },
            { "set": { "name": "headers", "elem": [batch(300, 0), batch(7, 300)] } },
            { "set": { "name": "pieces", "elem": pieces } },
        ]});
        let dropped = read(&listed);
        assert_eq!(dropped, Dropped { packets: 7, messages: 307, one_piece: 2, more_pieces: 1 });
        let of = [System::CmqPaper, System::CmqParity, System::Udp].map(|s| dropped.messages_of(s));
        assert_eq!(of, [310, 308, 0]);
    }
}
