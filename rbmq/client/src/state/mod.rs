//! What calls, callbacks and tasks share: batches, events, and the state of publishing.

pub(crate) mod batch;
pub(crate) mod batch_cursor;
pub(crate) mod confirm;
pub(crate) mod confirm_tracker;
pub(crate) mod conn_places;
pub(crate) mod disk_asks;
pub(crate) mod elsewhere;
pub(crate) mod event;
pub(crate) mod in_space;
pub(crate) mod message_segment;
pub(crate) mod publisher_shared;
pub(crate) mod space_log;
pub(crate) mod space_parts;
pub(crate) mod space_reader;
pub(crate) mod topic_state;
