//! Every knob, declared once: the field, its documentation, its default, range and cost, and by that the reference.

use serde::Serialize;

use super::knob::{Range, Setting, Spec};

/// The range of a knob, from how it is written in a declaration.
macro_rules! range {
    (true or false) => {
        Range::Bool
    };
    (a word of at most $max:literal bytes) => {
        Range::Word { max_bytes: $max }
    };
    (0 or $min:literal to $max:literal) => {
        Range::Int { zero: true, min: $min, max: $max }
    };
    ($min:literal to $max:literal) => {
        Range::Int { zero: false, min: $min, max: $max }
    };
}

/// Declares a section: the structure with documented fields, its defaults, and the visitors that everything else
/// (reading, checking, writing, the reference) is made of.
macro_rules! section {
    (
        $(#[doc = $about:literal])+
        $section:literal $name:ident {
            $(
                $(#[doc = $help:literal])+
                $field:ident: $type:ty = $default:expr, $unit:literal, range [$($range:tt)+], cost $cost:literal;
            )+
        }
    ) => {
        $(#[doc = $about])+
        #[derive(Debug, Clone, PartialEq, Eq, Serialize)]
        #[serde(default, deny_unknown_fields)]
        pub struct $name {
            $(
                $(#[doc = $help])+
                #[doc = concat!(
                    "\n\nUnit: ", $unit, ". Default: `", stringify!($default),
                    "`. Range: `", stringify!($($range)+), "`. Cost: ", $cost, "."
                )]
                pub $field: $type,
            )+
        }

        impl Default for $name {
            fn default() -> Self {
                Self { $($field: $default),+ }
            }
        }

        impl $name {
            /// What the section is about, for the reference.
            pub(super) const ABOUT: &str = concat!($($about, "\n"),+);
            const SPECS: &[Spec] = &[$(Spec {
                name: concat!($section, ".", stringify!($field)),
                unit: $unit,
                range: range!($($range)+),
                cost: $cost,
                help: concat!($($help, "\n"),+),
            }),+];

            pub(super) fn visit(&self, f: &mut dyn FnMut(&'static Spec, &dyn Setting)) {
                let mut specs = Self::SPECS.iter();
                $(f(specs.next().expect("one for each field"), &self.$field);)+
            }

            pub(super) fn visit_mut(&mut self, f: &mut dyn FnMut(&'static Spec, &mut dyn Setting)) {
                let mut specs = Self::SPECS.iter();
                $(f(specs.next().expect("one for each field"), &mut self.$field);)+
            }
        }
    };
}

section! {
    /// The TCP transport: threads, sockets, and how much is moved at a time.
    "tcp" TcpSettings {
        /// Worker threads that own the TCP connections (paper 1, section 3.6). 0: one per processor core, at most 64. Too few:
        /// one core is full while others are idle. More than cores: threads take turns and every turn costs a switch
        /// of context; with one busy connection a second thread gains nothing, a connection stays on its thread.
        tcp_num_threads: usize = 1, "threads", range [0 or 1 to 64],
            cost "each thread: about 0.5 MiB (staging, stack, tables) and an epoll descriptor";
        /// Binds each worker thread to one core (paper 1, section 3.6). Off: the kernel places threads, and now and
        /// then puts two busy ones on one core. On: steady and load-balanced on a machine of its own, harmful where
        /// other programs want the same cores.
        tcp_thread_pinning: bool = false, "", range [true or false], cost "none";
        /// TCP_NODELAY. Off: the kernel holds small segments back until earlier ones are acknowledged: fewer packets on
        /// a slow network, and tens of milliseconds of delay. Batching here comes from what is pending, so it is
        /// rarely wanted off.
        nodelay: bool = true, "", range [true or false], cost "none";
        /// TCP_CONGESTION of every socket: "cubic", "bbr", "reno". Unset: the system's. It decides more than any other
        /// knob: one that paces (bbr) makes transfers within a machine 1.5 to 2.4 times slower, and is good on long
        /// paths that lose packets. A name that the kernel does not have or allow fails when the first socket is made.
        congestion_control: Option<String> = None, "", range [a word of at most 15 bytes], cost "none";
        /// SO_SNDBUF of every socket. Unset: the kernel tunes it, which measured best. Too small: long paths starve.
        /// Too large: back-pressure is noticed late and newest data waits behind old.
        send_buffer_bytes: Option<u32> = None, "bytes", range [4096 to 1073741824],
            cost "up to twice this of kernel memory per connection";
        /// SO_RCVBUF of every socket. Unset: the kernel tunes it, which measured best. Too small: long paths starve,
        /// and every read is small. Too large: memory that a slow receiver fills.
        receive_buffer_bytes: Option<u32> = None, "bytes", range [4096 to 1073741824],
            cost "up to twice this of kernel memory per connection";
        /// Bytes read from one ready connection before others get their turn. Below the lower end throughput fell by up
        /// to 28 %; far above 1 MiB the other connections of the thread wait while one is served.
        read_bytes: u32 = 1 << 20, "bytes", range [262144 to 67108864],
            cost "no memory: large ranges are read to where they stay";
        /// The buffer that headers and small ranges are read into before they are copied to their rings. Small: a system
        /// call for every few small transfers. Large: nothing gained once it exceeds what a socket holds, and the
        /// processor's cache is lost to it.
        staging_bytes: u32 = 256 << 10, "bytes", range [4096 to 16777216],
            cost "once per worker thread; at most once more per connection that waits for its application";
        /// Bytes of ranges that one connection queues towards the kernel. Small: more system calls. Large: one buffer's
        /// backlog delays the other buffers and the control messages of its connection.
        tx_queue_bytes: u32 = 1 << 20, "bytes", range [4096 to 1073741824],
            cost "none while queued (ranges stay in their rings); at most twice this per connection for ranges that another process wrote (of those each worker keeps up to 4 MiB to use again), and this when a slow subscription is cut off";
        /// Connections that the kernel completes before they are accepted; net.core.somaxconn also holds. Small: when
        /// many connect at once some wait for a second or more. Large: peers of a process that hangs are told late.
        backlog: u32 = 1024, "connections", range [1 to 65535], cost "kernel memory, about 1 KiB for each that waits";
        /// TCP_USER_TIMEOUT: how long sent bytes may stay unacknowledged before the connection breaks. 0: the kernel's,
        /// about 15 minutes; heartbeats usually notice earlier. Small: a connection breaks during a short outage of the
        /// network that it would have survived.
        user_timeout_ms: u32 = 0, "ms", range [0 or 100 to 86400000], cost "none";
        /// The largest single transfer, which is a buffer's turn when several buffers of a connection have data. Small: a
        /// header and a system call's share for every few bytes. Large: the other buffers of the connection wait longer.
        /// At most `tx_queue_bytes`.
        max_transfer_bytes: u32 = 256 << 10, "bytes", range [4096 to 1073741824], cost "none";
        /// A delivery is sent by the thread that makes it, without waking a worker, if nothing waits on its connection,
        /// there was a pause of this length since the last send there (pauses are saved up for 4 sends), and no more than
        /// 16 KiB are pending. Small deliveries that come one by one, at most twice as often as such pauses would allow, need an
        /// eighth of them. 0: never. Small: threads that deliver in a stream spend their time on small system calls. Large: lone
        /// messages wait for a worker's wake-up.
        inline_idle_us: u32 = 5, "us", range [0 or 1 to 1000000], cost "a system call for each wake-up of a worker";
    }
}

section! {
    /// Shared memory (transport `shm` and `auto`): what of other processes is mapped, and by whom one's own may be.
    "shm" ShmSettings {
        /// Rings of other processes that are mapped at once. A subscription beyond it is refused, and says so. Small:
        /// local subscriptions are refused. Large: peers decide how many mappings this process has (vm.max_map_count).
        max_shared_rings: usize = 16_384, "rings", range [1 to 1048576],
            cost "each ring: three mappings and a descriptor";
        /// The sum of their capacities, which their writers choose. The memory is theirs, but what is read of a ring that
        /// was never written is backed for whoever reads it. Small: subscriptions are refused. Large: a peer can have
        /// that much counted here.
        max_shared_bytes: u64 = 16 << 30, "bytes", range [4096 to 17592186044416],
            cost "address space; of the memory, what the writers use";
        /// Whether processes of other users may connect. Off: the same user, and root. On: every user of this machine can
        /// connect, and whoever subscribes to a buffer can read all that its ring holds, also from before.
        other_users: bool = false, "", range [true or false], cost "none";
        /// Whether bytes in rings of other processes of this machine are borrowed where they lie, as those that were received
        /// are. Off: there are no slices of them, they are copied out; a writer that overwrites what it promised to keep spoils
        /// nothing but its own data. On: nothing is copied, and every process that may connect must be this library in an
        /// honest program: this one's code takes for constant what such a writer could change, and what happens then is
        /// undefined. It speaks of shared memory alone: what a peer over RDMA writes is never borrowed as a plain slice.
        trust_writers: bool = false, "", range [true or false], cost "off: a copy for each reader";
        /// How long a thread that receives looks at its rings without end, after something came, before it sleeps. 0: it
        /// sleeps at once, and whoever writes wakes it. Large: a message is there within a fraction of a microsecond, and
        /// a core is busy although nothing comes. Only where there are more cores than threads that look. Streams of small
        /// messages at full speed are a third faster through buffers of 16 MiB than through those of the default size.
        busy_poll_us: u32 = 0, "us", range [0 or 1 to 1000000], cost "a core for each worker, as long as that";
    }
}

section! {
    /// RDMA (transport `rdma`): queues, and when a peer is taken for gone. Its guide is docs/RDMA.md.
    "rdma" RdmaSettings {
        /// Worker threads that own connections, where the transport is `rdma` (paper 1, section 3.6); each watches the
        /// completions of its own. 0: one, as 1. Too few: one core is full while others are idle. More than cores:
        /// threads take turns.
        rdma_num_threads: usize = 1, "threads", range [0 or 1 to 64],
            cost "as tcp.tcp_num_threads";
        /// Looks for completions without end instead of sleeping until the adapter tells. Off: a wake-up for each batch.
        /// On: some microseconds less, and a core that is always busy for each worker.
        polling: bool = false, "", range [true or false], cost "a core for each worker";
        /// Requests that one connection has under way. Small: transfers wait for the acknowledgements of others. Large:
        /// memory of the adapter.
        send_depth: u32 = 256, "requests", range [32 to 16384], cost "about 128 bytes each";
        /// Receives that are posted ahead for each connection; the peer sends no more than these before they were looked
        /// at. Small: many small transfers wait for the receiver's thread.
        receive_depth: u32 = 256, "receives", range [32 to 16384], cost "1 KiB of locked memory each";
        /// Bytes that go into a request itself, so that the adapter need not fetch them; less where it offers less. 0:
        /// everything is fetched.
        inline_bytes: u32 = 512, "bytes", range [0 or 1 to 4096], cost "the adapter's memory, for each request";
        /// Memory from which messages are sent, and copies of what cannot be registered. Small: they wait for each other.
        outbox_bytes: u32 = 256 << 10, "bytes", range [65536 to 67108864],
            cost "locked memory, once for each connection";
        /// Bytes of ranges that one connection queues or has under way. Small: long ways are not filled. Large: one
        /// buffer's backlog delays the other buffers of its connection.
        tx_queue_bytes: u32 = 1 << 20, "bytes", range [4096 to 1073741824], cost "none: ranges stay in their rings";
        /// An acknowledgement is waited for 4.096 us times two to this power: 14 is 67 ms. Small: a busy network makes the
        /// adapter send again what was not lost. Large: a peer that is gone is noticed late.
        ack_timeout: u32 = 14, "", range [8 to 22], cost "none";
        /// How often is sent again what was not acknowledged, before the connection is taken for broken. Small: a short
        /// outage breaks it.
        retries: u32 = 6, "", range [1 to 6], cost "none";
    }
}

section! {
    /// Buffers and their memory (paper 1, sections 3.1 and 3.6; paper 3, section 2.2).
    "buffers" BufferSettings {
        /// Capacity of a buffer's ring where the program names none; rounded up to a power of two. A rule of thumb is ten
        /// times the largest message. Small: a writer waits for its slowest subscriber more often, and the largest
        /// delivery is a quarter of it. Large: memory, and a working set beyond the processor's cache.
        size_bytes: u64 = 1 << 20, "bytes", range [4096 to 1099511627776],
            cost "this much memory per buffer, at a writer and at every receiver, once it has been filled, and two mappings (vm.max_map_count)";
        /// The history that a buffer keeps for those who join, resume or replay, in buffers that an rOut creates or
        /// splices. Unset: half of each buffer's size. 0: none, a new subscriber gets only what comes after it; messages of
        /// 512 KiB through small rings go a tenth faster. Large: a writer may run only `size - retain` ahead of its
        /// subscribers. At most three quarters of `size_bytes`.
        retain_bytes: Option<u64> = None, "bytes", range [0 or 1 to 1099511627776],
            cost "none of its own; it is part of the ring, taken from what absorbs bursts";
        /// Address space that is reserved at a time and that rings are cut from. The memory behind it is taken on first
        /// use; a ring that is larger gets a reservation of its own size. Small: many reservations, each with a
        /// descriptor. Large: refused where the size of files is limited (ulimit -f).
        reservation_bytes: u64 = 1 << 30, "bytes", range [1048576 to 17592186044416],
            cost "one file descriptor per reservation; no memory before use";
        /// A ring into which nothing came or was written for this long gives memory back: all that nobody needs any more, or holds, but
        /// for its history (`idle_retain_bytes`). 0: never. Small: a ring that pauses often asks the system for the same
        /// pages again and again. Large: thousands of rings keep what they once needed for as long.
        idle_trim_ms: u32 = 500, "ms", range [0 or 10 to 3600000],
            cost "a system call or two for each ring that comes to rest";
        /// The history that all spliced rings, and all buffers that are written here, keep together at rest for those who
        /// join or resume. When it is used up, those that have rested longest keep only their last delivery, with what came
        /// together with it, if that is at most 64 KiB, or nothing; but a buffer that is written here and has no subscribers
        /// keeps its history. Small: who joins late finds little, and a receiver that was started anew gets little again.
        /// Large: memory.
        idle_retain_bytes: u64 = 512 << 20, "bytes", range [0 or 1 to 17592186044416],
            cost "at most this and the last deliveries, of what the rings had already";
        /// The sum of all rings' capacities; more is refused, with the arithmetic. A capacity is address space: its memory is
        /// taken on first use, and what a ring at rest does not need goes back (`idle_trim_ms`). The default has place
        /// for 10,000 rings of 1 MiB that are not all full at once; where they may be, set it to the memory that they
        /// may have. Small: subscriptions and buffers are refused. Far beyond the machine's memory: if all rings fill,
        /// the kernel ends the process instead. At least `size_bytes`.
        max_ring_bytes: u64 = 16 << 30, "bytes", range [4096 to 17592186044416],
            cost "none by itself: the most that rings may take";
    }
}

section! {
    /// Sessions: signs of life, waiting, and what happens to the slow and the gone.
    "session" SessionSettings {
        /// A connection that has sent nothing for this long sends a sign of life; a peer that is silent for three times
        /// its own announced time is taken for dead. 0: no signs are sent; the peer asks for one after a third of its
        /// `max_silence_ms`. Small: traffic and wake-ups on idle connections, and a busy peer is taken for dead. Large or
        /// 0: dead peers are noticed late, after `max_silence_ms`, and hold their writers until then.
        heartbeat_ms: u32 = 5000, "ms", range [0 or 10 to 3600000],
            cost "one message of 17 bytes per idle connection and interval";
        /// How long a peer may be silent, whatever heartbeat it announced: one that has said nothing for a third of this is
        /// asked with a PING, which every peer answers, and when nothing came by the whole of it its connection is closed.
        /// Three times the peer's heartbeat applies where that is shorter. 0: ever; a peer without a heartbeat that
        /// vanished is then noticed only when the kernel gives up what was sent to it. Small: a peer that is busy or stopped
        /// for a moment loses its connection, and at a third of it idle connections are asked all the time; several times
        /// `heartbeat_ms` is sensible. Large: peers without heartbeats that vanished hold their writers for as long.
        max_silence_ms: u32 = 60_000, "ms", range [0 or 100 to 86400000],
            cost "a PING and its answer per connection and third of it, where the peer says nothing else";
        /// How long a connection may take from being made to its first message. Small: slow networks and busy peers are
        /// refused. Large: strangers that connect and say nothing hold a connection for as long.
        handshake_timeout_ms: u32 = 5000, "ms", range [10 to 3600000], cost "none";
        /// How long an outgoing connection may take to be made, with its handshake. Small: fails on slow networks. Large: a
        /// program that waits for a machine that is gone waits for as long.
        connect_timeout_ms: u32 = 5000, "ms", range [10 to 3600000], cost "none";
        /// A subscription with policy `block` that makes no progress for this long while others wait for it is
        /// disconnected, with the reason. 0: ever. Small: a pause of a healthy receiver ends its connection. Large or 0:
        /// one receiver that hangs stops the writer and everybody else for as long.
        block_timeout_ms: u32 = 10_000, "ms", range [0 or 10 to 3600000], cost "none";
        /// How long a spliced buffer whose writer's connection was lost waits for it to come back before its subscribers
        /// are told that it is gone. Small: every short outage ends the log. Large: subscribers learn late, and the
        /// buffer's memory is held for as long.
        linger_ms: u32 = 10_000, "ms", range [0 or 10 to 3600000], cost "the memory of the buffer, for as long";
        /// The lag at which the policies `drop` and `disconnect` act, where the subscriber named none. 0: half of what the
        /// ring lets a subscriber lag. Small: bursts that would have been caught up with are dropped. Large: acts only
        /// when the ring is full, and what is delivered then is old.
        max_lag_bytes: u64 = 0, "bytes", range [0 or 1 to 1099511627776], cost "none";
        /// How long a connection that is closed in order may take to send what is queued. Small: the last messages and the
        /// reason are lost on slow networks. Large: a program waits for as long for a peer that does not read.
        close_linger_ms: u32 = 2000, "ms", range [0 or 10 to 600000], cost "none";
    }
}

section! {
    /// Limits: how much peers and programs may ask for. Reaching one is an error that names it.
    "limits" Limits {
        /// Connections open at once, in and out; more are closed when they arrive. Small: clients are refused. Beyond
        /// `ulimit -n`: the system refuses first, less politely.
        max_connections: usize = 10_000, "connections", range [1 to 1048576],
            cost "each open connection: one file descriptor and about 1 KiB, besides the kernel's buffers";
        /// Buffers and received subscriptions of a process together. Small: `create_buffer`, `subscribe` and splices are
        /// refused. Large: memory for tables.
        max_buffers: usize = 65_536, "buffers", range [1 to 16777216],
            cost "each buffer: about 1 KiB besides its ring; per worker thread 1 bit for each that is allowed";
        /// Subscriptions of one connection. Small: subscriptions are refused (TooMany). Large: one peer can make this end
        /// keep that many cursors.
        max_subscriptions_per_connection: usize = 65_536, "subscriptions", range [1 to 16777216],
            cost "each subscription: about 512 bytes at either end, besides the receiver's ring";
        /// The largest control message taken from a peer; a larger one ends the connection. Applications' own messages are
        /// control messages. The lower end is what the handshake needs. Large: a peer can make each connection hold that
        /// much.
        max_control_bytes: u32 = 65_536, "bytes", range [2048 to 16777216],
            cost "at most this per connection, while a message is incomplete";
        /// Places of named subscriptions with a hold, of those that are there and those that are away: a subscriber of
        /// 1,000 buffers has 1,000. Beyond it a subscription goes on and is told that no place is kept for it. Small: who
        /// is away for a moment loses what comes meanwhile. Large: many that never come back hold their writers.
        max_held_subscriptions: usize = 65_536, "subscriptions", range [0 or 1 to 16777216],
            cost "each that is away: about 512 bytes, and the history it holds in its buffer";
        /// The longest time for which a place is kept, whatever the subscriber asks for. Small: a subscriber that restarts
        /// finds its place gone. Large: subscribers that never come back hold their writers for as long (policy `block`).
        max_hold_ms: u32 = 600_000, "ms", range [0 or 1 to 4294967295], cost "none by itself";
        /// Deliveries of one buffer whose contexts wait for their callback. More are refused when delivered. Small: writers
        /// with many deliveries under way are stopped before the ring is full. Large: memory.
        max_pending_contexts: usize = 65_536, "deliveries", range [1 to 16777216],
            cost "each pending: 16 bytes";
    }
}
