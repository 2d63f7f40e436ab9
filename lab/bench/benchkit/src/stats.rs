//! Statistics of a few repetitions: a median and its confidence interval.
//!
//! Six or more repetitions have an exact interval for the median that assumes no distribution: two of the
//! figures, with at least 95 % confidence (order statistics). Two to five repetitions have Student's t interval
//! around the mean, which assumes a normal distribution. A single repetition has none.

/// A median and its 95 % interval, if there is one.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Estimate {
    /// The median.
    pub median: f64,
    /// The ends of the interval.
    pub interval: Option<(f64, f64)>,
}

/// Student's t, 97.5 %, for 1 to 4 degrees of freedom.
const T: [f64; 4] = [12.706, 4.303, 3.182, 2.776];

/// The estimate of these figures; `None` without figures.
pub fn estimate(figures: impl IntoIterator<Item = f64>) -> Option<Estimate> {
    let mut sorted: Vec<f64> = figures.into_iter().collect();
    sorted.sort_by(f64::total_cmp);
    let median = median_of_sorted(&sorted)?;
    let interval = match sorted.len() {
        0 | 1 => None,
        2..=5 => Some(student(&sorted)),
        n => {
            let cut = cut_off(n);
            Some((sorted[cut], sorted[n - 1 - cut]))
        }
    };
    Some(Estimate { median, interval })
}

/// The median of these figures; `None` without figures.
pub fn median(figures: impl IntoIterator<Item = f64>) -> Option<f64> {
    estimate(figures).map(|estimate| estimate.median)
}

/// The ratio of two systems: over the repetitions that both have. The two figures of a repetition are measured in turn, so
/// that a disturbance affects both.
///
/// Each figure is paired with its repetition. `None` if no repetition has both, or the other figure is not
/// above zero.
pub fn times(ones: &[(u32, f64)], others: &[(u32, f64)]) -> Option<Estimate> {
    let pair = |&(rep, one): &(u32, f64)| {
        let (_, other) = others.iter().find(|(of, other)| *of == rep && *other > 0.0)?;
        Some(one / other)
    };
    estimate(ones.iter().filter_map(pair))
}

/// The middle figure, or the mean of the two in the middle.
fn median_of_sorted(sorted: &[f64]) -> Option<f64> {
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => None,
        n if n.is_multiple_of(2) => Some(f64::midpoint(sorted[middle - 1], sorted[middle])),
        _ => Some(sorted[middle]),
    }
}

/// The interval of the mean, at least zero where no figure is below.
fn student(figures: &[f64]) -> (f64, f64) {
    let n = figures.len() as f64;
    let mean = figures.iter().sum::<f64>() / n;
    let variance = figures.iter().map(|figure| (figure - mean).powi(2)).sum::<f64>() / (n - 1.0);
    let half = T[figures.len() - 2] * (variance / n).sqrt();
    let least = if figures.iter().all(|figure| *figure >= 0.0) { 0.0 } else { f64::NEG_INFINITY };
    ((mean - half).max(least), mean + half)
}

/// The number of figures at either end of `n` sorted ones (at least 6) that can be left out, so that the
/// median is among the rest with at least 95 % confidence. Each figure is above or below the median with
/// equal probability.
fn cut_off(n: usize) -> usize {
    let mut outside = 0.0;
    let mut ways = 1.0;
    for cut in 0..n / 2 {
        // Each side needs more than `cut` of `n` tosses.
        outside += ways * 0.5_f64.powi(n as i32);
        if 2.0 * outside > 0.05 {
            return cut.saturating_sub(1);
        }
        ways = ways * (n - cut) as f64 / (cut + 1) as f64;
    }
    0
}

/// The percentile of sorted figures; 0 for none.
pub fn quantile(sorted: &[u64], percent: usize) -> u64 {
    let at = (sorted.len() * percent / 100).min(sorted.len().saturating_sub(1));
    sorted.get(at).copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ratio_is_the_median_of_pairs() {
        // The machine was slow in the second repetition: the ratio is 2 in each, and not 20 : 4.
        let (ones, others) = ([(0, 20.0), (1, 8.0), (2, 24.0)], [(0, 10.0), (1, 4.0), (3, 1.0)]);
        assert_eq!(times(&ones, &others), Some(Estimate { median: 2.0, interval: Some((2.0, 2.0)) }));
        assert_eq!((times(&ones, &[]), times(&ones, &[(0, 0.0)]), times(&[], &others)), (None, None, None));
    }

    #[test]
    fn the_median_is_in_the_middle() {
        assert_eq!(estimate([]), None);
        assert_eq!(estimate([7.0]), Some(Estimate { median: 7.0, interval: None }));
        assert_eq!(estimate([3.0, 1.0, 2.0]).unwrap().median, 2.0);
        assert_eq!(estimate([4.0, 1.0, 2.0, 3.0]).unwrap().median, 2.5);
    }

    #[test]
    fn few_figures_have_students_interval() {
        // Mean 10, standard deviation 1: 10 ± 4.303 / sqrt(3).
        let (low, high) = estimate([9.0, 10.0, 11.0]).unwrap().interval.unwrap();
        assert!((low - 7.5157).abs() < 1e-3 && (high - 12.4843).abs() < 1e-3, "{low} {high}");
        assert_eq!(estimate([5.0, 5.0]).unwrap().interval, Some((5.0, 5.0)));
        // A difference may be negative; a rate is not.
        assert_eq!(estimate([-5.0, -5.0]).unwrap().interval, Some((-5.0, -5.0)));
        assert_eq!(estimate([1.0, 9.0]).unwrap().interval.unwrap().0, 0.0);
    }

    /// The published table of ranks for a median's 95 % interval.
    #[test]
    fn more_figures_have_an_exact_interval() {
        let ranks = [(6, 1), (8, 1), (9, 2), (10, 2), (11, 2), (12, 3), (15, 4), (20, 6), (30, 10)];
        for (n, rank) in ranks {
            assert_eq!(cut_off(n) + 1, rank, "{n}");
        }
        let figures: Vec<f64> = (1..=10).map(f64::from).collect();
        assert_eq!(estimate(figures), Some(Estimate { median: 5.5, interval: Some((2.0, 9.0)) }));
    }

    #[test]
    fn quantiles_are_figures_of_the_list() {
        let sorted: Vec<u64> = (1..=200).collect();
        assert_eq!([quantile(&sorted, 50), quantile(&sorted, 99), quantile(&sorted, 100)], [101, 199, 200]);
        assert_eq!((quantile(&[7], 99), quantile(&[], 50)), (7, 0));
    }
}
