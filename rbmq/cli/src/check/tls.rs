//! `rbmq check tls`: from the certificates of a configuration to findings.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use rbmq_broker::{BrokerConfig, GatewaySettings};
use rocketbufs::config::TlsSettings;
use tls13::{CertificateFacts, ClientCertificates, Credentials, RevocationFacts, Versions};

use super::finding::{Finding, Level};

/// Seconds before the end of a certificate at which it should be replaced.
const SOON: i64 = 30 * DAY;
/// The same for a list of revoked certificates.
const SOON_LIST: i64 = 7 * DAY;
const DAY: i64 = 24 * 3600;

/// The facts about this machine.
pub(super) struct Machine {
    /// The instructions that encryption uses.
    instructions: Vec<&'static str>,
    /// Whether the kernel could encrypt records.
    kernel_tls: bool,
    /// The time, in seconds since 1970.
    now: i64,
}

impl Machine {
    pub(super) fn read() -> Self {
        let cpu = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let has = |name: &&&str| cpu.split_whitespace().any(|word| word == **name);
        let known = ["aes", "vaes", "pclmulqdq", "avx512f", "pmull"];
        let protocols = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_available_ulp").unwrap_or_default();
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        Self {
            instructions: known.iter().filter(has).copied().collect(),
            kernel_tls: protocols.split_whitespace().any(|name| name == "tls"),
            now: since.map_or(0, |since| since.as_secs() as i64),
        }
    }
}

pub(super) fn findings(machine: &Machine, config: &BrokerConfig) -> Vec<Finding> {
    let tls = &config.framework.tls;
    let mut findings = vec![mode(tls), provider(machine), kernel(machine)];
    let files = [("tls certificate", "tls.cert", &tls.cert), ("tls authority", "tls.ca", &tls.ca)];
    for (check, setting, path) in files {
        if let Some(path) = path {
            findings.extend(certificates(check, setting, Path::new(path), machine.now));
        }
    }
    if let Some(path) = &tls.crl {
        findings.extend(revoked(Path::new(path), machine.now));
    }
    findings.extend(tls.key.as_ref().map(|key| permissions(Path::new(key))));
    findings.push(whole(tls));
    findings.extend(endpoint(config));
    findings.extend(gateways(config));
    findings
}

/// The gateways, each by itself.
pub(super) fn gateways(config: &BrokerConfig) -> impl Iterator<Item = Finding> {
    config.gateways().iter().map(|settings| gateway(settings, &config.framework.tls))
}

fn gateway(settings: &GatewaySettings, transport: &TlsSettings) -> Finding {
    let (check, name) = ("tls of a gateway", format!("{}:{}", settings.protocol, settings.address()));
    let bad = |found: String, fix: &str| {
        Finding::new(check, Level::Bad, format!("{name}: {found}"), "The broker does not start.", fix.into())
    };
    let Some(credentials) = settings.credentials(transport) else {
        return Finding::ok(check, format!("{name}: off (gateway.tls)"));
    };
    match credentials.server_of(Versions::Tls12And13) {
        Ok(Some(_)) => {
            Finding::ok(check, format!("{name}: TLS, and the certificate and its key fit together"))
        }
        Ok(None) => bad(
            "it is encrypted and has no certificate".into(),
            "gateway.cert and gateway.key, or tls.cert and tls.key (rbmq keygen makes both), or gateway.tls = \"off\"",
        ),
        Err(error) => bad(error.to_string(), "correct the setting that is named"),
    }
}

/// The HTTP endpoint, if there is one.
pub(super) fn endpoint(config: &BrokerConfig) -> Option<Finding> {
    let (listen, check) = (&config.http.listen, "tls of http");
    if listen.is_empty() {
        return None;
    }
    let warn = |found: &str, why, fix: &str| {
        Finding::new(check, Level::Warn, format!("{listen}: {found}"), why, fix.into())
    };
    Some(match rbmq_broker::http::check_certificates(config) {
        Ok(true) => {
            Finding::ok(check, format!("{listen}: HTTPS, and the certificate and its key fit together"))
        }
        Ok(false) if config.http.token_file.is_empty() => {
            Finding::ok(check, format!("{listen}: off (http.tls)"))
        }
        Ok(false) => warn(
            "off (http.tls)",
            "Who is on the way to the endpoint reads its token.",
            "http.tls = \"require\"; keep it off for a proxy on this machine alone",
        ),
        Err(error) => Finding::new(
            check,
            Level::Bad,
            error.to_string(),
            "The broker does not start.",
            "correct the setting that is named".into(),
        ),
    })
}

fn mode(tls: &TlsSettings) -> Finding {
    match (tls.mode.as_str(), tls.client_certificates.as_str()) {
        ("require", "require") => {
            Finding::ok("tls", "required, from both ends: a client without a certificate is refused")
        }
        ("require", clients) => Finding::ok("tls", format!("required; client certificates: {clients}")),
        _ => Finding::new(
            "tls",
            Level::Warn,
            "off (tls.mode)".into(),
            "TCP connections are not encrypted, and clients do not know whether a broker is theirs.",
            "rbmq keygen all DIR --name HOST, and the settings that it prints".into(),
        ),
    }
}

fn provider(machine: &Machine) -> Finding {
    let found = format!("aws-lc-rs, TLS 1.3; instructions: {}", machine.instructions.join(", "));
    if machine.instructions.iter().any(|name| ["aes", "pmull"].contains(name)) {
        return Finding::ok("tls provider", found);
    }
    Finding::new(
        "tls provider",
        Level::Warn,
        "aws-lc-rs, TLS 1.3; no instructions for AES".into(),
        "Encryption costs several times as much processor time.",
        "in a virtual machine: pass the host's processor on (-cpu host)".into(),
    )
}

/// Records are encrypted in the process, whatever the kernel has.
fn kernel(machine: &Machine) -> Finding {
    let has = if machine.kernel_tls { "there, and not used" } else { "not there, and not needed" };
    Finding::ok(
        "tls in the kernel",
        format!("{has}: records are encrypted in the process, straight from the rings"),
    )
}

fn certificates(check: &'static str, setting: &'static str, path: &Path, now: i64) -> Vec<Finding> {
    let shown = path.display();
    let chain = match tls13::load_chain(setting, path) {
        Ok(chain) => chain,
        Err(error) => {
            let fix = "name a file that this user may read (run this command as the broker's user)";
            let why = "The broker does not start.";
            return vec![Finding::new(check, Level::Bad, error.to_string(), why, fix.into())];
        }
    };
    let facts = chain.iter().map(|der| CertificateFacts::of(der));
    let one = |facts: Result<CertificateFacts, String>| match facts {
        Ok(facts) => dates(check, &shown.to_string(), &facts, now),
        Err(error) => {
            let found = format!("{shown}: {error}");
            Finding::new(check, Level::Bad, found, "The broker does not start.", "make it anew".into())
        }
    };
    facts.map(one).collect()
}

/// The lists of revoked certificates.
fn revoked(path: &Path, now: i64) -> Vec<Finding> {
    let (check, setting) = ("tls revoked", "tls.crl");
    let bad = |found: String| {
        let fix = "rbmq keygen revoke, and SIGHUP";
        Finding::new(check, Level::Bad, found, "The broker does not start, or refuses its peers.", fix.into())
    };
    let lists = match tls13::load_revoked(setting, path) {
        Ok(lists) => lists,
        Err(error) => return vec![bad(error.to_string())],
    };
    let one = |facts: Result<RevocationFacts, String>| {
        let facts = match facts {
            Ok(facts) => facts,
            Err(error) => return bad(format!("{}: {error}", path.display())),
        };
        let RevocationFacts { issuer, serials, valid_until_text: until, .. } = &facts;
        let found = format!("{}: {} of {issuer}, until {until}", path.display(), serials.len());
        match (facts.fault_at(now), facts.valid_until.unwrap_or(now) - now) {
            (Some(fault), _) => bad(format!("{found}: it {fault}")),
            (None, left) if left < SOON_LIST => {
                let why = "After that day no certificate is accepted.";
                let fix = "rbmq keygen revoke makes the list anew; then SIGHUP";
                Finding::new(
                    check,
                    Level::Warn,
                    format!("{found}: {} days are left", left / DAY),
                    why,
                    fix.into(),
                )
            }
            _ => Finding::ok(check, found),
        }
    };
    lists.iter().map(|der| one(RevocationFacts::of(der))).collect()
}

fn dates(check: &'static str, path: &str, facts: &CertificateFacts, now: i64) -> Finding {
    let names =
        if facts.names.is_empty() { String::new() } else { format!(" for {}", facts.names.join(", ")) };
    let found = format!("{path}: {}{names}, until {}", facts.subject, facts.valid_until_text);
    let replace = "rbmq keygen, or its authority; then SIGHUP".to_owned();
    if let Some(fault) = facts.fault_at(now) {
        let found = format!("{found}: it {fault}");
        return Finding::new(check, Level::Bad, found, "Peers refuse it.", replace);
    }
    let left = facts.valid_until - now;
    if left < SOON {
        let found = format!("{found}: {} days are left", left / DAY);
        return Finding::new(check, Level::Warn, found, "Peers refuse it after that day.", replace);
    }
    Finding::ok(check, found)
}

fn permissions(path: &Path) -> Finding {
    let shown = path.display();
    let mode = path.metadata().map(|metadata| metadata.permissions().mode() & 0o777);
    match mode {
        Err(error) => Finding::new(
            "tls key",
            Level::Bad,
            format!("{shown}: {error}"),
            "The broker does not start.",
            "name the key that was made with the certificate".into(),
        ),
        // A group may read it, as that of a broker whose files belong to root.
        Ok(mode) if mode & 0o027 != 0 => Finding::new(
            "tls key",
            Level::Warn,
            format!("{shown} has mode {mode:04o}"),
            "Other users of this machine can read it, and pass for this broker.",
            format!("chmod 600 {shown}; for a broker with a group of its own: chgrp and chmod 640"),
        ),
        Ok(mode) => Finding::ok("tls key", format!("{shown}, mode {mode:04o}")),
    }
}

/// Whether a broker would start with these files.
pub(super) fn whole(tls: &TlsSettings) -> Finding {
    let path = |path: &Option<String>| path.as_ref().map(PathBuf::from);
    let credentials = Credentials {
        cert: path(&tls.cert),
        key: path(&tls.key),
        ca: path(&tls.ca),
        crl: path(&tls.crl),
        client_certificates: match tls.client_certificates.as_str() {
            "require" => ClientCertificates::Require,
            "optional" => ClientCertificates::Optional,
            _ => ClientCertificates::None,
        },
        ..Credentials::default()
    };
    let check = "tls configuration";
    match credentials.server() {
        Ok(Some(_)) => Finding::ok(check, "the certificate, its key and the authority fit together"),
        Ok(None) if tls.mode != "require" => {
            Finding::ok(check, "no certificate is configured, and none is needed")
        }
        Ok(None) => Finding::new(
            check,
            Level::Bad,
            "tls.mode = \"require\", and tls.cert is unset".into(),
            "The broker does not start.",
            "rbmq keygen server DIR --name HOST, and the settings that it prints".into(),
        ),
        Err(error) => Finding::new(
            check,
            Level::Bad,
            error.to_string(),
            "The broker does not start.",
            "correct the setting that is named".into(),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(valid_until: i64) -> CertificateFacts {
        CertificateFacts {
            subject: "CN=a".into(),
            serial: vec![1],
            issuer: "CN=b".into(),
            names: vec!["a.example".into()],
            valid_until,
            valid_from: 0,
            valid_until_text: "the end".into(),
            is_authority: false,
        }
    }

    #[test]
    fn a_certificate_is_judged_by_the_days_that_are_left() {
        let level = |valid_until| dates("tls certificate", "a.pem", &facts(valid_until), 1_000 * DAY).level;
        assert_eq!(level(1_031 * DAY), Level::Ok);
        assert_eq!(level(1_029 * DAY), Level::Warn);
        assert_eq!(level(999 * DAY), Level::Bad);
        let found = dates("tls certificate", "a.pem", &facts(1_003 * DAY), 1_000 * DAY).found;
        assert_eq!(found, "a.pem: CN=a for a.example, until the end: 3 days are left");
    }

    #[test]
    fn a_broker_that_does_not_encrypt_is_a_warning_and_one_without_a_certificate_does_not_start() {
        let machine = Machine { instructions: vec!["aes"], kernel_tls: false, now: 0 };
        let mut config = BrokerConfig::default();
        let levels = |config: &BrokerConfig| findings(&machine, config).iter().map(|found| found.level).max();
        assert_eq!(levels(&config), Some(Level::Warn));
        config.framework.tls.mode = "require".into();
        assert_eq!(levels(&config), Some(Level::Bad));
    }
}
