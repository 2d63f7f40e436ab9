//! Small types that know nothing of buffers, subscriptions, ends or workers.

mod budget;
mod busy_poll;
mod confirmed;
mod durable_slots;
mod idle_state;
mod log;
mod meter;
mod min_receivers;
mod rate_limit;
mod watchers;

pub use budget::Budget;
pub(crate) use budget::{Calls, Member, Membership, page_bytes};
pub(crate) use busy_poll::{BusyPollBudget, POLLS_PER_DELIVERY};
pub use confirmed::{ConfirmedPositions, Progress, SubscriberProgress};
pub(crate) use confirmed::{Contexts, ProgressWatch, Waits};
pub(crate) use durable_slots::DurableSlots;
pub(crate) use idle_state::{IdleState, MOVING, NOWHERE, PLACES_APART};
pub(crate) use log::Log;
pub use meter::{Meter, MeterClock};
pub(crate) use min_receivers::MinReceivers;
pub use rate_limit::{RateLimit, RateLimits, RateUsage};
pub(crate) use watchers::Watchers;
