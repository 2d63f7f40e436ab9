//! The calls of calls.c in Rust; `scripts/bench-calls` compares them.
//!
//! `calls ROW ROUNDS BROKER` prints the row, the number of calls, and the least nanoseconds of a call in any round.

use std::error::Error;
use std::hint::black_box;
use std::process::{ExitCode, exit};
use std::thread::sleep;
use std::time::{Duration, Instant};

use bytes::Bytes;
use cmq::Cmq;
use rbmq::{Publisher, Subscriber, TopicOptions, TopicWriter};
use rocketbufs::{Config, Conn, Context, InEvent, InReader, Listener, OutBuffer, OutWriter, RIn, ROut};

const SIZE: usize = 64;
const RING: u64 = 1 << 22;
const ARRIVES: Duration = Duration::from_millis(20);
const NO_WAIT: Option<Duration> = Some(Duration::ZERO);
static DATA: [u8; SIZE] = [0; SIZE];

type Tried<T = ()> = Result<T, Box<dyn Error>>;

fn data() -> &'static [u8] {
    // Of a length that only the program knows, as in C.
    black_box(&DATA[..])
}

#[inline(never)]
fn counted_append(writer: &mut OutWriter, count: usize) {
    for _ in 0..count {
        black_box(writer.append(&[data()]).expect("there is room"));
    }
}

#[inline(never)]
fn counted_writer_segment(writer: &mut OutWriter, count: usize) {
    for _ in 0..count {
        let mut segment = writer.segment(SIZE as u64, NO_WAIT).expect("there is room");
        segment.bytes_mut().copy_from_slice(data());
        black_box(writer.deliver(segment, SIZE as u64, None).expect("it is open"));
    }
}

#[inline(never)]
fn counted_buffer_segment(buffer: &OutBuffer, count: usize) {
    for _ in 0..count {
        let mut segment = buffer.segment(SIZE as u64, NO_WAIT).expect("there is room");
        segment.bytes_mut().copy_from_slice(data());
        black_box(buffer.deliver(segment, SIZE as u64, None).expect("it is open"));
    }
}

#[inline(never)]
fn counted_rin_recv(rin: &RIn, count: usize) {
    for _ in 0..count {
        let event = rin.recv(None).expect("it may wait");
        let Some(InEvent::Data(view)) = event else { panic!("{event:?}") };
        black_box(view.as_slice().expect("the memory is private")[0]);
        view.consume();
    }
}

#[inline(never)]
fn counted_reader_recv(reader: &mut InReader, count: usize) {
    for _ in 0..count {
        let read = reader.recv(None, read_one);
        black_box(read.expect("it may wait"));
    }
}

fn read_one(_: u32, seg: &rocketbufs::BufSeg<'_>) {
    black_box(seg.as_slice().expect("the memory is private")[0]);
}

#[inline(never)]
fn counted_publish(topic: &mut TopicWriter, count: usize) {
    for _ in 0..count {
        black_box(topic.publish_timeout(data(), None).expect("the topic is open"));
    }
}

#[inline(never)]
fn counted_recv(subscriber: &mut Subscriber, count: usize) {
    for _ in 0..count {
        let message = subscriber.recv_ref(None).expect("nothing is lost").expect("no limit");
        black_box(message.bytes.len());
    }
}

#[inline(never)]
fn counted_next_batch(subscriber: &mut Subscriber, count: usize) {
    for _ in 0..count {
        let batch = subscriber.next_batch(None).expect("nothing is lost").expect("no limit");
        black_box(batch.as_slice().len());
    }
}

#[inline(never)]
fn counted_cmq_push(queue: &Cmq<Bytes>, to: std::net::SocketAddr, count: usize) {
    for _ in 0..count {
        queue.push_bytes((to, 0), data()).expect("it is not full");
    }
}

#[inline(never)]
fn counted_cmq_pop(queue: &Cmq<Bytes>, count: usize) {
    for _ in 0..count {
        let popped = queue.pop_timeout(Duration::from_secs(1)).expect("it was pushed");
        black_box(popped.0.len());
    }
}

/// Runs the rounds of a row: `before`, and then what is counted.
fn rounds<T>(
    rounds: usize,
    count: usize,
    ends: &mut T,
    mut before: impl FnMut(&mut T, usize) -> Tried,
    mut counted: impl FnMut(&mut T, usize),
) -> Tried {
    let mut least = f64::MAX;
    for _ in 0..rounds {
        before(ends, count)?;
        let begin = Instant::now();
        counted(ends, count);
        least = least.min(begin.elapsed().as_nanos() as f64 / count as f64);
    }
    println!("{} {} {least:.1}", std::env::args().nth(1).unwrap_or_default(), rounds * count);
    exit(0)
}

fn open_buffer() -> Tried<(ROut, OutBuffer)> {
    let out = ROut::new(&Context::new(Config::default())?);
    let buffer = out.create_buffer(7, RING)?;
    Ok((out, buffer))
}

fn open_rin() -> Tried<(OutWriter, RIn, Listener)> {
    let (out, buffer) = open_buffer()?;
    let listener = Listener::bind(buffer.context(), "127.0.0.1:0")?;
    listener.set_conn_cb(move |conn| out.add_conn(&conn));
    let rin = RIn::new(&Conn::connect(buffer.context(), &listener.local_addr(), b"")?);
    rin.subscribe(7, RING)?;
    rin.recv(Some(Duration::from_secs(5)))?.ok_or("not subscribed")?;
    Ok((buffer.writer()?, rin, listener))
}

fn deliver_one(writer: &mut OutWriter) -> Tried {
    writer.append(&[data()])?;
    sleep(ARRIVES);
    Ok(())
}

fn open_topic(broker: &str) -> Tried<(Publisher, TopicWriter)> {
    let publisher = Publisher::connect(broker)?;
    let name = format!("calls/rust/{}", std::process::id());
    let topic = publisher.topic_with(&name, TopicOptions::default().ring_bytes(RING))?;
    Ok((publisher, topic))
}

fn open_subscriber(broker: &str) -> Tried<(Publisher, TopicWriter, Subscriber)> {
    let (publisher, topic) = open_topic(broker)?;
    let mut subscriber = Subscriber::connect(broker)?;
    subscriber.subscribe(topic.topic().as_str())?;
    topic.wait_subscribers(1, Some(Duration::from_secs(10)))?;
    Ok((publisher, topic, subscriber))
}

fn publish_all(topic: &mut TopicWriter, count: usize) -> Tried {
    let mut batch = topic.batch_timeout((count * (SIZE + 4)) as u64, None)?;
    for _ in 0..count {
        batch.push(data());
    }
    batch.deliver()?;
    sleep(10 * ARRIVES);
    Ok(())
}

fn publish_one(topic: &mut TopicWriter) -> Tried {
    topic.publish_timeout(data(), None)?;
    sleep(ARRIVES);
    Ok(())
}

fn framework_row(row: &str, n: usize) -> Tried {
    let nothing = |_: &mut _, _| Ok(());
    match row {
        "append" => rounds(n, 1000, &mut open_buffer()?.1.writer()?, nothing, counted_append),
        "writer_segment" => rounds(n, 1000, &mut open_buffer()?.1.writer()?, nothing, counted_writer_segment),
        "buffer_segment" => rounds(
            n,
            1000,
            &mut open_buffer()?,
            |_, _| Ok(()),
            |(_, buffer), n| counted_buffer_segment(buffer, n),
        ),
        "rin_recv" => {
            let before = |ends: &mut (OutWriter, RIn, Listener), _| deliver_one(&mut ends.0);
            rounds(n, 1, &mut open_rin()?, before, |ends, n| counted_rin_recv(&ends.1, n))
        }
        "reader_recv" => {
            let (writer, rin, _listener) = open_rin()?;
            let before = |ends: &mut (OutWriter, InReader), _| deliver_one(&mut ends.0);
            rounds(n, 1, &mut (writer, rin.reader()?), before, |ends, n| counted_reader_recv(&mut ends.1, n))
        }
        _ => Err("no such row".into()),
    }
}

fn client_row(row: &str, n: usize, broker: &str) -> Tried {
    type Ends = (Publisher, TopicWriter, Subscriber);
    match row {
        "publish" => rounds(
            n,
            1000,
            &mut open_topic(broker)?,
            |_, _| Ok(()),
            |ends, n| counted_publish(&mut ends.1, n),
        ),
        "recv" => {
            let before = |ends: &mut Ends, n| publish_all(&mut ends.1, n);
            rounds(n, 1000, &mut open_subscriber(broker)?, before, |ends, n| counted_recv(&mut ends.2, n))
        }
        "next_batch" => {
            let before = |ends: &mut Ends, _| publish_one(&mut ends.1);
            rounds(n, 1, &mut open_subscriber(broker)?, before, |ends, n| counted_next_batch(&mut ends.2, n))
        }
        _ => framework_row(row, n),
    }
}

fn queue_row(row: &str, n: usize) -> Tried {
    let mut queue = cmq::new_raw_rq("127.0.0.1:0", cmq::Config::default())?;
    let to = queue.local_addr();
    if row == "cmq_push" {
        return rounds(n, 1000, &mut queue, |_, _| Ok(()), |queue, n| counted_cmq_push(queue, to, n));
    }
    let before = |queue: &mut Cmq<Bytes>, n| {
        counted_cmq_push(queue, to, n);
        queue.flush();
        sleep(10 * ARRIVES);
        Ok(())
    };
    rounds(n, 1000, &mut queue, before, |queue, n| counted_cmq_pop(queue, n))
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().collect();
    let [_, row, n, broker] = &args[..] else { return ExitCode::from(2) };
    let n = n.parse().unwrap_or(1);
    let done = if row.starts_with("cmq") { queue_row(row, n) } else { client_row(row, n, broker) };
    if let Err(error) = done {
        eprintln!("{row}: {error}");
    }
    ExitCode::FAILURE
}
