//! A thread that waits in `recv`, or for room, does the worker's work; where that would run callbacks, only if it may.

use std::io::Write;
use std::net::TcpStream;
use std::sync::mpsc::{self, Receiver};
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

use rocketbufs::{Config, Conn, Context, InEvent, Listener, Policy, RIn, ROut, SubscribeOptions};

const WAIT: Duration = Duration::from_secs(60);
const BUFFER: u32 = 1;

struct Pair {
    out: ROut,
    /// The sending end's side of the connection.
    conn: Conn,
    input: RIn,
    /// The threads on which control messages were heard at the receiving end.
    heard_on: Receiver<ThreadId>,
    in_ctx: Context,
    listener: Listener,
}

/// Both ends of a connection, each with a context of its own. `allow`: callbacks of the receiving end may run inside calls.
fn pair(allow: bool) -> Pair {
    let (out_ctx, in_ctx) = (context(), context());
    if allow {
        in_ctx.allow_callbacks_in_calls();
    }
    let out = ROut::new(&out_ctx);
    out.create_buffer(BUFFER, 1 << 20).unwrap();
    let listener = Listener::bind(&out_ctx, "127.0.0.1:0").unwrap();
    let (to, (accepted, conns)) = (out.clone(), mpsc::sync_channel(16));
    listener.set_conn_cb(move |conn| {
        to.add_conn(&conn);
        // The test wants the first connection.
        let _ = accepted.send(conn);
    });
    // Each message of the other end is sent back.
    out.set_control_msg_cb(|conn, message| conn.send_control(message).unwrap());
    let input = RIn::new(&Conn::connect(&in_ctx, &listener.local_addr(), b"").unwrap());
    let (tell, heard_on) = mpsc::sync_channel(1024);
    input.set_control_msg_cb(move |_, _| tell.send(thread::current().id()).unwrap());
    input.subscribe(BUFFER, 1 << 20).unwrap();
    assert!(matches!(input.recv(Some(WAIT)).unwrap(), Some(InEvent::Subscribed { .. })));
    let conn = conns.recv_timeout(WAIT).unwrap();
    Pair { out, conn, input, heard_on, in_ctx, listener }
}

fn context() -> Context {
    Context::new(Config::default()).unwrap()
}

fn publish(out: &ROut, bytes: &[u8]) {
    out.buffer(BUFFER).unwrap().writer().unwrap().append_blocking(&[bytes], Some(WAIT)).unwrap();
}

fn expect(input: &RIn, bytes: &[u8]) {
    let Some(InEvent::Data(view)) = input.recv(Some(WAIT)).unwrap() else { panic!("no data came") };
    assert_eq!(view.as_slice(), Some(bytes));
    view.consume();
}

/// Waits for data that comes a moment later, each time with a control message before the data. Returns the threads that ran
/// the callback of the control messages.
fn threads_that_hear(pair: &Pair, times: u32) -> Vec<ThreadId> {
    for n in 0..times {
        let (out, bytes) = (pair.out.clone(), n.to_le_bytes());
        pair.input.send_control(b"come back").unwrap();
        let later = thread::spawn(move || {
            thread::sleep(Duration::from_millis(3));
            publish(&out, &bytes);
        });
        expect(&pair.input, &n.to_le_bytes());
        later.join().unwrap();
    }
    (0..times).map(|_| pair.heard_on.recv_timeout(WAIT).unwrap()).collect()
}

#[test]
fn callbacks_run_inside_calls_where_that_is_allowed() {
    let pair = pair(true);
    let heard = threads_that_hear(&pair, 50);
    assert!(heard.contains(&thread::current().id()), "the thread that waits did nothing");
}

#[test]
fn callbacks_run_on_workers_only_by_default() {
    let pair = pair(false);
    let heard = threads_that_hear(&pair, 50);
    assert!(!heard.contains(&thread::current().id()));
}

/// After a waiting thread has returned, the worker's own thread does the work.
#[test]
fn a_worker_works_after_a_wait_in_a_call() {
    let pair = pair(true);
    for n in 0..20_u8 {
        publish(&pair.out, &[n]);
        expect(&pair.input, &[n]);
        // No thread waits in a call now. The control message must reach the callback nevertheless.
        pair.conn.send_control(&[n]).unwrap();
        pair.heard_on.recv_timeout(WAIT).unwrap();
    }
}

/// Several threads that wait for one worker all get their data, while threads come and go.
#[test]
fn threads_that_share_a_worker_all_get_their_data() {
    const EACH: u32 = 300;
    let out_ctx = context();
    let out = ROut::new(&out_ctx);
    let listener = Listener::bind(&out_ctx, "127.0.0.1:0").unwrap();
    let to = out.clone();
    listener.set_conn_cb(move |conn| to.add_conn(&conn));
    let in_ctx = context();
    let readers: Vec<_> = (0..3_u32)
        .map(|bid| {
            out.create_buffer(bid, 1 << 16).unwrap();
            let input = RIn::new(&Conn::connect(&in_ctx, &listener.local_addr(), b"").unwrap());
            input.subscribe(bid, 1 << 16).unwrap();
            assert!(matches!(input.recv(Some(WAIT)).unwrap(), Some(InEvent::Subscribed { .. })));
            thread::spawn(move || {
                let (mut got, until) = (0, Instant::now() + WAIT);
                while got < EACH * 4 && Instant::now() < until {
                    // Some threads have short waits and some long ones.
                    let wait = Duration::from_micros(50 << (4 * bid));
                    if let Some(InEvent::Data(view)) = input.recv(Some(wait)).unwrap() {
                        got += view.len() as u32;
                        view.consume();
                    }
                }
                got
            })
        })
        .collect();
    let writers: Vec<_> = (0..3_u32)
        .map(|bid| {
            let mut writer = out.buffer(bid).unwrap().writer().unwrap();
            thread::spawn(move || {
                for n in 0..EACH {
                    writer.append_blocking(&[&n.to_le_bytes()], Some(WAIT)).unwrap();
                    if n % 16 == bid {
                        thread::sleep(Duration::from_micros(200));
                    }
                }
                writer
            })
        })
        .collect();
    let _writers: Vec<_> = writers.into_iter().map(|writer| writer.join().unwrap()).collect();
    for reader in readers {
        assert_eq!(reader.join().unwrap(), EACH * 4);
    }
}

/// A waiting thread learns that its connection is lost, also while it does the worker's work.
#[test]
fn the_end_of_the_connection_ends_a_wait() {
    let pair = pair(true);
    let conn = pair.input.conn();
    let input = pair.input.clone();
    let waiting = thread::spawn(move || {
        let mut events = Vec::new();
        while let Some(event) = input.recv(Some(WAIT)).unwrap() {
            let down = matches!(event, InEvent::ConnDown { .. });
            events.push(event);
            if down {
                break;
            }
        }
        events
    });
    thread::sleep(Duration::from_millis(50));
    conn.close("enough");
    assert!(waiting.join().unwrap().iter().any(|event| matches!(event, InEvent::ConnDown { .. })));
}

/// A subscription continues over a connection of another worker while a thread does the first worker's work: that thread is
/// woken.
#[test]
fn events_of_another_connection_wake_the_thread_that_drives_the_first() {
    let out_ctx = context();
    let mut config = Config::default();
    config.tcp.tcp_num_threads = 2;
    config.session.heartbeat_ms = 0;
    let in_ctx = Context::new(config).unwrap();
    let out = ROut::new(&out_ctx);
    out.create_buffer(BUFFER, 1 << 20).unwrap();
    let listener = Listener::bind(&out_ctx, "127.0.0.1:0").unwrap();
    let to = out.clone();
    listener.set_conn_cb(move |conn| to.add_conn(&conn));
    let connect = || Conn::connect(&in_ctx, &listener.local_addr(), b"").unwrap();
    let input = RIn::new(&connect());
    input.subscribe(BUFFER, 1 << 20).unwrap();
    assert!(matches!(input.recv(Some(WAIT)).unwrap(), Some(InEvent::Subscribed { .. })));
    let reader = input.clone();
    let (tell, told) = mpsc::sync_channel(1);
    let reading = thread::spawn(move || {
        let received = reader.recv(None).unwrap();
        assert!(matches!(received, Some(InEvent::Data(view)) if view.as_slice() == Some(b"there")));
        tell.send(()).unwrap();
    });
    thread::sleep(Duration::from_millis(50));
    input.resume(&connect());
    // Until the first worker has no connection and sleeps for an hour.
    thread::sleep(Duration::from_millis(1500));
    publish(&out, b"there");
    told.recv_timeout(WAIT).expect("the thread was not woken");
    reading.join().unwrap();
}

/// A thread that waits for data that never comes, and does the work of the only worker of its context. The sender sends each
/// control message back.
fn waiting() -> (Context, Listener, RIn, thread::JoinHandle<()>) {
    let mut config = Config::default();
    config.tcp.tcp_num_threads = 1;
    let (out_ctx, in_ctx) = (context(), Context::new(config).unwrap());
    let out = ROut::new(&out_ctx);
    out.create_buffer(BUFFER, 1 << 20).unwrap();
    out.set_control_msg_cb(|conn, message| conn.send_control(message).unwrap());
    let listener = Listener::bind(&out_ctx, "127.0.0.1:0").unwrap();
    listener.set_conn_cb(move |conn| out.add_conn(&conn));
    let input = RIn::new(&Conn::connect(&in_ctx, &listener.local_addr(), b"").unwrap());
    input.subscribe(BUFFER, 1 << 20).unwrap();
    assert!(matches!(input.recv(Some(WAIT)).unwrap(), Some(InEvent::Subscribed { .. })));
    let waits = input.clone();
    let waiting =
        thread::spawn(move || while !matches!(waits.recv(None), Ok(Some(InEvent::ConnDown { .. }))) {});
    thread::sleep(Duration::from_millis(50));
    (in_ctx, listener, input, waiting)
}

/// A callback that is set while a thread does the worker's work is none that it was made for.
#[test]
fn callbacks_that_are_set_during_a_wait_run_on_workers() {
    let (in_ctx, listener, input, waiting) = waiting();
    let other = RIn::new(&Conn::connect(&in_ctx, &listener.local_addr(), b"").unwrap());
    let (tell, heard_on) = mpsc::sync_channel(16);
    other.set_control_msg_cb(move |_, _| tell.send(thread::current().id()).unwrap());
    for _ in 0..20 {
        other.send_control(b"come back").unwrap();
        assert_ne!(heard_on.recv_timeout(WAIT).unwrap(), waiting.thread().id());
    }
    input.conn().close("enough");
    waiting.join().unwrap();
}

#[test]
fn foreign_connections_are_reported_on_workers() {
    let (in_ctx, _listener, input, waiting) = waiting();
    let own = Listener::bind(&in_ctx, "127.0.0.1:0").unwrap();
    let (tell, heard_on) = mpsc::sync_channel(16);
    own.set_foreign_conn_cb(move |_| tell.send(thread::current().id()).unwrap());
    for _ in 0..20 {
        let mut foreign = TcpStream::connect(own.local_addr()).unwrap();
        foreign.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
        assert_ne!(heard_on.recv_timeout(WAIT).unwrap(), waiting.thread().id());
    }
    input.conn().close("enough");
    waiting.join().unwrap();
}

/// A thread that does a worker's work does it for all rIns of the worker, and none between two calls. A subscription that may
/// lose data by that keeps the work on the worker's own thread.
#[test]
fn a_subscription_that_must_keep_up_is_left_to_the_worker() {
    let pair = pair(true);
    let other = RIn::new(&Conn::connect(&pair.in_ctx, &pair.listener.local_addr(), b"").unwrap());
    other.subscribe_with(BUFFER, SubscribeOptions::new().policy(Policy::Drop)).unwrap();
    assert!(matches!(other.recv(Some(WAIT)).unwrap(), Some(InEvent::Subscribed { .. })));
    let heard = threads_that_hear(&pair, 50);
    assert!(!heard.contains(&thread::current().id()));
}

/// A thread that waits for room for a large delivery does the worker's work: the callback for landed data runs on this thread,
/// if callbacks may run in calls.
#[test]
fn a_writer_that_waits_for_room_does_the_work() {
    const RING: usize = 64 << 10;
    for (allow, size, does) in [(true, RING / 4, true), (false, RING / 4, false), (true, 1 << 10, false)] {
        let (out_ctx, in_ctx) = (context(), context());
        if allow {
            out_ctx.allow_callbacks_in_calls();
        }
        let out = ROut::new(&out_ctx);
        out.create_buffer(BUFFER, RING as u64).unwrap();
        let (tell, heard_on) = mpsc::sync_channel(1024);
        out.set_data_out_cb(move |_, _| tell.send(thread::current().id()).unwrap());
        let listener = Listener::bind(&out_ctx, "127.0.0.1:0").unwrap();
        let to = out.clone();
        listener.set_conn_cb(move |conn| to.add_conn(&conn));
        let input = RIn::new(&Conn::connect(&in_ctx, &listener.local_addr(), b"").unwrap());
        input.subscribe(BUFFER, RING as u64).unwrap();
        assert!(matches!(input.recv(Some(WAIT)).unwrap(), Some(InEvent::Subscribed { .. })));
        let reader = thread::spawn(move || {
            while let Some(InEvent::Data(view)) = input.recv(Some(WAIT)).unwrap() {
                view.consume();
                // Slower than the writer, which therefore waits.
                thread::sleep(Duration::from_micros(100));
            }
        });
        let (mut here, begun) = (0, Instant::now());
        for n in 0.. {
            here += heard_on.try_iter().filter(|id| *id == thread::current().id()).count();
            // On a busy machine the worker's own thread may be first for a long time.
            if n >= 16 * RING / size && (!does || here > 0 || begun.elapsed() > WAIT) {
                break;
            }
            let segment = out.buffer(BUFFER).unwrap().segment(size as u64, Some(WAIT)).unwrap();
            out.deliver(segment, size as u64, Some(n as u64)).unwrap();
        }
        out.buffer(BUFFER).map_or(Ok(()), |buffer| buffer.drain(Some(WAIT))).unwrap();
        out_ctx.shutdown(WAIT);
        reader.join().unwrap();
        assert_eq!(here > 0, does, "{here} heard by the thread that waits for {size} bytes");
    }
}
