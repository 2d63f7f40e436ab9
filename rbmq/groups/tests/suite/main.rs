//! The tests of groups.

mod journal;
mod limits;
mod model;
