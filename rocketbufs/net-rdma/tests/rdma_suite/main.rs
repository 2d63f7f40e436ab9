//! The tests of the RDMA transport, between the two devices of scripts/rdma-vm; without devices most return at once. Beside them is the
//! program `gone`, which removes a device.

mod broken;
mod common;
mod conformance;
mod devices;
mod probe;
