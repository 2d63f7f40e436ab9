//! Topics that one broker sends to another: what the next one is told.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use rbmq::wire::{Control, RefuseCode};
use rbmq::{Publisher, TopicOptions, TopicWriter};
use rocketbufs::{Bid, Config, Context, InEvent, Listener, RIn, ROut};
use testkit::{LONG, until};

/// A broker that takes no data, and answers each CREATE as the test says. The count of those before comes with it.
struct Fake {
    addr: String,
    said: Arc<Mutex<Vec<Control>>>,
    _parts: (Context, Listener, ROut),
}

impl Fake {
    fn start(answer: impl Fn(&RIn, Bid, usize) + Send + Sync + 'static) -> Self {
        let (answer, said) = (Arc::new(answer), Arc::<Mutex<Vec<Control>>>::default());
        let ctx = Context::new(Config::default()).unwrap();
        let (out, listener) = (ROut::new(&ctx), Listener::bind(&ctx, "127.0.0.1:0").unwrap());
        let heard = said.clone();
        listener.set_conn_cb(move |conn| {
            let (answer, heard) = (answer.clone(), heard.clone());
            RIn::new(&conn).set_control_msg_cb(move |rin, message| {
                let message = Control::decode(message).unwrap();
                let before = heard.lock().unwrap().iter().filter(|said| is_create(said)).count();
                heard.lock().unwrap().push(message.clone());
                if let Control::Create { bid, .. } = message {
                    answer(rin, bid, before);
                }
            });
        });
        Self { addr: listener.local_addr(), said, _parts: (ctx, listener, out) }
    }

    /// The broker that a topic reaches in the end.
    fn last() -> Self {
        Self::start(|rin, bid, _| say(rin, &Control::Created { bid }))
    }

    fn creates(&self) -> usize {
        self.said.lock().unwrap().iter().filter(|said| is_create(said)).count()
    }

    /// The positions that the broker was told others have.
    fn places(&self) -> Vec<u64> {
        let said = self.said.lock().unwrap();
        let place = |said: &Control| match said {
            Control::Place { position, .. } => Some(*position),
            _ => None,
        };
        said.iter().filter_map(place).collect()
    }
}

fn is_create(said: &Control) -> bool {
    matches!(said, Control::Create { .. })
}

fn say(rin: &RIn, message: &Control) {
    rin.conn().send_control(&message.encode()).unwrap();
}

fn send_to(rin: &RIn, bid: Bid, addresses: &[String]) {
    let reason = RefuseCode::elsewhere(addresses, "the test says so");
    say(rin, &Control::Refused { bid, code: RefuseCode::Elsewhere, reason });
}

fn open(publisher: &Publisher, topic: &str) -> TopicWriter {
    publisher.topic_with(topic, TopicOptions::default().open_timeout(Some(LONG))).unwrap()
}

#[test]
fn a_broker_that_gives_a_topic_away_tells_the_next_one_how_far_it_was() {
    let last = Fake::last();
    let next = last.addr.clone();
    let home = Fake::start(move |rin, bid, _| {
        say(rin, &Control::Created { bid });
        say(rin, &Control::Stored { bid, position: 3, synced: 3, archived: 0 });
        send_to(rin, bid, std::slice::from_ref(&next));
    });
    let publisher = Publisher::connect(&home.addr).unwrap();
    let _writer = open(&publisher, "k");
    until("the last broker is asked", || last.creates() == 1);
    assert_eq!(last.places(), [3]);
}

#[test]
fn a_broker_that_had_the_topic_earlier_takes_nothing_back() {
    let last = Fake::last();
    let next = last.addr.clone();
    let home = Fake::start(move |rin, bid, before| match before {
        0 => {
            say(rin, &Control::Created { bid });
            say(rin, &Control::Stored { bid, position: 5, synced: 5, archived: 0 });
            send_to(rin, bid, &[]);
        }
        _ => {
            say(rin, &Control::Stored { bid, position: 3, synced: 3, archived: 0 });
            send_to(rin, bid, std::slice::from_ref(&next));
        }
    });
    let publisher = Publisher::connect(&home.addr).unwrap();
    let _writer = open(&publisher, "k");
    until("the last broker is asked", || last.creates() == 1);
    assert_eq!(last.places(), [5]);
}

#[test]
fn what_a_broker_had_that_is_gone_is_not_told_to_the_next_one() {
    let last = Fake::last();
    let gone = Fake::start(|rin, bid, _| {
        say(rin, &Control::Created { bid });
        say(rin, &Control::Stored { bid, position: 3, synced: 3, archived: 0 });
        rin.conn().close("killed");
    });
    let owners = [gone.addr.clone(), last.addr.clone()];
    let home = Fake::start(move |rin, bid, before| send_to(rin, bid, &owners[before.min(1)..=before.min(1)]));
    let publisher = Publisher::connect(&home.addr).unwrap();
    let _writer = open(&publisher, "k");
    until("the last broker is asked", || last.creates() == 1);
    assert_eq!(last.places(), [0_u64; 0]);
}

#[test]
fn a_topic_on_its_way_is_sent_nowhere_else() {
    let home = Fake::start(|rin, bid, before| match before {
        0 => (0..100).for_each(|_| send_to(rin, bid, &[])),
        _ => say(rin, &Control::Created { bid }),
    });
    let publisher = Publisher::connect(&home.addr).unwrap();
    let _writer = open(&publisher, "k");
    // Further steps would be over by then.
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(home.creates(), 2);
}

#[test]
fn a_topic_that_its_broker_does_not_leave_holds_up_no_other_one() {
    let last = Fake::last();
    let next = [last.addr.clone()];
    let home = Fake::start(move |rin, bid, before| {
        if before == 0 {
            let conn = rin.conn();
            rin.set_data_in_cb(|_, _| {});
            rin.set_event_cb(move |event| {
                if let InEvent::Subscribed { bid, .. } = event {
                    conn.send_control(&Control::Created { bid }.encode()).unwrap();
                }
            });
            rin.subscribe(bid, 1 << 20).unwrap();
            return;
        }
        send_to(rin, bid - 1, &next);
        send_to(rin, bid, &next);
    });
    let publisher = Publisher::connect(&home.addr).unwrap();
    let _stays = open(&publisher, "stays");
    let _goes = open(&publisher, "goes");
    until("the last broker is asked", || last.creates() > 0);
    let said = last.said.lock().unwrap();
    assert!(matches!(&said[0], Control::Create { topic, .. } if topic.as_str() == "goes"), "{said:?}");
}
