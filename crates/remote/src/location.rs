//! Where a bucket is, as people write it.
//!
//! `s3://BUCKET/PREFIX` is a bucket of the endpoint that the environment names, or of Amazon's.
//! `s3:https://HOST/BUCKET/PREFIX` and `s3:HOST/BUCKET/PREFIX`, which is how restic writes it, name the endpoint, too.

/// A bucket, and the prefix of all names of a repository in it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BucketLocation {
    /// The address of the service, `https://host:port`; none where the environment says it.
    pub endpoint: Option<String>,
    /// The bucket's name.
    pub bucket: String,
    /// Beginning of all names, without slashes at its ends; may be empty.
    pub prefix: String,
}

/// Beginning of every place of this kind.
const KIND: &str = "s3:";

impl BucketLocation {
    /// The location that `text` names, which begins with `s3:`.
    ///
    /// # Errors
    /// In words: what is missing, and how it is written.
    pub fn parse(text: &str) -> Result<Self, String> {
        let rest = text
            .strip_prefix(KIND)
            .ok_or("it does not begin with s3:")?;
        let wrong = |what: &str| {
            format!("{text}: {what}; write s3://BUCKET/PREFIX, or s3:https://HOST/BUCKET/PREFIX")
        };
        let (endpoint, path) = match rest.strip_prefix("//") {
            Some(path) => (None, path),
            None => {
                let (scheme, address) = scheme_of(rest);
                let (host, path) = address
                    .split_once('/')
                    .ok_or_else(|| wrong("there is a host and no bucket"))?;
                if host.is_empty() {
                    return Err(wrong("there is no host"));
                }
                (Some(format!("{scheme}://{host}")), path)
            }
        };
        let path = path.trim_matches('/');
        let (bucket, prefix) = path.split_once('/').unwrap_or((path, ""));
        if bucket.is_empty() {
            return Err(wrong("there is no bucket"));
        }
        if endpoint.is_none() && (bucket.contains(':') || bucket.ends_with(".amazonaws.com")) {
            return Err(wrong("a host stands where the bucket should"));
        }
        if !bucket.bytes().all(is_of_a_bucket) {
            return Err(wrong(
                "a bucket's name has lower-case letters, digits, dots and hyphens alone",
            ));
        }
        if prefix.split('/').any(|part| matches!(part, "." | "..")) {
            return Err(wrong("a prefix has no . and no .. in it"));
        }
        let parts = prefix.split('/').filter(|part| !part.is_empty());
        Ok(Self {
            endpoint,
            bucket: bucket.to_owned(),
            prefix: parts.collect::<Vec<_>>().join("/"),
        })
    }

    /// The region that Amazon's host names have in them.
    pub(crate) fn region(&self) -> Option<&str> {
        let (_, host) = self.endpoint.as_deref()?.split_once("://")?;
        let region = host.strip_prefix("s3.")?.strip_suffix(".amazonaws.com")?;
        (!region.is_empty() && !region.contains('.')).then_some(region)
    }
}

fn scheme_of(rest: &str) -> (&str, &str) {
    match rest.split_once("://") {
        Some((scheme @ ("http" | "https"), address)) => (scheme, address),
        _ => ("https", rest),
    }
}

/// Buckets of long ago and of other stores have capitals and underscores, too.
fn is_of_a_bucket(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_')
}

impl std::fmt::Display for BucketLocation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let slash = if self.prefix.is_empty() { "" } else { "/" };
        let between = match &self.endpoint {
            Some(endpoint) => format!("{endpoint}/"),
            None => "//".into(),
        };
        write!(f, "{KIND}{between}{}{slash}{}", self.bucket, self.prefix)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_spellings_name_endpoint_bucket_and_prefix() {
        for (text, endpoint, bucket, prefix) in [
            ("s3://b", None, "b", ""),
            ("s3://b/p/q/", None, "b", "p/q"),
            ("s3://b//p", None, "b", "p"),
            ("s3:https://h:9000/b/p", Some("https://h:9000"), "b", "p"),
            (
                "s3:http://127.0.0.1:7070/b",
                Some("http://127.0.0.1:7070"),
                "b",
                "",
            ),
            (
                "s3:s3.eu-west-1.amazonaws.com/b/p",
                Some("https://s3.eu-west-1.amazonaws.com"),
                "b",
                "p",
            ),
        ] {
            let found = BucketLocation::parse(text).expect(text);
            let found = (
                found.endpoint.as_deref(),
                &found.bucket[..],
                &found.prefix[..],
            );
            assert_eq!(found, (endpoint, bucket, prefix), "{text}");
        }
    }

    #[test]
    fn what_is_shown_reads_as_the_same_place() {
        for text in [
            "s3://b",
            "s3://b/p/q",
            "s3:https://h:9000/b/p",
            "s3:http://h/b",
        ] {
            let location = BucketLocation::parse(text).expect(text);
            assert_eq!(location.to_string(), text);
        }
    }

    #[test]
    fn what_names_no_bucket_is_told_how_to_write_it() {
        for text in [
            "s3:",
            "s3://",
            "s3:bucket",
            "s3:https://host",
            "s3:https:///b",
            "s3://host:9000/b",
            "s3://s3.amazonaws.com/b",
            "s3://b/../c",
            "s3://b c",
        ] {
            let told = BucketLocation::parse(text).expect_err(text);
            assert!(told.contains("write s3://BUCKET/PREFIX"), "{told}");
        }
    }

    #[test]
    fn amazons_hosts_name_the_region() {
        let region = |text| {
            BucketLocation::parse(text)
                .ok()?
                .region()
                .map(str::to_owned)
        };
        let of_host = region("s3:https://s3.eu-central-1.amazonaws.com/b");
        assert_eq!(of_host.as_deref(), Some("eu-central-1"));
        assert_eq!(region("s3:https://s3.amazonaws.com/b"), None);
        assert_eq!(region("s3:https://play.example/b"), None);
        assert_eq!(region("s3://b"), None);
    }
}
