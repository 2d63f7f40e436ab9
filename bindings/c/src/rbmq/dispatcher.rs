//! The thread that hands the messages of a subscriber to a callback.

use std::ffi::c_void;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use rbmq::{Interrupter, Subscriber};

use crate::raw::CallbackContext;
use crate::rbmq::received::rbmq_message;
use crate::status::rb_status::{RB_END, RB_ERR_BUG, RB_ERR_CALLED_FROM_CALLBACK, RB_OK};
use crate::status::{Failure, rb_status};

/// A callback for the messages of a subscriber: `status` is `RB_OK`, and `message` is valid until the callback returns; or `message` is NULL,
/// and `status` is what `rbmq_subscriber_recv` would have returned, with its text in `rb_last_error`.
pub type rbmq_message_fn =
    Option<extern "C" fn(ctx: *mut c_void, status: rb_status, message: *const rbmq_message)>;

/// A callback, and what it is called with.
pub(crate) struct MessageCallback {
    pub(crate) callback: extern "C" fn(*mut c_void, rb_status, *const rbmq_message),
    pub(crate) ctx: CallbackContext,
}

/// A thread that has the subscriber.
pub(crate) struct Dispatcher {
    /// Whether the thread was told to end. The subscriber's lock orders it, and the join.
    told: Arc<AtomicBool>,
    interrupter: Interrupter,
    thread: JoinHandle<Box<Subscriber>>,
}

impl Dispatcher {
    /// Starts the thread. Gives the subscriber back if the system refuses one.
    pub(crate) fn start(
        subscriber: Box<Subscriber>,
        callback: MessageCallback,
    ) -> Result<Self, (Box<Subscriber>, io::Error)> {
        let (told, interrupter) = (Arc::new(AtomicBool::new(false)), subscriber.interrupter());
        let (hand_over, handed) = std::sync::mpsc::sync_channel(1);
        let seen = told.clone();
        let run = move || match handed.recv() {
            Ok(subscriber) => dispatch(subscriber, &callback, &seen),
            Err(_) => unreachable!("the sender hands the subscriber over"),
        };
        match threads::spawn("rbmq-callback", run) {
            Ok(thread) => {
                // The thread waits for it, and the channel has room.
                let _ = hand_over.send(subscriber);
                Ok(Self { told, interrupter, thread })
            }
            Err(error) => Err((subscriber, error)),
        }
    }

    /// Tells the thread to end, when the callback that runs has returned.
    pub(crate) fn tell(&self) {
        self.told.store(true, Ordering::Relaxed);
        self.interrupter.dismiss();
    }

    pub(crate) fn is_told(&self) -> bool {
        self.told.load(Ordering::Relaxed) && !self.runs_here()
    }

    /// Whether this is called in the callback.
    pub(crate) fn runs_here(&self) -> bool {
        self.thread.thread().id() == std::thread::current().id()
    }

    /// Waits for the end of the thread, which was told to end, and takes the subscriber. In the callback itself, the thread drops the subscriber.
    pub(crate) fn join(self) -> Result<Box<Subscriber>, Failure> {
        if self.runs_here() {
            return Err(Failure::outcome(RB_ERR_CALLED_FROM_CALLBACK));
        }
        let subscriber = self.thread.join().map_err(|_| panicked())?;
        self.interrupter.readmit();
        Ok(subscriber)
    }
}

/// The subscriber of a thread that panicked is gone.
pub(crate) fn panicked() -> Failure {
    Failure::new(RB_ERR_BUG, "the thread of the callback panicked; this is a bug of the library")
}

/// Hands over messages until the thread is told to end, or no further one can come.
fn dispatch(mut subscriber: Box<Subscriber>, to: &MessageCallback, told: &AtomicBool) -> Box<Subscriber> {
    let call = |status, message| (to.callback)(to.ctx.pointer(), status, message);
    while !told.load(Ordering::Relaxed) {
        match subscriber.recv_ref(None) {
            Ok(Some(message)) => {
                let message = rbmq_message::of(&message);
                call(RB_OK, &raw const message);
            }
            // Without a limit, nothing comes only when every topic has ended, or the thread was told to end.
            Ok(None) if told.load(Ordering::Relaxed) => {}
            Ok(None) => {
                call(RB_END, std::ptr::null());
                break;
            }
            Err(error) => {
                let is_final = error.is_final();
                call(Failure::from(error).status(), std::ptr::null());
                if is_final {
                    break;
                }
            }
        }
    }
    subscriber
}
