//! Proofs between nodes: that both know one token, and that they have certificates of certain names.
//!
//! ```text
//!   sender                                              receiver
//!     │── hello: node, time, nonce, HMAC ─────────────────▶│ the token is the same, the hello is new
//!     │◀───────────────── PROOF: HMAC over the nonce ──────│
//!     │── ANNOUNCE … ─────────────────────────────────────▶│
//! ```
//!
//! The token itself is never sent. A hello is valid for one receiver, for some minutes and once, so an overheard hello is useless. Until
//! the receiver has proved that it knows the token, the sender announces no stream to it, and lets it subscribe to none.

use std::collections::HashMap;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use access::{CertificateName, check_secret, check_secret_mode};
use aws_lc_rs::hmac;
use locks::Mutex;
use private_files::GivenFile;
use rocketbufs::PeerIdentity;

use crate::ids::NodeId;
use crate::wire::{Hello, HelloProof, PROOF_BYTES};

/// The longest file of a token in bytes.
const MAX_TOKEN_BYTES: u64 = 4096;
/// How far the clocks of two nodes may be apart, in seconds.
const MAX_SKEW_S: u64 = 300;
/// The most hellos that are remembered. More proven hellos than this in some minutes are refused.
const MAX_SEEN: usize = 10_000;

/// The token that all nodes share.
pub(crate) struct Token {
    key: hmac::Key,
    /// The nonces of accepted hellos, and their times.
    seen: Mutex<HashMap<[u8; PROOF_BYTES], u64>>,
}

/// The hello of a sender, and the answer that it expects.
pub(crate) struct Claim {
    pub(crate) hello: Vec<u8>,
    /// None without a token.
    pub(crate) answer: Option<[u8; PROOF_BYTES]>,
}

/// The nodes of a connection: its sender and its receiver.
#[derive(Clone, Copy)]
struct Hop {
    from: NodeId,
    to: NodeId,
}

impl Token {
    /// Reads the first line of a file.
    pub(crate) fn load(path: &Path) -> Result<Self, String> {
        let fault = |why: String| format!("dissemination.token_file = {}: {why}", path.display());
        let failed = |error: std::io::Error| fault(error.to_string());
        let file = GivenFile::open(path).map_err(failed)?;
        check_secret_mode(path, file.mode()).map_err(|refused| fault(refused.to_string()))?;
        let text = file.text(MAX_TOKEN_BYTES).map_err(failed)?;
        let token = text.lines().next().unwrap_or("").trim();
        check_secret(token).map_err(|weak| fault(format!("its first line is no token: {weak}")))?;
        Ok(Self::new(token.as_bytes()))
    }

    fn new(token: &[u8]) -> Self {
        Self { key: hmac::Key::new(hmac::HMAC_SHA256, token), seen: Mutex::default() }
    }

    fn mac(&self, role: &str, hop: Hop, time_s: u64, nonce: &[u8]) -> [u8; PROOF_BYTES] {
        let mut context = hmac::Context::with_key(&self.key);
        context.update(role.as_bytes());
        context.update(&hop.from.to_le_bytes());
        context.update(&hop.to.to_le_bytes());
        context.update(&time_s.to_le_bytes());
        context.update(nonce);
        let mut mac = [0; PROOF_BYTES];
        mac.copy_from_slice(context.sign().as_ref());
        mac
    }

    /// The proof of a hello from one node to another.
    fn claim(&self, hop: Hop, time_s: u64) -> Result<HelloProof, String> {
        let mut nonce = [0; PROOF_BYTES];
        getrandom::fill(&mut nonce)
            .map_err(|error| format!("the system gives no random numbers: {error}"))?;
        Ok(HelloProof { time_s, nonce, mac: self.mac(SENDER, hop, time_s, &nonce) })
    }

    /// The answer that proves to a sender that the receiver knows the token.
    fn answer(&self, hop: Hop, proof: &HelloProof) -> [u8; PROOF_BYTES] {
        self.mac(RECEIVER, hop, proof.time_s, &proof.nonce)
    }

    /// Checks the proof of a hello.
    fn check(&self, hop: Hop, proof: &HelloProof, now_s: u64) -> Result<(), String> {
        if !is_same(&self.mac(SENDER, hop, proof.time_s, &proof.nonce), &proof.mac) {
            return Err(format!(
                "the token of node {} is not that of this node (dissemination.token_file), or it takes this node for another one",
                hop.from
            ));
        }
        let apart = now_s.abs_diff(proof.time_s);
        if apart > MAX_SKEW_S {
            return Err(format!(
                "the clocks of node {} and of this node are {apart} s apart; {MAX_SKEW_S} s are allowed: set them",
                hop.from
            ));
        }
        let mut seen = self.seen.lock();
        seen.retain(|_, time_s| now_s.saturating_sub(*time_s) <= 2 * MAX_SKEW_S);
        if seen.len() >= MAX_SEEN {
            return Err("too many nodes have connected within some minutes".to_owned());
        }
        match seen.insert(proof.nonce, proof.time_s.max(now_s)) {
            Some(_) => Err(format!("a hello of node {} came twice: somebody repeats it", hop.from)),
            None => Ok(()),
        }
    }
}

const SENDER: &str = "RBLive node, sender";
const RECEIVER: &str = "RBLive node, receiver";

/// Compares in a time that does not depend on the bytes.
pub(crate) fn is_same(own: &[u8; PROOF_BYTES], other: &[u8; PROOF_BYTES]) -> bool {
    aws_lc_rs::constant_time::verify_slices_are_equal(own, other).is_ok()
}

fn now_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// The hello of node `from` for node `to`.
pub(crate) fn claim(token: Option<&Token>, from: NodeId, to: NodeId) -> Result<Claim, String> {
    let hop = Hop { from, to };
    let proof = token.map(|token| token.claim(hop, now_s())).transpose()?;
    let answer = token.zip(proof.as_ref()).map(|(token, proof)| token.answer(hop, proof));
    Ok(Claim { hello: Hello { node: from, proof }.encode(), answer })
}

/// Checks the hello that node `to` has received. Returns the answer for the sender, if the nodes have a token. The sender gets the
/// error.
pub(crate) fn check(
    token: Option<&Token>,
    hello: &Hello,
    to: NodeId,
) -> Result<Option<[u8; PROOF_BYTES]>, String> {
    match (token, &hello.proof) {
        (None, None) => Ok(None),
        (Some(_), None) => Err(format!(
            "node {to} takes streams of nodes that prove to know its token, and node {} does not: set dissemination.token_file there",
            hello.node
        )),
        (None, Some(_)) => Err(format!(
            "node {} has a token and sends streams to nodes that know it, and node {to} has none: set dissemination.token_file there",
            hello.node
        )),
        (Some(token), Some(proof)) => {
            let hop = Hop { from: hello.node, to };
            token.check(hop, proof, now_s())?;
            Ok(Some(token.answer(hop, proof)))
        }
    }
}

/// Checks that the other end has a certificate with one of the names that the configuration gives node `node`. A process of this
/// machine and of the same user or root, over shared memory, needs none. Both ends get the error.
pub(crate) fn check_certificate(
    node: &str,
    names: Option<&Vec<String>>,
    identity: &PeerIdentity,
) -> Result<(), String> {
    let Some(names) = names else { return Ok(()) };
    if let Some(peer) = identity.unix {
        let own = std::fs::metadata("/proc/self").map(|own| own.uid());
        let is_own = peer.uid == 0 || own.is_ok_and(|own| own == peer.uid);
        return if is_own {
            Ok(())
        } else {
            Err(format!(
                "node {node} is a process of user {} of this machine, and not of this node's user",
                peer.uid
            ))
        };
    }
    let wanted = names.join(", ");
    let Some(certificate) = &identity.certificate else {
        return Err(format!(
            "node {node} shows no certificate, and needs one with one of the names {wanted} (dissemination.certificates): set tls.cert \
             and tls.key there, and tls.client_certificates = \"require\" at both ends"
        ));
    };
    let found = CertificateName::of_der(certificate);
    let is_wanted = |name: &CertificateName| {
        names.iter().any(|own| own.parse().is_ok_and(|own: CertificateName| own == *name))
    };
    if found.iter().any(is_wanted) {
        return Ok(());
    }
    let found: Vec<_> = found.iter().map(ToString::to_string).collect();
    Err(format!(
        "the certificate of node {node} has the names [{}], and none of {wanted} (dissemination.certificates)",
        found.join(", ")
    ))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    const TIME: u64 = 1_790_000_000;
    const HOP: Hop = Hop { from: 1, to: 2 };

    #[test]
    fn a_proof_is_good_for_one_receiver_some_minutes_and_once() {
        let (token, same) = (Token::new(b"a token of nodes"), Token::new(b"a token of nodes"));
        let proof = token.claim(HOP, TIME).unwrap();
        assert!(same.check(Hop { to: 3, ..HOP }, &proof, TIME).unwrap_err().contains("another one"));
        assert!(same.check(Hop { from: 4, ..HOP }, &proof, TIME).is_err());
        assert!(same.check(HOP, &proof, TIME + 301).unwrap_err().contains("301 s apart"));
        assert_eq!(same.check(HOP, &proof, TIME + 200), Ok(()));
        assert!(same.check(HOP, &proof, TIME + 201).unwrap_err().contains("twice"));
        let changed = HelloProof { time_s: TIME + 1, ..proof };
        assert!(same.check(HOP, &changed, TIME).is_err());
        assert!(Token::new(b"another token...").check(HOP, &proof, TIME).is_err());
        let answer = token.answer(HOP, &proof);
        assert!(is_same(&answer, &same.answer(HOP, &proof)));
        assert!(
            !is_same(&answer, &proof.mac) && !is_same(&answer, &same.answer(Hop { from: 2, to: 1 }, &proof))
        );
    }

    #[test]
    fn hellos_that_are_remembered_are_bounded_and_forgotten() {
        let token = Token::new(b"a token of nodes");
        for _ in 0..MAX_SEEN {
            let proof = token.claim(HOP, TIME).unwrap();
            token.check(HOP, &proof, TIME).unwrap();
        }
        let proof = token.claim(HOP, TIME).unwrap();
        assert!(token.check(HOP, &proof, TIME).unwrap_err().contains("too many"));
        let later = TIME + 2 * MAX_SKEW_S + 1;
        assert_eq!(token.check(HOP, &token.claim(HOP, later).unwrap(), later), Ok(()));
    }

    #[test]
    fn a_token_is_a_line_of_a_file() {
        let folder = std::env::temp_dir().join(format!("rblive-token-{}", std::process::id()));
        std::fs::write(&folder, "too short\n").unwrap();
        let allow = |mode| std::fs::set_permissions(&folder, PermissionsExt::from_mode(mode)).unwrap();
        allow(0o644);
        let error = Token::load(&folder).err().unwrap();
        assert!(
            error.contains("everybody on this machine can read it (mode 644); run: chmod 640"),
            "{error}"
        );
        allow(0o640);
        let error = Token::load(&folder).err().unwrap();
        assert!(error.contains("token_file") && error.contains("9 characters"), "{error}");
        std::fs::write(&folder, "0123456789abcdef\nmore\n").unwrap();
        let token = Token::load(&folder).unwrap();
        assert_eq!(token.mac("", HOP, 0, b""), Token::new(b"0123456789abcdef").mac("", HOP, 0, b""));
        std::fs::remove_file(&folder).unwrap();
        assert!(Token::load(&folder).is_err());
    }
}
