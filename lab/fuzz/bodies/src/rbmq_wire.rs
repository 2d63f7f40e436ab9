//! RBMQ's messages between client and broker, and the records inside deliveries.

use rbmq_wire::{
    Attribute, Attributes, AttributesBuf, Control, GroupMessage, Hello, Observe, RECORD_HEADER_BYTES, Record,
    RecordFault, Records, Runs, TopicFilter, TopicName, Unpack, UnpackError, push_record, record_header_with,
    run_header,
};

/// The type and the length of an attribute.
const ATTRIBUTE_HEADER_BYTES: usize = 4;

/// An accepted control message encodes to the same bytes.
pub fn rbmq_control(data: &[u8]) {
    if let Ok(control) = Control::decode(data) {
        let again = Control::decode(&control.encode()).expect("encoded bytes decode");
        assert_eq!(again, control);
    }
    if let Ok(message) = GroupMessage::decode(data) {
        assert!(GroupMessage::is(data));
        let again = GroupMessage::decode(&message.encode()).expect("encoded bytes decode");
        assert_eq!(again, message);
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

/// The records of arbitrary bytes are the bytes up to where the parser stopped. The parser reports an error exactly if it did not
/// reach the end, and goes on behind malformed attributes.
pub fn rbmq_records(data: &[u8]) {
    let mut records = Records::new(data);
    let mut again = Vec::with_capacity(data.len());
    let mut payloads = Vec::new();
    loop {
        let from = records.offset();
        while let Some(record) = records.next_record() {
            let from = &data[again.len()..];
            encode_again(&mut again, record, from);
            payloads.push(record.payload);
        }
        assert_eq!(again, data[..records.offset()]);
        let Some(error) = records.skip_malformed() else { break };
        assert_eq!(error.offset, again.len());
        assert!(from <= error.offset && error.offset < records.offset());
        match error.fault {
            RecordFault::Cut { missing } => assert!(missing > 0 && records.offset() == data.len()),
            _ => assert!(records.offset() >= error.offset + RECORD_HEADER_BYTES),
        }
        again.extend_from_slice(&data[error.offset..records.offset()]);
    }
    assert_eq!(again.len(), data.len());
    assert!(Unpack::records(data).eq(payloads));
}

/// Appends a record as it was in `from`: a plain one, or one with attributes, which may be empty.
fn encode_again(to: &mut Vec<u8>, record: Record<'_>, from: &[u8]) {
    if record.attributes.is_empty() && from[3] < 0x80 {
        return push_record(to, record.payload);
    }
    to.extend_from_slice(&record_header_with(record.attributes, record.payload.len()).expect("valid sizes"));
    to.extend_from_slice(record.attributes.as_bytes());
    to.extend_from_slice(record.payload);
}

/// The getters of accepted attributes find what the list of all attributes has. Set again one by one, they have the same values.
pub fn rbmq_attributes(data: &[u8]) {
    let Ok(attributes) = Attributes::new(data) else { return use_getters(Attributes::checked_before(data)) };
    let (mut again, mut unknown, mut properties) = (AttributesBuf::new(), 0, Vec::new());
    for attribute in attributes.iter() {
        let set = match attribute {
            Attribute::Topic(topic) => again.topic(topic),
            Attribute::ReplyTo(topic) => again.reply_to(topic),
            Attribute::CorrelationData(data) => again.correlation_data(data),
            Attribute::ContentType(text) => again.content_type(text),
            Attribute::Property(key, value) => {
                properties.push((key, value));
                again.property(key, value)
            }
            Attribute::Key(key) => again.key(key),
            Attribute::TimeMs(ms) => again.time_ms(ms),
            Attribute::ExpiryMs(ms) => again.expiry_ms(ms),
            Attribute::PayloadIsUtf8 => again.payload_is_utf8(true),
            Attribute::Retain => again.retain(true),
            Attribute::Qos(qos) => again.qos(qos),
            Attribute::Unknown { value, .. } => {
                unknown += ATTRIBUTE_HEADER_BYTES + value.len();
                continue;
            }
            other => panic!("{other:?} has a setter"),
        };
        set.expect("accepted values have an allowed size");
    }
    assert!(attributes.properties().eq(properties));
    assert_eq!(again.as_bytes().len() + unknown, data.len());
    if unknown == 0 {
        assert_eq!(again.as_bytes(), data);
    }
    use_getters(attributes);
}

fn use_getters(attributes: Attributes<'_>) {
    let mut known = 0;
    known += usize::from(attributes.topic().is_some()) + usize::from(attributes.reply_to().is_some());
    known += usize::from(attributes.correlation_data().is_some()) + usize::from(attributes.key().is_some());
    known += usize::from(attributes.content_type().is_some()) + usize::from(attributes.time_ms().is_some());
    known += usize::from(attributes.expiry_ms().is_some()) + usize::from(attributes.payload_is_utf8());
    known += usize::from(attributes.retain()) + usize::from(attributes.qos().is_some());
    known += attributes.properties().count();
    if Attributes::new(attributes.as_bytes()).is_ok() {
        let is_known = |attribute: &Attribute<'_>| !matches!(attribute, Attribute::Unknown { .. });
        assert_eq!(known, attributes.iter().filter(is_known).count());
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
/// order at their stated places. A malformed record that was cut off ends its run.
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
            Err(UnpackError::Publisher { error, .. }) => complaints += usize::from(error.ends_bytes()),
            Err(error) => panic!("{error}: there are only runs"),
        }
    }
    assert!(complaints <= count);
    assert!(Unpack::merged(data).eq(records));
}
