package terraform

import (
	"io"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/events"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/runner/internal/providers"
	"github.com/fairlead/fairlead/runner/plugin"
)

// A program without a client of S3 cannot see that a bucket keeps no versions, so it must not create the first state in one.
func TestNoBucketIsUsedUnseen(t *testing.T) {
	j := &job{p: New(Config{Data: t.TempDir()}), env: plugin.Env{Log: io.Discard, Workspace: t.TempDir()},
		spec: plugin.Spec{Operation: opPlan, State: &events.StateRef{Storage: "s3", Key: "ins_1/web", In: &events.StateStore{Bucket: "acme-states", Region: "eu-central-1"}}}}
	var err error
	if j.state, err = j.p.openStorage(j, *j.spec.State, "state"); err != nil {
		t.Fatal(err)
	}
	err = j.expectVersions(t.Context())
	if plugin.ReasonOf(err) != fairlead.ReasonInternal || !strings.Contains(err.Error(), "bucket acme-states. Nothing was changed") {
		t.Errorf("got %v", err)
	}
	if _, err := New(Config{Data: t.TempDir(), Mirror: providers.MirrorLocation{Bucket: "providers"}}).openMirror(nil); err == nil || !strings.Contains(err.Error(), "bucket providers") {
		t.Errorf("the mirror: got %v", err)
	}
}
