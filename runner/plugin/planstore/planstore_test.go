package planstore_test

import (
	"bytes"
	"context"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/events"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/installkey"
	"github.com/fairlead/fairlead/runner/plugin"
	"github.com/fairlead/fairlead/runner/plugin/planstore"
)

const (
	seed  = "SeedOfTheTestsSeedOfTheTestsSeedOfTheTests0123"
	newer = "NewerSeedOfTheTestsNewerSeedOfTheTestsNewer012"
	plan  = `{"resources":[{"password":"hunter2"}]}`
)

func ringOf(t *testing.T, seeds string) installkey.Ring {
	t.Helper()
	r, err := installkey.NewRing(seeds, "ins_1")
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func planOf(job fairlead.JobID, component string) plugin.Spec {
	return plugin.Spec{Job: job, Component: component, Operation: "plan"}
}

func applyOf(component, digest string) plugin.Spec {
	return plugin.Spec{Job: "job_2", Component: component, Operation: "apply", Plan: &events.PlanRef{Job: "job_1", Digest: digest}}
}

// stored returns the bytes that a store has of the plan of job_1.
func stored(t *testing.T, data string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(data, "plans/job_1/plan"))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// A step saves a plan, a person approves its digest, and the next step applies exactly this plan. The storage cannot read it.
func TestStory(t *testing.T) {
	for name, keys := range map[string]installkey.Ring{"with a key": ringOf(t, seed), "without a key": {}} {
		t.Run(name, func(t *testing.T) {
			data := t.TempDir()
			s := planstore.OnDisk(data)
			digest, err := planstore.Save(t.Context(), s, planOf("job_1", "web"), keys, []byte(plan), nil)
			if err != nil {
				t.Fatal(err)
			}
			b := stored(t, data)
			if digest != plugin.Digest(b) {
				t.Errorf("the approved digest is %s, and the stored plan has %s", digest, plugin.Digest(b))
			}
			if readable := bytes.Contains(b, []byte("hunter2")); readable != keys.IsZero() {
				t.Errorf("the password is readable: %t", readable)
			}
			got, err := planstore.Approved(t.Context(), s, applyOf("web", digest), keys)
			if err != nil || string(got) != plan {
				t.Errorf("the apply gets %s, %v", got, err)
			}
		})
	}
}

// The digest of a plan in clear would let its reader test guesses of a short secret.
func TestDigestOfAnEncryptedPlanTellsNothing(t *testing.T) {
	keys := ringOf(t, seed)
	s := planstore.OnDisk(t.TempDir())
	one, err1 := planstore.Save(t.Context(), s, planOf("job_1", "web"), keys, []byte(plan), nil)
	two, err2 := planstore.Save(t.Context(), s, planOf("job_1", "web"), keys, []byte(plan), nil)
	if err1 != nil || err2 != nil || one == two || one == plugin.Digest([]byte(plan)) {
		t.Errorf("the digests are %s and %s, %v, %v", one, two, err1, err2)
	}
}

// The control plane signs the job's spec and stores the plan. It cannot make a plan that a step applies.
func TestPlanOfAnotherOriginIsRefused(t *testing.T) {
	keys := ringOf(t, seed)
	save := func(keys installkey.Ring, spec plugin.Spec) []byte {
		t.Helper()
		data := t.TempDir()
		if _, err := planstore.Save(t.Context(), planstore.OnDisk(data), spec, keys, []byte(plan), nil); err != nil {
			t.Fatal(err)
		}
		b, err := os.ReadFile(filepath.Join(data, "plans", string(spec.Job), "plan"))
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	anyone, err := keys.Current().Public().Seal("plan/web/job_1", []byte(plan))
	if err != nil {
		t.Fatal(err)
	}
	own := save(keys, planOf("job_1", "web"))
	for name, c := range map[string]struct {
		keys   installkey.Ring
		stored []byte
		want   fairlead.Reason // "": it is applied
	}{
		"the plan itself":                         {keys, own, ""},
		"the seed was rotated":                    {ringOf(t, newer+"\n"+seed), own, ""},
		"sealed with the public key":              {keys, anyone, "encrypted-value-foreign"},
		"in clear":                                {keys, []byte(plan), "plan-elsewhere"},
		"of another job":                          {keys, save(keys, planOf("job_0", "web")), "encrypted-value-damaged"},
		"of another component":                    {keys, save(keys, planOf("job_1", "db")), "encrypted-value-damaged"},
		"changed":                                 {keys, append(bytes.Clone(own[:len(own)-1]), own[len(own)-1]^1), "encrypted-value-damaged"},
		"for a seed that the runner has no more":  {ringOf(t, newer), own, "plan-elsewhere"},
		"encrypted, and the runner has no key":    {installkey.Ring{}, own, "plan-elsewhere"},
		"in clear, and the runner has no key":     {installkey.Ring{}, []byte(plan), ""},
		"a holder sealed what is no saved plan":   {keys, sealed(t, keys, []byte("no gzip")), "encrypted-value-damaged"},
		"a holder sealed a plan of another place": {keys, sealed(t, ringOf(t, newer), []byte("x")), "plan-elsewhere"},
	} {
		t.Run(name, func(t *testing.T) {
			s := planstore.OnDisk(t.TempDir())
			if err := s.Put(t.Context(), "job_1", c.stored); err != nil {
				t.Fatal(err)
			}
			got, err := planstore.Approved(t.Context(), s, applyOf("web", plugin.Digest(c.stored)), c.keys)
			switch {
			case c.want == "" && (err != nil || string(got) != plan):
				t.Errorf("the apply gets %s, %v", got, err)
			case c.want != "" && (plugin.ReasonOf(err) != c.want || got != nil || !strings.Contains(err.Error(), "Nothing was applied")):
				t.Errorf("the apply gets %s, %v (%s); want %s", got, err, plugin.ReasonOf(err), c.want)
			}
		})
	}
}

func sealed(t *testing.T, keys installkey.Ring, value []byte) []byte {
	t.Helper()
	b, err := keys.Seal("plan/web/job_1", value)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// What was approved is applied byte for byte. A swapped plan is refused.
func TestSwappedPlanIsRefused(t *testing.T) {
	keys := ringOf(t, seed)
	s := planstore.OnDisk(t.TempDir())
	digest, err := planstore.Save(t.Context(), s, planOf("job_1", "web"), keys, []byte(plan), nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := planstore.Save(t.Context(), s, planOf("job_1", "web"), keys, []byte(plan), nil); err != nil { // the same plan, encrypted again
		t.Fatal(err)
	}
	if _, err := planstore.Approved(t.Context(), s, applyOf("web", digest), keys); plugin.ReasonOf(err) != fairlead.ReasonPlanDigest {
		t.Errorf("another plan than the approved one: %v", err)
	}
}

// memory is a store without a disk.
type memory map[string][]byte

func (m memory) Put(_ context.Context, job string, plan []byte) error { m[job] = plan; return nil }
func (m memory) Get(_ context.Context, job string) ([]byte, error)    { return m[job], nil }
func (memory) Applied(string)                                         {}

// A saved plan of 100 KiB that was compressed by its tool, as a plan of 100 changes is.
func BenchmarkSaveAndApprove(b *testing.B) {
	keys, err := installkey.NewRing(seed, "ins_1")
	if err != nil {
		b.Fatal(err)
	}
	content := make([]byte, 100<<10)
	rand.NewChaCha8([32]byte{}).Read(content) //nolint:errcheck // never fails
	s := memory{}
	b.SetBytes(int64(len(content)))
	for b.Loop() {
		digest, err := planstore.Save(b.Context(), s, planOf("job_1", "web"), keys, content, nil)
		if err != nil {
			b.Fatal(err)
		}
		if _, err := planstore.Approved(b.Context(), s, applyOf("web", digest), keys); err != nil {
			b.Fatal(err)
		}
	}
}
