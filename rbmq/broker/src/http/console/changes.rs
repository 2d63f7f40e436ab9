//! The changes that the console makes: an administrator disconnects a client.
//!
//! A change needs `http.console = "write"`, the right to administer, and the field against forged requests. The thread that makes the
//! change writes the line of the audit log before, and makes no change without that line.

use std::sync::Arc;
use std::time::{Duration, Instant};

use access::AuditEvent;
use serde_json::{Value, json};

use super::messages::client_key;
use super::principal::Principal;
use super::problem::Problem;
use super::query::Query;
use super::state::{Asked, Console};
use crate::asks::{ClientRow, Disconnected, Record};

/// The reason that a disconnected client is told.
const WHY: &str = "an administrator of the broker has disconnected this client";

impl Console {
    /// Whether the console changes something at the broker.
    ///
    /// # Errors
    /// The console changes nothing, and which setting allows it.
    pub(super) fn check_changes(&self, asked: &Asked<'_>) -> Result<(), Problem> {
        if self.changes {
            return Ok(());
        }
        let why = "this console changes nothing: set http.console = \"write\"";
        self.refused(asked, None, why);
        Err(Problem::forbidden(why))
    }

    /// Disconnects a client.
    ///
    /// # Errors
    /// No client has the connection, or the client may not be disconnected, or the broker does not answer, or this client asks too often. The client stays then.
    pub(super) async fn disconnect(
        self: &Arc<Self>,
        principal: &Principal,
        query: &Query,
        asked: &Asked<'_>,
    ) -> Result<Value, Problem> {
        let conn = number_of_connection(query)?;
        let identity = principal.identity();
        self.change_pace.allow(&client_key(&identity, asked), Instant::now())?;
        let (audit, engine, address) =
            (self.desk().audit.clone(), self.engine.clone(), asked.addr.to_string());
        let record: Record = Box::new(move |row| {
            audit.try_record(&AuditEvent {
                user: Some(&identity.user),
                address: Some(&address),
                role: Some("console"),
                client: Some(&row.name),
                reason: Some(&describe(row)),
                ..AuditEvent::new("disconnect")
            })
        });
        let done = self.work.run(move || Ok(engine.disconnect(conn, WHY, record)?)).await?;
        match done {
            Disconnected::Done(row) => Ok(json!({ "client": row })),
            Disconnected::NoClient => Err(Problem::missing(NO_CLIENT)),
            Disconnected::Gateway => Err(Problem::forbidden(
                "this is a gateway of the broker itself, which serves many clients; change [[gateway]] to end it",
            )),
            Disconnected::NoLine => {
                let why = "the audit log has no room for a line, so the client was not disconnected";
                Err(Problem::unavailable(why, Duration::from_secs(1)))
            }
        }
    }
}

/// The answer where no client has a connection.
const NO_CLIENT: &str = "no client has this connection: it has left, or is here again with another one";

/// The answer about one client.
pub(super) fn client(console: &Console, query: &Query) -> Result<Value, Problem> {
    let conn = number_of_connection(query)?;
    let all = console.samples.clients()?;
    let row = all.entry(conn).ok_or_else(|| Problem::missing(NO_CLIENT))?;
    Ok(json!({ "row": row }))
}

pub(super) fn number_of_connection(query: &Query) -> Result<u64, Problem> {
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
