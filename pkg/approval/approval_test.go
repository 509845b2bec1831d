package approval_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"strings"
	"testing"
	"time"

	"github.com/secure-systems-lab/go-securesystemslib/dsse"

	"github.com/fairlead/fairlead/pkg/approval"
	"github.com/fairlead/fairlead/pkg/changeset"
)

var now = time.Date(2026, 11, 28, 12, 0, 0, 0, time.UTC)

func digestOf(c string) string { return "sha256:" + strings.Repeat(c, 64) }

func subject() approval.Subject {
	s := approval.Subject{Install: "ins_1", Component: "db", Operation: "apply", Artifact: digestOf("a"), ChangeSet: digestOf("b"), Plan: digestOf("c")}
	s.SetBase(&changeset.Base{Lineage: "l-1", Revision: 9})
	return s
}

func plan() approval.Plan {
	return approval.Plan{V: 1, ID: "0123456789abcdef", Subject: subject(), IssuedAt: approval.At(now.Add(-time.Minute)), ExpiresAt: approval.At(now.Add(time.Hour))}
}

func standing() approval.Standing {
	return approval.Standing{V: 1, ID: "abcdefghij0123456789", Install: "ins_1", Components: []string{"db", "web"}, Operations: []string{"apply"},
		Actions: []string{"create", "delete", "replace", "update"}, Destroys: 1, Uses: 2,
		IssuedAt: approval.At(now), From: approval.At(now.Add(-time.Hour)), Until: approval.At(now.Add(time.Hour))}
}

func newKey(t testing.TB) approval.FileKey {
	t.Helper()
	k, _, err := approval.NewFileKey()
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func pemOf(t testing.TB, private any) []byte {
	t.Helper()
	der, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
}

// A person approves a plan with a key file, and another one with a key of the kind that key services have. The step verifies
// with the public keys of the customer's policy, and learns which key of its storage makes the approval used.
func TestStory(t *testing.T) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	service, err := approval.ParseKey(pemOf(t, private))
	if err != nil {
		t.Fatal(err)
	}
	file := newKey(t)
	var keys []approval.Public
	for _, k := range []approval.Public{file.Public(), service.Public()} {
		again, err := approval.ParsePublic(k.PEM())
		if err != nil || again.ID() != k.ID() {
			t.Fatalf("the key reads back as %q, %v", again.ID(), err)
		}
		keys = append(keys, again)
	}
	for _, key := range []approval.FileKey{file, service} {
		envelope, err := plan().Sign(t.Context(), key)
		if err != nil {
			t.Fatal(err)
		}
		use, err := approval.Verify(t.Context(), envelope, keys, subject(), nil, now)
		if err != nil {
			t.Fatal(err)
		}
		if use.Key != key.Public().ID() || use.ID != plan().ID || use.Standing || len(use.Keys) != 1 || use.Keys[0] != plan().ID {
			t.Errorf("use %+v", use)
		}
	}
}

// Each row is an approval that a control plane with all its own keys could present. None permits an apply.
func TestPlanApprovalRefuses(t *testing.T) {
	key := newKey(t)
	keys := []approval.Public{key.Public()}
	good, err := plan().Sign(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	other := func(change func(*approval.Subject)) approval.Subject {
		s := subject()
		change(&s)
		return s
	}
	for _, c := range []struct {
		name    string
		subject approval.Subject
		now     time.Time
		keys    []approval.Public
		want    approval.Cause
	}{
		{"another install's apply", other(func(s *approval.Subject) { s.Install = "ins_2" }), now, keys, approval.CauseOtherPlan},
		{"another component's apply", other(func(s *approval.Subject) { s.Component = "web" }), now, keys, approval.CauseOtherPlan},
		{"a destroy", other(func(s *approval.Subject) { s.Operation = "destroy" }), now, keys, approval.CauseOtherPlan},
		{"other code under the same plan", other(func(s *approval.Subject) { s.Artifact = digestOf("d") }), now, keys, approval.CauseOtherPlan},
		{"another change set", other(func(s *approval.Subject) { s.ChangeSet = digestOf("d") }), now, keys, approval.CauseOtherPlan},
		{"another plan under the same change set", other(func(s *approval.Subject) { s.Plan = digestOf("d") }), now, keys, approval.CauseOtherPlan},
		{"another state", other(func(s *approval.Subject) { s.Lineage = "l-2" }), now, keys, approval.CauseOtherPlan},
		{"a state that has moved", other(func(s *approval.Subject) { s.Revision = "10" }), now, keys, approval.CauseOtherPlan},
		{"no state any more", other(func(s *approval.Subject) { s.SetBase(nil) }), now, keys, approval.CauseOtherPlan},
		{"an hour too late", subject(), now.Add(2 * time.Hour), keys, approval.CauseExpired},
		{"before it was issued", subject(), now.Add(-time.Hour), keys, approval.CauseNotYet},
		{"a key that is not in the policy", subject(), now, []approval.Public{newKey(t).Public()}, approval.CauseSignature},
		{"a policy without keys", subject(), now, nil, approval.CauseSignature},
	} {
		if use, err := approval.Verify(t.Context(), good, c.keys, c.subject, nil, c.now); approval.RefusalOf(err) != c.want || len(use.Keys) != 0 {
			t.Errorf("%s: %+v, %v; want the cause %s", c.name, use, err, c.want)
		}
	}
}

func TestStandingApproval(t *testing.T) {
	key := newKey(t)
	keys := []approval.Public{key.Public()}
	change := func(actions ...changeset.Action) *changeset.Set {
		s := &changeset.Set{V: changeset.Version}
		for _, a := range actions {
			s.Changes = append(s.Changes, changeset.Change{Address: "a", Action: a})
		}
		return s
	}
	for _, c := range []struct {
		name   string
		change func(*approval.Standing, *approval.Subject)
		set    *changeset.Set
		now    time.Time
		want   approval.Cause // "": permitted
	}{
		{"a change in its scope", nil, change("create", "update"), now, ""},
		{"one object is deleted", nil, change("create", "delete"), now, ""},
		{"two objects are deleted or replaced", nil, change("replace", "delete"), now, approval.CauseOutOfScope},
		{"an action that it does not name", nil, change("create", "run"), now, approval.CauseOutOfScope},
		{"an action of a later version", nil, change("transmute"), now, approval.CauseOutOfScope},
		{"a change set that leaves changes out", nil, &changeset.Set{Omitted: 1}, now, approval.CauseOutOfScope},
		{"no change set", nil, nil, now, approval.CauseOutOfScope},
		{"another component", func(_ *approval.Standing, s *approval.Subject) { s.Component = "cache" }, change("create"), now, approval.CauseOutOfScope},
		{"another component, and the approval is for each", func(a *approval.Standing, s *approval.Subject) { a.Components, s.Component = nil, "cache" }, change("create"), now, ""},
		{"another operation", func(_ *approval.Standing, s *approval.Subject) { s.Operation = "destroy" }, change("create"), now, approval.CauseOutOfScope},
		{"another install", func(_ *approval.Standing, s *approval.Subject) { s.Install = "ins_2" }, change("create"), now, approval.CauseOutOfScope},
		{"before its window", nil, change("create"), now.Add(-2 * time.Hour), approval.CauseNotYet},
		{"after its window", nil, change("create"), now.Add(2 * time.Hour), approval.CauseExpired},
	} {
		a, s := standing(), subject()
		if c.change != nil {
			c.change(&a, &s)
		}
		envelope, err := a.Sign(t.Context(), key)
		if err != nil {
			t.Fatal(err)
		}
		use, err := approval.Verify(t.Context(), envelope, keys, s, c.set, c.now)
		if approval.RefusalOf(err) != c.want || (c.want == "") != (err == nil) {
			t.Errorf("%s: %v; want the cause %q", c.name, err, c.want)
		}
		if c.want == "" && (!use.Standing || strings.Join(use.Keys, " ") != a.ID+"-1 "+a.ID+"-2") {
			t.Errorf("%s: use %+v", c.name, use)
		}
	}
}

// resign signs any payload with the customer's key, as a defect of a signing program would.
func resign(t *testing.T, payloadType, payload string, key approval.FileKey) []byte {
	t.Helper()
	signature, err := key.Sign(t.Context(), dsse.PAE(payloadType, []byte(payload)))
	if err != nil {
		t.Fatal(err)
	}
	b, err := json.Marshal(dsse.Envelope{PayloadType: payloadType, Payload: base64.StdEncoding.EncodeToString([]byte(payload)),
		Signatures: []dsse.Signature{{KeyID: key.Public().ID(), Sig: base64.StdEncoding.EncodeToString(signature)}}})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func payloadOf(t *testing.T, envelope []byte) string {
	t.Helper()
	var env dsse.Envelope
	if err := json.Unmarshal(envelope, &env); err != nil {
		t.Fatal(err)
	}
	payload, err := base64.StdEncoding.DecodeString(env.Payload)
	if err != nil {
		t.Fatal(err)
	}
	return string(payload)
}

// A document that two programs could read in two ways is refused, although the customer's key signed it.
func TestDocumentHasOneReading(t *testing.T) {
	key := newKey(t)
	good, err := plan().Sign(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	payload := payloadOf(t, good)
	const want = `{"artifact":"sha256:` // sorted keys, no spaces
	if !strings.HasPrefix(payload, want) {
		t.Fatalf("the payload is not canonical: %s", payload)
	}
	verify := func(envelope []byte) error {
		_, err := approval.Verify(t.Context(), envelope, []approval.Public{key.Public()}, subject(), nil, now)
		return err
	}
	if err := verify(resign(t, approval.PlanPayloadType, payload, key)); err != nil {
		t.Fatalf("the payload itself, signed again: %v", err)
	}
	for name, envelope := range map[string][]byte{
		"a space":                     resign(t, approval.PlanPayloadType, strings.Replace(payload, ":", ": ", 1), key),
		"a key twice":                 resign(t, approval.PlanPayloadType, strings.Replace(payload, `"operation":`, `"operation":"destroy","operation":`, 1), key),
		"a key in capitals":           resign(t, approval.PlanPayloadType, strings.Replace(payload, `"operation"`, `"Operation"`, 1), key),
		"an unknown field":            resign(t, approval.PlanPayloadType, strings.Replace(payload, `{`, `{"a_limit":1,`, 1), key),
		"a later version":             resign(t, approval.PlanPayloadType, strings.Replace(payload, `"v":1`, `"v":2`, 1), key),
		"two documents":               resign(t, approval.PlanPayloadType, payload+payload, key),
		"an expiry in another zone":   resign(t, approval.PlanPayloadType, strings.Replace(payload, `T13:00:00Z`, `T14:00:00+01:00`, 1), key),
		"an approval for a month":     resign(t, approval.PlanPayloadType, strings.Replace(payload, `"expires_at":"2026-11-28`, `"expires_at":"2026-12-28`, 1), key),
		"another kind of document":    resign(t, approval.StandingPayloadType, payload, key),
		"a document of another kind":  resign(t, "application/vnd.fairlead.job-spec.v1+json", payload, key),
		"no JSON":                     []byte("approved"),
		"an envelope above the limit": append(good, make([]byte, approval.MaxEnvelope)...),
	} {
		if err := verify(envelope); approval.RefusalOf(err) != approval.CauseMalformed {
			t.Errorf("%s: %v", name, err)
		}
	}
	for i := 0; i < len(payload); i += 7 {
		changed := []byte(payload)
		changed[i] ^= 1
		var env dsse.Envelope
		if err := json.Unmarshal(good, &env); err != nil {
			t.Fatal(err)
		}
		env.Payload = base64.StdEncoding.EncodeToString(changed)
		b, _ := json.Marshal(env)
		if err := verify(b); approval.RefusalOf(err) != approval.CauseSignature {
			t.Errorf("byte %d was changed after the signature: %v", i, err)
		}
	}
}

func TestSignRefusesWhatNoStepWouldAccept(t *testing.T) {
	key := newKey(t)
	for name, change := range map[string]func(*approval.Plan){
		"a short id":         func(p *approval.Plan) { p.ID = "1" },
		"an id with a slash": func(p *approval.Plan) { p.ID = "0123456789/bcdef" },
		"no digest":          func(p *approval.Plan) { p.Subject.Plan = "" },
		"eight days":         func(p *approval.Plan) { p.ExpiresAt = approval.At(now.Add(8 * 24 * time.Hour)) },
		"no component":       func(p *approval.Plan) { p.Component = "" },
	} {
		p := plan()
		change(&p)
		if _, err := p.Sign(t.Context(), key); err == nil {
			t.Errorf("%s: it was signed", name)
		}
	}
	for name, change := range map[string]func(*approval.Standing){
		"no use":       func(s *approval.Standing) { s.Uses = 0 },
		"no operation": func(s *approval.Standing) { s.Operations = nil },
		"twice one":    func(s *approval.Standing) { s.Components = []string{"db", "db"} },
		"no window":    func(s *approval.Standing) { s.Until = s.From },
	} {
		s := standing()
		change(&s)
		if _, err := s.Sign(t.Context(), key); err == nil {
			t.Errorf("%s: it was signed", name)
		}
	}
}

func TestKeysThatAreRefused(t *testing.T) {
	weak, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	large, err := ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	_, good, err := approval.NewFileKey()
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string][]byte{"RSA": pemOf(t, weak), "P-384": pemOf(t, large), "nothing": nil, "no PEM": []byte("key"), "a cut key": good[:len(good)/2]} {
		if _, err := approval.ParseKey(text); err == nil {
			t.Errorf("%s: the key is accepted", name)
		}
		if _, err := approval.ParsePublic(text); err == nil {
			t.Errorf("%s: it is accepted as a public key", name)
		}
	}
	if _, err := approval.ParsePublic(good); err == nil || strings.Contains(err.Error(), strings.Split(string(good), "\n")[1]) {
		t.Errorf("a private key, given as a public one: %v", err)
	}
}

// Two change sets that differ in a number above 2^53 must not have one digest: a person would approve the wrong one.
func TestChangeSetDigest(t *testing.T) {
	digest := func(text string) string {
		t.Helper()
		d, err := approval.ChangeSetDigest(json.RawMessage(text))
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	if digest(`{"b":1,"a":[1.0,"<"]}`) != digest(` {"a":[1,"\u003c"],"b":1}`) {
		t.Error("two spellings of one change set have two digests")
	}
	if digest(`{"a":9007199254740993}`) == digest(`{"a":9007199254740992}`) {
		t.Error("two numbers have one digest")
	}
	for _, text := range []string{"", "{", "{}{}", `{"a":1`} {
		if d, err := approval.ChangeSetDigest(json.RawMessage(text)); err == nil {
			t.Errorf("%q has the digest %s", text, d)
		}
	}
}

func FuzzVerify(f *testing.F) {
	key, other := newKey(f), newKey(f)
	for _, k := range []approval.FileKey{key, other} {
		envelope, err := plan().Sign(f.Context(), k)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(envelope)
	}
	keys := []approval.Public{newKey(f).Public()}
	f.Fuzz(func(t *testing.T, envelope []byte) {
		if use, err := approval.Verify(t.Context(), envelope, keys, subject(), nil, now); err == nil {
			t.Errorf("forged %+v", use)
		}
	})
}

// BenchmarkVerify is the cost of a signature for an apply.
func BenchmarkVerify(b *testing.B) {
	key := newKey(b)
	envelope, err := plan().Sign(b.Context(), key)
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if _, err := approval.Verify(b.Context(), envelope, []approval.Public{key.Public()}, subject(), nil, now); err != nil {
			b.Fatal(err)
		}
	}
}
