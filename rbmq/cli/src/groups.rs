//! `rbmq groups`.

use clap::Subcommand;
use commands::Failure;
use rbmq::{GroupStart, GroupStats, Groups, Subscriber, TopicName};
use serde::Serialize;

use super::client::ClientArgs;
use super::worker::explain;

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  rbmq sub orders --group billing
  rbmq groups list
  rbmq groups show orders billing --json
  rbmq groups reset orders billing --to oldest
  rbmq groups delete orders billing")]
pub(super) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// List the groups of the topics that the user may subscribe to
    #[command(after_help = "Examples:
  rbmq groups list
  rbmq groups list --json")]
    List {
        /// Print one JSON object per group and line
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        client: ClientArgs,
    },
    /// Show a group: how far it is, and how it works
    #[command(after_help = "Examples:
  rbmq groups show orders billing
  rbmq groups show orders billing --json")]
    Show {
        #[command(flatten)]
        of: Of,
        /// Print a JSON object
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        client: ClientArgs,
    },
    /// Let a group begin anew. What its workers have and have not acknowledged is forgotten
    #[command(after_help = "Examples:
  rbmq groups reset orders billing --to oldest
  rbmq groups reset orders billing --to 4096")]
    Reset {
        #[command(flatten)]
        of: Of,
        /// Where it begins: oldest, newest, or a position of the topic's log
        #[arg(long, value_name = "WHERE", value_parser = parse_start)]
        to: GroupStart,
        #[command(flatten)]
        client: ClientArgs,
    },
    /// Forget a group, and end its workers
    #[command(after_help = "Examples:
  rbmq groups delete orders billing")]
    Delete {
        #[command(flatten)]
        of: Of,
        #[command(flatten)]
        client: ClientArgs,
    },
}

#[derive(Debug, clap::Args)]
struct Of {
    /// The topic
    #[arg(value_name = "TOPIC")]
    topic: TopicName,
    /// The group
    #[arg(value_name = "GROUP")]
    group: String,
}

/// A group, and what follows from its positions.
#[derive(Serialize)]
struct Row<'a> {
    #[serde(flatten)]
    group: &'a GroupStats,
    lag_bytes: u64,
    unread_bytes: u64,
}

fn parse_start(text: &str) -> Result<GroupStart, String> {
    match text {
        "oldest" => Ok(GroupStart::Oldest),
        "newest" => Ok(GroupStart::Newest),
        _ => match text.parse() {
            Ok(position) => Ok(GroupStart::Position(position)),
            Err(_) => Err(format!("'{text}' is not oldest, newest or a position")),
        },
    }
}

pub(super) fn run(args: &Args) -> Result<(), Failure> {
    match &args.command {
        Command::List { json, client } => list(client, *json),
        Command::Show { of, json, client } => show(client, of, *json),
        Command::Reset { of, to, client } => act(client, |all| all.reset(of.topic.as_str(), &of.group, *to)),
        Command::Delete { of, client } => act(client, |all| all.delete(of.topic.as_str(), &of.group)),
    }
}

fn connect(client: &ClientArgs) -> Result<Groups, Failure> {
    let builder =
        Subscriber::builder().name("rbmq groups").config(client.config()?).login(client.login.read()?);
    builder.groups(&client.broker).map_err(|error| client.explain(&error))
}

fn act(
    client: &ClientArgs,
    act: impl FnOnce(&mut Groups) -> Result<(), rbmq::GroupError>,
) -> Result<(), Failure> {
    act(&mut connect(client)?).map_err(|error| explain(&error, client))
}

fn json(group: &GroupStats) -> String {
    let row = Row { group, lag_bytes: group.lag_bytes(), unread_bytes: group.unread_bytes() };
    // Writing numbers and strings to memory cannot fail.
    serde_json::to_string(&row).unwrap_or_default()
}

fn list(client: &ClientArgs, as_json: bool) -> Result<(), Failure> {
    let groups = connect(client)?.list().map_err(|error| explain(&error, client))?;
    let mut text = String::new();
    if as_json {
        groups.iter().for_each(|group| text.push_str(&format!("{}\n", json(group))));
        return commands::print(text);
    }
    if groups.is_empty() {
        return commands::print("no groups\n");
    }
    let head = ["TOPIC", "GROUP", "WORKERS", "PENDING", "HELD", "LAG BYTES", "STATE"].map(str::to_owned);
    let rows = groups.iter().map(|group| {
        let counts = [group.workers.into(), group.pending, group.held, group.lag_bytes()];
        let [workers, pending, held, lag] = counts.map(|count: u64| count.to_string());
        [
            group.topic.to_string(),
            group.group.to_string(),
            workers,
            pending,
            held,
            lag,
            state(group).to_owned(),
        ]
    });
    let rows: Vec<[String; 7]> = std::iter::once(head).chain(rows).collect();
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: [usize; 7] = std::array::from_fn(width);
    for row in &rows {
        let cells = row.iter().zip(widths).enumerate();
        let line: Vec<String> = cells
            .map(
                |(n, (cell, width))| {
                    if (2..6).contains(&n) { format!("{cell:>width$}") } else { format!("{cell:<width$}") }
                },
            )
            .collect();
        text.push_str(line.join("  ").trim_end());
        text.push('\n');
    }
    commands::print(text)
}

fn state(group: &GroupStats) -> &'static str {
    match group {
        GroupStats { failing: true, .. } => "the disk fails",
        GroupStats { full: true, .. } => "full",
        GroupStats { workers: 0, .. } => "no workers",
        _ => "ok",
    }
}

fn show(client: &ClientArgs, of: &Of, as_json: bool) -> Result<(), Failure> {
    let groups = connect(client)?.list().map_err(|error| explain(&error, client))?;
    let mut found = groups.iter().filter(|group| group.topic == of.topic && group.group.as_str() == of.group);
    let Some(group) = found.next() else {
        let Of { topic, group } = of;
        return Err(Failure::Failed(format!(
            "there is no group '{group}' of topic '{topic}', or you may not subscribe to the topic; see: rbmq groups list"
        )));
    };
    if as_json {
        return commands::print(format!("{}\n", json(group)));
    }
    let text: String = facts(group).iter().map(|(name, value)| format!("{name:<13}{value}\n")).collect();
    commands::print(text)
}

/// All of a group, by name.
fn facts(group: &GroupStats) -> [(&'static str, String); 10] {
    let dead_letters = match group.max_attempts {
        0 => "none: a message comes again without a limit".to_owned(),
        attempts => format!("after {attempts} failed attempts to '{}'", group.dead_letter),
    };
    [
        ("group", format!("{} of topic '{}', {}", group.group, group.topic, state(group))),
        ("workers", group.workers.to_string()),
        ("lag", format!("{} bytes, {} of them not read yet", group.lag_bytes(), group.unread_bytes())),
        (
            "pending",
            format!(
                "{} messages that were read and are not done; workers have {}",
                group.pending, group.held
            ),
        ),
        (
            "positions",
            format!("done below {}, read below {}, the log ends at {}", group.floor, group.next, group.end),
        ),
        (
            "since start",
            format!(
                "{} handed out, {} acknowledged, {} failed attempts, {} dead letters",
                group.delivered, group.acked, group.failed, group.dead
            ),
        ),
        (
            "lost",
            format!("{} messages and {} unread bytes that the log had no more", group.lost, group.lost_bytes),
        ),
        ("journal", format!("{} bytes damaged", group.damaged_bytes)),
        (
            "time",
            match group.ack_ms {
                0 => "consumers of Redis: an entry stays with its consumer until another one claims it"
                    .to_owned(),
                ms => format!(
                    "{ms} ms for a worker, {}",
                    if group.ordered { "ordered by key" } else { "no order" }
                ),
            },
        ),
        ("dead letters", dead_letters),
    ]
}
