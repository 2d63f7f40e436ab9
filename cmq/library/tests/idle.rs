//! An idle queue costs nothing. This test has a process of its own, since it counts what the threads of the
//! process do.

use std::time::Duration;

use cmq::{Cmq, Config, new_rq_with};

/// How often the background threads of all queues of this process went to sleep.
fn sleeps() -> u64 {
    let mut sleeps = 0;
    for task in std::fs::read_dir("/proc/self/task").expect("Linux").flatten() {
        let read = |name: &str| std::fs::read_to_string(task.path().join(name)).unwrap_or_default();
        if read("comm").trim() == "cmq" {
            let status = read("status");
            let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
            sleeps += line.and_then(|number| number.trim().parse::<u64>().ok()).expect("a number");
        }
    }
    sleeps
}

#[test]
fn the_threads_of_idle_queues_sleep() {
    let queues: Vec<Cmq<u64>> =
        (0..4).map(|_| new_rq_with("127.0.0.1:0", Config::default()).expect("a queue")).collect();
    // Traffic of every kind: batches that leave by age, waiting pops, a mailbox, many keys.
    let to = queues[1].local_addr();
    for number in 0..1000 {
        queues[0].cw_push((to, number as u32), &number).expect("room");
    }
    for _ in 0..1000 {
        queues[1].pop_timeout(Duration::from_secs(20)).expect("loopback");
    }
    assert_eq!(queues[2].pop_timeout(Duration::from_millis(20)), None);
    // Pending batches leave and leases end. Then all threads sleep.
    let mut quiet = 0;
    for _ in 0..1200 {
        let before = sleeps();
        std::thread::sleep(Duration::from_millis(50));
        quiet = if sleeps() == before { quiet + 1 } else { 0 };
        if quiet == 5 {
            return;
        }
    }
    panic!("the threads do not become idle");
}
