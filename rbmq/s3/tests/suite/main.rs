//! Tests of the archive against a store in the test's process that fails as told.

mod contract;
mod fake;
mod faults;
