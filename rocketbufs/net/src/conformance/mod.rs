//! The conformance suite: the duties of every transport, generic over the transport.
//!
//! A transport joins by a [`Lab`], which makes two transports that can reach each other, and one line of
//! [`conformance_tests!`](crate::conformance_tests) that makes a test of each case:
//!
//! ```ignore
//! rocketnet::conformance_tests!(plain, MyLab::new());
//! ```
//!
//! ```text
//!        Kit
//!  ┌───────────────┐  Flow: a source ring at one end, a sink ring at the other; the byte at
//!  │ A ◀────────▶ B│  each position is known, so that landed bytes can be checked
//!  └───────────────┘
//! ```
//!
//! Cases ask [`Transport::promises`] and require only what is promised. The number of steps without an
//! event is limited, so that a case ends, with a panic that names what it was waiting for.

pub mod control;
pub mod data;
pub mod flow;
pub mod kit;
mod lab;
pub mod life;
pub mod proxy;
pub mod random;

pub use flow::Flow;
pub use kit::{End, Kit};
pub use lab::Lab;

/// Makes one `#[test]` of each case of the suite, in a module `$name`, on the [`Lab`](crate::conformance::Lab) that the
/// expression makes.
#[macro_export]
macro_rules! conformance_tests {
    ($name:ident, $lab:expr) => {
        mod $name {
            #[allow(unused_imports)]
            use super::*;
            $crate::conformance_tests!(@each $lab;
                data::lands_at_every_kind_of_position,
                data::many_small_ranges,
                data::large_ranges,
                data::interleaved_wires,
                data::more_and_boundary,
                data::queue_full_and_writable,
                data::detach_copies_and_frees,
                data::trimmed_rings_go_on,
                data::skip_in_answer_to_control,
                data::overrun_ends_the_connection,
                data::unknown_wire_ends_the_connection,
                control::both_ways,
                control::largest,
                control::too_large,
                control::in_order_with_data,
                control::reserve_beside_full_queue,
                life::pause_loses_nothing,
                life::unbind_gives_back,
                life::rebind_after_unbind,
                life::discard_until_unbind,
                life::close_with_linger_delivers,
                life::close_at_once,
                life::peer_death_is_told,
                life::connect_refused,
                life::unlisten_refuses_newcomers,
                life::forgotten_ids_are_harmless,
                life::connections_are_independent,
                random::traffic,
            );
        }
    };
    (@each $lab:expr; $($group:ident::$case:ident),* $(,)?) => {
        $(
            #[test]
            fn $case() {
                $crate::conformance::$group::$case(&mut $lab);
            }
        )*
    };
}
