//! The tests of transports that share one process; `cargo test -p rocketnet --test suite NAME::` runs those of one file. Beside them are
//! the programs `shm_descriptors`, which changes the limits of its process, and `sim_planted` (with the feature `planted-bugs`).

#[cfg(feature = "tls")]
mod authority;
mod lab;
mod shm;
mod shm_hostile;
mod sim;
mod tcp;
mod tcp_hostile;
mod tcp_own;
#[cfg(feature = "tls")]
mod tls;
#[cfg(feature = "tls")]
mod tls_hostile;
#[cfg(feature = "tls")]
mod tls_resumed;
mod wait;
