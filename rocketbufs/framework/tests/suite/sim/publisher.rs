//! The publisher's application: it claims, fills and delivers, out of order, short, and not at all.

use std::collections::VecDeque;

use rocketbufs::error::DeliverError;
use rocketbufs::{
    BufferOptions, Context, OutSegment, OutWriter, Position, ProgressLevel, ROut, SegmentError,
};

use super::oracle::{Env, Log, fill};
use super::plan::{BufferPlan, Plan};
use crate::rng::Rng;

/// Bytes of markers before a payload, and in all, in an overwritable buffer.
pub const MARK_HEAD: u64 = 16;
pub const MARKS: u64 = 32;

/// A buffer as its writer sees it.
pub struct Source {
    pub plan: BufferPlan,
    pub epoch: rocketbufs::Epoch,
    writer: Option<OutWriter>,
    open: VecDeque<OutSegment>,
    /// Where the next claim begins.
    next: Position,
    /// The horizon at which the buffer was full, and the bytes to ask for again once the horizon has moved.
    wanted: Option<(Position, u64)>,
    /// Contexts that have not come back, in order, and where their deliveries end.
    pub contexts: VecDeque<(u64, Position)>,
    next_context: u64,
    /// The furthest position whose confirmation was requested, by level.
    pub asked: [Position; 3],
    /// The furthest position confirmed at any time. A subscriber that joins at an old position moves the minimum back.
    pub reached: [Position; 3],
    asking: Rng,
    /// The largest delivery at present.
    now: u64,
    pub closed: Option<Position>,
}

pub struct Publisher {
    pub out: ROut,
    pub sources: Vec<Source>,
}

impl Publisher {
    pub fn new(env: &mut Env, plan: &Plan, ctx: &Context) -> Self {
        let out = ROut::new(ctx);
        let sources = plan.buffers.iter().map(|buffer| Source::new(env, &out, buffer));
        let sources = sources.collect();
        Self { out, sources }
    }

    /// Writes a little. True if anything was done.
    pub fn act(&mut self, env: &mut Env) -> bool {
        let at = env.rng.index(self.sources.len());
        let (out, count) = (&self.out, self.sources.len());
        if !env.calm {
            return self.sources[at].act(env, out);
        }
        (0..count).fold(false, |did, i| self.sources[(at + i) % count].act(env, out) | did)
    }

    pub fn destroy(&mut self, env: &mut Env) {
        for source in self.sources.iter_mut().filter(|source| source.closed.is_none()) {
            source.destroy(env, &self.out);
        }
    }
}

impl Source {
    fn new(env: &mut Env, out: &ROut, plan: &BufferPlan) -> Self {
        let options = BufferOptions::new()
            .size_bytes(plan.size)
            .retain_bytes(plan.retain)
            .max_delivery_bytes(Some(plan.max_delivery))
            .flow_control(plan.flow_control)
            .keep_until_delivered(plan.keep)
            .start(plan.start);
        out.create_buffer_with(plan.bid, options).expect("a buffer can be made");
        let info = out.buffer(plan.bid).and_then(|buffer| buffer.info()).expect("the buffer was just made");
        let log = Log {
            start: info.head,
            flow_control: plan.flow_control,
            ends: Default::default(),
            payloads: Default::default(),
            closed: None,
        };
        env.logs.insert(info.epoch, log);
        let writer = plan.appends.then(|| out.buffer(plan.bid).unwrap().writer().expect("the first writer"));
        Self {
            plan: plan.clone(),
            epoch: info.epoch,
            writer,
            open: VecDeque::new(),
            next: info.head,
            wanted: None,
            contexts: VecDeque::new(),
            next_context: u64::from(plan.bid) << 32,
            asked: [0; 3],
            reached: [0; 3],
            now: plan.max_delivery,
            asking: Rng::new(plan.start ^ plan.quota),
            closed: None,
        }
    }

    fn marks(&self) -> u64 {
        if self.plan.flow_control { 0 } else { MARKS }
    }

    fn written(&self) -> u64 {
        self.next - self.plan.start
    }

    pub fn done(&self) -> bool {
        self.closed.is_some() || (self.open.is_empty() && self.written() >= self.plan.quota)
    }

    /// The state of an unfinished writer, for a failure's text.
    pub fn stuck(&self, out: &ROut) -> String {
        let Self { open, next, wanted, .. } = self;
        let (bid, open) = (self.plan.bid, open.len());
        let info = out.buffer(bid).and_then(|buffer| buffer.info());
        let subs = out.buffer(bid).map_or(Vec::new(), |buffer| buffer.subscribers());
        format!("the writer of buffer {bid} is at {next}, {open} open, wants {wanted:?}: {info:?} {subs:?}")
    }

    fn act(&mut self, env: &mut Env, out: &ROut) -> bool {
        if self.done() {
            let subscribed = || {
                env.calm
                    || !out.buffer(self.plan.bid).map_or(Vec::new(), |buffer| buffer.subscribers()).is_empty()
            };
            let ends = self.plan.ends_early && self.closed.is_none() && subscribed();
            if ends {
                env.event("buffers destroyed while they are read");
                self.destroy(env, out);
                env.ended_early[self.plan.bid as usize - 1] = true;
            }
            return ends;
        }
        let more = self.written() < self.plan.quota;
        let blocked = self.is_blocked(out);
        if self.writer.is_some() {
            return !blocked && self.append(env, out);
        }
        let claims = more && !blocked && self.open.len() < 6 && env.rng.percent(60);
        if claims {
            self.claim(env, out)
        } else if !self.open.is_empty() {
            self.deliver(env, out)
        } else {
            // In a calm network an application does all that it can.
            more && !blocked && env.calm && self.claim(env, out)
        }
    }

    /// A writer that was refused sleeps until the horizon moves: nothing else wakes it.
    fn is_blocked(&self, out: &ROut) -> bool {
        self.wanted.is_some_and(|(refused, _)| self.horizon(out) == refused)
    }

    fn horizon(&self, out: &ROut) -> Position {
        out.buffer(self.plan.bid).and_then(|buffer| buffer.info()).map_or(0, |info| info.horizon)
    }

    /// Lets the ring grow now and then. The largest delivery follows soon.
    fn grow(&mut self, env: &mut Env) {
        let most = self.plan.max_delivery * self.plan.grows;
        let Some(writer) = self.writer.as_mut().filter(|_| self.now < most && env.rng.percent(3)) else {
            return;
        };
        self.now = env.rng.between(self.now + 1, most);
        let grown = writer.grow(self.now);
        env.check("a ring grows", grown.is_ok(), || format!("{grown:?} to {}", self.now));
        env.event("rings that grew");
    }

    fn size(&mut self, env: &mut Env) -> u64 {
        let most = self.now - self.marks();
        match self.wanted.take() {
            Some((_, size)) => size,
            None if env.rng.percent(10) => env.rng.between(1, most),
            None => env.rng.between(1, self.plan.usual.min(most)),
        }
    }

    fn append(&mut self, env: &mut Env, out: &ROut) -> bool {
        if self.plan.grows > 1 {
            self.grow(env);
        }
        let size = self.size(env);
        let (at, marks) = (self.next, self.marks());
        let Some(writer) = &mut self.writer else { return false };
        let mut bytes = vec![0; size as usize];
        let begin = if marks > 0 { at + MARK_HEAD } else { at };
        fill(self.epoch, begin, &mut bytes);
        let (first, second) = bytes.split_at(env.rng.index(bytes.len() + 1));
        match writer.append(&[first, second]) {
            Ok(end) => {
                env.check("a delivery ends where the writer expects", end == at + size + marks, || {
                    format!("{size} bytes appended at {at} end at {end}")
                });
                self.next = end;
                self.delivered(env, begin, size, end);
                self.ask(out, end);
                true
            }
            Err(SegmentError::Full) => {
                self.wanted = Some((self.horizon(out), size));
                env.event("writer found the buffer full");
                true
            }
            Err(error) => panic!("append: {error}"),
        }
    }

    fn claim(&mut self, env: &mut Env, out: &ROut) -> bool {
        let size = self.size(env);
        match out.get_output_segment(self.plan.bid, size, false) {
            Ok(mut segment) => {
                let begin = segment.position();
                let marks = self.marks();
                let right = begin == self.next + if marks > 0 { MARK_HEAD } else { 0 };
                let next = self.next;
                env.check("claims follow each other", right, || format!("{begin} after {next}"));
                fill(self.epoch, begin, segment.bytes_mut());
                env.note("claim", [u64::from(self.plan.bid), begin, size, 0]);
                self.next += size + marks;
                self.open.push_back(segment);
                true
            }
            Err(SegmentError::Full) => {
                self.wanted = Some((self.horizon(out), size));
                env.event("writer found the buffer full");
                true
            }
            // The writer's own open claims are in the way.
            Err(SegmentError::TooManyOpen) if !self.open.is_empty() => self.deliver(env, out),
            Err(error) => panic!("get_output_segment: {error}"),
        }
    }

    /// Delivers an open segment, not always the oldest. The newest may be delivered short or given back.
    fn deliver(&mut self, env: &mut Env, out: &ROut) -> bool {
        let at = env.rng.index(self.open.len());
        let Some(segment) = self.open.remove(at) else { return false };
        // A delivery may make room, so the writer asks again.
        self.wanted = None;
        let (begin, len) = (segment.position(), segment.len() as u64);
        let first = begin - if self.plan.flow_control { 0 } else { MARK_HEAD };
        // A newer one may have been delivered already.
        let newest = first + len + self.marks() == self.next;
        if newest && env.rng.percent(5) {
            env.event("segments given back");
            env.note("give back", [u64::from(self.plan.bid), begin, len, 0]);
            self.next = first;
            if env.rng.percent(50) {
                drop(segment);
            } else {
                let back = out.deliver(segment, 0, None);
                env.check("a segment can be given back", back.is_ok(), || format!("{back:?}"));
            }
            return true;
        }
        let size = if newest && env.rng.percent(25) { env.rng.between(1, len) } else { len };
        if !newest && len > 1 && env.rng.percent(5) {
            let refused = out.deliver(segment, len - 1, None);
            let Err(DeliverError::ShortDeliver(segment)) = refused else {
                panic!("an older segment was delivered short: {refused:?}");
            };
            self.open.insert(at, segment);
            return true;
        }
        let context = env.rng.percent(50).then_some(self.next_context);
        let end = first + size + self.marks();
        if newest {
            self.next = end;
        }
        self.delivered(env, begin, size, end);
        match out.deliver(segment, size, context) {
            Ok(told) => env.check("a delivery ends where the writer expects", told == end, || {
                format!("{size} bytes at {begin} end at {told}")
            }),
            Err(error) => panic!("deliver: {error}"),
        }
        if let Some(context) = context {
            self.next_context += 1;
            self.contexts.push_back((context, end));
        }
        self.ask(out, end);
        true
    }

    /// Records the positions that are confirmed now.
    pub fn see(&mut self, out: &ROut) {
        let Some(confirmed) = out.buffer(self.plan.bid).map(|buffer| buffer.confirmed()) else { return };
        for (reached, level) in self.reached.iter_mut().zip(ProgressLevel::ALL) {
            *reached = confirmed.at(level).max(*reached);
        }
    }

    /// Asks for the confirmation of some deliveries.
    fn ask(&mut self, out: &ROut, end: Position) {
        if self.asking.percent(self.plan.asks) {
            self.see(out);
            let level = self.asking.one_of(&ProgressLevel::ALL);
            out.buffer(self.plan.bid).into_iter().for_each(|buffer| buffer.request_confirm(level, end));
            let asked = &mut self.asked[level as usize];
            *asked = end.max(*asked);
        }
    }

    fn delivered(&mut self, env: &mut Env, begin: Position, size: u64, end: Position) {
        env.note("deliver", [u64::from(self.plan.bid), begin, size, end]);
        env.stats.count("deliveries written", 1);
        env.stats.count("bytes written", size);
        let log = env.logs.get_mut(&self.epoch).expect("every source has a log");
        log.ends.insert(end);
        if !self.plan.flow_control {
            log.payloads.insert(begin, size);
        }
    }

    fn destroy(&mut self, env: &mut Env, out: &ROut) {
        self.writer = None;
        let end = out.destroy_buffer(self.plan.bid).expect("the buffer exists");
        let log = env.logs.get_mut(&self.epoch).expect("every source has a log");
        log.closed = Some(end);
        let last = log.end();
        self.closed = Some(end);
        env.check("a log is closed at its end", end == last, || format!("{end} instead of {last}"));
    }
}
