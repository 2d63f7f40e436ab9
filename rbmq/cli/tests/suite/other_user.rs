//! Two users on one machine: what one of them has in shared memory, the other can neither read nor change. As root, the test becomes
//! both of them.

use std::io::{BufRead, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use testkit::{LONG, Outcome, Process, until};

/// The folder of the programs belongs to it.
const ROOT: u32 = 0;
const OWNER: u32 = 60_001;
const STRANGER: u32 = 60_002;

const SECRET: &str = "the-secret-of-the-owner";

/// The attempts of a stranger: to open the memory, the descriptors and the mapped files of processes, whatever their numbers, and shared files. Prints
/// what it gets.
const PROBE: &str = r#"
for process in "$@"; do
    for n in $(seq 0 200); do
        (exec 3<"/proc/$process/fd/$n") 2>/dev/null && echo "descriptor $n of $process"
    done
    for file in maps mem environ; do
        head -c 1 "/proc/$process/$file" >/dev/null 2>&1 && echo "$file of $process"
    done
    ls "/proc/$process/fd" "/proc/$process/map_files" 2>/dev/null
done
grep -rls "$SECRET" /dev/shm /run /var/tmp 2>/dev/null
echo probed
"#;

/// A program that every user may run, in a folder that every user may enter.
struct World {
    dir: tempfile::TempDir,
    program: PathBuf,
}

impl World {
    fn new() -> Self {
        let dir = tempfile::tempdir().expect("a folder");
        let open = |path: &std::path::Path| {
            std::fs::set_permissions(path, PermissionsExt::from_mode(0o755)).expect("an own file");
        };
        open(dir.path());
        let program = dir.path().join("rbmq");
        // By a process of its own: a child that another test starts meanwhile would inherit the descriptor that writes the program, and the
        // kernel runs no program that is open for writing.
        let copied = Command::new("cp").arg(env!("CARGO_BIN_EXE_rbmq")).arg(&program).status();
        assert!(copied.expect("cp").success(), "{} is not copied", program.display());
        open(&program);
        Self { dir, program }
    }

    /// The command as a user, with shared memory alone, and variables.
    fn command(&self, user: u32, variables: &[(&str, &str)], args: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command.args(args).uid(user).gid(user).current_dir(self.dir.path());
        command.env_clear().env("ROCKETBUFS_TRANSPORT", "shm").envs(variables.iter().copied());
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// A broker of a user, and its address.
    fn broker(&self, user: u32, variables: &[(&str, &str)]) -> (Process, String) {
        let mut process =
            Process::start(self.command(user, variables, &["serve", "--listen", "127.0.0.1:0"]));
        let mut line = String::new();
        process.stdout().read_line(&mut line).expect("the broker prints its address");
        let addr = line.trim().strip_prefix("rbmq: listening on ").expect("its address").to_owned();
        (process, addr)
    }

    fn publish(&self, user: u32, variables: &[(&str, &str)], addr: &str, text: &str) -> Outcome {
        let mut process = Process::start(self.command(user, variables, &["pub", "news", "--broker", addr]));
        process.feed(text.as_bytes());
        process.finish()
    }

    fn read_one(&self, user: u32, variables: &[(&str, &str)], addr: &str) -> Process {
        self.read(user, variables, addr, &["--count", "1"])
    }

    fn read(&self, user: u32, variables: &[(&str, &str)], addr: &str, more: &[&str]) -> Process {
        let args = [&["sub", "news", "--broker", addr], more].concat();
        Process::start(self.command(user, variables, &args))
    }

    /// The result of a user's probe of processes.
    fn probe(&self, user: u32, processes: &[u32]) -> String {
        let mut command = Command::new("sh");
        command.args(["-c", PROBE, "probe"]).args(processes.iter().map(u32::to_string));
        command.uid(user).gid(user).current_dir(self.dir.path()).env("SECRET", SECRET);
        let output = command.output().expect("a shell");
        String::from_utf8(output.stdout).expect("text")
    }
}

/// Whether this process can become other users; says so if not.
fn is_root() -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        let _ = writeln!(std::io::stderr(), "SKIPPED: two users on one machine (this needs root)");
    }
    root
}

#[test]
fn a_user_reads_nothing_of_another_users_shared_memory() {
    if !is_root() {
        return;
    }
    let world = World::new();
    let (broker, addr) = world.broker(OWNER, &[]);
    let reader = world.read(OWNER, &[], &addr, &["--count", "2"]);
    let wait = ["pub", "news", "--broker", &addr, "--wait-subscribers", "1"];
    let mut publisher = Process::start(world.command(OWNER, &[], &wait));
    let mut input = publisher.stdin();
    input.write_all(format!("{SECRET}\n").as_bytes()).expect("a publisher");
    // The rings are there while the publisher is.
    let processes = [broker.id(), reader.id(), publisher.id()];
    until("the rings are mapped", || {
        let maps =
            |process: &u32| std::fs::read_to_string(format!("/proc/{process}/maps")).unwrap_or_default();
        processes.iter().all(|process| maps(process).contains("memfd:"))
    });
    assert_eq!(world.probe(STRANGER, &processes), "probed\n");
    assert!(
        world.probe(OWNER, &processes).contains("descriptor"),
        "the owner reads them, so that the probe can"
    );

    for refused in
        [world.read_one(STRANGER, &[], &addr).finish(), world.publish(STRANGER, &[], &addr, "forged\n")]
    {
        assert!(!refused.status.success(), "{refused:?}");
        for said in ["user 60001", "is not user 60002", "shared memory", "shm.server_users"] {
            assert!(refused.stderr.contains(said), "{}", refused.stderr);
        }
        assert!(!refused.stderr.contains("Is one running"), "{}", refused.stderr);
    }
    input.write_all(b"the end\n").expect("a publisher");
    drop(input);
    publisher.finish().good();
    assert_eq!(reader.finish().good().text(), format!("{SECRET}\nthe end\n"));
}

#[test]
fn a_broker_of_another_user_gets_nothing_of_a_client() {
    if !is_root() {
        return;
    }
    let world = World::new();
    // The stranger's broker has taken the address, and lets everybody in.
    let (_broker, addr) = world.broker(STRANGER, &[("ROCKETBUFS_SHM_OTHER_USERS", "true")]);
    // Whom a client lets in itself says nothing about whom it trusts as a server.
    for variables in [&[][..], &[("ROCKETBUFS_SHM_OTHER_USERS", "true")]] {
        let refused = world.publish(OWNER, variables, &addr, SECRET);
        assert!(!refused.status.success() && refused.stderr.contains("shared memory"), "{refused:?}");
        assert!(refused.stderr.contains("user 60002"), "{refused:?}");
    }
    let open = world.publish(STRANGER, &[("ROCKETBUFS_SHM_OTHER_USERS", "true")], &addr, "own\n");
    assert!(open.status.success(), "the broker is there: {open:?}");
}

/// The local name of an address of a broker without shared memory is free. A client that takes shared memory where it can goes past
/// the process of a stranger that has the name, to the broker, which it knows by its certificate.
#[test]
fn a_stranger_under_the_local_name_of_a_broker_gets_no_token() {
    if !is_root() {
        return;
    }
    let world = World::new();
    for keygen in [&["keygen", "ca", "tls"][..], &["keygen", "server", "tls", "--name", "localhost"]] {
        Process::start(world.command(ROOT, &[], keygen)).finish().good();
    }
    let tls = [("ROCKETBUFS_TRANSPORT", "tcp"), ("ROCKETBUFS_TLS_MODE", "require")];
    let keys = [("ROCKETBUFS_TLS_CERT", "tls/server.pem"), ("ROCKETBUFS_TLS_KEY", "tls/server-key.pem")];
    let (_broker, addr) = world.broker(ROOT, &[tls, keys].concat());
    let open = [("ROCKETBUFS_SHM_OTHER_USERS", "true")];
    let squat = world.command(STRANGER, &open, &["serve", "--listen", &addr]);
    let mut squatter = Process::start(squat);
    squatter.stdout().read_line(&mut String::new()).expect("the name is free");

    let client = [
        ("ROCKETBUFS_TRANSPORT", "auto"),
        ("ROCKETBUFS_TLS_MODE", "require"),
        ("ROCKETBUFS_TLS_CA", "tls/ca.pem"),
        ("ROCKETBUFS_TLS_SERVER_NAME", "localhost"),
        ("RBMQ_TOKEN", "rbmq_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"),
        open[0],
    ];
    // It looks for no local name, so that it reads what the broker has got, and not the stranger.
    let over_tcp = [&client[..], &[("ROCKETBUFS_TRANSPORT", "tcp")]].concat();
    let reader = world.read_one(ROOT, &over_tcp, &addr);
    let wait = ["pub", "news", "--broker", &addr, "--wait-subscribers", "1", "--wait-timeout", "30s"];
    let mut publisher = Process::start(world.command(ROOT, &client, &wait));
    publisher.feed(b"to the broker\n");
    publisher.finish().good();
    assert_eq!(reader.finish().good().text(), "to the broker\n");
}

#[test]
fn users_share_memory_where_both_ends_allow_it() {
    if !is_root() {
        return;
    }
    let world = World::new();
    let open = [("ROCKETBUFS_SHM_OTHER_USERS", "true"), ("ROCKETBUFS_SHM_SERVER_USERS", "nobody, 60001")];
    let (_broker, addr) = world.broker(OWNER, &open);
    let reader = world.read_one(STRANGER, &open, &addr);
    let mut publisher = Process::start(world.command(
        OWNER,
        &open,
        &[
            "pub",
            "news",
            "--broker",
            &addr,
            "--wait-subscribers",
            "1",
            "--wait-timeout",
            &format!("{}s", LONG.as_secs()),
        ],
    ));
    publisher.feed(b"for everybody\n");
    publisher.finish().good();
    assert_eq!(reader.finish().good().text(), "for everybody\n");
}

/// Processes that have a password cannot be looked into, and share memory all the same.
#[test]
fn processes_with_secrets_share_memory_and_are_closed_even_to_their_user() {
    if !is_root() {
        return;
    }
    let world = World::new();
    let users = world.dir.path().join("users.toml");
    let rules = world.dir.path().join("rbmq.toml");
    let mut passwd =
        Process::start(world.command(0, &[], &["passwd", "--users", "users.toml", "--stdin", "alice"]));
    passwd.feed(SECRET.as_bytes());
    passwd.finish().good();
    let text = "[users]\nfile = 'users.toml'\n[[access.rules]]\nusers = ['alice']\npublish = ['#']\nsubscribe = ['#']\n";
    std::fs::write(&rules, text).expect("a file");
    std::os::unix::fs::chown(&users, Some(OWNER), Some(OWNER)).expect("root gives files away");
    let (broker, addr) = world.broker(OWNER, &[("RBMQ_CONFIG", "rbmq.toml")]);
    let alice = [("RBMQ_USER", "alice"), ("RBMQ_PASSWORD", SECRET)];
    let reader = world.read(OWNER, &alice, &addr, &["--count", "2"]);
    let wait = ["pub", "news", "--broker", &addr, "--wait-subscribers", "1"];
    let mut publisher = Process::start(world.command(OWNER, &alice, &wait));
    let mut input = publisher.stdin();
    input.write_all(b"from memory\n").expect("a publisher");
    // The rings are there while the publisher is.
    let processes = [broker.id(), reader.id(), publisher.id()];
    until("the rings are mapped", || {
        let maps =
            |process: &u32| std::fs::read_to_string(format!("/proc/{process}/maps")).unwrap_or_default();
        processes.iter().all(|process| maps(process).contains("memfd:"))
    });
    assert_eq!(world.probe(OWNER, &processes), "probed\n");
    input.write_all(b"to memory\n").expect("a publisher");
    drop(input);
    publisher.finish().good();
    assert_eq!(reader.finish().good().text(), "from memory\nto memory\n");
}
