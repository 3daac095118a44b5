//! Contents of a fake server's bucket, and the effects of requests.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use hyper::http::request::Parts;
use hyper::{Response, StatusCode};
use jiff::Timestamp;
use md5::{Digest, Md5};
use onefold_io::Random;

use super::BUCKET;
use super::faults::{Dialect, Fault, Rates};

/// An object: bytes, version, and when it was put.
#[derive(Clone)]
pub struct Object {
    bytes: Bytes,
    tag: String,
    modified_unix_s: i64,
    /// Old bytes, which the next reading returns with the new tag, where the tag is written first.
    before: Option<Bytes>,
}

pub struct Bucket {
    pub objects: BTreeMap<String, Object>,
    pub requests: Vec<String>,
    pub faults: VecDeque<Option<Fault>>,
    pub at_random: Option<(Rates, Random)>,
    pub dialect: Dialect,
    pub now_unix_s: i64,
    pub page_keys: usize,
    late: Vec<(u64, Asked)>,
    versions: u64,
}

impl Default for Bucket {
    fn default() -> Self {
        Self {
            objects: BTreeMap::new(),
            requests: Vec::new(),
            faults: VecDeque::new(),
            at_random: None,
            dialect: Dialect::default(),
            now_unix_s: 1_800_000_000,
            page_keys: 1000,
            late: Vec::new(),
            versions: 0,
        }
    }
}

/// A request.
#[derive(Clone)]
pub struct Asked {
    method: String,
    /// The object's key; empty where the request is for the bucket.
    key: String,
    query: BTreeMap<String, String>,
    headers: BTreeMap<String, String>,
    body: Bytes,
}

impl Asked {
    pub fn of(parts: &Parts, body: Bytes) -> Self {
        let path = decoded(parts.uri.path());
        let path = path.strip_prefix('/').unwrap_or(&path);
        let key = path.strip_prefix(BUCKET).unwrap_or("no such bucket");
        let query = parts.uri.query().unwrap_or_default().split('&');
        let query = query.filter(|pair| !pair.is_empty()).map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            (decoded(name), decoded(value))
        });
        let text = |value: &hyper::http::HeaderValue| value.to_str().unwrap_or_default().to_owned();
        let headers = parts.headers.iter();
        Self {
            method: parts.method.to_string(),
            key: key.trim_start_matches('/').to_owned(),
            query: query.collect(),
            headers: headers
                .map(|(name, value)| (name.to_string(), text(value)))
                .collect(),
            body,
        }
    }

    fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(String::as_str)
    }

    fn is_reading(&self) -> bool {
        matches!(&*self.method, "GET" | "HEAD")
    }
}

fn decoded(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'%' => {
                let digits = [rest.next().unwrap_or(b'0'), rest.next().unwrap_or(b'0')];
                let digits = String::from_utf8_lossy(&digits).into_owned();
                u8::from_str_radix(&digits, 16).unwrap_or(b'?')
            }
            b'+' => b' ',
            other => other,
        });
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

impl Bucket {
    /// Takes a request: what goes wrong with it, and its answer if that may come.
    pub fn take(&mut self, asked: &Asked) -> (Option<Fault>, Response<Bytes>) {
        self.requests
            .push(format!("{} {}", asked.method, asked.key));
        let now = self.requests.len() as u64;
        let late = std::mem::take(&mut self.late);
        let (due, later): (Vec<_>, Vec<_>) = late.into_iter().partition(|(at, _)| *at <= now);
        self.late = later;
        for (_, asked) in due {
            self.carry_out(&asked);
        }
        let mut fault = match self.faults.pop_front() {
            Some(told) => told,
            None => self
                .at_random
                .as_mut()
                .and_then(|(rates, random)| rates.strike(random)),
        };
        if asked.is_reading() {
            fault = fault.map(|fault| match fault {
                Fault::Late(_) | Fault::Doubled(_) => Fault::AnswerLost,
                other => other,
            });
        }
        let done = match fault {
            Some(Fault::Status(status, code)) => refusal(status, code),
            Some(Fault::Refused) => Response::default(),
            Some(Fault::Late(requests)) => {
                self.late.push((now + requests, asked.clone()));
                Response::default()
            }
            Some(Fault::Doubled(requests)) => {
                self.late.push((now + requests, asked.clone()));
                self.carry_out(asked)
            }
            _ => self.carry_out(asked),
        };
        (fault, done)
    }

    /// Carries out the requests that are late.
    pub fn settle(&mut self) {
        for (_, asked) in std::mem::take(&mut self.late) {
            self.carry_out(&asked);
        }
    }

    fn carry_out(&mut self, asked: &Asked) -> Response<Bytes> {
        let mut done = match (&*asked.method, &*asked.key) {
            _ if asked.key.starts_with("no such bucket") => refusal(404, "NoSuchBucket"),
            ("GET", "") => self.list(asked),
            ("POST", "") => self.delete_many(asked),
            ("GET" | "HEAD", key) => self.get(key, asked),
            ("PUT", key) => self.put(key, asked),
            ("DELETE", key) => {
                self.objects.remove(key);
                answer(204, Bytes::new())
            }
            _ => refusal(405, "MethodNotAllowed"),
        };
        let headers = done.headers_mut();
        let date = date(self.now_unix_s).parse().expect("a date");
        headers.insert("date", date);
        done
    }

    fn put(&mut self, key: &str, asked: &Asked) -> Response<Bytes> {
        if self.dialect != Dialect::IgnoresConditions {
            let found = self.objects.get(key);
            match (asked.header("if-none-match"), asked.header("if-match")) {
                (Some("*"), _) if found.is_some() => return refusal(412, "PreconditionFailed"),
                (Some(other), _) if other != "*" => return refusal(501, "NotImplemented"),
                (_, Some(_)) if found.is_none() => return refusal(404, "NoSuchKey"),
                (_, Some(tag)) if found.is_some_and(|found| found.tag != tag) => {
                    return refusal(412, "PreconditionFailed");
                }
                _ => {}
            }
        }
        if self.dialect == Dialect::LooksThenWrites
            && (asked.header("if-none-match").is_some() || asked.header("if-match").is_some())
        {
            let mut unconditional = asked.clone();
            unconditional.headers.remove("if-none-match");
            unconditional.headers.remove("if-match");
            self.late
                .push((self.requests.len() as u64 + 2, unconditional));
            return with_tag(answer(200, Bytes::new()), &self.next_tag());
        }
        let is_tag_first = self.dialect == Dialect::TagsBeforeBytes;
        let tag = if is_tag_first {
            md5_tag(&asked.body)
        } else {
            self.next_tag()
        };
        let before = self.objects.remove(key).filter(|_| is_tag_first);
        let object = Object {
            bytes: asked.body.clone(),
            tag,
            modified_unix_s: self.now_unix_s,
            before: before.map(|before| before.bytes),
        };
        let done = with_tag(answer(200, Bytes::new()), &object.tag);
        self.objects.insert(key.to_owned(), object);
        done
    }

    fn next_tag(&mut self) -> String {
        self.versions += 1;
        format!("\"version-{}\"", self.versions)
    }

    fn get(&mut self, key: &str, asked: &Asked) -> Response<Bytes> {
        let Some(object) = self.objects.get_mut(key) else {
            return refusal(404, "NoSuchKey");
        };
        let all = object.before.take().unwrap_or(object.bytes.clone());
        let len = all.len();
        let (status, range) = match asked
            .header("range")
            .and_then(|it| it.strip_prefix("bytes="))
        {
            None => (200, Some((0, len))),
            Some(range) => (206, bounds(range, len)),
        };
        let Some((from, to)) = range else {
            return refusal(416, "InvalidRange");
        };
        let bytes = all.slice(from..to);
        let content_len = bytes.len();
        let body = if asked.method == "HEAD" {
            Bytes::new()
        } else {
            bytes
        };
        let mut done = with_tag(answer(status, body), &object.tag);
        let headers = done.headers_mut();
        let modified = date(object.modified_unix_s).parse().expect("a date");
        headers.insert("last-modified", modified);
        headers.insert("content-length", content_len.into());
        if status == 206 {
            let text = format!("bytes {from}-{}/{len}", to - 1);
            headers.insert("content-range", text.parse().expect("a range"));
        }
        done
    }

    fn list(&self, asked: &Asked) -> Response<Bytes> {
        let query = |name: &str| asked.query.get(name).map(String::as_str);
        let prefix = query("prefix").unwrap_or_default();
        let after = query("continuation-token")
            .or(query("start-after"))
            .unwrap_or_default();
        let below = self
            .objects
            .iter()
            .filter(|(key, _)| key.starts_with(prefix));
        let mut left = below.filter(|(key, _)| &key[..] > after).peekable();
        let page: Vec<_> = left.by_ref().take(self.page_keys).collect();
        let mut xml = String::from("<ListBucketResult>");
        for (key, object) in &page {
            let (tag, len) = (&object.tag, object.bytes.len());
            let modified = Timestamp::from_second(object.modified_unix_s).expect("a time");
            xml += &format!(
                "<Contents><Key>{key}</Key><LastModified>{modified}</LastModified><ETag>{}</ETag><Size>{len}</Size></Contents>",
                tag.replace('"', "&quot;")
            );
        }
        if let (Some((last, _)), true) = (page.last(), left.peek().is_some()) {
            xml += &format!("<NextContinuationToken>{last}</NextContinuationToken>");
        }
        xml += "</ListBucketResult>";
        answer(200, xml.into())
    }

    fn delete_many(&mut self, asked: &Asked) -> Response<Bytes> {
        let text = String::from_utf8_lossy(&asked.body).into_owned();
        let keys = text.split("<Key>").skip(1);
        let mut xml = String::from("<DeleteResult>");
        for key in keys.filter_map(|rest| rest.split_once("</Key>")) {
            self.objects.remove(key.0);
            xml += &format!("<Deleted><Key>{}</Key></Deleted>", key.0);
        }
        xml += "</DeleteResult>";
        answer(200, xml.into())
    }
}

/// The bytes that a range names, of so many; `None` where there are none.
fn bounds(range: &str, len: usize) -> Option<(usize, usize)> {
    let (from, to) = range.split_once('-')?;
    let (from, to) = match (from.parse::<usize>(), to.parse::<usize>()) {
        (Err(_), Ok(last)) => (len - last.min(len), len),
        (Ok(from), Ok(to)) => (from, len.min(to + 1)),
        (Ok(from), Err(_)) => (from, len),
        _ => return None,
    };
    (from < to).then_some((from, to))
}

fn md5_tag(bytes: &[u8]) -> String {
    let digest = Md5::digest(bytes);
    let digits = digest.iter().map(|byte| format!("{byte:02x}"));
    format!("\"{}\"", digits.collect::<String>())
}

fn date(unix_s: i64) -> String {
    let at = Timestamp::from_second(unix_s).expect("a time");
    at.strftime("%a, %d %b %Y %H:%M:%S GMT").to_string()
}

fn answer(status: u16, body: Bytes) -> Response<Bytes> {
    let mut answer = Response::new(body);
    *answer.status_mut() = StatusCode::from_u16(status).expect("a status");
    answer
}

fn with_tag(mut answer: Response<Bytes>, tag: &str) -> Response<Bytes> {
    answer
        .headers_mut()
        .insert("etag", tag.parse().expect("a tag"));
    answer
}

/// An answer other than success, as stores give them.
pub fn refusal(status: u16, code: &str) -> Response<Bytes> {
    let xml = format!("<Error><Code>{code}</Code><Message>as told</Message></Error>");
    answer(status, xml.into())
}
