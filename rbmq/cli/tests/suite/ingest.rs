//! Sensors over UDP by the command: a configuration file, metrics over HTTP, and settings that are refused.

use std::io::{Read, Write};
use std::net::{TcpStream, UdpSocket};

use testkit::{LONG, Process, own_port, until};

use crate::common::operator::Operated;
use crate::common::{client, rbmq};

/// A push in the header form.
fn push(topic: u16, sequence: u32, message: &[u8]) -> Vec<u8> {
    let mut datagram = b"MQ\x01\x01".to_vec();
    datagram.extend(topic.to_le_bytes());
    datagram.extend([0; 2]);
    datagram.extend(77_u32.to_le_bytes());
    datagram.extend(sequence.to_le_bytes());
    datagram.extend([0; 8]);
    datagram.extend((message.len() as u32).to_le_bytes());
    datagram.extend([0; 4]);
    datagram.extend(message);
    datagram
}

/// The value of a metric of a topic.
fn metric(http: &str, name: &str, topic: &str) -> Option<f64> {
    let mut stream = TcpStream::connect(http).expect("the endpoint");
    stream.set_read_timeout(Some(LONG)).expect("a time-out");
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").expect("a request");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    let begin = format!("{name}{{topic=\"{topic}\"}} ");
    answer.lines().find_map(|line| line.strip_prefix(&begin)?.parse().ok())
}

#[test]
fn a_configuration_file_makes_datagrams_messages_and_counts_them() {
    let folder = tempfile::tempdir().expect("a folder");
    let (file, port, plain) = (folder.path().join("rbmq.toml"), own_port(), own_port());
    let text = format!(
        "[http]\nlisten = \"127.0.0.1:0\"\n\
         [[broker.ingest]]\nsource = \"multimqc:lo/7\"\ntopic = \"plant/sensors\"\nlevel = \"user\"\nport = {port}\n\
         push_port = {plain}\n\
         [[broker.ingest]]\nsource = \"multimqc:lo/8\"\nlevel = \"user\"\nport = {port}\n"
    );
    std::fs::write(&file, text).expect("a file");
    let broker = Operated::start(&file, &[]);
    let http = broker.wait_said("rbmq: metrics on http://").trim_end_matches("/metrics").to_owned();
    broker.wait_said("rbmq: topic 'plant/sensors' gets multimqc:lo/7 (level user)");
    broker.wait_said("rbmq: topic 'multimqc/8' gets multimqc:lo/8 (level user)");
    let metric = |name: &str, topic: &str| metric(&http, name, topic);
    assert_eq!(metric("rbmq_ingest_messages_total", "plant/sensors"), Some(0.0));
    until("messages can arrive", || metric("rbmq_ingest_up", "plant/sensors") == Some(1.0));

    let sub = Process::start(client("sub", &broker.addr, "plant/sensors --from oldest --count 3"));
    let other = Process::start(client("sub", &broker.addr, "multimqc/8 --from oldest --count 1"));
    let sensor = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    let send = |port: u16, datagram: &[u8]| sensor.send_to(datagram, ("127.0.0.1", port)).expect("sent");
    send(port, &push(7, 0, b"one"));
    send(port, &push(7, 1, b"two"));
    send(plain, b"three");
    send(port, &push(8, 0, b"other"));
    // Neither a form of the port nor a topic of the file.
    send(port, b"garbage");
    send(port, &push(9, 0, b"nobody's"));
    let mut got: Vec<String> = sub.finish().good().text().lines().map(str::to_owned).collect();
    // Two sockets have no order between them.
    got.sort();
    assert_eq!(got, ["one", "three", "two"]);
    assert_eq!(other.finish().good().text(), "other\n");
    until("everything is counted", || {
        metric("rbmq_ingest_messages_total", "plant/sensors") == Some(3.0)
            && metric("rbmq_ingest_messages_total", "multimqc/8") == Some(1.0)
            && metric("rbmq_ingest_refused_total", "plant/sensors") == Some(2.0)
    });
    assert_eq!(metric("rbmq_ingest_bytes_total", "plant/sensors"), Some(3.0 * 4.0 + 11.0));
    for quiet in ["holes_total", "lost_bytes_total", "lost_messages_total", "lag_bytes", "full"] {
        assert_eq!(metric(&format!("rbmq_ingest_{quiet}"), "plant/sensors"), Some(0.0), "{quiet}");
    }
    broker.end();
}

#[test]
fn wrong_settings_are_refused_with_the_remedy() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("rbmq.toml");
    let path = file.to_str().expect("text");
    let busy = UdpSocket::bind("0.0.0.0:0").expect("a socket");
    let taken = busy.local_addr().expect("bound").port();
    for (entry, says) in [
        ("source = \"multimqc:lo\"".to_owned(), "a topic is missing"),
        ("source = \"multimqc:lo/1\"\nring = 5".to_owned(), "unknown field `ring`"),
        (
            "source = \"multimqc:lo/1\"\nring_bytes = \"1 MB\"".to_owned(),
            "a power of two from 512 KiB to 256 MiB",
        ),
        ("source = \"multimqc:lo/1\"\nport = 0".to_owned(), "senders must know the port"),
        (
            "source = \"multimqc:nothing0/1\"\nlevel = \"user\"".to_owned(),
            "there is no interface nothing0 here",
        ),
        (format!("source = \"multimqc:lo/1\"\nlevel = \"user\"\nport = {taken}"), "Address already in use"),
    ] {
        std::fs::write(&file, format!("[[broker.ingest]]\n{entry}\n")).expect("a file");
        let failed = Process::start(rbmq(["serve", "--listen", "127.0.0.1:0", "--config", path])).finish();
        assert_eq!(failed.status.code(), Some(1), "{entry}: {}", failed.stderr);
        assert!(failed.stderr.contains(says), "{entry}: {}", failed.stderr);
    }
    let failed =
        Process::start(rbmq(["serve", "--listen", "127.0.0.1:0", "--ingest", "multimqc:lo/1=a/#"])).finish();
    assert_eq!(failed.status.code(), Some(2), "{}", failed.stderr);
    assert!(failed.stderr.contains("a topic's name cannot contain '#'"), "{}", failed.stderr);
}
