//! The groups of workers in `rbmq top`: a line for each that has something to do.

use rbmq::GroupStats;

use super::text;
use crate::bytes;

/// The most groups that a window names.
pub(super) const SHOWN: usize = 3;

/// A line for each group with a lag or a failing disk, the largest lag first, at most `most` of them and the number of the others.
pub(super) fn lines(groups: &[GroupStats], width: usize, most: usize) -> Vec<String> {
    let told: Vec<_> = groups.iter().filter(|group| group.lag_bytes() > 0 || group.failing).collect();
    let mut lines: Vec<String> = told.iter().take(most).map(|group| text::cut(&line(group), width)).collect();
    if let Some(more) = told.len().checked_sub(most).filter(|more| *more > 0) {
        let groups = if more == 1 { "group" } else { "groups" };
        lines.push(text::cut(&format!("and {more} more {groups}"), width));
    }
    lines
}

/// `group billing of orders · no workers · lag 1.20 MB · 12 pending, 3 held · 2 dead letters`.
fn line(group: &GroupStats) -> String {
    let (name, topic) = (text::name(group.group.as_str(), 40), text::name(group.topic.as_str(), 60));
    let workers = match group.workers {
        0 => "no workers".to_owned(),
        1 => "1 worker".to_owned(),
        many => format!("{many} workers"),
    };
    let mut words = vec![
        format!("group {name} of {topic}"),
        workers,
        format!("lag {}", bytes::show(group.lag_bytes() as f64)),
        format!("{} pending, {} held", text::position(group.pending), text::position(group.held)),
    ];
    for (is, what) in [(group.failing, "the disk fails"), (group.full, "full")] {
        if is {
            words.insert(1, what.to_owned());
        }
    }
    if group.dead > 0 {
        words.push(format!("{} dead letters", text::position(group.dead)));
    }
    words.join(" · ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(name: &str, workers: u32, end: u64) -> GroupStats {
        GroupStats {
            topic: "orders".parse().unwrap(),
            group: name.parse().unwrap(),
            workers,
            pending: 12,
            held: 3,
            floor: 0,
            next: 0,
            end,
            delivered: 0,
            acked: 0,
            failed: 0,
            dead: 2_000,
            lost: 0,
            lost_bytes: 0,
            damaged_bytes: 0,
            ack_ms: 0,
            max_attempts: 0,
            dead_letter: String::new(),
            ordered: false,
            full: false,
            failing: false,
        }
    }

    #[test]
    fn a_group_with_something_to_do_has_a_line() {
        let groups = [group("billing", 0, 1_200_000), group("mail", 2, 500), group("done", 1, 0)];
        let expected = [
            "group billing of orders · no workers · lag 1.20 MB · 12 pending, 3 held · 2,000 dead letters",
            "group mail of orders · 2 workers · lag 500 B · 12 pending, 3 held · 2,000 dead letters",
        ];
        assert_eq!(lines(&groups, 200, 9), expected);
        assert_eq!(lines(&groups, 30, 1), ["group billing of orders · no …", "and 1 more group"]);
        let full = GroupStats { full: true, failing: true, ..group("g", 1, 0) };
        assert!(
            lines(&[full], 200, 9)[0].starts_with("group g of orders · full · the disk fails · 1 worker")
        );
    }
}
