//! All members of a cluster in `rbmq top`: etcd says who they are, and each is asked as one broker is.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use commands::table::{row, table as columns};
use commands::{Failure, terminal};
use rbmq::{Login, Observer};
use rbmq_cluster::etcd::Client;
use rbmq_cluster::{Keys, Map};
use rocketbufs::Config;
use serde_json::{Value, json};

use super::super::client::ClientArgs;
use super::super::cluster;
use super::super::member;
use super::reading::{Reading, Scroll, Size, Subject, rate_of};
use super::table::{Line, Sort, sort, table, table_from};
use super::text;
use crate::bytes;

/// How long a member may take to let this command in, and for each answer: the others wait for it.
const PATIENCE: Duration = Duration::from_secs(3);
/// The most members that are asked. Each has a thread meanwhile.
const MOST: usize = 64;

/// The members of a cluster, to be asked again and again.
pub(super) struct Crowd {
    name: String,
    etcd: Client,
    keys: Keys,
    map: Map,
    config: Config,
    login: Login,
    observers: BTreeMap<String, Observer>,
}

/// A sample of all members.
pub(super) struct Members {
    at: Instant,
    cluster: String,
    /// Why the members are those of an earlier sample.
    trouble: Option<String>,
    all: Vec<Member>,
}

/// What one member says.
struct Member {
    id: String,
    state: &'static str,
    groups: usize,
    addresses: Vec<String>,
    /// Or why it says nothing.
    reading: Result<Reading, String>,
}

impl Crowd {
    /// The cluster that the configuration of the command names.
    ///
    /// # Errors
    /// It names none, or etcd does not answer.
    pub(super) fn open(args: &ClientArgs) -> Result<Self, Failure> {
        let settings = args.cluster()?;
        let mut etcd = Client::new(member::client(&settings)?);
        let keys = Keys::new(&settings.name);
        let map = Map::read(&etcd.range(keys.prefix())?, &keys);
        let (config, login) = (args.config()?, args.login.read()?);
        Ok(Self { name: settings.name, etcd, keys, map, config, login, observers: BTreeMap::new() })
    }

    /// Takes a sample: all members are asked at once.
    pub(super) fn read(&mut self, subject: &Subject) -> Members {
        let trouble = match self.etcd.range(self.keys.prefix()) {
            Ok(snapshot) => {
                self.map = Map::read(&snapshot, &self.keys);
                None
            }
            Err(error) => Some(error.to_string()),
        };
        let shares: BTreeMap<String, usize> =
            cluster::shares(&self.map).into_iter().map(|(id, groups)| (id.to_owned(), groups)).collect();
        let mut known = std::mem::take(&mut self.observers);
        let (map, config, login) = (&self.map, &self.config, &self.login);
        let asked = std::thread::scope(|scope| {
            let ask = |(id, groups): (String, usize)| {
                let observer = known.remove(&id);
                let addresses =
                    map.members.get(&id).map(|member| member.addresses.clone()).unwrap_or_default();
                let state = cluster::state(map, &id);
                scope.spawn(move || {
                    let (observer, reading) = match addresses.is_empty() {
                        true => (None, Err("it is away".to_owned())),
                        false => look(observer, &addresses, config, login, subject),
                    };
                    (observer, Member { id, state, groups, addresses, reading })
                })
            };
            let asked: Vec<_> = shares.into_iter().take(MOST).map(ask).collect();
            asked.into_iter().map(|thread| thread.join().expect("no panic")).collect::<Vec<_>>()
        });
        let mut all = Vec::new();
        for (observer, member) in asked {
            self.observers.extend(observer.map(|observer| (member.id.clone(), observer)));
            all.push(member);
        }
        Members { at: Instant::now(), cluster: self.name.clone(), trouble, all }
    }
}

/// Asks a member, over the connection that there is or a new one.
fn look(
    observer: Option<Observer>,
    addresses: &[String],
    config: &Config,
    login: &Login,
    subject: &Subject,
) -> (Option<Observer>, Result<Reading, String>) {
    let connect = || {
        let builder = Observer::builder().name("rbmq top").config(config.clone());
        builder.login(login.clone()).timeout(Some(PATIENCE)).connect(&addresses.join(","))
    };
    let mut observer = match observer.map_or_else(connect, Ok) {
        Ok(observer) => observer,
        Err(error) => return (None, Err(error.to_string())),
    };
    match subject.read(&mut observer) {
        Ok(reading) => (Some(observer), Ok(reading)),
        Err(error) => (None, Err(error.to_string())),
    }
}

impl Members {
    fn before<'a>(&self, old: Option<&'a Self>, id: &str) -> Option<&'a Reading> {
        old?.all.iter().find(|member| member.id == id)?.reading.as_ref().ok()
    }

    /// The topics of all members.
    fn lines(&self, old: Option<&Self>, order: Sort) -> Vec<Line> {
        let mut lines = Vec::new();
        for member in &self.all {
            let Ok(reading) = &member.reading else { continue };
            let own = reading.topic_lines(self.before(old, &member.id), order);
            lines.extend(own.into_iter().map(|line| Line { member: member.id.clone(), ..line }));
        }
        lines.sort_by(|a, b| (&a.stats.topic, &a.member).cmp(&(&b.stats.topic, &b.member)));
        sort(&mut lines, order);
        lines
    }

    /// The cluster, and a line for each member.
    fn heading(&self, old: Option<&Self>, width: usize) -> Vec<String> {
        let answers = self.all.iter().filter(|member| member.reading.is_ok()).count();
        let cluster = text::name(&self.cluster, 40);
        let mut out = vec![text::cut(
            &format!("cluster {cluster} · {answers} of {} members answer", self.all.len()),
            width,
        )];
        if let Some(trouble) = &self.trouble {
            let trouble = text::name(trouble, 200);
            out.push(text::cut(
                &format!("! etcd does not answer, the members are those of before: {trouble}"),
                width,
            ));
        }
        let mut rows = vec![row([
            "MEMBER", "STATE", "GROUPS", "TOPICS", "PUBS", "SUBS", "IN/S", "OUT/S", "LOST", "BROKER",
        ])];
        rows.extend(self.all.iter().map(|member| self.member_row(member, old)));
        out.extend(columns(&rows).lines().map(|line| text::cut(line, width)));
        for member in &self.all {
            let Ok(reading) = &member.reading else { continue };
            let lines = reading.warnings(self.before(old, &member.id), width);
            let id = text::name(&member.id, 40);
            out.extend(lines.into_iter().map(|line| text::cut(&format!("{id} · {line}"), width)));
        }
        out
    }

    fn member_row(&self, member: &Member, old: Option<&Self>) -> Vec<String> {
        let groups = member.groups.to_string();
        let reading = match &member.reading {
            Ok(reading) => reading,
            Err(why) => {
                let state = if member.state == "away" { "away" } else { "silent" };
                let why = if member.state == "away" { "" } else { why };
                return row([&member.id, state, &groups, "-", "-", "-", "-", "-", "-", why]);
            }
        };
        let (summary, before) = (&reading.summary, self.before(old, &member.id));
        let rate = |of| text::bytes_or_dash(rate_of(reading, before, of));
        row([
            &member.id,
            member.state,
            &groups,
            &summary.topics.to_string(),
            &summary.publishers.to_string(),
            &summary.subscribers.to_string(),
            &rate(|summary| summary.received_bytes),
            &rate(|summary| summary.delivered_bytes),
            &bytes::show(summary.dropped_bytes as f64),
            &format!("rbmq {}, up {}", summary.version, text::time(summary.uptime_ms)),
        ])
    }

    /// The sample as text, in lines of at most `width` characters.
    pub(super) fn text(&self, order: Sort, old: Option<&Self>, width: usize) -> Vec<String> {
        // Nothing is cut unless it is printed to a terminal.
        let width = if terminal::is_terminal() { width } else { usize::MAX };
        let mut out = self.heading(old, width);
        out.push(String::new());
        out.extend(table(&self.lines(old, order), width, usize::MAX));
        out
    }

    /// The part of the sample that fits a window.
    pub(super) fn window(
        &self,
        order: Sort,
        old: Option<&Self>,
        size: Size,
        scroll: &mut Scroll,
    ) -> Vec<String> {
        let Size { width, height } = size;
        let mut out = self.heading(old, width);
        out.push(text::cut("?: keys and columns", width));
        // A line for the titles, and a line for the sum of the other topics.
        let most = height.saturating_sub(out.len() + 2);
        let lines = self.lines(old, order);
        scroll.limit(lines.len().saturating_sub(most));
        out.extend(table_from(&lines, width, scroll.from, most));
        out
    }

    /// The sample as a JSON object.
    pub(super) fn json(&self, order: Sort, old: Option<&Self>) -> Value {
        let member = |member: &Member| {
            let mut object = json!({
                "id": member.id,
                "state": member.state,
                "groups": member.groups,
                "addresses": member.addresses,
            });
            match &member.reading {
                Ok(reading) => {
                    object["summary"] = json!(reading.summary);
                    object["limits"] = json!(reading.limits);
                    object["gateways"] = json!(reading.gateways);
                }
                Err(why) => object["error"] = json!(why),
            }
            object
        };
        json!({
            "cluster": self.cluster,
            "seconds": old.map_or(0.0, |old| self.at.saturating_duration_since(old.at).as_secs_f64()),
            "etcd_error": self.trouble,
            "members": self.all.iter().map(member).collect::<Vec<_>>(),
            "topics": self.lines(old, order),
        })
    }
}
