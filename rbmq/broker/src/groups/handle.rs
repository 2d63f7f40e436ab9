//! The way to the groups.

use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Weak, mpsc};
use std::time::Duration;

use locks::{Condvar, Mutex};
use rbmq_groups::Consumers;
use rbmq_wire::{GroupAction, GroupMessage, GroupName, GroupStats, TopicName};
use rocketbufs::{Bid, ROut};
use tracing::error;

use super::super::inbox::Message;
use super::super::kept::KeptLogs;
use super::consumers::{GroupChange, GroupRoom, Registry, Touched, of_workers};
use super::row::GroupRow;
use super::service;
use super::shared::{Command, Joining, Key, Members, Parts, Question, Shared, Wake, answer};

/// Why there is no thread.
const NO_GROUPS: &str =
    "this broker has no groups: it keeps no topics on disk (broker.keep_dir), or is a member of a cluster";

/// Why there is no thread any more.
const STOPS: &str = "the broker stops";

/// The way to the groups. Clones lead to the same ones.
#[derive(Clone)]
pub(in super::super) struct Groups(Arc<Shared>);

impl Groups {
    pub(in super::super) fn new(out: &ROut) -> Self {
        Self(Arc::new(Shared {
            out: out.clone(),
            known: AtomicUsize::new(0),
            inbox: Mutex::default(),
            changed: Condvar::new(),
            rows: Mutex::default(),
            thread: Mutex::default(),
            consumers: Registry::default(),
        }))
    }

    /// Starts the thread, and waits until it has opened the groups of earlier brokers: consumers that come back find theirs.
    ///
    /// # Errors
    /// The system refuses a thread.
    pub(in super::super) fn start(&self, parts: Parts) -> std::io::Result<()> {
        let shared = self.0.clone();
        let (opened, are_open) = mpsc::sync_channel(1);
        let thread = threads::spawn("rbmq-groups", move || service::run(&shared, parts, &opened))?;
        *self.0.thread.lock() = Some(thread);
        // A thread that has failed tells so when it is joined.
        let _ = are_open.recv();
        Ok(())
    }

    /// Stops the thread. Everything that was acknowledged is on the disk then.
    pub(in super::super) fn stop(&self) {
        self.0.inbox.lock().is_stopped = true;
        self.0.changed.notify_all();
        // The lock is free while this waits: others ask whether there is a thread, and the thread may wait for them.
        let thread = self.0.thread.lock().take();
        if thread.is_some_and(|thread| thread.join().is_err()) {
            error!("the thread of the groups has failed");
        }
    }

    fn is_running(&self) -> bool {
        self.0.thread.lock().as_ref().is_some_and(|thread| !thread.is_finished())
    }

    fn command(&self, command: Command) {
        if !self.is_running() {
            return;
        }
        self.0.inbox.lock().commands.push_back(command);
        self.0.changed.notify_all();
    }

    /// A connection asks for a group. False: it has done so before.
    pub(in super::super) fn may_join(&self, conn: u64) -> bool {
        self.0.change(|inbox| inbox.joined.insert(conn))
    }

    /// A worker comes, which may read the topic.
    pub(in super::super) fn join(&self, joining: Joining) {
        if !self.is_running() {
            let again = self.0.inbox.lock().is_stopped;
            let reason = if again { STOPS } else { NO_GROUPS }.to_owned();
            return answer(&joining.conn, &GroupMessage::Refused { again, reason });
        }
        self.0.change(|inbox| inbox.bids.insert(joining.bid));
        self.command(Command::Join(Box::new(joining)));
    }

    /// A worker will go.
    pub(in super::super) fn leave(&self, conn: u64, message: Message) {
        self.command(Command::Leave { conn, _message: message });
    }

    /// A worker's marks.
    pub(in super::super) fn marks(&self, conn: u64, message: Message) {
        self.command(Command::Marks { conn, message });
    }

    /// A question.
    pub(in super::super) fn ask(&self, question: Question) {
        let request = question.request;
        if self.is_running() {
            if self.0.inbox.lock().asking.insert(question.conn.id()) {
                return self.command(Command::Ask(Box::new(question)));
            }
            let reason =
                "a connection has one question about groups at a time, and its last one waits".to_owned();
            return answer(&question.conn, &GroupMessage::Failed { request, reason });
        }
        let reason = if self.0.inbox.lock().is_stopped { STOPS } else { NO_GROUPS }.to_owned();
        answer(
            &question.conn,
            &match question.action {
                GroupAction::List => GroupMessage::Rows { request, more: false, rows: Vec::new() },
                _ => GroupMessage::Failed { request, reason },
            },
        );
    }

    /// A buffer has a subscriber.
    pub(in super::super) fn subscribed(&self, bid: Bid) {
        if self.is_worker(bid) {
            self.command(Command::Subscribed(bid));
        }
    }

    /// The subscriber of a buffer is gone.
    pub(in super::super) fn left(&self, bid: Bid) {
        if self.is_worker(bid) {
            self.command(Command::Left(bid));
        }
    }

    /// A connection is down.
    pub(in super::super) fn disconnected(&self, conn: u64) {
        if !self.0.knows_any() {
            return;
        }
        let has_joined = self.0.change(|inbox| inbox.joined.remove(&conn));
        if has_joined {
            self.command(Command::Down(conn));
        }
    }

    fn is_worker(&self, bid: Bid) -> bool {
        self.0.knows_any() && self.0.inbox.lock().bids.contains(&bid)
    }

    /// All groups.
    pub(in super::super) fn stats(&self) -> Vec<GroupStats> {
        self.0.rows().map(|row| row.stats).collect()
    }

    /// All groups, with what is known of their messages, by topic and name.
    pub(in super::super) fn rows(&self) -> Vec<GroupRow> {
        self.0.rows().collect()
    }

    /// The workers of a group. None: its thread does not answer within the time. None inside: no such group.
    pub(in super::super) fn members(&self, key: Key, within: Duration) -> Option<Option<Members>> {
        let (reply, answer) = mpsc::sync_channel(1);
        self.command(Command::Members(key, reply));
        answer.recv_timeout(within).ok()
    }

    /// Calls `act` with a group of named consumers. False: there is none.
    ///
    /// # Errors
    /// The group is of workers, or cannot be used now.
    pub(in super::super) fn with_consumers(
        &self,
        logs: &KeptLogs,
        topic: &TopicName,
        group: &GroupName,
        touched: &Touched,
        act: &mut dyn FnMut(&mut Consumers, GroupRoom),
    ) -> Result<bool, String> {
        let found = self.0.consumers.with(logs, topic, group, touched, act);
        if found.is_err() && self.0.consumers.has_to_open() {
            self.wake();
        }
        let found = found?;
        if !found && self.0.rows.lock().contains_key(&(topic.to_string(), group.to_string())) {
            return Err(of_workers(topic, group));
        }
        Ok(found)
    }

    /// The names of the groups of named consumers of a topic.
    pub(in super::super) fn names_of_consumers(&self, topic: &TopicName) -> Vec<GroupName> {
        self.0.consumers.names(topic)
    }

    /// Writes what consumers have said in the groups that were touched.
    ///
    /// # Errors
    /// The disk does not take it.
    pub(in super::super) fn write_consumers(&self, touched: &Touched) -> Result<(), String> {
        let (wakes, done) = self.0.consumers.write(touched);
        if wakes {
            self.wake();
        }
        done
    }

    fn wake(&self) {
        self.0.inbox.lock().has_news = true;
        self.0.changed.notify_all();
    }

    /// Makes or removes a group of named consumers. The answer comes when `wake` is called: whether there was something to do, or why it is not
    /// done.
    pub(in super::super) fn change_consumers(
        &self,
        change: GroupChange,
        wake: Wake,
    ) -> mpsc::Receiver<Result<bool, String>> {
        let (reply, answer) = mpsc::sync_channel(1);
        if self.is_running() {
            self.command(Command::Change(Box::new(change), reply, wake));
        } else {
            let reason = if self.0.inbox.lock().is_stopped { STOPS } else { NO_GROUPS };
            // There is room for it.
            let _ = reply.try_send(Err(reason.to_owned()));
            wake();
        }
        answer
    }

    /// The way for callbacks of the [`ROut`], which would otherwise keep itself alive.
    pub(in super::super) fn downgrade(&self) -> WeakGroups {
        WeakGroups(Arc::downgrade(&self.0))
    }
}

/// The way for callbacks.
pub(in super::super) struct WeakGroups(Weak<Shared>);

impl WeakGroups {
    /// The ring of a worker may have room. Returns whether the buffer is one of a worker.
    pub(in super::super) fn wake(&self, bid: Bid) -> bool {
        let Some(shared) = self.0.upgrade() else { return false };
        if !shared.knows_any() {
            return false;
        }
        let mut inbox = shared.inbox.lock();
        if !inbox.bids.contains(&bid) {
            return false;
        }
        inbox.roomy.insert(bid);
        drop(inbox);
        shared.changed.notify_all();
        true
    }
}

#[cfg(test)]
mod tests {
    use rocketbufs::{Config, Context};

    use super::*;

    #[test]
    fn a_thread_that_is_asked_for_while_it_stops_holds_nobody() {
        let ctx = Context::new(Config::default()).unwrap();
        let groups = Groups::new(&ROut::new(&ctx));
        let of_thread = groups.clone();
        // The last work of the thread waits for another one, which asks whether there are groups.
        let thread = threads::spawn("rbmq-groups", move || {
            while !of_thread.0.inbox.lock().is_stopped {
                std::thread::yield_now();
            }
            std::thread::spawn(move || of_thread.is_running()).join().unwrap();
        });
        *groups.0.thread.lock() = Some(thread.unwrap());
        let (stopped, is_stopped) = mpsc::sync_channel(1);
        std::thread::spawn(move || {
            groups.stop();
            stopped.send(()).unwrap();
        });
        is_stopped.recv_timeout(Duration::from_secs(60)).expect("it stops");
    }
}
