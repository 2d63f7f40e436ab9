//! The reader of `multimqc-bench check`: follows the kernel's ring, and looks at every message.

use std::time::Duration;

use commands::{Failure, Stop, print};
use multimqc::{Epoch, Offset, Stop as Why, TopicId};
use multimqc_kernel::{Config, Kernel, Mode, Ports, Topic, numbered_message};
use serde::{Deserialize, Serialize};

use super::system::PUSH_PORT;

/// Bytes of a message.
pub const MESSAGE: usize = 32;
/// The first bits of a number tell its writer.
pub const WRITER_SHIFT: u32 = 48;
/// Bytes of one look.
const LOOK: usize = 64 << 10;
/// How long a batch is waited for.
const WAIT: Duration = Duration::from_millis(5);

#[derive(Debug, clap::Args)]
pub struct Args {
    #[arg(long)]
    interface: String,
    #[arg(long)]
    ring_bytes: u64,
}

/// The counts of the reader.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Seen {
    /// Bytes of the log.
    pub log_bytes: u64,
    /// Messages that the programs have counted as stored.
    pub stored: u64,
    /// Messages that were read, each whole.
    pub read: u64,
    /// Holes that were reported, and their bytes.
    pub holes: u64,
    pub hole_bytes: u64,
    /// Messages that are no message that was sent.
    pub torn: u64,
    /// Messages that came before or with an earlier one of their writer.
    pub disordered: u64,
    /// Numbers that are missing where no hole was reported: messages that were lost before the level.
    pub missing: u64,
    /// CPUs that have stored messages.
    pub writers: u64,
    /// Times that a writer was overtaken by a whole ring.
    pub lapped: u64,
}

/// Prints a line when it begins, and the counts when it is told to stop.
pub fn run(args: &Args) -> Result<(), Failure> {
    let stop = Stop::install()?;
    let config = Config::default().mode(Mode::XdpNative).ring_bytes(args.ring_bytes);
    let batch_bytes = config.batch_bytes.min(args.ring_bytes / 8);
    let kernel = Kernel::new(config.batch_bytes(batch_bytes)).map_err(Failure::failed)?;
    let ports = Ports { push: PUSH_PORT, pull: 0, header: 0 };
    let topic = kernel.open(TopicId(1), ports, 0, Epoch(1)).map_err(Failure::failed)?;
    kernel.attach(&args.interface).map_err(Failure::failed)?;
    print("listening\n")?;
    let mut reader = Reader::default();
    let mut buffer = vec![0; LOOK];
    while !stop.asked() {
        if !reader.look(&topic, &mut buffer) {
            kernel.wait_batch(WAIT).map_err(Failure::failed)?;
        }
    }
    // The rest, once no more is sent.
    while reader.look(&topic, &mut buffer) {}
    let counters = topic.counters();
    let seen = Seen {
        log_bytes: topic.window().head,
        stored: counters.stored,
        lapped: counters.lapped,
        writers: reader.last.iter().filter(|last| **last > 0).count() as u64,
        ..reader.seen
    };
    println!("{}", serde_json::to_string(&seen).map_err(Failure::failed)?);
    Ok(())
}

/// The most generators.
const WRITERS: usize = 64;

#[derive(Default)]
struct Reader {
    at: Offset,
    seen: Seen,
    last: Vec<u64>,
    /// A hole was reported since the last message of a writer.
    is_after_hole: Vec<bool>,
}

impl Reader {
    /// Reads the bytes that are there, at most a buffer. False: nothing.
    fn look(&mut self, topic: &Topic, buffer: &mut [u8]) -> bool {
        let found = topic.read(self.at, buffer);
        let whole = found.bytes / MESSAGE * MESSAGE;
        for message in buffer[..whole].chunks_exact(MESSAGE) {
            self.take(message);
        }
        self.at += whole as u64;
        if let Why::Gone(first) = found.stop {
            let next = first.next_multiple_of(MESSAGE as u64);
            self.seen.holes += 1;
            self.seen.hole_bytes += next - self.at;
            self.at = next;
            self.is_after_hole.fill(true);
            return true;
        }
        whole > 0
    }

    fn take(&mut self, message: &[u8]) {
        let number = u64::from_le_bytes(message[..8].try_into().expect("8 bytes"));
        let writer = (number >> WRITER_SHIFT) as usize;
        if writer >= WRITERS || message != numbered_message(number) {
            self.seen.torn += 1;
            return;
        }
        if self.last.len() <= writer {
            self.last.resize(writer + 1, 0);
            self.is_after_hole.resize(writer + 1, false);
        }
        let last = std::mem::replace(&mut self.last[writer], number);
        let was_hole = std::mem::take(&mut self.is_after_hole[writer]);
        self.seen.read += 1;
        if last == 0 {
            return;
        }
        if number <= last {
            self.seen.disordered += 1;
        } else if !was_hole {
            self.seen.missing += number - last - 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reader_of(numbers: &[u64]) -> Reader {
        let mut reader = Reader::default();
        for number in numbers {
            reader.take(&numbered_message(*number));
        }
        reader
    }

    #[test]
    fn gaps_and_repetitions_are_counted() {
        let (one, two) = (1 << WRITER_SHIFT, 2 << WRITER_SHIFT);
        let seen = reader_of(&[one + 1, two + 7, one + 2, one + 5, two + 7, two + 8]).seen;
        assert_eq!((seen.read, seen.missing, seen.disordered, seen.torn), (6, 2, 1, 0));
    }

    #[test]
    fn a_mixture_of_two_messages_is_torn() {
        let (mut mixed, other) = (numbered_message(1 << WRITER_SHIFT), numbered_message(5 << WRITER_SHIFT));
        for at in [8, 16, 24] {
            mixed[at..].copy_from_slice(&other[at..]);
            let mut reader = Reader::default();
            reader.take(&mixed);
            assert_eq!(reader.seen.torn, 1);
            mixed = numbered_message(1 << WRITER_SHIFT);
        }
    }
}
