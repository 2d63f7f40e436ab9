//! The commands by name: how many arguments each takes, and when it is allowed.

/// What a command does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verb {
    Acl,
    Auth,
    Client,
    Cluster,
    Command,
    Config,
    Dbsize,
    Discard,
    Echo,
    Exec,
    Exists,
    Flush,
    FlushCode,
    Hello,
    Info,
    Multi,
    Ping,
    Psubscribe,
    Publish,
    Pubsub,
    Punsubscribe,
    Quit,
    Reset,
    Role,
    Select,
    Spublish,
    Ssubscribe,
    Subscribe,
    Sunsubscribe,
    Time,
    Type,
    Unsubscribe,
    Unwatch,
    Watch,
    Xadd,
    Xautoclaim,
    /// It changes what is stored.
    Xchange,
    Xclaim,
    Xgroup,
    Xack,
    Xinfo,
    Xlen,
    Xpending,
    Xrange,
    Xread,
    Xreadgroup,
    Xrevrange,
    Xtrim,
}

/// A command.
#[derive(Debug)]
pub(super) struct Spec {
    pub(super) name: &'static str,
    pub(super) verb: Verb,
    /// The number of arguments with the name; negative: at least so many.
    pub(super) arity: i32,
    /// Whether it is a container of subcommands.
    pub(super) has_subcommands: bool,
}

const fn spec(name: &'static str, verb: Verb, arity: i32) -> Spec {
    Spec { name, verb, arity, has_subcommands: false }
}

const fn container(name: &'static str, verb: Verb) -> Spec {
    Spec { name, verb, arity: -2, has_subcommands: true }
}

/// All commands, by name.
pub(super) const COMMANDS: &[Spec] = &[
    container("acl", Verb::Acl),
    spec("auth", Verb::Auth, -2),
    container("client", Verb::Client),
    container("cluster", Verb::Cluster),
    Spec { name: "command", verb: Verb::Command, arity: -1, has_subcommands: true },
    container("config", Verb::Config),
    spec("dbsize", Verb::Dbsize, 1),
    spec("discard", Verb::Discard, 1),
    spec("echo", Verb::Echo, 2),
    spec("exec", Verb::Exec, 1),
    spec("exists", Verb::Exists, -2),
    spec("flushall", Verb::Flush, -1),
    spec("flushdb", Verb::Flush, -1),
    container("function", Verb::FlushCode),
    spec("hello", Verb::Hello, -1),
    spec("info", Verb::Info, -1),
    spec("multi", Verb::Multi, 1),
    spec("ping", Verb::Ping, -1),
    spec("psubscribe", Verb::Psubscribe, -2),
    spec("publish", Verb::Publish, 3),
    container("pubsub", Verb::Pubsub),
    spec("punsubscribe", Verb::Punsubscribe, -1),
    spec("quit", Verb::Quit, -1),
    spec("reset", Verb::Reset, 1),
    spec("role", Verb::Role, 1),
    container("script", Verb::FlushCode),
    spec("select", Verb::Select, 2),
    spec("spublish", Verb::Spublish, 3),
    spec("ssubscribe", Verb::Ssubscribe, -2),
    spec("subscribe", Verb::Subscribe, -2),
    spec("sunsubscribe", Verb::Sunsubscribe, -1),
    spec("time", Verb::Time, 1),
    spec("type", Verb::Type, 2),
    spec("unsubscribe", Verb::Unsubscribe, -1),
    spec("unwatch", Verb::Unwatch, 1),
    spec("watch", Verb::Watch, -2),
    spec("xack", Verb::Xack, -4),
    spec("xadd", Verb::Xadd, -5),
    spec("xautoclaim", Verb::Xautoclaim, -6),
    spec("xclaim", Verb::Xclaim, -6),
    spec("xdel", Verb::Xchange, -3),
    container("xgroup", Verb::Xgroup),
    container("xinfo", Verb::Xinfo),
    spec("xlen", Verb::Xlen, 2),
    spec("xpending", Verb::Xpending, -3),
    spec("xrange", Verb::Xrange, -4),
    spec("xread", Verb::Xread, -4),
    spec("xreadgroup", Verb::Xreadgroup, -7),
    spec("xrevrange", Verb::Xrevrange, -4),
    spec("xsetid", Verb::Xchange, -3),
    spec("xtrim", Verb::Xtrim, -4),
];

/// Commands of Redis that need a store, which is not here. Whoever sends one learns that, and not that he has misspelt it.
const STORE: &str = "\
    append bgsave bitcount bitfield bitop bitpos blmove blpop brpop brpoplpush bzpopmax bzpopmin copy decr decrby del dump eval eval_ro \
    evalsha evalsha_ro expire expireat expiretime fcall fcall_ro geoadd geodist geopos georadius geosearch get getbit getdel getex \
    getrange getset hdel hexists hget hgetall hincrby hincrbyfloat hkeys hlen hmget hmset hrandfield hscan hset hsetnx hstrlen hvals incr \
    incrby incrbyfloat keys lastsave lcs lindex linsert llen lmove lmpop lpop lpos lpush lpushx lrange lrem lset ltrim mget migrate move mset \
    msetnx object persist pexpire pexpireat pfadd pfcount pfmerge psetex pttl randomkey rename renamenx restore rpop rpoplpush rpush rpushx \
    sadd save scan scard sdiff sdiffstore set setbit setex setnx setrange sinter sintercard sinterstore sismember smembers smismember smove \
    sort sort_ro spop srandmember srem sscan strlen sunion sunionstore swapdb touch ttl unlink wait \
    zadd zcard zcount zdiff zincrby zinter zlexcount zmpop zmscore zpopmax \
    zpopmin zrandmember zrange zrangebylex zrangebyscore zrank zrem zremrangebyrank zremrangebyscore zrevrange zrevrank zscan zscore zunion \
    zunionstore";

impl Spec {
    /// Looks a command up. Case does not matter.
    pub(super) fn find(name: &[u8]) -> Option<&'static Self> {
        let name = || name.iter().map(u8::to_ascii_lowercase);
        COMMANDS.binary_search_by(|spec| spec.name.bytes().cmp(name())).ok().map(|index| &COMMANDS[index])
    }

    /// Whether a command takes so many arguments, with its name.
    pub(super) fn takes(&self, arguments: usize) -> bool {
        let least = self.arity.unsigned_abs() as usize;
        if self.arity < 0 { arguments >= least } else { arguments == least }
    }

    /// Whether the command is allowed before a login.
    pub(super) fn is_for_strangers(&self) -> bool {
        matches!(self.verb, Verb::Auth | Verb::Hello | Verb::Quit | Verb::Reset)
    }

    /// Whether the command is allowed in RESP2 while the client is subscribed.
    pub(super) fn is_for_subscribed(&self) -> bool {
        self.is_subscribing() || matches!(self.verb, Verb::Ping | Verb::Quit | Verb::Reset)
    }

    /// Whether the command subscribes or unsubscribes: its replies are no replies, and come even to those who want none.
    pub(super) fn is_subscribing(&self) -> bool {
        matches!(
            self.verb,
            Verb::Subscribe
                | Verb::Psubscribe
                | Verb::Ssubscribe
                | Verb::Unsubscribe
                | Verb::Punsubscribe
                | Verb::Sunsubscribe
        )
    }

    /// Where the keys of the command are: the first, the last, the step. None has some, or they are not in such places.
    pub(super) fn keys(&self) -> [i64; 3] {
        match self.verb {
            Verb::Exists => [1, -1, 1],
            Verb::Type
            | Verb::Xack
            | Verb::Xadd
            | Verb::Xautoclaim
            | Verb::Xclaim
            | Verb::Xpending
            | Verb::Xchange
            | Verb::Xlen
            | Verb::Xrange
            | Verb::Xrevrange
            | Verb::Xtrim => [1, 1, 1],
            _ => [0, 0, 0],
        }
    }

    /// Whether the replies of the command are no larger than it is, or not by much.
    pub(super) fn has_small_replies(&self) -> bool {
        self.is_subscribing() || matches!(self.verb, Verb::Publish | Verb::Spublish | Verb::Xack | Verb::Xadd)
    }

    /// Whether the command reads logs of kept topics.
    pub(super) fn reads_logs(&self) -> bool {
        matches!(
            self.verb,
            Verb::Xlen
                | Verb::Xread
                | Verb::Xrange
                | Verb::Xrevrange
                | Verb::Xinfo
                | Verb::Xautoclaim
                | Verb::Xclaim
                | Verb::Xgroup
                | Verb::Xreadgroup
        )
    }

    /// Whether the command may change consumer groups.
    pub(super) fn changes_groups(&self) -> bool {
        matches!(self.verb, Verb::Xack | Verb::Xautoclaim | Verb::Xclaim | Verb::Xgroup | Verb::Xreadgroup)
    }

    /// Whether the command is executed at once inside a transaction.
    pub(super) fn is_immediate(&self) -> bool {
        matches!(self.verb, Verb::Discard | Verb::Exec | Verb::Multi | Verb::Quit | Verb::Reset | Verb::Watch)
    }
}

/// Whether a command of Redis needs a store.
pub(super) fn needs_store(name: &[u8]) -> bool {
    STORE.split(' ').any(|known| name.eq_ignore_ascii_case(known.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_is_found_in_any_case() {
        for spec in COMMANDS {
            assert_eq!(
                Spec::find(spec.name.to_uppercase().as_bytes()).map(|found| found.name),
                Some(spec.name)
            );
        }
        assert!(
            STORE
                .split(' ')
                .all(|name| needs_store(name.as_bytes()) && Spec::find(name.as_bytes()).is_none())
        );
        assert!(needs_store(b"GET") && !needs_store(b"geT1") && !needs_store(b""));
        assert!(Spec::find(b"pub").is_none() && Spec::find(b"publish1").is_none());
    }

    #[test]
    fn the_number_of_arguments_is_exact_or_a_least() {
        let takes = |name: &str, arguments| Spec::find(name.as_bytes()).unwrap().takes(arguments);
        assert!(takes("publish", 3) && !takes("publish", 2) && !takes("publish", 4));
        assert!(takes("subscribe", 2) && takes("subscribe", 9) && !takes("subscribe", 1));
    }
}
