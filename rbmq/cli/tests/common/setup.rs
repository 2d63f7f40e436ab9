//! Certificates as a user makes them, and the configuration of a broker with them.

use std::path::PathBuf;

use testkit::Process;

use super::{piped, rbmq};

/// A folder with what `rbmq keygen all` makes, and a broker's configuration of it.
pub struct Setup {
    dir: tempfile::TempDir,
}

impl Setup {
    pub fn new() -> Self {
        let dir = tempfile::tempdir().expect("a folder");
        let setup = Self { dir };
        let said = run(&["keygen", "all", &setup.text("tls"), "--name", "broker.example"], b"");
        let said = said.expect("keygen works");
        assert!(said.contains("[tls]\nmode = \"require\"") && said.contains("--ca"), "{said}");
        setup
    }

    pub fn file(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub fn text(&self, name: &str) -> String {
        self.file(name).to_str().expect("UTF-8").to_owned()
    }

    /// A broker's configuration.
    pub fn config(&self, more: &str) -> PathBuf {
        let path = self.file("rbmq.toml");
        let tls = self.text("tls");
        let text = format!(
            "[tls]\nmode = 'require'\ncert = '{tls}/server.pem'\nkey = '{tls}/server-key.pem'\nca = '{tls}/ca.pem'\n{more}"
        );
        std::fs::write(&path, text).expect("a file");
        path
    }

    /// The options of a client; with its own certificate.
    pub fn options(&self, certificate: bool) -> Vec<String> {
        let tls = self.text("tls");
        let mut options = vec!["--ca".to_owned(), format!("{tls}/ca.pem")];
        if certificate {
            options.extend(["--cert".into(), format!("{tls}/client.pem")]);
            options.extend(["--key".into(), format!("{tls}/client-key.pem")]);
        }
        options
    }
}

/// Runs a command to its end. Returns its output, or its errors if it failed.
pub fn run(args: &[&str], input: &[u8]) -> Result<String, String> {
    let mut process = Process::start(piped(rbmq(args.iter().copied())));
    process.feed(input);
    let outcome = process.finish();
    if outcome.status.success() { Ok(outcome.text()) } else { Err(outcome.stderr) }
}
