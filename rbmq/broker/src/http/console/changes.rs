//! What the console changes: an administrator disconnects a client.
//!
//! A change needs `http.console = "write"`, the right to administer, and the field against forged requests. Each is in the audit log, whose
//! line is written where it is done.

use std::sync::Arc;

use access::AuditEvent;
use serde_json::{Value, json};

use super::principal::Principal;
use super::problem::Problem;
use super::query::Query;
use super::state::{Asked, Console};
use crate::asks::{ClientRow, Disconnected};

/// What a client is told that is disconnected.
const WHY: &str = "an administrator of the broker has disconnected this client";

impl Console {
    /// Whether the console changes anything.
    ///
    /// # Errors
    /// It does not, and how it would.
    pub(super) fn check_changes(&self, asked: &Asked<'_>) -> Result<(), Problem> {
        if self.changes {
            return Ok(());
        }
        let why = "the console changes nothing here; http.console = \"write\" allows it";
        self.refused(asked, None, why);
        Err(Problem::forbidden(why))
    }

    /// Disconnects a client.
    ///
    /// # Errors
    /// There is no such client, or it may not be disconnected, or the broker does not answer.
    pub(super) async fn disconnect(
        self: &Arc<Self>,
        principal: &Principal,
        query: &Query,
        asked: &Asked<'_>,
    ) -> Result<Value, Problem> {
        let conn = number_of_connection(query)?;
        let (audit, engine) = (self.desk().audit.clone(), self.engine.clone());
        let (address, user) = (asked.addr.to_string(), principal.who.user().map(str::to_owned));
        let record = move |row: &ClientRow| {
            let whom = describe(row);
            audit.record(&AuditEvent {
                user: user.as_deref(),
                address: Some(&address),
                role: Some("console"),
                client: Some(&row.name),
                reason: Some(&whom),
                ..AuditEvent::new("disconnect")
            });
        };
        let done = self.work.run(move || Ok(engine.disconnect(conn, WHY, Box::new(record))?)).await?;
        match done {
            Disconnected::Done(row) => Ok(json!({ "client": row })),
            Disconnected::NoClient => Err(Problem::missing(NO_CLIENT)),
            Disconnected::Gateway => Err(Problem::forbidden(
                "this is a gateway of the broker itself, and its clients are on the overview; change [[gateway]] to end it",
            )),
        }
    }
}

/// The answer where no client has a connection.
const NO_CLIENT: &str = "no client has this connection: it has left, or is here again with another one";

/// One client.
pub(super) fn client(console: &Console, query: &Query) -> Result<Value, Problem> {
    let conn = number_of_connection(query)?;
    let all = console.samples.clients()?;
    let row = all.entry(conn).ok_or_else(|| Problem::missing(NO_CLIENT))?;
    Ok(json!({ "row": row }))
}

fn number_of_connection(query: &Query) -> Result<u64, Problem> {
    let number = query.text("conn").and_then(|text| text.parse().ok());
    number.ok_or_else(|| {
        Problem::wrong("conn: the number of the connection is missing; GET /api/v1/clients has it")
    })
}

/// A client in the audit log.
fn describe(row: &ClientRow) -> String {
    let role = match serde_json::to_value(row.role) {
        Ok(Value::String(role)) => role,
        _ => String::new(),
    };
    match row.user.as_str() {
        "" => format!("{role} at {}", row.address),
        user => format!("{role} of user '{user}' at {}", row.address),
    }
}
