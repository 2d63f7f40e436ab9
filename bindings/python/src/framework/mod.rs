//! The framework's classes, with the names of the Rust API (docs/architecture/api.md).

mod admission;
mod conn;
mod context;
mod events;
mod in_reader;
mod listener;
mod options;
mod out_buffer;
mod out_writer;
mod rate_limit;
mod rin;
mod rout;
mod segment;
mod subscription;
mod view;

pub use context::Context;
use pyo3::prelude::*;

/// Adds the classes to the module.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<context::Context>()?;
    module.add_class::<conn::Conn>()?;
    module.add_class::<listener::Listener>()?;
    module.add_class::<options::Budget>()?;
    module.add_class::<admission::Admitted>()?;
    module.add_class::<rate_limit::RateLimit>()?;
    module.add_class::<in_reader::InReader>()?;
    module.add_class::<out_buffer::OutBuffer>()?;
    module.add_class::<out_writer::OutWriter>()?;
    module.add_class::<rin::RIn>()?;
    module.add_class::<rout::ROut>()?;
    module.add_class::<segment::OutSegment>()?;
    module.add_class::<subscription::Subscription>()?;
    module.add_class::<view::BufSeg>()?;
    module.add_class::<view::InView>()
}
