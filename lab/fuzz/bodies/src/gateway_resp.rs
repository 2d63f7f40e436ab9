//! Gateways: what clients of Redis send.

use rbmq_gateway::resp::glob::Glob;
use rbmq_gateway::resp::names::{channel_of, filter_of, topic_of};
use rbmq_gateway::resp::parse::{Arguments, Limits, Parser, ProtocolError, Step, publish};
use rbmq_gateway::resp::streams::entries::is_fields;
use rbmq_gateway::resp::streams::groups::names::{group_of, name_of};
use rbmq_gateway::resp::streams::ids::{bound, id};

const LIMITS: Limits = Limits { arguments: 64, bulk: 1 << 10, command: 4 << 10, is_stranger: false };

/// The commands of the bytes, given in pieces, and how they end.
fn commands(data: &[u8], piece: usize) -> (Vec<Vec<Vec<u8>>>, Option<ProtocolError>) {
    let (mut parser, mut arguments, mut found) = (Parser::default(), Arguments::default(), Vec::new());
    let (mut at, mut end) = (0, 0);
    while end < data.len() {
        end = (end + piece).min(data.len());
        loop {
            let bytes = &data[at..end];
            match parser.parse(bytes, &LIMITS, &mut arguments) {
                Step::Command(used) => {
                    let words: Vec<Vec<u8>> = arguments.of(bytes).from(0).map(<[u8]>::to_vec).collect();
                    if let Some(short) = publish(bytes, &LIMITS) {
                        assert!(short.used == used && words[1..] == [short.channel, short.payload]);
                    }
                    assert!(!words.is_empty() && words.len() <= LIMITS.arguments.max(used));
                    found.push(words);
                    at += used;
                }
                Step::Nothing(used) => at += used,
                Step::More => break,
                Step::Broken(error) => return (found, Some(error)),
            }
        }
    }
    (found, None)
}

/// Commands are the same in pieces as in one, and the short way of `PUBLISH` says what the long one says.
pub fn gateway_resp(data: &[u8]) {
    let whole = commands(data, data.len().max(1));
    assert_eq!(whole, commands(data, 7));
    assert!(whole.1.is_none_or(|error| !error.to_string().contains(['\r', '\n'])));
}

/// A channel is found again from its topic, and the filter of a pattern selects the topics of all channels that the pattern matches.
pub fn gateway_resp_names(data: &[u8]) {
    ids_and_fields(data);
    if let Some(group) = group_of(data) {
        assert_eq!(name_of(&group), data);
    }
    let (pattern, channel) = data.split_at(data.len() / 2);
    let glob = Glob::new(pattern);
    let Some(topic) = topic_of(channel) else { return };
    assert_eq!(channel_of(topic.as_str()), channel);
    if glob.matches(channel) {
        let filter = filter_of(&glob).expect("a topic is long enough");
        assert!(filter.matches(&topic), "{filter} {topic}");
    }
}

/// The fields of an entry that are sent unchanged are one array of strings. An id is read as it was written.
fn ids_and_fields(data: &[u8]) {
    if is_fields(data) && data != b"*0\r\n" {
        let limits = Limits { bulk: data.len(), command: u32::MAX >> 1, arguments: data.len(), ..LIMITS };
        let mut arguments = Arguments::default();
        assert_eq!(Parser::default().parse(data, &limits, &mut arguments), Step::Command(data.len()));
        assert_eq!(arguments.of(data).len() % 2, 0);
    }
    if let Some(found) = id(data, 0) {
        assert_eq!(id(found.to_string().as_bytes(), 1), Some(found));
    }
    let _ = (bound(data, true), bound(data, false));
}
