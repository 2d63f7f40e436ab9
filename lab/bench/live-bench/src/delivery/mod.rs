//! The cost of delivery, beside a loop that does nothing but the same encryption and the same writes, all in one process: a live stream
//! for many viewers, and the encryption alone.

mod bare;
mod deliver;
mod node;
mod records;
mod seal;
mod viewers;

pub use deliver::{Args as DeliverArgs, run as deliver};
pub use seal::{Args as SealArgs, run as seal};
