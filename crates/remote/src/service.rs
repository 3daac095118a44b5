//! The service that a bucket lies at: its address, credentials and certificates, as the environment names them.

use std::sync::Arc;

use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey};
use object_store::{ClientOptions, RetryConfig};
use onefold_store::{Error, Result};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};

use crate::client::Client;
use crate::http::{Http, Traffic};
use crate::profile::{self, KeySource, ProcessKeys, variable};
use crate::{BucketLocation, Credentials, Options};

/// A client of the bucket.
///
/// # Errors
/// [`Error::Option`]: what is said of the service makes no sense.
pub(crate) fn client(location: &BucketLocation, options: &Options) -> Result<Client> {
    let (up, down) = (options.upload_bytes_s_max, options.download_bytes_s_max);
    let traffic = Arc::new(Traffic::new(up, down));
    let mut builder = AmazonS3Builder::from_env()
        .with_bucket_name(&location.bucket)
        // Each attempt is to be seen by us.
        .with_retry(RetryConfig {
            max_retries: 0,
            ..RetryConfig::default()
        });
    builder = match &options.credentials {
        Credentials::Keys { id, secret } => builder
            .with_access_key_id(id)
            .with_secret_access_key(secret),
        Credentials::Environment => with_profile(builder)?,
    };
    if let Some(endpoint) = &location.endpoint {
        builder = builder.with_config(AmazonS3ConfigKey::S3Endpoint, endpoint);
    }
    if let Some(region) = location.region() {
        builder = builder.with_region(region);
    }
    let endpoint = [AmazonS3ConfigKey::S3Endpoint, AmazonS3ConfigKey::Endpoint]
        .iter()
        .find_map(|key| builder.get_config_value(key));
    let is_plain = endpoint.is_some_and(|endpoint| endpoint.starts_with("http://"));
    let http = Http::new(tls(options)?, Arc::clone(&traffic), options.stalled_after);
    let builder = builder
        .with_client_options(ClientOptions::new().with_allow_http(is_plain))
        .with_http_connector(http);
    let build = |deletes_singly| {
        let built = builder.clone().with_disable_bulk_delete(deletes_singly);
        let built = built.build();
        built.map_err(|error| Error::Option(format!("{location}: {error}")))
    };
    let stores = [build(false)?, build(true)?];
    Client::new(stores, &location.prefix, traffic, options)
}

/// Takes the settings of the environment, and of a profile where the environment names no keys.
fn with_profile(mut builder: AmazonS3Builder) -> Result<AmazonS3Builder> {
    const OF_KEYS: [&str; 4] = [
        "AWS_ACCESS_KEY_ID",
        "AWS_WEB_IDENTITY_TOKEN_FILE",
        "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
        "AWS_CONTAINER_CREDENTIALS_FULL_URI",
    ];
    let has_keys = OF_KEYS.iter().any(|name| variable(name).is_some());
    let profile = match profile::of_environment() {
        // The failure of a profile that is not needed does not matter.
        Err(_) if has_keys => return Ok(builder),
        profile => profile.map_err(Error::Option)?,
    };
    let is_unsaid = |builder: &AmazonS3Builder, key| builder.get_config_value(&key).is_none();
    if let Some(region) = profile.region
        && is_unsaid(&builder, AmazonS3ConfigKey::Region)
        && is_unsaid(&builder, AmazonS3ConfigKey::DefaultRegion)
    {
        builder = builder.with_region(region);
    }
    if let Some(endpoint) = profile.endpoint
        && is_unsaid(&builder, AmazonS3ConfigKey::Endpoint)
        && is_unsaid(&builder, AmazonS3ConfigKey::S3Endpoint)
    {
        builder = builder.with_endpoint(endpoint);
    }
    Ok(match profile.keys.filter(|_| !has_keys) {
        Some(KeySource::Fixed { id, secret, token }) => {
            let builder = builder
                .with_access_key_id(id)
                .with_secret_access_key(secret);
            match token {
                Some(token) => builder.with_token(token),
                None => builder,
            }
        }
        Some(KeySource::Process(command)) => {
            builder.with_credentials(Arc::new(ProcessKeys::new(command)))
        }
        None => builder,
    })
}

/// Trusts what the system trusts, and the certificates that the user names.
fn tls(options: &Options) -> Result<ClientConfig> {
    let mut roots = RootCertStore::empty();
    let native = rustls_native_certs::load_native_certs();
    roots.add_parsable_certificates(native.certs);
    for file in &options.cacert {
        let wrong = |error: String| Error::Option(format!("{}: {error}", file.display()));
        let certificates = CertificateDer::pem_file_iter(file).map_err(|e| wrong(e.to_string()))?;
        let before = roots.len();
        for certificate in certificates {
            let certificate = certificate.map_err(|e| wrong(e.to_string()))?;
            roots.add(certificate).map_err(|e| wrong(e.to_string()))?;
        }
        if roots.len() == before {
            return Err(wrong("there is no certificate in it, in PEM".into()));
        }
    }
    let ring = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(ring)
        .with_safe_default_protocol_versions()
        .map_err(|error| Error::Machine(error.to_string()))?;
    Ok(config.with_root_certificates(roots).with_no_client_auth())
}
