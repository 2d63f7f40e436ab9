//! The descriptors and memory that foreign connections use.

use rocketbufs::proto::Message;
use rocketbufs::{Config, Conn, Context, InEvent, Listener, RIn, ROut};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::alone;
use crate::raw::{Raw, WAIT, frame, hello};

/// The most memory that the process had since this was last reset.
fn peak_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// Connects until there is no descriptor left for either side.
fn use_up_descriptors(addr: &str) -> Vec<Raw> {
    let open = std::fs::read_dir("/proc/self/fd").unwrap().count() as u64;
    let maximum = getrlimit(Resource::Nofile).maximum;
    setrlimit(Resource::Nofile, Rlimit { current: Some(open + 20), maximum }).unwrap();
    std::iter::from_fn(|| std::net::TcpStream::connect(addr).ok()).map(Raw::of).collect()
}

#[test]
fn neither_descriptors_nor_memory_run_out_for_good() {
    let _alone = alone();
    let ctx = Context::new(Config::default()).unwrap();
    let out = ROut::new(&ctx);
    out.create_buffer(1, 1 << 16).unwrap();
    let listener = Listener::bind(&ctx, "127.0.0.1:0").unwrap();
    let to = out.clone();
    listener.set_conn_cb(move |conn| to.add_conn(&conn));
    let addr = listener.local_addr();
    let subscriber = || {
        let input = RIn::new(&Conn::connect(&ctx, &addr, b"").unwrap());
        input.subscribe(1, 1 << 16).unwrap();
        assert!(matches!(input.recv(Some(WAIT)).unwrap(), Some(InEvent::Subscribed { .. })));
        input
    };
    let goes_on = |input: &RIn| {
        let segment = out.buffer(1).unwrap().segment(10, Some(WAIT)).unwrap();
        out.deliver(segment, 10, None).unwrap();
        let Some(InEvent::Data(view)) = input.recv(Some(WAIT)).unwrap() else { panic!("no data") };
        view.consume();
    };
    let honest = subscriber();
    goes_on(&honest);

    // Other tests of this process may have needed more: the peak is counted from here.
    std::fs::write("/proc/self/clear_refs", "5").unwrap();
    let before = peak_kib();
    let flood = frame(&Message::Pong(1)).repeat(15_000);
    let mut floods: Vec<Raw> = (0..100).map(|_| Raw::up(&addr)).collect();
    for _ in 0..3 {
        floods.iter_mut().for_each(|raw| raw.send(&flood));
        goes_on(&honest);
    }
    floods.iter_mut().for_each(|raw| raw.ping(1));
    drop(floods);
    let used = peak_kib() - before;
    assert!(used < 256 << 10, "{used} KiB for a hundred connections");

    let limit = getrlimit(Resource::Nofile);
    let mut foreign = use_up_descriptors(&addr);
    for raw in &mut foreign {
        raw.say(&Message::Hello(hello()));
    }
    for _ in 0..100 {
        goes_on(&honest);
    }
    drop(foreign);
    setrlimit(Resource::Nofile, limit).unwrap();
    let late = subscriber();
    goes_on(&honest);
    assert!(matches!(late.recv(Some(WAIT)).unwrap(), Some(InEvent::Data(_))));
}
