//! Tokens of an issuer: JSON Web Tokens (RFC 7519), signed with the one key that the broker trusts.
//!
//! The key decides the algorithm, and a token must name exactly this algorithm. So no token without a signature is accepted, and the
//! author of a token cannot choose how it is checked (RFC 8725).

use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use aws_lc_rs::hmac;
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED, ED25519, RSA_PKCS1_2048_8192_SHA256, UnparsedPublicKey, VerificationAlgorithm,
};
use data_encoding::{BASE64_NOPAD, BASE64URL_NOPAD};
use peers::Secret;
use serde::Deserialize;
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};
use x509_parser::pem::parse_x509_pem;
use x509_parser::prelude::FromDer;
use x509_parser::public_key::PublicKey;
use x509_parser::x509::SubjectPublicKeyInfo;

use crate::file::{UsersFileError, read_key};
use crate::names::check_name;
use crate::weak_secret::MIN_HS256_BYTES;

/// How far the clocks of issuer and broker may differ.
const LEEWAY: Duration = Duration::from_secs(30);

/// The most roles of a token.
const MAX_ROLES: usize = 32;

/// The tokens of an issuer that are accepted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JwtOptions {
    /// The file of the key: a public key in PEM (RSA, P-256 or Ed25519), or the secret of HS256, at least 32 bytes.
    pub key: PathBuf,
    /// The issuer: `iss` must be this.
    pub issuer: String,
    /// This broker: `aud` must be this, or contain it.
    pub audience: String,
    /// The claim with the roles of the user, a list of texts.
    pub roles: String,
}

/// The key of an issuer cannot be used. Its author is at fault.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JwtKeyError {
    /// The file cannot be read.
    #[error(transparent)]
    File(#[from] UsersFileError),
    /// The file has no key of a known kind.
    #[error(
        "{}: it is no public key in PEM (RSA of 2048 bits or more, P-256 or Ed25519), and no secret of HS256 with at least 32 bytes; a \
         set of keys (JWKS) or a key in another form must be written as PEM",
        path.display()
    )]
    Key {
        /// The file.
        path: PathBuf,
    },
}

enum Key {
    Secret(Box<hmac::Key>),
    Public { algorithm: &'static dyn VerificationAlgorithm, bytes: Vec<u8> },
}

/// Checks tokens of an issuer.
pub(crate) struct Jwt {
    options: JwtOptions,
    /// The algorithm that a token must name.
    algorithm: &'static str,
    key: Key,
    fingerprint: [u8; 32],
}

/// The user of a valid token.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Claims {
    pub(crate) user: String,
    pub(crate) roles: Vec<String>,
    pub(crate) expires: SystemTime,
}

#[derive(Deserialize)]
struct Header {
    alg: String,
    /// Extensions that a reader must know. This reader knows none, so a token with extensions is refused.
    crit: Option<Value>,
}

impl Jwt {
    pub(crate) fn open(options: &JwtOptions) -> Result<Self, JwtKeyError> {
        let bytes = read_key(&options.key)?;
        let (algorithm, key) =
            key_of(&bytes).ok_or_else(|| JwtKeyError::Key { path: options.key.clone() })?;
        let texts = [&options.issuer, &options.audience, &options.roles];
        let hash = texts.iter().fold(Sha256::new_with_prefix(&*bytes), |hash, text| {
            hash.chain_update((text.len() as u64).to_le_bytes()).chain_update(text.as_bytes())
        });
        Ok(Self { options: options.clone(), algorithm, key, fingerprint: hash.finalize().into() })
    }

    /// A hash of the key, the issuer and the audience. A login is valid while it stays the same.
    pub(crate) fn fingerprint(&self) -> [u8; 32] {
        self.fingerprint
    }

    /// Checks a token.
    ///
    /// # Errors
    /// The fault, for the log.
    pub(crate) fn check(&self, token: &Secret, now: SystemTime) -> Result<Claims, &'static str> {
        let (signed, signature) = token.expose().rsplit_once('.').ok_or("it has no three parts")?;
        let (header, claims) = signed.split_once('.').ok_or("it has no three parts")?;
        let header: Header = part(header).ok_or("its header is not valid")?;
        if header.alg != self.algorithm {
            return Err("its algorithm is not that of the key (users.jwt_key)");
        }
        if header.crit.is_some() {
            return Err("it has critical extensions");
        }
        let signature =
            BASE64URL_NOPAD.decode(signature.as_bytes()).map_err(|_| "its signature is not valid")?;
        if !self.is_signed(signed.as_bytes(), &signature) {
            return Err("its signature is not valid");
        }
        // The signature is right, so the claims can be used.
        let claims: Map<String, Value> = part(claims).ok_or("its claims are not valid")?;
        self.claims(&claims, now)
    }

    fn is_signed(&self, bytes: &[u8], signature: &[u8]) -> bool {
        match &self.key {
            Key::Secret(key) => hmac::verify(key, bytes, signature).is_ok(),
            Key::Public { algorithm, bytes: key } => {
                UnparsedPublicKey::new(*algorithm, key).verify(bytes, signature).is_ok()
            }
        }
    }

    fn claims(&self, claims: &Map<String, Value>, now: SystemTime) -> Result<Claims, &'static str> {
        let text = |name: &str| claims.get(name).and_then(Value::as_str);
        if text("iss") != Some(&self.options.issuer) {
            return Err("its issuer is another one (users.jwt_issuer)");
        }
        let audience = Some(self.options.audience.as_str());
        let is_for_us = match claims.get("aud") {
            Some(Value::Array(all)) => all.iter().any(|one| one.as_str() == audience),
            Some(one) => one.as_str() == audience,
            None => false,
        };
        if !is_for_us {
            return Err("it is for another audience (users.jwt_audience)");
        }
        let expires = claims.get("exp").and_then(time).ok_or("it has no time of its end (exp)")?;
        if expires.checked_add(LEEWAY).is_none_or(|end| end <= now) {
            return Err("it has expired");
        }
        if let Some(begin) = claims.get("nbf") {
            let begin = time(begin).ok_or("its begin (nbf) is no time")?;
            if begin > now + LEEWAY {
                return Err("it is not valid yet");
            }
        }
        let user = text("sub").filter(|user| check_name(user).is_ok());
        let user = user.ok_or("its subject (sub) is no name of a user")?.to_owned();
        Ok(Claims { user, roles: self.roles(claims)?, expires: expires + LEEWAY })
    }

    fn roles(&self, claims: &Map<String, Value>) -> Result<Vec<String>, &'static str> {
        let roles = match claims.get(&self.options.roles) {
            None => return Ok(Vec::new()),
            Some(Value::Array(roles)) if roles.len() <= MAX_ROLES => roles,
            Some(_) => return Err("its roles are no list of at most 32 names"),
        };
        let role = |role: &Value| role.as_str().filter(|role| check_name(role).is_ok()).map(str::to_owned);
        roles.iter().map(role).collect::<Option<_>>().ok_or("its roles are no list of at most 32 names")
    }
}

/// A part of a token: JSON in base64.
fn part<T: serde::de::DeserializeOwned>(text: &str) -> Option<T> {
    serde_json::from_slice(&BASE64URL_NOPAD.decode(text.as_bytes()).ok()?).ok()
}

/// Seconds since 1970, perhaps with a fraction.
fn time(value: &Value) -> Option<SystemTime> {
    let seconds = value.as_f64().filter(|seconds| *seconds >= 0.0)?;
    SystemTime::UNIX_EPOCH.checked_add(Duration::try_from_secs_f64(seconds).ok()?)
}

fn key_of(bytes: &[u8]) -> Option<(&'static str, Key)> {
    let Ok((_, pem)) = parse_x509_pem(bytes) else {
        let secret = bytes.trim_ascii_end();
        let is_secret = secret.len() >= MIN_HS256_BYTES && !may_be_public(bytes);
        return is_secret
            .then(|| ("HS256", Key::Secret(Box::new(hmac::Key::new(hmac::HMAC_SHA256, secret)))));
    };
    if pem.label != "PUBLIC KEY" {
        return None;
    }
    let (_, info) = SubjectPublicKeyInfo::from_der(&pem.contents).ok()?;
    let public = |algorithm: &'static dyn VerificationAlgorithm| Key::Public {
        algorithm,
        bytes: info.subject_public_key.data.to_vec(),
    };
    match info.parsed().ok()? {
        PublicKey::RSA(key) if key.key_size() >= 2048 => Some(("RS256", public(&RSA_PKCS1_2048_8192_SHA256))),
        PublicKey::EC(point) if point.key_size() == 256 => Some(("ES256", public(&ECDSA_P256_SHA256_FIXED))),
        _ if info.algorithm.algorithm == x509_parser::oid_registry::OID_SIG_ED25519 => {
            Some(("EdDSA", public(&ED25519)))
        }
        _ => None,
    }
}

/// True if the file may be a public key in another format (SSH, JWK, DER, damaged PEM). Used as an HS256 secret it would let anyone
/// sign tokens.
fn may_be_public(bytes: &[u8]) -> bool {
    // PEM that is damaged, or in UTF-16.
    let is_text = |byte: &u8| *byte != 0 && !byte.is_ascii_whitespace();
    let text: Vec<u8> = bytes.iter().copied().filter(is_text).collect();
    let is_pem = text.windows(5).any(|five| five == b"-----");
    let is_ssh = [&b"ssh-"[..], b"ecdsa-", b"sk-ssh-", b"sk-ecdsa-", b"----BEGIN"];
    let is_ssh = is_ssh.iter().any(|begin| text.starts_with(begin));
    let is_jwk = serde_json::from_slice::<Map<String, Value>>(bytes).is_ok();
    let bare = text.strip_suffix(b"==").or_else(|| text.strip_suffix(b"=")).unwrap_or(&text);
    let decoded = [BASE64_NOPAD, BASE64URL_NOPAD].map(|base| base.decode(bare).ok());
    is_pem || is_ssh || is_jwk || is_der(bytes) || decoded.iter().flatten().any(|bytes| is_der(bytes))
}

/// Whether bytes are one sequence in DER, as keys and certificates are, and perhaps a newline. The last byte of a key may look like one.
fn is_der(bytes: &[u8]) -> bool {
    let parsed = x509_parser::der_parser::parse_der(bytes);
    bytes.first() == Some(&0x30) && parsed.is_ok_and(|(rest, _)| rest.trim_ascii().is_empty())
}

#[cfg(test)]
mod tests {
    use aws_lc_rs::rand::SystemRandom;
    use aws_lc_rs::signature::{
        ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair, RSA_PKCS1_SHA256, RsaKeyPair,
    };
    use serde_json::json;

    use super::*;

    const NOW: u64 = 1_800_000_000;

    fn now() -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(NOW)
    }

    type Sign = Box<dyn Fn(&[u8]) -> Vec<u8>>;

    /// A trusted issuer, and how it signs.
    struct Issuer {
        jwt: Jwt,
        sign: Sign,
    }

    impl Issuer {
        fn new(key: &[u8], sign: Sign) -> Self {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("key");
            std::fs::write(&path, key).unwrap();
            std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
            let [issuer, audience, roles] = ["https://id.example.com", "rbmq", "roles"].map(str::to_owned);
            let jwt = Jwt::open(&JwtOptions { key: path, issuer, audience, roles }).unwrap();
            Self { jwt, sign }
        }

        fn token(&self, header: &Value, claims: &Value) -> String {
            let part = |value: &Value| BASE64URL_NOPAD.encode(value.to_string().as_bytes());
            let signed = format!("{}.{}", part(header), part(claims));
            let signature = BASE64URL_NOPAD.encode(&(self.sign)(signed.as_bytes()));
            format!("{signed}.{signature}")
        }

        fn check(&self, header: &Value, claims: &Value) -> Result<Claims, &'static str> {
            self.jwt.check(&Secret::from(self.token(header, claims)), now())
        }
    }

    fn secret() -> Issuer {
        let secret = b"0123456789abcdef0123456789abcdef";
        let key = hmac::Key::new(hmac::HMAC_SHA256, secret);
        Issuer::new(secret, Box::new(move |bytes| hmac::sign(&key, bytes).as_ref().to_vec()))
    }

    fn p256() -> Issuer {
        let key = rcgen::KeyPair::generate().unwrap();
        let pair = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &key.serialize_der()).unwrap();
        let sign = move |bytes: &[u8]| pair.sign(&SystemRandom::new(), bytes).unwrap().as_ref().to_vec();
        Issuer::new(key.public_key_pem().as_bytes(), Box::new(sign))
    }

    fn ed25519() -> Issuer {
        let key = rcgen::KeyPair::generate_for(&rcgen::PKCS_ED25519).unwrap();
        let pair = Ed25519KeyPair::from_pkcs8(&key.serialize_der()).unwrap();
        Issuer::new(
            key.public_key_pem().as_bytes(),
            Box::new(move |bytes| pair.sign(bytes).as_ref().to_vec()),
        )
    }

    fn rsa() -> Issuer {
        let key = rcgen::KeyPair::generate_for(&rcgen::PKCS_RSA_SHA256).unwrap();
        let pair = RsaKeyPair::from_pkcs8(&key.serialize_der()).unwrap();
        let sign = move |bytes: &[u8]| {
            let mut signature = vec![0; pair.public_modulus_len()];
            pair.sign(&RSA_PKCS1_SHA256, &SystemRandom::new(), bytes, &mut signature).unwrap();
            signature
        };
        Issuer::new(key.public_key_pem().as_bytes(), Box::new(sign))
    }

    fn claims() -> Value {
        json!({
            "iss": "https://id.example.com", "aud": "rbmq", "sub": "alice", "exp": NOW + 60, "nbf": NOW - 60, "roles": ["sensor"]
        })
    }

    #[test]
    fn a_token_is_checked_with_the_algorithm_of_the_key() {
        for (issuer, algorithm) in
            [(secret(), "HS256"), (p256(), "ES256"), (ed25519(), "EdDSA"), (rsa(), "RS256")]
        {
            let valid = issuer.check(&json!({"alg": algorithm, "typ": "JWT"}), &claims()).unwrap();
            let expires = SystemTime::UNIX_EPOCH + Duration::from_secs(NOW + 60) + LEEWAY;
            assert_eq!(valid, Claims { user: "alice".into(), roles: vec!["sensor".into()], expires });
            for other in ["none", "None", "HS256", "HS512", "ES256", "EdDSA", "RS256", "PS256", ""] {
                if other != algorithm {
                    let refused = issuer.check(&json!({"alg": other}), &claims());
                    assert_eq!(refused, Err("its algorithm is not that of the key (users.jwt_key)"));
                }
            }
            let token = issuer.token(&json!({"alg": algorithm}), &claims());
            for wrong in [
                token.rsplit_once('.').unwrap().0.to_owned() + ".",
                token.clone() + "A",
                token.replacen('.', "..", 1),
            ] {
                assert!(issuer.jwt.check(&Secret::from(wrong), now()).is_err());
            }
        }
    }

    #[test]
    fn a_public_key_is_no_secret() {
        // The classic confusion: HMAC with the text of the public key.
        let key = rcgen::KeyPair::generate().unwrap().public_key_pem();
        let hmac_key = hmac::Key::new(hmac::HMAC_SHA256, key.as_bytes());
        let issuer = Issuer::new(
            key.as_bytes(),
            Box::new(move |bytes| hmac::sign(&hmac_key, bytes).as_ref().to_vec()),
        );
        assert!(issuer.check(&json!({"alg": "HS256"}), &claims()).is_err());
        for bad in [
            &b"short"[..],
            b"-----BEGIN PUBLIC KEY-----\nAAAA\n",
            b"-----BEGIN PRIVATE KEY-----\nMIIBVQ==\n-----END PRIVATE KEY-----\n",
        ] {
            assert!(key_of(bad).is_none());
        }
    }

    #[test]
    fn a_key_in_another_form_is_no_secret() {
        use data_encoding::{BASE64, BASE64_MIME};
        let key = rcgen::KeyPair::generate().unwrap();
        let pem = key.public_key_pem();
        let der = parse_x509_pem(pem.as_bytes()).unwrap().1.contents;
        let utf16: Vec<u8> = pem.encode_utf16().flat_map(u16::to_le_bytes).collect();
        let jwk = json!({"keys": [{"kty": "EC", "crv": "P-256", "x": BASE64URL_NOPAD.encode(&der[27..59]), "y": "", "kid": "1"}]});
        let blank = [&der[..der.len() - 1], b" "].concat();
        for (public, form) in [
            (der.clone(), "DER"),
            ([&der[..], b"\n"].concat(), "DER and a newline"),
            ([&blank[..], b"\n"].concat(), "DER that ends with a blank, and a newline"),
            (blank, "DER that ends with a blank"),
            (BASE64.encode(&der).into_bytes(), "base64"),
            (BASE64_MIME.encode(&der).into_bytes(), "base64 in lines"),
            (BASE64URL_NOPAD.encode(&der).into_bytes(), "base64url"),
            (jwk.to_string().into_bytes(), "JWKS"),
            (utf16, "UTF-16"),
            (b"ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIKzqb2kZ0jRz3m9y3c0PqX1Yw8 a@b\n".to_vec(), "ssh"),
        ] {
            assert!(key_of(&public).is_none(), "{form}");
        }
        let random: Vec<u8> = (0..=255).collect();
        let base64 = BASE64.encode(&random[..48]);
        for secret in [&random[..], base64.as_bytes(), b"0123456789abcdef0123456789abcdef\n"] {
            assert!(matches!(key_of(secret), Some(("HS256", _))));
        }
    }

    #[test]
    fn every_claim_is_checked() {
        let issuer = secret();
        let with = |name: &str, value: Value| {
            let mut claims = claims();
            claims[name] = value;
            issuer.check(&json!({"alg": "HS256"}), &claims)
        };
        assert!(with("aud", json!(["x", "rbmq"])).is_ok());
        assert!(with("exp", json!(NOW - 29)).is_ok() && with("nbf", json!(NOW + 29)).is_ok());
        assert!(with("roles", Value::Null).is_err());
        for (name, value) in [
            ("iss", json!("https://evil.example.com")),
            ("iss", Value::Null),
            ("aud", json!(["x"])),
            ("aud", Value::Null),
            ("exp", json!(NOW - 31)),
            ("exp", Value::Null),
            ("exp", json!("tomorrow")),
            ("exp", json!(1e300)),
            ("nbf", json!(NOW + 31)),
            ("nbf", json!("now")),
            ("sub", json!("a/#")),
            ("sub", Value::Null),
            ("roles", json!("admin")),
            ("roles", json!(["a/b"])),
            ("roles", json!(vec!["r"; 33])),
        ] {
            assert!(with(name, value.clone()).is_err(), "{name} {value}");
        }
        assert!(issuer.check(&json!({"alg": "HS256", "crit": ["exp"]}), &claims()).is_err());
    }
}
