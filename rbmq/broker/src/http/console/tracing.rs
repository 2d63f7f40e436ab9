//! Traces of a client or a topic, for those who may administer: each has one, and asks for its events again and again.

use std::sync::Arc;
use std::time::{Duration, Instant};

use access::AuditEvent;
use rbmq_wire::TopicName;
use serde_json::{Value, json};

use super::changes::number_of_connection;
use super::messages::client_key;
use super::principal::Principal;
use super::problem::Problem;
use super::query::Query;
use super::state::{Asked, Console};
use crate::traces::{MAX_TIME, MAX_TRACES, Target, TraceAnswer, Wish};

impl Console {
    /// Begins a trace, after its line in the audit log.
    ///
    /// # Errors
    /// Nobody has the connection, too many traces run, the log has no room for the line, or the broker does not answer.
    pub(super) async fn begin_trace(
        self: &Arc<Self>,
        principal: &Principal,
        query: &Query,
        asked: &Asked<'_>,
    ) -> Result<Value, Problem> {
        let target = match query.text("topic").map(str::parse::<TopicName>).transpose() {
            Ok(Some(topic)) => Target::Topic(topic),
            Ok(None) => Target::Client(number_of_connection(query)?),
            Err(error) => return Err(Problem::wrong(&format!("topic: {error}"))),
        };
        let most = MAX_TIME.as_secs() as usize;
        let time = Duration::from_secs(query.number("seconds", most, most)?.max(1) as u64);
        let identity = principal.identity();
        let owner = client_key(&identity, asked);
        self.change_pace.allow(&owner, Instant::now())?;
        let (address, about) = (
            asked.addr.to_string(),
            match &target {
                Target::Client(conn) => format!("connection {conn}"),
                Target::Topic(_) => String::new(),
            },
        );
        let event = AuditEvent {
            user: Some(&identity.user),
            address: Some(&address),
            role: Some("console"),
            operation: Some("trace"),
            topic: query.text("topic"),
            client: (!about.is_empty()).then_some(&about),
            ..AuditEvent::new("console")
        };
        if !self.desk().audit.try_record(&event) {
            let why = "the audit log has no room for a line, so no trace was begun";
            return Err(Problem::unavailable(why, Duration::from_secs(1)));
        }
        self.of_trace(owner, Wish::Start { target, time }).await
    }

    /// The events of the asker's trace behind a number.
    ///
    /// # Errors
    /// The asker has no trace, or the broker does not answer.
    pub(super) async fn read_trace(
        self: &Arc<Self>,
        principal: &Principal,
        query: &Query,
        asked: &Asked<'_>,
    ) -> Result<Value, Problem> {
        let after = query.number("after", 0, usize::MAX >> 1)? as u64;
        self.of_trace(client_key(&principal.identity(), asked), Wish::Read { after }).await
    }

    /// Ends the asker's trace, and forgets it. Its events behind a number are in the answer.
    ///
    /// # Errors
    /// As for [`read_trace`](Self::read_trace).
    pub(super) async fn end_trace(
        self: &Arc<Self>,
        principal: &Principal,
        query: &Query,
        asked: &Asked<'_>,
    ) -> Result<Value, Problem> {
        let after = query.text("after").map(|_| query.number("after", 0, usize::MAX >> 1)).transpose()?;
        let after = after.map(|after| after as u64);
        self.of_trace(client_key(&principal.identity(), asked), Wish::Stop { after }).await
    }

    async fn of_trace(self: &Arc<Self>, owner: String, wish: Wish) -> Result<Value, Problem> {
        let engine = self.engine.clone();
        let answer = self.work.run(move || Ok(engine.trace(owner, wish)?)).await?;
        match answer {
            TraceAnswer::Look(look) => Ok(json!(look)),
            TraceAnswer::NoClient => Err(Problem::missing(
                "no client has this connection: it has left, or is here again with another one",
            )),
            TraceAnswer::NoTrace => Err(Problem::missing("you have no trace: begin one (POST)")),
            TraceAnswer::HasOne => {
                let why = "you have a trace that runs: end it first (DELETE)";
                Err(Problem::new(hyper::StatusCode::CONFLICT, why))
            }
            TraceAnswer::Full => {
                let why =
                    format!("{MAX_TRACES} traces run, and no more are allowed; each ends within a minute");
                Err(Problem::unavailable(&why, Duration::from_secs(4)))
            }
        }
    }
}
