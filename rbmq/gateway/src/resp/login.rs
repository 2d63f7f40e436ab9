//! Who a client is: `HELLO`, `AUTH`, `RESET`.

use super::client::{Client, Muted, Wait};
use super::clients::is_plain_text;
use super::machine::{Flow, Resp};
use super::parse::{Command, integer};
use super::reply::Reply;
use super::routes::Kind;
use super::server::REDIS_VERSION;
use crate::protocol::{Cx, Entry};

/// The user of clients that name none. RBMQ has no such user: the secret is a token.
const DEFAULT_USER: &[u8] = b"default";

const WRONG_PASSWORD: &str = "WRONGPASS invalid username-password pair or user is disabled.";

/// Who a client says it is.
#[derive(Debug, Clone, Copy)]
struct Login<'a> {
    user: &'a [u8],
    secret: &'a [u8],
}

/// What a client asks `HELLO` for.
#[derive(Debug, Default)]
struct Hello<'a> {
    version: Option<bool>,
    login: Option<Login<'a>>,
    name: Option<&'a str>,
}

impl<'a> Hello<'a> {
    /// # Errors
    /// The reply.
    fn parse(command: &Command<'a>) -> Result<Self, String> {
        let mut hello = Self::default();
        if let Some(version) = command.get(1) {
            hello.version = match integer(version) {
                Some(2) => Some(false),
                Some(3) => Some(true),
                Some(_) => return Err("NOPROTO unsupported protocol version".into()),
                None => return Err("ERR Protocol version is not an integer or out of range".into()),
            };
        }
        let mut options = command.from(2);
        while let Some(option) = options.next() {
            if option.eq_ignore_ascii_case(b"auth") && options.len() >= 2 {
                let both = options.next().zip(options.next());
                hello.login = both.map(|(user, secret)| Login { user, secret });
            } else if option.eq_ignore_ascii_case(b"setname") && options.len() >= 1 {
                let name = options.next().unwrap_or_default();
                hello.name = Some(
                    is_plain_text(name)
                        .ok_or("ERR Client names cannot contain spaces, newlines or special characters.")?,
                );
            } else {
                let option = String::from_utf8_lossy(option);
                return Err(format!("ERR Syntax error in HELLO option '{option}'"));
            }
        }
        Ok(hello)
    }
}

impl Resp {
    /// `AUTH [user] password`.
    pub(super) fn auth(&mut self, client: &mut Client, command: &Command<'_>, cx: &mut Cx<'_>) -> Flow {
        let login = match (command.get(1), command.get(2), command.len()) {
            (Some(secret), None, 2) => Login { user: DEFAULT_USER, secret },
            (Some(user), Some(secret), 3) => Login { user, secret },
            _ => {
                Reply::new(&mut self.replies, client.is_resp3).error("ERR syntax error");
                return Flow::Done;
            }
        };
        let Some(is_right) = self.log_in(client, login, cx) else { return Flow::Blocked };
        let mut reply = Reply::new(&mut self.replies, client.is_resp3);
        if is_right {
            reply.ok()
        } else {
            reply.error(WRONG_PASSWORD)
        }
        Flow::Done
    }

    /// `HELLO [version [AUTH user password] [SETNAME name]]`.
    pub(super) fn hello(&mut self, client: &mut Client, command: &Command<'_>, cx: &mut Cx<'_>) -> Flow {
        let hello = match Hello::parse(command) {
            Ok(hello) => hello,
            Err(error) => {
                Reply::new(&mut self.replies, client.is_resp3).error(error);
                return Flow::Done;
            }
        };
        if let Some(login) = hello.login {
            match self.log_in(client, login, cx) {
                None => return Flow::Blocked,
                Some(true) => {}
                Some(false) => {
                    Reply::new(&mut self.replies, client.is_resp3).error(WRONG_PASSWORD);
                    return Flow::Done;
                }
            }
        }
        if !client.is_in {
            Reply::new(&mut self.replies, client.is_resp3).error(
                "NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO <proto> AUTH <user> <pass> \
                 option can be used to authenticate the client and select the RESP protocol version at the same time",
            );
            return Flow::Done;
        }
        if let Some(name) = hello.name {
            client.name = name.into();
        }
        if let Some(is_resp3) = hello.version {
            self.set_version(client, is_resp3);
        }
        let mut reply = Reply::new(&mut self.replies, client.is_resp3);
        reply.map(7);
        reply.bulk("server");
        reply.bulk("redis");
        reply.bulk("version");
        reply.bulk(REDIS_VERSION);
        reply.bulk("proto");
        reply.integer(if client.is_resp3 { 3 } else { 2 });
        reply.bulk("id");
        reply.integer(client.id as i64);
        reply.bulk("mode");
        reply.bulk("standalone");
        reply.bulk("role");
        reply.bulk("master");
        reply.bulk("modules");
        reply.array(0);
        Flow::Done
    }

    /// `RESET`: as if the client had just connected.
    pub(super) fn reset(&mut self, client: &mut Client, cx: &mut Cx<'_>) {
        self.end_transaction(client);
        self.unsubscribe_all(client, cx);
        self.set_version(client, false);
        client.name = "".into();
        client.muted = Muted::default();
        cx.door.log_out(client.conn);
        client.is_in = cx.door.lets_in_anonymous() || cx.door.user(client.conn).is_some();
        Reply::new(&mut self.replies, client.is_resp3).word("RESET");
    }

    fn set_version(&mut self, client: &mut Client, is_resp3: bool) {
        if std::mem::replace(&mut client.is_resp3, is_resp3) == is_resp3 {
            return;
        }
        for kind in Kind::ALL {
            for number in &client.subscribed[kind as usize] {
                self.routes.set_version(kind, *number, client.conn, is_resp3);
            }
        }
    }

    /// Logs a client in. None: the password is being checked.
    fn log_in(
        &mut self,
        client: &mut Client,
        Login { user, secret }: Login<'_>,
        cx: &mut Cx<'_>,
    ) -> Option<bool> {
        let is_right = match std::mem::replace(&mut client.wait, Wait::No) {
            Wait::Checked(is_right) => is_right,
            _ => {
                let user =
                    Some(user).filter(|user| *user != DEFAULT_USER).map(std::str::from_utf8).transpose();
                match user.and_then(|user| Ok((user, std::str::from_utf8(secret)?))) {
                    Ok((user, secret)) => match cx.door.log_in(client.conn, user, secret) {
                        Entry::In => true,
                        Entry::Refused => false,
                        Entry::Wait => {
                            client.wait = Wait::Check;
                            return None;
                        }
                    },
                    Err(_) => false,
                }
            }
        };
        client.is_in |= is_right;
        if is_right {
            self.check_subscriptions(client, cx);
        }
        Some(is_right)
    }
}
