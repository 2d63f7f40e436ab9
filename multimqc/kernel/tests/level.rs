//! The kernel level by the conformance suite, alone and in every subset of levels.

mod common;

use common::labs::{Disk, InKernel, Nic, User};
use multimqc::conformance;
use multimqc_kernel::Config;

#[test]
fn the_kernel_level_conforms() {
    if common::kernel(Config::default()).is_some() {
        conformance::level(&InKernel::default());
    }
}

#[test]
fn every_subset_with_the_kernel_level_conforms() {
    if common::kernel(Config::default()).is_some() {
        conformance::stack(&[&Nic, &InKernel::default(), &User, &Disk::new()]);
    }
}
