//! The queue between the workers that receive chunks and the thread that writes them.

use std::collections::VecDeque;
use std::time::Duration;

use locks::{Condvar, Mutex};
use rblive::{ChunkRef, RsId};

/// The most chunks that wait. They are references: the data stays in the ring, where it may be overwritten.
const MAX_CHUNKS: usize = 65_536;

/// An item of the queue.
#[derive(Debug)]
pub enum Job {
    /// A stream of this name begins.
    Began(RsId, String),
    Chunk(ChunkRef),
    /// The source of the stream has ended, or is lost.
    Ended(RsId),
}

#[derive(Debug, Default)]
struct State {
    jobs: VecDeque<Job>,
    chunks: usize,
    stopped: bool,
}

/// The queue. Adding a job never waits: chunks beyond the limit are refused. The number of other jobs is bounded by that of streams.
#[derive(Debug, Default)]
pub struct Queue {
    state: Mutex<State>,
    changed: Condvar,
}

impl Queue {
    /// Adds a job. False: there are too many chunks. After [`stop`](Self::stop) a job is dropped.
    pub fn put(&self, job: Job) -> bool {
        let mut state = self.state.lock();
        if state.stopped {
            return true;
        }
        if matches!(job, Job::Chunk(_)) {
            if state.chunks == MAX_CHUNKS {
                return false;
            }
            state.chunks += 1;
        }
        state.jobs.push_back(job);
        if state.jobs.len() == 1 {
            self.changed.notify_one();
        }
        true
    }

    /// Removes and returns all jobs, after a wait of at most this time for a first one. `None`: there are no jobs, and none will come.
    pub fn take(&self, time: Duration) -> Option<VecDeque<Job>> {
        let idle = |state: &mut State| state.jobs.is_empty() && !state.stopped;
        let mut state = self.state.lock();
        self.changed.wait_while_for(&mut state, idle, time);
        if state.stopped && state.jobs.is_empty() {
            return None;
        }
        state.chunks = 0;
        Some(std::mem::take(&mut state.jobs))
    }

    /// The chunks that wait.
    pub fn waiting(&self) -> usize {
        self.state.lock().chunks
    }

    /// Ends the queue. The thread that takes jobs gets those that are in it, and then ends.
    pub fn stop(&self) {
        self.state.lock().stopped = true;
        self.changed.notify_one();
    }
}
