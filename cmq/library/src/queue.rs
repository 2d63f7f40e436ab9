//! The queue: the paper's calls, and the calls that Rust users also expect.

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
use crate::event::{Event, SenderInfo, Stats};
use crate::io::engine::Engine;
use crate::io::lock;
use crate::io::mailbox::{MailboxQueue, Popped};
use crate::io::socket::Socket;
use crate::key::{Key, canonical};
use crate::multicast::Multicast;
use crate::proto::reliable::Fate;
use crate::proto::unreliable::receiver::AmplificationBudget;
use crate::security::PublicKey;
#[cfg(feature = "stream")]
use crate::stream::MessageStream;

/// Opens a queue with [`Config::default`] at a local address (paper, `newRq`). Port 0 takes a free port.
///
/// # Errors
/// [`OpenError`]: the address cannot be bound, or the system refuses.
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

/// Opens a queue with other settings.
///
/// # Errors
/// [`OpenError`].
pub fn new_rq_with<T>(addr: impl ToSocketAddrs, config: Config) -> Result<Cmq<T>, OpenError>
where
    T: Serialize + DeserializeOwned + Send + 'static,
{
    Cmq::open(addr, codec::serde(), config)
}

/// Opens a queue of raw bytes, which are sent as they are.
///
/// Messages that arrived together share the memory they arrived in, or a copy of it, which is freed with the
/// last of them.
///
/// # Errors
/// [`OpenError`].
pub fn new_raw_rq(addr: impl ToSocketAddrs, config: Config) -> Result<Cmq<Bytes>, OpenError> {
    Cmq::open(addr, codec::raw(), config)
}

/// The engine, which ends with the last handle.
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

/// A message queue at an address: it pushes messages to other queues, and pops messages that other queues pushed
/// to it.
///
/// Every call may be made from any thread at any time. When the queue and all its mailboxes are dropped,
/// pending messages are sent at once, and each receiver learns the number of messages.
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

    /// Queues a message for a key (paper, `cwPush`); it leaves with its batch. Never waits, neither for the
    /// network nor for the receiver. A loss is reported at the receiver ([`Event::Lost`]).
    ///
    /// # Errors
    /// [`PushError`]; no part of the message is sent.
    #[inline]
    pub fn cw_push(&self, key: impl Into<Key>, message: &T) -> Result<(), PushError> {
        let engine = self.engine();
        let key = key.into().canonical();
        match engine.codec.encode {
            Encode::AsBytes(bytes) => engine.send_half.push_bytes(key, bytes(message)),
            Encode::With(encode) => engine.send_half.push(key, |out| encode(message, out)),
        }
    }

    /// Queues a message of the reliable mode for a key. The queue sends the message until the receiving queue confirms it,
    /// and the receiver pops the messages of a key in their order. Both queues need
    /// [`Config::reliable`](field@Config::reliable). Never waits.
    ///
    /// Returns the number of the message among the reliable ones of its key, for [`Cmq::fate`] and [`Cmq::wait_confirmed`].
    ///
    /// # Errors
    /// [`PushError`]; no part of the message is sent.
    ///
    /// # Examples
    /// ```
    /// use std::time::Duration;
    /// use cmq::{Config, Fate, Reliable};
    ///
    /// let open = || cmq::new_rq_with("127.0.0.1:0", Config::default().reliable(Some(Reliable::default())));
    /// let (sender, receiver) = (open()?, open()?);
    /// let key = cmq::Key::new(receiver.local_addr(), 7);
    /// let number = sender.push_reliable(key, &"hello".to_owned())?;
    /// assert_eq!(sender.wait_confirmed(key, number, Some(Duration::from_secs(10))), Some(Fate::Confirmed));
    /// let (message, _): (String, _) = receiver.cw_pop().expect("a confirmed message is here");
    /// assert_eq!(message, "hello");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn push_reliable(&self, key: impl Into<Key>, message: &T) -> Result<u64, PushError> {
        let engine = self.engine();
        let key = key.into().canonical();
        match engine.codec.encode {
            Encode::AsBytes(bytes) => engine.send_half.push_reliable(key, bytes(message)),
            Encode::With(encode) => {
                let mut bytes = Vec::new();
                if !encode(message, &mut bytes) {
                    return Err(PushError::Encode);
                }
                engine.send_half.push_reliable(key, &bytes)
            }
        }
    }

    /// The fate of a message of the reliable mode. `None` if the key has no message with this number, or is forgotten.
    pub fn fate(&self, key: impl Into<Key>, number: u64) -> Option<Fate> {
        self.engine().send_half.fate(key.into().canonical(), number)
    }

    /// Waits until a message of the reliable mode is confirmed or given up, at most this long, and sends all pending messages before.
    /// [`Fate::Pending`] if it is neither in time. A `timeout` of `None` has no limit.
    pub fn wait_confirmed(
        &self,
        key: impl Into<Key>,
        number: u64,
        timeout: Option<Duration>,
    ) -> Option<Fate> {
        let send_half = &self.engine().send_half;
        send_half.flush();
        send_half.wait_confirmed(key.into().canonical(), number, Engine::<T>::until(timeout))
    }

    /// Waits until each message of the reliable mode is confirmed or given up, at most this long. False if some are neither in time.
    pub fn wait_all_confirmed(&self, timeout: Option<Duration>) -> bool {
        let send_half = &self.engine().send_half;
        send_half.flush();
        send_half.wait_all_confirmed(Engine::<T>::until(timeout))
    }

    /// The next message, if there is one (paper, `cwPop`), of any mailbox that was not opened with
    /// [`Cmq::mailbox`]. Never waits.
    #[inline]
    pub fn cw_pop(&self) -> Option<(T, Key)> {
        let receive_half = &self.engine().receive_half;
        receive_half.pop(&receive_half.common)
    }

    /// Waits for the next message, without a limit.
    pub fn pop(&self) -> (T, Key) {
        let queue = &self.engine().receive_half.common;
        self.engine().wait(queue, None, || queue.pop()).expect("a wait without a limit ends with a message")
    }

    /// Waits for the next message, at most this long. `Duration::ZERO` tries once.
    pub fn pop_timeout(&self, timeout: Duration) -> Option<(T, Key)> {
        let queue = &self.engine().receive_half.common;
        self.engine().wait(queue, Some(timeout), || queue.pop())
    }

    /// Takes all messages that arrived, and waits for one if there is none. Returns false if none arrived in
    /// time.
    ///
    /// A `timeout` of `None` has no limit, and `Duration::ZERO` tries once. Taking all messages costs one
    /// lock instead of one for each message. Taken messages no longer count for the limits of the mailbox. If
    /// `into` is not empty, it is left as it is, and nothing is taken.
    ///
    /// # Examples
    /// ```
    /// # use std::time::Duration;
    /// # let queue = cmq::new_rq::<u32>("127.0.0.1:0")?;
    /// # queue.cw_push((queue.local_addr(), 0), &7)?;
    /// # queue.flush();
    /// let mut popped = cmq::Popped::default();
    /// while queue.pop_all(&mut popped, Some(Duration::from_secs(10))) {
    ///     for (message, from) in &mut popped {
    ///         println!("{message} from {from}");
    ///     }
    ///     # break;
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn pop_all(&self, into: &mut Popped<T>, timeout: Option<Duration>) -> bool {
        self.engine().pop_all(&self.engine().receive_half.common, into, timeout)
    }

    /// The oldest message that `wanted` accepts (a selective receive), if there is one. The other messages
    /// stay in their order. Never waits. Looks at every older message.
    pub fn pop_where(&self, mut wanted: impl FnMut(&T, &Key) -> bool) -> Option<(T, Key)> {
        let receive_half = &self.engine().receive_half;
        receive_half.read_now();
        receive_half.common.pop_where(&mut wanted)
    }

    /// As [`Cmq::pop_where`], and waits at most this long.
    pub fn pop_where_timeout(
        &self,
        timeout: Duration,
        mut wanted: impl FnMut(&T, &Key) -> bool,
    ) -> Option<(T, Key)> {
        let queue = &self.engine().receive_half.common;
        self.engine().wait(queue, Some(timeout), || queue.pop_where(&mut wanted))
    }

    /// A count of arrivals, each of one or several messages. For [`Cmq::wait_arrival`].
    pub fn arrivals(&self) -> u64 {
        self.engine().receive_half.common.commits()
    }

    /// Waits until the count of arrivals differs from `seen`, at most this long, and takes nothing. False if nothing arrived. For
    /// a selective receive whose choice must not run inside of [`Cmq::pop_where`], which holds the lock of the mailbox.
    ///
    /// # Examples
    /// ```
    /// # use std::time::Duration;
    /// # let queue = cmq::new_rq::<u32>("127.0.0.1:0")?;
    /// let seen = queue.arrivals();
    /// queue.cw_push((queue.local_addr(), 0), &7)?;
    /// while queue.pop_where(|message, _| *message == 7).is_none() {
    ///     assert!(queue.wait_arrival(seen, Duration::from_secs(10)));
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn wait_arrival(&self, seen: u64, timeout: Duration) -> bool {
        let queue = &self.engine().receive_half.common;
        self.engine().wait(queue, Some(timeout), || (queue.commits() != seen).then_some(())).is_some()
    }

    /// Messages as they arrive, without an end. Each step waits.
    pub fn iter(&self) -> impl Iterator<Item = (T, Key)> + '_ {
        std::iter::from_fn(|| Some(self.pop()))
    }

    /// The messages that are here, without waiting.
    pub fn try_iter(&self) -> impl Iterator<Item = (T, Key)> + '_ {
        std::iter::from_fn(|| self.cw_pop())
    }

    /// Messages as they arrive, for async code, without an end.
    #[cfg(feature = "stream")]
    pub fn stream(&self) -> MessageStream<'_, T> {
        let receive_half = &self.engine().receive_half;
        MessageStream::new(receive_half, &receive_half.common)
    }

    /// The number of messages that wait to be popped from the common mailbox.
    pub fn waiting(&self) -> usize {
        self.engine().receive_half.common.len()
    }

    /// Opens a mailbox of its own for an integer. Messages for it that arrive from now on are popped there
    /// and not with [`Cmq::cw_pop`]. A second call returns the same mailbox.
    pub fn mailbox(&self, id: u32) -> Mailbox<T> {
        Mailbox { queue: self.engine().receive_half.open(id), id, handle: Arc::clone(&self.handle) }
    }

    /// The multicast settings: groups to receive, and how to send to groups.
    pub fn multicast(&self) -> Multicast<'_> {
        Multicast { socket: &self.engine().socket }
    }

    /// Sends all pending messages now.
    pub fn flush(&self) {
        self.engine().send_half.flush();
    }

    /// Sends all pending messages now and closes all streams.
    ///
    /// Each receiver learns the number of messages, so that it notices the loss of the last ones. A receiver of the reliable mode learns
    /// that nothing more follows, once everything is confirmed or given up, unless another message is pushed before.
    /// Later messages begin new streams. Dropping the queue does the same.
    pub fn finish(&self) {
        self.engine().send_half.close();
    }

    /// The next event, if there is one.
    pub fn next_event(&self) -> Option<Event> {
        self.engine().events.pop()
    }

    /// The counters of this queue.
    pub fn stats(&self) -> Stats {
        self.engine().stats()
    }

    /// Every stream that this queue remembers.
    pub fn senders(&self) -> Vec<SenderInfo> {
        self.engine().receive_half.senders()
    }

    /// The streams of one sender address: one for each run of the sender, and for each address and group that
    /// it sends to.
    pub fn senders_at(&self, from: SocketAddr) -> Vec<SenderInfo> {
        self.engine().receive_half.sender(canonical(from))
    }

    /// Calls `with` for the anti-amplification limit of an address, if something was received from there.
    pub(crate) fn amplification_budget<M>(
        &self,
        of: SocketAddr,
        with: impl FnOnce(&mut AmplificationBudget) -> M,
    ) -> Option<M> {
        self.engine().receive_half.amplification_budget(of, with)
    }

    /// The public key of the queue at an address, while there is a session with it. `None` also if this queue does not encrypt.
    pub fn peer_key(&self, addr: SocketAddr) -> Option<PublicKey> {
        lock(self.engine().send_half.sessions()?).peer_key(canonical(addr))
    }

    /// The address of this queue.
    pub fn local_addr(&self) -> SocketAddr {
        self.engine().socket.local_addr()
    }

    /// The random name of this queue, which each of its datagrams carries.
    pub fn epoch(&self) -> u64 {
        self.engine().epoch
    }
}

impl Cmq<Bytes> {
    /// As [`Cmq::cw_push`], for bytes in any memory. They are copied into the batch.
    ///
    /// # Errors
    /// [`PushError`]; no part of the message is sent.
    #[inline]
    pub fn push_bytes(&self, key: impl Into<Key>, message: &[u8]) -> Result<(), PushError> {
        self.engine().send_half.push_bytes(key.into().canonical(), message)
    }

    /// As [`Cmq::push_reliable`], for bytes in any memory. They are copied.
    ///
    /// # Errors
    /// [`PushError`]; no part of the message is sent.
    pub fn push_reliable_bytes(&self, key: impl Into<Key>, message: &[u8]) -> Result<u64, PushError> {
        self.engine().send_half.push_reliable(key.into().canonical(), message)
    }
}

/// The messages for one integer, like a mailbox of Erlang. Opened by [`Cmq::mailbox`]; keeps the queue alive.
pub struct Mailbox<T: Send + 'static> {
    queue: Arc<MailboxQueue<T>>,
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
        self.handle.engine.receive_half.pop(&self.queue)
    }

    /// Waits for the next message, at most this long. `Duration::ZERO` tries once.
    pub fn pop_timeout(&self, timeout: Duration) -> Option<(T, Key)> {
        self.handle.engine.wait(&self.queue, Some(timeout), || self.queue.pop())
    }

    /// Takes all messages that arrived, as [`Cmq::pop_all`].
    pub fn pop_all(&self, into: &mut Popped<T>, timeout: Option<Duration>) -> bool {
        self.handle.engine.pop_all(&self.queue, into, timeout)
    }

    /// The oldest message that `wanted` accepts, if there is one. Never waits.
    pub fn pop_where(&self, mut wanted: impl FnMut(&T, &Key) -> bool) -> Option<(T, Key)> {
        self.handle.engine.receive_half.read_now();
        self.queue.pop_where(&mut wanted)
    }

    /// As [`Mailbox::pop_where`], and waits at most this long.
    pub fn pop_where_timeout(
        &self,
        timeout: Duration,
        mut wanted: impl FnMut(&T, &Key) -> bool,
    ) -> Option<(T, Key)> {
        self.handle.engine.wait(&self.queue, Some(timeout), || self.queue.pop_where(&mut wanted))
    }

    /// As [`Cmq::arrivals`].
    pub fn arrivals(&self) -> u64 {
        self.queue.commits()
    }

    /// As [`Cmq::wait_arrival`].
    pub fn wait_arrival(&self, seen: u64, timeout: Duration) -> bool {
        let arrived = || (self.queue.commits() != seen).then_some(());
        self.handle.engine.wait(&self.queue, Some(timeout), arrived).is_some()
    }

    /// Messages as they arrive, for async code, without an end.
    #[cfg(feature = "stream")]
    pub fn stream(&self) -> MessageStream<'_, T> {
        MessageStream::new(&self.handle.engine.receive_half, &self.queue)
    }

    /// The number of messages that wait here.
    pub fn waiting(&self) -> usize {
        self.queue.len()
    }

    /// The integer of this mailbox.
    pub fn id(&self) -> u32 {
        self.id
    }

    /// Closes the mailbox. Messages for its integer are popped with [`Cmq::cw_pop`] from now on. Returns the
    /// messages that wait here, oldest first.
    pub fn close(self) -> Vec<(T, Key)> {
        self.handle.engine.receive_half.close(self.id);
        std::iter::from_fn(|| self.queue.pop()).collect()
    }
}
