//! Every knob, declared once: the field, its documentation, default, range and cost. The reference is generated from here.

use ::settings::section;

section! {
    /// The TCP transport: threads, sockets, and the bytes moved in one step.
    "tcp" TcpSettings {
        /// Worker threads that own the TCP connections (paper 1, section 3.6). 0: one thread per processor core,
        /// at most 64. Too few: one core is full while other cores are idle. More than cores: threads take turns,
        /// and every turn costs a context switch. A second thread gains nothing with one busy connection, because
        /// a connection stays on its thread.
        tcp_num_threads: usize = 1, "threads", range [0 or 1 to 64],
            cost "each thread: about 0.5 MiB (staging, stack, tables) and an epoll descriptor";
        /// Binds each worker thread to one core (paper 1, section 3.6). Off: the kernel places the threads, and
        /// sometimes puts two busy threads on one core. On: throughput is steady and the load is balanced on a
        /// dedicated machine; pinning is harmful where other programs use the same cores.
        tcp_thread_pinning: bool = false, "", range [true or false], cost "none";
        /// TCP_NODELAY. Off: the kernel holds small segments back until earlier segments are acknowledged, which
        /// saves packets on a slow network and adds tens of milliseconds of delay. The library batches pending
        /// bytes itself, so few programs need this setting off.
        nodelay: bool = true, "", range [true or false], cost "none";
        /// TCP_CONGESTION of every socket: "cubic", "bbr", "reno". Unset: the system's default. This setting has
        /// more effect than any other. An algorithm that paces (bbr) makes transfers within a machine 1.5 to 2.4
        /// times slower, and suits long paths that lose packets. A name that the kernel does not have or does not
        /// allow fails when the first socket is made.
        congestion_control: Option<String> = None, "", range [a word of at most 15 bytes], cost "none";
        /// SO_SNDBUF of every socket. Unset: the kernel tunes the size, which measured best. Too small: long paths
        /// starve. Too large: back-pressure acts late, and the newest data waits behind old data.
        send_buffer_bytes: Option<u32> = None, "bytes", range [4096 to 1073741824],
            cost "up to twice this of kernel memory per connection";
        /// SO_RCVBUF of every socket. Unset: the kernel tunes the size, which measured best. Too small: long paths
        /// starve, and every read is small. Too large: a slow receiver fills this memory.
        receive_buffer_bytes: Option<u32> = None, "bytes", range [4096 to 1073741824],
            cost "up to twice this of kernel memory per connection";
        /// Bytes read from one ready connection before the other connections get their turn. Below the lower end
        /// of the range, throughput fell by up to 28 %. Far above 1 MiB, the other connections of the thread wait
        /// while one connection is served.
        read_bytes: u32 = 1 << 20, "bytes", range [262144 to 67108864],
            cost "no memory: large ranges are read directly into their rings";
        /// The buffer that receives headers and small ranges before their copy to the rings. Small: a system call
        /// for every few small transfers. Large: no gain beyond the bytes that a socket holds, and the buffer
        /// displaces other data from the processor's cache.
        staging_bytes: u32 = 256 << 10, "bytes", range [4096 to 16777216],
            cost "once per worker thread; at most once more per connection that waits for its application";
        /// Bytes of ranges that one connection queues towards the kernel. Small: more system calls. Large: one
        /// buffer's backlog delays the other buffers and the control messages of its connection.
        tx_queue_bytes: u32 = 1 << 20, "bytes", range [4096 to 1073741824],
            cost "none while queued (ranges stay in their rings); at most twice this per connection for ranges that another process wrote (each worker keeps up to 4 MiB of this memory for reuse), and this much when a slow subscription is cut off";
        /// Connections that the kernel completes before the program accepts them; net.core.somaxconn also limits
        /// this number. Small: when many peers connect at once, some of them wait for a second or more. Large:
        /// peers of a process that hangs learn of the problem late.
        backlog: u32 = 1024, "connections", range [1 to 65535], cost "kernel memory, about 1 KiB for each waiting connection";
        /// TCP_USER_TIMEOUT: the time that sent bytes may stay unacknowledged before the connection breaks. 0: the
        /// kernel's default, about 15 minutes; heartbeats usually detect a dead peer earlier. Small: a connection
        /// breaks during a short network outage that the connection would otherwise survive.
        user_timeout_ms: u32 = 0, "ms", range [0 or 100 to 86400000], cost "none";
        /// The largest single transfer. When several buffers of a connection have data, a transfer is the turn of
        /// one buffer. Small: every few bytes cost a header and a share of a system call. Large: the other buffers
        /// of the connection wait longer. At most `tx_queue_bytes`.
        max_transfer_bytes: u32 = 256 << 10, "bytes", range [4096 to 1073741824], cost "none";
        /// The pause after which the delivering thread sends a delivery itself, without waking a worker. Such a
        /// send has three conditions: nothing else waits on the connection; this much time has passed since the
        /// last send there (up to 4 pauses are saved up); and at most 16 KiB are pending. Small deliveries that
        /// come one by one, at most twice as often as these pauses allow, need only an eighth of the pause. 0: the
        /// delivering thread never sends. Small: threads that deliver a stream spend their time on small system
        /// calls. Large: single messages wait until a worker wakes up.
        inline_idle_us: u32 = 5, "us", range [0 or 1 to 1000000], cost "a system call for each wake-up of a worker";
    }
}

section! {
    /// TLS 1.3 of TCP connections (transports `tcp` and `auto`). The guide is docs/security/TLS.md.
    "tls" TlsSettings {
        /// "require": every TCP connection, in both directions, is encrypted, and the end that connects verifies the
        /// certificate of the other. A peer without TLS is refused with this reason. "off": no TCP connection is encrypted.
        /// RDMA is not encrypted, so that "require" is refused with the transport `rdma`.
        mode: String = "off".into(), "", range [one of "off" | "require"],
            cost "about 0.3 ns per byte at either end, and a handshake of a millisecond for each connection";
        /// File with the certificate of this process in PEM, and behind it those that lead to its authority. A process
        /// that listens needs it. A process that connects presents it if the other end asks for one. `rbmq keygen` makes
        /// certificates. The files are read when the process starts, and again by `rbmq` on SIGHUP.
        cert: Option<String> = None, "", range [a text of at most 4096 bytes], cost "none";
        /// File with the key of `cert` in PEM. Only the user of the process should be able to read it.
        key: Option<String> = None, "", range [a text of at most 4096 bytes], cost "none";
        /// File with the certificates of the trusted authorities in PEM: those that sign the certificates of servers, and,
        /// where clients have certificates, theirs. Unset: the authorities of the system, for servers alone.
        ca: Option<String> = None, "", range [a text of at most 4096 bytes], cost "none";
        /// File with the lists of revoked certificates of the authorities in `ca` in PEM (CRL). With it, a certificate is accepted
        /// only if a list of its authority is in force and does not name it. `rbmq keygen revoke` makes lists. Read when the
        /// other files are. Unset: no certificate is revoked.
        crl: Option<String> = None, "", range [a text of at most 4096 bytes], cost "none";
        /// Whether a listener asks its clients for certificates that an authority in `ca` has signed. "none": clients are
        /// not asked. "optional": a client may have one. "require": a client without one is refused.
        client_certificates: String = "none".into(), "", range [one of "none" | "optional" | "require"], cost "none";
        /// The name or address that the certificate of a server must be for, at every connection of this process. Unset: the
        /// host of the address that is connected to.
        server_name: Option<String> = None, "", range [a text of at most 253 bytes], cost "none";
        /// Time for which a client that reconnects may resume its handshake with a ticket of the listener, without certificates. Both
        /// ends must allow it. A reload ends all tickets of a listener. 0: every connection shows its certificate. Large: a client
        /// whose certificate expires can connect for this time more. There is no early data.
        resumption_s: u32 = 3600, "s", range [0 or 60 to 86400],
            cost "about 500 bytes for each connection, and 2 KiB in the client for each server";
        /// Handshakes of incoming connections that may be unfinished at once, for each worker. A connection beyond this
        /// number is closed. Small: when many clients connect at once, some of them have to try again. Large: peers that
        /// connect and send nothing can hold this many connections until `session.connect_timeout_ms` has passed.
        max_handshakes: usize = 1_000, "handshakes", range [1 to 1048576],
            cost "each: about 20 KiB, and at most 100 KiB";
    }
}

section! {
    /// Shared memory (transports `shm` and `auto`): the mapped rings of other processes, and access to own rings.
    "shm" ShmSettings {
        /// Rings of other processes that are mapped at once. A subscription beyond this number is refused with
        /// this reason. Small: local subscriptions are refused. Large: peers decide how many mappings this process
        /// has (vm.max_map_count).
        max_shared_rings: usize = 16_384, "rings", range [1 to 1048576],
            cost "each ring: three mappings and a descriptor";
        /// The sum of the capacities of the mapped rings. The writers choose these capacities and own the memory.
        /// Reading a page that was never written makes the kernel allocate the page for the reader. Small:
        /// subscriptions are refused. Large: a peer can make the kernel charge that much memory to this process.
        max_shared_bytes: u64 = 16 << 30, "bytes", range [4096 to 17592186044416],
            cost "address space, and the memory that the writers use";
        /// Whether processes of other users may connect to listeners of this process. Off: only processes of the same
        /// user and of root. On: every user of this machine can connect, and a subscriber of a buffer can read
        /// everything in its ring, including older bytes.
        other_users: bool = false, "", range [true or false], cost "none";
        /// The users whose listeners this process connects to, besides its own user and root: names of /etc/passwd or
        /// numbers, with commas between them, as in "rbmq, 990". The listener must let other users connect
        /// (`shm.other_users`). Unset: none. A listener of any other user is not used, since every user of a machine can
        /// take the local name of an address, and would get passwords and tokens: `auto` then takes TCP, and `shm`
        /// fails. TLS does not protect a connection over shared memory.
        server_users: Option<String> = None, "", range [a text of at most 4096 bytes], cost "none";
        /// Whether bytes in rings of other processes of this machine are borrowed in place, as received bytes are.
        /// Off: such bytes are copied and never borrowed as slices; a writer that overwrites bytes against its
        /// promise corrupts only its own data. On: nothing is copied, and every process that may connect must be
        /// an honest program that uses this library. The code of this process then treats as constant the bytes
        /// that such a writer could change; a change of these bytes is undefined behaviour. The setting applies to
        /// shared memory alone: bytes that a peer writes over RDMA are never borrowed as a plain slice.
        trust_writers: bool = false, "", range [true or false], cost "off: a copy for each reader";
        /// The time for which a receiving thread keeps polling its rings after the last data, before the thread
        /// sleeps. 0: the thread sleeps at once, and the writer wakes it. Large: a message arrives within a
        /// fraction of a microsecond, and a core is busy although nothing comes. Use this setting only where there
        /// are more cores than polling threads. Streams of small messages at full speed are a third faster through
        /// buffers of 16 MiB than through buffers of the default size.
        busy_poll_us: u32 = 0, "us", range [0 or 1 to 1000000], cost "a core for each worker, for this time";
    }
}

section! {
    /// RDMA (transport `rdma`): queues, and the detection of a dead peer. The guide is docs/RDMA.md.
    "rdma" RdmaSettings {
        /// Worker threads that own connections where the transport is `rdma` (paper 1, section 3.6). Each thread
        /// polls the completions of its own connections. 0: one thread, as 1. Too few: one core is full while
        /// other cores are idle. More than cores: threads take turns.
        rdma_num_threads: usize = 1, "threads", range [0 or 1 to 64],
            cost "as tcp.tcp_num_threads";
        /// Polls for completions without end instead of sleeping until the adapter's event. Off: one wake-up
        /// for each batch. On: some microseconds less latency, and each worker keeps a core busy all the time.
        polling: bool = false, "", range [true or false], cost "a core for each worker";
        /// Requests that one connection has in flight. Small: transfers wait for the acknowledgements of other
        /// transfers. Large: memory of the adapter.
        send_depth: u32 = 256, "requests", range [32 to 16384], cost "about 128 bytes each";
        /// Receives that are posted ahead for each connection. The peer sends no more than these until the
        /// receiver has processed some of them. Small: many small transfers wait for the receiver's thread.
        receive_depth: u32 = 256, "receives", range [32 to 16384], cost "1 KiB of locked memory each";
        /// Bytes that are part of a request itself, so that the adapter does not fetch them from memory. An
        /// adapter that offers less reduces the number. 0: the adapter fetches everything.
        inline_bytes: u32 = 512, "bytes", range [0 or 1 to 4096], cost "the adapter's memory, for each request";
        /// Memory from which messages are sent, and which holds copies of bytes that cannot be registered. Small:
        /// messages wait for each other.
        outbox_bytes: u32 = 256 << 10, "bytes", range [65536 to 67108864],
            cost "locked memory, once for each connection";
        /// Bytes of ranges that one connection queues or has in flight. Small: long paths are not filled. Large:
        /// one buffer's backlog delays the other buffers of its connection.
        tx_queue_bytes: u32 = 1 << 20, "bytes", range [4096 to 1073741824], cost "none: ranges stay in their rings";
        /// The wait for an acknowledgement is 4.096 us times two to this power: 14 is 67 ms. Small: on a busy
        /// network the adapter repeats sends that were not lost. Large: a dead peer is detected late.
        ack_timeout: u32 = 14, "", range [8 to 22], cost "none";
        /// Repetitions of an unacknowledged send before the connection counts as broken. Small: a short outage
        /// breaks the connection.
        retries: u32 = 6, "", range [1 to 6], cost "none";
    }
}

section! {
    /// Buffers and their memory (paper 1, sections 3.1 and 3.6; paper 3, section 2.2).
    "buffers" BufferSettings {
        /// Capacity of a buffer's ring where the program gives none, rounded up to a power of two. A rule of thumb
        /// is ten times the largest message. Small: a writer waits for its slowest subscriber more often. The
        /// largest delivery is a quarter of the capacity. Large: memory, and a working set beyond the processor's
        /// cache.
        size_bytes: u64 = 1 << 20, "bytes", range [4096 to 1099511627776],
            cost "this much memory per buffer, at a writer and at every receiver, once it has been filled, and two mappings (vm.max_map_count)";
        /// The history that a buffer keeps for subscribers that join, resume or replay. The setting applies to
        /// buffers that an rOut creates or splices. Unset: half of each buffer's size. 0: no history; a new
        /// subscriber gets only later deliveries, and messages of 512 KiB through small rings are a tenth faster.
        /// Large: a writer may run only `size - retain` ahead of its subscribers. At most three quarters of
        /// `size_bytes`.
        retain_bytes: Option<u64> = None, "bytes", range [0 or 1 to 1099511627776],
            cost "none of its own; the history is part of the ring, and reduces the space that absorbs bursts";
        /// Address space of one reservation, from which rings are cut. The memory is allocated on first use. A
        /// larger ring gets a reservation of its own size. Small: many reservations, each with a descriptor.
        /// Large: the system refuses the reservation where the size of files is limited (ulimit -f).
        reservation_bytes: u64 = 1 << 30, "bytes", range [1048576 to 17592186044416],
            cost "one file descriptor per reservation; no memory before use";
        /// The time without received or written bytes after which a ring gives memory back: all memory that no
        /// subscriber needs or holds, except the ring's history (`idle_retain_bytes`). 0: never. Small: a ring
        /// that pauses often requests the same pages from the system again and again. Large: thousands of rings
        /// keep memory for this time that they no longer need.
        idle_trim_ms: u32 = 500, "ms", range [0 or 10 to 3600000],
            cost "a system call or two for each ring that comes to rest";
        /// The total history that all spliced rings and all buffers written by this process keep at rest, for
        /// subscribers that join or resume. When the total is used up, the rings that have rested longest keep
        /// only their last delivery, with the bytes that came together with it, if these are at most 64 KiB;
        /// otherwise such a ring keeps nothing. A buffer that this process writes and that has no subscribers
        /// keeps its history in any case. Small: late subscribers find little history, and a restarted receiver
        /// gets little again. Large: memory.
        idle_retain_bytes: u64 = 512 << 20, "bytes", range [0 or 1 to 17592186044416],
            cost "at most this and the last deliveries, of memory that the rings have already";
        /// The sum of all rings' capacities. A ring beyond this sum is refused with the arithmetic. A capacity is
        /// address space: its memory is allocated on first use, and a ring at rest gives back the memory that it
        /// does not need (`idle_trim_ms`). The default has space for 10,000 rings of 1 MiB that are not all full
        /// at once. Where all rings may be full at once, set this value to the memory that the rings may use.
        /// Small: subscriptions and buffers are refused. Far beyond the machine's memory: if all rings fill, the
        /// kernel ends the process. At least `size_bytes`.
        max_ring_bytes: u64 = 16 << 30, "bytes", range [4096 to 17592186044416],
            cost "none by itself: the most memory that rings may take";
    }
}

section! {
    /// Sessions: heartbeats, timeouts, and the treatment of slow and lost peers.
    "session" SessionSettings {
        /// A connection that has sent nothing for this long sends a heartbeat. A peer that is silent for three
        /// times the interval that it announced counts as dead. 0: this end sends no heartbeats; the peer sends a
        /// PING after a third of its `max_silence_ms`. Small: traffic and wake-ups on idle connections, and a busy
        /// peer counts as dead. Large or 0: a dead peer is detected late, after `max_silence_ms`, and holds its
        /// writers until then.
        heartbeat_ms: u32 = 5000, "ms", range [0 or 10 to 3600000],
            cost "one message of 17 bytes per idle connection and interval";
        /// The longest silence of a peer, whatever heartbeat the peer announced. After a third of this time this
        /// end sends a PING, which every peer answers. If nothing has come by the end of this time, the connection
        /// is closed. Three times the peer's heartbeat applies where that is shorter. 0: no limit; a peer without
        /// a heartbeat that disappears is then detected only when the kernel gives up on the bytes sent to that
        /// peer. Small: a peer that is busy or stopped for a moment loses its connection, and where a third of
        /// this time is short, idle connections exchange PING all the time. Several times `heartbeat_ms` is a
        /// sensible value. Large: peers without heartbeats that disappear hold their writers for this time.
        max_silence_ms: u32 = 60_000, "ms", range [0 or 100 to 86400000],
            cost "a PING and its answer per connection and third of this time, where the peer sends nothing else";
        /// The time from an incoming connection to its first message. Small: peers on slow networks and busy peers
        /// are refused. Large: unknown peers that connect and send nothing hold a connection for this time.
        handshake_timeout_ms: u32 = 5000, "ms", range [10 to 3600000], cost "none";
        /// The time that an outgoing connection may take, including its handshake. Small: connecting fails on slow
        /// networks. Large: a program that connects to a dead machine waits for this time.
        connect_timeout_ms: u32 = 5000, "ms", range [10 to 3600000], cost "none";
        /// A subscription with policy `block` that makes no progress for this long while others wait for it is
        /// ended with this reason. 0: no limit. Small: a pause of a healthy receiver ends its subscription. Large
        /// or 0: one receiver that hangs stops the writer and all other receivers for this time.
        block_timeout_ms: u32 = 10_000, "ms", range [0 or 10 to 3600000], cost "none";
        /// The time for which a spliced buffer whose writer lost its connection waits for the writer's return.
        /// After this time the subscribers receive GONE. Small: every short outage ends the log. Large:
        /// subscribers learn of the end late, and the buffer's memory is held for this time.
        linger_ms: u32 = 10_000, "ms", range [0 or 10 to 3600000], cost "the memory of the buffer, for this time";
        /// The lag at which the policies `drop` and `disconnect` act, where the subscriber gave none. The newest delivery
        /// is no lag, however large it is. 0: half of the lag that the ring allows a subscriber. Small: the policy
        /// acts on bursts that a subscriber would have caught up with. Large: the policy acts only when the ring is full,
        /// and the bytes delivered then are old.
        max_lag_bytes: u64 = 0, "bytes", range [0 or 1 to 1099511627776], cost "none";
        /// The time that an orderly close may take to send the queued bytes. Small: the last messages and the
        /// reason are lost on slow networks. Large: a program waits for this time for a peer that does not read.
        close_linger_ms: u32 = 2000, "ms", range [0 or 10 to 600000], cost "none";
    }
}

section! {
    /// Limits: the most that peers and programs may ask for. Reaching a limit is an error that names the limit.
    "limits" Limits {
        /// Connections open at once, in and out. An incoming connection beyond this number is closed on arrival.
        /// Small: clients are refused. Beyond `ulimit -n`: the system refuses first, with a less helpful error.
        max_connections: usize = 10_000, "connections", range [1 to 1048576],
            cost "each open connection: one file descriptor and about 1 KiB, besides the kernel's buffers";
        /// Buffers and received subscriptions of a process together. Small: `create_buffer`, `subscribe` and
        /// splices are refused. Large: memory for tables.
        max_buffers: usize = 65_536, "buffers", range [1 to 16777216],
            cost "each buffer: about 1 KiB besides its ring; per worker thread 1 bit for each allowed buffer";
        /// Subscriptions of one connection. Small: subscriptions are refused (TooMany). Large: one peer can make
        /// this end keep that many cursors.
        max_subscriptions_per_connection: usize = 65_536, "subscriptions", range [1 to 16777216],
            cost "each subscription: about 512 bytes at either end, besides the receiver's ring";
        /// The largest control message accepted from a peer. A larger message ends the connection. Messages of the
        /// application are control messages too. The handshake needs the lower end of the range. Large: a peer can
        /// make each connection hold that many bytes.
        max_control_bytes: u32 = 65_536, "bytes", range [2048 to 16777216],
            cost "at most this per connection, while a message is incomplete";
        /// Held positions of durable subscriptions (with a name and a hold time), connected or offline: a subscriber
        /// of 1,000 buffers has 1,000. A subscription beyond this number continues, and its subscriber is told
        /// that its position is not held. Small: a subscriber that is offline for a moment loses the bytes of that
        /// time. Large: many subscribers that never return hold their writers.
        max_held_subscriptions: usize = 65_536, "subscriptions", range [0 or 1 to 16777216],
            cost "each offline subscription: about 512 bytes, and the history that it holds in its buffer";
        /// The longest time for which a position is held, whatever the subscriber asks for. Small: a subscriber
        /// that restarts finds that its position is no longer held. Large: subscribers that never return hold
        /// their writers for this time (policy `block`).
        max_hold_ms: u32 = 600_000, "ms", range [0 or 1 to 4294967295], cost "none by itself";
        /// Deliveries of one buffer whose contexts wait for their callback. A delivery beyond this number is
        /// refused. Small: writers with many deliveries in flight stop before the ring is full. Large: memory.
        max_pending_contexts: usize = 65_536, "deliveries", range [1 to 16777216],
            cost "each pending delivery: 16 bytes";
    }
}
