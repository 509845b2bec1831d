package events_test

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/secure-systems-lab/go-securesystemslib/dsse"

	"github.com/fairlead/fairlead/events"
	"github.com/fairlead/fairlead/pkg/fairlead"
)

// key returns a fixed key, so that envelopes can be compared with golden files: Ed25519 signatures are deterministic.
func key(b byte) ed25519.PrivateKey {
	return ed25519.NewKeyFromSeed(bytes.Repeat([]byte{b}, ed25519.SeedSize))
}

func public(b byte) ed25519.PublicKey { return key(b).Public().(ed25519.PublicKey) }

func full() events.JobSpec {
	return events.JobSpec{
		Runner: "run_01", Install: "ins_01", InstallName: "acme", Deployment: "dep_01", Job: "job_01", Epoch: 3,
		Component: "web", Plugin: "terraform", Operation: "apply",
		IssuedAt: t0, ExpiresAt: t0.Add(10 * time.Minute), Timeout: 7200, Grace: 120,
		Artifact: &events.ArtifactRef{Repository: "apps/shop/web", Digest: "sha256:aa"},
		Vars: map[string]events.SpecVar{
			"size":     {Value: json.RawMessage(`{"cpu":2}`)},
			"password": {Value: json.RawMessage(`"hush"`), Sensitive: true},
		},
		State: &events.StateRef{Storage: "http", Key: "ins_01/web", Path: "/runner/v1/state/ins_01/web"},
		Plan:  &events.PlanRef{Job: "job_00", Digest: "sha256:bb"},
		Env:   map[string]string{"TF_LOG": "off"},
	}
}

// short returns a spec with only the fields that want checks.
func short() events.JobSpec {
	s := full()
	s.Artifact, s.Vars, s.State, s.Plan, s.Env = nil, nil, nil, nil, nil
	return s
}

func want() events.Expect {
	return events.Expect{Runner: "run_01", Install: "acme", InstallID: "ins_01", Job: "job_01", Epoch: 3, Operation: "apply", Operations: []string{"plan", "apply"}}
}

func sign(t testing.TB, k ed25519.PrivateKey, s events.JobSpec) []byte {
	t.Helper()
	b, err := events.NewSigner(k).Sign(context.Background(), s)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// signRaw signs any payload under any type, as a faulty control plane might.
func signRaw(t testing.TB, k ed25519.PrivateKey, payloadType, payload string) []byte {
	t.Helper()
	b, err := json.Marshal(dsse.Envelope{
		PayloadType: payloadType, Payload: base64.StdEncoding.EncodeToString([]byte(payload)),
		Signatures: []dsse.Signature{{
			KeyID: events.KeyID(k.Public().(ed25519.PublicKey)),
			Sig:   base64.StdEncoding.EncodeToString(ed25519.Sign(k, dsse.PAE(payloadType, []byte(payload)))),
		}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func reason(t testing.TB, err error) fairlead.Reason {
	t.Helper()
	if err == nil {
		return ""
	}
	r, ok := errors.AsType[*events.Refusal](err)
	if !ok || r.Error() == "" {
		t.Fatalf("the error is a %T, want a *Refusal: %v", err, err)
	}
	return r.Reason
}

func verify(envelope []byte, keys ...ed25519.PublicKey) (events.JobSpec, error) {
	return events.Verify(context.Background(), envelope, keys, want(), t0)
}

func TestSignedSpecIsVerifiedUnchanged(t *testing.T) {
	s := full()
	envelope := sign(t, key(1), s)
	golden(t, "job-spec-envelope.v1.json", envelope)
	var env dsse.Envelope
	if err := json.Unmarshal(envelope, &env); err != nil {
		t.Fatal(err)
	}
	payload, err := env.DecodeB64Payload()
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "job-spec.v1.json", payload)

	got, err := verify(envelope, public(1))
	if err != nil {
		t.Fatal(err)
	}
	s.V = 1
	if !reflect.DeepEqual(got, s) {
		t.Errorf("the verified spec is %+v, want %+v", got, s)
	}
	if got.Timeout.Duration() != 2*time.Hour || got.Grace.Duration() != 2*time.Minute {
		t.Errorf("the timeout is %s and the grace is %s", got.Timeout.Duration(), got.Grace.Duration())
	}

	check := events.JobSpec{Runner: "run_01", Job: "job_01", Epoch: 1, Plugin: "check", Operation: "check", IssuedAt: t0, ExpiresAt: t0}
	if err := json.Unmarshal(sign(t, key(1), check), &env); err != nil {
		t.Fatal(err)
	}
	if payload, err = env.DecodeB64Payload(); err != nil {
		t.Fatal(err)
	}
	golden(t, "job-spec-least.v1.json", payload)
}

func TestAnyPinnedKeyVerifiesSpec(t *testing.T) {
	for _, k := range []byte{1, 2} {
		if _, err := verify(sign(t, key(k), full()), public(1), public(2)); err != nil {
			t.Errorf("the spec signed by key %d of two is refused: %v", k, err)
		}
	}
	if a, b := events.KeyID(public(1)), events.KeyID(public(2)); len(a) != 16 || a == b {
		t.Errorf("the key IDs are %s and %s, want two different ones of 16 digits", a, b)
	}
	if !events.NewSigner(key(1)).Public().Equal(public(1)) {
		t.Error("Public returns another key than the signer's")
	}
}

// A key service signs a short message instead of a spec of any length. A step verifies both in the same way.
func TestRemoteSignerSignsDigest(t *testing.T) {
	var messages [][]byte
	remote := func(k byte, message func([]byte) []byte) *events.Signer {
		return events.NewRemoteSigner(public(1), func(_ context.Context, m []byte) ([]byte, error) {
			messages = append(messages, m)
			return ed25519.Sign(key(k), message(m)), nil
		})
	}
	same := func(m []byte) []byte { return m }
	s := full()
	s.Env = map[string]string{"LONG": strings.Repeat("x", 100_000)}
	envelope, err := remote(1, same).Sign(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := verify(envelope, public(2), public(1)); err != nil {
		t.Errorf("the spec is refused: %v", err)
	}
	if len(messages) != 1 || len(messages[0]) >= 100 {
		t.Errorf("the service signed %d messages, the first of %d bytes", len(messages), len(messages[0]))
	}
	if _, err := verify(bytes.Replace(envelope, []byte(`"payload":"`), []byte(`"payload":"ICAg`), 1), public(1)); reason(t, err) != fairlead.ReasonSpecSignature {
		t.Errorf("an altered payload: got %v, want a refusal of the signature", err)
	}

	// The golden file fixes the form, because steps of every version verify it.
	envelope, err = remote(1, same).Sign(t.Context(), full())
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "job-spec-envelope-remote.v1.json", envelope)

	for name, signer := range map[string]*events.Signer{
		"signs with another key":     remote(2, same),
		"signs another message":      remote(1, func(m []byte) []byte { return m[1:] }),
		"returns an error":           events.NewRemoteSigner(public(1), func(context.Context, []byte) ([]byte, error) { return nil, errors.New("throttled") }),
		"returns an empty signature": events.NewRemoteSigner(public(1), func(context.Context, []byte) ([]byte, error) { return nil, nil }),
	} {
		if b, err := signer.Sign(t.Context(), full()); err == nil {
			t.Errorf("a service that %s: Sign returns %s, want an error", name, b)
		}
	}
}

func TestVerifyRefusesInvalidSpecs(t *testing.T) {
	keys := []ed25519.PublicKey{public(1)}
	with := func(change func(*events.JobSpec)) []byte {
		s := full()
		change(&s)
		return sign(t, key(1), s)
	}
	payload := func(change func(map[string]any)) []byte {
		s := full()
		s.V = 1
		b, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		var m map[string]any
		if err := json.Unmarshal(b, &m); err != nil {
			t.Fatal(err)
		}
		change(m)
		if b, err = json.Marshal(m); err != nil {
			t.Fatal(err)
		}
		return signRaw(t, key(1), events.SpecPayloadType, string(b))
	}
	good := sign(t, key(1), full())
	for name, c := range map[string]struct {
		envelope []byte
		keys     []ed25519.PublicKey
		reason   fairlead.Reason
	}{
		"a valid spec": {good, keys, ""},

		"not JSON":                       {[]byte("no"), keys, fairlead.ReasonSpecMalformed},
		"an empty envelope":              {nil, keys, fairlead.ReasonSpecMalformed},
		"truncated":                      {good[:len(good)-2], keys, fairlead.ReasonSpecMalformed},
		"larger than a step reads":       {append(good, bytes.Repeat([]byte(" "), events.MaxEnvelope)...), keys, fairlead.ReasonSpecMalformed},
		"another signed document":        {signRaw(t, key(1), "application/vnd.fairlead.other+json", "{}"), keys, fairlead.ReasonSpecMalformed},
		"a document of a very long type": {signRaw(t, key(1), strings.Repeat("x", 1<<20), "{}"), keys, fairlead.ReasonSpecMalformed},
		"signed by another key":          {sign(t, key(2), full()), keys, fairlead.ReasonSpecSignature},
		"no key is pinned":               {good, nil, fairlead.ReasonSpecSignature},
		"the pinned key is invalid":      {good, []ed25519.PublicKey{{1, 2, 3}}, fairlead.ReasonSpecSignature},
		"not signed at all":              {[]byte(`{"payloadType":"` + events.SpecPayloadType + `","payload":"e30=","signatures":[]}`), keys, fairlead.ReasonSpecSignature},
		"a key ID without a signature":   {[]byte(`{"payloadType":"` + events.SpecPayloadType + `","payload":"e30=","signatures":[{"keyid":"` + events.KeyID(public(1)) + `","sig":""}]}`), keys, fairlead.ReasonSpecSignature},
		"signed as another document, with a changed type": {bytes.Replace(
			signRaw(t, key(1), "application/vnd.fairlead.other+json", "{}"),
			[]byte("application/vnd.fairlead.other+json"), []byte(events.SpecPayloadType), 1), keys, fairlead.ReasonSpecSignature},

		"version 2":  {payload(func(m map[string]any) { m["v"] = 2 }), keys, fairlead.ReasonSpecVersion},
		"no version": {payload(func(m map[string]any) { delete(m, "v") }), keys, fairlead.ReasonSpecVersion},
		"an unknown field of a variable": {payload(func(m map[string]any) {
			m["vars"].(map[string]any)["password"] = map[string]any{"only_on_sundays": true}
		}), keys, fairlead.ReasonSpecVersion},
		"an unknown field":              {payload(func(m map[string]any) { m["only_on_sundays"] = true }), keys, fairlead.ReasonSpecVersion},
		"an unknown nested field":       {payload(func(m map[string]any) { m["plan"].(map[string]any)["expires"] = 1 }), keys, fairlead.ReasonSpecVersion},
		"an epoch that is not a number": {payload(func(m map[string]any) { m["epoch"] = "3" }), keys, fairlead.ReasonSpecVersion},
		"no document inside":            {signRaw(t, key(1), events.SpecPayloadType, ""), keys, fairlead.ReasonSpecVersion},
		"two documents inside":          {signRaw(t, key(1), events.SpecPayloadType, `{"v":1}{"v":1}`), keys, fairlead.ReasonSpecVersion},

		"for another runner":                   {with(func(s *events.JobSpec) { s.Runner = "run_02" }), keys, fairlead.ReasonSpecRunner},
		"for another install":                  {with(func(s *events.JobSpec) { s.InstallName = "globex" }), keys, fairlead.ReasonSpecInstall},
		"for another install of the same name": {with(func(s *events.JobSpec) { s.Install = "ins_02" }), keys, fairlead.ReasonSpecInstall},
		"for no install":                       {with(func(s *events.JobSpec) { s.InstallName = "" }), keys, fairlead.ReasonSpecInstall},
		"for another job":                      {with(func(s *events.JobSpec) { s.Job = "job_02" }), keys, fairlead.ReasonSpecJob},
		"of an older epoch":                    {with(func(s *events.JobSpec) { s.Epoch = 2 }), keys, fairlead.ReasonSpecEpoch},
		"of a later epoch":                     {with(func(s *events.JobSpec) { s.Epoch = 4 }), keys, fairlead.ReasonSpecEpoch},
		"for a step in another image":          {with(func(s *events.JobSpec) { s.Image = "registry.example.com/a@sha256:1" }), keys, fairlead.ReasonSpecImage},
		"for another operation":                {with(func(s *events.JobSpec) { s.Operation = "destroy" }), keys, fairlead.ReasonSpecOperation},

		"expired":                           {with(func(s *events.JobSpec) { s.ExpiresAt = t0.Add(-2*time.Minute - 1) }), keys, fairlead.ReasonSpecExpired},
		"expired, within the clock skew":    {with(func(s *events.JobSpec) { s.ExpiresAt = t0.Add(-2 * time.Minute) }), keys, ""},
		"without an expiry":                 {with(func(s *events.JobSpec) { s.ExpiresAt = time.Time{} }), keys, fairlead.ReasonSpecExpired},
		"issued in the future":              {with(func(s *events.JobSpec) { s.IssuedAt = t0.Add(2*time.Minute + 1) }), keys, fairlead.ReasonSpecExpired},
		"issued in the future, within skew": {with(func(s *events.JobSpec) { s.IssuedAt = t0.Add(2 * time.Minute) }), keys, ""},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := verify(c.envelope, c.keys...)
			if got := reason(t, err); got != c.reason {
				t.Fatalf("got reason %q (%v), want %q", got, err, c.reason)
			}
			if err != nil && !reflect.DeepEqual(s, events.JobSpec{}) {
				t.Error("Verify returns the refused spec")
			}
			if err != nil && len(err.Error()) > 400 {
				t.Errorf("the refusal has %d bytes, want at most 400", len(err.Error()))
			}
		})
	}
}

func TestUnsupportedOperationIsRefused(t *testing.T) {
	w := want()
	w.Operations = []string{"plan"}
	_, err := events.Verify(context.Background(), sign(t, key(1), full()), []ed25519.PublicKey{public(1)}, w, t0)
	if got := reason(t, err); got != fairlead.ReasonSpecOperation {
		t.Errorf("got reason %q, want %q", got, fairlead.ReasonSpecOperation)
	}
}

func TestFlippedBitOfSignedBytesIsRefused(t *testing.T) {
	var env dsse.Envelope
	if err := json.Unmarshal(sign(t, key(1), short()), &env); err != nil {
		t.Fatal(err)
	}
	payload, _ := base64.StdEncoding.DecodeString(env.Payload)
	sig, _ := base64.StdEncoding.DecodeString(env.Signatures[0].Sig)
	try := func(where string, at int, payload, sig []byte) {
		e := env
		e.Payload = base64.StdEncoding.EncodeToString(payload)
		e.Signatures = []dsse.Signature{{KeyID: env.Signatures[0].KeyID, Sig: base64.StdEncoding.EncodeToString(sig)}}
		b, err := json.Marshal(e)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := verify(b, public(1)); reason(t, err) != fairlead.ReasonSpecSignature {
			t.Fatalf("byte %d of the %s changed: got %v, want a refusal of the signature", at, where, err)
		}
	}
	for i := range payload {
		try("payload", i, flip(payload, i), sig)
	}
	for i := range sig {
		try("signature", i, payload, flip(sig, i))
	}
	for n := range sig {
		try("signature cut at", n, payload, sig[:n])
	}
}

// flip returns a copy of b with one bit of byte i flipped. The index i determines the bit.
func flip(b []byte, i int) []byte {
	c := bytes.Clone(b)
	c[i] ^= 1 << (i % 8)
	return c
}

// The envelope's text around the signed bytes is not signed. Verify may accept or refuse a change of this text, but the
// change must never change the verified spec.
func TestFlippedBitOfEnvelopeNeverChangesSpec(t *testing.T) {
	good := sign(t, key(1), short())
	spec, err := verify(good, public(1))
	if err != nil {
		t.Fatal(err)
	}
	for i := range good {
		if got, err := verify(flip(good, i), public(1)); err == nil && !reflect.DeepEqual(got, spec) {
			t.Fatalf("after a flipped bit of byte %d another spec is verified: %+v", i, got)
		}
	}
}

func FuzzVerify(f *testing.F) {
	good := sign(f, key(1), full())
	f.Add(good)
	f.Add([]byte(`{}`))
	f.Add([]byte(`{"payloadType":"` + events.SpecPayloadType + `","payload":"e30","signatures":[{"sig":"AA=="},{"sig":"AA=="}]}`))
	f.Add(signRaw(f, key(1), events.SpecPayloadType, `null`))
	f.Add(signRaw(f, key(2), events.SpecPayloadType, `{"v":1}`))
	spec, err := verify(good, public(1))
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, envelope []byte) {
		got, err := verify(envelope, public(1), public(3))
		if reason(t, err) == "" && !reflect.DeepEqual(got, spec) {
			t.Fatalf("an unsigned spec is verified: %+v", got)
		}
	})
}

// If the record of a version was altered, the control plane may sign a spec with another app's artifact. The step
// detects that the artifact does not match the version's identifier.
func TestArtifactOfAnotherVersionIsRefused(t *testing.T) {
	artifacts := map[string]string{"web": "sha256:aa", "db": "sha256:dd"}
	config := []byte(`{"name":"shop <&>"}`)
	id, err := events.VersionID("default", config, artifacts)
	if err != nil || id != "ver_7385b4c7152388b319544f75ab" {
		t.Errorf("the identifier is %s, %v, want the one of stored versions", id, err)
	}
	for name, tc := range map[string]struct {
		alter func(*events.JobSpec)
		want  fairlead.Reason
	}{
		"the published version":                   {func(*events.JobSpec) {}, ""},
		"no version, from an older control plane": {func(s *events.JobSpec) { s.Version = nil }, ""},
		"another artifact in the version": {func(s *events.JobSpec) {
			s.Version.Artifacts = map[string]string{"web": "sha256:ee", "db": "sha256:dd"}
			s.Artifact.Digest = "sha256:ee"
		}, fairlead.ReasonSpecArtifact},
		"another artifact of another component": {func(s *events.JobSpec) {
			s.Version.Artifacts = map[string]string{"web": "sha256:aa", "db": "sha256:ee"}
		}, fairlead.ReasonSpecArtifact},
		"another artifact than the version's":    {func(s *events.JobSpec) { s.Artifact.Digest = "sha256:ee" }, fairlead.ReasonSpecArtifact},
		"the artifact of another component":      {func(s *events.JobSpec) { s.Artifact.Digest = "sha256:dd" }, fairlead.ReasonSpecArtifact},
		"no artifact":                            {func(s *events.JobSpec) { s.Artifact = nil }, fairlead.ReasonSpecArtifact},
		"a component that is not in the version": {func(s *events.JobSpec) { s.Component, s.Artifact.Digest = "x", "" }, fairlead.ReasonSpecArtifact},
		"another configuration":                  {func(s *events.JobSpec) { s.Version.Config = []byte("{}") }, fairlead.ReasonSpecArtifact},
		"another organization":                   {func(s *events.JobSpec) { s.Version.Org = "other" }, fairlead.ReasonSpecArtifact},
		"another identifier":                     {func(s *events.JobSpec) { s.Version.ID = "ver_0" }, fairlead.ReasonSpecArtifact},
	} {
		s := full()
		s.Artifact.Digest = artifacts["web"]
		s.Version = &events.VersionRef{ID: id, Org: "default", Config: config, Artifacts: artifacts}
		tc.alter(&s)
		if _, err := verify(sign(t, key(1), s), public(1)); reason(t, err) != tc.want {
			t.Errorf("%s: got %v, want %q", name, err, tc.want)
		}
	}
}
