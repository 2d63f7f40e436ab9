//! Received bytes.

use std::ffi::c_void;

use libc::iovec;
use rocketbufs::InView;

use crate::raw::{answer, bytes_mut, rb_id128};
use crate::status::rb_status::{RB_ERR_ARGUMENT, RB_ERR_LAPPED};
use crate::status::{Failure, Outcome, call, rb_status};
use crate::table::{exclusive, insert, kinds, take};

/// Received bytes that are held in place. One thread uses it at a time.
pub struct rb_view(());

kinds! { rb_view => View, 11, "view"; }

/// Received bytes that are held.
pub(crate) struct View(pub(crate) InView);

/// The bytes that a view shows. The memory belongs to the ring.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub struct rb_data {
    /// The bytes in place, until the view is consumed or freed. NULL where other processes may write the memory while it is
    /// read (see `rb_view_copy` and `rb_view_trusting`).
    pub data: *const c_void,
    /// The number of bytes.
    pub len: usize,
    /// The buffer.
    pub bid: u32,
    /// The position of the first byte.
    pub position: u64,
    /// The position behind the last byte.
    pub end: u64,
    /// The writer's log.
    pub epoch: rb_id128,
    /// The view, which the caller consumes or frees.
    pub view: *mut rb_view,
}

impl rb_data {
    fn of(view: &InView, handle: *mut rb_view) -> Self {
        Self {
            data: view.as_slice().map_or(std::ptr::null(), |bytes| bytes.as_ptr().cast()),
            len: view.len(),
            bid: view.bid(),
            position: view.position(),
            end: view.end(),
            epoch: view.epoch().0.into(),
            view: handle,
        }
    }
}

/// Hands a view to the caller.
#[inline(always)]
pub(crate) fn give(view: InView) -> Result<rb_data, Failure> {
    let mut data = rb_data::of(&view, std::ptr::null_mut());
    data.view = insert(View(view))?;
    Ok(data)
}

/// Puts the bytes that a view shows now into `*data`, which is valid until the view is consumed or freed. One thread uses a
/// view at a time.
#[unsafe(no_mangle)]
pub extern "C" fn rb_view_data(view: *mut rb_view, data: *mut rb_data) -> rb_status {
    answer(data, "the place for the data", || Ok(rb_data::of(&exclusive::<View>(view)?.0, view)))
}

/// Copies bytes from `offset` on. One thread uses a view at a time.
///
/// Fails with `RB_ERR_LAPPED` if the bytes were overwritten: the writer of a buffer without flow control was faster, or, in memory
/// that another process writes, the writer gave the bytes up while a connection was lost. The copy is not valid then, and no other
/// report of this loss follows. Fails with `RB_ERR_ARGUMENT` if there are fewer bytes.
#[unsafe(no_mangle)]
pub extern "C" fn rb_view_copy(view: *mut rb_view, offset: usize, to: *mut c_void, len: usize) -> rb_status {
    call(|| {
        let view = exclusive::<View>(view)?;
        if offset.checked_add(len).is_none_or(|end| end > view.0.len()) {
            return Err(Failure::new(RB_ERR_ARGUMENT, "the view has fewer bytes"));
        }
        Ok(view.0.copy_to(offset, bytes_mut(to, len, "the place for the bytes")?)?)
    })
}

/// The bytes in place, also in memory that other processes write: for programs that trust the publisher, and the relays on this
/// machine, not to overwrite held bytes. Read each byte once: a hostile publisher may change it in between.
///
/// `*piece` is valid until the view is consumed or freed. One thread uses a view at a time. Fails with `RB_ERR_LAPPED` if the
/// buffer has no flow control.
#[unsafe(no_mangle)]
pub extern "C" fn rb_view_trusting(view: *mut rb_view, piece: *mut iovec) -> rb_status {
    answer(piece, "the place for the piece", || {
        let view = exclusive::<View>(view)?;
        // SAFETY: no reference leaves this function; the pointer does, and by the documentation its user trusts the writer.
        let bytes = unsafe { view.0.trusting() };
        let none = || Failure::new(RB_ERR_LAPPED, "the buffer has no flow control: copy the bytes");
        let bytes = bytes.ok_or_else(none)?;
        Ok(iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() })
    })
}

/// Releases everything up to the end of the view, so that the writer may use the space again, and frees the handle. One thread
/// uses a view at a time.
#[unsafe(no_mangle)]
pub extern "C" fn rb_view_consume(view: *mut rb_view) -> rb_status {
    call(|| {
        take::<View>(view)?.0.consume();
        Ok(())
    })
}

/// Releases the bytes below `position`. The view no longer shows them; pointers to the others stay valid. One thread uses a view
/// at a time.
#[unsafe(no_mangle)]
pub extern "C" fn rb_view_consume_part(view: *mut rb_view, position: u64) -> rb_status {
    call(|| exclusive::<View>(view).map(|mut view| view.0.consume_part(position)))
}

/// Releases the bytes below `position`, and frees the handle. Bytes after it are not released: a durable subscription that
/// resumes gets them again. One thread uses a view at a time.
#[unsafe(no_mangle)]
pub extern "C" fn rb_view_consume_up_to(view: *mut rb_view, position: u64) -> rb_status {
    call(|| {
        take::<View>(view)?.0.consume_up_to(position);
        Ok(())
    })
}

/// Frees a view without releasing its bytes: consuming a later view of the buffer releases them too. NULL does nothing.
#[unsafe(no_mangle)]
pub extern "C" fn rb_view_free(view: *mut rb_view) -> rb_status {
    call(|| -> Outcome {
        if view.is_null() { Ok(()) } else { take::<View>(view).map(drop) }
    })
}
