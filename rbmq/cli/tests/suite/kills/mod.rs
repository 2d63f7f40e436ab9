//! `kill -9` of any process while data flows: confirmed messages are never lost, and every gap is reported.
//!
//! A round has a broker or a chain of two, a publisher with confirmations or several publishers of a merged topic, a durable
//! subscriber that writes a file, and a subscriber that only reads. The seed draws the round's shape and the moments at which a
//! process is killed. A killed process that the round needs is started again. `KILLS=100` sets the number of moments,
//! `KILL_FROM=1000` the first seed, `KILL_SEED=7` replays the round of a seed.

mod output;
mod publisher;
mod round;
mod shape;

use std::time::Instant;

use round::Round;

/// Moments of a usual run.
const KILLS: u64 = 10;

/// Plays the round of a seed; returns how many were killed.
fn play(seed: u64) -> usize {
    let mut round = Round::start(seed);
    // Shown if anything fails, a process that hangs included.
    println!("KILL_SEED={seed} replays this round: {}", round.shape_text());
    let kills = 1 + round.rng.below(4);
    for n in 1..=kills {
        if !round.kill(n == kills) {
            break;
        }
    }
    round.finish()
}

#[test]
fn confirmed_bytes_are_there_after_each_kill() {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    if let Some(seed) = number("KILL_SEED") {
        println!("seed {seed}: {} killed", play(seed));
        return;
    }
    let (wanted, started) = (number("KILLS").unwrap_or(KILLS), Instant::now());
    let first = number("KILL_FROM").unwrap_or(0);
    let (mut killed, mut rounds) = (0, 0);
    while killed < wanted {
        killed += play(first + rounds) as u64;
        rounds += 1;
    }
    println!("{killed} processes killed in {rounds} rounds, {:?}", started.elapsed());
}
