//! Tasks of tokio: events as streams, room without a thread, and calls that are dropped while they wait.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Poll, Wake, Waker};
use std::time::Duration;

use rocketbufs::{
    Bid, Config, Conn, ConnEvent, Context, EventStream, InEvent, Listener, OutBuffer, RIn, ROut, SegmentError,
};

const SIZE: u64 = 1 << 16;
const LIMIT: Duration = Duration::from_secs(60);

fn run<T>(test: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async { tokio::time::timeout(LIMIT, test).await.expect("the test hangs") })
}

struct Pair {
    out: ROut,
    buffer: OutBuffer,
    events: EventStream<RIn>,
    _listener: Listener,
    _context: Context,
}

/// A buffer and a subscription to it, in one process.
async fn pair(bid: Bid) -> Pair {
    let context = Context::new(Config::default()).unwrap();
    let listener = Listener::bind(&context, "127.0.0.1:0").unwrap();
    let out = ROut::new(&context);
    let buffer = out.create_buffer(bid, SIZE).unwrap();
    let conns = out.clone();
    listener.set_conn_cb(move |conn| conns.add_conn(&conn));
    let conn = Conn::connect_async(&context, &listener.local_addr(), b"").await.unwrap();
    let input = RIn::new(&conn);
    input.subscribe(bid, SIZE).unwrap();
    let mut events = EventStream::new(input).unwrap();
    assert!(matches!(events.recv().await.unwrap(), Some(InEvent::Subscribed { .. })));
    Pair { out, buffer, events, _listener: listener, _context: context }
}

/// A writer that is faster than its reader: both are tasks of one thread, and every byte arrives in order.
#[test]
fn a_writer_waits_for_room_without_a_thread() {
    run(async {
        let mut pair = pair(1).await;
        let mut writer = pair.buffer.writer().unwrap();
        let writing = tokio::spawn(async move {
            for n in 0..20_000_u64 {
                writer.append_async(&[&n.to_le_bytes()]).await.unwrap();
            }
            writer.buffer().destroy();
        });
        let mut next = 0;
        loop {
            match pair.events.recv().await.unwrap().unwrap() {
                InEvent::Data(view) => {
                    for number in view.to_vec().unwrap().chunks(8) {
                        assert_eq!(number, u64::to_le_bytes(next));
                        next += 1;
                    }
                    view.consume();
                }
                InEvent::Closed { .. } => break,
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(next, 20_000);
        writing.await.unwrap();
    });
}

struct Wakes(AtomicUsize);

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// A dropped call has claimed nothing, and its task is not woken later. The others are.
#[test]
fn a_call_that_is_dropped_claims_nothing() {
    run(async {
        let mut pair = pair(1).await;
        let mut full = Vec::new();
        while let Ok(segment) = pair.buffer.segment(1 << 12, Some(Duration::ZERO)) {
            full.push(pair.buffer.deliver(segment, 1 << 12, None).unwrap());
        }
        let (dropped, kept) = (Arc::new(Wakes(0.into())), Arc::new(Wakes(0.into())));
        let polled = |wakes: &Arc<Wakes>, call: &mut (dyn Future<Output = _> + Unpin)| {
            let waker = Waker::from(wakes.clone());
            std::pin::Pin::new(call).poll(&mut std::task::Context::from_waker(&waker))
        };
        let mut first = Box::pin(pair.buffer.segment_async(1 << 12));
        let mut second = Box::pin(pair.buffer.segment_async(1 << 12));
        assert!(polled(&dropped, &mut first).is_pending() && polled(&kept, &mut second).is_pending());
        drop(first);
        while !full.is_empty() {
            let Some(InEvent::Data(view)) = pair.events.recv().await.unwrap() else { panic!("no data") };
            full.retain(|end| *end > view.end());
            view.consume();
        }
        while kept.0.load(Ordering::SeqCst) == 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        assert_eq!(dropped.0.load(Ordering::SeqCst), 0);
        let Poll::Ready(segment) = polled(&kept, &mut second) else { panic!("there is room") };
        pair.buffer.deliver(segment.unwrap(), 8, None).unwrap();
    });
}

/// The end of a buffer ends the waiting for its room.
#[test]
fn the_end_of_a_buffer_wakes_its_writer() {
    run(async {
        let pair = pair(1).await;
        let buffer = pair.buffer.clone();
        while buffer.segment(1 << 12, Some(Duration::ZERO)).is_ok_and(|segment| {
            buffer.deliver(segment, 1 << 12, None).unwrap();
            true
        }) {}
        let waiting = tokio::spawn(async move { buffer.segment_async(1 << 12).await.map(drop) });
        tokio::task::yield_now().await;
        pair.buffer.destroy();
        assert!(matches!(waiting.await.unwrap(), Err(SegmentError::Closed)));
        drop(pair.out);
    });
}

/// An event stays in its queue when the call that waits for it is dropped.
#[test]
fn a_receiving_call_that_is_dropped_takes_no_event() {
    run(async {
        let mut pair = pair(1).await;
        let mut writer = pair.buffer.writer().unwrap();
        for n in 0..500_u64 {
            let dropped = tokio::time::timeout(Duration::ZERO, pair.events.recv()).await;
            let early = match dropped {
                Ok(event) => event.unwrap(),
                Err(_) => None,
            };
            assert!(early.is_none(), "nothing was written");
            writer.append(&[&n.to_le_bytes()]).unwrap();
            let mut event = None;
            while event.is_none() {
                // Dropped at any moment around the arrival.
                event = tokio::time::timeout(Duration::from_micros(n % 50), pair.events.recv())
                    .await
                    .map_or(None, Result::unwrap);
            }
            let Some(InEvent::Data(view)) = event else { panic!("{event:?}") };
            assert_eq!(view.to_vec().unwrap(), n.to_le_bytes());
        }
    });
}

/// A task may connect, and learn that there is nothing to connect to, or that a connection is lost.
#[test]
fn connections_are_events_too() {
    run(async {
        let context = Context::new(Config::default()).unwrap();
        let listener = Listener::bind(&context, "127.0.0.1:0").unwrap();
        let addr = listener.local_addr();
        let mut conns = EventStream::new(listener).unwrap();
        let out = ROut::new(&context);
        let accepting = tokio::spawn(async move {
            let conn = conns.recv().await.unwrap().unwrap();
            out.add_conn(&conn);
            conn
        });
        let conn = Conn::connect_async(&context, &addr, b"").await.unwrap();
        let _input = RIn::new(&conn);
        let mut events = EventStream::new(conn).unwrap();
        assert_eq!(events.recv().await.unwrap(), Some(ConnEvent::Up));
        accepting.await.unwrap().close("done");
        assert!(matches!(events.recv().await.unwrap(), Some(ConnEvent::Down { .. })));
        assert!(Conn::connect_async(&context, "127.0.0.1:1", b"").await.is_err());
    });
}

/// Outside of a runtime there is an error and no panic.
#[test]
fn a_stream_needs_a_runtime() {
    let context = Context::new(Config::default()).unwrap();
    let error = EventStream::new(ROut::new(&context)).unwrap_err();
    assert!(error.to_string().contains("reactor"), "{error}");
}
