//! RDMA for RocketNet: native verbs and rdma_cm, loaded at run time.
//!
//! Nothing here is linked: [`sys`] opens libibverbs and librdmacm when they are first needed, so that one binary runs
//! with and without them, and [`probe`](probe()) tells what is there and what is missing. What the data path calls
//! goes through the device's own table of functions, as the libraries' headers do it.
//!
//! ```
//! let report = rocketnet_rdma::probe();
//! for missing in report.libraries.iter().filter_map(|library| library.error.as_ref()) {
//!     println!("{missing}");
//! }
//! ```

mod probe;
pub mod sys;

pub use probe::{Access, Device, Gid, Library, Port, Report, probe};
