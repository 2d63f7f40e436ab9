//! An end of an exchange over shared memory of iceoryx2, started by `rbmq-bench direct`.
//!
//! ```text
//!   publish: Publisher "there" ──▶ Subscriber: subscribe      ping: Publisher "back"  ──▶ Subscriber :pong
//!                                                                   Subscriber "there" ◀── Publisher
//! ```
//!
//! Publish and subscribe with a sample loaned for each message, and both sides poll, as its own benchmark does. Nothing may
//! be lost, so a service does not overflow and a publisher waits for room.

#![forbid(unsafe_code)]

use std::{error::Error, io, path::Path as FilePath, process::ExitCode, sync::Arc};

use benchkit::{
    control::Control,
    direct::{End, Port, Role},
};
use clap::Parser;
use iceoryx2::{
    node::Node,
    port::{publisher::Publisher, subscriber::Subscriber},
    prelude::*,
};

/// The version in Cargo.toml.
const VERSION: &str = "0.10.0";

/// Samples that may wait for a subscriber. With fewer a publisher waits more often; more change nothing.
const SAMPLES: usize = 1024;

/// Samples that are received before anything else is checked.
const IN_A_ROW: usize = 256;

#[derive(Parser)]
#[command(name = "direct-peers")]
struct Command {
    #[command(flatten)]
    end: End,
}

fn main() -> ExitCode {
    let end = Command::parse().end;
    let control = Control::start();
    match run(&end, &control) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("direct-peers: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(end: &End, control: &Arc<Control>) -> Result<(), Box<dyn Error>> {
    let mut port = Polling::open(end)?;
    let words = format!("{} {}", end.at, VERSION);
    Ok(end.run(control, &mut port, if end.role.is_first() { &words } else { "" })?)
}

/// The publisher and the subscriber of this end, if it has them.
struct Polling {
    // The node must outlive its services.
    _node: Node<ipc::Service>,
    to: Option<Publisher<ipc::Service, [u8], ()>>,
    from: Option<Subscriber<ipc::Service, [u8], ()>>,
}

impl Polling {
    fn open(end: &End) -> Result<Polling, Box<dyn Error>> {
        set_log_level(LogLevel::Error);
        let node = NodeBuilder::new().config(&config(&end.at)?).create::<ipc::Service>()?;
        let service = |name: &str| {
            node.service_builder(&name.try_into()?)
                .publish_subscribe::<[u8]>()
                .enable_safe_overflow(false)
                .subscriber_max_buffer_size(SAMPLES)
                .max_publishers(1)
                .max_subscribers(1)
                .open_or_create()
                .map_err(Box::<dyn Error>::from)
        };
        let (there, back) = (service("there")?, service("back")?);
        let (to, from) = if end.role.is_first() { (&there, &back) } else { (&back, &there) };
        let sends = end.role != Role::Subscribe;
        let receives = end.role != Role::Publish;
        let publisher = || {
            to.publisher_builder()
                .initial_max_slice_len(end.size)
                .backpressure_strategy(BackpressureStrategy::RetryUntilDelivered)
                .create()
        };
        Ok(Polling {
            to: sends.then(publisher).transpose()?,
            from: receives.then(|| from.subscriber_builder().create()).transpose()?,
            _node: node,
        })
    }
}

/// All files are in the folder where the ends meet, or beside it with names that begin with its name.
fn config(at: &str) -> Result<Config, Box<dyn Error>> {
    let mut config = Config::default();
    let name = FilePath::new(at).file_name().and_then(|name| name.to_str()).unwrap_or("direct");
    config.global.prefix = FileName::new(format!("{name}_").as_bytes())?;
    config.global.set_root_path(&Path::new(at.as_bytes())?);
    Ok(config)
}

impl Port for Polling {
    #[inline]
    fn send(&mut self, message: &[u8]) -> io::Result<()> {
        send(self.to.as_ref(), message)
    }

    #[inline]
    fn receive(&mut self, each: &mut impl FnMut(&[u8])) -> io::Result<()> {
        self.take(|message| {
            each(message);
            Ok(())
        })
    }

    #[inline]
    fn answer(&mut self) -> io::Result<()> {
        self.take(|message| send(self.to.as_ref(), message))
    }
}

impl Polling {
    #[inline]
    fn take(&self, mut each: impl FnMut(&[u8]) -> io::Result<()>) -> io::Result<()> {
        let Some(from) = &self.from else { return Err(io::ErrorKind::Unsupported.into()) };
        for _ in 0..IN_A_ROW {
            match from.receive().map_err(io::Error::other)? {
                Some(sample) => each(sample.payload())?,
                None => {
                    std::hint::spin_loop();
                    break;
                }
            }
        }
        Ok(())
    }
}

#[inline]
fn send(to: Option<&Publisher<ipc::Service, [u8], ()>>, message: &[u8]) -> io::Result<()> {
    let Some(to) = to else { return Err(io::ErrorKind::Unsupported.into()) };
    let sample = to.loan_slice_uninit(message.len()).map_err(io::Error::other)?;
    sample.write_from_slice(message).send().map_err(io::Error::other)?;
    Ok(())
}
