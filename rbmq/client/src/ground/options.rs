//! How a subscriber connects and receives.

use std::time::{Duration, SystemTime};

use rocketbufs::{Budget, Config, Context, Epoch, Policy, Position};

use crate::ground::login::{Login, login_setters};

/// Where a subscription begins in buffers that exist when the application subscribes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum StartFrom {
    /// With the next published message.
    #[default]
    Newest,
    /// With the oldest message that the broker still has.
    Oldest,
    /// With the last delivery: a subscriber that joins late gets the last value. Messages that reached the broker together
    /// with the last one come too.
    Last,
    /// With the first message that reached the broker at this time or later; a few earlier messages may come too. The broker
    /// gets the age and not the time, since its clock may differ. If its records do not go back that far, the subscription
    /// begins with the oldest message that the broker still has.
    Time(SystemTime),
    /// At this position of any log.
    Position(Position),
    /// At these positions of these logs: an earlier subscriber stopped there and has everything before. Other logs begin
    /// with their oldest message. A merged log that is not listed begins at its first position, so that messages which the
    /// broker no longer has are reported as lost.
    Positions(Vec<(Epoch, Position)>),
}

/// The broker's reaction to a slow subscriber.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum SlowPolicy {
    /// Publishers wait for the subscriber, and nothing is lost. The broker disconnects a subscriber that makes no progress for
    /// the broker's time-out (`session.block_timeout_ms`) while others wait.
    #[default]
    Block,
    /// As [`SlowPolicy::Block`], with the subscriber's own time-out.
    BlockFor {
        /// The longest time without progress; none: no limit. The broker may allow less.
        timeout: Option<Duration>,
    },
    /// The subscriber skips messages, and learns how many bytes it lost.
    Drop {
        /// The lag in bytes at which messages are skipped; none: the broker's default.
        max_lag_bytes: Option<u64>,
    },
    /// The broker ends the subscription.
    Disconnect {
        /// The lag in bytes at which the subscription ends; none: the broker's default.
        max_lag_bytes: Option<u64>,
    },
    /// As [`SlowPolicy::Block`] for the topics whose publishers this subscriber may hold back, by the rules of the broker. For others
    /// as [`SlowPolicy::Drop`], or as [`SlowPolicy::Disconnect`] if that is all that is allowed; the first of them is reported
    /// ([`Notice::OptionClamped`](crate::Notice::OptionClamped)).
    BlockIfAllowed,
}

impl SlowPolicy {
    /// The framework's policy.
    pub(crate) fn framework(self) -> Policy {
        match self {
            Self::Block | Self::BlockFor { .. } | Self::BlockIfAllowed => Policy::Block,
            Self::Drop { .. } => Policy::Drop,
            Self::Disconnect { .. } => Policy::Disconnect,
        }
    }

    /// The lag at which the policy acts, if the subscriber sets it.
    pub(crate) fn max_lag_bytes(self) -> Option<u64> {
        match self {
            Self::Drop { max_lag_bytes } | Self::Disconnect { max_lag_bytes } => max_lag_bytes,
            Self::Block | Self::BlockFor { .. } | Self::BlockIfAllowed => None,
        }
    }
}

/// How a subscriber receives: the same for all of its topics.
#[derive(Debug, Clone, Default)]
pub(crate) struct SubscriberOptions {
    pub(crate) ring_bytes: u64,
    pub(crate) batch_bytes: u64,
    pub(crate) slow: SlowPolicy,
    pub(crate) name: String,
    pub(crate) hold: Duration,
    pub(crate) confirm_consumed: bool,
    pub(crate) until_ended: bool,
    /// Shared by the rings of topics that only patterns match.
    pub(crate) budget: Option<Budget>,
    /// The largest message for which rings grow.
    pub(crate) max_message_bytes: u64,
    /// The budget that the application has set: no ring of a topic that only patterns match is larger.
    pub(crate) set_budget_bytes: Option<u64>,
}

/// Options of a [`Subscriber`](crate::Subscriber). They apply to all of its topics.
#[derive(Clone, Default)]
pub struct SubscriberBuilder {
    pub(crate) options: SubscriberOptions,
    pub(crate) config: Config,
    pub(crate) context: Option<Context>,
    pub(crate) ring_bytes: Option<u64>,
    pub(crate) batch_bytes: Option<u64>,
    pub(crate) budget_bytes: Option<u64>,
    pub(crate) max_message_bytes: Option<u64>,
    pub(crate) login: Login,
}

login_setters!(SubscriberBuilder);

impl SubscriberBuilder {
    /// Makes the subscriber durable: the broker keeps its place in every buffer for the time `hold` while it is offline, under
    /// a name of 1 to 255 bytes. Another process that connects with the name resumes there. Messages that the first process
    /// had not consumed come again, and perhaps a few before them. If a subscriber with the name is connected, the new
    /// subscriber takes over its place. The policies that do not block keep only the history that the ring still has.
    #[must_use]
    pub fn durable(mut self, name: &str, hold: Duration) -> Self {
        name.clone_into(&mut self.options.name);
        self.options.hold = hold;
        self
    }
}

option_setters::setters! { SubscriberBuilder:
    /// The name in the broker's log and in `rbmq top`.
    name in options (name: &str) = name.to_owned();
    /// With true, the broker keeps all messages that the application has not consumed: a batch counts as consumed when it is
    /// dropped, or by [`DeferredBatch::consume`](crate::DeferredBatch::consume). A process that is killed and started again
    /// misses nothing, given a durable name and its last position. By default, the broker keeps only messages that have not
    /// reached this process. Durable subscribers always have this set.
    confirm_consumed in options (confirm: bool);
    /// With true, calls that wait for messages return none as soon as every topic has ended
    /// ([`Subscriber::ended`](crate::Subscriber::ended)), the iterator ends then, and the death of a publisher that did not
    /// close its topic is an error. By default, they wait for the next publisher of the topic, whether the last one closed the
    /// topic or died. [`Subscriber::next_event`](crate::Subscriber::next_event) reports ends in both cases.
    until_ended in options (until_ended: bool);
    /// The broker's reaction when this subscriber is slow. Default: [`SlowPolicy::Block`].
    slow in options (policy: SlowPolicy);
    /// The capacity of the ring of each buffer in this process, in bytes. Default: `buffers.size_bytes` (1 MiB). The ring is
    /// larger where the deliveries of a buffer need it.
    ring_bytes(bytes: u64) = Some(bytes);
    /// The largest batch in bytes, unless a single delivery is larger. Topics take turns: with small batches, a slow
    /// application with many topics returns space to each publisher sooner. Default: a quarter of the ring.
    batch_bytes(bytes: u64) = Some(bytes);
    /// The memory in bytes for the rings of all topics that only patterns (`sensors/+`, `#`) match. Default: 64 MiB. Such a
    /// topic has a ring, of up to [`SubscriberBuilder::ring_bytes`], only while it has data. A topic that was subscribed by its
    /// name before a pattern matched it has a ring of its own. While received messages that are not consumed fill the budget,
    /// the other topics wait. Topics whose deliveries need a larger ring than a budget that is set here are refused; with the default they have rings
    /// of their own.
    budget_bytes(bytes: u64) = Some(bytes);
    /// The largest message in bytes for which the ring of a topic grows when it comes, to more than twice that. Default: 64 MiB, as much as
    /// brokers take by default. A topic with larger messages ends with an error. A topic leaves the budget when its ring grows.
    max_message_bytes(bytes: u64) = Some(bytes);
    /// The framework's configuration, for a context that belongs to this subscriber.
    config(config: Config);
    /// Shares the memory and the threads of an existing context. The configuration of that context applies.
    context(context: &Context) = Some(context.clone());
}
