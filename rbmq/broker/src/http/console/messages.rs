//! Messages for people: those of a topic, and one that somebody publishes.
//!
//! ```text
//!   GET  /messages ─▶ may the user subscribe? ─▶ not too often ─▶ a thread: the ring or the disk is read in place ─▶ text, or digits
//!   POST /messages ─▶ http.console = "write", the field against forged requests ─▶ may the user publish? ─▶ not too often
//!                     ─▶ a thread: audit log ─▶ the user's publisher ─▶ the broker has it ─▶ answer
//! ```

use std::sync::Arc;
use std::time::{Duration, Instant};

use access::{Identity, Login, Operation};
use hyper::StatusCode;
use rbmq_wire::{BufferStats, Framing, Observe, TopicName};
use rocketbufs::Epoch;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::due::NoAnswer;
use super::principal::Principal;
use super::problem::Problem;
use super::publishing::Message;
use super::query::{Query, WrongQuery};
use super::reading::{Begin, Found, MAX_SHOWN, Wanted, of_disk, of_ring, of_stream};
use super::sessions::Who;
use super::state::{Asked, Console};
use crate::admission::not_allowed;
use crate::cluster::Owner;

/// The messages of an answer, by default and at most, and the logs of a topic that are looked at.
const COUNT: usize = 10;
const MAX_COUNT: usize = 100;
const MAX_LOGS: usize = 20;

/// The bytes of messages that an answer shows; of each at least this many.
const SHOWN: usize = 256 << 10;
const MIN_SHOWN: usize = 1 << 10;

/// The pages of a topic's publishers that are read, of about 90 each: the newest ones are on the last page.
const MAX_PAGES: usize = 100;

/// A look that takes longer is cut, and one at the disk is given up after the time of its lane.
const LOOK_WITHIN: Duration = Duration::from_secs(2);

/// A disk that has been busy with one thing for so long is not asked.
const DISK_STANDS: Duration = Duration::from_secs(2);

/// The longest message that somebody publishes here, in bytes.
pub(super) const MAX_PUBLISHED: usize = 64 << 10;

/// The body of a request that publishes: escapes make a text longer.
pub(super) const MAX_BODY: usize = 8 * MAX_PUBLISHED;

/// The body of a request that publishes.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Publish {
    topic: String,
    text: String,
}

/// The messages of one log of a topic.
#[derive(Serialize)]
struct LogRows {
    log: String,
    /// Empty for a log on the disk.
    publisher: String,
    is_kept: bool,
    /// Its publisher writes plain bytes, and no messages: the newest of them are shown as one.
    is_stream: bool,
    #[serde(flatten)]
    found: Found,
}

/// A look at a topic, for a thread that may wait.
struct Look {
    topic: TopicName,
    /// The log that has the topic: its own, or that of its space.
    log: TopicName,
    wanted: Wanted,
    is_kept: bool,
}

/// The newest buffers of a topic that have a message, in the order in which they were made, and whether there are more.
fn newest_buffers(
    console: &Console,
    topic: &TopicName,
    deadline: Instant,
) -> Result<(Vec<BufferStats>, bool), Problem> {
    let (mut newest, mut has_more, mut after) = (Vec::new(), false, None);
    for _ in 0..MAX_PAGES {
        let ask = Observe::GetBuffers { request: 0, topic: topic.clone(), after };
        let Observe::BuffersPage { rows, next, .. } = console.engine.ask(LOOK_WITHIN).observe(ask)? else {
            return Err(NoAnswer.into());
        };
        newest.extend(rows.into_iter().filter(|of| of.boundary > of.start));
        let too_many = newest.len().saturating_sub(MAX_LOGS);
        newest.drain(..too_many);
        has_more |= too_many > 0;
        if next.is_none() {
            return Ok((newest, has_more));
        }
        if Instant::now() > deadline {
            break;
        }
        after = next;
    }
    Ok((newest, true))
}

impl Console {
    /// The messages of a topic.
    pub(super) async fn messages(
        self: &Arc<Self>,
        principal: &Principal,
        query: &Query,
        asked: &Asked<'_>,
    ) -> Result<Value, Problem> {
        let topic = topic_of(query.text("topic").unwrap_or_default())?;
        let wanted = wanted(query)?;
        let login = self.check_right(principal, Operation::Subscribe, &topic, asked)?;
        self.pace.allow(&client_key(&login.identity, asked), Instant::now())?;
        let settings = self.rules().settings;
        let space = settings.topics.space_of(&topic).map(|of| of.space.log().clone());
        let log = space.clone().unwrap_or_else(|| topic.clone());
        let is_kept = settings.topics.of(&log).keep;
        let wanted = Wanted { only: (log != topic).then(|| topic.clone()), ..wanted };
        let look = Look { topic: topic.clone(), log, wanted, is_kept };
        let on_disk = self.engine.watch.kept_log(&look.log).is_some();
        let lane = if on_disk { &self.disk } else { &self.memory };
        let console = self.clone();
        let (logs, is_cut) = lane.run(move || look.take(&console)).await?;
        Ok(json!({ "topic": topic, "space": space, "logs": logs, "is_cut": is_cut }))
    }

    /// Publishes a message.
    pub(super) async fn publish(
        self: &Arc<Self>,
        principal: &Principal,
        Publish { topic, text }: Publish,
        asked: &Asked<'_>,
    ) -> Result<Value, Problem> {
        let topic = topic_of(&topic)?;
        if text.len() > MAX_PUBLISHED {
            let why = format!("text: it has {} bytes, and {MAX_PUBLISHED} are allowed", text.len());
            return Err(Problem::new(StatusCode::PAYLOAD_TOO_LARGE, &why));
        }
        let login = self.check_right(principal, Operation::Publish, &topic, asked)?;
        self.publish_pace.allow(&client_key(&login.identity, asked), Instant::now())?;
        let settings = self.rules().settings;
        let log = settings.topics.space_of(&topic).map_or_else(|| topic.clone(), |of| of.space.log().clone());
        let is_kept = settings.topics.of(&log).keep;
        let (length, console) = (text.len(), self.clone());
        let message = Message { topic: topic.clone(), text, is_kept, login, address: asked.addr };
        let publish = move || {
            console.check_owner(&log, is_kept)?;
            console.publishers.publish(&message, &console.desk().audit)
        };
        self.publishing.run(publish).await?;
        Ok(json!({ "topic": topic, "length": length }))
    }

    /// Refuses what changes something, unless the console may.
    ///
    /// # Errors
    /// The user may not, and how it would.
    pub(super) fn check_writes(&self) -> Result<(), Problem> {
        match self.publishers.are_there() {
            true => Ok(()),
            false => Err(Problem::forbidden("this console publishes nothing: set http.console = \"write\"")),
        }
    }

    /// Whether a client may read or publish a topic. Returns who it is.
    fn check_right(
        &self,
        principal: &Principal,
        operation: Operation,
        topic: &TopicName,
        asked: &Asked<'_>,
    ) -> Result<Login, Problem> {
        self.check_as_open()?;
        let has_users = self.rules().authenticator.has_users();
        let login = match &principal.who {
            Who::User(login) => (**login).clone(),
            // The token of the endpoint is nobody's; without users everybody is the same.
            Who::Token { .. } if !has_users => Login::anonymous(),
            Who::Token { .. } => {
                let why =
                    "the token of the endpoint is for observing: log in as a user to see or publish messages";
                return Err(Problem::forbidden(why));
            }
        };
        let (admission, identity) = (&self.desk().admission, &login.identity);
        let may = match operation {
            Operation::Publish => admission.user_may_publish(identity, topic),
            _ => admission.user_may_read(identity, topic),
        };
        if may {
            return Ok(login);
        }
        let why = not_allowed(identity, &operation.to_string(), topic);
        self.refused(asked, Some(identity), &why);
        Err(Problem::forbidden(&why))
    }

    /// Refuses what another member of the cluster has.
    fn check_owner(&self, log: &TopicName, is_kept: bool) -> Result<(), Problem> {
        match self.engine.watch.owner(log).filter(|_| is_kept) {
            None | Some(Owner::Here { .. }) => Ok(()),
            Some(Owner::Elsewhere { addresses }) => {
                let at = addresses.first().map(|at| format!(" ({at})")).unwrap_or_default();
                let why = format!(
                    "another member of the cluster{at} has topic '{log}': use the console of that one"
                );
                Err(Problem::new(StatusCode::MISDIRECTED_REQUEST, &why))
            }
            Some(Owner::Unsettled { reason }) => Err(Problem::unavailable(&reason, Duration::from_secs(1))),
        }
    }
}

impl Look {
    /// Takes the look. May wait for the disk and for the broker's thread. True: the topic has more logs.
    fn take(mut self, console: &Console) -> Result<(Vec<LogRows>, bool), Problem> {
        self.wanted.deadline = Instant::now() + LOOK_WITHIN;
        let (mut logs, mut is_cut) = (Vec::new(), false);
        match console.engine.watch.kept_log(&self.log) {
            Some(mut log) => {
                let busy = console.engine.watch.disk_busy_for();
                if busy >= DISK_STANDS {
                    let why = format!("the disk of kept topics has stood still for {} s", busy.as_secs());
                    return Err(Problem::unavailable(&why, Duration::from_secs(4)));
                }
                let failed = |error: crate::gate::KeptReadError| {
                    Problem::unavailable(&error.to_string(), Duration::from_secs(4))
                };
                let found = of_disk(&mut log, &self.wanted).map_err(failed)?;
                let log = log.epoch().to_string();
                logs.push(LogRows { log, publisher: String::new(), is_kept: true, is_stream: false, found });
            }
            None => is_cut |= self.of_rings(console, &self.log, &self.wanted, &mut logs)?,
        }
        if self.log != self.topic {
            // Publishers at other brokers may know nothing of the space.
            let wanted = Wanted { only: None, ..self.wanted.clone() };
            is_cut |= self.of_rings(console, &self.topic, &wanted, &mut logs)?;
        }
        if logs.is_empty() {
            console.check_owner(&self.log, self.is_kept)?;
        }
        Ok((logs, is_cut))
    }

    /// Adds what the rings of a topic have. True: it has more rings.
    fn of_rings(
        &self,
        console: &Console,
        topic: &TopicName,
        wanted: &Wanted,
        logs: &mut Vec<LogRows>,
    ) -> Result<bool, Problem> {
        let (newest, is_cut) = newest_buffers(console, topic, wanted.deadline)?;
        if let (Begin::Time(_), false) = (wanted.begin, newest.is_empty()) {
            return Err(Problem::wrong(
                "time: only topics on the disk (keep = true) know when a message came",
            ));
        }
        // Nobody knows which of two logs has the newer message.
        let wanted = Wanted { count: (MAX_COUNT / newest.len().max(1)).min(wanted.count), ..wanted.clone() };
        for of in newest.iter().rev() {
            let Some(glance) = console.engine.watch.out().buffer(of.bid).and_then(|buffer| buffer.glance())
            else {
                continue;
            };
            // Another buffer may have the number meanwhile.
            if glance.epoch() != Epoch(of.epoch) {
                continue;
            }
            let is_stream = of.framing == Framing::Raw;
            let found = match is_stream {
                true => of_stream(&glance),
                false => of_ring(&glance, of.framing == Framing::Merged, &wanted),
            };
            let log = glance.epoch().to_string();
            logs.push(LogRows { log, publisher: of.publisher.clone(), is_kept: false, is_stream, found });
        }
        Ok(is_cut)
    }
}

/// The client whose rate counts.
pub(super) fn client_key(identity: &Identity, asked: &Asked<'_>) -> String {
    match identity.user.as_str() {
        "" => asked.addr.ip().to_string(),
        user => format!("user {user}"),
    }
}

fn wanted(query: &Query) -> Result<Wanted, Problem> {
    let count = query.number("count", COUNT, MAX_COUNT)?.max(1);
    let position = |name| -> Result<Option<u64>, WrongQuery> {
        let parsed = query
            .text(name)
            .map(|text| text.parse().map_err(|_| WrongQuery(format!("{name} must be a number"))));
        parsed.transpose()
    };
    let begin = match (position("before")?, position("from")?, position("time")?) {
        (before, None, None) => Begin::Before(before.unwrap_or(u64::MAX)),
        (None, Some(from), None) => Begin::From(from),
        (None, None, Some(time)) => Begin::Time(time),
        _ => return Err(Problem::wrong("only one of before, from and time can be there")),
    };
    let search = query.text("search").unwrap_or_default().to_lowercase();
    let shown = (SHOWN / count).clamp(MIN_SHOWN, MAX_SHOWN);
    // The look begins when a thread has it.
    Ok(Wanted { count, begin, search, shown, only: None, deadline: Instant::now() })
}

fn topic_of(name: &str) -> Result<TopicName, Problem> {
    name.parse().map_err(|error| Problem::wrong(&format!("topic: {error}")))
}
