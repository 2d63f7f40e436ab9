//! `rbmq keygen`: certificates for TLS, in a folder with their authority.
//!
//! ```text
//!   DIR/ca.pem  DIR/ca-key.pem          the authority: every process trusts ca.pem, and only keygen reads the key
//!   DIR/server.pem  DIR/server-key.pem  a broker, for the names by which clients connect to it
//!   DIR/NAME.pem  DIR/NAME-key.pem      a client, whose name the broker reads in the certificate
//!   DIR/crl.pem                         the revoked certificates of the authority
//! ```

use std::fs::{DirBuilder, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use commands::Failure;
use private_files::GivenFile;
use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, DnType, ExtendedKeyUsagePurpose,
    IsCa, Issuer, KeyIdMethod, KeyPair, KeyUsagePurpose, RevokedCertParams, SerialNumber,
};
use tls13::{CertificateFacts, RevocationFacts};

use super::secrets;

const CA: &str = "ca";
const SERVER: &str = "server";

/// How long before now a certificate becomes valid, for machines whose clocks differ.
const EARLIER: Duration = Duration::from_secs(3600);
const DAY: Duration = Duration::from_secs(24 * 3600);
/// The longest name of a client, and the most names of a server.
const MAX_NAME: usize = 64;
const MAX_NAMES: usize = 100;
/// The largest file of an authority in bytes.
const MAX_PEM_BYTES: u64 = 1 << 20;

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  rbmq keygen all /etc/rbmq/tls --name broker.example --name 192.0.2.7
  rbmq keygen client /etc/rbmq/tls alice
  rbmq keygen server /etc/rbmq/tls --name broker2.example --file broker2
  rbmq keygen revoke /etc/rbmq/tls alice

A key can be read by its owner alone (mode 0600). Files that exist are never overwritten.")]
pub(super) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, clap::Subcommand)]
enum What {
    /// Make an authority, a server and a client: all that TLS needs
    #[command(after_help = "Examples:
  rbmq keygen all /etc/rbmq/tls --name broker.example --name 192.0.2.7")]
    All {
        #[command(flatten)]
        server: ServerArgs,
    },
    /// Make an authority: ca.pem, and ca-key.pem, which stays secret
    #[command(after_help = "Examples:
  rbmq keygen ca /etc/rbmq/tls --days 730")]
    Ca {
        /// The folder; it is created if necessary
        dir: PathBuf,
        /// Days for which it is valid
        #[arg(long, default_value_t = 3650, value_parser = clap::value_parser!(u32).range(1..=36500))]
        days: u32,
    },
    /// Make a certificate for a broker, signed by the authority in the folder
    #[command(after_help = "Examples:
  rbmq keygen server /etc/rbmq/tls --name broker.example --name 192.0.2.7
  rbmq keygen server /etc/rbmq/tls --name broker2.example --file broker2")]
    Server {
        #[command(flatten)]
        server: ServerArgs,
        /// Name of the files, without .pem
        #[arg(long, default_value = SERVER, value_parser = file_name)]
        file: String,
    },
    /// Make a certificate for a client, signed by the authority in the folder
    #[command(after_help = "Examples:
  rbmq keygen client /etc/rbmq/tls alice    # a user with certificates = [\"CN=alice\"] in the file of users")]
    Client {
        /// The folder with the authority
        dir: PathBuf,
        /// Name of the client, which the broker reads in the certificate (its CN), and of the files
        #[arg(value_parser = file_name)]
        name: String,
        /// Days for which it is valid
        #[arg(long, default_value_t = 365, value_parser = clap::value_parser!(u32).range(1..=36500))]
        days: u32,
    },
    /// Revoke certificates of the authority in the folder, or make the list of revoked ones (crl.pem) anew
    #[command(after_help = "Examples:
  rbmq keygen revoke /etc/rbmq/tls alice device-7     # tls.crl of the brokers; then SIGHUP
  rbmq keygen revoke /etc/rbmq/tls                    # nobody else: the list is in force for --days more")]
    Revoke {
        /// The folder with the authority
        dir: PathBuf,
        /// Names of the certificates' files, without .pem
        #[arg(value_name = "NAME", value_parser = file_name)]
        names: Vec<String>,
        /// Days for which the list is in force: after them, brokers accept no certificate without another list
        #[arg(long, default_value_t = 365, value_parser = clap::value_parser!(u32).range(1..=36500))]
        days: u32,
    },
}

#[derive(Debug, clap::Args)]
struct ServerArgs {
    /// The folder with the authority
    dir: PathBuf,
    /// Name or address by which clients connect; several times for several. localhost is always included
    #[arg(long, value_name = "HOST")]
    name: Vec<String>,
    /// Days for which the certificate is valid
    #[arg(long, default_value_t = 365, value_parser = clap::value_parser!(u32).range(1..=36500))]
    days: u32,
}

/// Accepts the name of a file in the folder.
fn file_name(text: &str) -> Result<String, String> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "._-@".contains(c);
    if text.is_empty() || text.len() > MAX_NAME || text.starts_with('.') || !text.chars().all(plain) {
        return Err(format!(
            "it must have 1 to {MAX_NAME} letters, digits, '.', '_', '-' and '@', and begin without '.'"
        ));
    }
    Ok(text.to_owned())
}

pub(super) fn run(args: &Args) -> Result<(), Failure> {
    // Certificates carry the time.
    commands::clock::now()?;
    secrets::protect();
    let text = match &args.what {
        What::Ca { dir, days } => {
            ca(dir, *days)?;
            format!(
                "The authority is in {0}: copy ca.pem to every machine, and keep ca-key.pem secret.\n",
                dir.display()
            )
        }
        What::Server { server, file } => {
            make_server(server, file)?;
            settings_of_server(&server.dir, file)
        }
        What::Client { dir, name, days } => {
            client(dir, name, *days)?;
            settings_of_client(dir, name, "BROKER")
        }
        What::Revoke { dir, names, days } => {
            let count = revoke(dir, names, *days)?;
            format!(
                "{0}/crl.pem has {count} revoked certificates. In the brokers' configuration, and then SIGHUP:\n\n[tls]\ncrl = \
                 \"{0}/crl.pem\"\n",
                absolute(dir)
            )
        }
        What::All { server } => {
            if server.name.is_empty() {
                return Err(usage("--name is missing: the name or address by which clients connect"));
            }
            ca(&server.dir, 3650)?;
            make_server(server, SERVER)?;
            client(&server.dir, "client", server.days)?;
            settings_of_server(&server.dir, SERVER)
                + &settings_of_client(&server.dir, "client", &server.name[0])
        }
    };
    commands::print(text)
}

fn settings_of_server(dir: &Path, file: &str) -> String {
    let dir = absolute(dir);
    format!(
        "In the broker's configuration (its user must be able to read the key):\n\n\
         [tls]\nmode = \"require\"\ncert = \"{dir}/{file}.pem\"\nkey = \"{dir}/{file}-key.pem\"\nca = \"{dir}/ca.pem\"\n\
         client_certificates = \"none\"    # \"require\": only clients with a certificate of this authority\n\n"
    )
}

fn settings_of_client(dir: &Path, name: &str, host: &str) -> String {
    let dir = absolute(dir);
    format!(
        "A client, with its certificate:\n\n\
         rbmq sub TOPIC --broker {host}:7411 --ca {dir}/ca.pem --cert {dir}/{name}.pem --key {dir}/{name}-key.pem\n"
    )
}

fn absolute(dir: &Path) -> String {
    std::path::absolute(dir).unwrap_or_else(|_| dir.to_owned()).display().to_string()
}

/// The parameters that all certificates have in common.
fn params(common_name: &str, days: u32) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::OrganizationName, "RocketBufs");
    params.distinguished_name.push(DnType::CommonName, common_name);
    let now = SystemTime::now();
    params.not_before = (now - EARLIER).into();
    params.not_after = (now + DAY * days).into();
    params
}

fn ca(dir: &Path, days: u32) -> Result<(), Failure> {
    DirBuilder::new().recursive(true).mode(0o700).create(dir).map_err(|error| failed(dir, &error))?;
    let key = KeyPair::generate().map_err(Failure::failed)?;
    // Authorities of the same name would be taken for each other.
    let id: String = key.public_key_raw().iter().rev().take(6).map(|byte| format!("{byte:02x}")).collect();
    let mut params = params(&format!("authority {id}"), days);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    let cert = params.self_signed(&key).map_err(Failure::failed)?;
    write(dir, CA, &cert.pem(), &key)
}

fn make_server(args: &ServerArgs, file: &str) -> Result<(), Failure> {
    let mut names = args.name.clone();
    for own in ["localhost", "127.0.0.1", "::1"] {
        if !names.iter().any(|name| name == own) {
            names.push(own.to_owned());
        }
    }
    if names.len() > MAX_NAMES {
        return Err(usage(&format!("at most {MAX_NAMES} names")));
    }
    let mut params = params(&names[0], args.days);
    let alternative = CertificateParams::new(names).map_err(|error| {
        usage(&format!("--name: {error}; a name is that of a host, or an address, without a port"))
    })?;
    params.subject_alt_names = alternative.subject_alt_names;
    // A broker connects to its upstream brokers with the same certificate.
    params.extended_key_usages =
        vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
    sign(&args.dir, file, params)
}

fn client(dir: &Path, name: &str, days: u32) -> Result<(), Failure> {
    if name == CA {
        return Err(usage("the files 'ca' are those of the authority: choose another name"));
    }
    let mut params = params(name, days);
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    sign(dir, name, params)
}

/// The authority of the folder.
fn authority(dir: &Path) -> Result<Issuer<'static, KeyPair>, Failure> {
    let read = |name: &str| {
        let path = dir.join(name);
        GivenFile::open(&path).and_then(|file| file.text(MAX_PEM_BYTES)).map_err(|error| {
            Failure::Failed(format!(
                "the authority's {} cannot be read: {error}\nMake an authority first: rbmq keygen ca {}",
                path.display(),
                dir.display()
            ))
        })
    };
    let (cert, key) = (read("ca.pem")?, read("ca-key.pem")?);
    let wrong = |error: rcgen::Error| Failure::Failed(format!("the authority in {}: {error}", dir.display()));
    Issuer::from_ca_cert_pem(&cert, KeyPair::from_pem(&key).map_err(wrong)?).map_err(wrong)
}

/// Signs with the authority of the folder.
fn sign(dir: &Path, file: &str, mut params: CertificateParams) -> Result<(), Failure> {
    let issuer = authority(dir)?;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.use_authority_key_identifier_extension = true;
    let key = KeyPair::generate().map_err(Failure::failed)?;
    let cert = params.signed_by(&key, &issuer).map_err(Failure::failed)?;
    write(dir, file, &cert.pem(), &key)
}

/// Adds certificates to the list of the folder's authority. Returns the number of those on it.
fn revoke(dir: &Path, names: &[String], days: u32) -> Result<usize, Failure> {
    let issuer = authority(dir)?;
    let path = dir.join("crl.pem");
    let now = SystemTime::now();
    let (mut revoked, number) = if path.exists() { known(&path)? } else { (Vec::new(), 0) };
    for name in names {
        let serial = serial(&dir.join(format!("{name}.pem")))?;
        if revoked.iter().all(|known: &RevokedCertParams| known.serial_number.as_ref() != serial) {
            revoked.push(entry(serial, now));
        }
    }
    let count = revoked.len();
    let list = CertificateRevocationListParams {
        this_update: (now - EARLIER).into(),
        next_update: (now + DAY * days).into(),
        crl_number: SerialNumber::from(number + 1),
        issuing_distribution_point: None,
        revoked_certs: revoked,
        key_identifier_method: KeyIdMethod::Sha256,
    };
    let pem = list.signed_by(&issuer).and_then(|list| list.pem()).map_err(Failure::failed)?;
    // A broker that reads the file meanwhile finds the old list or the new one.
    let new = dir.join("crl.pem.new");
    let file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o644).open(&new);
    let written = file.and_then(|mut file| file.write_all(pem.as_bytes()).and_then(|()| file.sync_all()));
    written.and_then(|()| std::fs::rename(&new, &path)).map_err(|error| failed(&path, &error))?;
    Ok(count)
}

fn entry(serial: Vec<u8>, since: SystemTime) -> RevokedCertParams {
    RevokedCertParams {
        serial_number: SerialNumber::from_slice(&serial),
        revocation_time: since.into(),
        reason_code: None,
        invalidity_date: None,
    }
}

/// The entries that a list has already, and its number.
fn known(path: &Path) -> Result<(Vec<RevokedCertParams>, u64), Failure> {
    let lists = tls13::load_revoked("crl.pem", path).map_err(Failure::failed)?;
    let (mut revoked, mut number) = (Vec::new(), 0);
    for list in &lists {
        let facts = RevocationFacts::of(list).map_err(Failure::failed)?;
        let since =
            |seconds: i64| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds.max(0).unsigned_abs());
        revoked.extend(facts.serials.into_iter().map(|(serial, seconds)| entry(serial, since(seconds))));
        let last = facts.number.iter().rev().take(8).rev();
        number = number.max(last.fold(0, |number, byte| number << 8 | u64::from(*byte)));
    }
    Ok((revoked, number))
}

/// The number of the certificate in a file.
fn serial(path: &Path) -> Result<Vec<u8>, Failure> {
    let chain = tls13::load_chain("NAME", path).map_err(Failure::failed)?;
    CertificateFacts::of(&chain[0]).map(|facts| facts.serial).map_err(Failure::failed)
}

/// Writes both files, of which neither may exist.
fn write(dir: &Path, file: &str, cert: &str, key: &KeyPair) -> Result<(), Failure> {
    let key_path = dir.join(format!("{file}-key.pem"));
    let cert_path = dir.join(format!("{file}.pem"));
    for (path, mode, text) in [(&key_path, 0o600, key.serialize_pem()), (&cert_path, 0o644, cert.to_owned())]
    {
        let new = OpenOptions::new().write(true).create_new(true).mode(mode).open(path);
        let written = new.and_then(|mut new| new.write_all(text.as_bytes()).and_then(|()| new.sync_all()));
        written.map_err(|error| failed(path, &error))?;
    }
    Ok(())
}

fn usage(text: &str) -> Failure {
    Failure::Usage("keygen", text.to_owned())
}

fn failed(path: &Path, error: &std::io::Error) -> Failure {
    let remedy = match error.kind() {
        std::io::ErrorKind::AlreadyExists => "\nIt is not overwritten: move it away to make a new one",
        _ => "",
    };
    Failure::Failed(format!("cannot write {}: {error}{remedy}", path.display()))
}
