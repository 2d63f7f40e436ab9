//! Sensors, each with an address of its own, and a subscriber that accounts for every message: for `scripts/devices`.
//!
//! ```sh
//! devices receive 127.0.0.1:7411 sensors 1000000 1000
//! devices send 10.9.9.2:19999 1000000 1000 [MESSAGES_PER_SECOND]
//! ```
//!
//! A message has 24 bytes: the device, its number of the message (`u32` each), the time in nanoseconds and a reading (`u64`, `f64`).

use std::error::Error;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant, SystemTime};

use rbmq::{Event, Notice, StartFrom, Subscriber};

type Failed = Box<dyn Error>;

/// The network of the devices, which the sender's namespace has as local addresses.
const NETWORK: Ipv4Addr = Ipv4Addr::new(10, 64, 0, 0);

/// The receiver ends if nothing comes for so long.
const IDLE: Duration = Duration::from_secs(10);

fn main() -> Result<(), Failed> {
    rbmq_broker::raise_descriptor_limit();
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match args[..] {
        ["send", to, messages, devices] => send(to.parse()?, messages.parse()?, devices.parse()?, None),
        ["send", to, messages, devices, rate] => {
            send(to.parse()?, messages.parse()?, devices.parse()?, Some(rate.parse()?))
        }
        ["receive", addr, topic, messages, devices] => {
            receive(addr, topic, messages.parse()?, devices.parse()?)
        }
        _ => {
            Err("usage: devices send TO MESSAGES DEVICES [RATE] | receive BROKER TOPIC MESSAGES DEVICES"
                .into())
        }
    }
}

/// Sends the messages, a device after the other.
fn send(to: SocketAddr, messages: u64, devices: u32, rate: Option<u64>) -> Result<(), Failed> {
    let mut sockets = Vec::new();
    for device in 0..devices {
        let socket = UdpSocket::bind((Ipv4Addr::from_bits(NETWORK.to_bits() + 1 + device), 0))?;
        socket.connect(to)?;
        sockets.push(socket);
    }
    let began = Instant::now();
    for number in 0..messages {
        let device = (number % u64::from(devices)) as u32;
        let sequence = (number / u64::from(devices)) as u32;
        let time = SystemTime::UNIX_EPOCH.elapsed()?.as_nanos() as u64;
        let reading = 20.0 + f64::from(device % 100) / 10.0;
        let message: Vec<u8> =
            [&device.to_le_bytes()[..], &sequence.to_le_bytes(), &time.to_le_bytes(), &reading.to_le_bytes()]
                .concat();
        sockets[device as usize].send(&message)?;
        if let Some(rate) = rate.filter(|_| number % 256 == 255) {
            let due = Duration::from_secs_f64(number as f64 / rate as f64);
            std::thread::sleep(due.saturating_sub(began.elapsed()));
        }
    }
    let seconds = began.elapsed().as_secs_f64();
    println!("{{\"sent\":{messages},\"devices\":{devices},\"seconds\":{seconds:.3}}}");
    Ok(())
}

/// Counts of the messages so far.
#[derive(Default)]
struct Account {
    received: u64,
    repeated: u64,
    missing: u64,
    lost_bytes: u64,
    latency_ns: Vec<u64>,
}

/// Receives until all messages are there or nothing more comes.
fn receive(addr: &str, topic: &str, messages: u64, devices: u32) -> Result<(), Failed> {
    let mut subscriber = Subscriber::builder().ring_bytes(8 << 20).connect(addr)?;
    subscriber.subscribe_from(topic, StartFrom::Oldest)?;
    eprintln!("devices: receiving");
    let (mut next, mut account) = (vec![0_u32; devices as usize], Account::default());
    let (mut began, mut last) = (None, Instant::now());
    while account.received < messages && (began.is_none() || last.elapsed() < IDLE) {
        match subscriber.next_event(Some(Duration::from_secs(1)))? {
            Some(Event::Batch(batch)) => {
                began.get_or_insert_with(Instant::now);
                last = Instant::now();
                for message in batch.checked_records() {
                    account.message(message?, &mut next)?;
                }
            }
            Some(Event::Notice(Notice::Lost { from, to, .. })) => account.lost_bytes += to - from,
            Some(Event::Notice(Notice::Refused { reason, .. })) => return Err(reason.into()),
            _ => {}
        }
    }
    let seconds = began.map_or(0.0, |began| last.duration_since(began).as_secs_f64());
    account.latency_ns.sort_unstable();
    let at = |part: f64| {
        account.latency_ns.get((account.latency_ns.len() as f64 * part) as usize).copied().unwrap_or(0) / 1000
    };
    let Account { received, repeated, missing, lost_bytes, .. } = account;
    println!(
        "{{\"received\":{received},\"repeated\":{repeated},\"missing\":{missing},\"lost_bytes\":{lost_bytes},\"seconds\":{seconds:.3},\"latency_p50_us\":{},\"latency_p99_us\":{}}}",
        at(0.5),
        at(0.99)
    );
    Ok(())
}

impl Account {
    /// Counts a message; `next` has the next number of each device.
    fn message(&mut self, message: &[u8], next: &mut [u32]) -> Result<(), Failed> {
        let number = |at: usize| {
            message.get(at..at + 4).and_then(|bytes| Some(u32::from_le_bytes(*bytes.first_chunk()?)))
        };
        let (Some(device), Some(sequence)) = (number(0), number(4)) else {
            return Err(format!("a message of {} bytes", message.len()).into());
        };
        let next = next.get_mut(device as usize).ok_or("a device that was not asked for")?;
        if sequence < *next {
            self.repeated += 1;
        } else {
            self.missing += u64::from(sequence - *next);
            *next = sequence + 1;
        }
        self.received += 1;
        // A sample of the latencies is enough.
        if self.received.is_multiple_of(64)
            && let Some(sent) = message[8..].first_chunk()
        {
            let now = SystemTime::UNIX_EPOCH.elapsed()?.as_nanos() as u64;
            self.latency_ns.push(now.saturating_sub(u64::from_le_bytes(*sent)));
        }
        Ok(())
    }
}
