package audit_test

import (
	"bytes"
	"crypto/ed25519"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/pkg/audit"
)

var start = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// history returns the export of a chain of entries by the actors, with a checkpoint that key signed, and its head.
func history(t *testing.T, key ed25519.PrivateKey, actors ...string) ([]byte, audit.Head) {
	t.Helper()
	var out bytes.Buffer
	public := key.Public().(ed25519.PublicKey)
	w := audit.NewWriter(&out, audit.Header{Org: "default", At: start.Add(time.Hour), KeptDays: 400}, []audit.Key{{ID: "k", PublicKey: public}})
	put := func(v any, to func(json.RawMessage)) {
		b, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		to(b)
	}
	var last *audit.Head
	for i, name := range actors {
		e := audit.Entry{Org: "default", Chain: "ins_1", N: 1, ID: name, At: start.Add(time.Duration(i) * time.Second), Recorded: start.Add(time.Duration(i) * time.Second), Actor: audit.Actor{ID: name, Name: name}, Action: "update-install", Decision: audit.Allowed}
		next, head, err := e.After(last)
		if err != nil {
			t.Fatal(err)
		}
		last = &head
		put(next, w.Entry)
	}
	head := *last
	c := audit.Checkpoint{V: 1, Org: "default", N: 1, At: start.Add(time.Minute), Heads: []audit.Head{head}}
	m, err := c.Message()
	if err != nil {
		t.Fatal(err)
	}
	put(audit.Signed{Checkpoint: c, Key: "k", Signature: ed25519.Sign(key, m)}, w.Checkpoint)
	if w.Err != nil {
		t.Fatal(w.Err)
	}
	return out.Bytes(), head
}

func verify(t *testing.T, file []byte, o audit.Options) audit.Report {
	t.Helper()
	r, err := audit.Verify(bytes.NewReader(file), o)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// A vendor that has the signing key makes another history and signs it. It verifies, and the heads that the customer's runner
// has kept show that it is another one.
func TestKeptHeadsShowARewrittenHistory(t *testing.T) {
	_, key, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	_, early := history(t, key, "carol", "mallory")
	true3, late := history(t, key, "carol", "mallory", "eva")
	kept := []audit.KnownHead{{Head: early, At: start}, {Head: late, At: start.Add(time.Second)}}
	if r := verify(t, true3, audit.Options{Heads: kept}); len(r.Findings) > 0 {
		t.Fatalf("the true history: %+v", r.Findings)
	}
	other, _ := history(t, key, "carol", "other", "eva")
	if r := verify(t, other, audit.Options{}); len(r.Findings) > 0 {
		t.Fatalf("without the heads a signed history verifies: %+v", r.Findings)
	}
	r := verify(t, other, audit.Options{Heads: kept})
	if len(r.Findings) != 2 || r.Findings[0].Kind != audit.Changed || r.Findings[0].N != 2 || !strings.Contains(r.Findings[0].Message, "the history was rewritten") {
		t.Errorf("with the heads: %+v", r.Findings)
	}
	short, _ := history(t, key, "carol", "mallory")
	if r := verify(t, short, audit.Options{Heads: kept}); len(r.Findings) != 1 || r.Findings[0].Kind != audit.Dropped || r.Findings[0].N != 3 {
		t.Errorf("a history that ends before a kept head: %+v", r.Findings)
	}
}

// Only a key that the reader trusts verifies a checkpoint, also if the file names another one.
func TestOnlyTrustedKeysVerifyCheckpoints(t *testing.T) {
	public, key, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	other, _, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	file, _ := history(t, key, "carol")
	if r := verify(t, file, audit.Options{Keys: []ed25519.PublicKey{public}}); len(r.Findings) > 0 || len(r.Newer) > 0 {
		t.Errorf("with the key: %+v", r)
	}
	if r := verify(t, file, audit.Options{Keys: []ed25519.PublicKey{other}}); len(r.Findings) != 1 || r.Findings[0].Kind != audit.Unsigned || len(r.Newer) != 1 {
		t.Errorf("with another key: %+v", r)
	}
}

// What is no export is refused with its line.
func TestVerifyRefusesOtherFiles(t *testing.T) {
	for file, want := range map[string]string{
		"":                          "does not begin with the header",
		"{}\n":                      "does not begin with the header",
		"{\"export\":{\"v\":2}}\n":  "does not begin with the header",
		"{\"export\":{\"v\":1}}\nx": "line 2 is no JSON object",
		"{\"export\":{\"v\":1}}\n{\"entry\":{\"n\":\"x\"}}": "line 2: an entry has another form",
		"{\"export\":{\"v\":1}}\n{\"checkpoint\":[]}":       "line 2: a checkpoint has another form",
	} {
		if _, err := audit.Verify(strings.NewReader(file), audit.Options{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", file, err, want)
		}
	}
}

// Whatever a file has, Verify ends without a panic.
func FuzzVerify(f *testing.F) {
	f.Add([]byte("{\"export\":{\"v\":1,\"org\":\"o\"}}\n{\"entry\":{\"n\":1,\"chain\":\"org\"}}\n{\"checkpoint\":{\"n\":1,\"heads\":[{\"chain\":\"org\",\"n\":1}],\"signature\":\"AA==\"}}"))
	f.Fuzz(func(_ *testing.T, file []byte) { _, _ = audit.Verify(bytes.NewReader(file), audit.Options{}) })
}

// An entry never exceeds its size, whatever was changed, and says how much it leaves out.
func TestEntryHasASize(t *testing.T) {
	e := audit.Entry{Org: "default", Chain: "ins_" + strings.Repeat("0", 26), N: 1, Actor: audit.Actor{ID: "tok_x", Name: strings.Repeat("n", 63)}, Action: "update-install", Object: audit.Object{Kind: "install", Name: strings.Repeat("n", 63)}}
	for i := range 50 {
		e.Changes = append(e.Changes, audit.Change{Field: "inputs." + string(rune('a'+i%26)) + ".value", Before: json.RawMessage(`1`), After: json.RawMessage(`"` + strings.Repeat("x", i*20) + `"`)})
	}
	got, head, err := e.After(nil)
	if err != nil {
		t.Fatal(err)
	}
	if want, err := got.Head(); err != nil || head != want {
		t.Errorf("the head is %+v, want that of the entry, %+v (%v)", head, want, err)
	}
	b, err := audit.Canonical(got)
	if err != nil {
		t.Fatal(err)
	}
	if len(b) > audit.MaxEntry || got.Omitted == nil || got.Omitted.Count+len(got.Changes) != 50 || len(got.Changes) == 0 {
		t.Errorf("%d bytes with %d changes, omitted %+v", len(b), len(got.Changes), got.Omitted)
	}
	for _, c := range got.Changes {
		if len(c.After) > 64 {
			t.Errorf("a long value is shown: %s", c.After)
		}
	}
}

// The hashes of chains and the signatures of customers must stay valid whatever library makes the form: the example of RFC 8785,
// section 3.2.2.
func TestCanonicalFormIsThatOfRFC8785(t *testing.T) {
	given := json.RawMessage(`{
  "numbers": [333333333.33333329, 1E30, 4.50, 2e-3, 0.000000000000000000000000001],
  "string": "\u20ac$\u000F\u000aA'\u0042\u0022\u005c\\\"\/",
  "literals": [null, true, false]
}`)
	const want = `{"literals":[null,true,false],"numbers":[333333333.3333333,1e+30,4.5,0.002,1e-27],"string":"€$\u000f\nA'B\"\\\\\"/"}`
	if got, err := audit.Canonical(given); err != nil || string(got) != want {
		t.Errorf("the form is\n%s (%v), want\n%s", got, err, want)
	}
	if got, err := audit.Canonical(json.RawMessage(`{"a":1,"a":2}`)); err == nil {
		t.Errorf("an object with one name twice has the form %s", got)
	}
}
