//! Reloads in the console: the difference is shown, and a reload makes that difference and no other one.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use testkit::until;

use super::messages::{Served, bearer, configured, lines};
use super::{Answer, Site, ask};

/// A broker whose configuration anna administers and bert does not, its file, its audit log, and their tokens.
fn reloadable(folder: &Path) -> (Served, String, PathBuf, [String; 2]) {
    let (config, audit, tokens) = configured(folder, "");
    let config =
        config.replace("publish = ['open/#']", "administer = true\nobserve = true\npublish = ['open/#']");
    (Served::with(folder, &config), config, audit, tokens)
}

/// The number of changes of both kinds.
fn kinds(value: &Value) -> [usize; 2] {
    ["applied", "needs_restart"].map(|kind| value[kind].as_array().unwrap().len())
}

fn mark(shown: &Value) -> &str {
    shown["mark"].as_str().unwrap_or_else(|| panic!("{shown}"))
}

impl Served {
    fn reload(&self, mark: &str, more: &str) -> Answer {
        ask(&self.http, "POST", &format!("/api/v1/reload?mark={mark}"), more, "")
    }
}

#[test]
fn the_difference_of_a_reload_is_shown_and_none_is_made() {
    let folder = tempfile::tempdir().unwrap();
    let (served, config, _, [anna, bert]) = reloadable(folder.path());
    let look = || served.get("/reload", &bearer(&anna)).json();
    let same = look();
    assert_eq!((kinds(&same), &same["problem"]), ([0, 0], &Value::Null), "{same}");
    let path = folder.path().join("rbmq.toml");
    let other = config.replace("console = 'write'", "console = 'write'\nmax_streams = 7");
    std::fs::write(&path, format!("{other}[broker]\nmax_topics = 5\n")).unwrap();
    let differs = look();
    let [applied, later] = [&differs["applied"][0], &differs["needs_restart"][0]];
    let values = |row: &Value| ["name", "old", "new"].map(|name| row[name].as_str().unwrap().to_owned());
    assert_eq!(
        (kinds(&differs), values(applied)),
        ([1, 1], ["broker.max_topics", "10000", "5"].map(Into::into))
    );
    assert_eq!(values(later), ["http.max_streams", "32", "7"]);
    assert!(applied["origin"].as_str().unwrap().contains("rbmq.toml, line "), "{applied}");
    assert!(mark(&differs) != mark(&same), "each difference has its mark");
    // What is wrong is said as a reload would say it, with its place and without the secrets of addresses.
    for (wrong, told) in [
        ("[broker]\nmax_topics = 'many'\n", "max_topics"),
        ("[broker]\nlisten = 'a://u:geheim@h'\nmax_topic = 1\n", "rbmq.toml, line "),
        ("[s3]\nendpoint = 'ftp://u:geheim@h:1'\n", "://***@h:1"),
        ("[s3]\nendpoint = 'http://u:ab/geheim@h'\n", "***@h"),
        ("[s3]\nendpoint = 'u:?geheim@h'\n", "***@h"),
    ] {
        std::fs::write(&path, format!("{config}{wrong}")).unwrap();
        let shown = look();
        let problem = shown["problem"].as_str().unwrap_or_else(|| panic!("{shown}"));
        assert!(kinds(&shown) == [0, 0] && problem.contains(told), "{shown}");
        assert!(shown["mark"].is_null() && !shown.to_string().contains("geheim"), "{shown}");
    }
    std::fs::write(&path, &config).unwrap();
    std::fs::write(folder.path().join("users.toml"), "[[user]]\nname = 7\n").unwrap();
    let users = look();
    assert!(users["problem"].as_str().unwrap().contains("users.toml"), "{users}");
    std::fs::write(&path, "#".repeat((16 << 20) + 1)).unwrap();
    assert!(look()["problem"].as_str().unwrap().contains("rbmq.toml"));
    std::fs::remove_file(&path).unwrap();
    assert!(look()["problem"].as_str().unwrap().contains("rbmq.toml"));
    let in_force = served.get("/settings?search=broker.max_topics", &bearer(&anna)).json();
    assert_eq!(in_force["rows"][0]["value"], "10000", "{in_force}");
    let refused = served.get("/reload", &bearer(&bert));
    assert!(refused.status == 403 && !refused.body.contains("max_topics"), "{refused:?}");
    served.broker.end();
    // A program that does not read its configuration again.
    let silent = Site::start(|_| {}).get("/api/v1/reload");
    assert!(silent.status == 404 && silent.why().contains("does not read its configuration"), "{silent:?}");
}

#[test]
fn a_reload_makes_the_difference_that_was_shown_and_no_other_one() {
    let folder = tempfile::tempdir().unwrap();
    let (served, config, audit, [anna, bert]) = reloadable(folder.path());
    let path = folder.path().join("rbmq.toml");
    let write = |topics: u32| {
        std::fs::write(&path, format!("{config}[broker]\nmax_topics = {topics}\n")).unwrap();
    };
    let in_force = || {
        served.get("/settings?search=broker.max_topics", &bearer(&anna)).json()["rows"][0]["value"].clone()
    };
    let look = || served.get("/reload", &bearer(&anna)).json();
    let recorded =
        || lines(&audit, &["\"event\":\"console\"", "\"operation\":\"reload\"", "\"user\":\"anna\""]);
    write(5);
    let seen = look();
    // The file changes between the look and the reload.
    write(6);
    let other = served.reload(mark(&seen), &bearer(&anna));
    assert!(other.status == 409 && other.why().contains("compare again"), "{other:?}");
    for (refused, status) in [
        (served.reload("", &bearer(&anna)), 400),
        (served.reload(mark(&look()), &bearer(&bert)), 403),
        (served.reload(mark(&look()), ""), 401),
    ] {
        assert_eq!(refused.status, status, "{refused:?}");
    }
    assert_eq!((in_force(), recorded()), (json!("10000"), 0));
    let reloaded = served.reload(mark(&look()), &bearer(&anna));
    assert_eq!((reloaded.status, kinds(&reloaded.json())), (200, [1, 0]), "{reloaded:?}");
    assert_eq!(reloaded.json()["applied"][0]["new"], "6");
    assert_eq!((in_force(), recorded(), kinds(&look())), (json!("6"), 1, [0, 0]));
    // Of two at once, each is made as a whole, or refused.
    write(7);
    let seen = look();
    let statuses = std::thread::scope(|scope| {
        let all = [0; 6].map(|_| scope.spawn(|| served.reload(mark(&seen), &bearer(&anna)).status));
        all.map(|one| one.join().unwrap())
    });
    assert!(statuses.contains(&200) && statuses.iter().all(|status| [200, 409, 503].contains(status)));
    assert_eq!((in_force(), recorded()), (json!("7"), 2), "{statuses:?}");
    // A file that is wrong when the reload reads it changes nothing.
    let seen = look();
    std::fs::write(&path, "[broker]\nmax_topics = 'many'\n").unwrap();
    let wrong = served.reload(mark(&seen), &bearer(&anna));
    assert!(wrong.status == 409 && wrong.why().contains("max_topics"), "{wrong:?}");
    assert_eq!(recorded(), 2, "the file was wrong before the reload began");
    // A signal reloads as ever.
    write(8);
    served.broker.signal("HUP");
    until("the signal has reloaded", || in_force() == json!("8"));
    served.broker.end();
}

/// A browser needs the field against forged requests, and a console that reads reloads nothing.
#[test]
fn forged_reloads_and_those_of_a_console_that_reads_are_refused() {
    let served = Served::start(&[]);
    let seen = served.get("/reload", "").json();
    assert_eq!(served.reload(mark(&seen), "").status, 403, "no field");
    let csrf = served.get("/session", "").json()["csrf"].as_str().unwrap().to_owned();
    let own = format!("X-RBMQ-CSRF: {csrf}\r\n");
    let reads = served.reload(mark(&seen), &own);
    assert!(reads.status == 403 && reads.why().contains("http.console"), "{reads:?}");
    served.broker.end();
}

/// A look takes nothing from a pipe: what is in it is for the reload.
#[test]
fn a_look_leaves_a_pipe_alone() {
    let folder = tempfile::tempdir().unwrap();
    let (served, config, _, [anna, _]) = reloadable(folder.path());
    let pipe = folder.path().join("key");
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
    // Somebody has it open, and has written nothing yet: whoever reads waits.
    let _writer = std::fs::File::options().read(true).write(true).open(&pipe).unwrap();
    let jwt = format!(
        "[users]\njwt_key = '{}'\njwt_issuer = 'id'\njwt_audience = 'rbmq'\njwt_roles = 'roles'",
        pipe.display()
    );
    std::fs::write(folder.path().join("rbmq.toml"), config.replace("[users]", &jwt)).unwrap();
    let shown = served.get("/reload", &bearer(&anna));
    assert!(shown.status == 200 && shown.json()["problem"].is_null(), "{shown:?}");
    served.broker.end();
}
