//! Publishers of merged topics hear how far their own bytes are confirmed, not how far the broker copied them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use rbmq::wire::{Control, Framing, Hello, Role, push_record};
use rbmq::{ConfirmLevel, Observer, Publisher, SlowPolicy, Subscriber, SubscriberBuilder, TopicOptions};
use rbmq_broker::Ingest;
use rocketbufs::{Config, Conn, Context, OutBuffer, Position, ProgressLevel as Confirm, ROut, WaitError};
use testkit::{LONG, broker_with, rule, until};

/// A publisher made of the framework alone, which sees how far it is confirmed.
struct Bare {
    out: ROut,
    _conn: Conn,
}

const BARE_BID: u32 = 5;

impl Bare {
    fn buffer(&self) -> OutBuffer {
        self.out.buffer(BARE_BID).unwrap()
    }

    fn join(ctx: &Context, addr: &str, client: u128, topic: &str) -> Self {
        let out = ROut::new(ctx);
        out.create_buffer(BARE_BID, 16 << 10).unwrap();
        let (told, answers) = std::sync::mpsc::sync_channel(16);
        out.set_control_msg_cb(move |_, message| {
            // Only the first answer is waited for.
            let _ = told.try_send(Control::decode(message).unwrap());
        });
        let hello = Hello { role: Role::Publisher, client, name: String::new() };
        let conn = Conn::connect(ctx, addr, &hello.encode()).unwrap();
        out.add_conn(&conn);
        let create = Control::Create {
            bid: BARE_BID,
            framing: Framing::Records,
            ring_bytes: 16 << 10,
            max_delivery_bytes: 4 << 10,
            min_subscribers: 0,
            topic: topic.parse().unwrap(),
        };
        conn.send_control(&create.encode()).unwrap();
        let largest = answers.recv_timeout(LONG).unwrap();
        assert!(matches!(largest, Control::Largest { bid: BARE_BID, .. }), "{largest:?}");
        assert_eq!(answers.recv_timeout(LONG).unwrap(), Control::Created { bid: BARE_BID });
        Self { out, _conn: conn }
    }

    fn publish(&self, record: &[u8]) -> Position {
        let mut bytes = Vec::new();
        push_record(&mut bytes, record);
        self.buffer().writer().unwrap().append(&[&bytes]).unwrap()
    }
}

#[test]
fn an_expired_position_is_waited_for_no_more() {
    let broker = broker_with(|config| {
        config.broker.topics = vec![rule("m", |rule| rule.ingest = Ingest::Merge)].into();
    });
    let ctx = Context::new(Config::default()).unwrap();
    let publisher = Bare::join(&ctx, &broker.addr(), 1, "m");
    let named = Subscriber::builder().until_ended(true).durable("gone", Duration::from_millis(500));
    let mut away = named.connect(&broker.addr()).unwrap();
    away.subscribe("m").unwrap();
    let mut there = Subscriber::builder().until_ended(true).connect(&broker.addr()).unwrap();
    there.subscribe("m").unwrap();
    until("both subscribe", || broker.topics()[0].subscribers == 2);
    drop(away);
    let end = publisher.publish(b"a");
    assert!(there.next_batch(Some(LONG)).unwrap().is_some());
    publisher.buffer().wait(Confirm::Consumed, end, Some(LONG)).unwrap();
}

#[test]
fn publishers_learn_the_confirmed_positions_of_their_own_logs() {
    let merged = || vec![rule("m/#", |rule| rule.ingest = Ingest::Merge)];
    let broker = broker_with(|config| config.broker.topics = merged().into());
    let ctx = Context::new(Config::default()).unwrap();
    let [first, second] = [1, 2].map(|client| Bare::join(&ctx, &broker.addr(), client, "m/x"));
    // Without a subscriber everything is confirmed at once, for no receiver.
    let end = first.publish(b"nobody");
    first.buffer().wait(Confirm::Consumed, end, Some(LONG)).unwrap();
    assert_eq!(first.buffer().confirmed().coverage.receivers, 0);

    let mut receivers =
        [0, 1].map(|_| Subscriber::builder().until_ended(true).connect(&broker.addr()).unwrap());
    for receiver in &mut receivers {
        receiver.subscribe("m/x").unwrap();
    }
    until("both subscribe", || broker.topics()[0].subscribers == 2);
    let ends = [first.publish(b"a"), second.publish(b"bb")];
    let [_, end] = [
        first.buffer().wait(Confirm::Delivered, ends[0], Some(LONG)).map(|()| ends[0]).unwrap(),
        second.buffer().wait(Confirm::Delivered, ends[1], Some(LONG)).map(|()| ends[1]).unwrap(),
    ];
    let short = Duration::from_millis(100);
    let waited = second.buffer().wait(Confirm::Consumed, end, Some(short));
    assert!(matches!(waited, Err(WaitError::TimedOut { confirmed }) if confirmed < end), "{waited:?}");
    for (n, receiver) in receivers.iter_mut().enumerate() {
        let mut seen = 0;
        while seen < 2 {
            seen += receiver.next_batch(Some(LONG)).unwrap().unwrap().records().count();
        }
        if n == 0 {
            assert!(
                second.buffer().wait(Confirm::Consumed, end, Some(short)).is_err(),
                "the other one has it still"
            );
        }
    }
    second.buffer().wait(Confirm::Consumed, end, Some(LONG)).unwrap();
    assert_eq!(second.buffer().confirmed().coverage.receivers, 2);
    first.buffer().wait(Confirm::Consumed, ends[0], Some(LONG)).unwrap();
    // A subscriber that leaves no longer counts.
    let [one, mut other] = receivers;
    let end = first.publish(b"for one");
    one.close_timeout(Some(LONG));
    assert!(other.next_batch(Some(LONG)).unwrap().is_some());
    first.buffer().wait(Confirm::Consumed, end, Some(LONG)).unwrap();
    // A destroyed buffer ends when all of it is consumed, and its ring is released.
    second.publish(b"last");
    second.out.destroy_buffer(BARE_BID).unwrap();
    assert!(other.next_batch(Some(LONG)).unwrap().is_some());
    until("its ring is gone", || second.out.buffers().is_empty());
}

#[test]
fn a_loss_of_one_subscriber_removes_no_other_from_the_count() {
    let broker = broker_with(|config| {
        config.broker.topics = vec![rule("m/#", |rule| rule.ingest = Ingest::Merge)].into();
    });
    for name in ["m/x", "spliced"] {
        let subscriber = |builder: SubscriberBuilder| {
            let mut subscriber = builder.ring_bytes(64 << 10).connect(&broker.addr()).unwrap();
            subscriber.subscribe(name).unwrap();
            subscriber
        };
        let reader = subscriber(Subscriber::builder().until_ended(true));
        let lossy = subscriber(
            Subscriber::builder().until_ended(true).slow(SlowPolicy::Drop { max_lag_bytes: Some(8 << 10) }),
        );
        let options = TopicOptions::default().ring_bytes(64 << 10);
        let publisher = Publisher::connect(&broker.addr()).unwrap();
        let mut topic = publisher.topic_with(name, options).unwrap();
        topic.wait_subscribers(2, Some(LONG)).unwrap();
        let stop = Arc::<AtomicBool>::default();
        let reader = read_until(&stop, reader);
        let mut observer = Observer::connect(&broker.addr()).unwrap();
        let lost = |observer: &mut Observer| {
            observer
                .topics(None)
                .unwrap()
                .iter()
                .any(|row| row.topic.as_str() == name && row.dropped_bytes > 0)
        };
        let mut waiting = Vec::new();
        while !lost(&mut observer) {
            assert!(waiting.len() < 1000, "nothing is lost");
            let position = topic.publish(&[7; 4000]).unwrap();
            waiting.push(topic.confirmation(position, ConfirmLevel::Consumed));
        }
        let lossy = read_until(&stop, lossy);
        let told: Vec<_> = waiting.into_iter().map(|waiting| waiting.wait(Some(LONG)).unwrap()).collect();
        assert!(told.iter().any(|confirmed| confirmed.lost > 0), "{name}: {told:?}");
        for confirmed in &told {
            assert!(confirmed.subscribers + confirmed.lost >= 2, "{name}: {confirmed:?} of {told:?}");
        }
        stop.store(true, Ordering::Relaxed);
        reader.join().unwrap();
        lossy.join().unwrap();
    }
}

/// Works off the messages that come, in a thread.
fn read_until(stop: &Arc<AtomicBool>, mut subscriber: Subscriber) -> JoinHandle<()> {
    let stop = stop.clone();
    std::thread::spawn(move || {
        while !stop.load(Ordering::Relaxed) {
            subscriber.next_event(Some(Duration::from_millis(20))).unwrap();
        }
    })
}
