//! Groups of workers: the list, and one group with those who work for it.

use std::cmp::Reverse;

use serde::Serialize;
use serde_json::{Value, json};

use super::api::{List, Search, Window};
use super::group_sample::{GroupEntry, key};
use super::problem::Problem;
use super::query::Query;
use super::state::Console;
use crate::groups::Members;

/// A worker, and the client that it is.
#[derive(Debug, Serialize)]
struct MemberRow {
    conn: u64,
    name: String,
    address: String,
    user: String,
    /// Messages that it has.
    held: usize,
    /// Messages that it had too long, and has not said a word of.
    overdue: usize,
    /// The most of both.
    credit: usize,
    is_leaving: bool,
}

#[derive(Clone, Copy)]
enum Order {
    Worst,
    Lag,
    Name,
    Pending,
}

/// A page of the groups.
pub(super) fn groups(console: &Console, query: &Query) -> Result<Value, Problem> {
    let order = query.word(
        "sort",
        &[("lag", Order::Lag), ("state", Order::Worst), ("pending", Order::Pending), ("name", Order::Name)],
    )?;
    let (window, search) = (Window::of(query)?, Search::of(query));
    let all = console.samples.groups()?;
    let shown =
        |row: &&GroupEntry| search.finds(row.stats.topic.as_str()) || search.finds(row.stats.group.as_str());
    let mut rows: Vec<_> = all.iter().filter(shown).collect();
    match order {
        Order::Worst => rows.sort_by_key(|row| (row.state, Reverse(row.lag_bytes))),
        Order::Lag => rows.sort_by_key(|row| Reverse(row.lag_bytes)),
        Order::Pending => rows.sort_by_key(|row| Reverse(row.stats.pending)),
        Order::Name => {}
    }
    Ok(window.cut(&List { total: all.len(), is_cut: false }, &rows))
}

/// One group, and who works for it.
pub(super) fn group(console: &Console, query: &Query) -> Result<Value, Problem> {
    let needed = |name: &str| {
        query.text(name).ok_or_else(|| Problem::wrong(&format!("{name}: the name of the {name} is missing")))
    };
    let (topic, name) = (needed("topic")?, needed("group")?);
    let no_group = || Problem::missing("there is no such group; GET /api/v1/groups has them all");
    let all = console.samples.groups()?;
    let row = all.iter().find(|row| key(&row.stats) == (topic, name)).ok_or_else(no_group)?;
    let Members { rows, is_cut } = console.engine.members(topic, name)?.ok_or_else(no_group)?;
    let clients = console.samples.clients()?;
    let mut members: Vec<_> = rows
        .into_iter()
        .map(|member| {
            let client = clients.of(member.conn);
            let text =
                |of: fn(&crate::asks::ClientRow) -> &String| client.map(of).cloned().unwrap_or_default();
            MemberRow {
                conn: member.conn,
                name: text(|client| &client.name),
                address: text(|client| &client.address),
                user: text(|client| &client.user),
                held: member.at_worker.held,
                overdue: member.at_worker.overdue,
                credit: member.at_worker.credit,
                is_leaving: member.is_leaving,
            }
        })
        .collect();
    members.sort_by_key(|member| (Reverse(member.overdue), Reverse(member.held), member.conn));
    Ok(json!({ "row": row, "members": members, "is_cut": is_cut }))
}
