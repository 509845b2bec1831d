package main

import (
	"context"
	"crypto/ed25519"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/events"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/test/plane"
)

// The runner pinned one key. A step runs what another key signed if a key set says so that the pinned key signed. It refuses a
// control plane that later hides the key set. Each row is a job after the ones before it.
func TestStepFollowsSignedKeySetsAndNoOthers(t *testing.T) {
	t.Parallel()
	s := plane.New(t, plane.Options{})
	ref := s.Push(map[string]string{"main.tf": `output "done" { value = true }`})
	policy := t.TempDir() + "/policy.yaml"
	if err := os.WriteFile(policy, []byte("version: 1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	startAgent(t, s, "", `FAIRLEAD_AGENT_CONFIG={runner_configuration: {type: local}, policy: "file:`+policy+`"}`)
	signer := func(b byte) *events.Signer {
		seed := make([]byte, ed25519.SeedSize)
		seed[0] = b
		return events.NewSigner(ed25519.NewKeyFromSeed(seed))
	}
	second, third := signer(2), signer(3)
	set := func(by *events.Signer, number int64, after *events.Signer, keys ...*events.Signer) []byte {
		ks := events.KeySet{V: 1, Number: number, After: []events.KeyIDs{events.IDsOf([]ed25519.PublicKey{after.Public()})}, At: time.Now()}
		for _, k := range keys {
			ks.Keys = append(ks.Keys, events.Key(k.Public()))
		}
		envelope, err := events.SignKeySet(context.Background(), ks, by)
		if err != nil {
			t.Fatal(err)
		}
		return envelope
	}
	first := s.Signer()
	good, foreign, later, fork := set(first, 1, first, second), set(second, 1, first, second), set(second, 2, second, third), set(first, 9, first, third)
	for _, job := range []struct {
		what    string
		chain   [][]byte
		by      *events.Signer
		refused string // part of the message; "": it runs
	}{
		{"no key set", nil, second, "not signed by a pinned key"},
		{"a key set that the new key itself signed", [][]byte{foreign}, second, "is not signed by key"},
		{"no key set, the pinned key", nil, first, ""},
		{"a key set that the pinned key signed", [][]byte{good}, second, ""},
		{"the replaced key, with the key set", [][]byte{good}, first, "not signed by a pinned key"},
		{"the replaced key, without the key set", nil, first, "does not offer it any more"},
		{"another key set that the pinned key signed", [][]byte{fork}, third, "does not offer it any more"},
		{"two key sets", [][]byte{good, later}, third, ""},
		{"the first of the two", [][]byte{good}, second, "does not offer it any more"},
	} {
		s.SetKeySets(job.chain)
		s.SetTamper(func(sp events.JobSpec, _ []byte) []byte {
			envelope, err := job.by.Sign(context.Background(), sp)
			if err != nil {
				t.Error(err)
			}
			return envelope
		})
		sp := spec("plan", "local", ref)
		sp.Vars = nil
		f := s.UntilFinished(s.Queue(sp)).Finish
		switch {
		case job.refused == "" && f.Outcome != "succeeded":
			t.Errorf("%s: %+v", job.what, *f)
		case job.refused != "" && (f.Reason != string(fairlead.ReasonSpecSignature) || !strings.Contains(f.Message, job.refused)):
			t.Errorf("%s: %+v, want a refusal with %q", job.what, *f, job.refused)
		}
	}
}
