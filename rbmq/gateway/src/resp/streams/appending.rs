//! `XADD`.
//!
//! ```text
//!   XADD, XADD, XADD ─▶ published, in a queue of the client ─▶ stored: each has its id ─▶ replies, in order
//! ```
//!
//! A client gets its replies when its entries are in the file of the topic. So a pipeline of `XADD` waits for the disk once and not for each entry;
//! every other command waits until all have their replies. Inside of a transaction, each waits for its own.

use rocketbufs::Position;

use super::super::client::Client;
use super::super::machine::{Flow, Resp};
use super::super::parse::{Command, integer};
use super::super::reply::{Reply, bulk};
use super::append::{Answer, Append};
use super::entries::{FIELDS, PAYLOAD};
use super::ids::Id;
use super::{Intent, Stream};
use crate::protocol::{Cx, PublishError, Ticket};

/// The most entries of a client that are not stored yet.
const MAX_APPENDS: usize = 1024;

const SYNTAX: &str = "ERR syntax error";

/// Why an entry was not published.
enum Failure {
    Blocked,
    Answer(Answer),
}

impl From<String> for Failure {
    fn from(text: String) -> Self {
        Self::Answer(Answer::Error(text))
    }
}

impl From<&str> for Failure {
    fn from(text: &str) -> Self {
        Self::Answer(Answer::Error(text.to_owned()))
    }
}

/// What `XADD` asks for, beside its fields.
#[derive(Debug, Default, PartialEq, Eq)]
struct Options {
    makes_none: bool,
    /// Where the id is among the arguments.
    id: usize,
}

/// How a client wants a stream to be cut: the number of arguments that this takes.
///
/// # Errors
/// It cannot be done; the answer says what can.
pub(super) fn trimming(command: &Command<'_>, at: usize) -> Result<usize, &'static str> {
    const EXACT: &str = "ERR a log on disk is not cut at an exact entry: use MAXLEN ~ or MINID ~, which promise nothing more than the rule of the \
                         topic does, keep_bytes and keep_ms";
    let is_approximate = command.get(at + 1) == Some(b"~");
    let has_sign = is_approximate || command.get(at + 1) == Some(b"=");
    let threshold = command.get(at + 1 + usize::from(has_sign)).ok_or(SYNTAX)?;
    let is_length = command.get(at).is_some_and(|name| name.eq_ignore_ascii_case(b"maxlen"));
    match (is_length, integer(threshold)) {
        (true, None) => return Err("ERR value is not an integer or out of range"),
        (true, Some(..0)) => return Err("ERR The MAXLEN argument must be >= 0."),
        (false, _) if super::ids::id(threshold, 0).is_none() => {
            return Err("ERR Invalid stream ID specified as stream command argument");
        }
        _ => {}
    }
    let mut taken = 2 + usize::from(has_sign);
    if command.get(at + taken).is_some_and(|word| word.eq_ignore_ascii_case(b"limit")) {
        let limit = command.get(at + taken + 1).ok_or(SYNTAX)?;
        if !is_approximate {
            return Err("ERR syntax error, LIMIT cannot be used without the special ~ option");
        }
        integer(limit).filter(|limit| *limit >= 0).ok_or("ERR The LIMIT argument must be >= 0.")?;
        taken += 2;
    }
    if is_approximate { Ok(taken) } else { Err(EXACT) }
}

/// Reads what is before the id.
fn options(command: &Command<'_>) -> Result<Options, &'static str> {
    const OWN_ID: &str = "ERR the broker gives entries their IDs, which say the time and the place of an entry in the log: use * as the ID";
    const DELETING: &str = "ERR entries are not deleted for what consumer groups have of them: leave KEEPREF, DELREF and ACKED out";
    const BOTH: &str = "ERR syntax error, MAXLEN and MINID options at the same time are not compatible";
    let (mut at, mut makes_none, mut is_trimming) = (2, false, false);
    loop {
        let word = command.get(at).ok_or(SYNTAX)?.to_ascii_lowercase();
        match &word[..] {
            b"nomkstream" => (at, makes_none) = (at + 1, true),
            b"maxlen" | b"minid" if is_trimming => return Err(BOTH),
            b"maxlen" | b"minid" => (at, is_trimming) = (at + trimming(command, at)?, true),
            b"keepref" | b"delref" | b"acked" => return Err(DELETING),
            b"*" => break,
            _ => {
                let time = word.strip_suffix(b"-*").unwrap_or(&word);
                let is_id = super::ids::id(time, 0).is_some();
                return Err(if is_id {
                    OWN_ID
                } else {
                    "ERR Invalid stream ID specified as stream command argument"
                });
            }
        }
    }
    let fields = command.len().saturating_sub(at + 1);
    if fields == 0 || !fields.is_multiple_of(2) {
        return Err("ERR wrong number of arguments for 'xadd' command");
    }
    Ok(Options { makes_none, id: at })
}

impl Resp {
    /// `XADD key [NOMKSTREAM] [MAXLEN | MINID ~ threshold] * field value …`.
    pub(in crate::resp) fn xadd(
        &mut self,
        client: &mut Client,
        command: &Command<'_>,
        cx: &mut Cx<'_>,
    ) -> Flow {
        if client.is_in_exec
            && let Some(append) = client.appends.front()
        {
            let Some(answer) = &append.answer else { return Flow::Blocked };
            answer.write(&mut Reply::new(&mut self.replies, client.is_resp3));
            client.appends.pop_front();
            return Flow::Done;
        }
        if client.appends.len() >= MAX_APPENDS {
            return Flow::Blocked;
        }
        let number = self.append_number;
        let answer = match self.append(client, command, number, cx) {
            Ok(()) => None,
            Err(Failure::Blocked) => return Flow::Blocked,
            Err(Failure::Answer(answer)) if client.appends.is_empty() => {
                answer.write(&mut Reply::new(&mut self.replies, client.is_resp3));
                return Flow::Done;
            }
            // After the replies that come first.
            Err(Failure::Answer(answer)) => Some(answer),
        };
        self.append_number += 1;
        client.appends.push_back(Append { number, answer, is_muted: client.is_muted() });
        if client.is_in_exec { Flow::Blocked } else { Flow::Done }
    }

    fn append(
        &mut self,
        client: &Client,
        command: &Command<'_>,
        number: u64,
        cx: &mut Cx<'_>,
    ) -> Result<(), Failure> {
        let options = options(command)?;
        let key = command.get(1).unwrap_or_default();
        let stream = Stream::of(key, client.conn, Intent::Append, cx)?;
        if options.makes_none && !stream.exists() {
            return Err(Failure::Answer(Answer::Nothing));
        }
        let mut fields = command.from(options.id + 1);
        let ticket = Ticket { conn: client.conn, number };
        let sent = if fields.len() == 2 && command.get(options.id + 1) == Some(PAYLOAD) {
            let payload = fields.nth(1).unwrap_or_default();
            cx.bus.append(&stream.topic, &[], payload, ticket)
        } else {
            let mut payload = std::mem::take(&mut self.payload);
            payload.clear();
            payload.extend_from_slice(format!("*{}\r\n", fields.len()).as_bytes());
            fields.for_each(|field| bulk(&mut payload, field));
            let sent = cx.bus.append(&stream.topic, FIELDS, &payload, ticket);
            payload.shrink_to(super::super::machine::KEPT_BYTES);
            self.payload = payload;
            sent
        };
        sent.map_err(|error| match error {
            PublishError::Full => Failure::Blocked,
            PublishError::TooLarge { most } => {
                Failure::Answer(Answer::Error(format!("ERR an entry has {most} bytes at most")))
            }
            PublishError::NoDisk(text) | PublishError::Refused(text) => {
                Failure::Answer(Answer::Error(format!("ERR {text}")))
            }
        })
    }

    /// An entry is stored, or not.
    pub(in crate::resp) fn appended(
        &mut self,
        ticket: Ticket,
        stored: Result<(Position, u64), String>,
        cx: &mut Cx<'_>,
    ) {
        let Some(client) = self.clients.get_mut(&ticket.conn) else { return };
        let answer = match stored {
            Ok((position, time)) => Answer::Id(Id { time, position }),
            Err(why) => Answer::Error(format!("ERR whether the entry is stored is not known: {why}")),
        };
        if let Some(append) = client.appends.iter_mut().find(|append| append.number == ticket.number) {
            append.answer = Some(answer);
        }
        if client.is_executing() {
            return cx.out.resume(ticket.conn);
        }
        while let Some(Append { answer: Some(answer), is_muted, .. }) = client.appends.front() {
            if !is_muted {
                answer.write(&mut Reply::new(&mut self.replies, client.is_resp3));
            }
            client.appends.pop_front();
        }
        if client.appends.is_empty() {
            cx.out.resume(ticket.conn);
        }
        self.send(ticket.conn, cx);
    }
}
