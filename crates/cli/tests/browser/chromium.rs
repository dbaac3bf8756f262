//! A real Chromium, driven by its own protocol: a socket and lines of JSON. The
//! crates that wrap the whole protocol are larger than this project; a dozen of
//! its commands do.

use std::io::{BufRead, BufReader};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;
use tungstenite::stream::MaybeTlsStream;
use tungstenite::{Message, WebSocket};

/// How long anything may take before a test gives up on it.
const TIMEOUT: Duration = Duration::from_secs(60);

/// A browser with one page. It ends with its owner.
pub(crate) struct Browser {
    process: Child,
    socket: WebSocket<MaybeTlsStream<TcpStream>>,
    session: String,
    last_id: u64,
    /// The errors, policy violations and dialogs of the page.
    errors: Vec<String>,
    /// How often a page has been loaded.
    loads: u64,
    _profile: TempDir,
}

impl Browser {
    pub(crate) fn start() -> Self {
        let profile = tempfile::tempdir().unwrap();
        let mut process = Command::new(program())
            .args(["--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run"])
            .args([
                "--disable-dev-shm-usage",
                "--disable-background-networking",
                "--hide-scrollbars",
            ])
            .arg("--host-resolver-rules=MAP *.test 127.0.0.1")
            .args(["--remote-debugging-port=0", "--force-color-profile=srgb"])
            .arg(format!("--user-data-dir={}", profile.path().display()))
            .arg("about:blank")
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("Chromium starts; `./test` installs it");
        let mut words = BufReader::new(process.stderr.take().unwrap());
        let address = loop {
            let mut line = String::new();
            assert_ne!(words.read_line(&mut line).unwrap(), 0, "Chromium has ended");
            if let Some(address) = line.trim().strip_prefix("DevTools listening on ") {
                break address.to_owned();
            }
        };
        // It would block if its output were not read.
        std::thread::spawn(move || std::io::copy(&mut words, &mut std::io::sink()));
        let (socket, _) = tungstenite::connect(&address).unwrap();
        if let MaybeTlsStream::Plain(stream) = socket.get_ref() {
            stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        }
        let mut browser = Self {
            process,
            socket,
            session: String::new(),
            last_id: 0,
            errors: Vec::new(),
            loads: 0,
            _profile: profile,
        };
        browser.attach();
        browser
    }

    fn attach(&mut self) {
        let target = self.call("Target.createTarget", json!({ "url": "about:blank" }));
        let target = target["targetId"].as_str().unwrap().to_owned();
        let attached =
            self.call("Target.attachToTarget", json!({ "targetId": target, "flatten": true }));
        self.session = attached["sessionId"].as_str().unwrap().to_owned();
        for domain in ["Page", "Runtime", "Log", "Network", "Audits"] {
            self.call(&format!("{domain}.enable"), json!({}));
        }
        self.size(1280, 900);
    }

    /// The size of the window.
    pub(crate) fn size(&mut self, width: u32, height: u32) {
        let size = json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600 });
        self.call("Emulation.setDeviceMetricsOverride", size);
    }

    /// Whether the system of the user is dark.
    pub(crate) fn dark(&mut self, dark: bool) {
        let value = if dark { "dark" } else { "light" };
        let features = json!([{ "name": "prefers-color-scheme", "value": value }]);
        self.call("Emulation.setEmulatedMedia", json!({ "features": features }));
    }

    pub(crate) fn scripts(&mut self, on: bool) {
        self.call("Emulation.setScriptExecutionDisabled", json!({ "value": !on }));
    }

    /// Goes to a page, and waits until it is there.
    pub(crate) fn go(&mut self, url: &str) {
        let before = self.loads;
        let gone = self.call("Page.navigate", json!({ "url": url }));
        assert!(gone["errorText"].is_null(), "{url}: {gone}");
        self.wait_for_load(before);
    }

    /// Does something that leads to another page, and waits until it is there.
    pub(crate) fn follow(&mut self, act: impl FnOnce(&mut Self)) {
        let before = self.loads;
        act(self);
        self.wait_for_load(before);
    }

    fn wait_for_load(&mut self, before: u64) {
        let begun = Instant::now();
        while self.loads == before {
            assert!(begun.elapsed() < TIMEOUT, "the page did not come");
            // Any answer shows that the events before it have been read. Chromium refuses to
            // evaluate while one page replaces another.
            let _ = self.try_call("Runtime.evaluate", &json!({ "expression": "0" }));
        }
    }

    /// The value of an expression.
    pub(crate) fn eval(&mut self, expression: &str) -> Value {
        let asked = json!({
            "expression": expression, "returnByValue": true, "awaitPromise": true, "userGesture": true,
        });
        let answer = self.call("Runtime.evaluate", asked);
        assert!(answer["exceptionDetails"].is_null(), "{expression}: {answer}");
        answer["result"]["value"].clone()
    }

    /// Waits until an expression is true, looking at every change of the page.
    pub(crate) fn wait(&mut self, condition: &str) {
        let millis = TIMEOUT.as_millis();
        let script = format!(
            "new Promise((done, failed) => {{
                const holds = () => {{ try {{ return {condition}; }} catch {{ return false; }} }};
                const end = (what, how) => {{ seen.disconnect(); clearInterval(tick); clearTimeout(late); how(what); }};
                const seen = new MutationObserver(() => {{ if (holds()) end(true, done); }});
                const tick = setInterval(() => {{ if (holds()) end(true, done); }}, 50);
                const late = setTimeout(() => end('never: ' + document.body.innerText, failed), {millis});
                seen.observe(document, {{ subtree: true, childList: true, attributes: true, characterData: true }});
                if (holds()) end(true, done);
            }})"
        );
        let asked = json!({ "expression": script, "returnByValue": true, "awaitPromise": true });
        let answer = self.call("Runtime.evaluate", asked);
        assert!(answer["exceptionDetails"].is_null(), "{condition}: {answer}");
    }

    /// The words of the first element that fits.
    pub(crate) fn text(&mut self, selector: &str) -> String {
        let script = format!("document.querySelector({}).innerText", json!(selector));
        self.eval(&script).as_str().unwrap_or_default().to_owned()
    }

    pub(crate) fn page_text(&mut self) -> String {
        self.text("body")
    }

    /// Presses the mouse in the middle of an element, as a person does: what is
    /// covered or out of sight cannot be pressed.
    pub(crate) fn click(&mut self, selector: &str) {
        let script = format!(
            "(() => {{
                const element = document.querySelector({selector});
                if (!element) return 'there is no ' + {selector};
                element.scrollIntoView({{ block: 'center' }});
                const box = element.getBoundingClientRect();
                const at = {{ x: box.x + box.width / 2, y: box.y + box.height / 2 }};
                const top = document.elementFromPoint(at.x, at.y);
                if (!top || !(element.contains(top) || top.contains(element)))
                    return {selector} + ' is covered by ' + (top ? top.outerHTML.slice(0, 200) : 'nothing');
                return at;
            }})()",
            selector = json!(selector)
        );
        let at = self.eval(&script);
        assert!(at.is_object(), "{at}");
        for kind in ["mousePressed", "mouseReleased"] {
            let event = json!({ "type": kind, "x": at["x"], "y": at["y"], "button": "left", "clickCount": 1 });
            self.call("Input.dispatchMouseEvent", event);
        }
    }

    /// Moves the pointer over an element.
    pub(crate) fn point_at(&mut self, selector: &str) {
        let script = format!(
            "(() => {{ const box = document.querySelector({}).getBoundingClientRect();
                return {{ x: box.x + box.width / 2, y: box.y + box.height / 2 }}; }})()",
            json!(selector)
        );
        let at = self.eval(&script);
        self.call(
            "Input.dispatchMouseEvent",
            json!({ "type": "mouseMoved", "x": at["x"], "y": at["y"] }),
        );
    }

    /// Replaces what is in a field.
    pub(crate) fn fill(&mut self, selector: &str, text: &str) {
        let script = format!(
            "(() => {{ const field = document.querySelector({}); field.focus(); field.select && field.select(); }})()",
            json!(selector)
        );
        self.eval(&script);
        self.call("Input.insertText", json!({ "text": text }));
    }

    /// Presses a key, like `j`, `?`, `Enter`, `Escape` or `Tab`.
    pub(crate) fn press(&mut self, key: &str) {
        let text = match key {
            "Enter" => "\r",
            key if key.chars().count() == 1 => key,
            _ => "",
        };
        let code = match key {
            "Tab" => 9,
            "Enter" => 13,
            "Escape" => 27,
            _ => 0,
        };
        let down =
            json!({ "type": "keyDown", "key": key, "text": text, "windowsVirtualKeyCode": code });
        self.call("Input.dispatchKeyEvent", down);
        self.call("Input.dispatchKeyEvent", json!({ "type": "keyUp", "key": key }));
    }

    /// The whole page as a PNG, in the base64 that the protocol has.
    pub(crate) fn screenshot(&mut self) -> String {
        let height = self.eval("Math.min(document.documentElement.scrollHeight, 4000)");
        let width = self.eval("window.innerWidth");
        let clip = json!({ "x": 0, "y": 0, "width": width, "height": height, "scale": 1 });
        let asked = json!({ "format": "png", "clip": clip, "captureBeyondViewport": true });
        let shot = self.call("Page.captureScreenshot", asked);
        shot["data"].as_str().unwrap().to_owned()
    }

    /// The errors, policy violations and dialogs since the last call.
    pub(crate) fn errors(&mut self) -> Vec<String> {
        self.call("Runtime.evaluate", json!({ "expression": "0" }));
        std::mem::take(&mut self.errors)
    }

    #[allow(clippy::needless_pass_by_value)] // Callers build the value for this call.
    pub(crate) fn call(&mut self, method: &str, params: Value) -> Value {
        self.try_call(method, &params).unwrap_or_else(|error| panic!("{method}: {error}"))
    }

    /// The result, or the error that Chromium answers.
    fn try_call(&mut self, method: &str, params: &Value) -> Result<Value, Value> {
        self.last_id += 1;
        let id = self.last_id;
        let mut message = json!({ "id": id, "method": method, "params": params });
        if !self.session.is_empty() {
            message["sessionId"] = json!(self.session);
        }
        self.socket.send(Message::text(message.to_string())).unwrap();
        loop {
            let answer = self.read();
            if answer["id"] == id {
                let error = &answer["error"];
                return if error.is_null() {
                    Ok(answer["result"].clone())
                } else {
                    Err(error.clone())
                };
            }
            self.note(&answer);
        }
    }

    fn read(&mut self) -> Value {
        loop {
            let message = self.socket.read().expect("Chromium answers");
            if let Message::Text(text) = message {
                return serde_json::from_str(&text).unwrap();
            }
        }
    }

    fn note(&mut self, event: &Value) {
        let params = &event["params"];
        match event["method"].as_str().unwrap_or_default() {
            "Page.loadEventFired" => self.loads += 1,
            "Page.javascriptDialogOpening" => {
                self.errors.push(format!("a dialog opened: {params}"));
                let close = json!({ "id": 0, "method": "Page.handleJavaScriptDialog",
                    "params": { "accept": false }, "sessionId": self.session });
                self.socket.send(Message::text(close.to_string())).unwrap();
            }
            "Runtime.exceptionThrown" => self.errors.push(format!("an error: {params}")),
            "Runtime.consoleAPICalled" if params["type"] == "error" => {
                self.errors.push(format!("an error on the console: {params}"));
            }
            "Log.entryAdded" if params["entry"]["level"] == "error" => {
                self.errors.push(format!("an error in the log: {}", params["entry"]));
            }
            "Audits.issueAdded" => {
                let issue = &params["issue"];
                if issue["code"] == "ContentSecurityPolicyIssue" {
                    self.errors.push(format!("refused by the policy: {issue}"));
                }
            }
            _ => {}
        }
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn program() -> PathBuf {
    let names = ["chromium", "chromium-browser", "google-chrome"];
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = names
        .iter()
        .flat_map(|name| std::env::split_paths(&path).map(move |folder| folder.join(name)))
        .find(|file| file.is_file());
    found.expect("a Chromium is installed: sudo apt-get install chromium")
}
