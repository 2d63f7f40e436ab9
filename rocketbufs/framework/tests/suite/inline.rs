//! Deliveries that the delivering thread sends by itself, alternating with deliveries that a worker sends.

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use rocketbufs::{Config, Context, InEvent, Listener, OutSegment, RIn, ROut, SegmentError};

use crate::ends::{receiver, sender};

const WAIT: Duration = Duration::from_secs(60);
const BUFFERS: u32 = 3;
const DELIVERIES: u64 = 4_000;

/// A context whose delivering threads send by themselves whenever possible.
fn eager() -> Context {
    let mut config = Config::default();
    config.tcp.inline_idle_us = 1;
    Context::new(config).unwrap()
}

fn connected(out_ctx: &Context, in_ctx: &Context) -> (ROut, RIn, Listener) {
    let (out, listener) = sender(out_ctx);
    (out, receiver(in_ctx, &listener), listener)
}

fn subscribe(input: &RIn, buffers: u32) {
    for bid in 0..buffers {
        input.subscribe(bid, 1 << 16).unwrap();
    }
    for _ in 0..buffers {
        assert!(matches!(input.recv(Some(WAIT)).unwrap(), Some(InEvent::Subscribed { .. })));
    }
}

/// Small ones mostly; now and then a pause long enough for workers to fall asleep, or more than is sent inline.
fn deliver_all(out: &ROut, bid: u32) {
    let mut writer = out.buffer(bid).unwrap().writer().unwrap();
    for n in 0..DELIVERIES {
        let body = vec![n as u8; if n % 97 == 0 { 9_000 } else { (n % 50) as usize }];
        writer
            .append_blocking(&[&n.to_le_bytes(), &(body.len() as u32).to_le_bytes(), &body], Some(WAIT))
            .unwrap();
        if n % 64 == u64::from(bid) {
            thread::sleep(Duration::from_micros(300));
        }
    }
}

/// How many deliveries are in these bytes, the first being number `next`.
fn check(mut bytes: &[u8], next: u64) -> u64 {
    let mut n = next;
    while let Some((number, rest)) = bytes.split_first_chunk() {
        let (len, rest) = rest.split_first_chunk().unwrap();
        let (body, rest) = rest.split_at(u32::from_le_bytes(*len) as usize);
        assert_eq!(u64::from_le_bytes(*number), n);
        assert!(body.iter().all(|byte| *byte == n as u8));
        (n, bytes) = (n + 1, rest);
    }
    n - next
}

#[test]
fn buffers_of_several_threads_arrive_whole_and_in_order() {
    let (out, input, _listener) = connected(&eager(), &eager());
    for bid in 0..BUFFERS {
        out.create_buffer(bid, 1 << 16).unwrap();
    }
    subscribe(&input, BUFFERS);
    let writers: Vec<_> = (0..BUFFERS)
        .map(|bid| {
            let out = out.clone();
            thread::spawn(move || deliver_all(&out, bid))
        })
        .collect();
    let mut next = [0; BUFFERS as usize];
    while next != [DELIVERIES; BUFFERS as usize] {
        let Some(InEvent::Data(view)) = input.recv(Some(WAIT)).unwrap() else {
            panic!("stopped at {next:?}")
        };
        let at = &mut next[view.bid() as usize];
        *at += check(view.as_slice().unwrap(), *at);
        view.consume();
    }
    writers.into_iter().for_each(|writer| writer.join().unwrap());
}

/// Waits for room, also where a thread that was interrupted keeps the oldest of as many claims as may be open.
fn claim(out: &ROut, size: u64) -> OutSegment {
    loop {
        match out.buffer(0).unwrap().segment(size, Some(WAIT)) {
            Err(SegmentError::TooManyOpen) => thread::yield_now(),
            segment => return segment.unwrap(),
        }
    }
}

#[test]
fn threads_that_share_a_buffer_lose_nothing() {
    let (out, input, _listener) = connected(&eager(), &eager());
    out.create_buffer(0, 1 << 16).unwrap();
    subscribe(&input, 1);
    let threads: Vec<_> = (0..3)
        .map(|_| {
            let out = out.clone();
            thread::spawn(move || {
                for n in 0..DELIVERIES {
                    let segment = claim(&out, 10);
                    out.deliver(segment, 10, None).unwrap();
                    if n % 50 == 0 {
                        thread::sleep(Duration::from_micros(200));
                    }
                }
            })
        })
        .collect();
    let mut bytes = 0;
    while bytes < 3 * DELIVERIES * 10 {
        let Some(InEvent::Data(view)) = input.recv(Some(WAIT)).unwrap() else { panic!("stopped at {bytes}") };
        bytes += view.len() as u64;
        view.consume();
    }
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}

/// A callback runs while its worker holds the reactor. A delivery of the callback is sent by the worker, not inline.
#[test]
fn a_callback_may_deliver() {
    let ctx = eager();
    let (there, input, _listener) = connected(&eager(), &ctx);
    let (back, answers, _listener) = connected(&ctx, &eager());
    there.create_buffer(0, 1 << 16).unwrap();
    back.create_buffer(0, 1 << 16).unwrap();
    let (told, events) = mpsc::sync_channel(16);
    input.set_event_cb(move |event| drop(told.send(event)));
    let (giver, echo) = (input.clone(), back.clone());
    input.set_data_in_cb(move |bid, segment| {
        let bytes = segment.as_slice().unwrap().to_vec();
        let mut answer = echo.get_output_segment(0, bytes.len() as u64, false).unwrap();
        answer.bytes_mut().copy_from_slice(&bytes);
        echo.deliver(answer, bytes.len() as u64, None).unwrap();
        giver.data_consumed(bid, bytes.len() as u64).unwrap();
    });
    input.subscribe(0, 1 << 16).unwrap();
    events.recv_timeout(WAIT).unwrap();
    subscribe(&answers, 1);
    let mut writer = there.buffer(0).unwrap().writer().unwrap();
    for n in 0..500_u64 {
        writer.append_blocking(&[&n.to_le_bytes()], Some(WAIT)).unwrap();
        let Some(InEvent::Data(view)) = answers.recv(Some(WAIT)).unwrap() else { panic!("no answer to {n}") };
        assert_eq!(view.as_slice().unwrap(), n.to_le_bytes());
        view.consume();
    }
}
