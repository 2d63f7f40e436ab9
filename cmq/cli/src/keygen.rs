//! `cmq keygen`.

use std::io::Write;
use std::path::PathBuf;

use cmq::SecretKey;
use commands::Failure;

use super::options::protect_secrets;

/// The options of `cmq keygen`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:
  cmq keygen server.key                                             # writes server.key and server.key.pub
  cmq receive 0.0.0.0:4711 --key server.key
  echo hello | cmq send 192.0.2.7:4711 --peer-key server.key.pub    # on another machine, with a copy of server.key.pub

The file with the secret key can be read by its owner only. Existing files are not overwritten.")]
pub struct Args {
    /// The file for the secret key; the public key is written beside it, with .pub at the end of the name
    file: PathBuf,
}

pub fn run(args: &Args) -> Result<(), Failure> {
    let failed = |path: &PathBuf, error: &dyn std::fmt::Display| {
        Failure::Failed(format!("{}: {error}", path.display()))
    };
    protect_secrets();
    let secret = SecretKey::generate().map_err(|error| failed(&args.file, &error))?;
    let mut name = args.file.clone().into_os_string();
    name.push(".pub");
    let public = PathBuf::from(name);
    secret.write_new(&args.file).map_err(|error| failed(&args.file, &error))?;
    let write = std::fs::OpenOptions::new().write(true).create_new(true).open(&public);
    write
        .and_then(|mut file| writeln!(file, "{}", secret.public()))
        .map_err(|error| failed(&public, &error))?;
    commands::print(format!("{}\n", secret.public()))
}
