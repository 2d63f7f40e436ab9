//! Notices for a writer that must not wait: room for a delivery, and progress of its subscribers.

use std::sync::mpsc;
use std::time::Duration;

use rocketbufs::{
    BufferOptions, Config, Conn, Context, InEvent, Listener, OutEvent, Progress, ProgressLevel, RIn, ROut,
    SegmentError,
};

const WAIT: Duration = Duration::from_secs(60);
const BID: u32 = 7;

/// A buffer of 64 KiB, a subscriber of it, and the ids of buffers whose progress callback ran.
fn joined() -> (ROut, Listener, RIn, mpsc::Receiver<u32>) {
    let ctx = Context::new(Config::default()).unwrap();
    let out = ROut::new(&ctx);
    let (told, progress) = mpsc::sync_channel(16);
    out.set_event_cb(move |event| {
        if let OutEvent::Progress { bid } = event {
            told.send(bid).unwrap();
        }
    });
    let options = BufferOptions::new().size_bytes(64 << 10).max_delivery_bytes(Some(1 << 10));
    out.create_buffer_with(BID, options).unwrap();
    let listener = Listener::bind(&ctx, "127.0.0.1:0").unwrap();
    let to = out.clone();
    listener.set_conn_cb(move |conn| to.add_conn(&conn));
    let input = RIn::new(&Conn::connect(&ctx, &listener.local_addr(), b"test").unwrap());
    input.subscribe(BID, 64 << 10).unwrap();
    assert!(matches!(input.recv(Some(WAIT)).unwrap(), Some(InEvent::Subscribed { .. })));
    (out, listener, input, progress)
}

#[test]
fn room_is_reported_when_a_subscriber_releases_bytes() {
    let (out, _listener, input, progress) = joined();
    let mut writer = out.buffer(BID).unwrap().writer().unwrap();
    for _ in 0..20 {
        // Data that lands makes room, so the next delivery may fit again.
        let full = std::iter::repeat_with(|| writer.append(&[&[7; 1000]])).find_map(Result::err);
        assert_eq!(full, Some(SegmentError::Full));
        out.buffer(BID).unwrap().notify_progress(Progress::Room);
        while writer.append(&[&[7; 1000]]) == Err(SegmentError::Full) {
            // A full ring of the subscriber lets no more data come.
            if progress.try_recv().is_ok() {
                continue;
            }
            if let Some(InEvent::Data(view)) = input.recv(Some(Duration::from_millis(1))).unwrap() {
                view.consume();
            }
        }
    }
}

#[test]
fn progress_is_reported_when_data_is_released() {
    let (out, _listener, input, progress) = joined();
    let mut writer = out.buffer(BID).unwrap().writer().unwrap();
    let end = writer.append(&[&[7; 1000]]).unwrap();
    out.buffer(BID).unwrap().notify_progress(Progress::Consumed(end));
    let Some(InEvent::Data(view)) = input.recv(Some(WAIT)).unwrap() else { panic!("nothing came") };
    out.buffer(BID).unwrap().wait(ProgressLevel::Landed, end, Some(WAIT)).unwrap();
    assert!(progress.try_recv().is_err());
    view.consume();
    assert_eq!(progress.recv_timeout(WAIT), Ok(BID));
    let confirmed = out.buffer(BID).unwrap().confirmed();
    assert_eq!((confirmed.landed, confirmed.consumed), (end, end));
    // A notice of progress that was already reached comes too, once.
    out.buffer(BID).unwrap().notify_progress(Progress::Consumed(end));
    assert_eq!(progress.recv_timeout(WAIT), Ok(BID));
    out.buffer(BID).unwrap().notify_progress(Progress::Consumed(end + 1));
    out.destroy_buffer(BID).unwrap();
    assert_eq!(progress.recv_timeout(WAIT), Ok(BID));
}

#[test]
fn a_subscriber_that_leaves_makes_room() {
    let (out, _listener, input, progress) = joined();
    let mut writer = out.buffer(BID).unwrap().writer().unwrap();
    let deadline = std::time::Instant::now() + WAIT;
    // Until nothing leaves any more.
    while writer.append(&[&[7; 1000]]).is_ok() || out.buffer(BID).unwrap().subscribers()[0].sent < 30_000 {
        assert!(std::time::Instant::now() < deadline);
    }
    out.buffer(BID).unwrap().notify_progress(Progress::Room);
    input.unsubscribe(BID);
    assert_eq!(progress.recv_timeout(WAIT), Ok(BID));
    assert!(writer.append(&[&[7; 1000]]).is_ok());
}
