//! HTTP for the client of object storage: one pool of HTTP/1.1 connections, and what goes through it counted.
//!
//! Invariant: a request ends when no byte has moved for a minute, so nobody waits for ever; an answer other than
//! success becomes an [`Answer`] in the error's chain. Version 1.1 because bodies are large: there is no flow-control
//! window to tune, and each connection has a TCP window of its own.

mod body;
mod traffic;

use std::error::Error as StdError;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use http::{HeaderMap, Method, StatusCode};
use http_body_util::{BodyExt, Limited};
use hyper_rustls::HttpsConnector;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector as Tcp;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use object_store::ClientOptions;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse,
    HttpResponseBody, HttpService,
};

use crate::answer::Answer;
use body::{Incoming, Outgoing};
use traffic::ByteProgress;
pub(crate) use traffic::Traffic;
pub use traffic::WireCounts;

/// Longest time that a connection may take to come about.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Time that an idle connection is kept; stores close them after some 20 seconds to a few minutes.
const IDLE_KEPT: Duration = Duration::from_secs(20);
/// No answer that tells of an error is longer, in bytes.
const ERROR_BYTES_MAX: usize = 64 << 10;

/// A pool of connections; clones are the same pool.
#[derive(Clone)]
pub(crate) struct Http {
    client: Client<HttpsConnector<Tcp>, Outgoing>,
    traffic: Arc<Traffic>,
    stalled_after: Duration,
}

impl std::fmt::Debug for Http {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Http")
    }
}

impl Http {
    /// A pool that trusts what `tls` does, and gives a request up in which no byte has moved for `stalled_after`.
    pub fn new(tls: rustls::ClientConfig, traffic: Arc<Traffic>, stalled_after: Duration) -> Self {
        let mut tcp = Tcp::new();
        tcp.enforce_http(false);
        tcp.set_nodelay(true);
        tcp.set_connect_timeout(Some(CONNECT_TIMEOUT));
        tcp.set_keepalive(Some(IDLE_KEPT));
        let connector = hyper_rustls::HttpsConnectorBuilder::new()
            .with_tls_config(tls)
            .https_or_http()
            .enable_http1()
            .wrap_connector(tcp);
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE_KEPT)
            .build(connector);
        Self {
            client,
            traffic,
            stalled_after,
        }
    }
}

impl HttpConnector for Http {
    fn connect(&self, _options: &ClientOptions) -> object_store::Result<HttpClient> {
        Ok(HttpClient::new(self.clone()))
    }
}

#[async_trait]
impl HttpService for Http {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        self.traffic.count(request.method());
        let is_of_head = request.method() == Method::HEAD;
        let progress = ByteProgress::new(self.stalled_after);
        let (parts, body) = request.into_parts();
        let body = Outgoing::new(body, progress.clone(), Arc::clone(&self.traffic));
        let answering = self.client.request(http::Request::from_parts(parts, body));
        let answer = progress.watch(answering).await?.map_err(not_sent)?;
        let (parts, body) = answer.into_parts();
        self.traffic.note_date(&parts.headers);
        let body = Incoming::new(body, progress, Arc::clone(&self.traffic));
        if !parts.status.is_success() {
            return Err(told(parts.status, &parts.headers, body, is_of_head).await);
        }
        let body = HttpResponseBody::new(body);
        Ok(http::Response::from_parts(parts, body))
    }
}

fn not_sent(error: hyper_util::client::legacy::Error) -> HttpError {
    let kind = if error.is_connect() {
        HttpErrorKind::Connect
    } else {
        HttpErrorKind::Request
    };
    HttpError::new(kind, error)
}

/// The error that an answer other than success is.
async fn told(
    status: StatusCode,
    headers: &HeaderMap,
    body: Incoming,
    is_of_head: bool,
) -> HttpError {
    // The answer's text is for people: without it the status is enough.
    let body = Limited::new(body, ERROR_BYTES_MAX).collect().await;
    let body = body.map_or_else(|_| Bytes::new(), |body| body.to_bytes());
    let text = String::from_utf8_lossy(&body);
    let header = |name: &str| Some(headers.get(name)?.to_str().ok()?.to_owned());
    let mut message = element(&text, "Message").unwrap_or_default();
    if let Some(region) = header("x-amz-bucket-region").filter(|_| status.is_redirection()) {
        message = format!("the bucket is in the region {region}: set AWS_REGION={region}");
    }
    let answer = Answer {
        status: status.as_u16(),
        code: element(&text, "Code").unwrap_or_default(),
        message,
        retry_after_s: header("retry-after").and_then(|seconds| seconds.parse().ok()),
        is_of_head,
    };
    HttpError::new(HttpErrorKind::Unknown, answer)
}

/// Returns the content of the first element of this name. Errors of stores are short and flat, so nothing more is
/// parsed.
fn element(xml: &str, name: &str) -> Option<String> {
    let (_, rest) = xml.split_once(&format!("<{name}>"))?;
    let (text, _) = rest.split_once(&format!("</{name}>"))?;
    let text = text.replace("&quot;", "\"").replace("&apos;", "'");
    let text = text.replace("&lt;", "<").replace("&gt;", ">");
    let printable = |c: char| !c.is_control();
    Some(
        text.replace("&amp;", "&")
            .chars()
            .filter(|c| printable(*c))
            .collect(),
    )
}

/// An error of the connection in the middle of a body.
fn broken(error: impl Into<Box<dyn StdError + Send + Sync>>) -> HttpError {
    HttpError::new_boxed(HttpErrorKind::Interrupted, error.into())
}
