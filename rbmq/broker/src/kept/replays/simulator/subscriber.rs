//! A subscriber, as RBMQ's client is one of a kept topic.

use std::ops::Range;
use std::time::Duration;

use rbmq_wire::{Control, ReplayFrom};
use rocketbufs::worker::Reactor;
use rocketbufs::{
    Bid, BlockTimeout, Config, Conn, Context, Epoch, InEvent, InView, Policy, Position, RIn, Start,
    SubscribeOptions,
};
use rocketnet_sim::{SimNet, SimTransport};

use super::oracle::{Oracle, Rng, bytes};
use super::world::LIVE;

pub(super) struct Subscriber {
    name: String,
    context: Context,
    core: Reactor<SimTransport>,
    input: Option<RIn>,
    /// The broker was asked where to begin.
    asked: bool,
    reading: Option<Bid>,
    /// The next position. None: the oldest that is kept.
    pub(super) next: Option<Position>,
    epoch: Epoch,
    ring_bytes: u64,
    /// How often it reads, of 100 turns.
    pace: u64,
}

impl Subscriber {
    pub(super) fn new(net: &SimNet, number: usize, epoch: Epoch, rng: &mut Rng) -> Self {
        let name = format!("subscriber{number}");
        let mut next = Rng::new(rng.next());
        let entropy = Box::new(move || u128::from(next.next()) << 64 | u128::from(next.next()));
        let (context, mut cores) =
            Context::manual(Config::default(), 1, entropy, |_| net.host(&name)).expect("a context");
        let core = cores.pop().expect("one worker");
        let ring_bytes = 1 << (16 + rng.below(3));
        let pace = 5 + rng.below(95);
        Self {
            name,
            context,
            core,
            input: None,
            asked: false,
            reading: None,
            next: None,
            epoch,
            ring_bytes,
            pace,
        }
    }

    pub(super) fn turn(&mut self, now: u64) -> bool {
        self.core.turn(now)
    }

    /// When time alone causes work.
    pub(super) fn next_tick(&self) -> u64 {
        self.core.next_tick()
    }

    /// Reads from the ring of the topic.
    pub(super) fn is_live(&self) -> bool {
        self.reading == Some(LIVE)
    }

    /// Leaves the broker.
    pub(super) fn leave(&mut self) {
        if let Some(input) = self.input.take() {
            input.conn().close("away");
        }
        (self.asked, self.reading) = (false, None);
    }

    pub(super) fn act(&mut self, rng: &mut Rng, oracle: &mut Oracle, calm: bool) -> bool {
        let Some(input) = &self.input else {
            if calm || rng.percent(20) {
                let conn = Conn::connect_start(&self.context, "broker:1", b"").expect("an empty hello");
                self.input = Some(RIn::new(&conn));
            }
            return true;
        };
        if input.conn().down_reason().is_some() {
            self.leave();
            return true;
        }
        if !self.asked && input.conn().is_up() {
            self.ask();
        }
        let mut did = false;
        let turns = if calm || rng.percent(self.pace) { 4 } else { 0 };
        for _ in 0..turns {
            let event =
                self.input.as_ref().and_then(|input| input.recv(Some(Duration::ZERO)).expect("a call"));
            let Some(event) = event else { break };
            self.on_event(event, oracle);
            did = true;
        }
        did
    }

    /// Asks the broker where to begin.
    fn ask(&mut self) {
        let Some(input) = &self.input else { return };
        self.reading = None;
        let from = self.next.map_or(ReplayFrom::Oldest, ReplayFrom::Position);
        // A connection that is down is noticed later.
        self.asked = input.send_control(&Control::Replay { bid: LIVE, from }.encode()).is_ok();
    }

    fn on_event(&mut self, event: InEvent, oracle: &mut Oracle) {
        let expected = self.reading;
        match event {
            InEvent::Control { message } => self.on_control(&message, oracle),
            InEvent::Data(view) if Some(view.bid()) == expected => self.on_data(view, oracle),
            InEvent::Lost { bid, from, to } if Some(bid) == expected => self.on_lost(bid, from..to, oracle),
            InEvent::Closed { bid, end } if Some(bid) == expected => {
                oracle.check("only replays end", bid != LIVE && Some(end) == self.next, || {
                    format!("{}: buffer {bid} ended at {end}, and not at {:?}", self.name, self.next)
                });
                self.ask();
            }
            InEvent::Refused { bid, .. } if Some(bid) == expected => self.ask(),
            InEvent::Subscribed { bid, epoch, start } if Some(bid) == expected => {
                oracle.note(2, u64::from(bid), start);
                oracle.check("the log stays", epoch == self.epoch, || format!("{}: {epoch}", self.name));
            }
            InEvent::ConnDown { .. } | InEvent::Gone { .. } => self.leave(),
            // Of a buffer that was left.
            _ => {}
        }
    }

    fn on_control(&mut self, message: &[u8], oracle: &mut Oracle) {
        let Ok(Control::Replayed { bid: LIVE, replay, start }) = Control::decode(message) else {
            panic!("the broker answers with REPLAYED only")
        };
        oracle.note(3, replay.map_or(0, u64::from), start);
        oracle.check(
            "a replay begins where it was asked for",
            self.next.is_none_or(|next| next == start),
            || format!("{}: at {start}, and not at {:?}", self.name, self.next),
        );
        self.next = Some(start);
        let bid = replay.unwrap_or(LIVE);
        let options = SubscribeOptions::new()
            .size_bytes(self.ring_bytes)
            .start(Start::Position(self.epoch, start))
            .policy(Policy::Block)
            .block_timeout(BlockTimeout::Never);
        let Some(input) = &self.input else { return };
        self.reading = Some(bid);
        let subscribed = input.subscribe_with(bid, options);
        oracle.check("a buffer can be subscribed to", subscribed.is_ok(), || format!("{subscribed:?}"));
    }

    fn on_data(&mut self, view: InView, oracle: &mut Oracle) {
        let (at, found) = (view.position(), view.to_vec().expect("the ring waits for its reader"));
        oracle.check("nothing is missing or comes twice", Some(at) == self.next, || {
            format!("{}: data at {at}, and not at {:?}", self.name, self.next)
        });
        oracle.check("the bytes are right", found == bytes(at, found.len()), || {
            format!("{}: {} bytes at {at}", self.name, found.len())
        });
        oracle.note(4, at, view.end());
        self.next = Some(view.end());
        view.consume();
    }

    fn on_lost(&mut self, bid: Bid, lost: Range<Position>, oracle: &mut Oracle) {
        let Range { start: from, end: to } = lost;
        oracle.note(5, from, to);
        oracle.check("a loss begins where the data ends", Some(from) == self.next, || {
            format!("{}: {from} to {to} are lost, behind {:?}", self.name, self.next)
        });
        if bid == LIVE {
            // The ring was faster. The log goes on from the disk.
            self.input.as_ref().expect("an event came from it").unsubscribe(LIVE);
            return self.ask();
        }
        oracle.check_lost(&self.name, from, to);
        self.next = Some(to);
    }
}
