//! The number of publishers with the highest rate of a system (paper 2, section 4.1).
//!
//! Too few publishers do not keep the broker busy, too many hinder each other: the rate goes up, then down. The search for the
//! maximum halves the range: it measures the middle and its neighbour, and continues on the better side.

/// The number from 1 to `most` with the highest rate, if rates go up and then down. Every number is measured
/// at most once; with noise, the best measured number is returned.
pub fn best_number<E>(most: u8, mut rate: impl FnMut(u8) -> Result<f64, E>) -> Result<u8, E> {
    let mut seen: Vec<(u8, f64)> = Vec::new();
    let mut measure = |number: u8| match seen.iter().find(|(n, _)| *n == number) {
        Some((_, rate)) => Ok(*rate),
        None => {
            let rate = rate(number)?;
            seen.push((number, rate));
            Ok(rate)
        }
    };
    let (mut low, mut high) = (1, most.max(1));
    while low < high {
        let middle = low.midpoint(high);
        let here = measure(middle)?;
        if measure(middle + 1)? > here { low = middle + 1 } else { high = middle }
    }
    let best = seen.iter().max_by(|a, b| a.1.total_cmp(&b.1));
    Ok(best.map_or(1, |(number, _)| *number))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_top_is_found_without_measuring_everything() {
        for most in 1..=32_u8 {
            for top in 1..=most {
                let mut measured = 0;
                let rate = |n: u8| {
                    measured += 1;
                    Ok::<_, ()>(-f64::from(n.abs_diff(top)))
                };
                assert_eq!(best_number(most, rate), Ok(top));
                assert!(measured <= 2 * (u32::from(most).ilog2() + 1), "{most} {measured}");
            }
        }
    }

    #[test]
    fn an_error_ends_the_search() {
        assert_eq!(best_number(8, |_| Err::<f64, _>("gone")), Err("gone"));
    }
}
