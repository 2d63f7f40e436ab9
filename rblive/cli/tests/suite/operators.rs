//! The calls by which operators see encoders and end them.

use serde_json::Value;
use testkit::{LONG, awaited, until};

use crate::http;
use crate::process::{Serving, serve, write_own};
use crate::publish::{Publisher, RATE};

#[test]
fn encoders_are_listed_and_ended_by_who_has_the_token() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("node.toml");
    let token = "open sesame, please";
    write_own(
        &file,
        &format!(
            "[control]\nlisten = '127.0.0.1:0'\ntoken = '{token}'\n[deliver]\nlisten = '127.0.0.1:0'\n\
             [ingest]\nrtmp = '127.0.0.1:0'\nsegment_ms = 1000\n[[rules]]\nstreams = '*'\nnodes = ['local']\n"
        ),
    );
    let serving = Serving::start(serve(&file));
    let [rtmp, control] = ["encoders at rtmp://", "metrics at http://"].map(|before| serving.address(before));
    let shown = format!("Authorization: Bearer {token}\r\n");
    let ask = |method: &str, path: &str, fields: &str| {
        let answer = http::ask(&control, method, path, fields).expect("the node answers");
        (answer.status, serde_json::from_slice(&answer.body).unwrap_or(Value::Null))
    };
    assert_eq!(ask("GET", "/encoders", &shown).1["publishing"], serde_json::json!([]));
    let mut publisher = Publisher::connect(&rtmp, "stage/camera");
    (0..3 * RATE).for_each(|number| publisher.push(number));
    let own = awaited(LONG, "a segment is there", || {
        let own = ask("GET", "/encoders", &shown).1["publishing"][0].take();
        Some(own).filter(|own| own["bits_per_second"].as_u64().unwrap_or(0) > 0)
    });
    assert_eq!(
        (&own["stream"], &own["address"], &own["protocol"]),
        (&"stage/camera".into(), &"127.0.0.1".into(), &"rtmp".into())
    );
    assert_eq!(
        (&own["width"], &own["height"], &own["key_frames_ms"]),
        (&1280.into(), &720.into(), &1000.into())
    );
    assert_eq!(own["codecs"], serde_json::json!(["avc1.42c01f"]));
    let path = format!("/encoders/{}", own["number"]);
    for fields in ["", "Origin: http://evil.example\r\n", "Authorization: Bearer another\r\n"] {
        assert_eq!(ask("DELETE", &path, fields).0, 401, "{fields}");
    }
    assert_eq!(ask("PUT", &path, &shown).0, 405);
    assert_eq!(ask("DELETE", "/encoders/all", &shown).0, 400);
    assert_eq!(ask("DELETE", &path, &shown).0, 200);
    assert_eq!(ask("DELETE", &path, &shown).0, 404, "there is none any more");
    assert!(Publisher::ask(&rtmp, "stage/camera").is_none(), "it does not come back at once");
    // The reason is noted once the encoder has been told.
    until("the list says why", || {
        let reasons = ask("GET", "/streams", &shown).1["encoders"]["failures"].take();
        reasons.to_string().contains("an operator has ended this encoder")
    });
}
