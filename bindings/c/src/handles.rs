//! The kinds of handles.

use rocketbufs::{
    Budget, Config, Conn, Context, InReader, Listener, OutBuffer, RIn, ROut, RateLimit, Subscription,
};

use crate::segment::SegmentWriter;
use crate::table::kinds;

/// The settings of a context. One thread uses it at a time.
pub struct rb_config(());
/// Memory, configuration and worker threads of a process. Any number of threads may use it.
pub struct rb_context(());
/// A connection to a peer. Any number of threads may use it.
pub struct rb_conn(());
/// An address that takes connections. Any number of threads may use it.
pub struct rb_listener(());
/// The sending end. Any number of threads may use it.
pub struct rb_rout(());
/// A buffer of an rOut. Any number of threads may use it.
pub struct rb_buffer(());
/// The right to write into a buffer alone. One thread uses it at a time.
pub struct rb_writer(());
/// The receiving end. Any number of threads may use it.
pub struct rb_rin(());
/// A subscription of an rIn. Any number of threads may use it.
pub struct rb_subscription(());
/// The right to read an rIn alone. One thread uses it at a time.
pub struct rb_reader(());
/// Bytes that the rings of many subscriptions share. Any number of threads may use it.
pub struct rb_budget(());
/// Bytes per second that any number of connections share. Any number of threads may use it.
pub struct rb_rate_limit(());

kinds! {
    rb_config => Config, 1, "configuration";
    rb_context => Context, 2, "context";
    rb_conn => Conn, 3, "connection";
    rb_listener => Listener, 4, "listener";
    rb_rout => ROut, 5, "rOut";
    rb_buffer => OutBuffer, 6, "buffer";
    rb_writer => SegmentWriter, 7, "writer";
    rb_rin => RIn, 9, "rIn";
    rb_subscription => Subscription, 10, "subscription";
    rb_reader => InReader, 12, "reader";
    rb_budget => Budget, 13, "budget";
    rb_rate_limit => RateLimit, 14, "rate limit";
}
