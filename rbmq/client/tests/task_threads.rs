//! Subscribers that are tasks need no threads, and threads of the libraries take no signals. The only test of its process, since it looks at the
//! threads of the process.

use rbmq::{Publisher, Subscriber};
use rbmq_broker::{Broker, BrokerConfig};
use rocketbufs::{Config, Context};
use tokio_stream::StreamExt;

/// A hundred subscribers of one context are a hundred tasks, and no further thread.
#[test]
fn a_subscriber_is_no_thread() {
    let mut config = BrokerConfig::default();
    config.broker.listen = "127.0.0.1:0".into();
    let broker = Broker::start(config).unwrap();
    tokio::runtime::Builder::new_current_thread()
        .max_blocking_threads(1)
        .enable_all()
        .build()
        .unwrap()
        .block_on(async {
            let context = Context::new(Config::default()).unwrap();
            let connect = async || {
                let builder = Subscriber::builder().context(&context).ring_bytes(1 << 16).until_ended(true);
                let mut subscriber = builder.connect_async(&broker.addr()).await.unwrap();
                subscriber.subscribe("t").unwrap();
                subscriber
            };
            let mut subscribers = vec![connect().await];
            let threads = count_threads();
            for _ in 1..100 {
                subscribers.push(connect().await);
            }
            assert!(count_threads() <= threads + 1, "{} threads became {}", threads, count_threads());
            let publisher = Publisher::connect_async(&broker.addr()).await.unwrap();
            let mut topic = publisher.topic_async("t").await.unwrap();
            topic.wait_subscribers_async(100).await.unwrap();
            let receiving = subscribers.into_iter().map(|subscriber| {
                tokio::spawn(async move {
                    subscriber.into_stream().filter(Result::is_ok).fold(0, |n, _| n + 1).await
                })
            });
            let receiving: Vec<_> = receiving.collect();
            for _ in 0..50 {
                topic.publish_async(b"message").await.unwrap();
            }
            topic.close_async().await.unwrap();
            for task in receiving {
                assert_eq!(task.await.unwrap(), 50);
            }
            assert_eq!(threads_that_take_signals(), Vec::<String>::new());
        });
}

/// The threads of the libraries that do not block SIGTERM. A program that takes its signals by `sigwait` would lose them there.
fn threads_that_take_signals() -> Vec<String> {
    let read = |task: &std::path::Path, file| std::fs::read_to_string(task.join(file)).unwrap_or_default();
    let tasks = std::fs::read_dir("/proc/self/task").unwrap().map(|task| task.unwrap().path());
    let own: Vec<_> = tasks
        .filter(|task| {
            ["rocket-", "rbmq-", "seglog-"].iter().any(|name| read(task, "comm").starts_with(name))
        })
        .collect();
    assert!(own.len() > 1, "{own:?}");
    let takes = |task: &std::path::PathBuf| {
        let status = read(task, "status");
        // A thread that has ended has no mask.
        let mask = status.lines().find_map(|line| line.strip_prefix("SigBlk:"));
        mask.is_some_and(|mask| u64::from_str_radix(mask.trim(), 16).unwrap() & 1 << (15 - 1) == 0)
    };
    own.into_iter().filter(takes).map(|task| read(&task, "comm")).collect()
}

fn count_threads() -> usize {
    std::fs::read_dir("/proc/self/task").unwrap().count()
}
