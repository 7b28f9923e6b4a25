//! Sealing and opening: only the right key, purpose and binding, and the true reason otherwise.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use proptest::prelude::{Strategy, any, prop_assert, prop_assert_eq, proptest};
use proptest::sample::select;
use spile_core::Platform;
use state::keyring::{KEYS_MAX, KeySource, Keyring, OpenError, Purpose, digest_parts};

use crate::platform::TestPlatform;

fn purposes() -> impl Strategy<Value = Purpose> {
    select(Purpose::ALL.to_vec())
}

proptest! {
    #[test]
    fn what_is_sealed_opens_with_the_same_purpose_and_binding_only(
        payload: Vec<u8>, binding: Vec<u8>, purpose in purposes(),
        other_binding: Vec<u8>, other_purpose in purposes(),
    ) {
        let platform = TestPlatform::new();
        let (ours, theirs) = (Keyring::for_this_run(&platform), Keyring::for_this_run(&platform));
        let sealed = ours.seal(purpose, &binding, &payload, &platform);
        let open = |ring: &Keyring, purpose, binding: &[u8]| ring.open(purpose, binding, &sealed, platform.now_ms());
        prop_assert_eq!(open(&ours, purpose, &binding), Ok(payload));
        if other_binding != binding {
            prop_assert_eq!(open(&ours, purpose, &other_binding), Err(OpenError::Mismatch));
        }
        if other_purpose != purpose {
            prop_assert_eq!(open(&ours, other_purpose, &binding), Err(OpenError::Mismatch));
        }
        prop_assert_eq!(open(&theirs, purpose, &binding), Err(OpenError::UnknownKey(ours.keys()[0].id)));
    }

    #[test]
    fn any_changed_byte_is_refused_with_the_reason_of_its_place(
        payload: Vec<u8>, at: proptest::sample::Index, flip in 1_u8..,
    ) {
        let platform = TestPlatform::new();
        let ring = Keyring::for_this_run(&platform);
        let sealed = ring.seal(Purpose::Cursor, b"caller", &payload, &platform);
        let mut bytes = URL_SAFE_NO_PAD.decode(&sealed).expect("base64url without padding");
        let at = at.index(bytes.len());
        bytes[at] ^= flip;
        let changed = URL_SAFE_NO_PAD.encode(bytes);
        let opened = ring.open(Purpose::Cursor, b"caller", &changed, platform.now_ms());
        match at {
            0 => prop_assert_eq!(opened, Err(OpenError::Malformed)),
            1..5 => prop_assert!(matches!(opened, Err(OpenError::UnknownKey(_)))),
            _ => prop_assert_eq!(opened, Err(OpenError::Mismatch)),
        }
    }

    #[test]
    fn any_changed_or_missing_character_is_refused(at: proptest::sample::Index, to in any::<char>()) {
        let platform = TestPlatform::new();
        let ring = Keyring::for_this_run(&platform);
        let sealed = ring.seal(Purpose::Session, b"", b"hello", &platform);
        let at = at.index(sealed.len());
        let open = |text: &str| ring.open(Purpose::Session, b"", text, platform.now_ms());
        let changed = format!("{}{to}{}", &sealed[..at], &sealed[at + 1..]);
        prop_assert!(changed == sealed || open(&changed).is_err());
        let longer = format!("{}{to}{}", &sealed[..at], &sealed[at..]);
        prop_assert!(open(&longer).is_err());
        prop_assert!(open(&sealed[..at]).is_err());
    }

    #[test]
    fn foreign_text_is_malformed(text in ".{0,200}") {
        let ring = Keyring::for_this_run(&TestPlatform::new());
        prop_assert!(ring.open(Purpose::Session, b"", &text, 0).is_err());
    }

    #[test]
    fn an_old_key_opens_until_the_overlap_ends_and_not_after(overlap_ms in 0_u64..1_000_000, waited_ms in 0_u64..2_000_000) {
        let platform = TestPlatform::new();
        let ring = Keyring::for_this_run(&platform);
        let sealed = ring.seal(Purpose::RequestState, b"call", b"state", &platform);
        let old = ring.keys()[0].id;
        ring.rotate(overlap_ms, &platform).expect("there is room");
        platform.advance_ms(waited_ms);
        let expected = if waited_ms < overlap_ms { Ok(b"state".to_vec()) } else { Err(OpenError::KeyExpired(old)) };
        prop_assert_eq!(ring.open(Purpose::RequestState, b"call", &sealed, platform.now_ms()), expected);
        // The next rotation forgets a key that had ended.
        ring.rotate(overlap_ms, &platform).expect("there is room");
        let is_kept = ring.keys().iter().any(|key| key.id == old);
        prop_assert_eq!(is_kept, waited_ms < overlap_ms);
    }
}

#[test]
fn junk_is_malformed() {
    let platform = TestPlatform::new();
    let ring = Keyring::for_this_run(&platform);
    let sealed = ring.seal(Purpose::Session, b"", b"", &platform);
    for junk in [
        "",
        "A",
        "!!",
        "=",
        "AQ",
        "AQIDBA",
        &sealed[..sealed.len() - 4],
        &format!("{sealed}="),
        &format!(" {sealed}"),
    ] {
        assert_eq!(ring.open(Purpose::Session, b"", junk, 0), Err(OpenError::Malformed), "{junk:?}");
    }
}

#[test]
fn the_reasons_read_differently() {
    let platform = TestPlatform::new();
    let id = Keyring::for_this_run(&platform).keys()[0].id;
    let reasons =
        [OpenError::Malformed, OpenError::UnknownKey(id), OpenError::KeyExpired(id), OpenError::Mismatch];
    let texts: std::collections::BTreeSet<String> = reasons.iter().map(ToString::to_string).collect();
    assert_eq!(texts.len(), reasons.len());
}

#[test]
fn a_rotation_never_extends_the_end_of_a_key() {
    let platform = TestPlatform::new();
    let ring = Keyring::for_this_run(&platform);
    ring.rotate(1000, &platform).unwrap();
    ring.rotate(50_000, &platform).unwrap();
    let ends: Vec<_> = ring.keys().iter().map(|key| key.accept_until_ms).collect();
    let start_ms = TestPlatform::START_MS;
    assert_eq!(ends, [None, Some(start_ms + 50_000), Some(start_ms + 1000)]);
    ring.rotate(u64::MAX, &platform).unwrap();
    assert_eq!(
        ring.keys()[1].accept_until_ms,
        Some(u64::MAX),
        "an overlap beyond all time does not overflow"
    );
}

#[test]
fn too_many_accepted_keys_are_refused_and_ended_ones_make_room() {
    let platform = TestPlatform::new();
    let ring = Keyring::for_this_run(&platform);
    for _ in 1..KEYS_MAX {
        ring.rotate(1000, &platform).unwrap();
    }
    let before = ring.keys();
    assert!(ring.rotate(1000, &platform).unwrap_err().to_string().contains("16 keys"));
    assert_eq!(ring.keys(), before);
    platform.advance_ms(1000);
    ring.rotate(1000, &platform).unwrap();
    assert_eq!(ring.keys().len(), 2);
}

#[test]
fn keys_of_a_run_have_no_file_and_no_secret_in_their_debug_output() {
    let platform = TestPlatform::new();
    let ring = Keyring::for_this_run(&platform);
    assert_eq!((ring.origin(), ring.warning()), (&KeySource::ThisRun, None));
    let id = ring.keys()[0].id;
    let expected = format!(
        "Keyring {{ origin: ThisRun, keys: [KeyInfo {{ id: KeyId({id}), created_ms: {}, accept_until_ms: None }}], .. }}",
        TestPlatform::START_MS
    );
    assert_eq!(format!("{ring:?}"), expected);
}

#[test]
fn hidden_names_depend_on_every_part_and_survive_a_rotation() {
    let platform = TestPlatform::new();
    let (ours, theirs) = (Keyring::for_this_run(&platform), Keyring::for_this_run(&platform));
    let name = ours.hide_name(&[b"tasks", b"alice", b"1"]);
    assert_ne!(name, ours.hide_name(&[b"tasks", b"alic", b"e1"]), "lengths count");
    assert_ne!(name, theirs.hide_name(&[b"tasks", b"alice", b"1"]));
    assert_ne!(name, digest_parts(&[b"tasks", b"alice", b"1"]), "not guessable without the key");
    ours.rotate(0, &platform).unwrap();
    assert_eq!(name, ours.hide_name(&[b"tasks", b"alice", b"1"]));
}
