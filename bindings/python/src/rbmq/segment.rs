//! The memory of one message, to be filled in place.

use std::sync::Arc;

use pyo3::prelude::*;
use rbmq::SegmentNotPublished;

use crate::claimed::{Claimed, NotSent, Origin, claimed_methods};
use crate::errors;
use crate::guarded::Guarded;

/// The writer of a topic, as the origin of segments.
pub struct OfTopic(Arc<Guarded<rbmq::TopicWriter>>);

impl OfTopic {
    /// Publishes, or with none returns the segment.
    fn end(
        &self,
        py: Python<'_>,
        segment: rbmq::MessageSegment,
        size: Option<u64>,
    ) -> Result<u64, NotSent<rbmq::MessageSegment>> {
        let ended = self.0.with_given(py, segment, |writer, segment| writer.publish_segment(segment, size));
        let ended = ended.map_err(|(error, segment)| NotSent { error, segment: Some(segment) })?;
        ended.map_err(|SegmentNotPublished { error, segment }| NotSent {
            error: errors::of(py, "PublishError", &error),
            segment,
        })
    }
}

impl Origin for OfTopic {
    type Segment = rbmq::MessageSegment;

    fn bytes(segment: &mut Self::Segment) -> &mut [u8] {
        segment.bytes_mut()
    }

    fn send(&self, py: Python<'_>, segment: Self::Segment, size: u64) -> Result<u64, NotSent<Self::Segment>> {
        self.end(py, segment, Some(size))
    }

    fn give_back(&self, py: Python<'_>, segment: Self::Segment) -> Result<(), NotSent<Self::Segment>> {
        self.end(py, segment, None).map(drop)
    }
}

/// Room for one message in the memory that it is sent from: a writable buffer (`memoryview(segment)`,
/// `numpy.frombuffer(segment)`). `publish` publishes it, or the end of a `with` without an exception. While a memoryview of it
/// exists, both raise BufferError: the memory is not the program's any more afterwards.
#[pyclass(frozen, module = "rocketbufs.rbmq")]
pub struct MessageSegment(Claimed<OfTopic>);

impl MessageSegment {
    /// Makes a Python object of a segment.
    pub fn of(segment: rbmq::MessageSegment, writer: Arc<Guarded<rbmq::TopicWriter>>) -> Self {
        Self(Claimed::new(segment, OfTopic(writer)))
    }
}

#[pymethods]
impl MessageSegment {
    /// Publishes the first `size` bytes (None: all). Only the newest open segment can be published short. Returns the position
    /// behind the message.
    #[pyo3(signature = (size=None))]
    fn publish(&self, py: Python<'_>, size: Option<u64>) -> PyResult<u64> {
        self.0.send(py, size)
    }

    /// Returns the segment: nothing is published. Only the newest open segment can be returned.
    fn cancel(&self, py: Python<'_>) -> PyResult<()> {
        self.0.give_back(py)
    }
}

claimed_methods!(MessageSegment);
