//! A sender that hostile peers connect to, with an honest subscriber that must not notice them.
#![allow(dead_code, reason = "each test program uses a part of it")]

use rocketbufs::{Config, Conn, Context, InEvent, Listener, RIn, ROut};

use crate::raw::{Raw, WAIT};

/// An rOut with buffer 1, and an honest subscriber of it.
pub struct Victim {
    pub ctx: Context,
    pub out: ROut,
    pub listener: Listener,
    pub honest: RIn,
}

impl Victim {
    pub fn new(change: impl FnOnce(&mut Config)) -> Self {
        let mut config = Config::default();
        change(&mut config);
        let ctx = Context::new(config).unwrap();
        let out = ROut::new(&ctx);
        out.create_buffer(1, 1 << 16).unwrap();
        let listener = Listener::bind(&ctx, "127.0.0.1:0").unwrap();
        let to = out.clone();
        listener.set_conn_cb(move |conn| to.add_conn(&conn));
        let honest_ctx = Context::new(Config::default()).unwrap();
        let honest = RIn::new(&Conn::connect(&honest_ctx, &listener.local_addr(), b"").unwrap());
        honest.subscribe(1, 1 << 16).unwrap();
        assert!(matches!(honest.recv(Some(WAIT)).unwrap(), Some(InEvent::Subscribed { .. })));
        Self { ctx, out, listener, honest }
    }

    pub fn addr(&self) -> String {
        self.listener.local_addr()
    }

    pub fn silent(&self) -> Raw {
        Raw::silent(&self.addr())
    }

    pub fn up(&self) -> Raw {
        Raw::up(&self.addr())
    }

    /// The honest subscriber still gets everything.
    pub fn goes_on(&self) {
        let mut segment = self.out.buffer(1).unwrap().segment(100, Some(WAIT)).unwrap();
        let at = segment.position();
        segment.bytes_mut().fill(at as u8);
        let end = self.out.deliver(segment, 100, None).unwrap();
        match self.honest.recv(Some(WAIT)).unwrap() {
            Some(InEvent::Data(view)) => {
                assert_eq!((view.position(), view.end()), (at, end));
                assert!(view.as_slice().unwrap().iter().all(|&byte| byte == at as u8));
                view.consume();
            }
            other => panic!("{other:?}"),
        }
    }
}
