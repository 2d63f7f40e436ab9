//! A store in memory with the interface of Amazon S3, as far as the archive uses it, that fails as told.

use std::collections::{BTreeMap, VecDeque};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use rbmq_broker::{Archive, ArchiveError, ArchiveLog, ArchivedLog, S3Settings};
use rbmq_s3::S3Archive;
use rocketbufs::{Epoch, Position};
use tempfile::TempDir;

/// The secret of the key, which nothing may repeat.
pub const SECRET: &str = "wJalrXUtnFEMI-K7MDENG";

/// How a request fails.
#[derive(Debug, Clone)]
pub enum Fault {
    /// With a status, a code and a message, and a header.
    Refuse { status: u16, code: &'static str, message: &'static str, header: &'static str },
    /// It is executed, and the connection ends before the answer.
    Lost,
    /// The answer ends after so many bytes of its body.
    Cut(usize),
    /// The body of the answer is this.
    Body(Vec<u8>),
    /// Nothing is answered.
    Silence,
}

impl Fault {
    pub fn refuse(status: u16, code: &'static str) -> Self {
        Self::Refuse { status, code, message: "no & no", header: "" }
    }
}

#[derive(Default)]
struct State {
    objects: BTreeMap<String, Vec<u8>>,
    faults: VecDeque<Fault>,
    /// As `faults`, for all requests.
    always: Option<Fault>,
    /// A second object of a name replaces the first one.
    overwrites: bool,
    /// Lists begin with the first name, whatever was asked for.
    ignores_after: bool,
    /// The most names of a list.
    page: usize,
    /// First lines of the requests.
    requests: Vec<String>,
}

/// Opens the log of an archive that is there.
pub fn open(archive: &S3Archive) -> Result<Arc<dyn ArchiveLog>, ArchiveError> {
    archive.open(&log_at(0), &|| false)
}

/// The store, and the folder of its key.
pub struct Fake {
    pub addr: String,
    state: Arc<Mutex<State>>,
    dir: TempDir,
}

impl Fake {
    pub fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap().to_string();
        let state = Arc::new(Mutex::new(State { page: 1_000, ..State::default() }));
        let shared = state.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let state = shared.clone();
                std::thread::spawn(move || serve(stream, &state));
            }
        });
        let fake = Self { addr, state, dir: tempfile::tempdir().unwrap() };
        fake.write_key(&format!("AKID\n{SECRET}\n"));
        fake
    }

    fn key_file(&self) -> PathBuf {
        self.dir.path().join("key")
    }

    pub fn write_key(&self, text: &str) {
        use std::os::unix::fs::PermissionsExt;
        std::fs::write(self.key_file(), text).unwrap();
        std::fs::set_permissions(self.key_file(), std::fs::Permissions::from_mode(0o600)).unwrap();
    }

    pub fn settings(&self) -> S3Settings {
        let mut settings =
            S3Settings { bucket: "bucket".into(), timeout_ms: 60_000, ..S3Settings::default() };
        settings.endpoint = format!("http://{}", self.addr);
        settings.access_key_file = self.key_file().to_str().unwrap().into();
        settings
    }

    pub fn archive(&self) -> S3Archive {
        S3Archive::new(&self.settings()).unwrap()
    }

    /// A log of an archive of its own, as another process has it.
    pub fn open(&self) -> Result<Arc<dyn ArchiveLog>, ArchiveError> {
        self.open_at(0)
    }

    /// The same, for a disk that begins here.
    pub fn open_at(&self, first: Position) -> Result<Arc<dyn ArchiveLog>, ArchiveError> {
        self.archive().open(&log_at(first), &|| false)
    }

    pub fn fail(&self, fault: Fault) {
        self.state.lock().unwrap().faults.push_back(fault);
    }

    pub fn fail_always(&self, fault: Option<Fault>) {
        self.state.lock().unwrap().always = fault;
    }

    pub fn set_overwrites(&self) {
        self.state.lock().unwrap().overwrites = true;
    }

    pub fn set_ignores_after(&self) {
        self.state.lock().unwrap().ignores_after = true;
    }

    pub fn set_page(&self, page: usize) {
        self.state.lock().unwrap().page = page;
    }

    /// The names of the log's objects.
    pub fn names(&self) -> Vec<String> {
        let state = self.state.lock().unwrap();
        state.objects.keys().filter(|key| !key.contains("only-new")).cloned().collect()
    }

    /// Changes the objects.
    pub fn change(&self, change: impl FnOnce(&mut BTreeMap<String, Vec<u8>>)) {
        change(&mut self.state.lock().unwrap().objects);
    }

    /// The first lines of the requests since the last call.
    pub fn requests(&self) -> Vec<String> {
        std::mem::take(&mut self.state.lock().unwrap().requests)
    }
}

pub fn log_at(first: Position) -> ArchivedLog {
    ArchivedLog::new("plant/a".parse().unwrap(), Epoch(0xab), first)
}

struct Request {
    line: String,
    only_new: bool,
    body: Vec<u8>,
}

fn read_request(stream: &mut TcpStream, buffer: &mut Vec<u8>) -> Option<Request> {
    let mut chunk = [0; 16 << 10];
    loop {
        let mut headers = [httparse::EMPTY_HEADER; 32];
        let mut request = httparse::Request::new(&mut headers);
        if let httparse::Status::Complete(begin) = request.parse(buffer).unwrap() {
            let header = |name: &str| {
                let found = request.headers.iter().find(|header| header.name.eq_ignore_ascii_case(name))?;
                str::from_utf8(found.value).ok()
            };
            assert!(header("authorization").unwrap().starts_with("AWS4-HMAC-SHA256 Credential="));
            let end = begin + header("content-length").map_or(0, |len| len.parse().unwrap());
            if buffer.len() >= end {
                let line = format!("{} {}", request.method.unwrap(), request.path.unwrap());
                let only_new = header("if-none-match") == Some("*");
                let body = buffer[begin..end].to_vec();
                buffer.drain(..end);
                return Some(Request { line, only_new, body });
            }
        }
        match stream.read(&mut chunk) {
            Ok(0) | Err(_) => return None,
            Ok(len) => buffer.extend_from_slice(&chunk[..len]),
        }
    }
}

fn serve(mut stream: TcpStream, state: &Mutex<State>) {
    let mut buffer = Vec::new();
    while let Some(request) = read_request(&mut stream, &mut buffer) {
        let (fault, (mut status, mut body)) = {
            let mut state = state.lock().unwrap();
            state.requests.push(request.line.clone());
            let fault = state.faults.pop_front().or(state.always.clone());
            let refused = matches!(fault, Some(Fault::Refuse { .. } | Fault::Silence));
            (fault, if refused { (0, Vec::new()) } else { execute(&mut state, &request) })
        };
        let (mut extra, mut cut) = ("", usize::MAX);
        match fault {
            None => {}
            Some(Fault::Refuse { status: with, code, message, header }) => {
                (status, extra) = (with, header);
                body = format!("<Error><Code>{code}</Code><Message>{message}</Message></Error>").into();
            }
            Some(Fault::Lost) => return,
            Some(Fault::Cut(at)) => cut = at,
            Some(Fault::Body(other)) => body = other,
            Some(Fault::Silence) => {
                // Until the client gives up.
                let _ = stream.read(&mut [0]);
                return;
            }
        }
        let head = format!("HTTP/1.1 {status} x\r\n{extra}Content-Length: {}\r\n\r\n", body.len());
        let answer = [head.as_bytes(), &body[..cut.min(body.len())]].concat();
        if stream.write_all(&answer).is_err() || cut < body.len() {
            return;
        }
    }
}

fn execute(state: &mut State, request: &Request) -> (u16, Vec<u8>) {
    let (method, path) = request.line.split_once(' ').unwrap();
    let path = path.strip_prefix("/bucket").unwrap();
    let error = |code: &str| format!("<Error><Code>{code}</Code></Error>").into_bytes();
    match (method, path.split_once('?')) {
        ("GET", Some((_, query))) => (200, list(state, query)),
        ("GET", None) => match state.objects.get(&path[1..]) {
            Some(object) => (200, object.clone()),
            None => (404, error("NoSuchKey")),
        },
        _ if request.only_new && !state.overwrites && state.objects.contains_key(&path[1..]) => {
            (412, error("PreconditionFailed"))
        }
        _ => {
            state.objects.insert(path[1..].to_owned(), request.body.clone());
            (200, Vec::new())
        }
    }
}

fn list(state: &State, query: &str) -> Vec<u8> {
    let field = |name: &str| {
        let found = query.split('&').find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='));
        found.unwrap_or("").replace("%2F", "/")
    };
    let (prefix, after) = (field("prefix"), field("start-after"));
    let most = field("max-keys").parse::<usize>().unwrap().min(state.page);
    let mut keys =
        state.objects.keys().filter(|key| key.starts_with(&prefix) && (state.ignores_after || **key > after));
    let contents: String =
        keys.by_ref().take(most).map(|key| format!("<Contents><Key>{key}</Key></Contents>")).collect();
    let has_more = keys.next().is_some();
    format!("<ListBucketResult><IsTruncated>{has_more}</IsTruncated>{contents}</ListBucketResult>")
        .into_bytes()
}
