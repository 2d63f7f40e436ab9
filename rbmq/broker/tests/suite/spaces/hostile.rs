//! Publishers that write the log of a space as it must not be.

use rbmq::wire::{
    AttributesBuf, Control, Framing, Hello, RecordFault, Role, UnpackError, push_record, push_record_with,
};
use rbmq::{Publisher, ReceiveError};
use rocketbufs::{Config, Conn, Context, ROut};
use testkit::LONG;

use super::{broker, name, settled, subscriber};

/// A publisher that writes the log of a space as it likes.
struct Bare {
    buffer: rocketbufs::OutBuffer,
    _out: ROut,
    _conn: Conn,
}

impl Bare {
    fn join(ctx: &Context, addr: &str) -> Self {
        let out = ROut::new(ctx);
        let buffer = out.create_buffer(7, 64 << 10).unwrap();
        let (told, answers) = std::sync::mpsc::sync_channel(16);
        out.set_control_msg_cb(move |_, message| _ = told.try_send(Control::decode(message).unwrap()));
        let hello = Hello { role: Role::Publisher, client: 5, name: String::new() };
        let conn = Conn::connect(ctx, addr, &hello.encode()).unwrap();
        out.add_conn(&conn);
        let create = |topic: &str| Control::Create {
            bid: 7,
            framing: Framing::Records,
            ring_bytes: 64 << 10,
            max_delivery_bytes: 16 << 10,
            min_subscribers: 0,
            topic: name(topic),
        };
        let space = rbmq::Space::new(&"d/#".parse().unwrap()).unwrap();
        let in_space =
            Control::InSpace { bid: 7, more: false, space, before: vec!["d/own/#".parse().unwrap()] };
        conn.send_control(&create("d/x").encode()).unwrap();
        assert_eq!(answers.recv_timeout(LONG).unwrap(), in_space);
        conn.send_control(&create("$space/d").encode()).unwrap();
        assert_eq!(answers.recv_timeout(LONG).unwrap(), in_space);
        assert_eq!(answers.recv_timeout(LONG).unwrap(), Control::Created { bid: 7 });
        Self { buffer, _out: out, _conn: conn }
    }

    /// Delivers records with these names; the last one is plain.
    fn deliver(&self, names: &[Option<&str>]) {
        let (mut bytes, mut attributes) = (Vec::new(), AttributesBuf::new());
        for topic in names {
            attributes.clear();
            attributes.key(b"k").unwrap();
            topic.iter().for_each(|topic| _ = attributes.topic(topic).unwrap());
            push_record_with(&mut bytes, attributes.attributes(), topic.unwrap_or("none").as_bytes());
        }
        push_record(&mut bytes, b"plain");
        let mut segment = self.buffer.segment(bytes.len() as u64, None).unwrap();
        segment.bytes_mut().copy_from_slice(&bytes);
        self.buffer.deliver(segment, bytes.len() as u64, None).unwrap();
    }
}

fn is_fault(error: &ReceiveError) -> bool {
    match error {
        ReceiveError::Malformed { topic, error: UnpackError::Publisher { publisher, error } } => {
            topic.as_str() == "$space/d" && *publisher == 0 && error.fault == RecordFault::Topic
        }
        _ => false,
    }
}

#[test]
fn what_a_publisher_writes_wrong_costs_its_own_records() {
    let broker = broker();
    let addr = broker.addr();
    let mut by_message = subscriber(&addr, &["#"]);
    let mut by_batch = subscriber(&addr, &["d/+"]);
    [&mut by_message, &mut by_batch].into_iter().for_each(settled);
    let ctx = Context::new(Config::default()).unwrap();
    let bad = Bare::join(&ctx, &addr);
    bad.deliver(&[Some("d/1"), None, Some("e/2"), Some("d/+"), Some("$space/d"), Some("d/3")]);
    let good = Publisher::connect(&addr).unwrap();
    good.topic("d/4").unwrap().publish(b"d/4").unwrap();
    let (mut got, mut faults) = (Vec::new(), 0);
    while got.len() < 3 {
        match by_message.recv(Some(LONG)) {
            Ok(message) => got.push(message.expect("a message").topic.to_string()),
            Err(error) => {
                assert!(is_fault(&error), "{error}");
                faults += 1;
            }
        }
    }
    got.sort();
    assert_eq!(got, ["d/1", "d/3", "d/4"]);
    let mut got = Vec::new();
    while got.len() < 3 || faults < 10 {
        if faults < 5 {
            let error = by_message.recv(Some(LONG)).unwrap_err();
            assert!(is_fault(&error), "{error}");
            faults += 1;
            continue;
        }
        let batch = by_batch.next_batch(Some(LONG)).unwrap().expect("messages");
        for piece in batch.pieces() {
            match piece {
                Ok(piece) => got.push((batch.topic().to_string(), piece.record.to_vec())),
                Err(error) => {
                    assert!(is_fault(&error), "{error}");
                    faults += 1;
                }
            }
        }
    }
    assert!(got.iter().all(|(topic, record)| topic.as_bytes() == record));
    assert_eq!((got.len(), faults), (3, 10));
}
