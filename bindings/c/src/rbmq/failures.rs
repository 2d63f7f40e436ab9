//! The status code of each error of RBMQ's client.

use rbmq::{
    ConfirmError, ConnectError, FilterError, GroupError, PublishError, PublisherWaitError, ReceiveError,
    SubscribeTopicError, TopicError, TopicOpenError,
};
use rocketbufs::error::{BufferError, ConnError};

use crate::failures::{failures, of_recv};
use crate::status::rb_status::*;
use crate::status::{Failure, rb_status};

/// An outcome with a reason: the text says why there is no connection, or which position is confirmed.
fn waited(error: impl ToString) -> Failure {
    Failure::of(RB_TIMED_OUT, error)
}

impl From<ConnectError> for Failure {
    #[cold]
    fn from(error: ConnectError) -> Self {
        let text = error.to_string();
        let status = match error {
            ConnectError::Context(error) => return error.into(),
            ConnectError::Broker { source: ConnError::TimedOut { .. }, .. } => return waited(text),
            ConnectError::Broker { source, .. } => Failure::from(source).status(),
            ConnectError::DurableName { .. } => RB_ERR_NAME,
            ConnectError::Credentials(_) => RB_ERR_ARGUMENT,
            ConnectError::Plaintext { .. } => RB_ERR_CONFIG,
            _ => RB_ERR_SYSTEM,
        };
        Failure::of(status, text)
    }
}

fn of_open(error: &TopicOpenError) -> rb_status {
    match error {
        TopicOpenError::Name(_) | TopicOpenError::Pattern(_) | TopicOpenError::Space(_) => RB_ERR_NAME,
        TopicOpenError::Buffer { source: BufferError::TooMany(_), .. } => RB_ERR_TOO_MANY,
        TopicOpenError::Buffer { .. } => RB_ERR_MEMORY,
        TopicOpenError::Refused { .. } => RB_ERR_REFUSED,
        TopicOpenError::Closed { .. } => RB_ERR_CLOSED,
        TopicOpenError::ShutDown { .. } => RB_ERR_DOWN,
        _ => RB_ERR_OTHER,
    }
}

impl From<TopicOpenError> for Failure {
    #[cold]
    fn from(error: TopicOpenError) -> Self {
        match &error {
            TopicOpenError::TimedOut { .. } => waited(error),
            other => Failure::of(of_open(other), other),
        }
    }
}

impl From<PublishError> for Failure {
    #[cold]
    fn from(error: PublishError) -> Self {
        let status = match &error {
            PublishError::TooLarge { .. } => RB_ERR_TOO_LARGE,
            PublishError::TimedOut { last_error: None } => return Failure::outcome(RB_TIMED_OUT),
            PublishError::TimedOut { .. } => return waited(error),
            PublishError::TooFewSubscribers { .. } => RB_ERR_TOO_FEW,
            PublishError::Refused { .. } => RB_ERR_REFUSED,
            PublishError::Closed => RB_ERR_CLOSED,
            PublishError::ShutDown => RB_ERR_DOWN,
            PublishError::WrongFraming { .. } => RB_ERR_WRONG_FRAMING,
            PublishError::NotInSpace { .. } => RB_ERR_NAME,
            PublishError::TopicInAttributes { .. } => RB_ERR_ARGUMENT,
            _ => RB_ERR_OTHER,
        };
        Failure::of(status, error)
    }
}

impl From<PublisherWaitError> for Failure {
    #[cold]
    fn from(error: PublisherWaitError) -> Self {
        match &error {
            PublisherWaitError::Refused { .. } => Failure::of(RB_ERR_REFUSED, error),
            PublisherWaitError::Closed { .. } => Failure::of(RB_ERR_CLOSED, error),
            PublisherWaitError::ShutDown { .. } => Failure::of(RB_ERR_DOWN, error),
            _ => waited(error),
        }
    }
}

impl From<ConfirmError> for Failure {
    #[cold]
    fn from(error: ConfirmError) -> Self {
        let status = match &error {
            ConfirmError::TimedOut { .. } => return waited(error),
            ConfirmError::TooFew { .. } => RB_ERR_TOO_FEW,
            ConfirmError::Lost { .. } => RB_ERR_LOST,
            ConfirmError::Refused { .. } | ConfirmError::NotStored { .. } => RB_ERR_REFUSED,
            ConfirmError::Closed { .. } => RB_ERR_CLOSED,
            ConfirmError::ShutDown { .. } => RB_ERR_DOWN,
            ConfirmError::NotPublished { .. } => RB_ERR_NOT_PUBLISHED,
            ConfirmError::TooMany { .. } => RB_ERR_TOO_MANY,
            _ => RB_ERR_OTHER,
        };
        Failure::of(status, error)
    }
}

impl From<GroupError> for Failure {
    #[cold]
    fn from(error: GroupError) -> Self {
        let status = match error {
            GroupError::Connect(error) => return error.into(),
            GroupError::TimedOut { .. } => return waited(error),
            GroupError::Topic(_) | GroupError::Name(_) => RB_ERR_NAME,
            GroupError::Refused { .. } => RB_ERR_REFUSED,
            GroupError::NoGroups { .. } => RB_ERR_DOWN,
            GroupError::InVain { .. } => RB_ERR_IN_VAIN,
            GroupError::InCallback => RB_ERR_CALLED_FROM_CALLBACK,
            _ => RB_ERR_OTHER,
        };
        Failure::of(status, error)
    }
}

failures! {
    TopicError: |e| RB_ERR_NAME;
    FilterError: |e| RB_ERR_NAME;
    SubscribeTopicError: |e| match &e {
        SubscribeTopicError::ShutDown => RB_ERR_DOWN,
        _ => RB_ERR_NAME,
    };
    ReceiveError: |e| match &e {
        ReceiveError::Lost { .. } => RB_ERR_LOST,
        ReceiveError::Gone { .. } => RB_ERR_GONE,
        ReceiveError::Refused { .. } => RB_ERR_REFUSED,
        ReceiveError::Malformed { .. } => RB_ERR_MALFORMED,
        ReceiveError::TakenOver(_) => RB_ERR_TAKEN_OVER,
        ReceiveError::Interrupted => RB_ERR_INTERRUPTED,
        ReceiveError::ShutDown => RB_ERR_DOWN,
        ReceiveError::Framework(error) => of_recv(error),
        _ => RB_ERR_OTHER,
    };
}
