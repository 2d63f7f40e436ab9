//! Random traffic, checked by positions.

use super::flow::Flow;
use super::kit::Kit;
use super::lab::Lab;
use crate::contract::Transport;

/// A small generator; the same seed gives the same case.
pub struct Random(u64);

impl Random {
    /// From a seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next value (splitmix64).
    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A value below `n`.
    pub fn below(&mut self, n: u64) -> u64 {
        self.draw() % n.max(1)
    }

    /// A size that is often small, sometimes large, at most `max`.
    pub fn size(&mut self, max: u64) -> u64 {
        let bits = self.below(64 - u64::from(max.leading_zeros()) + 1);
        (self.draw() & ((1 << bits) - 1)).clamp(1, max)
    }
}

struct Talk {
    said: [u64; 2],
    budget: u64,
}

impl Talk {
    /// Sends a message at one end, if there is room.
    fn say<L: Lab>(&mut self, kit: &mut Kit<'_, L>, side: usize, random: &mut Random) {
        let id = kit.id(0, side);
        let max = (kit.promises().max_control_bytes as u64 - 8).min(self.budget);
        let mut message = self.said[side].to_le_bytes().to_vec();
        message.resize(8 + random.size(max) as usize, side as u8);
        if kit.ends[side].link().control(id, &message).is_ok() {
            self.said[side] += 1;
        }
    }

    fn check<L: Lab>(&self, kit: &Kit<'_, L>) -> bool {
        (0..2).all(|side| {
            let controls = kit.ends[side].controls(kit.id(0, side));
            for (i, message) in controls.iter().enumerate() {
                assert_eq!(message[..8], (i as u64).to_le_bytes(), "message {i} to end {side}");
                assert!(message[8..].iter().all(|&byte| byte == 1 - side as u8));
            }
            controls.len() as u64 == self.said[1 - side]
        })
    }
}

/// Flows both ways, control messages, pauses and detachments at random, from several seeds.
pub fn traffic<L: Lab>(lab: &mut L) {
    for seed in 1..=3 {
        println!("seed {seed}");
        seeded(lab, seed);
    }
}

fn seeded<L: Lab>(lab: &mut L, seed: u64) {
    let budget = lab.bytes() / 8;
    let mut kit = Kit::connected(lab);
    let mut random = Random::new(seed);
    let mut flows: Vec<_> = (0..6)
        .map(|i| {
            let capacity = 4_096 << random.below(6);
            let start = random.draw() >> random.below(64).max(1);
            Flow::new(&mut kit, 0, i % 2, i as u32 * 1_000, capacity, start)
        })
        .collect();
    let ends: Vec<_> = flows.iter().map(|flow| flow.queued() + budget / 6).collect();
    let mut talk = Talk { said: [0; 2], budget: (budget / 200).max(16) };
    let mut paused = [false; 2];
    kit.until("random traffic", |kit| {
        for (flow, &end) in flows.iter_mut().zip(&ends) {
            let max = flow.source.max_delivery();
            flow.advance(kit, end, &mut || random.size(max));
            // Bytes that the peer maps are not released before it reports so. Without order a range in flight must land before
            // the ring's next one.
            if !kit.lab().maps() && random.below(40) == 0 {
                let id = flow.sender(kit);
                kit.ends[flow.from].link().detach(id, flow.wire);
                flow.detached();
            }
        }
        for (side, paused) in paused.iter_mut().enumerate() {
            if random.below(4) == 0 && talk.said[side] < 60 {
                talk.say(kit, side, &mut random);
            }
            if random.below(if *paused { 3 } else { 30 }) == 0 {
                *paused = !*paused;
                let id = kit.id(0, side);
                kit.ends[side].pause(id, *paused);
            }
        }
        flows.iter().zip(&ends).all(|(flow, &end)| flow.checked() == end)
            && talk.said.iter().all(|&said| said >= 60)
            && talk.check(kit)
    });
    for flow in &flows {
        assert_eq!(flow.sink.boundary(), flow.checked());
    }
}
