//! A broker's application: subscribes to all buffers of its parent and splices them for its children.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rocketbufs::error::RefusedError;
use rocketbufs::{Conn, Context, InEvent, RIn, ROut, Start};

use super::oracle::Env;
use super::plan::{NodePlan, SubPlan};
use super::subscriber::options;

pub struct Broker {
    node: usize,
    pub rin: RIn,
    pub out: ROut,
    events: Arc<Mutex<VecDeque<InEvent>>>,
    pub subs: Vec<Spliced>,
}

pub struct Spliced {
    pub plan: SubPlan,
    pub spliced: bool,
    /// The subscription has ended.
    pub over: bool,
}

impl Broker {
    /// `again`: the process replaces a killed one, and begins with the oldest data.
    pub fn new(env: &mut Env, node: usize, plan: &NodePlan, ctx: &Context, conn: &Conn, again: bool) -> Self {
        let (rin, out) = (RIn::new(conn), ROut::new(ctx));
        let events = Arc::new(Mutex::new(VecDeque::new()));
        let told = events.clone();
        rin.set_event_cb(move |event| told.lock().expect("no panics").push_back(event));
        let mut subs = Vec::new();
        for sub in &plan.subs {
            let start = if again { Start::Oldest } else { sub.start };
            let (options, spliced) = (options(sub, start), !sub.splice_late);
            if spliced {
                let done = out.splice_with(&rin, sub.up_bid, sub.out_bid, options);
                env.check("a buffer can be subscribed to and spliced", done.is_ok(), || format!("{done:?}"));
            } else {
                let asked = rin.subscribe_with(sub.up_bid, options);
                env.check("a subscription can be asked for", asked.is_ok(), || format!("{asked:?}"));
            }
            subs.push(Spliced { plan: sub.clone(), spliced, over: false });
        }
        let broker = Self { node, rin, out, events, subs };
        broker
            .subs
            .iter()
            .enumerate()
            .filter(|(_, sub)| sub.spliced)
            .for_each(|(at, _)| broker.splice_again(env, at));
        broker
    }

    fn splice(&mut self, env: &mut Env, at: usize) {
        let sub = &mut self.subs[at];
        let (up, out) = (sub.plan.up_bid, sub.plan.out_bid);
        let spliced = match up == out {
            true => self.out.splice(&self.rin, up),
            false => self.out.splice_as(&self.rin, up, out),
        };
        sub.spliced = true;
        env.check("a subscription can be spliced", spliced.is_ok(), || format!("{spliced:?}"));
        self.splice_again(env, at);
    }

    fn splice_again(&self, env: &mut Env, at: usize) {
        let SubPlan { up_bid, out_bid, .. } = self.subs[at].plan;
        let again = self.out.splice_as(&self.rin, up_bid, out_bid);
        env.check("an id is spliced once", again.is_err(), || "spliced twice".into());
    }

    /// Whether children can subscribe to all buffers.
    pub fn ready(&self) -> bool {
        self.subs.iter().all(|sub| sub.spliced)
    }

    /// True if anything was done.
    pub fn act(&mut self, env: &mut Env) -> bool {
        let events = std::mem::take(&mut *self.events.lock().expect("no panics"));
        let mut did = !events.is_empty();
        for event in events {
            self.on_event(env, event);
        }
        // Data that came before the splice waits here.
        while let Ok(Some(event)) = self.rin.recv(Some(Duration::ZERO)) {
            if !matches!(event, InEvent::Data(_)) {
                self.on_event(env, event);
            }
            did = true;
        }
        for at in 0..self.subs.len() {
            // The parent may never answer.
            if env.calm && !self.subs[at].spliced {
                self.splice(env, at);
                did = true;
            }
        }
        did
    }

    fn on_event(&mut self, env: &mut Env, event: InEvent) {
        let node = self.node;
        let bids: Vec<u32> = self.subs.iter().map(|sub| sub.plan.up_bid).collect();
        let at =
            |bid: u32| bids.iter().position(|known| *known == bid).expect("the broker subscribed to this id");
        match event {
            InEvent::Subscribed { bid, epoch, start } => {
                let at = at(bid);
                env.event("SUBSCRIBED received");
                env.note("broker subscribed", [node as u64, u64::from(bid), start, epoch.0 as u64]);
                if !self.subs[at].spliced {
                    self.splice(env, at);
                }
            }
            InEvent::Lost { bid, from, to } => {
                let at = at(bid);
                env.event("LOST received");
                env.note("broker lost", [node as u64, u64::from(bid), from, to]);
                let excuse = env.excuses[node][self.subs[at].plan.buffer];
                env.check("nothing is lost under block and a hold", excuse.lost, || {
                    format!("broker {node}: buffer {bid}: lost {from} to {to}")
                });
            }
            InEvent::Closed { bid, end } => {
                self.subs[at(bid)].over = true;
                env.event("CLOSED received");
                env.note("broker closed", [node as u64, u64::from(bid), end, 0]);
            }
            InEvent::Gone { bid, end } => {
                let at = at(bid);
                self.subs[at].over = true;
                env.event("GONE received");
                env.note("broker gone", [node as u64, u64::from(bid), end, 0]);
                let excuse = env.excuses[node][self.subs[at].plan.buffer];
                env.check("GONE has a reason", excuse.gone, || {
                    format!("broker {node}: buffer {bid}: GONE at {end}")
                });
            }
            InEvent::Restarted { bid, .. } => {
                self.subs[at(bid)].over = true;
                env.event("RESTARTED received");
            }
            InEvent::Refused { bid, error } => self.on_refused(env, bid, at(bid), &error),
            InEvent::ConnDown { .. } => env.event("CONN DOWN received"),
            other => panic!("broker {node}: {other:?} is no event"),
        }
    }

    fn on_refused(&mut self, env: &mut Env, bid: u32, at: usize, error: &RefusedError) {
        let node = self.node;
        env.event("REFUSED received");
        env.note(&format!("broker refused {error}"), [node as u64, u64::from(bid), 0, 0]);
        // Nothing is left to splice.
        (self.subs[at].over, self.subs[at].spliced) = (true, true);
        let excused = env.may_be_missing(node, self.subs[at].plan.buffer);
        env.check("refused for a reason", excused, || format!("broker {node}: buffer {bid}: {error}"));
    }
}
