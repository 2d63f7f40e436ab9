//! A section of every kind of setting: what is read, refused, reloaded and printed.

use std::path::PathBuf;

use toml::Value;

use super::{Section, Setting, example, section};

section! {
    /// A cache.
    "cache" Cache {
        /// The most bytes.
        #[reloadable]
        max_bytes: u64 = 1 << 20, "bytes", range [4096 to 1_073_741_824], cost "its own";
        /// How long entries stay.
        #[reloadable]
        max_age_ms: u32 = 500, "ms", range [0 or 10 to 60_000];
        /// The most entries.
        max_entries: usize = 7, "entries", range [at least 1];
        /// Entries in a second. Unset: no limit.
        max_rate: Option<u64> = None, "", range [at least 0];
        /// Where the entries stay.
        folder: PathBuf = PathBuf::new();
        /// What happens at the limit.
        at_limit: String = "refuse".into(), "", range [one of "refuse" | "replace"];
        /// Names that are never removed.
        #[reloadable]
        pinned: Vec<String> = Vec::new();
    }
}

#[test]
fn a_text_gives_the_fields_and_defaults_the_rest() {
    let read: Cache = toml::from_str(
        "max_bytes = '64 KiB'\nmax_age_ms = '2 s'\nfolder = '/a'\npinned = ['b']\nmax_rate = 5",
    )
    .unwrap();
    let expected = Cache {
        max_bytes: 65_536,
        max_age_ms: 2_000,
        folder: "/a".into(),
        pinned: vec!["b".to_owned()],
        max_rate: Some(5),
        ..Cache::default()
    };
    assert_eq!(read, expected);
    assert_eq!(toml::from_str::<Cache>(&toml::to_string(&read).unwrap()).unwrap(), read);
}

#[test]
fn an_error_names_the_setting_its_range_and_its_place() {
    let error = |text: &str| toml::from_str::<Cache>(text).unwrap_err();
    for (text, expected) in [
        ("max_bytes = true", "cache.max_bytes = true: it must be 4096 to 1073741824 bytes"),
        (
            "max_bytes = '5 mb'",
            "cache.max_bytes = \"5 mb\": it must be 4096 to 1073741824 bytes; its units are KiB, MiB, GiB (of 1024) or kB, \
             MB, GB (of 1000)",
        ),
        (
            "max_age_ms = '1.5us'",
            "cache.max_age_ms = \"1.5us\": it must be 0 or 10 to 60000 ms; its units are us, ms, s, m or min, h, d",
        ),
        ("max_entries = -1", "cache.max_entries = -1: it must be at least 1 entries"),
        ("max_rate = 'x'", "cache.max_rate = \"x\": it must be at least 0"),
        ("at_limit = 1", "cache.at_limit = 1: it must be one of: refuse, replace"),
        ("max_entrys = 1", "there is no setting 'cache.max_entrys'; did you mean 'cache.max_entries'?"),
        ("x = 1", "there is no setting 'cache.x'"),
        ("pinned = [1]", "invalid type: integer `1`, expected a string"),
    ] {
        let error = error(&format!("\n{text}"));
        assert_eq!(error.message(), expected);
        assert!(error.span().is_some_and(|span| span.start >= 1), "{text}");
    }
}

#[test]
fn ranges_are_of_each_field() {
    let wrong = |change: fn(&mut Cache)| {
        let (mut cache, mut names) = (Cache::default(), Vec::new());
        change(&mut cache);
        cache.visit(&mut |spec, setting| {
            if !setting.fits(&spec.range) {
                names.push(spec.field);
            }
        });
        names
    };
    assert!(wrong(|_| {}).is_empty());
    assert_eq!(wrong(|cache| cache.max_bytes = 4095), ["max_bytes"]);
    assert_eq!(wrong(|cache| (cache.max_age_ms, cache.max_entries) = (9, 0)), ["max_age_ms", "max_entries"]);
    assert!(wrong(|cache| cache.max_age_ms = 0).is_empty());
    assert_eq!(wrong(|cache| cache.at_limit.clear()), ["at_limit"]);
}

#[test]
fn a_reload_applies_only_what_is_reloadable() {
    let mut running = Cache::default();
    let new = Cache { max_bytes: 8192, max_entries: 9, pinned: vec!["a".to_owned()], ..Cache::default() };
    let mut changes = Vec::new();
    running.reload(&new, &mut changes);
    let names: Vec<_> = changes.iter().map(|change| (change.spec.name, change.spec.reloadable)).collect();
    assert_eq!(names, [("cache.max_bytes", true), ("cache.max_entries", false), ("cache.pinned", true)]);
    let value = |value: &Option<Value>| value.as_ref().unwrap().to_string();
    assert_eq!((value(&changes[0].old), value(&changes[0].new)), ("1048576".into(), "8192".into()));
    assert_eq!(running, Cache { max_entries: 7, ..new });
}

#[test]
fn the_example_has_each_setting() {
    let text = example(&Cache::default());
    assert!(text.starts_with(
        "# A cache.\n[cache]\n\n# The most bytes.\n# Values: 4096 to 1073741824 bytes. Cost: its own.\n"
    ));
    assert!(text.contains("\n# The most entries.\n#max_entries = 7\n\n"), "{text}");
    assert!(text.contains("#max_rate = (unset)\n"));
}

#[test]
fn a_number_outside_of_the_range_of_toml_is_a_text() {
    assert_eq!(Setting::value(&u64::MAX), Some(Value::String(u64::MAX.to_string())));
    assert_eq!(Setting::value(&(i64::MAX as u64)), Some(Value::Integer(i64::MAX)));
}

#[test]
fn a_name_is_compared_up_to_a_length() {
    let near = |name: &str, known: &str| super::nearest(name, [known].into_iter());
    let (long, longer) = ("x".repeat(256), "x".repeat(257));
    assert_eq!(near(&long, &longer), Some(longer.clone()));
    assert_eq!(near(&longer, &longer), None);
}
