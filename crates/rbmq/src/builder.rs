//! How a subscriber connects, and what happens when its connection is lost.

use std::sync::Arc;
use std::time::Duration;

use rocketbufs::{Budget, Config, Conn, Context, Policy, RIn};

use super::error::ConnectError;
use super::feed::{Feed, Options};
use super::link::{Link, lock, own_context};
use super::subscriber::Subscriber;
use crate::wire::Role;

/// How a subscriber connects, and how it takes part. The same for all of its topics.
#[derive(Clone, Default)]
pub struct SubscriberBuilder {
    options: Options,
    config: Config,
    context: Option<Context>,
    ring_bytes: Option<u64>,
    batch_bytes: Option<u64>,
    budget_bytes: Option<u64>,
}

/// The budget of a subscriber that names none.
const BUDGET_BYTES: u64 = 64 << 20;

impl SubscriberBuilder {
    /// What people see in the broker's log; with [`SubscriberBuilder::hold`] the name under which the broker keeps
    /// this subscriber's place.
    pub fn name(mut self, name: &str) -> Self {
        name.clone_into(&mut self.options.name);
        self
    }

    /// How long the broker keeps this subscriber's place in every buffer while it is away. Needs a name. Another
    /// process of that name goes on there: what the first had not released comes again, and perhaps a little before.
    pub fn hold(mut self, hold: Duration) -> Self {
        self.options.hold = hold;
        self
    }

    /// With true, the broker keeps everything that this subscriber has not released (dropped or [`Kept::release`]d
    /// its batch), so that a process that is killed and started again, with a name, a hold and the position up to
    /// which it worked, misses nothing. By default the broker keeps what has not reached this process's memory.
    ///
    /// [`Kept::release`]: crate::Kept::release
    pub fn confirm_released(mut self, confirm: bool) -> Self {
        self.options.confirm_released = confirm;
        self
    }

    /// With true, the calls that wait for messages return none as soon as every topic has ended ([`Subscriber::ended`]), the
    /// iterator ends then, and a publisher that is gone without closing its topic is an error. By default they wait for the
    /// next publisher of the topic, whatever became of the last one; [`Subscriber::next`] tells of ends in both cases.
    pub fn until_ended(mut self, until_ended: bool) -> Self {
        self.options.until_ended = until_ended;
        self
    }

    /// What happens when this subscriber is slow. Default: [`Policy::Block`], nothing is lost.
    pub fn policy(mut self, policy: Policy) -> Self {
        self.options.policy = policy;
        self
    }

    /// The lag in bytes at which the policies `drop` and `disconnect` act; 0: the broker's default.
    pub fn max_lag_bytes(mut self, bytes: u64) -> Self {
        self.options.max_lag_bytes = bytes;
        self
    }

    /// How long `block` may hold the publishers without progress; zero: for ever.
    pub fn block_timeout(mut self, timeout: Duration) -> Self {
        self.options.block_timeout = Some(timeout);
        self
    }

    /// Capacity of the ring of each buffer here, in bytes; made larger where a buffer's deliveries need it.
    pub fn ring_bytes(mut self, bytes: u64) -> Self {
        self.ring_bytes = Some(bytes);
        self
    }

    /// The most that one batch has, in bytes, unless it is one delivery. Topics take turns: who is slow, with many of them,
    /// gives space back to each publisher sooner with small batches. Default: a quarter of the ring.
    pub fn batch_bytes(mut self, bytes: u64) -> Self {
        self.batch_bytes = Some(bytes);
        self
    }

    /// What the rings of all topics that were asked for by patterns (`sensors/+`, `#`) take together, in bytes; default
    /// 64 MiB. Such a topic has a ring only while there is data for it, up to [`SubscriberBuilder::ring_bytes`]; a topic
    /// that was asked for by its name, before a pattern found it, has one of its own. When what was received and not
    /// released fills the budget, topics wait for each other in turn: who keeps it full receives nothing more from
    /// patterns. Topics whose deliveries need a larger ring than that are refused.
    pub fn budget_bytes(mut self, bytes: u64) -> Self {
        self.budget_bytes = Some(bytes);
        self
    }

    /// The framework's configuration, for a context of this subscriber's own.
    pub fn config(mut self, config: Config) -> Self {
        self.config = config;
        self
    }

    /// Shares the memory and threads of a context that exists.
    pub fn context(mut self, context: &Context) -> Self {
        self.context = Some(context.clone());
        self
    }

    /// Connects to a broker.
    ///
    /// # Errors
    /// Nobody answered, the broker refused, or this process lacks memory or threads.
    pub fn connect(self, addr: &str) -> Result<Subscriber, ConnectError> {
        let ctx = match self.context {
            Some(context) => context,
            None => own_context(self.config)?,
        };
        let ring_bytes = self.ring_bytes.unwrap_or(ctx.config().buffers.size_bytes);
        // A place that is kept is one from which nothing is missed.
        let confirm_released = self.options.confirm_released || !self.options.hold.is_zero();
        let budget = Some(Budget::new(self.budget_bytes.unwrap_or(BUDGET_BYTES)));
        let batch_bytes = self.batch_bytes.unwrap_or(ring_bytes / 4);
        let options = Options { ring_bytes, batch_bytes, confirm_released, budget, ..self.options };
        let link = Link::connect(&ctx, addr, (Role::Subscriber, &options.name), |_| {})?;
        let feed = Arc::new(Feed { options, ..Feed::default() });
        let rin = feed.attach(&link.conn());
        let over = feed.clone();
        let on_over = move |why| {
            lock(&over.state).over = Some(why);
            over.changed.notify_all();
        };
        link.watch(goes_on(feed.clone(), rin.clone(), link.conn().peer_instance()), on_over)?;
        Ok(Subscriber::new(ctx, link, feed, rin))
    }
}

/// What to do with a connection that replaces a lost one: resume, at the same broker process; a new one has other
/// buffers, and only the application's thread knows what it has handed out.
fn goes_on(feed: Arc<Feed>, rin: RIn, broker: u128) -> impl FnMut(&Conn) + Send {
    let mut resumable = Some(rin);
    move |conn| {
        if conn.peer_instance() != broker {
            resumable = None;
        }
        let mut state = lock(&feed.state);
        state.wanted.ask_again();
        state.reconnects += 1;
        match &resumable {
            Some(rin) => {
                drop(state);
                rin.resume(conn);
                feed.ask_all(conn);
            }
            None => {
                state.elsewhere = true;
                state.moved = Some(conn.clone());
                drop(state);
            }
        }
        feed.changed.notify_all();
    }
}
