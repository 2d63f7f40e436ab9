//! Ethernet frames with UDP datagrams over IPv4, good and bad.

use std::net::Ipv4Addr;

/// Bytes before the UDP payload.
pub const HEADERS: usize = 42;

/// The parts of a frame. `frame` computes the parts that are None.
#[derive(Debug, Clone)]
pub struct Packet {
    pub to: [u8; 6],
    pub from: [u8; 6],
    pub ether_type: u16,
    /// Version and length of the IP header.
    pub version: u8,
    pub total: Option<u16>,
    pub fragment: u16,
    pub protocol: u8,
    pub ip_sum: Option<u16>,
    pub source: Ipv4Addr,
    pub destination: Ipv4Addr,
    pub source_port: u16,
    pub port: u16,
    pub udp_length: Option<u16>,
    pub sum: Sum,
    pub payload: Vec<u8>,
    /// Bytes behind the datagram, as in the padding of short frames.
    pub trailer: usize,
}

/// The UDP checksum.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sum {
    Right,
    /// Zero: not used.
    Unused,
    /// Of the pseudo header only, as senders on this machine leave it.
    Partial,
    Value(u16),
}

impl Packet {
    pub fn new(port: u16, payload: &[u8]) -> Packet {
        Packet {
            to: [2, 0, 0, 0, 0, 2],
            from: [2, 0, 0, 0, 0, 1],
            ether_type: 0x0800,
            version: 0x45,
            total: None,
            fragment: 0x4000,
            protocol: 17,
            ip_sum: None,
            source: Ipv4Addr::new(10, 1, 2, 3),
            destination: Ipv4Addr::new(10, 1, 2, 4),
            source_port: 40_000,
            port,
            udp_length: None,
            sum: Sum::Right,
            payload: payload.to_vec(),
            trailer: 0,
        }
    }

    pub fn frame(&self) -> Vec<u8> {
        let length = self.udp_length.unwrap_or(8 + self.payload.len() as u16);
        let mut f = Vec::new();
        f.extend(self.to);
        f.extend(self.from);
        f.extend(self.ether_type.to_be_bytes());
        f.extend([self.version, 0]);
        f.extend(self.total.unwrap_or(28 + self.payload.len() as u16).to_be_bytes());
        f.extend([0x12, 0x34]);
        f.extend(self.fragment.to_be_bytes());
        f.extend([64, self.protocol, 0, 0]);
        f.extend(self.source.octets());
        f.extend(self.destination.octets());
        let ip_sum = self.ip_sum.unwrap_or(!sum(&f[14..34]));
        f[24..26].copy_from_slice(&ip_sum.to_be_bytes());
        f.extend(self.source_port.to_be_bytes());
        f.extend(self.port.to_be_bytes());
        f.extend(length.to_be_bytes());
        f.extend([0, 0]);
        f.extend(&self.payload);
        let check = match self.sum {
            Sum::Right => udp_sum(&f, length),
            Sum::Unused => 0,
            Sum::Partial => sum(&pseudo(&f, length)),
            Sum::Value(value) => value,
        };
        f[40..42].copy_from_slice(&check.to_be_bytes());
        f.extend(vec![0; self.trailer]);
        f
    }
}

fn pseudo(f: &[u8], length: u16) -> Vec<u8> {
    let mut pseudo = f[26..34].to_vec();
    pseudo.extend([0, 17]);
    pseudo.extend(length.to_be_bytes());
    pseudo
}

/// The UDP checksum of a frame whose checksum field is zero.
pub fn udp_sum(f: &[u8], length: u16) -> u16 {
    let mut all = pseudo(f, length);
    all.extend(&f[34..]);
    match !sum(&all) {
        0 => 0xffff,
        sum => sum,
    }
}

/// The ones' complement sum.
pub fn sum(bytes: &[u8]) -> u16 {
    let mut sum = 0_u32;
    for word in bytes.chunks(2) {
        sum += u32::from(word[0]) << 8 | u32::from(*word.get(1).unwrap_or(&0));
    }
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}
