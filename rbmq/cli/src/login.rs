//! How a client command logs in. Secrets come from files, variables or a prompt, never from the command line, which every user of
//! the machine can read.

use std::path::{Path, PathBuf};

use commands::Failure;
use rbmq::Login;
use rbmq::wire::Secret;

use super::{prompt, secrets};

/// The variable with the name of the user.
const USER: &str = "RBMQ_USER";

/// The variable with the password.
const PASSWORD: &str = "RBMQ_PASSWORD";

/// The variable with the token.
const TOKEN: &str = "RBMQ_TOKEN";

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Login")]
pub(super) struct LoginArgs {
    /// Log in as this user [default: RBMQ_USER]. The password is that of --password-file or RBMQ_PASSWORD, or is asked for
    #[arg(long, value_name = "NAME", conflicts_with = "token_file")]
    user: Option<String>,
    /// Read the password from the first line of this file; - is standard input
    #[arg(long, value_name = "FILE", conflicts_with = "token_file")]
    password_file: Option<PathBuf>,
    /// Log in with the token in the first line of this file; - is standard input [default: RBMQ_TOKEN]
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// Send the password or token also to another machine without encryption, where everybody on the way can read it
    #[arg(long)]
    insecure: bool,
}

fn variable(name: &str) -> Result<Option<String>, Failure> {
    match std::env::var_os(name).filter(|value| !value.is_empty()).map(|value| value.into_string()) {
        None => Ok(None),
        Some(Ok(text)) => {
            if name != USER {
                secrets::protect();
            }
            Ok(Some(text))
        }
        // The value may be a secret, and is not repeated.
        Some(Err(_)) => Err(Failure::Failed(format!("the variable {name} must be UTF-8"))),
    }
}

impl LoginArgs {
    /// Reads the credentials that the command presents.
    pub(super) fn read(&self) -> Result<Login, Failure> {
        Ok(self.find()?.unwrap_or_else(|| Login::default().allow_plaintext(self.insecure)))
    }

    /// Whether credentials may leave this machine without encryption.
    pub(super) fn is_insecure(&self) -> bool {
        self.insecure
    }

    /// Whether options or variables name credentials.
    pub(super) fn is_given(&self) -> bool {
        let is_set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        self.user.is_some() || self.token_file.is_some() || is_set(USER) || is_set(TOKEN)
    }

    /// Whether options name a file with the password or the token, which may have changed when it is read again.
    pub(super) fn is_of_file(&self) -> bool {
        let file = self.token_file.as_deref().or(self.password_file.as_deref());
        file.is_some_and(|file| file != Path::new("-"))
    }

    /// Reads the credentials that options and variables name; none if they name none.
    pub(super) fn find(&self) -> Result<Option<Login>, Failure> {
        let login = Login::default().allow_plaintext(self.insecure);
        if let Some(path) = &self.token_file {
            return Ok(Some(login.token(prompt::of_file(path)?.expose())));
        }
        let user = match &self.user {
            Some(user) => Some(user.clone()),
            None => {
                if self.password_file.is_none()
                    && let Some(token) = variable(TOKEN)?
                {
                    return Ok(Some(login.token(Secret::from(token).expose())));
                }
                variable(USER)?
            }
        };
        let Some(user) = user else {
            return match &self.password_file {
                None => Ok(None),
                Some(_) => Err(Failure::Failed(format!(
                    "--password-file needs the name of a user: --user or {USER}"
                ))),
            };
        };
        let password = match (&self.password_file, variable(PASSWORD)?) {
            (Some(path), _) => prompt::of_file(path)?,
            (None, Some(password)) => Secret::from(password),
            (None, None) => prompt::ask(
                &format!("Password of {user}"),
                &format!("give the password with --password-file or {PASSWORD}"),
            )?,
        };
        Ok(Some(login.user(&user, password.expose())))
    }
}
