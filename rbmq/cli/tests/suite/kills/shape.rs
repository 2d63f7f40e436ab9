//! The shape of a round, drawn from a seed.

use testkit::Random;

/// Lines that all publishers of a round publish together: some hundred milliseconds at the rate of the file.
const LINES: u64 = 60_000;

/// The bytes before each record of a log.
const RECORD_HEADER_BYTES: u64 = 4;

/// The publishers, brokers and options of a round.
#[derive(Debug, Clone, Copy)]
pub struct Shape {
    /// The confirmation that publishers wait for.
    pub level: &'static str,
    /// Whether the topic is merged. If not it has one publisher.
    pub merged: bool,
    pub publishers: usize,
    /// Whether the publishers are at one broker, and the subscribers at another one behind it.
    pub chain: bool,
    /// Whether a pattern is subscribed to, and not the topic.
    pub pattern: bool,
    /// By what processes talk to each other.
    pub transport: &'static str,
    /// Ring of a publisher.
    pub ring: &'static str,
    /// Bytes of a line besides its numbers.
    pub filler: usize,
}

impl Shape {
    pub fn draw(rng: &mut Random) -> Self {
        let level = rng.pick(&["accepted", "delivered", "consumed"]).expect("one of them");
        let merged = rng.below(3) == 0;
        let publishers = if merged { 2 + rng.below(2) as usize } else { 1 };
        Self {
            level,
            merged,
            publishers,
            chain: rng.below(3) == 0,
            pattern: rng.below(3) == 0,
            transport: rng.pick(&["auto", "auto", "tcp"]).expect("one of them"),
            ring: rng.pick(&["64k", "256k", "1M"]).expect("one of them"),
            filler: rng.below(120) as usize,
        }
    }

    /// Lines of each publisher.
    pub fn lines(&self) -> u64 {
        LINES / self.publishers as u64
    }

    /// Line number `n` of a publisher.
    pub fn line(&self, publisher: usize, n: u64) -> String {
        format!("{publisher} {n} {}", "x".repeat(self.filler))
    }

    /// Bytes of that line as a record of a log.
    pub fn record_bytes(&self, publisher: usize, n: u64) -> u64 {
        RECORD_HEADER_BYTES + self.line(publisher, n).len() as u64
    }

    /// The filter of the subscribers.
    pub fn filter(&self) -> &'static str {
        if self.pattern { "t/#" } else { "t/x" }
    }

    /// Where `sub --output` writes the topic's messages.
    pub fn file(&self) -> &'static str {
        if self.pattern { "out/t%2Fx" } else { "out" }
    }

    /// The configuration of the publishers' broker, or with `upstream` of the broker behind it.
    pub fn config(&self, upstream: Option<&str>) -> String {
        let mut text = "[session]\nlinger_ms = 700\n".to_owned();
        if let Some(upstream) = upstream {
            text += &format!("[[broker.upstream]]\naddress = \"{upstream}\"\nhold_ms = 500\n");
        }
        if self.merged {
            // A merged topic ends so long after its last publisher.
            text += "[broker]\nclosed_linger_ms = 300\n[[broker.topics]]\npattern = \"t/#\"\ningest = \"merge\"\n";
        }
        text
    }
}
