//! Pieces of memory of buffers: segments to fill, and received bytes inside a callback (paper 1, Listing 1).

use std::cell::Cell;
use std::ffi::{c_int, c_void};

use libc::iovec;
use rocketbufs::error::DeliverError;
use rocketbufs::{BufSeg, OutSegment, OutWriter, Position};

use crate::failures::of_deliver;
use crate::raw::{answer, bytes_mut, get, place, put};
use crate::status::rb_status::{RB_ERR_ARGUMENT, RB_ERR_OTHER};
use crate::status::{Failure, Outcome, call, rb_status};
use crate::table::{Reserve, insert_placed, kinds, take, take_to};
use crate::view::{give, rb_data};

/// A free piece of a buffer, between `rb_buffer_segment` and `rb_buffer_deliver`. One thread uses it at a time.
pub struct rb_segment(());

kinds! { rb_segment => OpenSegment, 8, "segment"; }

/// A piece of a buffer's memory (paper 1, Listing 1, `buf_seg`).
///
/// Of `rb_buffer_segment`: memory to fill, the caller's until `rb_buffer_deliver`. In a data callback: received bytes, valid
/// until the callback returns. A copy of the structure is the same piece.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct rb_buf_seg {
    /// The pieces of memory.
    pub vecs: *mut iovec,
    /// Their number: 1, as rings are mapped twice. 0 where other processes may write the memory while it is read (transport
    /// `shm` without `shm.trust_writers`, transport `rdma`, buffers without flow control): use `rb_buf_seg_copy` there.
    pub vec_count: c_int,
    /// The buffer.
    pub bid: u32,
    /// The position of the first byte in the log.
    pub position: u64,
    /// The number of bytes.
    pub len: usize,
    /// The handle of a segment to fill; NULL otherwise.
    pub segment: *mut rb_segment,
    /// The library's.
    pub reserved: *const c_void,
}

/// No memory: the value of `*seg` after a delivery.
const NOTHING: rb_buf_seg = rb_buf_seg {
    vecs: std::ptr::null_mut(),
    vec_count: 0,
    bid: 0,
    position: 0,
    len: 0,
    segment: std::ptr::null_mut(),
    reserved: std::ptr::null(),
};

/// A segment to fill.
pub(crate) struct OpenSegment {
    segment: OutSegment,
    vec: iovec,
}

// SAFETY: the pointer of `vec` is that of the segment's bytes, which moves with the segment.
unsafe impl Send for OpenSegment {}

/// The slot for the segments of a writer.
pub(crate) type SegmentReserve = Reserve<OpenSegment>;

/// A writer, and the slot for its segments.
pub(crate) struct SegmentWriter {
    pub(crate) writer: OutWriter,
    pub(crate) reserve: SegmentReserve,
}

/// Hands a segment to the caller.
#[inline(always)]
pub(crate) fn open(
    seg: *mut rb_buf_seg,
    mut segment: OutSegment,
    reserve: Option<&mut SegmentReserve>,
) -> Outcome {
    let (bid, position) = (segment.bid(), segment.position());
    let bytes = segment.bytes_mut();
    let vec = iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
    let len = vec.iov_len;
    let (segment, placed) = insert_placed(OpenSegment { segment, vec }, reserve)?;
    // SAFETY: the object stays where it is until its handle is freed; only the address of a field is taken.
    let vecs = unsafe { &raw mut (*placed).vec };
    put(seg, rb_buf_seg { vecs, vec_count: 1, bid, position, len, segment, reserved: std::ptr::null() });
    Ok(())
}

/// Delivers the caller's segment. A segment that comes back is the caller's again.
#[inline(always)]
pub(crate) fn deliver(
    seg: *mut rb_buf_seg,
    end: *mut u64,
    mut reserve: Option<&mut SegmentReserve>,
    deliver: impl FnOnce(OutSegment) -> Result<Position, DeliverError>,
) -> Outcome {
    let handle = get(seg, "the segment's structure")?.segment;
    let segment = match &mut reserve {
        Some(reserve) => {
            let taken = take_to(reserve, handle)?;
            // SAFETY: read once, before the reserve is used again. The other field needs no drop.
            unsafe { (&raw const (*taken).segment).read() }
        }
        None => take::<OpenSegment>(handle)?.segment,
    };
    match deliver(segment) {
        Ok(position) => {
            put(seg, NOTHING);
            put(end, position);
            Ok(())
        }
        Err(error) => Err(not_delivered(seg, error, reserve)),
    }
}

/// Gives the segment that was not delivered back to the caller, if it can be delivered otherwise.
#[cold]
fn not_delivered(seg: *mut rb_buf_seg, error: DeliverError, reserve: Option<&mut SegmentReserve>) -> Failure {
    let failure = Failure::of(of_deliver(&error), &error);
    match error {
        DeliverError::ShortDeliver(back)
        | DeliverError::TooLong { segment: back, .. }
        | DeliverError::Foreign(back) => open(seg, back, reserve).err().unwrap_or(failure),
        _ => {
            put(seg, NOTHING);
            failure
        }
    }
}

thread_local! {
    /// The received bytes of the callback that runs on this thread.
    static RECEIVED: Cell<*const c_void> = const { Cell::new(std::ptr::null()) };
}

/// Calls a data callback with received bytes.
pub(crate) fn with_received(bid: u32, data: &BufSeg<'_>, callback: impl FnOnce(*const rb_buf_seg)) {
    let mut vec = iovec { iov_base: std::ptr::null_mut(), iov_len: 0 };
    if let Some(bytes) = data.as_slice() {
        vec = iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    }
    let seg = rb_buf_seg {
        vecs: &raw mut vec,
        vec_count: data.vec_count() as c_int,
        bid,
        position: data.position(),
        len: data.len(),
        segment: std::ptr::null_mut(),
        reserved: (&raw const *data).cast(),
    };
    // A callback may receive, and so run another one.
    let outer = RECEIVED.replace(seg.reserved);
    callback(&raw const seg);
    RECEIVED.set(outer);
}

/// The received bytes of a structure, in the data callback that was given it.
fn received(seg: &rb_buf_seg) -> Result<&BufSeg<'_>, Failure> {
    if seg.reserved.is_null() || RECEIVED.get() != seg.reserved {
        return Err(Failure::new(RB_ERR_ARGUMENT, "the segment is not that of the callback that runs here"));
    }
    // SAFETY: the callback that was given this structure runs on this thread, so what it points at is alive.
    Ok(unsafe { &*seg.reserved.cast::<BufSeg<'_>>() })
}

/// Holds received bytes for longer than the data callback that they were given to: they stay in place until the view is consumed or
/// freed, also if they are released with `rb_rin_data_consumed` meanwhile.
///
/// `*data` shows the bytes; its view is the caller's. Fails with `RB_ERR_OTHER` if they cannot be held (the buffer is spliced or has no
/// flow control, or they were released already), and with `RB_ERR_ARGUMENT` outside of the callback.
#[unsafe(no_mangle)]
pub extern "C" fn rb_buf_seg_to_view(seg: *const rb_buf_seg, data: *mut rb_data) -> rb_status {
    answer(data, "the place for the data", || {
        let view = received(get(seg, "the segment")?)?.to_view();
        give(view.ok_or_else(|| Failure::new(RB_ERR_OTHER, "the bytes cannot be held"))?)
    })
}

/// Copies received bytes from `offset` on, inside the data callback that they were given to. Also where `vec_count` is 0.
///
/// Fails with `RB_ERR_LAPPED` if the bytes were overwritten: the writer of a buffer without flow control was faster, or, in memory
/// that another process writes, the writer gave the bytes up while a connection was lost. The copy is not valid then, and no other
/// report of this loss follows. Fails with `RB_ERR_ARGUMENT` if there are fewer bytes, or outside of the callback.
#[unsafe(no_mangle)]
pub extern "C" fn rb_buf_seg_copy(
    seg: *const rb_buf_seg,
    offset: usize,
    to: *mut c_void,
    len: usize,
) -> rb_status {
    call(|| {
        let seg = get(seg, "the segment")?;
        place(to, "the place for the bytes")?;
        let data = received(seg)?;
        if offset.checked_add(len).is_none_or(|end| end > seg.len) {
            return Err(Failure::new(RB_ERR_ARGUMENT, "the segment has fewer bytes"));
        }
        Ok(data.copy_to(offset, bytes_mut(to, len, "the place for the bytes")?)?)
    })
}
