//! Features of TCP beyond the contract: settings, waking, names with several addresses.

use std::sync::Arc;
use std::time::Duration;

use rocketnet::conformance::flow::ring;
use rocketnet::tcp::{Tcp, TcpConfig};
use rocketnet::{ConnId, Down, Event, SourceRange, Transport, TransportError};
use rocketring::Waker;

use crate::wait::wait;

fn tcp(config: TcpConfig) -> Result<Tcp, TransportError> {
    Tcp::new(config, Arc::new(Waker::new().expect("an eventfd")))
}

fn connected(event: Event) -> Option<ConnId> {
    if let Event::Connected(conn) = event { Some(conn) } else { None }
}

fn down(event: Event) -> Option<Down> {
    if let Event::Down(_, why) = event { Some(why) } else { None }
}

#[test]
fn a_wake_ends_a_poll_without_timeout() {
    let waker = Arc::new(Waker::new().expect("an eventfd"));
    let mut tcp = Tcp::new(TcpConfig::default(), waker.clone()).expect("the defaults are valid");
    for _ in 0..10 {
        waker.prepare();
        let theirs = waker.clone();
        let thread = std::thread::spawn(move || theirs.wake());
        let mut events = Vec::new();
        tcp.poll(None, &mut events);
        waker.woken();
        thread.join().expect("the waker ends");
        assert!(events.is_empty());
    }
    // Not woken again: only the timeout ends it.
    tcp.poll(Some(Duration::from_millis(1)), &mut Vec::new());
}

/// Six connections that are ready at the same time: the messages of some can be answered before the next are read.
#[test]
fn connections_with_little_data_are_reported_in_portions() {
    const CONNECTIONS: usize = 6;
    let (mut a, mut b) = (tcp(TcpConfig::default()).unwrap(), tcp(TcpConfig::default()).unwrap());
    let address = b.listen("127.0.0.1:0").unwrap();
    let incoming = |event| if let Event::Incoming(accepted) = event { Some(accepted) } else { None };
    let mut conns = Vec::new();
    for _ in 0..CONNECTIONS {
        let conn = a.connect(&address).unwrap();
        let accepted = wait(&mut b, incoming);
        let other = b.adopt(accepted).unwrap();
        b.bind(other, 1, ring(4_096, 0).receiver().unwrap());
        wait(&mut a, connected);
        conns.push((conn, ring(4_096, 0)));
    }
    // Portions follow from earlier traffic, so the first round may report all connections at once.
    for (round, most) in [(0, CONNECTIONS), (1, CONNECTIONS.div_ceil(4))] {
        let from = round * 100;
        for (conn, ring) in &conns {
            let source = SourceRange { ring: ring.clone(), from, to: from + 100, mapped: false };
            a.write(*conn, 1, source, false).unwrap();
            assert!(a.flush(*conn));
        }
        assert!(most_arrivals_of_a_poll(&mut b, CONNECTIONS) <= most, "in round {round}");
    }
}

/// Polls until `arrivals` arrivals were reported, as a thread that sleeps without the transport. Returns the most arrivals of
/// one poll.
fn most_arrivals_of_a_poll(tcp: &mut Tcp, arrivals: usize) -> usize {
    let sleeps_on = tcp.pollable().unwrap();
    let (mut heard, mut most, mut events) = (0, 0, Vec::new());
    for _ in 0..60_000 {
        if tcp.poll_within(true) != Some(Duration::ZERO) {
            sleeps_on.wait(Duration::from_millis(1));
        }
        tcp.poll(Some(Duration::ZERO), &mut events);
        let told = events.drain(..).filter(|event| matches!(event, Event::Arrived(..))).count();
        (heard, most) = (heard + told, most.max(told));
        if heard == arrivals {
            return most;
        }
    }
    panic!("{heard} of {arrivals}");
}

#[test]
fn settings_outside_their_range_are_named() {
    let wrong = [
        (TcpConfig { read_bytes: 0, ..TcpConfig::default() }, "read_bytes"),
        (TcpConfig { staging_bytes: 1 << 30, ..TcpConfig::default() }, "staging_bytes"),
        (TcpConfig { tx_queue_bytes: 1, ..TcpConfig::default() }, "tx_queue_bytes"),
        (TcpConfig { max_control_bytes: 1, ..TcpConfig::default() }, "max_control_bytes"),
        (TcpConfig { tx_control_bytes: 65_000, ..TcpConfig::default() }, "tx_control_bytes"),
        (TcpConfig { max_connections: 0, ..TcpConfig::default() }, "max_connections"),
        (TcpConfig { backlog: 0, ..TcpConfig::default() }, "backlog"),
        (TcpConfig { user_timeout: Some(Duration::ZERO), ..TcpConfig::default() }, "user_timeout (ms)"),
        (
            TcpConfig { congestion_control: Some("pigeon".into()), ..TcpConfig::default() },
            "congestion_control",
        ),
    ];
    for (config, name) in wrong {
        match tcp(config) {
            Err(TransportError::Config { field, value, reason }) => {
                assert_eq!(field, name);
                assert!(!value.is_empty() && !reason.is_empty());
            }
            other => panic!("{name}: expected an error, got {:?}", other.err()),
        }
    }
}

#[test]
fn an_unknown_congestion_control_says_which_are_allowed() {
    let config = TcpConfig { congestion_control: Some("pigeon".into()), ..TcpConfig::default() };
    let message = tcp(config).err().expect("no such thing").to_string();
    assert!(message.contains("pigeon") && message.contains("reno"), "{message}");
}

#[test]
fn options_are_on_the_sockets_of_both_ends() {
    let config = TcpConfig {
        congestion_control: Some("reno".into()),
        user_timeout: Some(Duration::from_secs(7)),
        ..TcpConfig::default()
    };
    let mut end = tcp(config).unwrap();
    let address = end.listen("127.0.0.1:0").unwrap();
    end.connect(&address).unwrap();
    let accepted = wait(&mut end, |event| match event {
        Event::Incoming(accepted) => Some(accepted),
        _ => None,
    });
    assert_eq!(accepted.local, address);
    let rocketnet::contract::AcceptedHandle::Tcp(socket) = &accepted.handle else { panic!("not TCP") };
    let socket = socket.try_clone().unwrap();
    end.adopt(accepted).unwrap();
    assert!(socket.nodelay().unwrap());
    assert_eq!(rustix::net::sockopt::tcp_congestion(&socket).unwrap(), "reno");
    assert_eq!(rustix::net::sockopt::tcp_user_timeout(&socket).unwrap(), 7_000);
}

#[test]
fn more_connections_than_allowed_are_refused_with_the_numbers() {
    let mut end = tcp(TcpConfig { max_connections: 2, ..TcpConfig::default() }).unwrap();
    let address = end.listen("127.0.0.1:0").unwrap();
    let first = end.connect(&address).unwrap();
    end.connect(&address).unwrap();
    let error = end.connect(&address).expect_err("the third");
    assert!(matches!(error, TransportError::TooManyConnections { open: 2, max: 2 }));
    let accepted = wait(&mut end, |event| match event {
        Event::Incoming(accepted) => Some(accepted),
        _ => None,
    });
    assert!(matches!(end.adopt(accepted), Err(TransportError::TooManyConnections { .. })));
    end.close(first, "room", Duration::ZERO);
    end.forget(first);
    end.connect(&address).expect("a forgotten connection makes room");
}

#[test]
fn names_are_resolved_and_their_addresses_tried_in_turn() {
    // A single address of the name has a listener; its other addresses, if the machine has any, refuse.
    let mut listening = tcp(TcpConfig::default()).unwrap();
    let address = listening.listen("127.0.0.1:0").unwrap();
    let port = address.rsplit(':').next().unwrap().to_owned();
    let mut end = tcp(TcpConfig::default()).unwrap();
    let conn = end.connect(&format!("localhost:{port}")).unwrap();
    assert_eq!(wait(&mut end, connected), conn);
    for wrong in ["127.0.0.1", "127.0.0.1:99999", "", ":"] {
        assert!(matches!(end.connect(wrong), Err(TransportError::Address { .. })), "{wrong}");
        assert!(matches!(end.listen(wrong), Err(TransportError::Address { .. })), "{wrong}");
    }
    let busy = tcp(TcpConfig::default()).unwrap().listen(&address).expect_err("the port is taken");
    assert!(matches!(busy, TransportError::Listen { .. }));
}

#[test]
fn a_connection_that_is_not_answered_ends_in_time() {
    // No host answers at addresses of TEST-NET. Without a route the system reports an error at once.
    let mut end =
        tcp(TcpConfig { connect_timeout: Duration::from_millis(50), ..TcpConfig::default() }).unwrap();
    end.connect("192.0.2.1:9").unwrap();
    assert!(matches!(wait(&mut end, down), Down::Refused { .. }));
    let conn = end.connect("192.0.2.1:9").unwrap();
    end.close(conn, "changed my mind", Duration::from_secs(10));
    let why = wait(&mut end, down);
    assert!(matches!(why, Down::Local(_) | Down::Refused { .. }));
}

#[test]
fn bytes_queued_while_connecting_leave_when_connected() {
    let (mut a, mut b) = (tcp(TcpConfig::default()).unwrap(), tcp(TcpConfig::default()).unwrap());
    let address = b.listen("127.0.0.1:0").unwrap();
    let conn = a.connect(&address).unwrap();
    a.control(conn, b"early").unwrap();
    wait(&mut a, connected);
    let accepted = wait(&mut b, |event| match event {
        Event::Incoming(accepted) => Some(accepted),
        _ => None,
    });
    b.adopt(accepted).unwrap();
    let message = wait(&mut b, |event| match event {
        Event::Control(_, message) => Some(message),
        _ => None,
    });
    assert_eq!(message, b"early");
}
