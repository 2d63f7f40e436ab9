//! `CLIENT`: what clients say of themselves, and of each other.
//!
//! A client sees and closes the connections of its own user alone.

use std::collections::HashSet;
use std::fmt::Write as _;

use super::client::Client;
use super::machine::Resp;
use super::parse::{Command, integer};
use super::reply::Reply;
use super::routes::Kind;
use super::server::unknown_subcommand;
use crate::protocol::{ConnId, Cx};

const SYNTAX: &str = "ERR syntax error";

/// The text, if it has no blanks and nothing else that would break a list of clients.
pub(super) fn is_plain_text(bytes: &[u8]) -> Option<&str> {
    std::str::from_utf8(bytes).ok().filter(|text| text.bytes().all(|byte| byte.is_ascii_graphic()))
}

/// Which connections `CLIENT KILL` and `CLIENT LIST` mean.
#[derive(Debug, Default)]
struct Selection<'a> {
    /// A set: there may be as many ids as clients, and each client is looked up.
    ids: Option<HashSet<u64>>,
    address: Option<&'a [u8]>,
    user: Option<&'a [u8]>,
    /// Whether those with subscriptions are meant, or those without.
    is_pubsub: Option<bool>,
    /// Whether there are none of the type.
    is_empty: bool,
    spares_own: bool,
}

impl Selection<'_> {
    fn has(&self, client: &Client, own: ConnId, user: Option<&str>) -> bool {
        !self.is_empty
            && self.ids.as_ref().is_none_or(|ids| ids.contains(&client.id))
            && self.address.is_none_or(|address| address == client.address.as_bytes())
            && self.user.is_none_or(|name| name == user.unwrap_or("default").as_bytes())
            && self.is_pubsub.is_none_or(|is_pubsub| is_pubsub == client.is_subscribed())
            && !(self.spares_own && client.conn == own)
    }

    fn set_type(&mut self, name: &[u8]) -> Result<(), String> {
        match &name.to_ascii_lowercase()[..] {
            b"normal" => self.is_pubsub = Some(false),
            b"pubsub" => self.is_pubsub = Some(true),
            b"master" | b"replica" | b"slave" | b"primary" => self.is_empty = true,
            other => return Err(format!("ERR Unknown client type '{}'", String::from_utf8_lossy(other))),
        }
        Ok(())
    }

    fn add_id(&mut self, text: &[u8]) -> Result<(), String> {
        let id = integer(text).and_then(|id| u64::try_from(id).ok()).filter(|id| *id > 0);
        let id = id.ok_or("ERR client-id should be greater than 0")?;
        self.ids.get_or_insert_default().insert(id);
        Ok(())
    }
}

/// `CLIENT KILL address`, or `CLIENT KILL option value …`.
fn parse_kill<'a>(command: &Command<'a>) -> Result<Selection<'a>, String> {
    if command.len() == 3 {
        return Ok(Selection { address: command.get(2), ..Selection::default() });
    }
    let mut selection = Selection { spares_own: true, ..Selection::default() };
    let mut options = command.from(2);
    while let Some(option) = options.next() {
        let value = options.next().ok_or(SYNTAX)?;
        match &option.to_ascii_lowercase()[..] {
            b"id" => selection.add_id(value)?,
            b"addr" => selection.address = Some(value),
            b"user" => selection.user = Some(value),
            b"type" => selection.set_type(value)?,
            b"skipme" if value.eq_ignore_ascii_case(b"yes") => selection.spares_own = true,
            b"skipme" if value.eq_ignore_ascii_case(b"no") => selection.spares_own = false,
            _ => return Err(SYNTAX.into()),
        }
    }
    Ok(selection)
}

/// `CLIENT LIST [TYPE type] [ID id …]`.
fn parse_list<'a>(command: &Command<'a>) -> Result<Selection<'a>, String> {
    let mut selection = Selection::default();
    match (command.get(2).map(<[u8]>::to_ascii_lowercase).as_deref(), command.len()) {
        (None, _) => {}
        (Some(b"type"), 4) => selection.set_type(command.get(3).unwrap_or_default())?,
        (Some(b"id"), 4..) => {
            for id in command.from(3) {
                selection.add_id(id)?;
            }
        }
        _ => return Err(SYNTAX.into()),
    }
    Ok(selection)
}

impl Resp {
    /// `CLIENT` with its subcommands.
    pub(super) fn client(&mut self, client: &mut Client, command: &Command<'_>, cx: &mut Cx<'_>) {
        let sub = command.get(1).unwrap_or_default().to_ascii_lowercase();
        let value = command.get(2).unwrap_or_default();
        let on_or_off = || match &value.to_ascii_lowercase()[..] {
            b"on" => Some(true),
            b"off" => Some(false),
            _ => None,
        };
        let mut reply = Reply::new(&mut self.replies, client.is_resp3);
        match (&sub[..], command.len()) {
            (b"id", 2) => reply.integer(client.id as i64),
            (b"getname", 2) if client.name.is_empty() => reply.null(),
            (b"getname", 2) => reply.bulk(client.name.as_bytes()),
            (b"setname", 3) => match is_plain_text(value) {
                Some(name) => {
                    client.name = name.into();
                    reply.ok();
                }
                None => {
                    reply.error("ERR Client names cannot contain spaces, newlines or special characters.");
                }
            },
            (b"setinfo", 4) => set_info(client, value, command.get(3).unwrap_or_default(), &mut reply),
            (b"info", 2) => {
                let line = describe(client, cx);
                reply.text(&line);
            }
            (b"list", _) => self.list(client, command, cx),
            (b"kill", 3..) => self.kill(client, command, cx),
            (b"reply", 3) => match &value.to_ascii_lowercase()[..] {
                b"skip" => client.muted.skips_next = !client.muted.is_off,
                b"on" => {
                    client.muted = super::client::Muted::default();
                    reply.ok();
                }
                b"off" => client.muted.is_off = true,
                _ => reply.error(SYNTAX),
            },
            (b"no-evict" | b"no-touch", 3) => match on_or_off() {
                Some(_) => reply.ok(),
                None => reply.error(SYNTAX),
            },
            _ => unknown_subcommand(&mut reply, "CLIENT", command),
        }
    }

    fn list(&mut self, client: &Client, command: &Command<'_>, cx: &mut Cx<'_>) {
        let selection = match parse_list(command) {
            Ok(selection) => selection,
            Err(error) => return Reply::new(&mut self.replies, client.is_resp3).error(error),
        };
        self.cost += self.clients.len();
        let mut chosen = self.choose(client, &selection, cx);
        chosen.sort_unstable_by_key(|client| client.id);
        let text: String = chosen.into_iter().map(|client| describe(client, cx)).collect();
        Reply::new(&mut self.replies, client.is_resp3).text(&text);
    }

    fn kill(&mut self, client: &mut Client, command: &Command<'_>, cx: &mut Cx<'_>) {
        let selection = match parse_kill(command) {
            Ok(selection) => selection,
            Err(error) => return Reply::new(&mut self.replies, client.is_resp3).error(error),
        };
        self.cost += self.clients.len();
        let conns: Vec<ConnId> =
            self.choose(client, &selection, cx).iter().map(|client| client.conn).collect();
        let mut reply = Reply::new(&mut self.replies, client.is_resp3);
        match (command.len(), conns.len()) {
            (3, 0) => reply.error("ERR No such client"),
            (3, _) => reply.ok(),
            (_, count) => reply.count(count),
        }
        const KILLED: &str = "CLIENT KILL was called for it";
        for conn in conns {
            if conn == client.conn {
                client.closing = Some(KILLED);
            } else {
                cx.out.close(conn, KILLED);
            }
        }
    }

    /// The connections of the client's user that are meant. The client itself is not in the table.
    fn choose<'a>(&'a self, client: &'a Client, selection: &Selection<'_>, cx: &Cx<'_>) -> Vec<&'a Client> {
        let user = cx.door.user(client.conn);
        let all = self.clients.values().chain([client]);
        all.filter(|other| {
            cx.door.user(other.conn) == user && other.is_in && selection.has(other, client.conn, user)
        })
        .collect()
    }
}

fn set_info(client: &mut Client, attribute: &[u8], value: &[u8], reply: &mut Reply<'_>) {
    let name = attribute.to_ascii_lowercase();
    let field = match &name[..] {
        b"lib-name" => &mut client.library,
        b"lib-ver" => &mut client.library_version,
        _ => {
            let name = String::from_utf8_lossy(attribute);
            return reply.error(format_args!("ERR Unrecognized option '{name}'"));
        }
    };
    match is_plain_text(value) {
        Some(text) => {
            *field = text.into();
            reply.ok();
        }
        None => {
            let name = String::from_utf8_lossy(&name).into_owned();
            reply.error(format_args!("ERR {name} cannot contain spaces, newlines or special characters."));
        }
    }
}

/// A line of `CLIENT LIST`.
fn describe(client: &Client, cx: &Cx<'_>) -> String {
    let seconds = |since| cx.now.saturating_duration_since(since).as_secs();
    let mut line = format!("id={} addr={} name={}", client.id, client.address, client.name);
    let _ = write!(line, " age={} idle={}", seconds(client.opened), seconds(client.used));
    let flags = if client.is_subscribed() { "P" } else { "N" };
    let multi = client.transaction.as_ref().map_or(-1, |transaction| transaction.count as i64);
    let [sub, psub, ssub] = Kind::ALL.map(|kind| client.count(kind));
    let _ = write!(line, " flags={flags} db=0 sub={sub} psub={psub} ssub={ssub} multi={multi}");
    let _ = write!(line, " omem={} cmd={}", cx.out.queued_bytes(client.conn), client.command);
    let user = cx.door.user(client.conn).unwrap_or("default");
    let version = if client.is_resp3 { 3 } else { 2 };
    let _ = write!(line, " user={user} redir=-1 resp={version}");
    let _ = writeln!(line, " lib-name={} lib-ver={}", client.library, client.library_version);
    line
}
