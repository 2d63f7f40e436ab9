//! Tests of the console beside a broker's thread that answers late, or not at all.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use locks::Mutex;
use testkit::{LONG, until};

use crate::asks::{ClientRow, Disconnected};
use crate::http::Endpoint;
use crate::inbox::{self, Event};
use crate::{Broker, BrokerConfig, Watch};

/// A broker whose thread gets no question while the lock is held. Other events pass.
struct Site {
    broker: Broker,
    endpoint: Endpoint,
    /// Asks as the endpoint does.
    watch: Watch,
    questions: Arc<Mutex<()>>,
}

impl Site {
    fn start() -> Self {
        let mut config = BrokerConfig::default();
        config.broker.listen = "127.0.0.1:0".into();
        config.http.listen = "127.0.0.1:0".into();
        let broker = Broker::start(config).unwrap();
        let mut watch = broker.watch();
        let (held, events) = inbox::inbox();
        let thread = std::mem::replace(&mut watch.events, held);
        let questions = Arc::<Mutex<()>>::default();
        let gate = questions.clone();
        let (asked, waiting) = std::sync::mpsc::sync_channel(1_000);
        // It ends with the last sender, which the endpoint has.
        std::thread::spawn(move || {
            for event in events.events {
                match event {
                    Event::Ask(_) => asked.send(event).unwrap(),
                    _ => thread.event(event),
                }
            }
        });
        let thread = broker.watch().events;
        std::thread::spawn(move || {
            for event in waiting {
                drop(gate.lock());
                thread.event(event);
            }
        });
        let endpoint = Endpoint::start(watch.clone(), &broker.config().http).unwrap();
        Self { broker, endpoint, watch, questions }
    }

    /// The clients. A caller that has asked before has an answer then.
    fn clients(&self) -> Vec<ClientRow> {
        self.watch.clients(None, LONG).unwrap().answer.rows
    }

    fn send(&self, path: &str) -> TcpStream {
        let mut stream = TcpStream::connect(self.endpoint.addr()).unwrap();
        stream.set_read_timeout(Some(LONG)).unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).unwrap();
        stream
    }

    fn status(&self, path: &str) -> u16 {
        status(self.send(path))
    }
}

fn status(mut stream: TcpStream) -> u16 {
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer.split(' ').nth(1).unwrap().parse().unwrap()
}

/// Whoever comes out of an incident sees the broker again.
#[test]
fn a_broker_that_was_silent_is_shown_soon_after_it_answers() {
    let site = Site::start();
    let held = site.questions.lock();
    assert_eq!(site.status("/api/v1/overview"), 503);
    drop(held);
    until("the console shows it again", || site.status("/api/v1/overview") == 200);
}

#[test]
fn a_broker_that_does_not_answer_the_console_is_still_healthy() {
    let site = Site::start();
    until("others are answered before the console", || {
        let held = site.questions.lock();
        let mut waits = site.send("/api/v1/topic?name=a");
        assert_eq!(site.status("/health"), 200);
        assert_eq!(site.status("/metrics"), 200);
        waits.set_nonblocking(true).unwrap();
        let nothing =
            waits.read(&mut [0; 1]).is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock);
        drop(held);
        waits.set_nonblocking(false).unwrap();
        let answered = status(waits);
        assert!(matches!(answered, 404 | 503), "{answered}");
        nothing
    });
}

/// An asker that has given up, or that leaves no line in the audit log, disconnects no client.
#[test]
fn a_client_is_disconnected_at_once_with_its_line_or_not_at_all() {
    let site = Site::start();
    let _publisher = rbmq::Publisher::builder().name("sensor").connect(&site.broker.addr()).unwrap();
    until("the publisher is here", || site.clients().len() == 1);
    let conn = site.clients()[0].conn;
    let told = Arc::new(Mutex::new(Vec::new()));
    let disconnect = |has_room, within| {
        let told = told.clone();
        let record = move |row: &ClientRow| {
            told.lock().push((row.conn, has_room));
            has_room
        };
        site.watch.disconnect(conn, "a test", Box::new(record), within)
    };
    let held = site.questions.lock();
    assert!(disconnect(true, Duration::ZERO).is_none(), "nobody answers");
    drop(held);
    assert_eq!((site.clients()[0].conn, told.lock().len()), (conn, 0));
    assert!(matches!(disconnect(false, LONG), Some(Disconnected::NoLine)));
    assert_eq!(site.clients()[0].conn, conn);
    assert!(matches!(disconnect(true, LONG), Some(Disconnected::Done(row)) if row.name == "sensor"));
    until("it is here again", || site.clients().first().is_some_and(|row| row.conn != conn));
    assert!(matches!(disconnect(true, LONG), Some(Disconnected::NoClient)));
    assert_eq!(*told.lock(), [(conn, false), (conn, true)]);
}

/// The process ends, also with a console that waits.
#[test]
fn the_end_of_the_endpoint_waits_for_no_answer() {
    let Site { broker: _broker, endpoint, watch, questions } = Site::start();
    drop(watch);
    let held = questions.lock();
    let addr = endpoint.addr();
    let mut waits = TcpStream::connect(addr).unwrap();
    waits.write_all(b"GET /api/v1/stream/overview HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n").unwrap();
    let mut head = [0; 15];
    waits.read_exact(&mut head).unwrap();
    assert_eq!(&head, b"HTTP/1.1 200 OK");
    drop(endpoint);
    drop(held);
}
