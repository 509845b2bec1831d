package control_test

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead/fairlead/pkg/control"
	"github.com/fairlead/fairlead/pkg/control/internal/state"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/store/enginetest"
)

// stage stores a body in parts of 10 bytes.
func (p *plane) stage(h control.Holder, body string) control.Staged {
	p.t.Helper()
	s, part := state.StagedOf([]byte(body)), 0
	for b := range slices.Chunk([]byte(body), 10) {
		p.must("stage", func() error { return p.StagePart(p.ctx, control.Stager{Attempt: h}, s, part, b) })
		part++
	}
	return s
}

// A step died while its tool works. The tool can store its state until another job or a person takes the lock. After
// that, what it staged before changes nothing, and expires.
func TestStaleEpochsPartsChangeNothingAndExpire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlane(t, enginetest.Memory())
		p.publish(shop)
		p.install("acme")
		_, j, h := p.applying("acme")
		p.lockAndSave(h, j, "lock-1", stateOne)
		newer := strings.Replace(stateOne, `"serial":7`, `"serial":8`, 1)
		staged := p.stage(h, newer)
		if got, keys, err := p.StagedBody(p.ctx, control.Stager{Attempt: h}, staged); err != nil || string(got) != newer || len(keys) != len(p.blobs("staged/")) {
			t.Errorf("the parts make %q with the keys %q, %v", got, keys, err)
		}
		p.died(h)
		p.stage(h, newer)
		p.sleep(2 * time.Hour)
		p.must("collect", func() error { return p.CollectOldBlobs(p.ctx) })
		if len(p.blobs("staged/")) == 0 {
			t.Error("the parts of an attempt that has the lock of its state were collected")
		}
		p.must("break the lock", func() error { return p.BreakStateLock(p.ctx, org, "acme", "network", "lock-1") })

		before, _ := p.head("acme", "network")
		if err := p.StagePart(p.ctx, control.Stager{Attempt: h}, staged, 0, []byte("x")); fairlead.KindOf(err) != fairlead.KindStale {
			t.Errorf("a part of a stale epoch: %v", err)
		}
		data, _, err := p.StagedBody(p.ctx, control.Stager{Attempt: h}, staged)
		if err != nil {
			t.Fatal(err)
		}
		if err := p.PutState(p.ctx, h, string(j.Install), "network", "lock-1", data); fairlead.KindOf(err) != fairlead.KindStale {
			t.Errorf("a stale epoch names its parts as the state: %v", err)
		}
		if _, err := p.StagedPart(p.ctx, control.Stager{Attempt: h}, staged.Digest, 0); fairlead.KindOf(err) != fairlead.KindStale {
			t.Errorf("a stale epoch reads a part: %v", err)
		}
		after, _ := p.head("acme", "network")
		if after.Blob != before.Blob || after.Serial != before.Serial {
			t.Errorf("the state is %+v, it was %+v", after, before)
		}
		p.must("collect", func() error { return p.CollectOldBlobs(p.ctx) })
		if left := p.blobs("staged/"); len(left) != 0 || len(p.blobs("state/")) == 0 {
			t.Errorf("the parts %q are left", left)
		}
	})
}

func TestBodyOfOtherPartsIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlane(t, enginetest.Memory())
		p.publish(shop)
		p.install("acme")
		_, _, h := p.applying("acme")
		const body = "one part, another part, and a third part"
		for name, spoil := range map[string]func(control.Staged) (control.Holder, control.Staged){
			"a part is missing": func(s control.Staged) (control.Holder, control.Staged) {
				p.must("remove", func() error { return p.Blobs.Delete(p.ctx, p.blobs("staged/")[1]) })
				return h, s
			},
			"a part differs": func(s control.Staged) (control.Holder, control.Staged) {
				p.must("stage", func() error { return p.StagePart(p.ctx, control.Stager{Attempt: h}, s, 1, []byte("other part")) })
				return h, s
			},
			"the size is smaller": func(s control.Staged) (control.Holder, control.Staged) { s.Size--; return h, s },
			"the size is larger":  func(s control.Staged) (control.Holder, control.Staged) { s.Size++; return h, s },
			"another epoch": func(s control.Staged) (control.Holder, control.Staged) {
				return control.Holder{Job: h.Job, Epoch: h.Epoch + 1}, s
			},
		} {
			holder, s := spoil(p.stage(h, body))
			if data, _, err := p.StagedBody(p.ctx, control.Stager{Attempt: holder}, s); fairlead.CodeOf(err) != fairlead.CodeBodyNotStaged {
				t.Errorf("%s: got %q, %v", name, data, err)
			}
		}
	})
}

// A runner with one lease could fill the vendor's storage with parts that no request names: of many bodies, or of one
// body that it declares small.
func TestAttemptCannotFillTheStorage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlane(t, enginetest.Memory())
		p.publish(shop)
		p.install("acme")
		_, _, h := p.applying("acme")
		by := control.Stager{Attempt: h}
		refused := func(what string, s control.Staged, part int, data string) {
			t.Helper()
			if err := p.StagePart(p.ctx, by, s, part, []byte(data)); fairlead.CodeOf(err) != fairlead.CodeBodyNotStaged {
				t.Errorf("%s: got %v, want %s", what, err, fairlead.CodeBodyNotStaged)
			}
		}
		small := state.StagedOf([]byte("0123456789"))
		refused("a part larger than its body", small, 0, "0123456789a")
		refused("a part behind the end of its body", small, 10, "0")
		refused("a second part of the size of its body", small, 1, "0123456789")
		n := 0
		for ; n < 1000; n++ {
			s := state.StagedOf([]byte(strings.Repeat("x", n+1)))
			if err := p.StagePart(p.ctx, by, s, 0, []byte("x")); err != nil {
				break
			}
		}
		if n != 64 {
			t.Errorf("the attempt stored parts of %d bodies, want 64", n)
		}
		refused("a part of one more body", small, 0, "0123456789")
		if _, err := p.StageAnswer(p.ctx, by, []byte("an answer"), 4); err != nil {
			t.Errorf("an answer in parts: %v", err)
		}
	})
}
