//! What is not well with a broker, why, and what to do about it.

use std::time::Duration;

use serde::Serialize;

use super::group_sample::{GroupEntry, State as GroupState};
use super::sample::{KeptRow, Sample, TopicRow};
use crate::Watch;
use crate::cluster::ClusterStatus;

/// A disk is slow that is busy with one write or sync for so long.
const SLOW_DISK: Duration = Duration::from_secs(5);

/// The most names in the reason of an alarm.
const MAX_NAMES: usize = 3;

/// How bad it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Level {
    /// Something does not work.
    Bad,
    /// Something will not work soon, or works for some.
    Warning,
}

/// Something that is not well.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Alarm {
    pub(super) level: Level,
    pub(super) title: &'static str,
    pub(super) reason: String,
    pub(super) remedy: &'static str,
}

/// What alarms look at beside the sample.
#[derive(Debug, Default)]
pub(super) struct Facts {
    pub(super) is_draining: bool,
    pub(super) unavailable_topics: usize,
    pub(super) disk_busy_for: Duration,
    pub(super) cluster: Option<ClusterStatus>,
}

impl Facts {
    pub(super) fn of(watch: &Watch) -> Self {
        Self {
            is_draining: watch.is_draining(),
            unavailable_topics: watch.unavailable_topics(),
            disk_busy_for: watch.disk_busy_for(),
            cluster: watch.cluster(),
        }
    }
}

/// The state of a broker at one time.
pub(super) struct State<'a> {
    pub(super) sample: &'a Sample,
    pub(super) kept: &'a [KeptRow],
    pub(super) groups: &'a [GroupEntry],
    pub(super) facts: &'a Facts,
}

/// The alarms of a broker, the worst first.
pub(super) fn alarms(state: &State<'_>) -> Vec<Alarm> {
    let State { sample, kept, groups, facts } = *state;
    let mut all: Vec<_> = of_process(facts).chain(of_topics(sample)).chain(of_kept(kept)).collect();
    all.extend(of_groups(groups));
    all.extend(of_limits(sample));
    all.sort_by_key(|alarm| alarm.level);
    all
}

fn of_process(facts: &Facts) -> impl Iterator<Item = Alarm> {
    let draining = facts.is_draining.then(|| Alarm {
        level: Level::Bad,
        title: "The broker is stopping",
        reason: "It takes no more messages, and sends its subscribers what is left.".to_owned(),
        remedy: "Start it again, or another one. Publishers and subscribers go on by themselves.",
    });
    let unavailable = (facts.unavailable_topics > 0).then(|| Alarm {
        level: Level::Bad,
        title: "Kept topics cannot be opened",
        reason: format!(
            "{} topics on the disk cannot be opened. Their clients wait.",
            facts.unavailable_topics
        ),
        remedy: "Look for the reason in the log of the broker, and see to the disk (broker.keep_dir).",
    });
    let slow = (facts.disk_busy_for > SLOW_DISK).then(|| Alarm {
        level: Level::Bad,
        title: "The disk stands still",
        reason: format!("It has been busy with one write for {} s.", facts.disk_busy_for.as_secs()),
        remedy: "See to the disk of broker.keep_dir. Publishers that wait for it go on when it does.",
    });
    let degraded = facts.cluster.as_ref().and_then(|cluster| cluster.degraded.clone());
    let degraded = degraded.map(|reason| Alarm {
        level: Level::Bad,
        title: "The cluster is degraded",
        reason,
        remedy: "Ask what this member knows: rbmq cluster status.",
    });
    [draining, unavailable, slow, degraded].into_iter().flatten()
}

fn of_topics(sample: &Sample) -> impl Iterator<Item = Alarm> {
    let summary = &sample.summary;
    let fills = summary.ring_bytes >= summary.max_ring_bytes / 10 * 9 && summary.max_ring_bytes > 0;
    let memory = fills.then(|| Alarm {
        level: Level::Warning,
        title: "The memory for rings is nearly used up",
        reason: format!("{} of {} bytes are in use.", summary.ring_bytes, summary.max_ring_bytes),
        remedy: "Allow more (buffers.max_ring_bytes), or give topics smaller rings (broker.topics, ring_bytes).",
    });
    let waits = |topic: &&TopicRow| topic.stats.blocked_by.is_some();
    let held =
        |topic: &&TopicRow| topic.stats.slowest.as_ref().is_some_and(|slowest| slowest.blocks_publisher);
    let waiting = named(sample, waits).map(|names| Alarm {
        level: Level::Bad,
        title: "Publishers wait",
        reason: format!("No subscriber holds them: too few subscribers, a full table or the disk. {names}"),
        remedy: "The page of the topic says which of them it is.",
    });
    let slow = named(sample, held).map(|names| Alarm {
        level: Level::Warning,
        title: "Slow subscribers hold publishers",
        reason: format!("They are further behind than the history of the ring. {names}"),
        remedy: "The page of the topic shows who is slow. Other policies: broker.topics, policies.",
    });
    let lost = sample.rates.lost_bytes_per_s.filter(|rate| *rate > 0).map(|rate| Alarm {
        level: Level::Warning,
        title: "Slow subscribers lose messages",
        reason: format!("Their policy allows it: {rate} bytes per second at the moment."),
        remedy: "Make them faster, or give the topic a larger ring (broker.topics, ring_bytes).",
    });
    [memory, waiting, slow, lost].into_iter().flatten()
}

fn of_kept(kept: &[KeptRow]) -> impl Iterator<Item = Alarm> {
    let count = |is: fn(&KeptRow) -> bool| Some(kept.iter().filter(|row| is(row)).count()).filter(|n| *n > 0);
    let failing = count(|row| row.is_failing).map(|topics| Alarm {
        level: Level::Bad,
        title: "The disk of kept topics fails or is full",
        reason: format!("The publishers of {topics} topics wait for it."),
        remedy: "Make room in broker.keep_dir, or keep less (broker.topics, keep_bytes and keep_ms).",
    });
    let archive = count(|row| row.archive.as_ref().is_some_and(|archive| archive.is_failing));
    let archive = archive.map(|topics| Alarm {
        level: Level::Warning,
        title: "The archive does not take what it should",
        reason: format!("It takes nothing of {topics} topics at the moment; the disk has it."),
        remedy: "Look for the reason in the log of the broker.",
    });
    let damaged = count(|row| row.damaged_bytes > 0).map(|topics| Alarm {
        level: Level::Warning,
        title: "Kept topics were damaged",
        reason: format!("Of {topics} topics a part was found damaged or missing."),
        remedy: "See to the disk. Subscribers are told of the part that is missing.",
    });
    [failing, archive, damaged].into_iter().flatten()
}

fn of_groups(groups: &[GroupEntry]) -> impl Iterator<Item = Alarm> {
    let alarm = |state, level, title, what: &str, remedy| {
        let in_state = groups.iter().filter(|group| group.state == state);
        let name = |group: &GroupEntry| {
            format!(
                "{} of {}",
                text::short(group.stats.group.as_str()),
                text::short(group.stats.topic.as_str())
            )
        };
        let names = first_of("Groups", in_state.map(name))?;
        Some(Alarm { level, title, reason: format!("{what} {names}"), remedy })
    };
    let failing = alarm(
        GroupState::Failing,
        Level::Bad,
        "The disk fails for groups of workers",
        "It does not take acknowledgements, or does not give messages.",
        "See to the disk of broker.keep_dir. The groups go on by themselves.",
    );
    let idle = alarm(
        GroupState::NoWorkers,
        Level::Bad,
        "Groups have no workers",
        "Messages wait, and nobody works on them.",
        "Start workers (rbmq sub TOPIC --group GROUP), or delete what is needed no more (rbmq groups delete).",
    );
    let full = alarm(
        GroupState::Full,
        Level::Warning,
        "Groups have as many pending messages as they may",
        "They read no more before workers acknowledge some.",
        "Look for workers that acknowledge nothing, or allow more (broker.max_group_pending).",
    );
    let behind = alarm(
        GroupState::Behind,
        Level::Warning,
        "Groups fall behind",
        "Their lag has grown for a minute.",
        "Start more workers, or make them faster.",
    );
    [failing, idle, full, behind].into_iter().flatten()
}

fn of_limits(sample: &Sample) -> impl Iterator<Item = Alarm> {
    let full: Vec<_> = sample.limits.iter().filter(|limit| limit.at_limit).collect();
    let quota = full.first().map(|first| Alarm {
        level: Level::Warning,
        title: "Quotas are used up",
        reason: format!("{} of {}, and {} more.", first.resource, first.who, full.len() - 1),
        remedy: "Allow more (quotas), or find out why so much is used.",
    });
    let stopped = sample.gateways.iter().find(|gateway| !gateway.is_serving).map(|gateway| Alarm {
        level: Level::Bad,
        title: "A gateway serves nobody",
        reason: format!("{} has failed or stopped.", gateway.gateway),
        remedy: "Look for the reason in the log of the broker.",
    });
    [quota, stopped].into_iter().flatten()
}

/// How many topics are so, and the names of the first. None: no topic is.
fn named(sample: &Sample, is: impl Fn(&&TopicRow) -> bool) -> Option<String> {
    let found = sample.topics.iter().filter(is);
    first_of("Topics", found.map(|row| text::short(row.stats.topic.as_str()).into_owned()))
}

/// The first of some names, and how many more there are. None: there are none.
fn first_of(what: &str, mut found: impl Iterator<Item = String>) -> Option<String> {
    let first: Vec<_> = found.by_ref().take(MAX_NAMES).collect();
    if first.is_empty() {
        return None;
    }
    let more = found.count();
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    Some(format!("{what}: {}{more}.", first.join(", ")))
}

#[cfg(test)]
mod tests {
    use rbmq_wire::{BlockReason, LimitStats, SlowestSubscriber};

    use super::super::group_sample::testing::group;
    use super::super::sample::testing::{sample, topic};
    use super::*;

    fn of(sample: &Sample, kept: &[KeptRow], facts: &Facts) -> Vec<Alarm> {
        alarms(&State { sample, kept, groups: &[], facts })
    }

    fn titles(sample: &Sample, kept: &[KeptRow], facts: &Facts) -> Vec<&'static str> {
        of(sample, kept, facts).iter().map(|alarm| alarm.title).collect()
    }

    #[test]
    fn a_broker_that_is_well_has_no_alarm() {
        assert!(titles(&sample(vec![topic("a")]), &[KeptRow::default()], &Facts::default()).is_empty());
    }

    #[test]
    fn the_worst_alarm_comes_first_and_names_topics() {
        let slowest = SlowestSubscriber { blocks_publisher: true, ..SlowestSubscriber::default() };
        let mut all: Vec<_> = (0..5).map(|n| topic(&format!("t{n}"))).collect();
        all.iter_mut().for_each(|topic| topic.slowest = Some(slowest.clone()));
        let mut blocked = topic("u");
        blocked.blocked_by = Some(BlockReason::Disk);
        all.push(blocked);
        let mut sample = sample(all);
        sample.limits.push(LimitStats { at_limit: true, ..LimitStats::default() });
        sample.summary.max_ring_bytes = 100;
        sample.summary.ring_bytes = 95;
        let facts = Facts { is_draining: true, unavailable_topics: 1, ..Facts::default() };
        let kept = [KeptRow { is_failing: true, damaged_bytes: 1, ..KeptRow::default() }];
        let expected = [
            "The broker is stopping",
            "Kept topics cannot be opened",
            "Publishers wait",
            "The disk of kept topics fails or is full",
            "The memory for rings is nearly used up",
            "Slow subscribers hold publishers",
            "Kept topics were damaged",
            "Quotas are used up",
        ];
        assert_eq!(titles(&sample, &kept, &facts), expected);
        let held = of(&sample, &kept, &facts).into_iter().find(|alarm| alarm.title.starts_with("Slow"));
        assert!(held.unwrap().reason.ends_with("Topics: t0, t1, t2 and 2 more."));
    }

    #[test]
    fn groups_that_do_not_work_are_told_with_their_names() {
        let states = [GroupState::Well, GroupState::Behind, GroupState::NoWorkers, GroupState::NoWorkers];
        let groups: Vec<_> =
            states.into_iter().enumerate().map(|(n, state)| group(&format!("g{n}"), 1, state)).collect();
        let (sample, facts) = (sample(vec![topic("a")]), Facts::default());
        let alarms = alarms(&State { sample: &sample, kept: &[], groups: &groups, facts: &facts });
        let told: Vec<_> = alarms.iter().map(|alarm| (alarm.title, alarm.reason.as_str())).collect();
        let expected = [
            ("Groups have no workers", "Messages wait, and nobody works on them. Groups: g2 of t, g3 of t."),
            ("Groups fall behind", "Their lag has grown for a minute. Groups: g1 of t."),
        ];
        assert_eq!(told, expected);
    }
}
