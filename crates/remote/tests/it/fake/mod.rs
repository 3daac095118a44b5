//! A server that speaks the protocol of S3 as far as the client asks, over objects in RAM, and fails as it is told.
//!
//! The server checks no signatures. Each connection is served by a runtime of its own in a thread that ends with the
//! server.

mod bucket;
mod faults;

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use bytes::Bytes;
use http_body_util::{BodyExt, Full, StreamBody, combinators::BoxBody};
use hyper::body::{Frame, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use tokio::net::TcpListener;
use tokio::sync::oneshot;

use bucket::{Asked, Bucket};
pub use faults::{Dialect, Fault, Rates};

pub use crate::versitygw::BUCKET;

/// A running server; it ends when this is dropped.
pub struct Fake {
    address: SocketAddr,
    bucket: Arc<Mutex<Bucket>>,
    _ends: oneshot::Sender<()>,
}

type Body = BoxBody<Bytes, std::io::Error>;

impl Fake {
    pub fn start() -> Self {
        let bucket = Arc::new(Mutex::new(Bucket::default()));
        let (ends, ended) = oneshot::channel();
        let (tell, told) = std::sync::mpsc::channel();
        let served = Arc::clone(&bucket);
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread();
            let runtime = { runtime }.enable_all().build().expect("a runtime");
            runtime.block_on(async {
                let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await;
                let listener = listener.expect("a port of loopback");
                tell.send(listener.local_addr().expect("it has one"))
                    .expect("it is awaited");
                tokio::select! {
                    _ = ended => {}
                    () = serve(listener, served) => {}
                }
            });
        });
        Self {
            address: told.recv().expect("it starts"),
            bucket,
            _ends: ends,
        }
    }

    /// Its address, as the endpoint of a place.
    pub fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Sets the faults of the requests that come from now on, in order; `None` is a request that is done as asked.
    pub fn fail(&self, faults: impl IntoIterator<Item = Option<Fault>>) {
        self.bucket.lock().faults.extend(faults);
    }

    /// How often it does each thing wrong from now on, by a seed.
    pub fn fail_at_random(&self, rates: Rates, seed: u64) {
        self.bucket.lock().at_random = Some((rates, onefold_io::Random(seed)));
    }

    /// Sets the treatment of conditional requests.
    pub fn speak(&self, dialect: Dialect) {
        self.bucket.lock().dialect = dialect;
    }

    /// Nothing goes wrong any more, and what is late comes now.
    pub fn settle(&self) {
        let bucket = &mut *self.bucket.lock();
        bucket.faults.clear();
        bucket.at_random = None;
        bucket.settle();
    }

    /// Its clock is this machine's.
    pub fn tell_the_time(&self) {
        self.bucket.lock().now_unix_s = jiff::Timestamp::now().as_second();
    }

    /// Lets time pass by its clock.
    pub fn advance_s(&self, seconds: i64) {
        self.bucket.lock().now_unix_s += seconds;
    }

    /// Requests so far, as "METHOD key".
    pub fn requests(&self) -> Vec<String> {
        self.bucket.lock().requests.clone()
    }

    /// The keys of all objects.
    pub fn keys(&self) -> Vec<String> {
        self.bucket.lock().objects.keys().cloned().collect()
    }

    /// Keys that one page of a list has at most.
    pub fn page(&self, keys: usize) {
        self.bucket.lock().page_keys = keys;
    }
}

async fn serve(listener: TcpListener, bucket: Arc<Mutex<Bucket>>) {
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            continue;
        };
        let bucket = Arc::clone(&bucket);
        tokio::spawn(async move {
            let service = service_fn(move |request| answer(request, Arc::clone(&bucket)));
            let connection = hyper::server::conn::http1::Builder::new();
            let _ = connection
                .serve_connection(TokioIo::new(stream), service)
                .await;
        });
    }
}

/// An error closes the connection without an answer.
async fn answer(
    request: Request<Incoming>,
    bucket: Arc<Mutex<Bucket>>,
) -> std::io::Result<Response<Body>> {
    let (parts, body) = request.into_parts();
    let body = body.collect().await.map_err(std::io::Error::other)?;
    let asked = Asked::of(&parts, body.to_bytes());
    let (fault, done) = bucket.lock().take(&asked);
    match fault {
        Some(Fault::Stalled) => std::future::pending().await,
        Some(Fault::Refused | Fault::AnswerLost | Fault::Late(_)) => Err(as_told()),
        Some(Fault::Truncated) => Ok(cut_off(done)),
        _ => Ok(done.map(whole)),
    }
}

fn as_told() -> std::io::Error {
    std::io::Error::other("cut off as told")
}

fn whole(body: Bytes) -> Body {
    Full::new(body).map_err(|never| match never {}).boxed()
}

/// An answer whose body ends in the middle, with its connection.
fn cut_off(answer: Response<Bytes>) -> Response<Body> {
    let (mut parts, body) = answer.into_parts();
    parts
        .headers
        .insert("content-length", (body.len().max(1)).into());
    let frames = [
        Ok(Frame::data(body.slice(..body.len() / 2))),
        Err(as_told()),
    ];
    let body = StreamBody::new(futures_util::stream::iter(frames)).boxed();
    Response::from_parts(parts, body)
}
