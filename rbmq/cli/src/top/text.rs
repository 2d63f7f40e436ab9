//! Words and numbers as tables show them.

use std::time::Duration;

/// A name of a peer's choice, without what would confuse a terminal, in at most `width` characters.
pub(crate) fn name(text: &str, width: usize) -> String {
    cut(&::text::printable(text), width)
}

/// The first `width` characters; the last is an ellipsis if something is missing.
pub(crate) fn cut(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    let mut short: String = text.chars().take(width.saturating_sub(1)).collect();
    if width > 0 {
        short.push('…');
    }
    short
}

/// `8,150,016`.
pub(crate) fn position(p: u64) -> String {
    let digits = p.to_string();
    let mut text = String::with_capacity(digits.len() * 4 / 3);
    for (n, digit) in digits.chars().enumerate() {
        if n > 0 && (digits.len() - n).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A part of a whole as `32 %`; 0 % if the whole is 0.
pub(crate) fn percent(part: u64, whole: u64) -> String {
    // More than 100 % is possible: the lag of a subscriber without a hold has no limit.
    let percent = if whole == 0 { 0 } else { u128::from(part) * 100 / u128::from(whole) };
    format!("{percent} %")
}

/// `0.3 s`, `42 s`, `5 min`, `1 h 02 min`, `3 d 04 h`.
pub(crate) fn time(millis: u64) -> String {
    let seconds = millis / 1000;
    match seconds {
        0..10 => format!("{}.{} s", seconds, millis % 1000 / 100),
        10..120 => format!("{seconds} s"),
        120..3600 => format!("{} min", seconds / 60),
        3600..86_400 => format!("{} h {:02} min", seconds / 3600, seconds / 60 % 60),
        _ => format!("{} d {:02} h", seconds / 86_400, seconds / 3600 % 24),
    }
}

/// Bytes in a second between two readings of a sum; none without an older one, or if the sum has fallen.
pub(crate) fn rate(now: u64, before: Option<u64>, elapsed: Duration) -> Option<f64> {
    let moved = now.checked_sub(before?)?;
    let seconds = elapsed.as_secs_f64();
    (seconds > 0.0).then(|| moved as f64 / seconds)
}

/// A rate without its unit of time; a dash if there is none.
pub(crate) fn bytes_or_dash(rate: Option<f64>) -> String {
    rate.map_or_else(|| "-".to_owned(), crate::bytes::show)
}

/// Items in lines of at most `width` characters where they fit, separated by ` · `, the later lines indented.
pub(crate) fn wrap(items: &[String], indent: usize, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for item in items.iter().filter(|item| !item.is_empty()) {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 3 + item.chars().count() <= width => {
                line.push_str(" · ");
                line.push_str(item);
            }
            _ => lines.push(format!("{:indent$}{item}", "")),
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_times() {
        assert_eq!(position(0), "0");
        assert_eq!(position(1_000), "1,000");
        assert_eq!(position(u64::MAX), "18,446,744,073,709,551,615");
        assert_eq!(
            (percent(1, 3), percent(1, 0), percent(u64::MAX, 1 << 62)),
            ("33 %".into(), "0 %".into(), "399 %".into())
        );
        assert_eq!([0, 950, 3_250, 42_000].map(time), ["0.0 s", "0.9 s", "3.2 s", "42 s"]);
        assert_eq!([300_000, 3_720_000, u64::MAX].map(time), ["5 min", "1 h 02 min", "213503982334 d 14 h"]);
    }

    #[test]
    fn rates_need_two_readings_of_a_sum_that_grows() {
        let second = Duration::from_secs(1);
        assert_eq!(rate(10, Some(4), second), Some(6.0));
        assert_eq!(rate(10, None, second), None);
        assert_eq!(rate(4, Some(10), second), None);
        assert_eq!(rate(4, Some(1), Duration::ZERO), None);
    }

    #[test]
    fn names_are_cut_and_cannot_move_the_cursor() {
        assert_eq!(name("a\x1b[2Jb", 20), "a\\u{1b}[2Jb");
        assert_eq!(name("abcdef", 4), "abc…");
        assert_eq!((name("abc", 1), name("abc", 0)), ("…".into(), String::new()));
    }

    #[test]
    fn items_wrap() {
        let items = ["one", "", "two", "three"].map(str::to_owned);
        assert_eq!(wrap(&items, 2, 11), ["  one · two", "  three"]);
        assert_eq!(wrap(&items, 2, 0), ["  one", "  two", "  three"]);
        assert!(wrap(&[], 2, 10).is_empty());
    }
}
