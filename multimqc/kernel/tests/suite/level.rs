//! The kernel level by the conformance suite, alone and in every subset of levels.

use multimqc_conformance::{Disk, User};
use multimqc_kernel::Config;

use crate::common;
use crate::common::labs::{InKernel, Nic};

#[test]
fn the_kernel_level_conforms() {
    if common::kernel(Config::default()).is_some() {
        multimqc_conformance::level(&InKernel::default());
    }
}

#[test]
fn every_subset_with_the_kernel_level_conforms() {
    if common::kernel(Config::default()).is_some() {
        multimqc_conformance::stack(&[&Nic, &InKernel::default(), &User, &Disk::default()]);
    }
}
