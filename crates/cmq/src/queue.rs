//! The paper's calls, and what Rust users expect beside them.

use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use bytes::Bytes;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::codec::{self, Codec, Encode};
use crate::config::Config;
use crate::error::{OpenError, PushError};
use crate::event::{Event, Sender, Stats};
use crate::io::engine::Engine;
use crate::io::mailbox::{Popped, Queue};
use crate::io::socket::Socket;
use crate::key::{Key, canonical};
use crate::multicast::Multicast;
use crate::proto::receiver::Account;
#[cfg(feature = "stream")]
use crate::stream::MessageStream;

/// Makes a queue with [`Config::default`] at a local address (paper, `newRq`). Port 0 takes any that is free.
///
/// # Errors
/// [`OpenError`]: the address cannot be taken, or the system refuses.
///
/// # Examples
/// ```
/// let receiver = cmq::new_rq::<(u8, String)>("127.0.0.1:0")?;
/// let sender = cmq::new_rq_with::<(u8, String)>("127.0.0.1:0", cmq::Config::immediate())?;
/// sender.cw_push((receiver.local_addr(), 7), &(1, "hello".to_owned()))?;
/// let (message, from) = receiver.pop_timeout(std::time::Duration::from_secs(10)).expect("loopback");
/// assert_eq!(message, (1, "hello".to_owned()));
/// assert_eq!((from.addr, from.id), (sender.local_addr(), 7));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn new_rq<T>(addr: impl ToSocketAddrs) -> Result<Cmq<T>, OpenError>
where
    T: Serialize + DeserializeOwned + Send + 'static,
{
    new_rq_with(addr, Config::default())
}

/// As [`new_rq`], with settings.
///
/// # Errors
/// [`OpenError`].
pub fn new_rq_with<T>(addr: impl ToSocketAddrs, config: Config) -> Result<Cmq<T>, OpenError>
where
    T: Serialize + DeserializeOwned + Send + 'static,
{
    Cmq::open(addr, codec::serde(), config)
}

/// As [`new_rq_with`], for bytes that travel as they are.
///
/// Messages that came together share the memory that they came in, or a copy of it, which is freed with the last of them.
///
/// # Errors
/// [`OpenError`].
pub fn new_raw_rq(addr: impl ToSocketAddrs, config: Config) -> Result<Cmq<Bytes>, OpenError> {
    Cmq::open(addr, codec::raw(), config)
}

/// The engine, and its end.
struct Handle<T: Send + 'static> {
    engine: Arc<Engine<T>>,
    thread: Option<JoinHandle<()>>,
}

impl<T: Send + 'static> Drop for Handle<T> {
    fn drop(&mut self) {
        if let Some(thread) = self.thread.take() {
            self.engine.stop(thread);
        }
    }
}

/// A message queue at an address: pushes to others, and pops what others push here.
///
/// All calls may be made from any thread at the same time. When the queue and its mailboxes are dropped, what was pushed
/// leaves at once and the receivers are told how many messages there were.
pub struct Cmq<T: Send + 'static> {
    handle: Arc<Handle<T>>,
}

impl<T: Send + 'static> std::fmt::Debug for Cmq<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cmq").field("local_addr", &self.local_addr()).finish_non_exhaustive()
    }
}

impl<T: Send + 'static> Cmq<T> {
    fn open(addr: impl ToSocketAddrs, codec: Codec<T>, config: Config) -> Result<Cmq<T>, OpenError> {
        config.check()?;
        let mut error = OpenError::Bind(std::io::Error::other("the name has no address"));
        for addr in addr.to_socket_addrs().map_err(OpenError::Bind)? {
            match Socket::bind(addr, &config) {
                Ok(socket) => {
                    let (engine, thread) = Engine::start(socket, codec, config)?;
                    return Ok(Cmq { handle: Arc::new(Handle { engine, thread: Some(thread) }) });
                }
                Err(other) => error = other,
            }
        }
        Err(error)
    }

    fn engine(&self) -> &Engine<T> {
        &self.handle.engine
    }

    /// Queues a message for a key (paper, `cwPush`); it leaves with its batch. Never waits: neither for the network nor
    /// for the receiver. Whether it arrives is for the receiver to see ([`Event::Lost`]).
    ///
    /// # Errors
    /// [`PushError`]; nothing of the message is sent then.
    #[inline]
    pub fn cw_push(&self, key: impl Into<Key>, message: &T) -> Result<(), PushError> {
        let engine = self.engine();
        let key = key.into().canonical();
        match engine.codec.encode {
            Encode::Is(bytes) => engine.sending.push_bytes(key, bytes(message)),
            Encode::By(encode) => engine.sending.push(key, |out| encode(message, out)),
        }
    }

    /// The next message, if there is one (paper, `cwPop`): any message for a mailbox that was not opened with
    /// [`Cmq::mailbox`]. Never waits.
    #[inline]
    pub fn cw_pop(&self) -> Option<(T, Key)> {
        let receiving = &self.engine().receiving;
        receiving.pop(&receiving.common)
    }

    /// The next message, waiting for it.
    pub fn pop(&self) -> (T, Key) {
        let queue = &self.engine().receiving.common;
        self.engine().wait(queue, None, || queue.pop()).expect("without an end it ends with a message")
    }

    /// The next message, waiting at most so long for it.
    pub fn pop_timeout(&self, timeout: Duration) -> Option<(T, Key)> {
        let queue = &self.engine().receiving.common;
        self.engine().wait(queue, Some(timeout), || queue.pop())
    }

    /// Takes what came, waiting at most so long for it; whether there is something. It costs less than to pop one after the
    /// other, and what was taken is in no mailbox any more. What is still in `into` is left there, and nothing taken.
    ///
    /// # Examples
    /// ```
    /// # use std::time::Duration;
    /// # let queue = cmq::new_rq::<u32>("127.0.0.1:0")?;
    /// # queue.cw_push((queue.local_addr(), 0), &7)?;
    /// # queue.flush();
    /// let mut popped = cmq::Popped::default();
    /// while queue.pop_all(&mut popped, Duration::from_secs(10)) {
    ///     for (message, from) in &mut popped {
    ///         println!("{message} from {from}");
    ///     }
    ///     # break;
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn pop_all(&self, into: &mut Popped<T>, timeout: Duration) -> bool {
        self.engine().pop_all(&self.engine().receiving.common, into, timeout)
    }

    /// The oldest message that is wanted (a selective receive), if there is one; the others stay in their order. Never
    /// waits. It looks at every message before.
    pub fn pop_where(&self, mut wanted: impl FnMut(&T, &Key) -> bool) -> Option<(T, Key)> {
        let receiving = &self.engine().receiving;
        receiving.read_now();
        receiving.common.pop_where(&mut wanted)
    }

    /// As [`Cmq::pop_where`], waiting at most so long.
    pub fn pop_where_timeout(
        &self,
        timeout: Duration,
        mut wanted: impl FnMut(&T, &Key) -> bool,
    ) -> Option<(T, Key)> {
        let queue = &self.engine().receiving.common;
        self.engine().wait(queue, Some(timeout), || queue.pop_where(&mut wanted))
    }

    /// Messages as they come, waiting for each; it has no end.
    pub fn iter(&self) -> impl Iterator<Item = (T, Key)> + '_ {
        std::iter::from_fn(|| Some(self.pop()))
    }

    /// Messages that are there, without waiting.
    pub fn try_iter(&self) -> impl Iterator<Item = (T, Key)> + '_ {
        std::iter::from_fn(|| self.cw_pop())
    }

    /// Messages as they come, for async code; it has no end.
    #[cfg(feature = "stream")]
    pub fn stream(&self) -> MessageStream<'_, T> {
        MessageStream::new(&self.engine().receiving.common)
    }

    /// How many messages wait to be popped (from the common mailbox).
    pub fn waiting(&self) -> usize {
        self.engine().receiving.common.len()
    }

    /// A mailbox of its own for an integer: what comes for it from now on is popped there and not with
    /// [`Cmq::cw_pop`]. Opened twice it is the same mailbox.
    pub fn mailbox(&self, id: u32) -> Mailbox<T> {
        Mailbox { queue: self.engine().receiving.open(id), id, handle: Arc::clone(&self.handle) }
    }

    /// Joins multicast groups, and sets how it sends to them.
    pub fn multicast(&self) -> Multicast<'_> {
        Multicast { socket: &self.engine().socket }
    }

    /// Everything that was pushed leaves now.
    pub fn flush(&self) {
        self.engine().sending.flush();
    }

    /// Everything that was pushed leaves now, and the receivers of every key are told how many messages there were, so
    /// that they notice if the last ones are lost. What is pushed later begins new streams. Dropping does the same.
    pub fn finish(&self) {
        self.engine().sending.close();
    }

    /// What happened since the last call, one at a time.
    pub fn event(&self) -> Option<Event> {
        self.engine().events.pop()
    }

    /// What was counted.
    pub fn stats(&self) -> Stats {
        self.engine().stats()
    }

    /// Every sender's stream that is remembered, with what was counted for it.
    pub fn senders(&self) -> Vec<Sender> {
        self.engine().receiving.senders()
    }

    /// The streams of one sender: one for each of its lives, and for each address and group it sends to.
    pub fn sender(&self, from: SocketAddr) -> Vec<Sender> {
        self.engine().receiving.sender(canonical(from))
    }

    /// What `with` does with the account of an address, if something came from there.
    pub(crate) fn account<M>(&self, of: SocketAddr, with: impl FnOnce(&mut Account) -> M) -> Option<M> {
        self.engine().receiving.account(of, with)
    }

    /// The address of this queue.
    pub fn local_addr(&self) -> SocketAddr {
        self.engine().socket.local_addr()
    }

    /// The random name of this queue's life, which every datagram carries.
    pub fn epoch(&self) -> u64 {
        self.engine().epoch
    }
}

impl Cmq<Bytes> {
    /// As [`Cmq::cw_push`], for bytes that lie anywhere: they are copied into the batch.
    ///
    /// # Errors
    /// [`PushError`]; nothing of the message is sent then.
    #[inline]
    pub fn push_bytes(&self, key: impl Into<Key>, message: &[u8]) -> Result<(), PushError> {
        self.engine().sending.push_bytes(key.into().canonical(), message)
    }
}

/// The messages of one integer (paper: like Erlang's mailboxes). Made by [`Cmq::mailbox`]; keeps the queue alive.
pub struct Mailbox<T: Send + 'static> {
    queue: Arc<Queue<T>>,
    id: u32,
    handle: Arc<Handle<T>>,
}

impl<T: Send + 'static> std::fmt::Debug for Mailbox<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Mailbox").field("id", &self.id).finish_non_exhaustive()
    }
}

impl<T: Send + 'static> Mailbox<T> {
    /// The next message, if there is one. Never waits.
    #[inline]
    pub fn cw_pop(&self) -> Option<(T, Key)> {
        self.handle.engine.receiving.pop(&self.queue)
    }

    /// The next message, waiting at most so long for it.
    pub fn pop_timeout(&self, timeout: Duration) -> Option<(T, Key)> {
        self.handle.engine.wait(&self.queue, Some(timeout), || self.queue.pop())
    }

    /// Takes what came, waiting at most so long for it, as [`Cmq::pop_all`].
    pub fn pop_all(&self, into: &mut Popped<T>, timeout: Duration) -> bool {
        self.handle.engine.pop_all(&self.queue, into, timeout)
    }

    /// The oldest message that is wanted, if there is one. Never waits.
    pub fn pop_where(&self, mut wanted: impl FnMut(&T, &Key) -> bool) -> Option<(T, Key)> {
        self.handle.engine.receiving.read_now();
        self.queue.pop_where(&mut wanted)
    }

    /// Messages as they come, for async code; it has no end.
    #[cfg(feature = "stream")]
    pub fn stream(&self) -> MessageStream<'_, T> {
        MessageStream::new(&self.queue)
    }

    /// How many messages wait.
    pub fn waiting(&self) -> usize {
        self.queue.len()
    }

    /// The integer.
    pub fn id(&self) -> u32 {
        self.id
    }

    /// Closes it: what comes from now on is popped with [`Cmq::cw_pop`]. What waits here is given back, oldest first.
    pub fn close(self) -> Vec<(T, Key)> {
        self.handle.engine.receiving.close(self.id);
        std::iter::from_fn(|| self.queue.pop()).collect()
    }
}
