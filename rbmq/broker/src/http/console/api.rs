//! The answers of the interface about the state of the broker. Every list is filtered, sorted and cut here, so that it costs what one page
//! shows.

use std::cmp::Reverse;

use rbmq_wire::{TopicFilter, TopicName};
use rocketbufs::config::Origin;
use serde::Serialize;
use serde_json::{Value, json};

use super::alarms::{Facts, State, alarms};
use super::problem::Problem;
use super::query::{Query, WrongQuery};
use super::reloading::masked;
use super::sample::{ArchiveRow, ClientEntry, KeptRow, TopicRow};
use super::state::Console;
use crate::asks::ClientRole;

/// The rows of a page, by default and at most.
const ROWS: usize = 50;
const MAX_ROWS: usize = 500;

/// The largest offset.
const MAX_OFFSET: usize = 10_000_000;

/// Where a page is in its list.
pub(super) struct Window {
    offset: usize,
    limit: usize,
}

impl Window {
    pub(super) fn of(query: &Query) -> Result<Self, WrongQuery> {
        let (offset, limit) =
            (query.number("offset", 0, MAX_OFFSET)?, query.number("limit", ROWS, MAX_ROWS)?);
        Ok(Self { offset, limit })
    }

    /// The page of rows that are made only for it.
    pub(super) fn cut_with<T>(&self, list: &List, found: &[T], row: impl FnMut(&T) -> Value) -> Value {
        let page: Vec<_> = found.iter().skip(self.offset).take(self.limit).map(row).collect();
        let List { total, is_cut } = list;
        json!({ "total": total, "matched": found.len(), "offset": self.offset, "rows": page, "is_cut": is_cut })
    }

    /// The page, with the number of rows of the whole list.
    pub(super) fn cut<T: Serialize>(&self, list: &List, rows: &[T]) -> Value {
        let page: Vec<_> = rows.iter().skip(self.offset).take(self.limit).collect();
        let List { total, is_cut } = list;
        json!({ "total": total, "matched": rows.len(), "offset": self.offset, "rows": page, "is_cut": is_cut })
    }
}

/// A whole list: the number of its rows, and whether the broker has more.
pub(super) struct List {
    pub(super) total: usize,
    pub(super) is_cut: bool,
}

/// Whether a text contains what is searched, in any case of letters.
pub(super) struct Search(Option<String>);

impl Search {
    pub(super) fn of(query: &Query) -> Self {
        Self(query.text("search").map(str::to_lowercase))
    }

    pub(super) fn finds(&self, text: &str) -> bool {
        let is_small = |text: &str| text.bytes().all(|byte| byte.is_ascii() && !byte.is_ascii_uppercase());
        self.0.as_ref().is_none_or(|wanted| match is_small(text) {
            true => text.contains(wanted),
            false => text.to_lowercase().contains(wanted),
        })
    }
}

#[derive(Clone, Copy)]
enum TopicOrder {
    Lag,
    Rate,
    Name,
    Ring,
    Lost,
}

/// Is it well?
pub(super) fn overview(console: &Console, _: &Query) -> Result<Value, Problem> {
    let (sample, kept) = (console.samples.broker()?, console.samples.kept()?);
    let groups = console.samples.groups()?;
    let facts = Facts::of(&console.engine.watch);
    let (replays, waiting_replays) = console.engine.watch.replays();
    let sum = |of: fn(&KeptRow) -> u64| kept.iter().map(of).sum::<u64>();
    let archive =
        |of: fn(&ArchiveRow) -> u64| kept.iter().filter_map(|row| row.archive.as_ref()).map(of).sum::<u64>();
    let lag = sample.topics.iter().map(|row| row.stats.max_lag_bytes).max().unwrap_or(0);
    let worst = |row: &&TopicRow| row.stats.max_lag_bytes > 0;
    let mut slowest: Vec<_> = sample.topics.iter().filter(worst).collect();
    slowest.sort_by_key(|row| Reverse(row.stats.max_lag_bytes));
    slowest.truncate(5);
    Ok(json!({
        "time_ms": sample.time_ms,
        "summary": sample.summary,
        "rates": sample.rates,
        "max_lag_bytes": lag,
        "is_cut": sample.is_cut,
        "slowest": slowest,
        "alarms": alarms(&State { sample: &sample, kept: &kept, groups: &groups, facts: &facts }),
        "gateways": sample.gateways,
        "groups": {
            "groups": groups.len(),
            "max_lag_bytes": groups.iter().map(|row| row.lag_bytes).max().unwrap_or(0),
            "pending": groups.iter().map(|row| row.stats.pending).sum::<u64>(),
        },
        "limits": sample.limits,
        "kept": {
            "topics": kept.len(),
            "file_bytes": sum(|row| row.file_bytes),
            "unsynced_bytes": sum(|row| row.unsynced_bytes),
            "archive_lag_bytes": archive(|row| row.lag_bytes),
            "replays": replays,
            "waiting_replays": waiting_replays,
        },
        "cluster_members": facts.cluster.map(|cluster| cluster.members),
    }))
}

/// The last hour.
pub(super) fn history(console: &Console, _: &Query) -> Result<Value, Problem> {
    console.samples.broker()?;
    Ok(json!({ "points": console.samples.history() }))
}

/// A page of the topics.
pub(super) fn topics(console: &Console, query: &Query) -> Result<Value, Problem> {
    let order = query.word(
        "sort",
        &[
            ("lag", TopicOrder::Lag),
            ("rate", TopicOrder::Rate),
            ("name", TopicOrder::Name),
            ("ring", TopicOrder::Ring),
            ("lost", TopicOrder::Lost),
        ],
    )?;
    let (window, search) = (Window::of(query)?, Search::of(query));
    let filter = query.text("filter").map(str::parse::<TopicFilter>).transpose();
    let filter = filter.map_err(|error| Problem::wrong(&format!("filter: {error}")))?;
    let sample = console.samples.broker()?;
    let shown = |row: &&TopicRow| {
        search.finds(row.stats.topic.as_str())
            && filter.as_ref().is_none_or(|filter| filter.matches(&row.stats.topic))
    };
    let mut rows: Vec<_> = sample.topics.iter().filter(shown).collect();
    // Stable: the names decide where the numbers are the same.
    rows.sort_by_key(|row| {
        Reverse(match order {
            TopicOrder::Lag => row.stats.max_lag_bytes,
            TopicOrder::Rate => row.rates.in_bytes_per_s.unwrap_or(0),
            TopicOrder::Ring => row.stats.ring_bytes,
            TopicOrder::Lost => row.stats.dropped_bytes,
            TopicOrder::Name => 0,
        })
    });
    Ok(window.cut(&List { total: sample.topics.len(), is_cut: sample.is_cut }, &rows))
}

/// One topic, with its rings and the cursors in them.
pub(super) fn topic(console: &Console, query: &Query) -> Result<Value, Problem> {
    let name = query.text("name").ok_or_else(|| Problem::wrong("name: the name of the topic is missing"))?;
    let topic: TopicName = name.parse().map_err(|error| Problem::wrong(&format!("name: {error}")))?;
    let (sample, look) = (console.samples.broker()?, console.looks.at(&console.engine, &topic)?);
    if look.buffers.is_empty() {
        return Err(Problem::missing(&no_topic(console, &topic)));
    }
    Ok(json!({ "topic": topic, "row": sample.topic(&topic), "buffers": look.buffers, "is_cut": look.is_cut }))
}

/// Why there is nothing to show of a topic.
fn no_topic(console: &Console, topic: &TopicName) -> String {
    let of = console.rules().settings.topics.space_of(topic);
    match of.map(|of| of.space).filter(|space| space.log() != topic) {
        Some(space) => {
            format!("the topics of '{}' are in one log: look at '{}'", space.pattern(), space.log())
        }
        None => "there is no such topic: it has no publisher, and no messages of it are kept".to_owned(),
    }
}

#[derive(Clone, Copy)]
enum ClientOrder {
    Connection,
    Name,
    Lag,
    Subscriptions,
}

/// A page of the clients.
pub(super) fn clients(console: &Console, query: &Query) -> Result<Value, Problem> {
    let role = query.word(
        "role",
        &[
            ("all", None),
            ("publisher", Some(ClientRole::Publisher)),
            ("subscriber", Some(ClientRole::Subscriber)),
            ("observer", Some(ClientRole::Observer)),
            ("broker", Some(ClientRole::Broker)),
            ("gateway", Some(ClientRole::Gateway)),
        ],
    )?;
    let order = query.word(
        "sort",
        &[
            ("lag", ClientOrder::Lag),
            ("name", ClientOrder::Name),
            ("subscriptions", ClientOrder::Subscriptions),
            ("connection", ClientOrder::Connection),
        ],
    )?;
    let (window, search) = (Window::of(query)?, Search::of(query));
    let all = console.samples.clients()?;
    let shown = |entry: &&ClientEntry| {
        let client = &entry.client;
        role.is_none_or(|role| client.role == role)
            && [&client.name, &client.address, &client.user].into_iter().any(|text| search.finds(text))
    };
    let mut rows: Vec<_> = all.rows.iter().filter(shown).collect();
    match order {
        ClientOrder::Connection => {}
        ClientOrder::Name => rows.sort_by(|a, b| a.client.name.cmp(&b.client.name)),
        ClientOrder::Lag => rows.sort_by_key(|entry| Reverse(entry.max_lag_bytes)),
        ClientOrder::Subscriptions => rows.sort_by_key(|entry| Reverse(entry.subscriptions)),
    }
    Ok(window.cut(&List { total: all.rows.len(), is_cut: all.is_cut }, &rows))
}

/// A page of the kept topics.
pub(super) fn kept(console: &Console, query: &Query) -> Result<Value, Problem> {
    let by_size = query.word("sort", &[("size", true), ("name", false)])?;
    let (window, search) = (Window::of(query)?, Search::of(query));
    let all = console.samples.kept()?;
    let mut rows: Vec<_> = all.iter().filter(|row| search.finds(&row.topic)).collect();
    if by_size {
        rows.sort_by_key(|row| Reverse(row.file_bytes));
    }
    Ok(window.cut(&List { total: all.len(), is_cut: false }, &rows))
}

/// The cluster, as this member knows it.
pub(super) fn cluster(console: &Console, _: &Query) -> Result<Value, Problem> {
    let watch = &console.engine.watch;
    let Some(status) = watch.cluster() else { return Ok(json!({ "is_alone": true })) };
    let members: Vec<_> = watch.members().unwrap_or_default();
    let members: Vec<_> =
        members.iter().map(|member| json!({ "id": member.id, "addresses": member.addresses })).collect();
    Ok(json!({
        "is_alone": false,
        "id": watch.member_id(),
        "degraded": status.degraded,
        "members": status.members,
        "owned_groups": status.owned_groups,
        "term_changes": status.term_changes,
        "store_errors": status.store_errors,
        "lease_age_ms": status.lease_age.map(|age| age.as_millis() as u64),
        "others": members,
    }))
}

/// The settings in force. Secrets are in files of their own, and the settings have the names of these.
pub(super) fn settings(console: &Console, query: &Query) -> Result<Value, Problem> {
    let only_changed = query.word("changed", &[("no", false), ("yes", true)])?;
    let search = Search::of(query);
    let all = console.engine.watch.settings();
    let shown = all.iter().filter(|setting| {
        search.finds(&setting.name) && !(only_changed && setting.origin == Origin::Default)
    });
    let row = |setting: &crate::Setting| {
        json!({
            "name": setting.name,
            "value": setting.value.as_ref().map(masked),
            "origin": setting.origin.to_string(),
            "is_default": setting.origin == Origin::Default,
        })
    };
    let rows: Vec<_> = shown.map(row).collect();
    Ok(json!({ "total": all.len(), "matched": rows.len(), "rows": rows }))
}
