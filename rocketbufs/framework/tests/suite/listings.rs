//! Listings 1 to 3 of paper 1: the calls read as they do there.

use std::sync::mpsc;
use std::time::Duration;

use rocketbufs::{Bid, BufSeg, Config, Conn, Context, Listener, OutBuffer, RIn, ROut, Subscription};

const WAIT: Duration = Duration::from_secs(60);
const SIZE: u64 = 1 << 16;

/// Listing 1, and the methods of Listing 2: a producer, a consumer by callback, and the completion of a delivery.
#[test]
fn a_producer_and_a_consumer() {
    let ctx = Context::new(Config::default()).unwrap();
    let listener = Listener::bind(&ctx, "127.0.0.1:0").unwrap();
    let out = ROut::new(&ctx);
    let subscribers = out.clone();
    listener.set_conn_cb(move |conn| subscribers.add_conn(&conn));
    let (tell, delivered) = mpsc::sync_channel(1);
    out.create_buffer(7, SIZE).unwrap();
    out.set_data_out_cb(move |bid, context| tell.send((bid, context)).unwrap());

    let input = RIn::new(&Conn::connect(&ctx, &listener.local_addr(), b"").unwrap());
    let (tell, received) = mpsc::sync_channel(1);
    input.set_data_in_cb(move |bid: Bid, seg: &BufSeg<'_>| {
        assert_eq!(seg.vec_count(), 1);
        tell.send((bid, seg.vecs()[0].to_vec())).unwrap();
    });
    input.subscribe(7, SIZE).unwrap();
    while out.buffer(7).unwrap().subscriber_count() == 0 {
        std::thread::sleep(Duration::from_millis(1));
    }

    let mut segs = out.get_output_segment(7, 100, true).unwrap();
    segs.bytes_mut()[..5].copy_from_slice(b"hello");
    out.deliver(segs, 5, Some(99)).unwrap();
    assert_eq!(received.recv_timeout(WAIT).unwrap(), (7, b"hello".to_vec()));
    assert_eq!(input.get_buf_ref(7).unwrap().to_vec().unwrap(), b"hello");
    input.data_consumed(7, 5).unwrap();
    assert!(input.get_buf_ref(7).unwrap().is_empty());
    assert_eq!(delivered.recv_timeout(WAIT).unwrap(), (7, 99));
}

/// Listing 3: a broker.
#[test]
fn a_broker() {
    let ctx = Context::new(Config::default()).unwrap();
    // Listen for connections (from publishers and subscribers).
    let listener = Listener::bind(&ctx, "127.0.0.1:0").unwrap();
    let out = ROut::new(&ctx); // Dissemination object.
    listener.set_conn_cb(move |conn| on_conn(&conn, &out));
    let addr = listener.local_addr();

    let (publisher, source) = (Context::new(Config::default()).unwrap(), b"publisher");
    let topic = ROut::new(&publisher);
    topic.create_buffer(3, SIZE).unwrap();
    let conn = Conn::connect(&publisher, &addr, source).unwrap();
    topic.add_conn(&conn);
    topic.send_control(&conn, &3_u32.to_le_bytes()).unwrap();
    while topic.buffer(3).unwrap().subscriber_count() == 0 {
        std::thread::sleep(Duration::from_millis(1));
    }

    let subscriber = RIn::new(&Conn::connect(&ctx, &addr, b"subscriber").unwrap());
    let (tell, received) = mpsc::sync_channel(1);
    subscriber.set_data_in_cb(move |bid, data| tell.send((bid, data.vecs()[0].to_vec())).unwrap());
    let subscription = subscriber.subscribe(3, SIZE).unwrap();
    while subscription.position().is_none() {
        std::thread::sleep(Duration::from_millis(1));
    }
    let mut segs = topic.get_output_segment(3, 4, true).unwrap();
    segs.bytes_mut().copy_from_slice(b"news");
    topic.deliver(segs, 4, None).unwrap();
    assert_eq!(received.recv_timeout(WAIT).unwrap(), (3, b"news".to_vec()));
}

/// Callback for handling new connections.
fn on_conn(conn: &Conn, out: &ROut) {
    if conn.peer_hello() == b"publisher" {
        let input = RIn::new(conn);
        let out = out.clone();
        // Set callback to handle control messages.
        input.set_control_msg_cb(move |input, msg| on_ctrl_msg(input, msg, &out));
    } else {
        // Add subscriber connections.
        out.add_conn(conn);
    }
}

/// Callback for handling control messages.
fn on_ctrl_msg(input: &RIn, msg: &[u8], out: &ROut) {
    let bid = Bid::from_le_bytes(msg.try_into().unwrap());
    input.subscribe(bid, SIZE).unwrap(); // Subscribe to publisher.
    out.splice(input, bid).unwrap(); // Deliver data to subscribers.
}

#[test]
fn every_handle_can_be_used_by_any_thread() {
    fn shared<T: Send + Sync>() {}
    shared::<(Context, Listener, Conn)>();
    shared::<(ROut, OutBuffer, rocketbufs::OutWriter)>();
    shared::<(RIn, Subscription, rocketbufs::InReader)>();
    shared::<rocketbufs::InView>();
}
