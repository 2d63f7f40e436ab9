//! The lines of standard input.

use std::os::fd::AsFd;
use std::str::FromStr;
use std::time::Duration;

use commands::{Failure, Stop};

/// A line has at most so many bytes.
const MAX_LINE_BYTES: usize = 256;

/// Standard input, by lines. Its end is not the end of the command.
pub struct Lines {
    input: std::io::Stdin,
    begun: Vec<u8>,
    ended: bool,
}

impl Lines {
    pub fn new() -> Lines {
        Lines { input: std::io::stdin(), begun: Vec::new(), ended: false }
    }

    /// Waits at most `time` for input. Returns whether there is some.
    pub fn wait(&self, stop: &Stop, time: Duration) -> Result<bool, Failure> {
        if self.ended {
            stop.wait(Some(time));
            return Ok(false);
        }
        Ok(stop.wait_any(&[self.input.as_fd()], Some(time))?[0])
    }

    /// Reads the available input, and returns the complete lines.
    pub fn take(&mut self) -> Result<Vec<String>, Failure> {
        let mut got = [0; MAX_LINE_BYTES];
        // This bypasses the handle's own buffer, which `wait` does not see.
        let count = rustix::io::read(self.input.as_fd(), &mut got)?;
        self.ended = count == 0;
        Ok(self.add(&got[..count]))
    }

    fn add(&mut self, bytes: &[u8]) -> Vec<String> {
        let mut lines = Vec::new();
        for byte in bytes {
            match byte {
                b'\n' => lines.push(String::from_utf8_lossy(&std::mem::take(&mut self.begun)).into_owned()),
                // The rest of a line that is too long is not kept; such a line is no order.
                _ if self.begun.len() <= MAX_LINE_BYTES => self.begun.push(*byte),
                _ => {}
            }
        }
        lines
    }
}

/// The order in a line.
#[derive(Debug, PartialEq, Eq)]
pub enum Order {
    /// The levels of the NIC that answer, as bits and by name.
    Levels { bits: u8, names: String },
    /// The counters of the NIC.
    Stat,
}

impl FromStr for Order {
    type Err = String;

    fn from_str(line: &str) -> Result<Order, String> {
        let wrong =
            || format!("{:?}: the lines are `levels level1,level2`, `levels none` and `stat`", line.trim());
        match line.split_whitespace().collect::<Vec<_>>()[..] {
            ["stat"] => Ok(Order::Stat),
            ["levels", "none"] => {
                Ok(Order::Levels { bits: 0, names: "no level: all frames go to the server".into() })
            }
            ["levels", list] => {
                let bit = |name| match name {
                    "level1" => Ok(1),
                    "level2" => Ok(2),
                    _ => Err(wrong()),
                };
                let bits = list.split(',').try_fold(0, |bits, name| bit(name).map(|bit| bits | bit))?;
                Ok(Order::Levels { bits, names: list.into() })
            }
            _ => Err(wrong()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_orders() {
        let levels = |line: &str| match line.parse() {
            Ok(Order::Levels { bits, .. }) => bits,
            other => panic!("{other:?}"),
        };
        assert_eq!(
            ["levels level1,level2", " levels level2 ", "levels level1", "levels none"].map(levels),
            [3, 2, 1, 0]
        );
        assert_eq!("stat".parse(), Ok(Order::Stat));
        for wrong in ["", "levels", "levels level3", "levels level1,", "stat now", "quit"] {
            assert!(wrong.parse::<Order>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn lines_come_in_pieces_and_have_a_limit() {
        let mut lines = Lines::new();
        assert_eq!(lines.add(b"st"), Vec::<String>::new());
        assert_eq!(lines.add(b"at\nlevels none\nx"), ["stat", "levels none"]);
        lines.add(&[b'x'; 100_000]);
        assert!(lines.begun.len() <= MAX_LINE_BYTES + 1);
        assert!(lines.add(b"\n")[0].parse::<Order>().is_err());
    }
}
