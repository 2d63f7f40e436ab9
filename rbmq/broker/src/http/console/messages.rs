//! Messages for people: the newest of a topic, and one that somebody publishes.
//!
//! ```text
//!   GET /api/v1/messages ─▶ may the user subscribe? ─▶ a thread ─▶ Messages::newest ─▶ text, or bytes
//!   POST               … ─▶ http.console = "write", the field against forged requests, may the user publish?
//!                           ─▶ a thread ─▶ Messages::publish ─▶ audit log
//! ```

use std::sync::Arc;
use std::time::Duration;

use access::{AuditEvent, Identity, Operation};
use rbmq_wire::TopicName;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::calls::{LogEnds, MAX_SHOWN, ShownMessage};
use super::principal::Principal;
use super::problem::Problem;
use super::query::Query;
use super::sessions::Who;
use super::state::{Asked, Console};
use crate::admission::{grants, not_allowed};

/// The messages of an answer, by default and at most.
const COUNT: usize = 10;
const MAX_COUNT: usize = 100;

/// The longest message that somebody publishes here, in bytes.
const MAX_PUBLISHED: usize = 64 << 10;

/// The body of a request that publishes: escapes make a text longer.
pub(super) const MAX_BODY: usize = 8 * MAX_PUBLISHED;

/// How long a call may wait for the broker.
const WITHIN: Duration = Duration::from_secs(3);

/// The body of a request that publishes.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Publish {
    topic: String,
    text: String,
}

/// A message for a page: as text where it is one, and else as digits.
#[derive(Serialize)]
struct Row {
    end: u64,
    length: usize,
    text: Option<String>,
    hex: Option<String>,
    is_cut: bool,
}

impl From<ShownMessage> for Row {
    fn from(message: ShownMessage) -> Self {
        let ShownMessage { end, mut bytes, length } = message;
        bytes.truncate(MAX_SHOWN);
        let is_cut = bytes.len() < length;
        let text = text_of(&bytes, is_cut).map(str::to_owned);
        let hex = text.is_none().then(|| bytes.iter().map(|byte| format!("{byte:02x}")).collect());
        Self { end, length, text, hex, is_cut }
    }
}

/// The bytes as text, if they are one. A text that was cut may end inside a character.
fn text_of(bytes: &[u8], is_cut: bool) -> Option<&str> {
    match std::str::from_utf8(bytes) {
        Ok(text) => Some(text),
        Err(error) if is_cut && error.error_len().is_none() => {
            std::str::from_utf8(&bytes[..error.valid_up_to()]).ok()
        }
        Err(_) => None,
    }
}

impl Console {
    /// The newest messages of a topic.
    pub(super) async fn newest(
        &self,
        principal: &Principal,
        query: &Query,
        asked: &Asked<'_>,
    ) -> Result<Value, Problem> {
        let topic = topic_of(query.text("topic").unwrap_or_default())?;
        let count = query.number("count", COUNT, MAX_COUNT)?;
        self.check_right(principal, Operation::Subscribe, &topic, asked)?;
        let messages = self.messages.clone().ok_or_else(nobody_reads)?;
        let look = self.looks.at(&self.watch, &topic)?;
        let ends: LogEnds = look.buffers.iter().map(|own| (own.stats.epoch, own.stats.boundary)).collect();
        let wanted = topic.clone();
        let read = move || match ends.is_empty() {
            true => Ok(Vec::new()),
            false => messages.newest(&wanted, count, &ends, WITHIN),
        };
        let rows: Vec<_> = self.calls.run(read).await?.into_iter().map(Row::from).collect();
        Ok(json!({ "topic": topic, "rows": rows }))
    }

    /// Publishes a message.
    pub(super) async fn publish(
        &self,
        principal: &Principal,
        Publish { topic, text }: Publish,
        asked: &Asked<'_>,
    ) -> Result<Value, Problem> {
        if !self.writes {
            let why = "this console publishes nothing: set http.console = \"write\"";
            return Err(Problem::forbidden(why));
        }
        let topic = topic_of(&topic)?;
        if text.len() > MAX_PUBLISHED {
            return Err(Problem::wrong(&format!(
                "text: it has {} bytes, and {MAX_PUBLISHED} are allowed",
                text.len()
            )));
        }
        self.check_right(principal, Operation::Publish, &topic, asked)?;
        let messages = self.messages.clone().ok_or_else(nobody_reads)?;
        let (wanted, length) = (topic.clone(), text.len());
        self.calls.run(move || messages.publish(&wanted, text.as_bytes(), WITHIN)).await?;
        self.record(
            asked,
            AuditEvent {
                user: principal.who.user(),
                operation: Some("publish"),
                topic: Some(topic.as_str()),
                count: Some(length as u64),
                ..AuditEvent::new("console")
            },
        );
        Ok(json!({ "topic": topic, "length": length }))
    }

    /// Whether a client may read or publish a topic.
    fn check_right(
        &self,
        principal: &Principal,
        operation: Operation,
        topic: &TopicName,
        asked: &Asked<'_>,
    ) -> Result<(), Problem> {
        let rules = self.rules();
        let identity = match &principal.who {
            Who::User(login) => login.identity.clone(),
            // The token of the endpoint is nobody's; without users everybody is the same.
            Who::Token { .. } if !rules.authenticator.has_users() => Arc::new(Identity::anonymous()),
            Who::Token { .. } => {
                let why =
                    "the token of the endpoint is for observing: log in as a user to see or publish messages";
                return Err(Problem::forbidden(why));
            }
        };
        let grants = grants(rules.rights.as_ref(), &identity);
        let may = grants.is_none_or(|grants| match operation {
            Operation::Publish => grants.may_publish(topic),
            _ => grants.may_subscribe(topic),
        });
        if may {
            return Ok(());
        }
        let why = not_allowed(&identity, &operation.to_string(), topic);
        self.refused(asked, Some(&identity), &why);
        Err(Problem::forbidden(&why))
    }
}

fn topic_of(name: &str) -> Result<TopicName, Problem> {
    name.parse().map_err(|error| Problem::wrong(&format!("topic: {error}")))
}

fn nobody_reads() -> Problem {
    Problem::missing("this program shows no messages")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(bytes: &[u8], length: usize) -> Row {
        Row::from(ShownMessage { end: 1, bytes: bytes.to_vec(), length })
    }

    #[test]
    fn a_message_is_text_where_it_is_one() {
        let text = row("ä<b>".as_bytes(), 5);
        assert_eq!((text.text.as_deref(), text.hex, text.is_cut), (Some("ä<b>"), None, false));
        let bytes = row(&[0, 0xff, 0x7f], 3);
        assert_eq!((bytes.text, bytes.hex.as_deref()), (None, Some("00ff7f")));
        let cut = row("aä".as_bytes().get(..2).unwrap(), 3);
        assert_eq!((cut.text.as_deref(), cut.is_cut), (Some("a"), true));
        let wrong = row(&[b'a', 0xff, b'b'], 9);
        assert_eq!(wrong.hex.as_deref(), Some("61ff62"));
        assert_eq!(row(&[b'x'; MAX_SHOWN + 1], MAX_SHOWN + 1).text.map(|text| text.len()), Some(MAX_SHOWN));
    }
}
