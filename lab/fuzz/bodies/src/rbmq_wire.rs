//! RBMQ's messages between client and broker, and the records inside deliveries.

use rbmq_wire::{
    Control, Hello, Observe, Records, Runs, TopicFilter, TopicName, Unpack, UnpackError, push_record,
    run_header,
};

/// An accepted control message encodes to the same bytes.
pub fn rbmq_control(data: &[u8]) {
    if let Ok(control) = Control::decode(data) {
        let again = Control::decode(&control.encode()).expect("encoded bytes decode");
        assert_eq!(again, control);
    }
}

/// An accepted message of an observer encodes to the same bytes.
pub fn rbmq_observe(data: &[u8]) {
    if let Ok(message) = Observe::decode(data) {
        assert_eq!(message.encode(), data);
    }
}

/// An accepted hello encodes to the same bytes, with its credentials, and no output of them shows a secret.
pub fn rbmq_hello(data: &[u8]) {
    if let Ok((hello, credentials)) = Hello::decode_with(data) {
        assert_eq!(&**hello.encode_with(&credentials), data);
        assert_eq!(Hello::decode(&hello.encode()).expect("encoded bytes decode"), hello);
        assert!(credentials.is_none() || format!("{credentials:?}").contains("[secret]"));
    }
}

/// The records of arbitrary bytes are the bytes up to where the parser stopped. The parser reports an error
/// exactly if it did not reach the end.
pub fn rbmq_records(data: &[u8]) {
    let mut records = Records::new(data);
    let mut again = Vec::with_capacity(data.len());
    for record in records.by_ref() {
        push_record(&mut again, record);
    }
    assert_eq!(again, data[..records.offset()]);
    match records.malformed() {
        None => assert_eq!(records.offset(), data.len()),
        Some(error) => {
            assert_eq!(error.offset, again.len());
            assert!(error.missing > 0);
        }
    }
}

/// An accepted filter matches the name in the next line exactly by the rules, level by level.
pub fn rbmq_filter(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let (filter, topic) = text.split_once('\n').unwrap_or((text, text));
    let (Ok(filter), Ok(topic)) = (filter.parse::<TopicFilter>(), topic.parse::<TopicName>()) else { return };
    let wanted: Vec<&str> = filter.levels().collect();
    let levels: Vec<&str> = topic.as_str().split('/').collect();
    let hidden = topic.as_str().starts_with('$') && matches!(wanted[0], "+" | "#");
    assert_eq!(filter.matches(&topic), !hidden && means(&wanted, &levels));
    assert_eq!(filter.as_topic().is_none(), filter.has_wildcards());
}

fn means(filter: &[&str], levels: &[&str]) -> bool {
    match (filter, levels) {
        (["#"], _) | ([], []) => true,
        ([wanted, filter @ ..], [level, levels @ ..]) => {
            (*wanted == "+" || wanted == level) && means(filter, levels)
        }
        _ => false,
    }
}

/// The runs of arbitrary bytes are the bytes up to where the parser stopped. The records of a run are in
/// order at their stated places, with at most one error for each run.
pub fn rbmq_runs(data: &[u8]) {
    let mut runs = Runs::new(data);
    let mut again = Vec::with_capacity(data.len());
    let mut count = 0;
    for run in runs.by_ref() {
        again.extend_from_slice(&run_header(run.publisher, run.bytes.len()).expect("a valid run"));
        again.extend_from_slice(run.bytes);
        count += 1;
    }
    assert_eq!(again, data[..runs.offset()]);
    assert_eq!(runs.malformed().is_none(), runs.offset() == data.len());
    let (mut last, mut complaints) = (0, 0);
    let mut records = Vec::new();
    for piece in Unpack::merged(data).checked() {
        match piece {
            Ok(piece) => {
                assert!(piece.from >= last && piece.from <= piece.to && piece.to <= data.len());
                assert!(piece.publisher.is_some());
                last = piece.from;
                records.push(piece.record);
            }
            Err(UnpackError::Run(error)) => assert_eq!(Some(error), runs.malformed()),
            Err(_) => complaints += 1,
        }
    }
    assert!(complaints <= count);
    assert!(Unpack::merged(data).eq(records));
}
