//! The three processes with and without flow control: made of the framework alone, since topics of the broker always have
//! flow control.
//!
//! ```text
//!   source: ROut, so many bytes per burst ──▶ hop: RIn spliced into ROut ──▶ sink: RIn, checks every byte
//! ```

use std::time::{Duration, Instant};

use benchkit::{control::Control, pace};
use clap::Args;
use rocketbufs::{
    BufferOptions, Conn, Context, InEvent, InView, Listener, Policy, RIn, ROut, SubscribeOptions,
    config::TransportKind,
};

use crate::{
    clients::LOOK,
    error::BenchError,
    pattern::{Cursor, Pattern},
    rbmq_peers::{config, failed},
};

/// The buffer's id.
const BID: u32 = 1;

/// Bytes of every ring: the bytes of some milliseconds, so that a short wait overwrites no unread bytes.
const RING_BYTES: u64 = 8 << 20;

/// The longest wait for room.
const ROOM_WITHIN: Duration = Duration::from_secs(20);

/// The options of all three processes.
#[derive(Debug, Args)]
pub struct Buffer {
    /// Overwrite the ring when a receiver is slow
    #[arg(long)]
    pub no_flow_control: bool,
    /// Congestion control to set on every socket
    #[arg(long)]
    pub congestion: Option<String>,
}

/// The options of the source.
#[derive(Debug, Args)]
pub struct Source {
    #[command(flatten)]
    pub buffer: Buffer,
    /// Payload bytes of a delivery
    #[arg(long)]
    pub size: usize,
    /// Deliveries that are handed over at once
    #[arg(long)]
    pub burst: u64,
    /// How often
    #[arg(long)]
    pub bursts: u32,
    /// Microseconds between them
    #[arg(long)]
    pub every_us: u64,
}

/// The options of the hop and the sink.
#[derive(Debug, Args)]
pub struct Hop {
    #[command(flatten)]
    pub buffer: Buffer,
    /// Where it comes from
    #[arg(long)]
    pub from: String,
    /// Payload bytes of a delivery
    #[arg(long)]
    pub size: usize,
}

impl Buffer {
    fn context(&self) -> Result<Context, BenchError> {
        Context::new(config(TransportKind::Tcp, self.congestion.as_deref())?).map_err(failed)
    }
}

fn listen(context: &Context, out: &ROut) -> Result<Listener, BenchError> {
    let listener = Listener::bind(context, "127.0.0.1:0").map_err(failed)?;
    let to = out.clone();
    listener.set_conn_cb(move |conn| to.add_conn(&conn));
    Ok(listener)
}

/// Makes the buffer, says where it is, and delivers.
///
/// # Errors
/// There was no room in time.
pub fn source(args: &Source) -> Result<(), BenchError> {
    let control = Control::start();
    let context = args.buffer.context()?;
    let out = ROut::new(&context);
    let flow_control = !args.buffer.no_flow_control;
    let options = BufferOptions::new().size_bytes(RING_BYTES).flow_control(flow_control);
    out.create_buffer_with(BID, options).map_err(failed)?;
    let listener = listen(&context, &out)?;
    let mut writer = out.buffer(BID).unwrap().writer().map_err(failed)?;
    control.ready(&listener.local_addr());
    control.wait_for_go();
    pace::sleep_exactly()?;
    let pattern = Pattern::new(BID, args.size);
    let record = pattern.record_bytes() as u64;
    let mut cursor = Cursor::new(&pattern);
    let began = Instant::now();
    for burst in 0..args.bursts {
        let due = began + Duration::from_micros(args.every_us) * burst;
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
        for _ in 0..args.burst {
            let mut segment = writer.segment(record, Some(ROOM_WITHIN)).map_err(failed)?;
            cursor.fill(segment.bytes_mut());
            writer.deliver(segment, record, None).map_err(failed)?;
        }
    }
    control.finish(&[u64::from(args.bursts) * args.burst])
}

impl Hop {
    fn connect(&self, context: &Context) -> Result<RIn, BenchError> {
        Ok(RIn::new(&Conn::connect(context, &self.from, b"bench").map_err(failed)?))
    }

    fn options(&self) -> SubscribeOptions {
        let policy = if self.buffer.no_flow_control { Policy::Overwrite } else { Policy::Block };
        SubscribeOptions::new().policy(policy).size_bytes(RING_BYTES)
    }
}

/// Hands messages on, and says where.
///
/// # Errors
/// The source is not there.
pub fn hop(args: &Hop) -> Result<(), BenchError> {
    let control = Control::start();
    let context = args.buffer.context()?;
    let out = ROut::new(&context);
    let input = args.connect(&context)?;
    out.splice_with(&input, BID, BID, args.options()).map_err(failed)?;
    let listener = listen(&context, &out)?;
    control.ready(&listener.local_addr());
    loop {
        std::thread::park();
    }
}

/// Receives and checks.
///
/// # Errors
/// A byte was wrong, or was overwritten before it was read.
pub fn sink(args: &Hop) -> Result<(), BenchError> {
    let control = Control::start();
    let context = args.buffer.context()?;
    let input = args.connect(&context)?;
    input.subscribe_with(BID, args.options()).map_err(failed)?;
    let pattern = Pattern::new(BID, args.size);
    let mut cursor = Cursor::new(&pattern);
    let mut copy = vec![0; pattern.record_bytes()];
    let mut deliveries = 0;
    let mut last_arrival = Instant::now();
    loop {
        match input.recv(Some(LOOK)).map_err(failed)? {
            None => {}
            Some(InEvent::Subscribed { .. }) => control.ready(""),
            Some(InEvent::Data(view)) => {
                let wrong = BenchError::WrongByte { topic: BID.into(), after_messages: deliveries };
                deliveries += check(&mut cursor, &view, &mut copy)?.ok_or(wrong)?;
                view.consume();
                last_arrival = Instant::now();
            }
            Some(_) => return Err(BenchError::Overwritten { after_messages: deliveries }),
        }
        control.end_if_over(last_arrival, || vec![deliveries])?;
    }
}

/// Checks a view in place, or in a copy if it may be overwritten during the check.
fn check(cursor: &mut Cursor<'_>, view: &InView, copy: &mut [u8]) -> Result<Option<u64>, BenchError> {
    if let Some(bytes) = view.as_slice() {
        return Ok(cursor.check(bytes));
    }
    let Some(copy) = copy.get_mut(..view.len()) else { return Ok(None) };
    view.copy_to(0, copy).map_err(failed)?;
    Ok(cursor.check(copy))
}
