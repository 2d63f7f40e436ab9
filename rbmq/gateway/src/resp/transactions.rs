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

/// What the commands of a transaction may cost: bytes of replies, and names and clients that are looked at. As the replies come at once, nothing
/// else bounds them. Beyond this only commands are executed whose replies are small.
const MAX_COST: usize = 4 << 20;

impl Resp {
    /// Keeps a command for `EXEC`.
    pub(super) fn keep(&mut self, client: &mut Client, raw: &[u8]) {
        let most = self.limits.command as usize;
        let Some(transaction) = &mut client.transaction else { return };
        let mut reply = Reply::new(&mut self.replies, client.is_resp3);
        if transaction.bytes.len() + raw.len() > most {
            transaction.is_broken = true;
            transaction.bytes = Vec::new();
            reply.error(format_args!("ERR a transaction has {most} bytes at most"));
            return;
        }
        if !transaction.is_broken {
            transaction.bytes.extend_from_slice(raw);
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
            (Verb::Discard, some) => {
                *some = None;
                reply.ok();
            }
            (Verb::Watch, Some(_)) => reply.error("ERR WATCH inside MULTI is not allowed"),
            // There are no keys that others could change.
            _ => reply.ok(),
        }
    }

    /// Executes what was kept. If a command cannot be executed yet, the replies so far wait with it.
    pub(super) fn exec(&mut self, client: &mut Client, cx: &mut Cx<'_>) -> Flow {
        let Some(mut transaction) = client.transaction.take() else {
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
        if self.exec_from(client, &transaction, &mut progress, cx) == Flow::Blocked {
            progress.replies = self.replies.split_off(begin);
            transaction.progress = Some(progress);
            client.transaction = Some(transaction);
            return Flow::Blocked;
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
                } else if self.execute(client, spec, &command, cx) == Flow::Blocked {
                    return Flow::Blocked;
                }
                progress.cost += self.cost - cost + self.replies.len() - replies;
            }
            progress.at += used;
        }
        Flow::Done
    }
}
