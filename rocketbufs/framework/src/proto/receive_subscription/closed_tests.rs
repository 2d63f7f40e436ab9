//! A closed log between its receiver's machine and its sender's machine, over connections that are lost at any time.

use std::collections::VecDeque;

use proptest::collection::vec;
use proptest::prelude::*;
use rocketring::{Pool, PoolConfig, Ring, RingConfig};

use super::tests::over;
use super::*;
use crate::ground::types::{Epoch, Policy};
use crate::proto::PeerCoverage;
use crate::proto::send_subscription::{PeerSubscription, SendConfig, SendCursor, Step};

const EPOCH: Epoch = Epoch(1);
const START: Position = 1000;
const BYTES: u64 = 100;
const END: Position = START + BYTES;

/// A message to the sender.
enum Up {
    Subscribe(Position),
    Credit(Credit),
    Unsubscribe,
}

/// A message to the receiver.
enum Down {
    Subscribed(Position),
    Empty,
    Closed,
    Unsubscribed,
}

/// A connection, with the messages on their way.
struct Link {
    number: u64,
    attachment: Attachment,
    peer: Option<PeerSubscription>,
    up: VecDeque<Up>,
    down: VecDeque<Down>,
}

/// Both ends of a subscription whose log is closed and whose data has arrived.
struct Ends {
    ring: Ring,
    sub: ReceiveSubscription,
    link: Option<Link>,
    links: u64,
    /// The positions of the sender's durable cursor; `None` once the receiver has unsubscribed.
    cursor: Option<[Position; 3]>,
}

impl Ends {
    fn new() -> Self {
        let pool = Pool::new(PoolConfig { reservation_bytes: 1 << 20, max_bytes: 1 << 24 }).unwrap();
        let shape = RingConfig {
            capacity_bytes: 4096,
            retain_bytes: Some(0),
            max_delivery_bytes: None,
            flow_control: true,
            start: START,
        };
        let ring = pool.ring(shape).unwrap();
        let mut receiver = ring.receiver().unwrap();
        receiver.copy_in(&[1; BYTES as usize]);
        receiver.end();
        let config = ReceiveConfig {
            confirm_consumed: false,
            relays: false,
            place_kept: true,
            max_view_bytes: 0,
            keeps_for_others: false,
            covered_from: START,
        };
        let mut sub = ReceiveSubscription::new(7);
        sub.begin(ReceiveLog::new(config, EPOCH, START, 4096, None));
        sub.end(Ending::End(End::Closed(END)));
        Self { ring, sub, link: None, links: 0, cursor: Some([END, END, START]) }
    }

    fn connect(&mut self) {
        if self.link.is_some() {
            return;
        }
        self.links += 1;
        // Whether the transport would map the ring makes no difference.
        let moves = self.links.is_multiple_of(2);
        let Some(attachment) = self.sub.subscribe(over(self.links, 5, moves, true), Some(&self.ring)) else {
            return;
        };
        let start = attachment.resumed_at().expect("the log began before");
        let up = VecDeque::from([Up::Subscribe(start)]);
        self.link = Some(Link { number: self.links, attachment, peer: None, up, down: VecDeque::new() });
    }

    fn cut(&mut self) {
        let Some(link) = self.link.take() else { return };
        if let (Some(peer), Some(cursor)) = (link.peer, &mut self.cursor) {
            *cursor = peer.cursor().levels();
        }
        self.sub.disconnect();
    }

    /// Handles the next message to the sender.
    fn send(&mut self) {
        let Some(link) = &mut self.link else { return };
        match link.up.pop_front() {
            None => {}
            Some(Up::Subscribe(start)) => {
                let Some(levels) = self.cursor else {
                    // REFUSED: the buffer is gone.
                    self.sub.settle();
                    return self.cut();
                };
                let mut cursor = SendCursor::new(SENDS, start, 0);
                cursor.resume_at(levels, PeerCoverage::default());
                link.peer = Some(PeerSubscription::new(cursor));
                link.down.push_back(Down::Subscribed(start));
            }
            Some(Up::Credit(credit)) => {
                let Some(peer) = &mut link.peer else { return };
                peer.on_credit(&credit, Some(&self.ring), false, 0).expect("a valid CREDIT");
            }
            Some(Up::Unsubscribe) => {
                let peer = link.peer.take().expect("it is subscribed");
                assert_eq!(peer.cursor().consumed(), END, "the last CREDIT came before");
                self.cursor = None;
                link.down.push_back(Down::Unsubscribed);
            }
        }
        self.turn();
    }

    /// Gives the sender its turns.
    fn turn(&mut self) {
        let Some(Link { peer: Some(peer), down, .. }) = &mut self.link else { return };
        loop {
            match peer.take_turn(&self.ring, || Some(End::Closed(END)), 1 << 20, true) {
                Some(Step::Write { from, to, .. }) => {
                    assert_eq!((from, to), (END, END), "nothing is sent twice");
                    down.push_back(Down::Empty);
                }
                Some(Step::End(end)) => {
                    assert_eq!(end, End::Closed(END));
                    down.push_back(Down::Closed);
                }
                _ => return,
            }
        }
    }

    /// Handles the next message to the receiver.
    fn receive(&mut self) {
        let Some(link) = &mut self.link else { return };
        match link.down.pop_front() {
            None => return,
            Some(Down::Subscribed(start)) => {
                let answer = link.attachment.on_subscribed(Some(EPOCH), EPOCH, start);
                assert_eq!(answer, Ok(Answer::Resume));
                self.tell();
            }
            Some(Down::Empty) => assert_eq!(link.attachment.takes_data(), Ok(false)),
            Some(Down::Closed) => assert_eq!(link.attachment.on_end(End::Closed(END), None), Ok(None)),
            Some(Down::Unsubscribed) => {
                assert!(link.attachment.is_leaving() && link.attachment.is_released());
                self.sub.settle();
                self.link = None;
            }
        }
        self.give_credit();
    }

    fn tell(&mut self) {
        let (log, Some(link)) = (self.sub.log_mut().unwrap(), &mut self.link) else { return };
        let credit = log.tell(log.credit_now(&self.ring, None)).unwrap();
        link.up.push_back(Up::Credit(credit));
    }

    /// Acts as the worker after news: the last CREDIT, then UNSUBSCRIBE.
    fn give_credit(&mut self) {
        let now = self.sub.log().unwrap().credit_now(&self.ring, None);
        let released = self.sub.is_released(&now);
        let Some(link) = self.link.as_mut().filter(|link| released && link.attachment.is_live()) else {
            return;
        };
        assert_eq!(self.sub.wire_on(link.number), Some(5));
        link.attachment.release();
        link.attachment.leave();
        self.sub.disconnect();
        self.tell();
        self.link.iter_mut().for_each(|link| link.up.push_back(Up::Unsubscribe));
    }

    fn consume(&mut self, bytes: u64) {
        let cursor = self.sub.log_mut().unwrap().cursor_mut();
        let to = (cursor.consumed() + bytes).min(END);
        cursor.give_back(to, &self.ring);
        self.give_credit();
    }
}

const SENDS: SendConfig = SendConfig {
    policy: Policy::Block,
    max_lag: Some(1 << 20),
    block_timeout: 0,
    flow_control: true,
    max_transfer: 1 << 20,
    keep_until_delivered: false,
    max_delivery: 1 << 20,
    largest: 0,
    grows: true,
    maps: None,
};

#[derive(Debug, Clone)]
enum Op {
    Connect,
    Cut,
    Send,
    Receive,
    Consume(u64),
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        2 => Just(Op::Connect),
        1 => Just(Op::Cut),
        4 => Just(Op::Send),
        4 => Just(Op::Receive),
        1 => (0..60_u64).prop_map(Op::Consume),
    ]
}

impl Ends {
    fn take(&mut self, op: &Op) {
        match *op {
            Op::Connect => self.connect(),
            Op::Cut => self.cut(),
            Op::Send => self.send(),
            Op::Receive => self.receive(),
            Op::Consume(bytes) => self.consume(bytes),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(512) })]

    /// Whichever message is lost, the sender learns that everything was released, and the receiver that the sender knows.
    #[test]
    fn the_last_credit_arrives_whichever_connection_is_lost(ops in vec(op(), 0..60)) {
        let mut ends = Ends::new();
        ops.iter().for_each(|op| ends.take(op));
        prop_assert!(ends.cursor.is_some() || ends.sub.log().unwrap().cursor().consumed() == END);
        for _ in 0..16 {
            [Op::Consume(BYTES), Op::Connect, Op::Send, Op::Receive].iter().for_each(|op| ends.take(op));
        }
        prop_assert!(ends.cursor.is_none() && !ends.sub.is_unsettled() && ends.link.is_none());
        prop_assert!(ends.sub.subscribe(over(99, 5, false, true), Some(&ends.ring)).is_none(), "nothing is left");
    }
}

#[test]
fn only_a_closed_log_of_the_application_resumes() {
    for ending in [Ending::End(End::Gone(END)), Ending::Restarted(Epoch(2))] {
        let mut ends = Ends::new();
        ends.sub = ReceiveSubscription::new(7);
        ends.sub.end(ending);
        assert!(ends.sub.subscribe(over(1, 5, false, true), Some(&ends.ring)).is_none());
    }
    let mut ends = Ends::new();
    ends.sub.leave();
    assert!(!ends.sub.is_unsettled() && ends.sub.subscribe(over(1, 5, false, true), None).is_none());
}

#[test]
fn a_closed_log_ends_once_on_each_connection() {
    let mut ends = Ends::new();
    ends.connect();
    let attachment = &mut ends.link.as_mut().unwrap().attachment;
    assert!(attachment.is_closed() && !attachment.moves());
    assert_eq!(attachment.on_end(End::Gone(START), None), Ok(None));
    assert_eq!(attachment.takes_data(), Err(ReceiveError::AfterEnd));
    assert_eq!(attachment.on_end(End::Closed(END), None), Err(ReceiveError::AfterEnd));
}
