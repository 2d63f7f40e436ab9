//! Questions to the broker's thread, with limits for how long somebody waits for the answers.

use std::time::{Duration, Instant};

use locks::Mutex;
use rbmq_wire::Observe;

use super::due::{INTERVAL, NoAnswer};
use crate::Watch;
use crate::asks::{Answered, ClientKey, ClientsPage, Disconnected, Record};
use crate::groups::Members;
use crate::traces::{TraceAnswer, Wish};

/// A broker that does not answer one question within this time does not answer.
const ANSWER_WITHIN: Duration = Duration::from_secs(2);

/// The broker's thread, as the console asks it.
pub(super) struct Engine {
    pub(super) watch: Watch,
    broker: Silence,
    groups: Silence,
}

/// A thread that did not answer, and is not asked again before a time.
#[derive(Default)]
struct Silence(Mutex<Option<Instant>>);

impl Silence {
    fn answer<T>(&self, ask: impl FnOnce() -> Option<T>) -> Result<T, NoAnswer> {
        // Whoever stands behind somebody who has waited in vain does not wait too.
        if self.0.lock().is_some_and(|until| Instant::now() < until) {
            return Err(NoAnswer);
        }
        let answer = ask();
        *self.0.lock() = answer.is_none().then(|| Instant::now() + INTERVAL);
        answer.ok_or(NoAnswer)
    }
}

impl Engine {
    pub(super) fn new(watch: Watch) -> Self {
        Self { watch, broker: Silence::default(), groups: Silence::default() }
    }

    /// Begins several questions, of which the last is asked within a time.
    pub(super) fn ask(&self, within: Duration) -> Asking<'_> {
        Asking { engine: self, end: Instant::now() + within, work: Duration::ZERO }
    }

    /// The workers of a group. None: no such group.
    ///
    /// # Errors
    /// The thread of the groups does not answer: it waits for the disk.
    pub(super) fn members(&self, topic: &str, group: &str) -> Result<Option<Members>, NoAnswer> {
        self.groups.answer(|| self.watch.group_members(topic, group, ANSWER_WITHIN))
    }

    /// Begins, reads or ends a trace.
    ///
    /// # Errors
    /// The broker does not answer.
    pub(super) fn trace(&self, owner: String, wish: Wish) -> Result<TraceAnswer, NoAnswer> {
        self.broker.answer(|| self.watch.trace(owner, wish, ANSWER_WITHIN))
    }

    /// Disconnects a client. `record` is called before.
    ///
    /// # Errors
    /// The broker does not answer, and does not disconnect the client later.
    pub(super) fn disconnect(
        &self,
        conn: u64,
        why: &'static str,
        record: Record,
    ) -> Result<Disconnected, NoAnswer> {
        self.broker.answer(|| self.watch.disconnect(conn, why, record, ANSWER_WITHIN))
    }
}

/// Several questions.
pub(super) struct Asking<'a> {
    engine: &'a Engine,
    end: Instant,
    /// How long the broker's thread has worked on the answers.
    pub(super) work: Duration,
}

impl Asking<'_> {
    /// Whether no further question should be asked: what is there must do.
    pub(super) fn is_late(&self) -> bool {
        Instant::now() >= self.end
    }

    /// Asks as an observer does.
    ///
    /// # Errors
    /// The broker does not answer.
    pub(super) fn observe(&mut self, message: Observe) -> Result<Observe, NoAnswer> {
        let Answered { answer, work } =
            self.engine.broker.answer(|| self.engine.watch.observe(message, ANSWER_WITHIN))?;
        self.work += work;
        Ok(answer)
    }

    /// Some of the clients: those behind another one.
    ///
    /// # Errors
    /// The broker does not answer.
    pub(super) fn clients(&mut self, after: Option<ClientKey>) -> Result<ClientsPage, NoAnswer> {
        let Answered { answer, work } =
            self.engine.broker.answer(|| self.engine.watch.clients(after, ANSWER_WITHIN))?;
        self.work += work;
        Ok(answer)
    }
}
