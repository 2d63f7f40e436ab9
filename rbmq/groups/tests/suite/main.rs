//! The tests of groups.

mod consumers;
mod journal;
mod limits;
mod model;

use rbmq_groups::Attempt;

fn at(position: u64, number: u16) -> Attempt {
    Attempt { position, number }
}
