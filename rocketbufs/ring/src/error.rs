//! Errors of the two sources of rings: a pool, and another process.

use std::io;

/// Why a pool returned no ring.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PoolError {
    /// The pool's limit is reached: the caller's configuration.
    #[error(
        "a ring of {asked} bytes does not fit: {in_use} of at most {max} bytes are in use, {} are left; \
         raise that limit (the pool's max_bytes; in a configuration buffers.max_ring_bytes) or ask for less",
        max - in_use
    )]
    Limit {
        /// The requested capacity, after rounding up.
        asked: u64,
        /// The sum of the capacities of all rings that exist.
        in_use: u64,
        /// The pool's limit.
        max: u64,
    },
    /// The retained history leaves the writer no room: the caller's configuration.
    #[error("retaining {retain} of {capacity} bytes leaves the writer too little; retain at most {at_most}")]
    Retain {
        /// The requested history.
        retain: u64,
        /// The capacity after rounding up.
        capacity: u64,
        /// The largest history for that capacity.
        at_most: u64,
    },
    /// No delivery of the configured size could ever be made: the caller's configuration.
    #[error("deliveries of {asked} bytes do not fit into what is not retained; allow at most {at_most}")]
    MaxDelivery {
        /// The requested limit on the size of a delivery.
        asked: u64,
        /// Capacity minus retain.
        at_most: u64,
    },
    /// The system refused a descriptor, address space or a mapping.
    #[error("the system gave no memory for a ring: {0}")]
    Os(#[from] io::Error),
}

/// Why a ring did not grow. It is as it was.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GrowError {
    /// The ring cannot grow: another process or an adapter knows its memory, or its writer waits for no reader.
    #[error(
        "a ring that others map, that an adapter reads or that has no flow control stays as large as it is"
    )]
    Fixed,
    /// The caller's mistake: the writer has open claims.
    #[error("a ring grows only while its writer has no open claims")]
    OpenClaims,
    /// The pool has no room for the larger ring.
    #[error(transparent)]
    Pool(#[from] PoolError),
}

/// Why another process's memory was not mapped.
#[cfg(not(loom))]
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MapError {
    /// The peer's fault: the descriptor is no file in ordinary memory.
    #[error("the peer offered a descriptor that is no memory file on ordinary pages")]
    NotMemory,
    /// The peer's fault: it could still shrink the file, which would end this process, or change it in other ways.
    #[error("the peer offered memory that is not sealed (SHRINK, GROW, FUTURE_WRITE and SEAL are needed)")]
    NotSealed,
    /// The peer's fault: the size is not the size of a ring with its head page.
    #[error(
        "the peer offered memory of {0} bytes, which is not a page and a power of two of at least a page"
    )]
    Size(u64),
    /// The peer's fault: the first page is no head page.
    #[error("the peer offered memory that does not begin as a ring of this machine and version")]
    NotARing,
    /// The peer's fault: the descriptor of its doorbell gives it no right to read and write a pipe.
    #[error("the peer offered a doorbell that is no pipe, or not open for reading and writing")]
    NotAPipe,
    /// The limit on the number of mapped rings is reached.
    #[error("{in_use} rings of other processes are mapped; the limit (shm.max_shared_rings) is {max}")]
    TooMany {
        /// The number of rings that are mapped now.
        in_use: usize,
        /// The limit.
        max: usize,
    },
    /// The limit on the bytes of mapped rings is reached.
    #[error(
        "a ring of {asked} bytes of another process does not fit: {in_use} of at most {max} bytes \
         (shm.max_shared_bytes) are mapped"
    )]
    TooLarge {
        /// The capacity of the offered ring.
        asked: u64,
        /// The sum of the capacities that are mapped.
        in_use: u64,
        /// The limit.
        max: u64,
    },
    /// The system refused.
    #[error("another process's ring cannot be mapped: {0}")]
    Os(#[from] io::Error),
}
