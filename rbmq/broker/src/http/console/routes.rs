//! The addresses of the interface: what each needs, takes and shows. The description (OpenAPI) is made of this table.

use hyper::Method;
use serde_json::Value;

use super::api;
use super::changes;
use super::groups;
use super::problem::Problem;
use super::query::Query;
use super::state::Console;
use super::users;

/// The beginning of all addresses. A change that clients would notice gets another number.
pub(super) const BASE: &str = "/api/v1";

/// What a client needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Needs {
    Nothing,
    /// To be logged in.
    Login,
    /// The right to observe the broker.
    Observe,
    /// The right to administer the broker.
    Administer,
}

/// Shows the state of the broker.
pub(super) type Show = fn(&Console, &Query) -> Result<Value, Problem>;

/// Who answers.
#[derive(Clone, Copy)]
pub(super) enum Answer {
    Show(Show),
    Session,
    LogIn,
    LogOut,
    Messages,
    Publish,
    Disconnect,
    Difference,
    Reload,
    BeginTrace,
    Trace,
    EndTrace,
    Description,
}

/// A parameter of the query.
pub(super) struct Parameter {
    pub(super) name: &'static str,
    pub(super) about: &'static str,
    /// The words that it may be; empty: any text, or a number.
    pub(super) words: &'static [&'static str],
    pub(super) is_needed: bool,
}

/// A field of an answer.
pub(super) struct Field {
    pub(super) name: &'static str,
    pub(super) kind: Kind,
    pub(super) about: &'static str,
}

/// The type of a field. `May…`: or null.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Number,
    MayNumber,
    Text,
    MayText,
    Bool,
    Object,
    MayObject,
    List,
}

/// An address.
pub(super) struct Route {
    pub(super) method: Method,
    /// Behind [`BASE`].
    pub(super) path: &'static str,
    pub(super) about: &'static str,
    pub(super) needs: Needs,
    /// There is a stream of it, under `/stream`.
    pub(super) streams: bool,
    pub(super) parameters: &'static [Parameter],
    pub(super) fields: &'static [Field],
    pub(super) answer: Answer,
}

impl Route {
    /// The names of its parameters.
    pub(super) fn names(&self) -> Vec<&'static str> {
        self.parameters.iter().map(|parameter| parameter.name).collect()
    }
}

/// A route that was found.
pub(super) struct Found {
    pub(super) route: &'static Route,
    pub(super) is_stream: bool,
}

/// The route of a request.
///
/// # Errors
/// The methods that the address has; none: there is no such address.
pub(super) fn route(method: &Method, path: &str) -> Result<Found, Vec<&'static Method>> {
    let path = path.strip_prefix(BASE).unwrap_or_default();
    let (path, is_stream) = match path.strip_prefix("/stream/") {
        Some(_) => (&path["/stream".len()..], true),
        None => (path, false),
    };
    let there: Vec<_> =
        ROUTES.iter().filter(|route| route.path == path && (route.streams || !is_stream)).collect();
    match there.iter().find(|route| route.method == *method) {
        Some(route) => Ok(Found { route, is_stream }),
        None => Err(there.iter().map(|route| &route.method).collect()),
    }
}

const fn any(name: &'static str, about: &'static str) -> Parameter {
    Parameter { name, about, words: &[], is_needed: false }
}

const fn words(name: &'static str, about: &'static str, words: &'static [&'static str]) -> Parameter {
    Parameter { name, about, words, is_needed: false }
}

const fn needed(name: &'static str, about: &'static str) -> Parameter {
    Parameter { name, about, words: &[], is_needed: true }
}

const fn field(name: &'static str, kind: Kind, about: &'static str) -> Field {
    Field { name, kind, about }
}

const OFFSET: Parameter = any("offset", "How many rows are left out before the page; default 0.");
const LIMIT: Parameter = any("limit", "The most rows of the page, up to 500; default 50.");
const SEARCH: Parameter =
    any("search", "Only rows with this text in a name, whatever the case of its letters.");

const CONN: Parameter = needed("conn", "The number of the connection, as the list of clients has it.");

const RELOAD: &[Field] = &[
    field(
        "applied",
        Kind::List,
        "The settings that a reload puts in force: name, old and new value, origin. Of lists the entries that differ, and how many at both ends do not (same).",
    ),
    field("needs_restart", Kind::List, "The settings that need a restart of the broker, likewise."),
    field("problem", Kind::MayText, "The reason why a reload would change nothing; null: it would be done."),
    field("mark", Kind::MayText, "The mark of the difference; null: nothing can be reloaded, or it was."),
    field(
        "notes",
        Kind::List,
        "What stays as it was although the configuration says otherwise, after a reload.",
    ),
];

const TRACE: &[Field] = &[
    field("target", Kind::Text, "The topic, or the name of the client."),
    field("conn", Kind::MayNumber, "The connection of the client when the trace began; null: a topic."),
    field("is_running", Kind::Bool, "Whether the trace runs."),
    field("left_ms", Kind::Number, "The time until its end."),
    field("dropped", Kind::Number, "The events before these rows that are here no more: a trace has 4,000."),
    field(
        "is_cut",
        Kind::Bool,
        "Whether there are more rings than 16, subscribers of one that move than 8, or connections of the client than 64, of which it does not tell.",
    ),
    field(
        "rows",
        Kind::List,
        "The events, the oldest first: n (from 1), time_ms, what, topic, client, text, numbers (positions, bytes, counts by name).",
    ),
    field("next", Kind::Number, "The number of the last row."),
];

const PAGE: &[Field] = &[
    field("total", Kind::Number, "The number of rows without the search."),
    field("matched", Kind::Number, "The number of rows that the search finds."),
    field("offset", Kind::Number, "The number of rows before the first of the page."),
    field("rows", Kind::List, "The rows of the page."),
    field(
        "is_cut",
        Kind::Bool,
        "Whether the broker has more rows: more than 200,000, or it answers too slowly.",
    ),
];

const SESSION: &[Field] = &[
    field("version", Kind::Text, "The version of the broker."),
    field("who", Kind::MayObject, "The user and how it was shown; null: nobody is logged in."),
    field(
        "may_publish",
        Kind::Bool,
        "Whether the client may publish messages, where its rights allow it (http.console = \"write\").",
    ),
    field("may_observe", Kind::Bool, "Whether the client may see the state of the broker."),
    field(
        "may_administer",
        Kind::Bool,
        "Whether the client may see users and tokens, and administer the broker.",
    ),
    field(
        "may_change",
        Kind::Bool,
        "Whether those who may administer the broker disconnect clients and reload the configuration (http.console = \"write\").",
    ),
    field(
        "csrf",
        Kind::MayText,
        "The text that changing requests of a browser have in the field X-RBMQ-CSRF.",
    ),
    field("logins", Kind::Object, "The ways to log in: token, password."),
];

/// All addresses.
pub(super) static ROUTES: &[Route] = &[
    Route {
        method: Method::GET,
        path: "/session",
        about: "Who the client is, and how it may log in.",
        needs: Needs::Nothing,
        streams: false,
        parameters: &[],
        fields: SESSION,
        answer: Answer::Session,
    },
    Route {
        method: Method::POST,
        path: "/session",
        about: "Logs in, with {\"token\": …} or {\"user\": …, \"password\": …} as application/json. The answer has a cookie.",
        needs: Needs::Nothing,
        streams: false,
        parameters: &[],
        fields: SESSION,
        answer: Answer::LogIn,
    },
    Route {
        method: Method::DELETE,
        path: "/session",
        about: "Logs out.",
        needs: Needs::Login,
        streams: false,
        parameters: &[],
        fields: &[],
        answer: Answer::LogOut,
    },
    Route {
        method: Method::GET,
        path: "/overview",
        about: "Whether the broker is well: sums, rates, and alarms with their reasons and remedies.",
        needs: Needs::Observe,
        streams: true,
        parameters: &[],
        fields: &[
            field("time_ms", Kind::Number, "The time of the sample, in milliseconds since 1970."),
            field("summary", Kind::Object, "The sums of the broker since its start, as rbmq top shows them."),
            field("rates", Kind::Object, "Bytes per second in, out and lost; null before the second sample."),
            field("max_lag_bytes", Kind::Number, "The largest lag of a subscriber."),
            field(
                "is_cut",
                Kind::Bool,
                "Whether it has more topics than those that were looked at for lag and alarms.",
            ),
            field("slowest", Kind::List, "The five topics with the slowest subscribers."),
            field(
                "alarms",
                Kind::List,
                "Everything that is not well, the worst first: level, title, reason, remedy.",
            ),
            field("gateways", Kind::List, "The gateways for clients of other systems."),
            field(
                "groups",
                Kind::Object,
                "The number of groups of workers, the largest lag, and the pending messages of all.",
            ),
            field("limits", Kind::List, "The users and addresses at or near a quota."),
            field("kept", Kind::Object, "Sums of the kept topics and their archive, and the replays."),
            field(
                "cluster_members",
                Kind::MayNumber,
                "The members of the cluster that live; null: it is alone.",
            ),
        ],
        answer: Answer::Show(api::overview),
    },
    Route {
        method: Method::GET,
        path: "/history",
        about: "The last hour, a point in ten seconds, as far as somebody looked.",
        needs: Needs::Observe,
        streams: false,
        parameters: &[],
        fields: &[field(
            "points",
            Kind::List,
            "The points, the oldest first: time_ms, rates, ring_bytes, max_lag_bytes.",
        )],
        answer: Answer::Show(api::history),
    },
    Route {
        method: Method::GET,
        path: "/topics",
        about: "A page of the topics.",
        needs: Needs::Observe,
        streams: true,
        parameters: &[
            SEARCH,
            any("filter", "Only topics that this filter matches: '+' is any one level, '#' the rest."),
            words("sort", "The order.", &["lag", "rate", "name", "ring", "lost"]),
            OFFSET,
            LIMIT,
        ],
        fields: PAGE,
        answer: Answer::Show(api::topics),
    },
    Route {
        method: Method::GET,
        path: "/topic",
        about: "One topic: its rings, and the cursors of their subscribers, the slowest first.",
        needs: Needs::Observe,
        streams: true,
        parameters: &[needed("name", "The name of the topic.")],
        fields: &[
            field("topic", Kind::Text, "The name."),
            field("row", Kind::MayObject, "The row of the list; null while it has none."),
            field(
                "buffers",
                Kind::List,
                "At most 20 buffers, the oldest first, each with at most 100 subscriptions.",
            ),
            field("is_cut", Kind::Bool, "Whether there are more buffers."),
        ],
        answer: Answer::Show(api::topic),
    },
    Route {
        method: Method::GET,
        path: "/clients",
        about: "A page of the clients. Those of gateways are counted in the overview.",
        needs: Needs::Observe,
        streams: true,
        parameters: &[
            SEARCH,
            words(
                "role",
                "Only these.",
                &["all", "publisher", "subscriber", "observer", "broker", "gateway"],
            ),
            words("sort", "The order.", &["lag", "name", "subscriptions", "connection"]),
            OFFSET,
            LIMIT,
        ],
        fields: PAGE,
        answer: Answer::Show(api::clients),
    },
    Route {
        method: Method::GET,
        path: "/client",
        about: "One client.",
        needs: Needs::Observe,
        streams: true,
        parameters: &[CONN],
        fields: &[field("row", Kind::Object, "The row of the list.")],
        answer: Answer::Show(changes::client),
    },
    Route {
        method: Method::DELETE,
        path: "/client",
        about: "Disconnects a client, if http.console is \"write\". The client may connect again at once.",
        needs: Needs::Administer,
        streams: false,
        parameters: &[CONN],
        fields: &[field("client", Kind::Object, "The client that was disconnected.")],
        answer: Answer::Disconnect,
    },
    Route {
        method: Method::GET,
        path: "/reload",
        about: "The changes that a reload would make, between the settings in force and the file as it is now. Nothing is changed.",
        needs: Needs::Administer,
        streams: false,
        parameters: &[],
        fields: RELOAD,
        answer: Answer::Difference,
    },
    Route {
        method: Method::POST,
        path: "/reload",
        about: "Reloads the configuration, if http.console is \"write\" and the difference is the one with this mark (status 409 otherwise, and nothing changes).",
        needs: Needs::Administer,
        streams: false,
        parameters: &[needed("mark", "The mark of the difference that GET has shown.")],
        fields: RELOAD,
        answer: Answer::Reload,
    },
    Route {
        method: Method::POST,
        path: "/trace",
        about: "Begins a trace of a client or of a topic. Each user has one, two run at once, and one that nobody reads for ten seconds ends.",
        needs: Needs::Administer,
        streams: false,
        parameters: &[
            any("conn", "The number of the connection of the client."),
            any("topic", "The name of the topic, instead of a connection."),
            any("seconds", "The time of the trace, from 1 to 60."),
        ],
        fields: TRACE,
        answer: Answer::BeginTrace,
    },
    Route {
        method: Method::GET,
        path: "/trace",
        about: "The events of the user's trace, at most 500.",
        needs: Needs::Administer,
        streams: false,
        parameters: &[any("after", "Only events with larger numbers: next of the answer before.")],
        fields: TRACE,
        answer: Answer::Trace,
    },
    Route {
        method: Method::DELETE,
        path: "/trace",
        about: "Ends the user's trace, and forgets it.",
        needs: Needs::Administer,
        streams: false,
        parameters: &[any("after", "All events with larger numbers are in the answer; without it none.")],
        fields: TRACE,
        answer: Answer::EndTrace,
    },
    Route {
        method: Method::GET,
        path: "/users",
        about: "A page of the users of the file (users.file), by name: roles, ways to log in, rights. No secrets.",
        needs: Needs::Administer,
        streams: false,
        parameters: &[SEARCH, OFFSET, LIMIT],
        fields: PAGE,
        answer: Answer::Show(users::users),
    },
    Route {
        method: Method::GET,
        path: "/tokens",
        about: "A page of the tokens of users, by name: user, when it was made, when it expires. No secrets.",
        needs: Needs::Administer,
        streams: false,
        parameters: &[SEARCH, OFFSET, LIMIT],
        fields: PAGE,
        answer: Answer::Show(users::tokens),
    },
    Route {
        method: Method::GET,
        path: "/rights",
        about: "Whether a user may do something, and the rule that decides.",
        needs: Needs::Administer,
        streams: false,
        parameters: &[
            any("user", "The name of the user; empty: a client without one."),
            words(
                "operation",
                "The operation that the user wants to do.",
                &["publish", "subscribe", "observe", "chain", "administer"],
            ),
            any("topic", "The topic, for publish and subscribe."),
            any("roles", "More roles than those of the file of users, separated by commas."),
        ],
        fields: &[
            field("allowed", Kind::Bool, "Whether the user may."),
            field(
                "is_known",
                Kind::Bool,
                "Whether the file of users has the user, or there is no such file.",
            ),
            field("what", Kind::Text, "The decision, for people."),
            field("why", Kind::Text, "The rule that decides, with its file and line."),
            field("rule", Kind::MayNumber, "The number of that rule, from 1; null: none decides."),
            field("roles", Kind::List, "The roles of the user."),
        ],
        answer: Answer::Show(users::rights),
    },
    Route {
        method: Method::GET,
        path: "/kept",
        about: "A page of the kept topics: positions, sizes, retention, archive.",
        needs: Needs::Observe,
        streams: true,
        parameters: &[SEARCH, words("sort", "The order.", &["size", "name"]), OFFSET, LIMIT],
        fields: PAGE,
        answer: Answer::Show(api::kept),
    },
    Route {
        method: Method::GET,
        path: "/groups",
        about: "A page of the groups of workers: lag, pending messages, failed attempts, dead letters.",
        needs: Needs::Observe,
        streams: true,
        parameters: &[
            SEARCH,
            words("sort", "The order.", &["lag", "state", "pending", "name"]),
            OFFSET,
            LIMIT,
        ],
        fields: PAGE,
        answer: Answer::Show(groups::groups),
    },
    Route {
        method: Method::GET,
        path: "/group",
        about: "One group, and its workers: those with overdue messages first.",
        needs: Needs::Observe,
        streams: true,
        parameters: &[needed("topic", "The name of the topic."), needed("group", "The name of the group.")],
        fields: &[
            field("row", Kind::Object, "The row of the list."),
            field(
                "members",
                Kind::List,
                "The workers, at most 500: who they are, the messages that each has, and the most that it may have.",
            ),
            field("is_cut", Kind::Bool, "Whether there are more workers."),
        ],
        answer: Answer::Show(groups::group),
    },
    Route {
        method: Method::GET,
        path: "/cluster",
        about: "The cluster, as this member knows it. A broker that is alone has the first field only.",
        needs: Needs::Observe,
        streams: true,
        parameters: &[],
        fields: &[
            field("is_alone", Kind::Bool, "Whether the broker is in no cluster."),
            field("id", Kind::MayText, "The name of this member."),
            field("degraded", Kind::MayText, "Why something does not work; null: all is well."),
            field("members", Kind::Number, "The members that live, with this one."),
            field("owned_groups", Kind::Number, "The groups of topics that this member has."),
            field("term_changes", Kind::Number, "How often the owner of a group has changed."),
            field("store_errors", Kind::Number, "Calls of etcd that have failed."),
            field("lease_age_ms", Kind::MayNumber, "The time since etcd heard that this member lives."),
            field("others", Kind::List, "The other members, and their addresses."),
        ],
        answer: Answer::Show(api::cluster),
    },
    Route {
        method: Method::GET,
        path: "/settings",
        about: "The settings in force, each with its origin.",
        needs: Needs::Observe,
        streams: false,
        parameters: &[
            SEARCH,
            words("changed", "Only settings that do not have their default.", &["no", "yes"]),
        ],
        fields: &[
            field("total", Kind::Number, "The number of settings."),
            field("matched", Kind::Number, "The number of settings that are shown."),
            field("rows", Kind::List, "The settings: name, value, origin, is_default."),
        ],
        answer: Answer::Show(api::settings),
    },
    Route {
        method: Method::GET,
        path: "/messages",
        about: "Messages of a topic that the client may subscribe to, the oldest first. No publisher waits for it, and it counts as no subscriber.",
        needs: Needs::Login,
        streams: false,
        parameters: &[
            Parameter { name: "topic", about: "The name of the topic.", words: &[], is_needed: true },
            any("count", "The most messages of each log, up to 100; default 10."),
            any(
                "search",
                "Only messages with this text in their first 16 KiB, whatever the case of its letters.",
            ),
            any(
                "before",
                "The newest messages that end at or before this position; default: the newest of all.",
            ),
            any("from", "The first messages from this position on."),
            any(
                "time",
                "The first messages of this time or later, in milliseconds since 1970. For topics on the disk.",
            ),
        ],
        fields: &[
            field("topic", Kind::Text, "The name."),
            field(
                "space",
                Kind::MayText,
                "The log of the space that has the topic; null: it has a log of its own.",
            ),
            field(
                "logs",
                Kind::List,
                "The logs of the topic, at most 20, and the messages (rows) of each: position, end, time_ms, length, text or hex, is_cut (there are more bytes), attributes.",
            ),
            field("is_cut", Kind::Bool, "Whether there are more logs."),
        ],
        answer: Answer::Messages,
    },
    Route {
        method: Method::POST,
        path: "/messages",
        about: "Publishes {\"topic\": …, \"text\": …} (application/json), of at most 64 KiB, if http.console is \"write\" and the client may publish the topic.",
        needs: Needs::Login,
        streams: false,
        parameters: &[],
        fields: &[
            field("topic", Kind::Text, "The name."),
            field("length", Kind::Number, "The bytes of the message."),
        ],
        answer: Answer::Publish,
    },
    Route {
        method: Method::GET,
        path: "/openapi.json",
        about: "This description.",
        needs: Needs::Nothing,
        streams: false,
        parameters: &[],
        fields: &[],
        answer: Answer::Description,
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_found_with_their_methods_and_streams() {
        let find = |method: Method, path: &str| {
            route(&method, path).map(|found| (found.route.path, found.is_stream))
        };
        assert_eq!(find(Method::GET, "/api/v1/topics"), Ok(("/topics", false)));
        assert_eq!(find(Method::GET, "/api/v1/stream/topics"), Ok(("/topics", true)));
        let no_stream = find(Method::GET, "/api/v1/stream/settings");
        assert_eq!(no_stream, Err(Vec::new()));
        assert_eq!(find(Method::POST, "/api/v1/topics"), Err(vec![&Method::GET]));
        for nowhere in
            ["/api/v2/topics", "/api/v1", "/api/v1/", "/api/v1/topics/", "/topics", "/api/v1/stream/"]
        {
            assert_eq!(find(Method::GET, nowhere), Err(Vec::new()), "{nowhere}");
        }
    }

    #[test]
    fn whoever_shows_the_broker_needs_the_right() {
        for route in ROUTES {
            let shows = matches!(route.answer, Answer::Show(_));
            let has_right = matches!(route.needs, Needs::Observe | Needs::Administer);
            let changes = matches!(route.answer, Answer::Disconnect | Answer::Difference | Answer::Reload);
            let traces = matches!(route.answer, Answer::BeginTrace | Answer::Trace | Answer::EndTrace);
            let wants_right = shows || changes || traces;
            assert_eq!(has_right, wants_right, "{} {}", route.method, route.path);
            // A stream looks again at the right to observe, and at no other.
            assert!(!route.streams || route.needs == Needs::Observe, "{}", route.path);
        }
    }
}
