//! The conformance suite over real verbs: between the two devices of scripts/rdma-vm.

use rocketnet_rdma::RdmaConfig;

use crate::common::RdmaLab;

/// The lab, or the end of the test.
macro_rules! lab {
    ($lab:expr) => {
        match $lab {
            Some(lab) => lab,
            None => return,
        }
    };
}

rocketnet::conformance_tests!(plain, lab!(RdmaLab::new(RdmaConfig::default())));
rocketnet::conformance_tests!(smallest, lab!(RdmaLab::smallest()));
rocketnet::conformance_tests!(polling, lab!(RdmaLab::polling()));
