//! `MULTI` and `EXEC`.
//!
//! ```text
//!   MULTI ─▶ keep, keep … ─▶ EXEC: each command is executed ──▶ all replies at once
//!                                      │ waits for the bus        (messages must not come between the parts of one reply)
//!                                      └─▶ Progress, until then
//! ```

use super::client::{Client, Progress, Transaction};
use super::commands::{Spec, Verb};
use super::machine::{Flow, Resp};
use super::parse::{Arguments, Parser, Step};
use super::reply::Reply;
use crate::protocol::Cx;

/// What the commands of a transaction may cost: bytes of replies, and names and clients that are looked at, and a share of the bytes of logs that
/// are read. As the replies come at once, nothing else bounds them. Beyond this only commands are executed whose replies are small.
const MAX_COST: usize = 4 << 20;

impl Resp {
    /// Keeps a command for `EXEC`.
    pub(super) fn keep(&mut self, client: &mut Client, raw: &[u8]) {
        let Some(transaction) = &mut client.transaction else { return };
        let mut reply = Reply::new(&mut self.replies, client.is_resp3);
        let (most, most_of_all) = (self.limits.command as usize, self.bounds.transaction_bytes);
        let is_too_large = transaction.bytes.len() + raw.len() > most;
        if is_too_large || self.transaction_bytes + raw.len() > most_of_all {
            transaction.is_broken = true;
            self.transaction_bytes -= transaction.bytes.len();
            transaction.bytes = Vec::new();
            let (whose, most) = if is_too_large {
                ("a transaction has", most)
            } else {
                ("all transactions have", most_of_all)
            };
            return reply.error(format_args!("ERR {whose} {most} bytes at most"));
        }
        if !transaction.is_broken {
            transaction.bytes.extend_from_slice(raw);
            self.transaction_bytes += raw.len();
            transaction.count += 1;
        }
        reply.word("QUEUED");
    }

    pub(super) fn transaction(&mut self, client: &mut Client, verb: Verb) {
        let mut reply = Reply::new(&mut self.replies, client.is_resp3);
        match (verb, &mut client.transaction) {
            (Verb::Multi, Some(_)) => reply.error("ERR MULTI calls can not be nested"),
            (Verb::Multi, none) => {
                *none = Some(Box::default());
                reply.ok();
            }
            (Verb::Discard, None) => reply.error("ERR DISCARD without MULTI"),
            (Verb::Discard, Some(_)) => {
                reply.ok();
                self.end_transaction(client);
            }
            (Verb::Watch, Some(_)) => reply.error("ERR WATCH inside MULTI is not allowed"),
            // There are no keys that others could change.
            _ => reply.ok(),
        }
    }

    /// The client has no transaction any more. Returns what it was.
    pub(super) fn end_transaction(&mut self, client: &mut Client) -> Option<Box<Transaction>> {
        let transaction = client.transaction.take()?;
        self.transaction_bytes -= transaction.memory();
        Some(transaction)
    }

    /// Executes what was kept. If a command cannot be executed yet, the replies so far wait with it.
    pub(super) fn exec(&mut self, client: &mut Client, cx: &mut Cx<'_>) -> Flow {
        let Some(mut transaction) = self.end_transaction(client) else {
            Reply::new(&mut self.replies, client.is_resp3).error("ERR EXEC without MULTI");
            return Flow::Done;
        };
        let begin = self.replies.len();
        let mut progress = match transaction.progress.take() {
            Some(mut progress) => {
                self.replies.append(&mut progress.replies);
                progress
            }
            None if transaction.is_broken => {
                let mut reply = Reply::new(&mut self.replies, client.is_resp3);
                reply.error("EXECABORT Transaction discarded because of previous errors.");
                return Flow::Done;
            }
            None => {
                Reply::new(&mut self.replies, client.is_resp3).array(transaction.count);
                Progress::default()
            }
        };
        client.is_in_exec = true;
        let flow = self.exec_from(client, &transaction, &mut progress, cx);
        client.is_in_exec = false;
        if flow != Flow::Done {
            progress.replies = self.replies.split_off(begin);
            transaction.progress = Some(progress);
            if self.transaction_bytes + transaction.memory() > self.bounds.transaction_bytes {
                client.closing =
                    Some("its transaction has to wait, and those of all clients have too many bytes");
                return Flow::Done;
            }
            self.transaction_bytes += transaction.memory();
            client.transaction = Some(transaction);
            return flow;
        }
        Flow::Done
    }

    fn exec_from(
        &mut self,
        client: &mut Client,
        transaction: &Transaction,
        progress: &mut Progress,
        cx: &mut Cx<'_>,
    ) -> Flow {
        let (mut parser, mut arguments) = (Parser::default(), Arguments::default());
        let bytes = &transaction.bytes;
        // They were parsed before: there is nothing but commands.
        while let Step::Command(used) = parser.parse(&bytes[progress.at..], &self.limits, &mut arguments) {
            let command = arguments.of(&bytes[progress.at..]);
            if let Some(spec) = command.get(0).and_then(Spec::find) {
                let (cost, replies) = (self.cost, self.replies.len());
                if progress.cost >= MAX_COST && !spec.has_small_replies() {
                    Reply::new(&mut self.replies, client.is_resp3).error("ERR too much for a transaction");
                } else {
                    let flow = self.execute(client, spec, &command, cx);
                    if flow != Flow::Done {
                        return flow;
                    }
                }
                progress.cost += self.cost - cost + self.replies.len() - replies;
            }
            progress.at += used;
        }
        Flow::Done
    }
}
