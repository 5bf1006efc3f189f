//! The folder of a lake: a prefix of a bucket on S3-compatible storage, or a folder of this machine.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::{self, File};
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::{StreamExt, TryStreamExt};
use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey};
use object_store::local::LocalFileSystem;
use object_store::path::Path;
use object_store::prefix::PrefixStore;
use object_store::{
    BackoffConfig, Certificate, ClientOptions, Error, ObjectStore, ObjectStoreExt, PutMode, PutOptions, RetryConfig,
};

/// Max time of a request to the storage, and of its first attempt with all that follow.
const REQUEST: Duration = Duration::from_secs(60);
const ATTEMPTS: Duration = Duration::from_secs(60);
/// Max attempts after the first.
const ATTEMPTS_MAX: usize = 4;
/// Objects read at once.
const AT_ONCE: usize = 32;
/// Property with the access key.
const ACCESS_KEY: &str = "aws_access_key_id";
/// Properties that can be set. Others name files of this machine or places that get credentials.
const PROPERTIES: [&str; 14] = [
    ACCESS_KEY,
    "aws_allow_http",
    "aws_checksum_algorithm",
    "aws_conditional_put",
    "aws_disable_tagging",
    "aws_endpoint",
    "aws_region",
    "aws_request_payer",
    "aws_s3_express",
    "aws_server_side_encryption",
    "aws_skip_signature",
    "aws_sse_kms_key_id",
    "aws_unsigned_payload",
    "aws_virtual_hosted_style_request",
];

/// Where a lake is, and with what it is reached.
#[derive(Clone, Default)]
pub struct LakePlace {
    /// `s3://bucket/prefix` or `file:///folder`.
    pub url: String,
    /// Properties of S3, such as `aws_endpoint`, by the names of the environment variables in lower case.
    pub properties: BTreeMap<String, String>,
    /// Secret key of the access key in the properties.
    pub secret: Option<String>,
    /// Root certificates (PEM) in the place of the machine's.
    pub ca: Option<Vec<u8>>,
}

/// Debug output without secrets.
impl fmt::Debug for LakePlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LakePlace").field("url", &self.url).finish_non_exhaustive()
    }
}

/// Address, taken apart.
#[derive(Debug, PartialEq)]
enum Address {
    S3 { bucket: String, prefix: String },
    Folder(PathBuf),
}

impl Address {
    fn parse(url: &str) -> Result<Address, String> {
        if let Some(path) = url.strip_prefix("file://") {
            let path = PathBuf::from(path);
            return match path.is_absolute() {
                true => Ok(Address::Folder(path)),
                false => Err("the folder must be absolute, as in file:///srv/lake".to_owned()),
            };
        }
        let Some(rest) = url.strip_prefix("s3://") else {
            return Err("it must be as in s3://bucket/prefix or file:///folder".to_owned());
        };
        let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
        if bucket.is_empty() || bucket.contains(['@', ':', '?', '#']) {
            return Err("it must be as in s3://bucket/prefix; keys and endpoint are properties".to_owned());
        }
        Ok(Address::S3 { bucket: bucket.to_owned(), prefix: prefix.trim_matches('/').to_owned() })
    }
}

impl LakePlace {
    /// Checks the address and the properties, without connecting.
    ///
    /// # Errors
    /// Returns the key that is wrong, `url` or `properties`, and the reason.
    pub fn check(&self) -> Result<(), (&'static str, String)> {
        let address = Address::parse(&self.url).map_err(|why| ("url", why))?;
        if address == Address::Folder(PathBuf::from("/")) {
            return Err(("url", "the root of the file system is no lake".to_owned()));
        }
        for name in self.properties.keys() {
            use AmazonS3ConfigKey::{Bucket, SecretAccessKey};
            let why = match (&address, AmazonS3ConfigKey::from_str(name)) {
                (Address::Folder(_), _) => "a folder has no properties".to_owned(),
                (_, Ok(SecretAccessKey)) => "the secret key belongs into password_file".to_owned(),
                (_, Ok(Bucket)) => "the bucket belongs into url".to_owned(),
                (_, Ok(_)) if PROPERTIES.contains(&name.as_str()) => continue,
                (_, Ok(_)) => format!("{name:?} is taken from the environment only"),
                (_, Err(_)) => format!("{name:?} is not known"),
            };
            return Err(("properties", why));
        }
        Ok(())
    }

    /// Returns whether the properties have an access key, so that nothing is taken from the environment.
    pub fn has_key(&self) -> bool {
        self.properties.contains_key(ACCESS_KEY)
    }

    /// Connects.
    ///
    /// # Errors
    /// Returns an error in words if the folder cannot be made, or the properties are not enough.
    pub(crate) fn open(&self) -> Result<Folder, String> {
        match Address::parse(&self.url)? {
            Address::Folder(path) => {
                fs::create_dir_all(&path).map_err(|error| format!("{}: {error}", path.display()))?;
                let files = LocalFileSystem::new_with_prefix(&path).map_err(|error| error.to_string())?;
                Ok(Folder { objects: Arc::new(files), local: Some(path) })
            }
            Address::S3 { bucket, prefix } => {
                let mut client = ClientOptions::new().with_timeout(REQUEST);
                for certificate in self.ca.iter().map(|pem| Certificate::from_pem_bundle(pem)) {
                    for certificate in certificate.map_err(|error| error.to_string())? {
                        client = client.with_root_certificate(certificate);
                    }
                }
                let retry = RetryConfig {
                    backoff: BackoffConfig::default(),
                    max_retries: ATTEMPTS_MAX,
                    retry_timeout: ATTEMPTS,
                };
                let s3 = if self.has_key() { AmazonS3Builder::new() } else { AmazonS3Builder::from_env() };
                let mut s3 = s3.with_client_options(client).with_retry(retry).with_bucket_name(bucket);
                for (name, value) in &self.properties {
                    let key = AmazonS3ConfigKey::from_str(name).map_err(|error| error.to_string())?;
                    s3 = s3.with_config(key, value);
                }
                if let Some(secret) = &self.secret {
                    s3 = s3.with_secret_access_key(secret);
                }
                let s3 = s3.build().map_err(|error| error.to_string())?;
                Ok(Folder { objects: Arc::new(PrefixStore::new(s3, prefix)), local: None })
            }
        }
    }
}

/// An open lake folder.
#[derive(Clone, Debug)]
pub(crate) struct Folder {
    pub(crate) objects: Arc<dyn ObjectStore>,
    /// Path on this machine.
    local: Option<PathBuf>,
}

impl Folder {
    /// Returns a folder of objects that are durable once they are written.
    #[cfg(test)]
    pub(crate) fn of(objects: Arc<dyn ObjectStore>) -> Folder {
        Folder { objects, local: None }
    }

    /// Writes an object, which is durable then. Returns false if there is one already and it is to be new.
    pub(crate) async fn put(&self, path: &Path, bytes: Vec<u8>, is_new: bool) -> Result<bool, String> {
        let mode = if is_new { PutMode::Create } else { PutMode::Overwrite };
        match self.objects.put_opts(path, bytes.into(), PutOptions::from(mode)).await {
            Ok(_) => {}
            Err(Error::AlreadyExists { .. }) => return Ok(false),
            Err(error) => return Err(error.to_string()),
        }
        let Some(root) = &self.local else { return Ok(true) };
        // The file, and each folder that may have a new entry.
        let mut synced = root.join(path.as_ref());
        loop {
            let file = File::open(&synced).and_then(|file| file.sync_all());
            file.map_err(|error| format!("{}: {error}", synced.display()))?;
            if synced == *root || !synced.pop() {
                return Ok(true);
            }
        }
    }

    /// Reads an object. Returns `None` if there is none.
    pub(crate) async fn get(&self, path: &Path) -> Result<Option<Bytes>, String> {
        let read = async { self.objects.get(path).await?.bytes().await };
        match read.await {
            Ok(bytes) => Ok(Some(bytes)),
            Err(Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(error.to_string()),
        }
    }

    /// Reads objects, and returns their contents in the order of their paths.
    pub(crate) async fn get_all(&self, paths: Vec<Path>) -> Result<Vec<(Path, Option<Bytes>)>, String> {
        let read = |path: Path| async { self.get(&path).await.map(|bytes| (path, bytes)) };
        futures::stream::iter(paths.into_iter().map(read)).buffered(AT_ONCE).try_collect().await
    }

    /// Lists the objects below a folder.
    pub(crate) async fn list(&self, below: &Path) -> Result<Vec<Path>, String> {
        let paths: Result<Vec<Path>, Error> =
            self.objects.list(Some(below)).map_ok(|meta| meta.location).try_collect().await;
        match paths {
            Ok(paths) => Ok(paths),
            Err(Error::NotFound { .. }) => Ok(Vec::new()),
            Err(error) => Err(error.to_string()),
        }
    }

    /// Deletes objects. Those that are not there are no error.
    pub(crate) async fn delete(&self, paths: impl IntoIterator<Item = Path>) -> Result<(), String> {
        for path in paths {
            match self.objects.delete(&path).await {
                Ok(()) | Err(Error::NotFound { .. }) => {}
                Err(error) => return Err(error.to_string()),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_properties_are_known() {
        assert!(PROPERTIES.iter().all(|name| AmazonS3ConfigKey::from_str(name).is_ok()));
    }

    #[test]
    fn addresses_and_properties_are_checked() {
        let check = |url: &str, properties: &[(&str, &str)]| {
            let properties = properties.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
            LakePlace { url: url.to_owned(), properties, ..LakePlace::default() }.check()
        };
        assert_eq!(check("s3://bucket", &[("aws_endpoint", "http://127.0.0.1:5000")]), Ok(()));
        assert_eq!(check("file:///srv/lake", &[]), Ok(()));
        for url in ["file://lake", "file:///", "/srv/lake", "s3://", "s3:///x", "s3://key@bucket", "http://host"] {
            assert_eq!(check(url, &[]).unwrap_err().0, "url", "{url}");
        }
        for name in
            ["aws_secret_access_key", "aws_nothing", "bucket", "aws_web_identity_token_file", "aws_imdsv1_fallback"]
        {
            assert_eq!(check("s3://bucket/a", &[(name, "x")]).unwrap_err().0, "properties", "{name}");
        }
        assert_eq!(check("file:///srv/lake", &[("aws_region", "x")]).unwrap_err().0, "properties");
    }
}
