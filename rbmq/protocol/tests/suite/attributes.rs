//! Records with attributes: the bytes of docs/rbmq-vectors.json, and everything that can be set compared with a plain list.

use proptest::prelude::*;
use rbmq_wire::{
    Attribute, Attributes, AttributesBuf, AttributesError, RecordFault, Records, Unpack, UnpackError,
    push_record_with, run_header,
};
use serde_json::Value;

fn vectors(list: &str) -> Vec<Value> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/rbmq-vectors.json");
    let all: Value = serde_json::from_str(&std::fs::read_to_string(path).expect("readable")).expect("JSON");
    all[list].as_array().expect("a list").clone()
}

fn hex(value: &Value) -> Vec<u8> {
    let text = value.as_str().expect("hexadecimal digits");
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).expect("a byte")).collect()
}

fn text(value: &Value) -> &str {
    value.as_str().expect("a text")
}

fn number(value: &Value) -> u64 {
    text(value).parse().expect("a number")
}

/// Sets the fields of a vector, in its order.
fn set(buf: &mut AttributesBuf, fields: &Value) {
    for (name, value) in fields.as_object().expect("an object") {
        let set = match name.as_str() {
            "topic" => buf.topic(text(value)),
            "reply_to" => buf.reply_to(text(value)),
            "correlation_data" => buf.correlation_data(&hex(value)),
            "content_type" => buf.content_type(text(value)),
            "properties" => {
                for pair in value.as_array().expect("a list") {
                    buf.property(text(&pair[0]), text(&pair[1])).expect("short");
                }
                continue;
            }
            "key" => buf.key(&hex(value)),
            "time_ms" => buf.time_ms(number(value)),
            "expiry_ms" => buf.expiry_ms(number(value)),
            "payload_is_utf8" => buf.payload_is_utf8(value.as_bool().expect("a flag")),
            "retain" => buf.retain(value.as_bool().expect("a flag")),
            "qos" => buf.qos(value.as_u64().expect("a number") as u8),
            other => panic!("{other}"),
        };
        set.expect("short");
    }
}

/// The fields that the getters find.
fn fields(attributes: Attributes<'_>) -> Value {
    let mut found = serde_json::Map::new();
    let mut put = |name: &str, value: Option<Value>| {
        if let Some(value) = value {
            found.insert(name.into(), value);
        }
    };
    let digits = |bytes: &[u8]| Value::from(bytes.iter().map(|b| format!("{b:02x}")).collect::<String>());
    put("topic", attributes.topic().map(Value::from));
    put("reply_to", attributes.reply_to().map(Value::from));
    put("correlation_data", attributes.correlation_data().map(digits));
    put("content_type", attributes.content_type().map(Value::from));
    let properties: Vec<Value> =
        attributes.properties().map(|(key, value)| vec![key, value].into()).collect();
    put("properties", (!properties.is_empty()).then(|| properties.into()));
    put("key", attributes.key().map(digits));
    put("time_ms", attributes.time_ms().map(|ms| ms.to_string().into()));
    put("expiry_ms", attributes.expiry_ms().map(|ms| ms.to_string().into()));
    put("payload_is_utf8", attributes.payload_is_utf8().then(|| true.into()));
    put("retain", attributes.retain().then(|| true.into()));
    put("qos", attributes.qos().map(Value::from));
    found.into()
}

#[test]
fn attributes_are_these_bytes() {
    for told in vectors("attributes") {
        let (name, bytes) = (&told["name"], hex(&told["hex"]));
        assert_eq!(fields(Attributes::new(&bytes).expect("accepted")), told["fields"], "{name}");
        let mut buf = AttributesBuf::new();
        set(&mut buf, &told["fields"]);
        assert_eq!(fields(buf.attributes()), told["fields"], "{name}");
        // A JSON object has no order; each attribute has.
        let mut list: Vec<_> = Attributes::new(&bytes).expect("accepted").iter().collect();
        assert_eq!(list.len(), buf.attributes().iter().count(), "{name}");
        list.retain(|attribute| !buf.attributes().iter().any(|other| other == *attribute));
        assert_eq!((list, buf.as_bytes().len()), (vec![], bytes.len()), "{name}");
    }
}

#[test]
fn unknown_attributes_are_passed_over_and_kept() {
    for told in vectors("unknown_attributes") {
        let bytes = hex(&told["hex"]);
        let attributes = Attributes::new(&bytes).expect("accepted");
        assert_eq!(fields(attributes), told["fields"]);
        let unknown: Vec<Value> = attributes
            .iter()
            .filter_map(|attribute| match attribute {
                Attribute::Unknown { kind, value } => Some((kind, value.to_vec())),
                _ => None,
            })
            .map(|(kind, value)| {
                let digits: String = value.iter().map(|b| format!("{b:02x}")).collect();
                Value::from(vec![Value::from(kind), Value::from(digits)])
            })
            .collect();
        assert_eq!(Value::from(unknown), told["unknown"]);
        let mut buf = AttributesBuf::new();
        assert_eq!(buf.copy_from(attributes).as_bytes(), bytes);
    }
}

#[test]
fn malformed_attributes_are_refused() {
    for told in vectors("attribute_rejects") {
        let bytes = hex(&told["hex"]);
        let (kind, attribute) = match Attributes::new(&bytes).expect_err(text(&told["name"])) {
            AttributesError::Cut => ("cut", None),
            AttributesError::Value { attribute } => ("value", Some(attribute)),
            AttributesError::Repeated { attribute } => ("repeated", Some(attribute)),
            other => panic!("{other}"),
        };
        assert_eq!((kind, attribute), (text(&told["error"]), told["attribute"].as_str()), "{}", told["name"]);
    }
}

#[test]
fn records_are_these_bytes() {
    for told in vectors("deliveries") {
        let (bytes, mut again) = (hex(&told["hex"]), Vec::new());
        let mut records = Records::new(&bytes);
        for record in told["records"].as_array().expect("a list") {
            let (attributes, payload) = (hex(&record["attributes"]), hex(&record["payload"]));
            let attributes = Attributes::new(&attributes).expect("accepted");
            push_record_with(&mut again, attributes, &payload);
            let found = records.next_record().expect("a record");
            assert_eq!((found.attributes, found.payload), (attributes, &*payload), "{}", told["name"]);
        }
        assert_eq!((records.next_record(), records.malformed()), (None, None));
        assert_eq!(again, bytes, "{}", told["name"]);
    }
    for told in vectors("accepted_records") {
        let bytes = hex(&told["hex"]);
        let record = Records::new(&bytes).next_record().expect("a record");
        assert_eq!((record.payload, record.attributes), (&*hex(&told["payload"]), Attributes::EMPTY));
    }
}

#[test]
fn malformed_records_are_refused_and_the_next_ones_read() {
    for told in vectors("record_rejects") {
        let (name, bytes) = (&told["name"], hex(&told["hex"]));
        let mut records = Records::new(&bytes);
        assert_eq!(records.next(), None, "{name}");
        let error = records.skip_malformed().expect("malformed");
        assert_eq!(error.offset, 0);
        let kind = if let RecordFault::Cut { .. } = error.fault { "cut" } else { "attributes" };
        assert_eq!((kind, error.ends_bytes()), (text(&told["error"]), kind == "cut"), "{name}");
        let behind: Vec<Vec<u8>> = told["behind"].as_array().expect("a list").iter().map(hex).collect();
        assert!(records.by_ref().eq(behind.iter().map(Vec::as_slice)), "{name}");
        assert_eq!(records.malformed(), None, "{name}");
    }
}

/// An attribute of the model: the type and its value, as docs/RBMQ.md has them.
type Plain = (u16, Vec<u8>);

fn text_value() -> impl Strategy<Value = Vec<u8>> {
    ".{0,12}".prop_map(String::into_bytes)
}

fn attribute() -> impl Strategy<Value = Plain> {
    prop_oneof![
        (prop_oneof![Just(1_u16), Just(2), Just(4)], text_value()),
        (prop_oneof![Just(3_u16), Just(6)], proptest::collection::vec(any::<u8>(), 0..12)),
        (
            Just(5_u16),
            (text_value(), text_value())
                .prop_map(|(key, value)| { [&(key.len() as u16).to_le_bytes()[..], &key, &value].concat() })
        ),
        (prop_oneof![Just(7_u16), Just(8)], any::<u64>().prop_map(|ms| ms.to_le_bytes().to_vec())),
        (prop_oneof![Just(9_u16), Just(10)], Just(vec![1])),
        (Just(11_u16), any::<u8>().prop_map(|qos| vec![qos])),
    ]
}

/// Attributes of a record, set in this order: the last of a type counts.
fn attributes() -> impl Strategy<Value = Vec<Plain>> {
    proptest::collection::vec(attribute(), 0..8)
}

fn encode(list: &[Plain]) -> Vec<u8> {
    let one = |(kind, value): &Plain| {
        [&kind.to_le_bytes()[..], &(value.len() as u16).to_le_bytes(), value].concat()
    };
    list.iter().flat_map(one).collect()
}

fn build(list: &[Plain]) -> AttributesBuf {
    let mut buf = AttributesBuf::new();
    for (kind, value) in list {
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("made of text");
        let ms = || u64::from_le_bytes(value.as_slice().try_into().expect("eight bytes"));
        let set = match kind {
            1 => buf.topic(&text(value)),
            2 => buf.reply_to(&text(value)),
            3 => buf.correlation_data(value),
            4 => buf.content_type(&text(value)),
            5 => {
                let key = usize::from(u16::from_le_bytes([value[0], value[1]])) + 2;
                buf.property(&text(&value[2..key]), &text(&value[key..]))
            }
            6 => buf.key(value),
            7 => buf.time_ms(ms()),
            8 => buf.expiry_ms(ms()),
            9 => buf.payload_is_utf8(true),
            10 => buf.retain(true),
            _ => buf.qos(value[0]),
        };
        set.expect("short");
    }
    buf
}

/// What is left of a list that was set in order: of each type the last, where it was set, and all properties.
fn last_of_each(list: &[Plain]) -> Vec<Plain> {
    let last = |(at, attribute): (usize, &Plain)| {
        let again = list[at + 1..].iter().any(|(kind, _)| *kind == attribute.0 && *kind != 5);
        (!again).then(|| attribute.clone())
    };
    list.iter().enumerate().filter_map(last).collect()
}

proptest! {
    #[test]
    fn any_bytes_are_accepted_or_refused(bytes in proptest::collection::vec(0..12_u8, 0..40)) {
        if let Ok(attributes) = Attributes::new(&bytes) {
            let buf = AttributesBuf::from(attributes);
            prop_assert_eq!(buf.as_bytes(), &*bytes);
        }
        let _ = fields(Attributes::checked_before(&bytes));
    }

    #[test]
    fn what_was_set_is_found(list in attributes(), cut in any::<prop::sample::Index>()) {
        let (buf, left) = (build(&list), last_of_each(&list));
        let bytes = encode(&left);
        prop_assert_eq!(buf.as_bytes(), &*bytes);
        prop_assert_eq!(Attributes::new(&bytes), Ok(buf.attributes()));
        let of = |kind| left.iter().find(|(other, _)| *other == kind).map(|(_, value)| value.as_slice());
        let attributes = buf.attributes();
        prop_assert_eq!(attributes.topic().map(str::as_bytes), of(1));
        prop_assert_eq!(attributes.reply_to().map(str::as_bytes), of(2));
        prop_assert_eq!(attributes.correlation_data(), of(3));
        prop_assert_eq!(attributes.content_type().map(str::as_bytes), of(4));
        let pairs = attributes.properties().map(|(key, value)| {
            [&(key.len() as u16).to_le_bytes()[..], key.as_bytes(), value.as_bytes()].concat()
        });
        let properties = left.iter().filter(|(kind, _)| *kind == 5).map(|(_, value)| value.clone());
        prop_assert!(pairs.eq(properties));
        prop_assert_eq!(attributes.key(), of(6));
        prop_assert_eq!(attributes.time_ms().map(|ms| ms.to_le_bytes().to_vec()), of(7).map(<[u8]>::to_vec));
        prop_assert_eq!(attributes.expiry_ms().map(|ms| ms.to_le_bytes().to_vec()), of(8).map(<[u8]>::to_vec));
        prop_assert_eq!(attributes.payload_is_utf8(), of(9).is_some());
        prop_assert_eq!(attributes.retain(), of(10).is_some());
        prop_assert_eq!(attributes.qos().map(|qos| vec![qos]), of(11).map(<[u8]>::to_vec));
        prop_assert_eq!(attributes.iter().count(), left.len());
        let cut = &bytes[..cut.index(bytes.len() + 1)];
        let whole = (0..=left.len()).any(|n| encode(&left[..n]) == cut);
        prop_assert_eq!(Attributes::new(cut).is_ok(), whole);
    }

    #[test]
    fn records_come_back_and_only_malformed_ones_are_missing(
        list in proptest::collection::vec(
            (attributes(), proptest::collection::vec(any::<u8>(), 0..20), 0..6_u8), 0..20,
        )
    ) {
        let (mut bytes, mut expected) = (Vec::new(), Vec::new());
        let made: Vec<_> = list.iter().map(|(list, payload, fault)| (build(list), payload, *fault)).collect();
        let mut faults = 0;
        for (attributes, payload, fault) in &made {
            let from = bytes.len();
            push_record_with(&mut bytes, attributes.attributes(), payload);
            if *fault == 0 && !attributes.is_empty() {
                bytes[from + 7] = 2;
                faults += 1;
            } else {
                expected.push((attributes.attributes(), payload.as_slice()));
            }
        }
        let run = [&run_header(4, bytes.len()).unwrap()[..], &bytes].concat();
        for all in [Unpack::records(&bytes), Unpack::merged(&run)] {
            prop_assert!(all.clone().eq(expected.iter().map(|(_, payload)| *payload)));
            let mut one = all.clone();
            let records = std::iter::from_fn(|| one.next_record());
            prop_assert!(records.map(|record| (record.attributes, record.payload)).eq(expected.iter().copied()));
            let (mut found, mut told) = (Vec::new(), 0);
            for piece in all.checked() {
                match piece {
                    Ok(piece) => found.push((piece.attributes, piece.record)),
                    Err(UnpackError::Record(error) | UnpackError::Publisher { error, .. }) => {
                        let fault = RecordFault::Attributes(AttributesError::Version { version: 2 });
                        prop_assert_eq!(error.fault, fault);
                        told += 1;
                    }
                    Err(error) => prop_assert!(false, "{}", error),
                }
            }
            prop_assert_eq!(&found, &expected);
            prop_assert_eq!(told, faults);
        }
    }
}
