//! RBMQ's classes: publishers, subscribers, batches, confirmations, workers of groups, an observer, and a broker in this process.

mod attributes;
mod batch;
mod broker;
mod confirm;
mod failures;
mod group;
mod groups;
mod observer;
mod options;
mod publisher;
mod resources;
mod segment;
mod space;
mod subscriber;
mod writer;
mod writing;

use pyo3::prelude::*;

/// Adds the classes to the module.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<batch::Batch>()?;
    module.add_class::<batch::DeferredBatch>()?;
    module.add_class::<batch::Message>()?;
    module.add_class::<batch::BatchIter>()?;
    module.add_class::<batch::Offsets>()?;
    module.add_class::<broker::Broker>()?;
    module.add_class::<confirm::Confirmation>()?;
    module.add_class::<confirm::Confirmed>()?;
    module.add_class::<group::GroupMessage>()?;
    module.add_class::<group::GroupWorker>()?;
    module.add_class::<groups::Groups>()?;
    module.add_class::<observer::Observer>()?;
    module.add_class::<options::SlowPolicy>()?;
    module.add_class::<publisher::Publisher>()?;
    module.add_class::<segment::MessageSegment>()?;
    module.add_class::<space::SpaceWriter>()?;
    module.add_class::<subscriber::BytesIter>()?;
    module.add_class::<subscriber::Subscriber>()?;
    module.add_class::<writer::TopicWriter>()
}
