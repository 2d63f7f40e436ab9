//! The output of the processes of a round.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::ops::Range;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

/// A line that `pub --confirm-each --json` prints.
#[derive(Debug, Clone, Copy)]
pub struct Confirmed {
    pub messages: u64,
    pub subscribers: u64,
    pub left: u64,
}

/// The output of a process, line by line, while it runs.
pub struct Lines {
    lines: Arc<Mutex<Vec<String>>>,
    thread: JoinHandle<()>,
}

impl Lines {
    pub fn of(stream: impl std::io::Read + Send + 'static) -> Self {
        let lines = Arc::<Mutex<Vec<String>>>::default();
        let to = lines.clone();
        let thread = std::thread::spawn(move || {
            for line in BufReader::new(stream).lines().map_while(Result::ok) {
                to.lock().expect("no panics").push(line);
            }
        });
        Self { lines, thread }
    }

    pub fn now(&self) -> Vec<String> {
        self.lines.lock().expect("no panics").clone()
    }

    pub fn all(self) -> Vec<String> {
        self.thread.join().expect("a reader");
        Arc::try_unwrap(self.lines).expect("its reader is done").into_inner().expect("no panics")
    }
}

pub fn confirmations(lines: &[String]) -> Vec<Confirmed> {
    let parse = |line: &String| {
        let value: serde_json::Value = serde_json::from_str(line).ok()?;
        value.get("confirmed")?.as_str()?;
        let number = |name: &str| value[name].as_u64();
        Some(Confirmed {
            messages: number("messages")?,
            subscribers: number("subscribers")?,
            left: number("left")?,
        })
    };
    lines.iter().filter_map(parse).collect()
}

/// The numbers of the complete lines of one publisher, in the order in which they came.
pub fn numbers(text: &str, publisher: usize) -> Vec<u64> {
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    let of_publisher = |line: &str| {
        let mut words = line.split(' ');
        let from: usize = words.next()?.parse().ok()?;
        let number = words.next()?.parse().ok()?;
        (from == publisher).then_some(number)
    };
    whole.lines().filter_map(of_publisher).collect()
}

/// The positions that a subscriber reported as lost.
pub fn lost(said: &str) -> Vec<Range<u64>> {
    let range = |line: &str| {
        let (_, positions) = line.split_once("were lost (positions ")?;
        let (from, to) = positions.strip_suffix(')')?.split_once(" to ")?;
        Some(from.parse().ok()?..to.parse().ok()?)
    };
    said.lines().filter_map(range).collect()
}

/// The first line that was confirmed for the writer and is not in `has`, with its confirmation.
pub fn missing(
    confirmed: &[Confirmed],
    has: &[u64],
    counts: impl Fn(&Confirmed) -> bool,
) -> Option<(u64, Confirmed)> {
    let has: BTreeSet<u64> = has.iter().copied().collect();
    let mut from = 0;
    for line in confirmed {
        if line.messages < from {
            return Some((line.messages, *line));
        }
        if counts(line)
            && let Some(missing) = (from..line.messages).find(|n| !has.contains(n))
        {
            return Some((missing, *line));
        }
        from = line.messages;
    }
    None
}
