//! The order of measurements.

/// Rotates the order with each repetition, so that no system always follows the same other one.
pub fn in_turn<T>(load: &[T], rep: u32) -> impl Iterator<Item = &T> {
    let first = rep as usize % load.len().max(1);
    load[first..].iter().chain(&load[..first])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_system_is_measured_in_each_repetition_and_begins_one() {
        let orders = [0, 1, 2, 3].map(|rep| in_turn(&['a', 'b', 'c'], rep).collect::<String>());
        assert_eq!(orders, ["abc", "bca", "cab", "abc"]);
        assert_eq!(in_turn::<u8>(&[], 7).count(), 0);
    }
}
