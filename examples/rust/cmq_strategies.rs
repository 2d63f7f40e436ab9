//! The paper's message passing strategies on one page, between queues of this process: futures, replay, replacement.
//!
//! `cargo run --release -p cmq --example cmq_strategies`

use std::error::Error;
use std::time::Duration;

use cmq::strategy::repair::{Policy, Repair, RepairConfig};
use cmq::strategy::request::{CallConfig, CallState, Caller, Responder};
use cmq::{Config, new_rq_with};

const SOON: Duration = Duration::from_secs(2);

fn main() -> Result<(), Box<dyn Error>> {
    futures()?;
    repair("replay", Policy::Replay { history: 100 })?;
    repair("replace", Policy::Replace { slots: 10 })
}

/// A request, and a value that stands for its response until it is needed.
fn futures() -> Result<(), Box<dyn Error>> {
    let squares: Responder<u32, u64> = Responder::new(new_rq_with("127.0.0.1:0", Config::immediate())?);
    let caller: Caller<u32, u64> =
        Caller::new(new_rq_with("127.0.0.1:0", Config::immediate())?, CallConfig::default());
    let nine = caller.call((squares.queue().local_addr(), 0), 9)?;
    // The call does not wait: the program continues while the responder answers.
    squares.serve(Some(SOON), |n, _from| Some(u64::from(n) * u64::from(n)));
    match nine.wait(Some(SOON)) {
        CallState::Answered(square) => println!("futures: 9 x 9 = {square}"),
        CallState::Lost => println!("futures: no responder answers; call another one"),
        CallState::Pending => println!("futures: not yet"),
    }
    Ok(())
}

/// A late receiver gets the messages that are still kept: all of them, or the newest value of each slot.
fn repair(name: &str, policy: Policy) -> Result<(), Box<dyn Error>> {
    let config = RepairConfig::default().policy(policy).request_interval(Duration::from_millis(10));
    // An address without a receiver yet.
    let key = (std::net::SocketAddr::from(([127, 0, 0, 1], 4712)), 0);
    let prices: Repair<u32> = Repair::new(new_rq_with("127.0.0.1:0", Config::immediate())?, config);
    for tick in 0..20 {
        // Prices of two things in turn, which no receiver gets.
        prices.push(key, u64::from(tick % 2), &(100 + tick))?;
    }
    let screen: Repair<u32> = Repair::new(new_rq_with(key.0, Config::immediate())?, config);
    let mut got = Vec::new();
    for _ in 0..20 {
        prices.notify_end(key)?;
        while let Some(price) = screen.pop_timeout(Duration::from_millis(5)) {
            got.push(price.message);
        }
        prices.pop_timeout(Duration::from_millis(5));
    }
    println!("{name}: 20 messages were lost; repaired: {got:?}");
    Ok(())
}
