package events_test

import (
	"context"
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/events"
	"github.com/fairlead/fairlead/pkg/fairlead"
)

// signed returns the envelope of a key set that the keys signed.
func signed(t testing.TB, s events.KeySet, by ...ed25519.PrivateKey) []byte {
	t.Helper()
	var signers []*events.Signer
	for _, k := range by {
		signers = append(signers, events.NewSigner(k))
	}
	b, err := events.SignKeySet(context.Background(), s, signers...)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// rotated returns the key set after s, in which next signs job specs.
func rotated(t testing.TB, s events.KeySet, next byte) events.KeySet {
	t.Helper()
	s, err := s.Rotated(public(next), t0)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func revoked(t testing.TB, s events.KeySet, id, next byte) events.KeySet {
	t.Helper()
	s, err := s.Revoked(events.KeyID(public(id)), public(next), t0)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func names(keys []ed25519.PublicKey) string {
	var out strings.Builder
	for _, k := range keys {
		for b := byte(1); b < 20; b++ {
			if k.Equal(public(b)) {
				out.WriteByte('a' + b - 1)
			}
		}
	}
	return out.String()
}

// The keys a and b are those of a new control plane. Its runners follow rotations and revocations, also a runner that was
// installed in between, and one of a release without spare keys. Key b signs the changes until it is revoked itself.
func TestRunnersFollowTheKeysOfTheirControlPlane(t *testing.T) {
	set := events.FirstKeySet(public(1), public(2))
	var chain [][]byte
	for _, step := range []struct {
		does   string
		change func(events.KeySet) events.KeySet
		by     []ed25519.PrivateKey
		keys   string
	}{
		{"rotate", func(s events.KeySet) events.KeySet { return rotated(t, s, 3) }, []ed25519.PrivateKey{key(1), key(2)}, "cab"},
		{"revoke the key that signed before", func(s events.KeySet) events.KeySet { return revoked(t, s, 1, 9) }, []ed25519.PrivateKey{key(2)}, "cb"},
		{"rotate again", func(s events.KeySet) events.KeySet { return rotated(t, s, 4) }, []ed25519.PrivateKey{key(2)}, "dcb"},
		{"revoke the key that signs", func(s events.KeySet) events.KeySet { return revoked(t, s, 4, 5) }, []ed25519.PrivateKey{key(2)}, "ecb"},
		{"revoke the one that signed before", func(s events.KeySet) events.KeySet { return revoked(t, s, 3, 9) }, []ed25519.PrivateKey{key(2)}, "eb"},
		{"revoke the spare key", func(s events.KeySet) events.KeySet { return revoked(t, s, 2, 6) }, []ed25519.PrivateKey{key(2)}, "ef"},
		{"revoke with the new spare key", func(s events.KeySet) events.KeySet { return revoked(t, s, 5, 7) }, []ed25519.PrivateKey{key(6)}, "gf"},
	} {
		before := set.Public()
		set = step.change(set)
		chain = append(chain, signed(t, set, step.by...))
		for what, pinned := range map[string][]ed25519.PublicKey{"first": {public(1), public(2)}, "after a switch to the spare key": {public(2), public(1)},
			"older than spare keys": {public(1)}, "installed just before": before} {
			got, err := events.Follow(t.Context(), pinned, chain)
			if err != nil || names(got.Keys) != step.keys || got.Number() != set.Number {
				t.Errorf("%s: a runner that is %s trusts %s of key set %d, %v; want %s of %d", step.does, what, names(got.Keys), got.Number(), err, step.keys, set.Number)
			}
		}
		if got, err := events.Follow(t.Context(), set.Public(), chain); err != nil || names(got.Keys) != step.keys || got.Number() != 0 {
			t.Errorf("%s: a new runner trusts %s of key set %d, %v", step.does, names(got.Keys), got.Number(), err)
		}
	}
}

func TestFollowRefusesForeignChanges(t *testing.T) {
	pinned := []ed25519.PublicKey{public(1), public(2)}
	first := events.FirstKeySet(pinned...)
	good := rotated(t, first, 3)
	altered := func(change func(*events.KeySet)) events.KeySet {
		s := good
		s.Keys = slices.Clone(s.Keys)
		change(&s)
		return s
	}
	raw := func(payload string) []byte {
		var env map[string]any
		if err := json.Unmarshal(signed(t, good, key(2)), &env); err != nil {
			t.Fatal(err)
		}
		env["payload"] = []byte(payload)
		b, err := json.Marshal(env)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	for what, test := range map[string]struct {
		chain [][]byte
		keys  string // "": the step refuses the chain
	}{
		"the key that signs jobs cannot change the keys":       {[][]byte{signed(t, good, key(1))}, ""},
		"a key that is not pinned cannot change them":          {[][]byte{signed(t, altered(func(s *events.KeySet) { s.Keys[0] = events.Key(public(9)) }), key(9))}, ""},
		"a signature of another key set does not count":        {[][]byte{raw(`{"v":1}`)}, ""},
		"a change of other keys is not for this runner":        {[][]byte{signed(t, rotated(t, events.FirstKeySet(public(7), public(8)), 9), key(8))}, "ab"},
		"two changes with one number are refused":              {[][]byte{signed(t, good, key(2)), signed(t, good, key(2))}, ""},
		"a version that this release does not know is refused": {[][]byte{raw(`{"v":2,"number":1,"after":[["a"]],"keys":["AA=="]}`)}, ""},
		"a field that this release does not know is refused":   {[][]byte{raw(`{"v":1,"number":1,"only":"builds","after":[["a"]],"keys":["AA=="]}`)}, ""},
		"what is not an envelope is refused":                   {[][]byte{[]byte(`{}`)}, ""},
		"more changes than a control plane has are refused":    {make([][]byte, events.MaxKeySets+1), ""},
		"the new key that signs jobs cannot change the keys":   {[][]byte{signed(t, good, key(2)), signed(t, revoked(t, good, 1, 9), key(3))}, ""},
	} {
		got, err := events.Follow(t.Context(), pinned, test.chain)
		if _, refused := errors.AsType[*events.Refusal](err); refused != (test.keys == "") || !refused && (err != nil || names(got.Keys) != test.keys) {
			t.Errorf("%s: %s, %v", what, names(got.Keys), err)
		}
	}
	var r *events.Refusal
	if _, err := events.Follow(t.Context(), pinned, [][]byte{signed(t, good, key(1))}); !errors.As(err, &r) || r.Reason != fairlead.ReasonSpecSignature {
		t.Errorf("%v, want the reason %s", err, fairlead.ReasonSpecSignature)
	}
}

// A service signs messages of at most 4,096 bytes as a whole, and a signature of its digest is as good.
func TestKeySetIsSignedAsAWhole(t *testing.T) {
	set := rotated(t, events.FirstKeySet(public(1), public(2)), 3)
	var size int
	remote := events.NewRemoteSigner(public(2), func(_ context.Context, message []byte) ([]byte, error) {
		size = len(message)
		return ed25519.Sign(key(2), message), nil
	})
	envelope, err := events.SignKeySet(t.Context(), set, remote)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := events.Follow(t.Context(), []ed25519.PublicKey{public(1), public(2)}, [][]byte{envelope}); err != nil || got.Number() != 1 || size < 200 {
		t.Errorf("%+v, %v; the service signed %d bytes", got, err, size)
	}
}

func TestKeySetsThatAreNone(t *testing.T) {
	good := rotated(t, events.FirstKeySet(public(1), public(2)), 3)
	for what, change := range map[string]func(*events.KeySet){
		"no keys":     func(s *events.KeySet) { s.Keys = nil },
		"four keys":   func(s *events.KeySet) { s.Keys = append(slices.Clone(s.Keys), events.Key(public(4))) },
		"a key twice": func(s *events.KeySet) { s.Keys = []events.Key{s.Keys[0], s.Keys[0]} },
		"a short key": func(s *events.KeySet) { s.Keys = []events.Key{{1}} },
		"number 0":    func(s *events.KeySet) { s.Number = 0 },
		"more sets before it than runners can pin": func(s *events.KeySet) { s.After = append(slices.Clone(s.After), s.After[0]) },
		"replaces none": func(s *events.KeySet) { s.After = nil },
	} {
		s := good
		change(&s)
		if _, err := s.Encode(); err == nil {
			t.Errorf("a key set with %s is encoded", what)
		}
	}
	if _, err := good.Rotated(public(5), time.Now()); err == nil {
		t.Error("a key set with three keys is rotated")
	}
	if _, err := good.Revoked("0123456789abcdef", public(5), time.Now()); err == nil {
		t.Error("an unknown key is revoked")
	}
}
