//! A browser that a test drives: Chromium, by the WebDriver protocol (JSON over HTTP).

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use testkit::{Process, has, own_port};

/// How long a browser may take for one command, or to reach a state that lasts. The machine may be busy.
pub const WAIT: Duration = Duration::from_secs(180);

/// A browser window, which closes with this value.
pub struct Browser {
    session: String,
    address: String,
    _driver: Process,
}

impl Browser {
    /// Opens a window of this size. `None` where Chromium or its driver is not installed.
    pub fn open(width: u32, height: u32) -> Option<Self> {
        // Of a port that the driver chooses itself, the same number may be taken at the other family of addresses; then it ends.
        let port = own_port();
        let mut command = Command::new("chromedriver");
        command.arg(format!("--port={port}")).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut driver = has("chromedriver", "the pages in a browser").then(|| Process::start(command))?;
        let mut lines = driver.stdout().lines().map(|line| line.expect("lines of text"));
        assert!(lines.any(|line| line.contains("started successfully")), "the driver starts at port {port}");
        // The driver ends when nobody reads what it says.
        std::thread::spawn(move || lines.for_each(drop));
        let address = format!("127.0.0.1:{port}");
        let options = [
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--hide-scrollbars",
            "--autoplay-policy=document-user-activation-required",
        ];
        let wanted = json!({ "capabilities": { "alwaysMatch": { "browserName": "chrome", "acceptInsecureCerts": true,
            "timeouts": { "script": WAIT.as_millis() as u64, "pageLoad": WAIT.as_millis() as u64 }, "goog:loggingPrefs": { "browser": "ALL" },
            "goog:chromeOptions": { "args": options } } } });
        let answer = call(&address, "POST", "/session", &wanted).unwrap_or_else(|error| panic!("{error}"));
        let session = answer["sessionId"].as_str().expect("a session").to_owned();
        let browser = Self { session, address, _driver: driver };
        browser.resize(width, height);
        Some(browser)
    }

    fn call(&self, method: &str, path: &str, body: &Value) -> Value {
        let path = format!("/session/{}/{path}", self.session);
        call(&self.address, method, &path, body).unwrap_or_else(|error| panic!("{path} {body}: {error}"))
    }

    /// Opens one more window of this size, in which everything is done from now on. The windows before stay in sight.
    pub fn open_window(&self, width: u32, height: u32) {
        let opened = self.call("POST", "window/new", &json!({ "type": "window" }));
        self.call("POST", "window", &json!({ "handle": opened["handle"] }));
        self.resize(width, height);
    }

    /// Makes the page as large as a window of a desktop, or as a phone with finer pixels.
    pub fn resize(&self, width: u32, height: u32) {
        let phone = width < 600;
        let metrics = json!({ "cmd": "Emulation.setDeviceMetricsOverride", "params": { "width": width, "height": height,
            "deviceScaleFactor": if phone { 1.5 } else { 1.0 }, "mobile": phone } });
        self.call("POST", "goog/cdp/execute", &metrics);
    }

    /// Lets the system prefer dark or light colours.
    pub fn prefer(&self, scheme: &str) {
        let features = json!([{ "name": "prefers-color-scheme", "value": scheme }]);
        let media = json!({ "cmd": "Emulation.setEmulatedMedia", "params": { "features": features } });
        self.call("POST", "goog/cdp/execute", &media);
    }

    /// Shows the page at an address.
    pub fn go(&self, url: &str) {
        self.call("POST", "url", &json!({ "url": url }));
    }

    /// The value of a script's `return`.
    pub fn run(&self, script: &str) -> Value {
        self.call("POST", "execute/sync", &json!({ "script": script, "args": [] }))
    }

    /// The value with which a promise is fulfilled.
    pub fn finish(&self, promise: &str) -> Value {
        let script = format!(
            "const done = arguments[0]; ({promise}).then(done, (error) => done({{ error: String(error) }}))"
        );
        self.call("POST", "execute/async", &json!({ "script": script, "args": [] }))
    }

    /// Waits until an expression is true.
    pub fn wait(&self, expression: &str) {
        let until = Instant::now() + WAIT;
        while self.run(&format!("return Boolean({expression})")) != json!(true) {
            let text = || self.run("return document.body.innerText");
            assert!(Instant::now() < until, "{expression} never holds: {}", text());
            std::thread::sleep(Duration::from_millis(250));
        }
    }

    /// Presses a key where the focus is.
    pub fn press(&self, key: &str) {
        let actions = json!({ "actions": [{ "type": "key", "id": "keyboard",
            "actions": [{ "type": "keyDown", "value": key }, { "type": "keyUp", "value": key }] }] });
        self.call("POST", "actions", &actions);
    }

    /// Clicks as a person does: the element must be in sight and uncovered. Waits until it is, and stays long enough to be clicked.
    pub fn click(&self, selector: &str) {
        let until = Instant::now() + WAIT;
        while let Err(error) = self.try_click(selector) {
            assert!(Instant::now() < until, "{selector} cannot be clicked: {error}");
            std::thread::sleep(Duration::from_millis(250));
        }
    }

    fn try_click(&self, selector: &str) -> Result<(), String> {
        let path = |what: &str| format!("/session/{}/element{what}", self.session);
        let wanted = json!({ "using": "css selector", "value": selector });
        let found = call(&self.address, "POST", &path(""), &wanted)?;
        let id = found.as_object().and_then(|own| own.values().next()).and_then(Value::as_str);
        let id = id.ok_or_else(|| found.to_string())?;
        call(&self.address, "POST", &path(&format!("/{id}/click")), &json!({})).map(drop)
    }

    /// The errors that the page has reported since the last call.
    pub fn errors(&self) -> Vec<String> {
        let log = self.call("POST", "se/log", &json!({ "type": "browser" }));
        let severe = |entry: &&Value| entry["level"] == "SEVERE";
        log.as_array().unwrap().iter().filter(severe).map(|entry| entry["message"].to_string()).collect()
    }

    /// The page as it looks, as a WebP file in Base64.
    pub fn screenshot(&self) -> String {
        let format =
            json!({ "cmd": "Page.captureScreenshot", "params": { "format": "webp", "quality": 60 } });
        self.call("POST", "goog/cdp/execute", &format)["data"].as_str().unwrap().to_owned()
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // The driver, which is killed then, would leave its browsers.
        let _ = call(&self.address, "DELETE", &format!("/session/{}", self.session), &Value::Null);
    }
}

/// A call of the driver: the value of its answer, or its error.
fn call(address: &str, method: &str, path: &str, body: &Value) -> Result<Value, String> {
    let mut stream = TcpStream::connect(address).map_err(|error| error.to_string())?;
    stream.set_read_timeout(Some(WAIT)).map_err(|error| error.to_string())?;
    let body = if body.is_null() { String::new() } else { body.to_string() };
    let length = body.len();
    write!(stream, "{method} {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n")
        .and_then(|()| {
            write!(stream, "content-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}")
        })
        .map_err(|error| error.to_string())?;
    // The driver does not close connections.
    let (mut answer, mut line, mut length) = (BufReader::new(stream), String::new(), 0);
    while line != "\r\n" {
        line.clear();
        let got = answer.read_line(&mut line).map_err(|error| error.to_string())?;
        let field = line.to_ascii_lowercase();
        if let Some(text) = field.strip_prefix("content-length:") {
            length = text.trim().parse().map_err(|_| line.clone())?;
        }
        if got == 0 {
            return Err("no answer".to_owned());
        }
    }
    let mut json = vec![0; length];
    answer.read_exact(&mut json).map_err(|error| error.to_string())?;
    let mut value: Value = serde_json::from_slice(&json).map_err(|error| error.to_string())?;
    let value = value["value"].take();
    if value["error"].is_string() { Err(value.to_string()) } else { Ok(value) }
}
