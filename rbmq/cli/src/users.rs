//! `rbmq passwd` and `rbmq token`: the file of a broker's users.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use access::{PasswordHash, Token, TokenHash, UsersFile, check_name, new_token, read_users};
use commands::{Failure, print_error};
use rbmq::wire::{MAX_PASSWORD_BYTES, Secret};

use super::{prompt, secrets};

/// The shortest password in characters.
const MIN_CHARACTERS: usize = 8;

/// The message of a command that has changed the file.
const THEN: &str = "a running broker takes it over with SIGHUP (systemctl reload rbmq)";

/// The file of users.
#[derive(Debug, clap::Args)]
struct FileArgs {
    /// File of the users, as users.file of the broker names it
    #[arg(long, env = "RBMQ_USERS", default_value = "/etc/rbmq/users.toml", value_name = "FILE")]
    users: PathBuf,
}

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  rbmq passwd alice                                 # asks twice
  rbmq passwd --stdin --users ./users.toml alice < password.txt
  rbmq passwd --delete alice                        # and all of her tokens

The file has no password, but a hash of each (argon2id). It is made if it does not exist, with mode 600: give it to the group of \
the broker with chgrp and chmod 640. A running broker reads it again on SIGHUP, and cuts off who is removed.")]
pub(super) struct PasswdArgs {
    /// Name of the user
    name: String,
    /// Read the password from the first line of standard input
    #[arg(long)]
    stdin: bool,
    /// Remove the user and its tokens
    #[arg(long, conflicts_with = "stdin")]
    delete: bool,
    #[command(flatten)]
    file: FileArgs,
}

/// `rbmq passwd`.
pub(super) fn passwd(args: &PasswdArgs) -> Result<(), Failure> {
    let (name, path) = (&args.name, &args.file.users);
    check_name(name)?;
    if args.delete {
        let mut file = UsersFile::edit(path)?;
        let tokens = file.delete_user(name)?;
        file.save()?;
        return commands::print(format!(
            "{name} and {tokens} tokens are removed from {}; {THEN}\n",
            path.display()
        ));
    }
    let password = if args.stdin { prompt::first_line(io::stdin())? } else { ask_twice(name)? };
    check_password(&password)?;
    let hash = PasswordHash::of(&password)?;
    let mut file = UsersFile::edit(path)?;
    let is_new = file.set_password(name, &hash)?;
    file.save()?;
    let what = if is_new { "is a user now" } else { "has a new password" };
    commands::print(format!("{name} {what} in {}; {THEN}\n", path.display()))
}

fn ask_twice(name: &str) -> Result<Secret, Failure> {
    let otherwise = "use --stdin";
    let password = prompt::ask(&format!("New password of {name}"), otherwise)?;
    match prompt::ask("The same again", otherwise)? == password {
        true => Ok(password),
        false => Err(Failure::Failed("the two passwords differ; nothing was changed".into())),
    }
}

fn check_password(password: &Secret) -> Result<(), Failure> {
    let (characters, bytes) = (password.expose().chars().count(), password.expose().len());
    if characters >= MIN_CHARACTERS && bytes <= MAX_PASSWORD_BYTES {
        return Ok(());
    }
    Err(Failure::Failed(format!(
        "a password has at least {MIN_CHARACTERS} characters and at most {MAX_PASSWORD_BYTES} bytes; for programs, a token \
         is better: rbmq token new"
    )))
}

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  rbmq token new alice --name greenhouse-7 --output token.txt    # only now: the file of users has its hash
  rbmq token new alice --expires never                           # on standard output
  rbmq token new alice --expires 1h
  rbmq token list
  rbmq token revoke greenhouse-7
  rbmq pub --token-file token.txt news < news.txt

Tokens are for programs: random, checked in no time, and each can be revoked and expires by itself. The file has only their \
hashes. A running broker reads the file again on SIGHUP, and cuts off whose token is revoked.")]
pub(super) struct TokenArgs {
    #[command(subcommand)]
    command: TokenCommand,
}

#[derive(Debug, clap::Subcommand)]
enum TokenCommand {
    /// Make a token of a user, and print it or write it to a file
    #[command(after_help = "Examples:
  rbmq token new alice --name greenhouse-7 --expires 30d --output token.txt
  rbmq pub --token-file token.txt news < news.txt")]
    New {
        /// Name of the user
        user: String,
        /// Name of the token [default: the user's, and a random number]
        #[arg(long)]
        name: Option<String>,
        /// Time until the token expires, as 30d or 12h, or never
        #[arg(long, default_value = "90d", value_name = "TIME", value_parser = expires)]
        expires: Expires,
        /// Write the token to this file, which must not exist and which nobody else can read (mode 600) [default: standard output]
        #[arg(short, long, value_name = "FILE")]
        output: Option<PathBuf>,
        #[command(flatten)]
        file: FileArgs,
    },
    /// List the tokens
    #[command(after_help = "Examples:
  rbmq token list --users ./users.toml")]
    List {
        #[command(flatten)]
        file: FileArgs,
    },
    /// Remove a token
    #[command(after_help = "Examples:
  rbmq token revoke greenhouse-7 && systemctl reload rbmq")]
    Revoke {
        /// Name of the token
        name: String,
        #[command(flatten)]
        file: FileArgs,
    },
}

/// When a token expires.
#[derive(Debug, Clone, Copy)]
enum Expires {
    Never,
    After(Duration),
}

fn expires(text: &str) -> Result<Expires, String> {
    if text == "never" {
        return Ok(Expires::Never);
    }
    // A time needs a unit: a number alone would be days for some, and seconds for others.
    match settings::parse_time(text, Duration::ZERO) {
        // A hundred years are for ever.
        Some(after) if !after.is_zero() && after < Duration::from_secs(100 * 365 * 86_400) => {
            Ok(Expires::After(after))
        }
        _ => Err("it is a time as 30d or 12h, or never".into()),
    }
}

/// `rbmq token`.
pub(super) fn token(args: &TokenArgs) -> Result<(), Failure> {
    match &args.command {
        TokenCommand::New { user, name, expires, output, file } => {
            make(user, name.as_deref(), *expires, output.as_deref(), file)
        }
        TokenCommand::List { file } => list(file),
        TokenCommand::Revoke { name, file } => {
            let mut edited = UsersFile::edit(&file.users)?;
            edited.revoke_token(name)?;
            edited.save()?;
            commands::print(format!("{name} is revoked; {THEN}\n"))
        }
    }
}

fn make(
    user: &str,
    name: Option<&str>,
    expires: Expires,
    output: Option<&Path>,
    file: &FileArgs,
) -> Result<(), Failure> {
    secrets::protect();
    let token = new_token()?;
    let hash = TokenHash::of(&token);
    let name = name.map_or_else(|| format!("{user}-{}", &hash.to_string()[..8]), str::to_owned);
    let now = commands::clock::now()?;
    let end = match expires {
        Expires::Never => None,
        Expires::After(after) => Some(now + after),
    };
    let add = || {
        let mut edited = UsersFile::edit(&file.users)?;
        edited.add_token(&name, user, &hash, now, end)?;
        Ok::<_, Failure>(edited)
    };
    // A name that is refused is told before anything is shown.
    drop(add()?);
    // The token is shown before the file of users has it, where a token that nobody has would be valid.
    let line = format!("{}\n", token.expose());
    let until = end.map_or_else(|| "never".to_owned(), time);
    match output {
        Some(path) => write_secret(path, &line)?,
        // Standard output has the token alone.
        None => {
            print_error(
                "rbmq",
                format_args!("the token {name} of {user} expires {until}; {THEN}; it is shown only now:"),
            );
            commands::print(line).map_err(|failure| not_shown(&name, failure))?;
        }
    }
    if let Err(error) = add().and_then(|edited| Ok(edited.save()?)) {
        // Without its hash the token is worth nothing.
        if let Some(path) = output {
            let _ = std::fs::remove_file(path);
        }
        return Err(error);
    }
    if let Some(path) = output {
        let path = path.display();
        print_error(
            "rbmq",
            format_args!("the token {name} of {user} is in {path}, and expires {until}; {THEN}"),
        );
    }
    Ok(())
}

/// The failure of a token that nobody has seen.
fn not_shown(name: &str, failure: Failure) -> Failure {
    let why = match failure {
        Failure::Failed(why) => why,
        _ => "the output is closed".into(),
    };
    Failure::Failed(format!("{why}: the token {name} was not shown, and is not made"))
}

/// Writes a file that nobody else can read, and that does not exist yet.
fn write_secret(path: &Path, text: &str) -> Result<(), Failure> {
    let new = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    let written = new.and_then(|mut new| new.write_all(text.as_bytes()).and_then(|()| new.sync_all()));
    written.map_err(|error| Failure::Failed(format!("cannot write {}: {error}", path.display())))
}

fn list(file: &FileArgs) -> Result<(), Failure> {
    let users = read_users(&file.users)?;
    let now = SystemTime::now();
    let mut text = format!("{:<32} {:<24} {:<20} {}\n", "TOKEN", "USER", "CREATED", "EXPIRES");
    for Token { name, user, created, expires, .. } in users.tokens() {
        let created = created.map_or_else(|| "-".to_owned(), time);
        let is_over = expires.is_some_and(|end| end <= now);
        let expires = expires.map_or_else(|| "never".to_owned(), time);
        let over = if is_over { " (over)" } else { "" };
        text.push_str(&format!("{name:<32} {user:<24} {created:<20} {expires}{over}\n"));
    }
    commands::print(text)
}

fn time(time: SystemTime) -> String {
    humantime::format_rfc3339_seconds(time).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_expires_after_a_time_or_never() {
        assert!(matches!(expires("never"), Ok(Expires::Never)));
        assert!(matches!(expires("30d"), Ok(Expires::After(after)) if after.as_secs() == 30 * 86_400));
        for wrong in ["", "0s", "soon", "-1d", "90", "36500d"] {
            assert!(expires(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn short_and_long_passwords_are_refused() {
        let check = |text: &str| check_password(&Secret::from(text.to_owned())).is_ok();
        assert!(!check("1234567") && check("12345678") && check("ääääääää"));
        assert!(check(&"x".repeat(MAX_PASSWORD_BYTES)) && !check(&"x".repeat(MAX_PASSWORD_BYTES + 1)));
    }
}
