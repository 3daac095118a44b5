//! TLS of a server: certificate and key from files, and whose clients' certificates are taken.

use std::path::Path;
use std::sync::Arc;

use rustls::RootCertStore;
use rustls::ServerConfig;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;

use crate::{Error, Result};

/// A server's TLS, TLS 1.3 alone: the chain in `certificate`, its private `key`, both PEM. With `ca`, every client must
/// show a certificate that one of the certificates in this file has signed.
///
/// # Errors
/// [`Error::Tls`]: a file cannot be read, holds nothing of its kind, or the key is another's.
pub fn load(certificate: &Path, key: &Path, ca: Option<&Path>) -> Result<Arc<ServerConfig>> {
    let chain = certificates(certificate)?;
    let private = PrivateKeyDer::from_pem_file(key).map_err(|error| fail(key, &error))?;
    let provider = Arc::new(ring::default_provider());
    let builder = ServerConfig::builder_with_provider(provider.clone())
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(|error| fail(certificate, &error))?;
    let builder = match ca {
        None => builder.with_no_client_auth(),
        Some(ca) => {
            let mut roots = RootCertStore::empty();
            for root in certificates(ca)? {
                roots.add(root).map_err(|error| fail(ca, &error))?;
            }
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
                .build()
                .map_err(|error| fail(ca, &error))?;
            builder.with_client_cert_verifier(verifier)
        }
    };
    let config = builder
        .with_single_cert(chain, private)
        .map_err(|error| fail(certificate, &error))?;
    Ok(Arc::new(config))
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>> {
    let all: Vec<_> = CertificateDer::pem_file_iter(path)
        .and_then(Iterator::collect)
        .map_err(|error| fail(path, &error))?;
    if all.is_empty() {
        Err(fail(path, &"there is no certificate in it"))
    } else {
        Ok(all)
    }
}

fn fail(path: &Path, what: &dyn std::fmt::Display) -> Error {
    Error::Tls {
        path: path.to_path_buf(),
        what: what.to_string(),
    }
}
