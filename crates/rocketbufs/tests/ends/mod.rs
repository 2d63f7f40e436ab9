//! The two ends of a connection over the loopback, in one process.

use rocketbufs::{Conn, Context, Listener, RIn, ROut};

/// An rOut that takes whoever connects.
pub fn sender(ctx: &Context) -> (ROut, Listener) {
    let out = ROut::new(ctx);
    let listener = Listener::bind(ctx, "127.0.0.1:0").expect("loopback");
    let to = out.clone();
    listener.set_conn_cb(move |conn| to.add_conn(&conn));
    (out, listener)
}

/// An rIn that is connected to it.
pub fn receiver(ctx: &Context, listener: &Listener) -> RIn {
    RIn::new(&Conn::connect(ctx, &listener.local_addr(), b"test").expect("a connection"))
}
