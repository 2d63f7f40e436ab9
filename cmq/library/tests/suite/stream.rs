//! Async code on a minimal runtime.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::{Duration, Instant};

use cmq::{Cmq, Config, Fate, Key, MessageStream, Reliable, new_raw_rq, new_rq_with};
use futures_core::Stream;
use testkit::LONG;

/// A waker that unparks a thread.
struct Unpark {
    thread: Thread,
    woken: AtomicBool,
}

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.woken.store(true, Ordering::SeqCst);
        self.thread.unpark();
    }
}

impl Unpark {
    /// Sleeps until a wake-up. Without one the test fails: the wake-up was lost.
    fn sleep(&self) {
        let until = Instant::now() + LONG;
        while !self.woken.swap(false, Ordering::SeqCst) {
            let left = until.saturating_duration_since(Instant::now());
            assert!(!left.is_zero(), "the wake-up was lost");
            std::thread::park_timeout(left);
        }
    }
}

/// The next message of a stream; the thread sleeps until then.
fn next(stream: MessageStream<'_, u32>) -> u32 {
    let unpark = Arc::new(Unpark { thread: std::thread::current(), woken: AtomicBool::new(false) });
    let waker = Waker::from(Arc::clone(&unpark));
    let mut stream = pin!(stream);
    loop {
        match stream.as_mut().poll_next(&mut Context::from_waker(&waker)) {
            Poll::Ready(message) => return message.expect("the stream has no end").0,
            Poll::Pending => unpark.sleep(),
        }
    }
}

#[test]
fn tasks_are_woken() {
    let receiver: Cmq<u32> = new_rq_with("127.0.0.1:0", Config::default()).expect("a queue");
    let mailbox = receiver.mailbox(9);
    let sender: Cmq<u32> = new_rq_with("127.0.0.1:0", Config::immediate()).expect("a queue");
    let to = receiver.local_addr();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for number in 0..100 {
                std::thread::sleep(Duration::from_millis(u64::from(number % 3)));
                sender.cw_push((to, number % 2 * 9), &number).expect("room");
            }
        });
        scope.spawn(|| (0..50).for_each(|n| assert_eq!(next(mailbox.stream()), 2 * n + 1)));
        (0..50).for_each(|n| assert_eq!(next(receiver.stream()), 2 * n));
    });
    // A pop that waits and a task may take turns.
    sender.cw_push((to, 0), &1).expect("room");
    assert_eq!(receiver.pop_timeout(LONG).expect("loopback").0, 1);
    sender.cw_push((to, 0), &2).expect("room");
    assert_eq!(next(receiver.stream()), 2);
}

/// Messages that wait for room in a mailbox are there when a task finds the mailbox empty, without a timer.
#[test]
fn an_empty_mailbox_is_refilled_at_once() {
    let reliable = Config::default().reliable(Some(Reliable::default()));
    let receiver = new_raw_rq("127.0.0.1:0", reliable.clone().mailbox_messages(10)).expect("a queue");
    let sender = new_raw_rq("127.0.0.1:0", reliable).expect("a queue");
    let key = Key::new(receiver.local_addr(), 0);
    for number in 0..500_u32 {
        sender.push_reliable_bytes(key, &number.to_le_bytes()).expect("room");
    }
    // Confirmed messages are at the receiving queue.
    assert_eq!(sender.wait_confirmed(key, 499, Some(LONG)), Some(Fate::Confirmed));
    let (mut stream, mut waited, until) = (pin!(receiver.stream()), 0, Instant::now() + LONG);
    for number in 0..500_u32 {
        let mut waits = false;
        let message = loop {
            match stream.as_mut().poll_next(&mut Context::from_waker(Waker::noop())) {
                Poll::Ready(message) => break message.expect("the stream has no end").0,
                Poll::Pending => std::thread::sleep(Duration::from_millis(1)),
            }
            waits = true;
            assert!(Instant::now() < until, "message {number} does not come");
        };
        assert_eq!(message, number.to_le_bytes()[..]);
        waited += u32::from(waits);
    }
    // The background thread may hold a lock at times, and for long on a busy machine.
    assert!(waited < 20, "{waited} of 49 refills waited");
}
