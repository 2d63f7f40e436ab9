//! The application's decision about the subscriptions of peers.

use std::ffi::c_void;

use rocketbufs::{Admitted, Asking, Policy, PolicySet, ROut};

use crate::conn::function;
use crate::handles::rb_rout;
use crate::raw::CallbackContext;
use crate::status::{call, rb_status};
use crate::table::shared;

/// A peer that asks to subscribe.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct rb_asking {
    /// The number of the connection, as `rb_conn_id` returns it.
    pub conn: u64,
    /// The buffer.
    pub bid: u32,
    /// The name of the subscription.
    pub name: *const c_void,
    /// The bytes of the name; 0: the subscription has none.
    pub name_len: usize,
}

/// The policies and the owner that a peer may subscribe with.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct rb_admitted {
    /// The allowed policies, besides those of `rb_buffer_set_limits`: the bit `1 << RB_POLICY_…` for each. The peer is told which
    /// are allowed if it asks for another.
    pub policies: u32,
    /// The owner of the subscription's name: subscriptions of different owners with the same name have nothing to do with each
    /// other. Otherwise a peer that knows a name takes over the subscription and its held position.
    pub owner: u64,
}

/// A callback that decides whether a peer may subscribe. `asking` and `admitted` are valid until the callback returns.
/// `admitted` has all policies and the owner 0, and the callback may change them. Returns whether the peer may subscribe: to a
/// peer that may not, the buffer looks as if it did not exist.
pub type rb_admission_fn =
    Option<extern "C" fn(ctx: *mut c_void, asking: *const rb_asking, admitted: *mut rb_admitted) -> bool>;

const POLICIES: [Policy; 4] = [Policy::Block, Policy::Drop, Policy::Disconnect, Policy::Overwrite];

fn set_of(bits: u32) -> PolicySet {
    POLICIES.into_iter().filter(|policy| bits & 1 << *policy as u32 != 0).collect()
}

/// The bits of all policies.
fn all() -> u32 {
    POLICIES.into_iter().fold(0, |bits, policy| bits | 1 << policy as u32)
}

/// Asks `decide` on a worker thread about each subscription of a peer before it is accepted, one call at a time. Without it
/// everything is allowed. Existing subscriptions stay until `rb_rout_review_admissions`. A callback in place of an earlier one
/// leaves no moment without either.
///
/// `ctx` is the caller's, and is used until `rb_rout_unset_admission`, or another call of this, has returned. Inside the callback
/// itself: until that call has returned. Any thread.
#[unsafe(no_mangle)]
pub extern "C" fn rb_rout_set_admission(
    rout: *const rb_rout,
    decide: rb_admission_fn,
    ctx: *mut c_void,
) -> rb_status {
    call(|| {
        let (decide, ctx) = (function(decide)?, CallbackContext(ctx));
        shared::<ROut>(rout)?.set_admission(move |asked: &Asking<'_>| {
            let (name, name_len) = (asked.name.as_ptr().cast(), asked.name.len());
            let asking = rb_asking { conn: asked.conn, bid: asked.bid, name, name_len };
            let mut admitted = rb_admitted { policies: all(), owner: 0 };
            let allows = decide(ctx.pointer(), &raw const asking, &raw mut admitted);
            allows.then(|| Admitted { policies: set_of(admitted.policies), owner: admitted.owner })
        });
        Ok(())
    })
}

/// Removes the callback: everything is allowed again. When this has returned, no call of it runs on another thread and none
/// begins: `ctx` may be freed. Inside the callback itself: once that call has returned. Any thread.
#[unsafe(no_mangle)]
pub extern "C" fn rb_rout_unset_admission(rout: *const rb_rout) -> rb_status {
    call(|| shared::<ROut>(rout).map(|rout| rout.unset_admission()))
}

/// Asks the callback of `rb_rout_set_admission` again about all subscriptions, because its decisions may have changed. A
/// subscription that is not allowed any more ends, and its peer is told (`RB_IN_REFUSED`); its position is not kept. Everything
/// else on the connection goes on. Returns at once. Any thread.
#[unsafe(no_mangle)]
pub extern "C" fn rb_rout_review_admissions(rout: *const rb_rout) -> rb_status {
    call(|| shared::<ROut>(rout).map(|rout| rout.review_admissions()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policies_are_bits() {
        assert_eq!((set_of(all()), all()), (PolicySet::ALL, 0b1111));
        let some = set_of(1 << Policy::Drop as u32 | 1 << 9);
        assert!(some.contains(Policy::Drop) && !some.contains(Policy::Block) && set_of(0).is_empty());
    }
}
