//! A small mutator: an endless stream of inputs from a corpus and a seed, the same for the same two.

/// Inputs never grow past this.
pub const MAX_INPUT_BYTES: usize = 64 << 10;

/// Values at which parsers of lengths and positions go wrong.
const EDGES: [u64; 12] = [
    0,
    1,
    0x7F,
    0x80,
    0xFF,
    0x7FFF,
    0xFFFF,
    0x7FFF_FFFF,
    0xFFFF_FFFF,
    i64::MAX as u64,
    u64::MAX - 1,
    u64::MAX,
];

/// A stream of inputs.
#[derive(Debug)]
pub struct Mutator {
    state: u64,
    corpus: Vec<Vec<u8>>,
}

impl Mutator {
    /// From the seed and the inputs to begin with; an empty input is always among them.
    pub fn new(seed: u64, mut corpus: Vec<Vec<u8>>) -> Self {
        corpus.push(Vec::new());
        Self { state: seed, corpus }
    }

    /// The inputs that were given, unchanged, and the empty one.
    pub fn corpus(&self) -> &[Vec<u8>] {
        &self.corpus
    }

    /// The next input.
    pub fn next_input(&mut self) -> Vec<u8> {
        let mut input = self.pick().to_vec();
        for _ in 0..1 + self.below(4) {
            self.mutate(&mut input);
        }
        input.truncate(MAX_INPUT_BYTES);
        input
    }

    /// SplitMix64: every state leads to a well mixed word and to the next state.
    fn word(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// Below `limit`, which is not 0.
    fn below(&mut self, limit: usize) -> usize {
        (self.word() % limit as u64) as usize
    }

    fn pick(&mut self) -> &[u8] {
        let index = self.below(self.corpus.len());
        &self.corpus[index]
    }

    fn mutate(&mut self, input: &mut Vec<u8>) {
        let at = self.below(input.len() + 1);
        match self.below(8) {
            0 => input.truncate(at),
            1 => self.insert_noise(input, at),
            2 => self.splice(input, at),
            3 => self.overwrite_edge(input, at),
            4 => self.repeat(input, at),
            5 => drop(input.drain(at..(at + self.below(16)).min(input.len()))),
            _ => self.flip(input, at),
        }
    }

    fn flip(&mut self, input: &mut [u8], at: usize) {
        let bit = self.below(8);
        if let Some(byte) = input.get_mut(at) {
            *byte ^= 1 << bit;
        }
    }

    fn insert_noise(&mut self, input: &mut Vec<u8>, at: usize) {
        let count = 1 + self.below(8);
        let noise = self.word().to_le_bytes();
        input.splice(at..at, noise[..count].iter().copied());
    }

    /// The head of this input with the rest of another.
    fn splice(&mut self, input: &mut Vec<u8>, at: usize) {
        let other = self.pick().to_vec();
        let from = self.below(other.len() + 1);
        input.truncate(at);
        input.extend_from_slice(&other[from..]);
    }

    /// A length or position at the edge of its range, in 1, 2, 4 or 8 bytes.
    fn overwrite_edge(&mut self, input: &mut [u8], at: usize) {
        let edge = EDGES[self.below(EDGES.len())].wrapping_add(self.below(3) as u64);
        let width = 1 << self.below(4);
        for (byte, value) in input[at..].iter_mut().zip(&edge.to_le_bytes()[..width]) {
            *byte = *value;
        }
    }

    /// Part of the input several times over, as repeated fields and long lists.
    fn repeat(&mut self, input: &mut Vec<u8>, at: usize) {
        let end = (at + 1 + self.below(64)).min(input.len());
        let part = input[at..end].repeat(1 + self.below(32));
        input.splice(at..at, part);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_inputs() {
        let corpus = vec![b"hello world".to_vec(), vec![0; 40]];
        let (mut a, mut b) = (Mutator::new(7, corpus.clone()), Mutator::new(7, corpus));
        for _ in 0..1000 {
            let input = a.next_input();
            assert!(input.len() <= MAX_INPUT_BYTES);
            assert_eq!(input, b.next_input());
        }
    }

    #[test]
    fn inputs_grow_shrink_and_change() {
        let seed = vec![b"hello world".to_vec()];
        let mut mutator = Mutator::new(1, seed.clone());
        let inputs: Vec<_> = (0..1000).map(|_| mutator.next_input()).collect();
        assert!(inputs.iter().any(|i| i.len() > 11));
        assert!(inputs.iter().any(|i| !i.is_empty() && i.len() < 11));
        assert!(inputs.iter().any(|i| i.len() == 11 && *i != seed[0]));
    }
}
