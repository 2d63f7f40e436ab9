//! The cost of the program in XDP for a packet: `cargo run -p multimqc-kernel --example cost` (as root).
//!
//! The kernel runs the program on one packet, many times, and takes the time (BPF_PROG_TEST_RUN). So the packet and the ring are in
//! the processor's caches, and a device's own work is not counted. Another datagram, which passes after a look at its port,
//! shows the cost that every packet has. The best of several rounds is shown, since other work on the machine only adds.
//!
//! A reply takes the place of its request, so a pull runs once at a time: the medians of single runs are compared, of which each has
//! some 30 ns for taking the time.

use multimqc::wire::{PULL_PORT, PUSH_PORT, PullRequest};
use multimqc::{Epoch, TopicId};
use multimqc_kernel::{Config, Kernel, KernelError, Mode, Ports};

const REPEAT: u32 = 1 << 17;
const ROUNDS: u32 = 9;
const SINGLES: usize = 20_000;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    for (name, config) in [
        ("xdp", Config::default()),
        ("xdp, checksums not verified", Config::default().verify_checksums(false)),
        ("tcx", Config::default().mode(Mode::Tcx)),
    ] {
        let kernel = open(config)?;
        println!("{name}: ns per packet by payload");
        println!("{:>8} {:>8} {:>8} | {:>8} {:>8}", "bytes", "other", "push", "other", "pull");
        for bytes in [4, 32, 128, 512, 1472] {
            let payload = vec![7; bytes];
            let other = best(&kernel, &frame(9, &payload))?;
            let push = best(&kernel, &frame(PUSH_PORT, &payload))?;
            let mut request = Vec::new();
            let start = kernel.topic(TopicId(1)).expect("open").window().first;
            PullRequest { start, length: bytes as u64 }.encode_padded(bytes, &mut request);
            let single_other = median(&kernel, &frame(9, &payload))?;
            let pull = median(&kernel, &frame(PULL_PORT, &request))?;
            println!("{bytes:>8} {other:>8} {push:>8} | {single_other:>8} {pull:>8}");
        }
    }
    Ok(())
}

fn open(config: Config) -> Result<Kernel, KernelError> {
    let kernel = Kernel::new(config)?;
    kernel.open(TopicId(1), Ports::default(), 0, Epoch(1))?;
    Ok(kernel)
}

fn best(kernel: &Kernel, frame: &[u8]) -> std::io::Result<u32> {
    let rounds = (0..ROUNDS).map(|_| kernel.run(frame, REPEAT).map(|run| run.nanos));
    Ok(rounds.collect::<Result<Vec<u32>, _>>()?.into_iter().min().unwrap_or(0))
}

fn median(kernel: &Kernel, frame: &[u8]) -> std::io::Result<u32> {
    let singles = (0..SINGLES).map(|_| kernel.run(frame, 1).map(|run| run.nanos));
    let mut singles = singles.collect::<Result<Vec<u32>, _>>()?;
    singles.sort_unstable();
    Ok(singles[SINGLES / 2])
}

/// An Ethernet frame with a UDP datagram between two made-up hosts.
fn frame(port: u16, payload: &[u8]) -> Vec<u8> {
    let (length, total) = (8 + payload.len() as u16, 28 + payload.len() as u16);
    let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0, 0x45, 0];
    frame.extend(total.to_be_bytes());
    frame.extend([0, 0, 0x40, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    let check = sum(&[&frame[14..34]]);
    frame[24..26].copy_from_slice(&check.to_be_bytes());
    frame.extend(40_000_u16.to_be_bytes());
    frame.extend(port.to_be_bytes());
    frame.extend(length.to_be_bytes());
    frame.extend([0, 0]);
    frame.extend(payload);
    let check = sum(&[&frame[26..34], &[0, 17], &length.to_be_bytes(), &frame[34..]]);
    frame[40..42].copy_from_slice(&check.to_be_bytes());
    frame
}

/// The Internet checksum of these pieces, each with an even number of bytes but the last.
fn sum(pieces: &[&[u8]]) -> u16 {
    let word = |word: &[u8]| u32::from(word[0]) << 8 | u32::from(*word.get(1).unwrap_or(&0));
    let mut sum: u32 = pieces.iter().flat_map(|piece| piece.chunks(2)).map(word).sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}
