//! The search for the highest number of viewers without an error.

/// Finds the highest number for which `works` succeeds. It doubles the number from `start` on until it fails, and then bisects until the
/// two limits are less than `precision` (a fraction) apart. `most` is the highest number that is tried. `None`: `works` gave up.
pub fn highest<E>(
    start: usize,
    most: usize,
    precision: f64,
    mut works: impl FnMut(usize) -> Result<bool, E>,
) -> Result<usize, E> {
    let (mut good, mut bad) = (0, None);
    let mut next = start.clamp(1, most);
    loop {
        if works(next)? {
            good = next;
        } else {
            bad = Some(next);
        }
        next = match bad {
            None if good == most => return Ok(good),
            None => good.saturating_mul(2).min(most),
            Some(bad) if bad - good <= ((good as f64 * precision) as usize).max(1) => return Ok(good),
            Some(bad) => good + (bad - good) / 2,
        };
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use super::highest;

    #[test]
    fn the_highest_number_is_found() {
        for limit in [0, 1, 7, 99, 100, 101, 1000, 5000] {
            for start in [1, 100, 3000] {
                let mut tried = Vec::new();
                let works = |number| {
                    tried.push(number);
                    Ok::<_, Infallible>(number <= limit)
                };
                let Ok(found) = highest(start, 4000, 0.0, works);
                assert_eq!(found, limit.min(4000), "from {start}");
                assert!(tried.len() < 30);
            }
        }
        let Ok(near) = highest(10, 1 << 20, 0.1, |number| Ok::<_, Infallible>(number <= 1000));
        assert!((910..=1000).contains(&near));
        assert_eq!(highest(1, 10, 0.1, |_| Err("gave up")), Err("gave up"));
    }
}
