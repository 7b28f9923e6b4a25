//! Signed assertions: how a client with a private key proves itself (RFC 7523).

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use json::Json;
use ring::rand::SystemRandom;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair, RSA_PKCS1_SHA256, RsaKeyPair,
};

/// A private key that signs assertions.
pub enum SigningKey {
    Es256(EcdsaKeyPair),
    Rs256(RsaKeyPair),
    EdDsa(Ed25519KeyPair),
}

/// Why a key or a signature is not possible.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SigningError {
    #[error("the private key is not a PEM file with `BEGIN PRIVATE KEY` (PKCS #8)")]
    NotPem,
    #[error("the private key is none that Spile supports: P-256, RSA of 2048 bits or more, or Ed25519")]
    UnsupportedKey,
    #[error("signing failed")]
    Failed,
}

impl SigningKey {
    /// Reads an unencrypted PKCS #8 key.
    pub fn from_pem(pem: &str) -> Result<Self, SigningError> {
        let body = pem.split_once("-----BEGIN PRIVATE KEY-----").ok_or(SigningError::NotPem)?.1;
        let body = body.split_once("-----END PRIVATE KEY-----").ok_or(SigningError::NotPem)?.0;
        let body: String = body.split_whitespace().collect();
        let der = STANDARD.decode(body).map_err(|_| SigningError::NotPem)?;
        let random = SystemRandom::new();
        EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &der, &random)
            .map(Self::Es256)
            .or_else(|_| Ed25519KeyPair::from_pkcs8_maybe_unchecked(&der).map(Self::EdDsa))
            .or_else(|_| RsaKeyPair::from_pkcs8(&der).map(Self::Rs256))
            .map_err(|_| SigningError::UnsupportedKey)
    }

    fn algorithm(&self) -> &'static str {
        match self {
            Self::Es256(_) => "ES256",
            Self::Rs256(_) => "RS256",
            Self::EdDsa(_) => "EdDSA",
        }
    }

    /// A JWT with these claims.
    pub fn sign(&self, claims: &Json) -> Result<String, SigningError> {
        let header = Json::object(|out| {
            out.str("alg", self.algorithm()).str("typ", "JWT");
        });
        let encode = |json: &Json| URL_SAFE_NO_PAD.encode(json.as_str());
        let text = format!("{}.{}", encode(&header), encode(claims));
        let random = SystemRandom::new();
        let signature = match self {
            Self::Es256(key) => {
                key.sign(&random, text.as_bytes()).map_err(|_| SigningError::Failed)?.as_ref().to_vec()
            }
            Self::Rs256(key) => {
                let mut signature = vec![0; key.public().modulus_len()];
                key.sign(&RSA_PKCS1_SHA256, &random, text.as_bytes(), &mut signature)
                    .map_err(|_| SigningError::Failed)?;
                signature
            }
            Self::EdDsa(key) => key.sign(text.as_bytes()).as_ref().to_vec(),
        };
        Ok(format!("{text}.{}", URL_SAFE_NO_PAD.encode(signature)))
    }
}

#[cfg(test)]
mod tests {
    use base64::Engine as _;
    use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
    use json::Json;
    use ring::rand::SystemRandom;
    use ring::signature::{
        ECDSA_P256_SHA256_FIXED, ECDSA_P256_SHA256_FIXED_SIGNING, ED25519, EcdsaKeyPair, Ed25519KeyPair,
        KeyPair, UnparsedPublicKey, VerificationAlgorithm,
    };

    use super::{SigningError, SigningKey};

    fn pem(der: &[u8]) -> String {
        format!("-----BEGIN PRIVATE KEY-----\n{}\n-----END PRIVATE KEY-----\n", STANDARD.encode(der))
    }

    fn check(der: &[u8], public: &[u8], algorithm: &'static dyn VerificationAlgorithm, name: &str) {
        let key = SigningKey::from_pem(&pem(der)).expect("a key");
        let claims = Json::object(|out| {
            out.str("sub", "me");
        });
        let token = key.sign(&claims).expect("signed");
        let (text, signature) = token.rsplit_once('.').expect("three parts");
        let signature = URL_SAFE_NO_PAD.decode(signature).expect("base64url");
        UnparsedPublicKey::new(algorithm, public).verify(text.as_bytes(), &signature).expect("valid");
        let (header, body) = text.split_once('.').expect("two parts");
        let decode = |part: &str| String::from_utf8(URL_SAFE_NO_PAD.decode(part).expect("base64url"));
        assert_eq!(decode(header).expect("UTF-8"), format!(r#"{{"alg":"{name}","typ":"JWT"}}"#));
        assert_eq!(decode(body).expect("UTF-8"), r#"{"sub":"me"}"#);
    }

    #[test]
    fn assertions_are_signed_with_every_kind_of_key() {
        let random = SystemRandom::new();
        let der = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &random).expect("a key");
        let key = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, der.as_ref(), &random);
        let public = key.expect("a key").public_key().as_ref().to_vec();
        check(der.as_ref(), &public, &ECDSA_P256_SHA256_FIXED, "ES256");
        let der = Ed25519KeyPair::generate_pkcs8(&random).expect("a key");
        let public = Ed25519KeyPair::from_pkcs8(der.as_ref()).expect("a key").public_key().as_ref().to_vec();
        check(der.as_ref(), &public, &ED25519, "EdDSA");
    }

    #[test]
    fn other_texts_are_not_keys() {
        for (text, expected) in [
            ("", SigningError::NotPem),
            ("-----BEGIN RSA PRIVATE KEY-----\nAAAA\n-----END RSA PRIVATE KEY-----", SigningError::NotPem),
            ("-----BEGIN PRIVATE KEY-----\n????\n-----END PRIVATE KEY-----", SigningError::NotPem),
            ("-----BEGIN PRIVATE KEY-----\nAAAA", SigningError::NotPem),
            ("-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----", SigningError::UnsupportedKey),
        ] {
            assert_eq!(SigningKey::from_pem(text).err(), Some(expected), "{text}");
        }
    }
}
