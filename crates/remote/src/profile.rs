//! Profiles of `~/.aws/credentials` and `~/.aws/config`, which the crate below does not read: keys, a process that
//! gives keys, region and address.

use std::collections::HashMap;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;

use async_trait::async_trait;
use jiff::{Timestamp, ToSpan};
use object_store::CredentialProvider;
use object_store::aws::AwsCredential;
use parking_lot::Mutex;
use serde::Deserialize;

/// The settings of a profile that count here.
#[derive(PartialEq, Eq, Debug)]
pub(crate) struct Profile {
    /// Keys, or where they come from; none where the profile says nothing of them.
    pub keys: Option<KeySource>,
    pub region: Option<String>,
    pub endpoint: Option<String>,
}

/// Where keys come from.
#[derive(PartialEq, Eq, Debug)]
pub(crate) enum KeySource {
    Fixed {
        id: String,
        secret: String,
        token: Option<String>,
    },
    /// A command that prints them.
    Process(String),
}

/// The sections of a file: of each, its values by name.
type Sections = HashMap<String, HashMap<String, String>>;

/// The profile that the environment names, or the default one.
///
/// # Errors
/// In words: a profile is named and is in neither file, or gets its keys in a way that is not served.
pub(crate) fn of_environment() -> Result<Profile, String> {
    let named = variable("AWS_PROFILE");
    let file = |name: &str, usual: &str| {
        let usual = || {
            Some(
                PathBuf::from(std::env::var_os("HOME")?)
                    .join(".aws")
                    .join(usual),
            )
        };
        let path = variable(name).map(PathBuf::from).or_else(usual)?;
        std::fs::read_to_string(path).ok()
    };
    let credentials = file("AWS_SHARED_CREDENTIALS_FILE", "credentials").unwrap_or_default();
    let config = file("AWS_CONFIG_FILE", "config").unwrap_or_default();
    find(named.as_deref(), &credentials, &config)
}

/// A variable that is set and not empty.
pub(crate) fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

fn find(named: Option<&str>, credentials: &str, config: &str) -> Result<Profile, String> {
    let name = named.unwrap_or("default");
    let (mut credentials, mut config) = (sections(credentials), sections(config));
    let in_credentials = credentials.remove(name);
    let in_config = match name {
        "default" => config
            .remove(name)
            .or_else(|| config.remove("profile default")),
        _ => config.remove(&format!("profile {name}")),
    };
    if named.is_some() && in_credentials.is_none() && in_config.is_none() {
        return Err(format!(
            "AWS_PROFILE names the profile {name}, and neither ~/.aws/credentials nor ~/.aws/config has it"
        ));
    }
    // Values in the file of credentials win.
    let mut values = in_config.unwrap_or_default();
    values.extend(in_credentials.unwrap_or_default());
    let keys = keys(name, &mut values)?;
    Ok(Profile {
        keys,
        region: values.remove("region"),
        endpoint: values.remove("endpoint_url"),
    })
}

fn keys(name: &str, values: &mut HashMap<String, String>) -> Result<Option<KeySource>, String> {
    let id = values.remove("aws_access_key_id");
    let secret = values.remove("aws_secret_access_key");
    if let (Some(id), Some(secret)) = (id, secret) {
        let token = values.remove("aws_session_token");
        return Ok(Some(KeySource::Fixed { id, secret, token }));
    }
    if let Some(command) = values.remove("credential_process") {
        return Ok(Some(KeySource::Process(command)));
    }
    let not_served = ["role_arn", "sso_session", "sso_start_url", "login_session"];
    match not_served.iter().find(|key| values.contains_key(**key)) {
        Some(key) => Err(format!(
            "the profile {name} gets its keys by {key}, which is not served: give it \
             credential_process = aws configure export-credentials --profile {name}"
        )),
        None => Ok(None),
    }
}

fn sections(text: &str) -> Sections {
    let mut sections = Sections::new();
    let mut current = String::new();
    for line in text.lines() {
        // An indented line belongs to the value above it, and none of the values here has any.
        if line.starts_with([' ', '\t', '#', ';']) {
            continue;
        }
        if let Some(name) = line.strip_prefix('[') {
            let name = name.split(']').next().unwrap_or_default();
            current = name.split_whitespace().collect::<Vec<_>>().join(" ");
            sections.entry(current.clone()).or_default();
        } else if let Some((key, value)) = line.split_once('=') {
            let values = sections.entry(current.clone()).or_default();
            values.insert(key.trim().to_lowercase(), value.trim().to_owned());
        }
    }
    sections
}

/// Keys that a process gives, asked for again before they expire.
#[derive(Debug)]
pub(crate) struct ProcessKeys {
    command: String,
    /// With the time from which on they are asked for again.
    kept: Mutex<Option<(Arc<AwsCredential>, Option<Timestamp>)>>,
}

/// Output of such a process.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Printed {
    version: u32,
    access_key_id: String,
    secret_access_key: String,
    session_token: Option<String>,
    expiration: Option<Timestamp>,
}

impl ProcessKeys {
    pub fn new(command: String) -> Self {
        Self {
            command,
            kept: Mutex::new(None),
        }
    }

    fn get(&self) -> Result<Arc<AwsCredential>, String> {
        let mut kept = self.kept.lock();
        if let Some((keys, until)) = &*kept
            && until.is_none_or(|until| Timestamp::now() < until)
        {
            return Ok(Arc::clone(keys));
        }
        let printed = self.run()?;
        let keys = Arc::new(AwsCredential {
            key_id: printed.access_key_id,
            secret_key: printed.secret_access_key,
            token: printed.session_token,
        });
        let until = printed.expiration.map(|at| at - 5.minutes());
        *kept = Some((Arc::clone(&keys), until));
        Ok(keys)
    }

    fn run(&self) -> Result<Printed, String> {
        let failed = |what: String| format!("credential_process ({}): {what}", self.command);
        let output = Command::new("sh")
            .args(["-c", &self.command])
            .stdin(Stdio::null())
            .stderr(Stdio::inherit())
            .output()
            .map_err(|error| failed(error.to_string()))?;
        if !output.status.success() {
            return Err(failed(output.status.to_string()));
        }
        let printed: Printed = serde_json::from_slice(&output.stdout)
            // The error would show the keys.
            .map_err(|error| failed(format!("it printed no keys (line {})", error.line())))?;
        match printed.version {
            1 => Ok(printed),
            other => Err(failed(format!(
                "version {other} of its answer is not known"
            ))),
        }
    }
}

#[async_trait]
impl CredentialProvider for ProcessKeys {
    type Credential = AwsCredential;

    async fn get_credential(&self) -> object_store::Result<Arc<AwsCredential>> {
        self.get().map_err(|what| object_store::Error::Generic {
            store: "S3",
            source: what.into(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CREDENTIALS: &str = "# keys\n[default]\naws_access_key_id = A\naws_secret_access_key=B = C\n\n[backup]\naws_access_key_id=D\naws_secret_access_key=E\naws_session_token=F\n";
    const CONFIG: &str = "[default]\nregion = eu-west-1\ns3 =\n  max_concurrent_requests = 3\n[profile  backup]\nendpoint_url = https://h:9000\n[profile tool]\ncredential_process = /usr/bin/keys --for me\n[profile role]\nrole_arn = arn:x\n";

    #[test]
    fn keys_region_and_address_come_from_both_files() {
        let found = find(None, CREDENTIALS, CONFIG).unwrap();
        let (id, secret) = ("A".into(), "B = C".into());
        let token = None;
        assert_eq!(found.keys, Some(KeySource::Fixed { id, secret, token }));
        assert_eq!(found.region.as_deref(), Some("eu-west-1"));
        let found = find(Some("backup"), CREDENTIALS, CONFIG).unwrap();
        let (id, secret) = ("D".into(), "E".into());
        let token = Some("F".into());
        assert_eq!(found.keys, Some(KeySource::Fixed { id, secret, token }));
        assert_eq!(found.endpoint.as_deref(), Some("https://h:9000"));
        let found = find(Some("tool"), CREDENTIALS, CONFIG).unwrap();
        let process = KeySource::Process("/usr/bin/keys --for me".into());
        assert_eq!(found.keys, Some(process));
    }

    #[test]
    fn a_profile_that_is_missing_or_not_served_is_told() {
        assert!(
            find(Some("nobody"), CREDENTIALS, CONFIG)
                .unwrap_err()
                .contains("nobody")
        );
        assert!(
            find(Some("role"), CREDENTIALS, CONFIG)
                .unwrap_err()
                .contains("role_arn")
        );
        assert_eq!(find(None, "", "").unwrap().keys, None);
    }

    #[test]
    fn a_process_gives_keys_until_they_expire() {
        let counter = tempfile::NamedTempFile::new().unwrap();
        let keys = |expiration: &str| {
            let path = counter.path().display();
            ProcessKeys::new(format!(
                r#"echo >> {path}; echo '{{"Version": 1, "AccessKeyId": "A", "SecretAccessKey": "B", "Expiration": "{expiration}"}}'"#
            ))
        };
        let asked = || std::fs::read(counter.path()).unwrap().len();
        let lasting = keys("2999-01-01T00:00:00Z");
        assert_eq!(lasting.get().unwrap().key_id, "A");
        assert_eq!(lasting.get().unwrap().secret_key, "B");
        assert_eq!(asked(), 1);
        let expired = keys("2020-01-01T00:00:00Z");
        let _ = (expired.get().unwrap(), expired.get().unwrap());
        assert_eq!(asked(), 3);
    }

    #[test]
    fn what_a_failing_process_prints_is_shown_nowhere() {
        let told = ProcessKeys::new("echo secret-x".into()).get().unwrap_err();
        assert!(told.contains("printed no keys"), "{told}");
        assert!(
            ProcessKeys::new("exit 3".into())
                .get()
                .unwrap_err()
                .contains("3")
        );
        let other = r#"echo '{"Version": 2, "AccessKeyId": "A", "SecretAccessKey": "B"}'"#;
        assert!(
            ProcessKeys::new(other.into())
                .get()
                .unwrap_err()
                .contains("version 2")
        );
    }
}
