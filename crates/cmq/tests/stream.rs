//! Async code, with the smallest runtime there is.

use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::Duration;

use cmq::{Cmq, Config, MessageStream, new_rq_with};
use futures_core::Stream;

/// Wakes a thread.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// The next of a stream; the thread sleeps until it is there.
fn next(stream: MessageStream<'_, u32>) -> u32 {
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut stream = pin!(stream);
    loop {
        match stream.as_mut().poll_next(&mut Context::from_waker(&waker)) {
            Poll::Ready(message) => return message.expect("it has no end").0,
            // Bounded, so that a lost wake-up is a failure and not a test that hangs.
            Poll::Pending => std::thread::park_timeout(Duration::from_secs(20)),
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
    assert_eq!(receiver.pop_timeout(Duration::from_secs(20)).expect("loopback").0, 1);
    sender.cw_push((to, 0), &2).expect("room");
    assert_eq!(next(receiver.stream()), 2);
}
