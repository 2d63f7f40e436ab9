//! Invariants that hold at every moment and are visible from outside: rings, positions, confirmations, memory.

use rocketbufs::Coverage;
use rocketbufs::inspect::{BufferInfo, SubscriberInfo};
use rocketbufs::{ConfirmedPositions, Policy, ROut};

use rocketnet_sim::Mode;

use super::plan::{BufferPlan, Kind, SubPlan};
use super::subscriber::{Sub, Subscriber};
use super::world::{App, Joined, Process, World};

/// The bytes of the page in which late data of an ended overwritable subscription lands.
const LAND: u64 = 4096;

impl World<'_> {
    /// Checks a node after its worker's turn.
    pub fn inspect(&mut self, at: usize) {
        self.joins(at);
        if at == 0 {
            self.confirmations();
            self.ends_of_chains();
            self.counts();
        }
        let often = self.env.rng.percent(20);
        if !often {
            return;
        }
        let Some(process) = &self.nodes[at].process else { return };
        let (out, bids): (ROut, Vec<(u32, usize)>) = match &process.app {
            App::Publisher(p) => (p.out.clone(), p.sources.iter().map(|s| s.plan.bid).zip(0..).collect()),
            App::Broker(b) => {
                (b.out.clone(), b.subs.iter().map(|s| (s.plan.out_bid, s.plan.buffer)).collect())
            }
            App::Waiting | App::Subscriber(_) => return self.memory(at),
        };
        for (bid, buffer) in bids {
            let Some(info) = out.buffer(bid).and_then(|buffer| buffer.info()) else { continue };
            let flow_control = self.plan.buffers[buffer].flow_control;
            self.ring(at, bid, &info, flow_control);
            for sub in out.buffer(bid).map_or(Vec::new(), |buffer| buffer.subscribers()) {
                self.subscription(at, bid, buffer, &info, &sub);
            }
        }
        self.memory(at);
    }

    fn ring(&mut self, node: usize, bid: u32, info: &BufferInfo, flow_control: bool) {
        let BufferInfo { head, boundary, tail, horizon, capacity_bytes, .. } = *info;
        // Open claims of a writer that does not wait move the tail past the head.
        let ordered = boundary <= head && (!flow_control || tail <= head) && head <= horizon;
        self.env.check("a ring is never overrun", ordered && horizon - tail <= capacity_bytes, || {
            format!("node {node}: buffer {bid}: {info:?}")
        });
        let known = self.env.logs[&info.epoch].is_boundary(boundary);
        self.env.check("boundaries are where deliveries end", known, || {
            format!("node {node}: buffer {bid}: boundary {boundary}")
        });
    }

    fn subscription(
        &mut self,
        node: usize,
        bid: u32,
        buffer: usize,
        info: &BufferInfo,
        sub: &SubscriberInfo,
    ) {
        let told = || format!("node {node}: buffer {bid}: {sub:?} in {info:?}");
        // A subscriber may be ahead of a restarted broker.
        let ahead = self.nodes[node].lives > 0;
        let ordered = sub.landed <= sub.sent && (ahead || sub.consumed <= sub.landed);
        self.env.check("consumed, landed, sent, head", ordered && (ahead || sub.sent <= info.head), told);
        // After a hole the horizon may lie further ahead of a hold than the capacity.
        let holes = node > 0 && self.env.excuses[node][buffer].lost;
        if let Some(at) = sub.retains_from
            && self.plan.buffers[buffer].flow_control
            && !holes
        {
            let there = at >= info.tail && (at >= info.horizon || info.horizon - at <= info.capacity_bytes);
            self.env.check("nothing held is overwritten", there, told);
        }
        let Some(process) = &self.nodes[node].process else { return };
        let Some(child) = process.child_of(sub.conn) else { return };
        if !matches!(sub.policy, Policy::Block) {
            return;
        }
        let Some(there) = self.landed_at(child, buffer, info) else { return };
        self.env.check("landed is in the receiver's memory", sub.landed <= there, || {
            format!("node {node}: buffer {bid}: {sub:?}; node {child} has only what is below {there}")
        });
    }

    /// The upper bound of the bytes that a child has in memory. None if the child has another subscription by now, or if bytes
    /// land before its worker sees them.
    fn landed_at(&self, child: usize, buffer: usize, info: &BufferInfo) -> Option<u64> {
        if self.nodes[child].lives > 0 || self.plan.net.mode == Mode::OneSided {
            return None;
        }
        match &self.nodes[child].process.as_ref()?.app {
            App::Broker(broker) => {
                let sub = broker.subs.iter().find(|sub| sub.plan.buffer == buffer)?;
                let below = broker.out.buffer(sub.plan.out_bid).and_then(|buffer| buffer.info())?;
                (below.epoch == info.epoch).then_some(below.head)
            }
            App::Subscriber(subscriber) => {
                let sub = subscriber.subs.iter().find(|sub| sub.plan.buffer == buffer)?;
                let (epoch, boundary) = subscriber.rin.subscription(sub.plan.up_bid)?.position()?;
                // Landed bytes of an incomplete delivery, and of a transfer that ends it, are not visible.
                let most = boundary + 3 * info.max_delivery_bytes;
                (sub.times == 1 && epoch == info.epoch).then_some(most)
            }
            App::Waiting | App::Publisher(_) => None,
        }
    }

    /// Contexts come back once, in order, and only after their deliveries have landed everywhere.
    fn confirmations(&mut self) {
        let Some(process) = &self.nodes[0].process else { return };
        let confirmed = std::mem::take(&mut *process.confirmed.lock().expect("no panics"));
        for (bid, context) in confirmed {
            let Some(Process { app: App::Publisher(publisher), .. }) = &mut self.nodes[0].process else {
                return;
            };
            let source = publisher.sources.iter_mut().find(|source| source.plan.bid == bid);
            let Some(source) = source else { panic!("a context of an unknown buffer {bid}") };
            let expected = source.contexts.pop_front();
            let out = publisher.out.clone();
            self.env.check(
                "contexts come back once and in order",
                expected.is_some_and(|(expected, _)| expected == context),
                || format!("buffer {bid}: context {context:#x}, expected {expected:x?}"),
            );
            self.env.note("confirmed", [u64::from(bid), context, 0, 0]);
            let Some((_, end)) = expected else { continue };
            let Some(info) = out.buffer(bid).and_then(|buffer| buffer.info()) else { continue };
            let buffer = (bid - 1) as usize;
            for sub in out.buffer(bid).map_or(Vec::new(), |buffer| buffer.subscribers()) {
                let Some(process) = &self.nodes[0].process else { return };
                let Some(child) = process.child_of(sub.conn) else { continue };
                // A subscriber that joined in this turn does not count yet.
                if sub.policy != Policy::Block || !self.present.contains(&(bid, sub.conn)) {
                    continue;
                }
                let Some(there) = self.landed_at(child, buffer, &info) else { continue };
                self.env.check("confirmed only when landed", there >= end, || {
                    format!("buffer {bid}: {end} is confirmed; node {child} has at most {there}")
                });
            }
        }
        let Some(Process { app: App::Publisher(publisher), .. }) = &self.nodes[0].process else { return };
        let bids = publisher.sources.iter().map(|source| source.plan.bid);
        let subs = bids.flat_map(|bid| {
            publisher
                .out
                .buffer(bid)
                .map_or(Vec::new(), |buffer| buffer.subscribers())
                .into_iter()
                .map(move |s| (bid, s.conn))
        });
        self.present = subs.collect();
    }

    /// Records a node's head when a child subscribes: later data is confirmed only with that child.
    fn joins(&mut self, at: usize) {
        let Some(process) = &self.nodes[at].process else { return };
        let (out, bids): (&ROut, Vec<(u32, usize)>) = match &process.app {
            App::Publisher(p) => (&p.out, p.sources.iter().map(|s| s.plan.bid).zip(0..).collect()),
            App::Broker(b) => (&b.out, b.subs.iter().map(|s| (s.plan.out_bid, s.plan.buffer)).collect()),
            App::Waiting | App::Subscriber(_) => return,
        };
        for (bid, buffer) in bids {
            for sub in out.buffer(bid).map_or(Vec::new(), |buffer| buffer.subscribers()) {
                let Some(child) = process.child_of(sub.conn) else { continue };
                let key = (child, buffer);
                if self.joined.get(&key).is_none_or(|joined| joined.conn != sub.conn) {
                    let head = out.buffer(bid).and_then(|buffer| buffer.info()).map_or(0, |info| info.head);
                    self.joined.insert(key, Joined { conn: sub.conn, head, start: sub.start });
                }
            }
        }
    }

    /// Confirmations at the publisher are true at the ends of all chains, for every subscriber that was never disturbed.
    fn ends_of_chains(&mut self) {
        let Some(Process { app: App::Publisher(publisher), .. }) = &mut self.nodes[0].process else { return };
        publisher.sources.iter_mut().for_each(|source| source.see(&publisher.out));
        let Some(Process { app: App::Publisher(publisher), .. }) = &self.nodes[0].process else { return };
        let mut found = Vec::new();
        for (buffer, source) in publisher.sources.iter().enumerate() {
            let Some(handle) = publisher.out.buffer(source.plan.bid) else { continue };
            let (confirmed, Some(info)) = (handle.confirmed(), handle.info()) else { continue };
            let nodes = self.plan.nodes.iter();
            let ends = nodes.filter(|node| node.kind == Kind::Subscriber && node.has(buffer)).count();
            let Coverage { covered_from, parts, .. } = confirmed.coverage;
            let all = Coverage { receivers: ends as u32, covered_from, parts, ..Coverage::default() };
            // A broker counts as a receiver itself until it splices: as many may be counted without all ends among them.
            let late = |sub: &SubPlan| sub.buffer == buffer && sub.splice_late;
            let only_ends = !self.plan.nodes.iter().flat_map(|node| &node.subs).any(late);
            for at in 1..self.nodes.len() {
                let Some(least) = self.always_there(at, buffer) else { continue };
                let least = match only_ends && confirmed.coverage == all {
                    // The subscriber counts, so confirmations from before its first position no longer apply.
                    true => self.joined.get(&(at, buffer)).map_or(least, |joined| joined.start),
                    false => least,
                };
                let Some(landed) = self.landed_at(at, buffer, &info) else { continue };
                let Some(Process { app: App::Subscriber(end), .. }) = &self.nodes[at].process else {
                    continue;
                };
                let cursor = end.subs.iter().find(|sub| sub.plan.buffer == buffer).and_then(|sub| sub.cursor);
                let read = cursor.map_or(0, |(_, read)| read);
                found.push((source.plan.bid, at, confirmed, landed.max(least), read.max(least)));
            }
        }
        for (bid, at, confirmed, landed, read) in found {
            let told = || format!("buffer {bid}: {confirmed:?}; node {at} has {landed} at most, read {read}");
            self.env.check("delivered is at the ends of all chains", confirmed.delivered <= landed, told);
            self.env.check("consumed was read at the ends of all chains", confirmed.consumed <= read, told);
        }
    }

    /// The reported coverage counts no more receivers from a position on than there are. A receiver that lost bytes is excluded
    /// before any later position is confirmed.
    fn counts(&mut self) {
        let Some(Process { app: App::Publisher(publisher), .. }) = &self.nodes[0].process else { return };
        let mut found = Vec::new();
        for (buffer, source) in publisher.sources.iter().enumerate() {
            let Some(handle) = publisher.out.buffer(source.plan.bid) else { continue };
            let confirmed = handle.confirmed();
            if !self.plan.buffers[buffer].flow_control {
                // Bytes that are overwritten in a receiver's own memory had been delivered.
                continue;
            }
            let nodes = 1..self.nodes.len();
            let ends = nodes.filter(|at| {
                let plan = &self.plan.nodes[*at];
                plan.kind != Kind::Publisher && plan.has(buffer)
            });
            let Some(ends) = ends.map(|at| self.first_since(at, buffer)).collect::<Option<Vec<_>>>() else {
                continue;
            };
            found.push((source.plan.bid, confirmed, ends));
        }
        for (bid, confirmed, ends) in found {
            let ConfirmedPositions { coverage, delivered, .. } = confirmed;
            let all = coverage.parts.iter().map(|part| part.covered_from).chain([coverage.covered_from]);
            let has = |since: u64, end: u64| end <= since || end > delivered;
            let most = |since: u64| ends.iter().filter(|end| has(since, **end)).count();
            let wrong = all.into_iter().find(|since| coverage.receivers_at(*since) as usize > most(*since));
            self.env.check("coverage counts only receivers with the bytes", wrong.is_none(), || {
                format!("buffer {bid}: {confirmed:?}; they have everything since {ends:?}")
            });
        }
    }

    /// The position from which on a subscriber has everything, if it is its node's first subscription of the buffer.
    fn first_since(&self, at: usize, buffer: usize) -> Option<u64> {
        let node = &self.nodes[at];
        let Process { app, .. } = node.process.as_ref().filter(|_| node.lives == 0)?;
        let mut above = self.plan.nodes[at].parent;
        let mut disturbed = self.env.disturbed[at];
        while above != 0 {
            let plan = &self.plan.nodes[above];
            disturbed |= self.env.disturbed[above] || self.nodes[above].lives > 0;
            // With a broker that drops, bytes in flight to it count as delivered to its receivers too.
            plan.subs.iter().find(|sub| sub.buffer == buffer && sub.policy == Policy::Block)?;
            above = plan.parent;
        }
        if disturbed {
            // A lost connection counts beside its successor until the loss is noticed.
            return None;
        }
        let end = match app {
            App::Subscriber(end) => end,
            // A broker is a receiver itself until it splices.
            App::Broker(_) => return Some(0),
            App::Waiting | App::Publisher(_) => return Some(u64::MAX),
        };
        let sub = end.subs.iter().find(|sub| sub.plan.buffer == buffer)?;
        match sub.times {
            0 => Some(u64::MAX),
            // A subscription may count before its application gets SUBSCRIBED.
            1 => Some(sub.since.unwrap_or(0)),
            _ => None,
        }
    }

    /// The position up to which bytes may be confirmed without a subscriber, because they were written before it joined. None
    /// if a fault touched the subscriber or a node above it.
    fn always_there(&self, end: usize, buffer: usize) -> Option<u64> {
        let (mut at, mut least) = (end, 0);
        while at != 0 {
            let plan = &self.plan.nodes[at];
            let sub = plan.subs.iter().find(|sub| sub.buffer == buffer)?;
            let stays = sub.policy == Policy::Block && sub.block_timeout.is_zero();
            if !stays || self.env.disturbed[at] || self.nodes[at].lives > 0 {
                return None;
            }
            least = least.max(self.joined.get(&(at, buffer))?.head);
            at = plan.parent;
        }
        Some(least)
    }

    /// Memory stays within the configuration at every moment.
    fn memory(&mut self, at: usize) {
        let Some(process) = &self.nodes[at].process else { return };
        let ring = |size: u64| size.next_power_of_two().max(4096);
        // What a ring had before it grew stays until it is dropped.
        let grown = |buffer: &BufferPlan, size: u64| {
            if buffer.grows > 1 { 4 * buffer.grown_size().max(ring(size)) } else { 0 }
        };
        let of = |sub: &SubPlan| grown(&self.plan.buffers[sub.buffer], sub.size);
        let most: u64 = match &process.app {
            // Commands from one worker to another may still hold rings that the application has dropped.
            App::Waiting if self.env.closing => return,
            App::Waiting => 0,
            App::Publisher(publisher) => {
                publisher.sources.iter().map(|s| ring(s.plan.size) + grown(&s.plan, s.plan.size)).sum()
            }
            App::Broker(broker) => broker.subs.iter().map(|s| ring(s.plan.size) + of(&s.plan) + LAND).sum(),
            // The ring of an ended subscription is released when the end is acknowledged. The next one may exist before that.
            App::Subscriber(subscriber) => {
                subscriber.subs.iter().map(|s| (ring(s.plan.size) + of(&s.plan) + LAND) * s.times).sum()
            }
        };
        let most = match &process.app {
            App::Subscriber(Subscriber { budget: Some(budget), subs, .. }) => {
                let own = |s: &&Sub| !self.plan.buffers[s.plan.buffer].flow_control;
                let own = subs.iter().filter(own).map(|s| ring(s.plan.size) * s.times);
                most.min(
                    budget.bytes()
                        + own.sum::<u64>()
                        + subs.iter().map(|s| of(&s.plan) * s.times).sum::<u64>()
                        + subs.iter().map(|s| LAND * s.times).sum::<u64>(),
                )
            }
            _ => most,
        };
        let used = process.ctx.memory_in_use();
        self.env.check("memory is within its configured limit", used <= most, || {
            format!("node {at}: {used} bytes, at most {most}")
        });
    }
}
