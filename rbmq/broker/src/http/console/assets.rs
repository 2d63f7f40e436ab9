//! The static files of the console. They are plain modules, as they are in the repository: nothing is built, and nothing comes from elsewhere.

use hyper::header::{ALLOW, CACHE_CONTROL, ETAG, HeaderName, HeaderValue, IF_NONE_MATCH, LOCATION};
use hyper::{Method, StatusCode};

use super::problem::Problem;
use super::state::Asked;
use crate::http::answer::{Answer, Body, page};

/// The page loads what this address has, runs no script that is written into it, and is shown in no other page. Texts become no markup.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; \
                      form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'";

const HTML: &str = "text/html; charset=utf-8";
const CSS: &str = "text/css; charset=utf-8";
const JS: &str = "text/javascript; charset=utf-8";
const SVG: &str = "image/svg+xml";

/// A file: its address, its type and its text.
struct File(&'static str, &'static str, &'static str);

static FILES: &[File] = &[
    File("/ui/", HTML, include_str!("assets/index.html")),
    File("/ui/style.css", CSS, include_str!("assets/style.css")),
    File("/ui/icon.svg", SVG, include_str!("assets/icon.svg")),
    File("/ui/theme.css", CSS, web::STYLE),
    File("/ui/theme.js", JS, web::THEME),
    File("/ui/plot.js", JS, web::PLOT),
    File("/ui/users.js", JS, include_str!("assets/users.js")),
    File("/ui/app.js", JS, include_str!("assets/app.js")),
    File("/ui/parts.js", JS, include_str!("assets/parts.js")),
    File("/ui/client.js", JS, include_str!("assets/client.js")),
    File("/ui/live.js", JS, include_str!("assets/live.js")),
    File("/ui/groups.js", JS, include_str!("assets/groups.js")),
    File("/ui/lists.js", JS, include_str!("assets/lists.js")),
    File("/ui/reload.js", JS, include_str!("assets/reload.js")),
    File("/ui/overview.js", JS, include_str!("assets/overview.js")),
    File("/ui/trace.js", JS, include_str!("assets/trace.js")),
    File("/ui/topic.js", JS, include_str!("assets/topic.js")),
    File("/ui/messages.js", JS, include_str!("assets/messages.js")),
    File("/ui/login.js", JS, include_str!("assets/login.js")),
];

/// The answer to a request for a file.
pub(super) fn answer(asked: &Asked<'_>) -> Answer {
    if !matches!(*asked.method, Method::GET | Method::HEAD) {
        let why = "only GET and HEAD are available here";
        let mut answer = Problem::new(StatusCode::METHOD_NOT_ALLOWED, why).answer();
        answer.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
        return answer;
    }
    if asked.path == "/ui" {
        let mut answer = page(StatusCode::PERMANENT_REDIRECT, "text/plain; charset=utf-8", String::new());
        answer.headers_mut().insert(LOCATION, HeaderValue::from_static("/ui/"));
        return answer;
    }
    let Some(File(_, kind, text)) = FILES.iter().find(|file| file.0 == asked.path) else {
        return Problem::missing("there is no such page; the console is at /ui/").answer();
    };
    // Files change with the program only.
    let tag = format!("\"{:016x}\"", hash(text));
    let is_known = asked.headers.get(IF_NONE_MATCH).is_some_and(|known| known.as_bytes() == tag.as_bytes());
    let mut answer = match is_known {
        true => page(StatusCode::NOT_MODIFIED, kind, String::new()),
        false => page(StatusCode::OK, kind, String::new()),
    };
    if !is_known {
        *answer.body_mut() = Body::from(*text);
    }
    let headers = answer.headers_mut();
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    if let Ok(tag) = HeaderValue::from_str(&tag) {
        headers.insert(ETAG, tag);
    }
    for (name, value) in [
        ("content-security-policy", POLICY),
        ("referrer-policy", "no-referrer"),
        ("cross-origin-opener-policy", "same-origin"),
        ("cross-origin-resource-policy", "same-origin"),
    ] {
        headers.insert(HeaderName::from_static(name), HeaderValue::from_static(value));
    }
    answer
}

/// A number that is another one for another text (FNV-1a).
fn hash(text: &str) -> u64 {
    text.bytes()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The whole console, as the binary has it.
    const MAX_BYTES: usize = 150 << 10;

    #[test]
    fn the_console_is_small_and_complete() {
        let bytes: usize = FILES.iter().map(|file| file.2.len()).sum();
        assert!(bytes <= MAX_BYTES, "{bytes} bytes");
        let dir = concat!(env!("CARGO_MANIFEST_DIR"), "/src/http/console/assets");
        let own =
            std::fs::read_dir(dir).unwrap().map(|file| file.unwrap().file_name().into_string().unwrap());
        let is_served = |name: &String| {
            let path = format!("/ui/{}", name.replace("index.html", ""));
            FILES.iter().any(|file| file.0 == path)
        };
        assert_eq!(own.filter(|name| !is_served(name)).collect::<Vec<_>>(), [""; 0], "every file is served");
    }

    /// Names are hostile: a text becomes markup nowhere, and nothing comes from elsewhere.
    #[test]
    fn no_script_makes_markup_of_text_or_loads_anything_from_elsewhere() {
        for File(name, kind, text) in FILES {
            let banned = [
                "innerHTML",
                "outerHTML",
                "insertAdjacentHTML",
                "document.write",
                "eval(",
                "Function(",
                "http://",
                "https://",
            ];
            let banned = banned.iter().filter(|word| **word != "http://" || *kind == JS);
            for word in banned {
                let line = text
                    .lines()
                    .find(|line| line.contains(word) && !line.contains("http://www.w3.org/2000/svg"));
                assert_eq!(line, None, "{name} has {word}");
            }
            assert!(
                !text.contains(" style=") && !text.contains(" onclick="),
                "{name} has what the policy forbids"
            );
        }
    }
}
