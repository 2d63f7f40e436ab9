//! A broker: the log, the ring and the replays of its topic, wired as the engine does it.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use locks::Mutex;
use rbmq_wire::Control;
use rocketbufs::worker::Reactor;
use rocketbufs::{Bid, BufferOptions, Config, Conn, Context, Epoch, Listener, OutEvent, OutWriter, ROut};
use rocketbufs::{Position, SegmentError};
use rocketnet_sim::{SimNet, SimTransport};
use seglog::{AppendError, Log, Options};
use seglog_sim::SimStorage;

use super::super::super::super::admission::Admission;
use super::super::super::replay::{Replay, ReplayRequest};
use super::super::Replays;
use super::oracle::{Oracle, Rng, bytes};
use super::world::{LIVE, Plan};

/// The folder of the log.
pub(super) const DIR: &str = "log";

enum Told {
    Control(Conn, Vec<u8>),
    Event(OutEvent),
}

pub(super) struct Broker {
    core: Reactor<SimTransport>,
    out: ROut,
    replays: Replays,
    pub(super) log: Log,
    live: OutWriter,
    /// A delivery that is in the log and not in the ring yet.
    pending: Option<Vec<u8>>,
    told: Arc<Mutex<VecDeque<Told>>>,
    next_bid: Bid,
    _listener: Listener,
}

impl Broker {
    /// Starts the broker on what its predecessor left on the disk. `hole`: the log goes on at this position or later. None if the
    /// disk does not allow it.
    pub(super) fn start(
        net: &SimNet,
        disk: &SimStorage,
        plan: &Plan,
        options: Options,
        hole: Option<Position>,
        random: &mut Rng,
    ) -> Option<Self> {
        let mut log = Log::open_on(Arc::new(disk.clone()), DIR, options).ok()?;
        if let Some(to) = hole.filter(|to| *to > log.end()) {
            log.append_hole(to).ok()?;
        }
        let mut next = Rng::new(random.next());
        let entropy = Box::new(move || u128::from(next.next()) << 64 | u128::from(next.next()));
        let (context, mut cores) =
            Context::manual(Config::default(), 1, entropy, |_| net.host("broker")).expect("a context");
        let out = ROut::new(&context);
        let replays = Replays::new(&out);
        let told = Arc::new(Mutex::new(VecDeque::new()));
        let (controls, events, waking) = (told.clone(), told.clone(), replays.downgrade());
        out.set_control_msg_cb(move |conn, message| {
            controls.lock().push_back(Told::Control(conn.clone(), message.to_vec()));
        });
        out.set_event_cb(move |event| {
            if !matches!(event, OutEvent::Progress { bid } if waking.wake(bid)) {
                events.lock().push_back(Told::Event(event));
            }
        });
        let options = BufferOptions::new()
            .size_bytes(plan.ring_bytes)
            .max_delivery_bytes(Some(plan.max_delivery))
            .start(log.end())
            .epoch(Some(Epoch(u128::from_le_bytes(log.id()))));
        let live = out.create_buffer_with(LIVE, options).and_then(|buffer| buffer.writer());
        let (listener, _bound) = Listener::bind_start(&context, "broker:1");
        let to = out.clone();
        listener.set_conn_cb(move |conn| to.add_conn(&conn));
        Some(Self {
            core: cores.pop().expect("one worker"),
            out,
            replays,
            log,
            live: live.expect("the buffer of the topic"),
            pending: None,
            told,
            next_bid: LIVE + 1,
            _listener: listener,
        })
    }

    /// The process ends at once. The peers learn of it later.
    pub(super) fn kill(mut self, net: &SimNet) {
        net.kill("broker");
        drop((self._listener, self.live, self.replays, self.out));
        // Commands that the handles left for the worker are dropped with it.
        self.core.turn(net.now());
    }

    pub(super) fn turn(&mut self, now: u64) -> bool {
        self.core.turn(now)
    }

    /// When time alone causes work.
    pub(super) fn next_tick(&self) -> u64 {
        self.core.next_tick()
    }

    /// The application's part: messages and events, and steps of replays.
    pub(super) fn act(&mut self, plan: &Plan, rng: &mut Rng, oracle: &mut Oracle) -> bool {
        let told = std::mem::take(&mut *self.told.lock());
        let mut did = !told.is_empty();
        for told in told {
            match told {
                Told::Control(conn, message) => self.on_control(&conn, &message, plan),
                Told::Event(OutEvent::Subscribed { bid, .. }) => drop(self.replays.wake(bid)),
                Told::Event(OutEvent::Unsubscribed { bid, .. }) => self.replays.left(bid),
                Told::Event(OutEvent::ConnDown { conn, .. }) => self.replays.disconnected(conn),
                Told::Event(_) => {}
            }
        }
        for _ in 0..rng.below(3) {
            let next = self.replays.0.state.lock().queue.pop_front();
            let Some((_, bid, place)) = next else { break };
            self.replays.work(bid, &place, Replay::step);
            oracle.note(1, u64::from(bid), 0);
            did = true;
        }
        let (active, _) = self.replays.counts();
        oracle.check("replays have a limit", active <= plan.max_replays, || format!("{active} replays"));
        did
    }

    fn on_control(&mut self, conn: &Conn, message: &[u8], plan: &Plan) {
        let Ok(Control::Replay { bid, from }) = Control::decode(message) else {
            panic!("subscribers ask for replays only")
        };
        let live = self.out.buffer(bid).expect("the buffer of the topic");
        let request = ReplayRequest {
            conn: conn.clone(),
            live,
            reader: self.log.reader(),
            archived: None,
            asked: Instant::now(),
            from,
            bid: self.next_bid,
            admission: Admission::default(),
            waits: false,
        };
        self.next_bid += 1;
        self.replays.ask(request, plan.max_replays);
    }

    /// Writes a delivery to the log and to the ring, as far as both take it.
    pub(super) fn write(&mut self, len: usize) -> bool {
        if self.pending.is_none() {
            let batch = bytes(self.log.end(), len);
            match self.log.append(&batch) {
                Ok(_) | Err(AppendError::NotDurable { .. }) => self.pending = Some(batch),
                // The same delivery is tried again.
                Err(_) => return false,
            }
        }
        let Some(batch) = self.pending.take() else { return false };
        match self.live.append(&[&batch]) {
            Ok(_) => true,
            Err(SegmentError::Full) => {
                self.pending = Some(batch);
                false
            }
            Err(error) => panic!("the ring of the topic: {error}"),
        }
    }

    /// Everything that is in the log is in the ring.
    pub(super) fn is_written(&self) -> bool {
        self.pending.is_none()
    }

    /// Replays that are under way or wait, and buffers besides that of the topic.
    pub(super) fn left(&self) -> (usize, usize, usize) {
        let (active, waiting) = self.replays.counts();
        (active, waiting, self.out.buffers().len() - 1)
    }
}
