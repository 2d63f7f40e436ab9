//! The status code of each error of the Rust crates.

use rocketbufs::config::ConfigError;
use rocketbufs::error::{
    BufferError, ConnError, ContextError, ControlError, DeliverError, ListenError, RecvError, RefusedError,
    SubscribeError,
};
use rocketbufs::{SegmentError, WaitError};

use crate::status::rb_status::*;
use crate::status::{Failure, rb_status};

/// Conversions that keep the text of the error.
macro_rules! failures {
    ($($error:ty: |$e:ident| $status:expr;)*) => {
        $(impl From<$error> for Failure {
            #[cold]
            fn from($e: $error) -> Self {
                let status: rb_status = $status;
                match status {
                    RB_FULL | RB_TIMED_OUT => Failure::outcome(status),
                    _ => Failure::of(status, $e),
                }
            }
        })*
    };
}

pub(crate) use failures;

fn of_context(error: &ContextError) -> rb_status {
    match error {
        ContextError::Config(_) => RB_ERR_CONFIG,
        ContextError::Memory(_) => RB_ERR_MEMORY,
        ContextError::Transport(_) => RB_ERR_TRANSPORT,
        _ => RB_ERR_SYSTEM,
    }
}

fn of_conn(error: &ConnError) -> rb_status {
    match error {
        ConnError::HelloTooLong { .. } => RB_ERR_TOO_LARGE,
        ConnError::Down(why) if why.code() == Some(rocketbufs::CloseCode::NotAccepted) => RB_ERR_REFUSED,
        ConnError::Down(_) => RB_ERR_DOWN,
        ConnError::TimedOut { .. } => RB_TIMED_OUT,
        ConnError::CalledFromWorker => RB_ERR_CALLED_FROM_CALLBACK,
        _ => RB_ERR_OTHER,
    }
}

fn of_buffer(error: &BufferError) -> rb_status {
    match error {
        BufferError::Exists(_) => RB_ERR_EXISTS,
        BufferError::NoSuchBuffer(_) => RB_ERR_NO_SUCH_BUFFER,
        BufferError::Spliced(_) | BufferError::NotSpliced(_) => RB_ERR_SPLICED,
        BufferError::Closed(_) => RB_ERR_CLOSED,
        BufferError::NotAnswered(_) => RB_ERR_NOT_ANSWERED,
        BufferError::Budgeted(_) => RB_ERR_BUDGETED,
        BufferError::NotSubscribed(error) => of_subscribe(error),
        BufferError::HasReader(_) => RB_ERR_READER_TAKEN,
        BufferError::WriterTaken(_) => RB_ERR_WRITER_TAKEN,
        BufferError::TooMany(_) => RB_ERR_TOO_MANY,
        BufferError::NoPositions { .. } => RB_ERR_ARGUMENT,
        BufferError::Memory(_) => RB_ERR_MEMORY,
        _ => RB_ERR_OTHER,
    }
}

fn of_subscribe(error: &SubscribeError) -> rb_status {
    match error {
        SubscribeError::Exists(_) => RB_ERR_EXISTS,
        SubscribeError::NameTooLong { .. } | SubscribeError::TooLarge { .. } => RB_ERR_TOO_LARGE,
        SubscribeError::TooMany(_) => RB_ERR_TOO_MANY,
        _ => RB_ERR_OTHER,
    }
}

fn of_segment(error: &SegmentError) -> rb_status {
    match error {
        SegmentError::Full => RB_FULL,
        SegmentError::TimedOut => RB_TIMED_OUT,
        SegmentError::TooLarge { .. } => RB_ERR_TOO_LARGE,
        SegmentError::Empty => RB_ERR_EMPTY,
        SegmentError::TooManyOpen => RB_ERR_TOO_MANY,
        SegmentError::SegmentLost => RB_ERR_SEGMENT_LOST,
        SegmentError::NoSuchBuffer(_) => RB_ERR_NO_SUCH_BUFFER,
        SegmentError::Spliced(_) => RB_ERR_SPLICED,
        SegmentError::WriterTaken(_) => RB_ERR_WRITER_TAKEN,
        SegmentError::Closed => RB_ERR_CLOSED,
        SegmentError::CalledFromWorker => RB_ERR_CALLED_FROM_CALLBACK,
        _ => RB_ERR_OTHER,
    }
}

/// The status of a delivery that failed. Its segment is not part of it.
pub(crate) fn of_deliver(error: &DeliverError) -> rb_status {
    match error {
        DeliverError::ShortDeliver(_) => RB_ERR_SHORT_DELIVER,
        DeliverError::TooLong { .. } => RB_ERR_TOO_LARGE,
        DeliverError::Foreign(_) => RB_ERR_FOREIGN,
        DeliverError::Closed => RB_ERR_CLOSED,
        DeliverError::TooManyContexts(_) => RB_ERR_TOO_MANY,
        _ => RB_ERR_OTHER,
    }
}

/// The status of a refusal, which an event reports.
pub(crate) fn of_refusal(error: &RefusedError) -> rb_status {
    use rocketbufs::proto::RefuseCode;
    match error {
        RefusedError::Peer { code, .. } => match code {
            RefuseCode::NoSuchBuffer => RB_ERR_NO_SUCH_BUFFER,
            RefuseCode::RingTooSmall => RB_ERR_TOO_LARGE,
            RefuseCode::TooMany => RB_ERR_TOO_MANY,
            RefuseCode::TooSlow => RB_ERR_LOST,
            _ => RB_ERR_REFUSED,
        },
        RefusedError::NoPositions { .. } => RB_ERR_ARGUMENT,
        RefusedError::Memory(_) | RefusedError::TooManyBytes { .. } => RB_ERR_MEMORY,
        RefusedError::Budget { .. } => RB_ERR_BUDGETED,
        _ => RB_ERR_REFUSED,
    }
}

pub(crate) fn of_recv(error: &RecvError) -> rb_status {
    match error {
        RecvError::NotSubscribed(_) => RB_ERR_NOT_SUBSCRIBED,
        RecvError::TooMuch { .. } => RB_ERR_TOO_MUCH,
        RecvError::CalledFromWorker => RB_ERR_CALLED_FROM_CALLBACK,
        RecvError::ReaderTaken => RB_ERR_READER_TAKEN,
        RecvError::ShutDown => RB_ERR_DOWN,
        _ => RB_ERR_OTHER,
    }
}

failures! {
    ConfigError: |e| RB_ERR_CONFIG;
    ContextError: |e| of_context(&e);
    ConnError: |e| of_conn(&e);
    ListenError: |e| match &e {
        ListenError::AddressInUse { .. } => RB_ERR_ADDRESS_IN_USE,
        ListenError::CalledFromWorker => RB_ERR_CALLED_FROM_CALLBACK,
        _ => RB_ERR_ADDRESS,
    };
    ControlError: |e| match &e {
        ControlError::TooLarge { .. } => RB_ERR_TOO_LARGE,
        ControlError::Full { .. } => RB_FULL,
        ControlError::Down => RB_ERR_DOWN,
        _ => RB_ERR_OTHER,
    };
    BufferError: |e| of_buffer(&e);
    SubscribeError: |e| of_subscribe(&e);
    SegmentError: |e| of_segment(&e);
    RecvError: |e| of_recv(&e);
    WaitError: |e| match &e {
        WaitError::TimedOut { .. } => RB_TIMED_OUT,
        WaitError::CalledFromWorker => RB_ERR_CALLED_FROM_CALLBACK,
        WaitError::ShutDown => RB_ERR_DOWN,
        _ => RB_ERR_OTHER,
    };
    rocketbufs::Lapped: |e| RB_ERR_LAPPED;
    std::io::Error: |e| RB_ERR_SYSTEM;
}
