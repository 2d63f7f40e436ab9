//! The corpus as a page of the documentation.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::PathBuf;

use super::exchange::Exchange;

/// A line of a table.
pub struct Row<'a> {
    pub family: &'a str,
    pub name: &'a str,
    /// What is required.
    pub outcome: String,
}

impl<'a> From<&'a Exchange> for Row<'a> {
    fn from(exchange: &'a Exchange) -> Self {
        Self { family: exchange.family, name: &exchange.name, outcome: exchange.outcome.to_string() }
    }
}

pub const ATTACKS: &str = "\
# Attacks

`cargo test -p rbmq-cli --test suite attacks::` sends each of these exchanges to a running broker, on a connection of its own. A
publisher and a subscriber exchange a message after each of them, and nothing of theirs is lost. Each reason that the broker
gives is a readable line. The broker's memory stays within 64 MiB of its memory before the attacks. The files of
`rbmq/cli/tests/suite/attacks` have the exact bytes.

Families with one exchange for each byte (messages that are cut) are one line here.
";

pub const LOGINS: &str = "\
# Wrong logins

`cargo test -p rbmq-cli --test suite attacks::` presents each of these logins to a broker that has users. The answer to each login of the
right form is the same text, whatever was wrong; after some of them the text is that there were too many. A publisher and a
subscriber with a token exchange a message after each of them.
The file `rbmq/cli/tests/suite/attacks/credentials.rs` has the exact bytes.
";

pub const TLS: &str = "\
# Attacks on TLS, and inside TLS

`cargo test -p rbmq-cli --test suite attacks::` runs each of these attacks against a broker with `tls.mode = \"require\"`, those with certificates
of clients against one that requires them. A publisher and a subscriber with TLS exchange a message after each of them, and nothing of
theirs is lost. The broker's memory stays within 64 MiB of its memory before the attacks. An alert is the last that the broker sends, and
the peer can read it. The files `rbmq/cli/tests/suite/attacks/tls*.rs` have the exact bytes.

\"Inside TLS\" is every fifth exchange of each family of [ATTACKS](ATTACKS.md), after a good handshake.
";

pub const GATEWAYS: &str = "\
# Attacks on gateways

`cargo test -p rbmq-cli --test suite attacks::gateways` sends each of these exchanges to the gateways of a running broker, on a connection of its
own. Clients of Redis and MQTT exchange a message after each of them, and nothing of theirs is lost. The broker's memory stays within 256 MiB of its
memory before. The files of `rbmq/cli/tests/suite/attacks/gateways` have the exact bytes.

What is required are the answers to the client in its protocol, and whether its connection goes on. A number of answers stands for all of
them. Families with one exchange for each byte (what is cut) are one line here.
";

/// Compares the page with the corpus, or writes it if the environment has ATTACKS_WRITE.
pub fn check<'a>(name: &str, head: &str, corpus: impl IntoIterator<Item = impl Into<Row<'a>>>) {
    let corpus: Vec<Row<'_>> = corpus.into_iter().map(Into::into).collect();
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/security").join(name);
    let page = page(head, &corpus);
    if std::env::var_os("ATTACKS_WRITE").is_some() {
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        std::fs::write(&path, &page).expect("a page");
    }
    let known = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(known == page, "docs/security/{name} is not the corpus; ATTACKS_WRITE=1 writes it anew");
}

fn page(head: &str, corpus: &[Row<'_>]) -> String {
    let mut text = head.to_owned();
    let mut families: Vec<&str> = corpus.iter().map(|exchange| exchange.family).collect();
    families.dedup();
    write!(text, "\n| Family | Exchanges |\n|---|---:|\n").expect("a string");
    for family in &families {
        let count = corpus.iter().filter(|exchange| exchange.family == *family).count();
        writeln!(text, "| {family} | {count} |").expect("a string");
    }
    writeln!(text, "| all | {} |", corpus.len()).expect("a string");
    for family in families {
        write!(text, "\n## {family}\n\n| Exchange | Number | Required |\n|---|---:|---|\n")
            .expect("a string");
        let mut rows: Vec<(String, &str)> = Vec::new();
        let mut counts: BTreeMap<(String, &str), usize> = BTreeMap::new();
        for exchange in corpus.iter().filter(|exchange| exchange.family == family) {
            let row = (line(exchange.name), &*exchange.outcome);
            let count = counts.entry(row.clone()).or_default();
            *count += 1;
            if *count == 1 {
                rows.push(row);
            }
        }
        for row in rows {
            let [name, required] = [&row.0, row.1].map(plain);
            writeln!(text, "| {name} | {} | {required} |", counts[&row]).expect("a string");
        }
    }
    text
}

/// A text whose characters mean nothing else in a table of Markdown.
fn plain(text: &str) -> String {
    let mut plain = String::new();
    for letter in text.chars() {
        if "\\|*`<".contains(letter) {
            plain.push('\\');
        }
        plain.push(letter);
    }
    plain
}

/// The name of an exchange without the numbers that make it one of many.
fn line(name: &str) -> String {
    match name.split_once(" cut after ") {
        Some((what, _)) => format!("{what}, cut at each of its bytes"),
        None => match name.split_once("a message of type 0x") {
            Some((_, rest)) => format!("a message of a type that does not exist{}", &rest[2..]),
            None => name.to_owned(),
        },
    }
}
