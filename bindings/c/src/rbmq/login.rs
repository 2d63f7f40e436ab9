//! How a client logs in.

use std::ffi::c_char;

use rbmq::Login;

use crate::raw::{Versioned, optional_text, options, rb_bool};
use crate::status::Failure;
use crate::status::rb_status::RB_ERR_ARGUMENT;

/// How a client logs in, also after every reconnect: with the name of a user and a password, or with a token. Its texts are read
/// during the call that connects; overwrite them afterwards. `rbmq_login login = {.size = sizeof login};`
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct rbmq_login {
    /// `sizeof(rbmq_login)`.
    pub size: usize,
    /// The name of the user, 1 to 128 bytes; NULL: none.
    pub user: *const c_char,
    /// The password of the user, 1 to 512 bytes; NULL: none.
    pub password: *const c_char,
    /// A token, instead of user and password, 1 to 3,072 bytes; NULL: none.
    pub token: *const c_char,
    /// Sends the password or token also over connections that leave this machine and are not encrypted, where everybody on the way
    /// reads it. Otherwise connecting fails with `RB_ERR_CONFIG`.
    pub allow_plaintext: rb_bool,
}

// SAFETY: integers, pointers and `rb_bool`s, and the first field is the size.
unsafe impl Versioned for rbmq_login {}

/// The login of a client; none without one.
pub(crate) fn login_of(given: *const rbmq_login) -> Result<Login, Failure> {
    if given.is_null() {
        return Ok(Login::default());
    }
    let given = options(given, "the login")?;
    let login = Login::default().allow_plaintext(given.allow_plaintext.is_set());
    let user = optional_text(given.user, "the user")?;
    let password = optional_text(given.password, "the password")?;
    match (user, password, optional_text(given.token, "the token")?) {
        (None, None, None) => Ok(login),
        (Some(user), Some(password), None) => Ok(login.user(user, password)),
        (None, None, Some(token)) => Ok(login.token(token)),
        _ => Err(Failure::of(RB_ERR_ARGUMENT, "a login has a user and a password, or a token")),
    }
}
