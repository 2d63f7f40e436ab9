//! What clients ask a server about itself, before they trust it.

use std::fmt::Write as _;
use std::time::{Duration, SystemTime};

use super::client::Client;
use super::commands::{COMMANDS, Spec, Verb};
use super::glob::{Glob, MAX_PATTERN_BYTES};
use super::machine::Resp;
use super::parse::{Command, integer};
use super::reply::Reply;
use super::routes::Kind;
use crate::protocol::Cx;

/// The version of Redis whose behaviour this is. Clients decide by it what they send; hiredis refuses less than 7.4 for some commands.
pub(super) const REDIS_VERSION: &str = "7.4.0";

/// What `CONFIG GET` knows: what clients look for, as it is here.
const SETTINGS: &[(&str, &str)] = &[
    ("appendonly", "no"),
    ("databases", "1"),
    ("maxmemory", "0"),
    ("maxmemory-policy", "noeviction"),
    ("notify-keyspace-events", ""),
    ("save", ""),
    ("timeout", "0"),
];

/// A subcommand that does not exist. Clients fall back when they read «unknown».
pub(super) fn unknown_subcommand(reply: &mut Reply<'_>, command: &str, of: &Command<'_>) {
    const MOST: usize = 128;
    let name = of.get(1).unwrap_or_default();
    let name = String::from_utf8_lossy(&name[..name.len().min(MOST)]);
    reply.error(format_args!("ERR unknown subcommand '{name}'. Try {command} HELP."));
}

impl Resp {
    /// Commands that change nothing, or only the client.
    pub(super) fn server(&mut self, client: &mut Client, verb: Verb, command: &Command<'_>, cx: &mut Cx<'_>) {
        let is_restricted = client.is_restricted();
        let mut reply = Reply::new(&mut self.replies, client.is_resp3);
        match verb {
            Verb::Ping => ping(&mut reply, is_restricted, command),
            Verb::Echo => reply.bulk(command.get(1).unwrap_or_default()),
            Verb::Quit => {
                reply.ok();
                client.closing = Some("its client quits");
            }
            Verb::Select => match command.get(1).and_then(integer) {
                Some(0) => reply.ok(),
                Some(_) => reply.error("ERR DB index is out of range"),
                None => reply.error("ERR invalid DB index"),
            },
            Verb::Cluster => reply.error("ERR This instance has cluster support disabled"),
            Verb::Dbsize => reply.integer(0),
            // There is nothing, so it is gone.
            Verb::Flush => reply.ok(),
            Verb::FlushCode if command.get(1).is_some_and(|sub| sub.eq_ignore_ascii_case(b"flush")) => {
                reply.ok();
            }
            Verb::FlushCode => reply.error("ERR this gateway of RBMQ executes no scripts"),
            Verb::Role => {
                reply.array(3);
                reply.bulk("master");
                reply.integer(0);
                reply.array(0);
            }
            Verb::Acl if is_sub(command, b"whoami") => {
                reply.bulk(cx.door.user(client.conn).unwrap_or("default"));
            }
            Verb::Acl => unknown_subcommand(&mut reply, "ACL", command),
            Verb::Config => config(&mut reply, command),
            _ => commands(&mut reply, command),
        }
    }

    /// `TIME`: the beginning by one clock, and what has passed by the other.
    pub(super) fn time(&mut self, client: &Client, cx: &mut Cx<'_>) {
        let since = self.since_1970(cx);
        let mut reply = Reply::new(&mut self.replies, client.is_resp3);
        reply.array(2);
        reply.bulk(since.as_secs().to_string());
        reply.bulk(since.subsec_micros().to_string());
    }

    fn since_1970(&self, cx: &Cx<'_>) -> Duration {
        let now = self.began + cx.now.saturating_duration_since(self.began_at);
        now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default()
    }

    /// The time, in milliseconds since 1970.
    pub(super) fn now_ms(&self, cx: &Cx<'_>) -> u64 {
        u64::try_from(self.since_1970(cx).as_millis()).unwrap_or(u64::MAX)
    }

    /// `INFO [section …]`.
    pub(super) fn info(&mut self, client: &Client, command: &Command<'_>, cx: &mut Cx<'_>) {
        let everything = ["all", "default", "everything"];
        let asks = |name: &str| {
            let is = |other: &[u8], name: &str| other.eq_ignore_ascii_case(name.as_bytes());
            command.len() == 1
                || command.from(1).any(|asked| is(asked, name) || everything.iter().any(|all| is(asked, all)))
        };
        self.cost += self.clients.len();
        let mut text = String::new();
        for (name, section) in self.sections(cx) {
            if asks(name) {
                let separator = if text.is_empty() { "" } else { "\r\n" };
                let _ = write!(text, "{separator}# {name}\r\n");
                for (key, value) in section {
                    let _ = write!(text, "{key}:{value}\r\n");
                }
            }
        }
        Reply::new(&mut self.replies, client.is_resp3).text(&text);
    }

    fn sections(&self, cx: &Cx<'_>) -> [(&'static str, Vec<(&'static str, String)>); 7] {
        let text = str::to_owned;
        let uptime = cx.now.saturating_duration_since(self.began_at).as_secs();
        // The client that asks is not among the others now.
        let others = self.clients.values();
        let subscribed = others.filter(|client| client.is_subscribed()).count();
        let entries = |kind| self.routes.table(kind).len().to_string();
        [
            (
                "Server",
                vec![
                    ("redis_version", text(REDIS_VERSION)),
                    ("rbmq_version", text(self.version)),
                    ("redis_mode", text("standalone")),
                    ("arch_bits", text("64")),
                    ("uptime_in_seconds", uptime.to_string()),
                    ("uptime_in_days", (uptime / 86_400).to_string()),
                ],
            ),
            (
                "Clients",
                vec![
                    ("connected_clients", (self.clients.len() + 1).to_string()),
                    ("blocked_clients", self.waiting.len().to_string()),
                    ("pubsub_clients", subscribed.to_string()),
                ],
            ),
            ("Persistence", vec![("loading", text("0"))]),
            (
                "Stats",
                vec![
                    ("total_connections_received", self.counts.connections.to_string()),
                    ("total_commands_processed", self.counts.commands.to_string()),
                    ("pubsub_channels", entries(Kind::Channel)),
                    ("pubsub_patterns", entries(Kind::Pattern)),
                    ("pubsubshard_channels", entries(Kind::Shard)),
                    ("rbmq_lost_bytes", self.counts.lost_bytes.to_string()),
                ],
            ),
            ("Replication", vec![("role", text("master")), ("connected_slaves", text("0"))]),
            ("Cluster", vec![("cluster_enabled", text("0"))]),
            ("Keyspace", Vec::new()),
        ]
    }
}

fn is_sub(command: &Command<'_>, name: &[u8]) -> bool {
    command.get(1).is_some_and(|sub| sub.eq_ignore_ascii_case(name))
}

/// `PING [message]`. Between messages of RESP2 it is answered as one.
fn ping(reply: &mut Reply<'_>, is_restricted: bool, command: &Command<'_>) {
    match (command.len(), command.get(1)) {
        (3.., _) => reply.error("ERR wrong number of arguments for 'ping' command"),
        (_, message) if is_restricted => {
            reply.array(2);
            reply.bulk("pong");
            reply.bulk(message.unwrap_or_default());
        }
        (_, Some(message)) => reply.bulk(message),
        (_, None) => reply.word("PONG"),
    }
}

/// `CONFIG GET pattern …`.
fn config(reply: &mut Reply<'_>, command: &Command<'_>) {
    if !is_sub(command, b"get") || command.len() < 3 {
        reply.error(
            "ERR the settings of this server are in the configuration of RBMQ: CONFIG GET alone is here",
        );
        return;
    }
    let mut is_wanted = [false; SETTINGS.len()];
    // One pattern after the other: a pattern takes more memory than its text.
    for pattern in command.from(2) {
        let pattern = &pattern[..pattern.len().min(MAX_PATTERN_BYTES)];
        let glob = Glob::new(&pattern.to_ascii_lowercase());
        for ((name, _), is_wanted) in SETTINGS.iter().zip(&mut is_wanted) {
            *is_wanted |= glob.matches(name.as_bytes());
        }
    }
    let found = || SETTINGS.iter().zip(is_wanted).filter(|(_, is_wanted)| *is_wanted);
    reply.map(found().count());
    for ((name, value), _) in found() {
        reply.bulk(name);
        reply.bulk(value);
    }
}

/// `COMMAND [COUNT | DOCS | INFO name … | LIST]`.
fn commands(reply: &mut Reply<'_>, command: &Command<'_>) {
    let sub = command.get(1).unwrap_or(b"info").to_ascii_lowercase();
    match &sub[..] {
        b"count" => reply.count(COMMANDS.len()),
        b"docs" => reply.map(0),
        b"list" => {
            reply.array(COMMANDS.len());
            COMMANDS.iter().for_each(|spec| reply.bulk(spec.name));
        }
        b"info" if command.len() > 2 => {
            reply.array(command.len() - 2);
            for name in command.from(2) {
                match Spec::find(name) {
                    Some(spec) => describe(reply, spec),
                    None => reply.null_array(),
                }
            }
        }
        b"info" => {
            reply.array(COMMANDS.len());
            COMMANDS.iter().for_each(|spec| describe(reply, spec));
        }
        _ => unknown_subcommand(reply, "COMMAND", command),
    }
}

/// A command as `COMMAND INFO` has it.
fn describe(reply: &mut Reply<'_>, spec: &Spec) {
    let flags: &[&str] = match (spec.is_subscribing(), spec.verb) {
        (true, _) | (_, Verb::Publish | Verb::Spublish | Verb::Pubsub) => &["pubsub", "loading", "stale"],
        _ if spec.is_for_strangers() => &["noscript", "loading", "stale", "fast", "no_auth"],
        (_, Verb::Xadd | Verb::Xtrim) => &["write", "fast"],
        _ if spec.keys()[0] > 0 => &["readonly"],
        (_, Verb::Xread) => &["readonly", "blocking", "movablekeys"],
        _ => &["loading", "stale"],
    };
    reply.array(10);
    reply.bulk(spec.name);
    reply.integer(i64::from(spec.arity));
    reply.array(flags.len());
    flags.iter().for_each(|flag| reply.word(flag));
    spec.keys().into_iter().for_each(|place| reply.integer(place));
    // Categories of ACL, tips, specifications of keys, subcommands.
    (0..4).for_each(|_| reply.array(0));
}
