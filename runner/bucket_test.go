package main

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"

	"github.com/fairlead/fairlead/events"
	"github.com/fairlead/fairlead/test/plane"
	"github.com/fairlead/fairlead/test/tofu"
)

// bucket is a bucket of an S3-compatible server with conditional writes, which lock states.
type bucket struct {
	t        testing.TB
	client   *s3.Client
	name     string
	endpoint string
}

func newBucket(t testing.TB, name string, versioned bool) bucket {
	t.Helper()
	b := bucket{t: t, name: name, endpoint: others.Endpoint(t)}
	b.client = s3.NewFromConfig(aws.Config{Region: "eu-central-1", BaseEndpoint: &b.endpoint, Credentials: credentials.NewStaticCredentialsProvider("AKIATEST", "test", "")},
		func(o *s3.Options) { o.UsePathStyle = true })
	_, err := b.client.CreateBucket(t.Context(), &s3.CreateBucketInput{Bucket: &name,
		CreateBucketConfiguration: &types.CreateBucketConfiguration{LocationConstraint: "eu-central-1"}})
	if err == nil && versioned {
		_, err = b.client.PutBucketVersioning(t.Context(), &s3.PutBucketVersioningInput{Bucket: &name, VersioningConfiguration: &types.VersioningConfiguration{Status: types.BucketVersioningStatusEnabled}})
	}
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// in returns the bucket's location for a job spec.
func (b bucket) in() *events.StateStore {
	return &events.StateStore{Bucket: b.name, Region: "eu-central-1", Prefix: "of/acme", Endpoint: b.endpoint}
}

// of changes a job spec to store its state in the bucket.
func (b bucket) of(sp events.JobSpec) events.JobSpec {
	sp.State = &events.StateRef{Storage: "s3", Key: "ins_1/web", In: b.in()}
	return sp
}

func (b bucket) keys() []string {
	b.t.Helper()
	out, err := b.client.ListObjectsV2(context.WithoutCancel(b.t.Context()), &s3.ListObjectsV2Input{Bucket: &b.name})
	if err != nil {
		b.t.Fatal(err)
	}
	keys := []string{}
	for _, o := range out.Contents {
		keys = append(keys, *o.Key)
	}
	return keys
}

func (b bucket) read(key string) string {
	b.t.Helper()
	out, err := b.client.GetObject(b.t.Context(), &s3.GetObjectInput{Bucket: &b.name, Key: &key})
	if err != nil {
		b.t.Fatal(err)
	}
	defer out.Body.Close()
	body, err := io.ReadAll(out.Body)
	if err != nil {
		b.t.Fatal(err)
	}
	return string(body)
}

func (b bucket) write(key, content string) {
	b.t.Helper()
	if _, err := b.client.PutObject(b.t.Context(), &s3.PutObjectInput{Bucket: &b.name, Key: &key, Body: strings.NewReader(content)}); err != nil {
		b.t.Fatal(err)
	}
}

func (b bucket) remove(key string) {
	b.t.Helper()
	if _, err := b.client.DeleteObject(b.t.Context(), &s3.DeleteObjectInput{Bucket: &b.name, Key: &key}); err != nil {
		b.t.Fatal(err)
	}
}

const (
	stateObject = "of/acme/state/ins_1/web.tfstate"
	planObject  = "of/acme/plans/ins_1/web.tfstate"
)

// A component with its state in the customer's bucket is planned, applied, planned again without changes and destroyed, each
// operation with its role. Its state, its plan and its credentials are nowhere else.
func TestStateInABucket(t *testing.T) {
	t.Parallel()
	for tool, path := range tofu.Tools(t) {
		t.Run(tool, func(t *testing.T) {
			b := newBucket(t, "states-"+strings.ToLower(strings.ReplaceAll(tool, "_", "-")), true)
			s := plane.New(t, plane.Options{Stack: true})
			a := startAgent(t, s, "", append(inStack(t, b.endpoint), "FAIRLEAD_TOFU="+path)...)
			ref := s.Push(map[string]string{"main.tf": exampleModule})

			plan := succeeded(t, s.UntilFinished(s.Queue(b.of(planSpec("", ref)))))
			if p := plan.Finish.Plan; p.NoOp || p.Changes.Add != 1 {
				t.Errorf("plan: %+v", p)
			}
			if got := b.keys(); !slices.Equal(got, []string{planObject}) {
				t.Errorf("after the plan the bucket has %s", got)
			}
			apply := succeeded(t, s.UntilFinished(s.Queue(b.of(applySpec("apply", "", ref, plan)))))
			if !apply.Finish.Mutated || string(apply.Finish.Outputs["name"].Value) != `"one"` || string(apply.Finish.Outputs["password"].Value) != `"`+password+`"` ||
				!apply.Finish.Outputs["password"].Sensitive || len(apply.Finish.Outputs) != 2 {
				t.Errorf("apply: %+v", apply.Finish)
			}
			if got := b.keys(); !slices.Equal(got, []string{planObject, stateObject}) {
				t.Errorf("after the apply the bucket has %s", got)
			}
			var state struct{ Resources []json.RawMessage }
			if err := json.Unmarshal([]byte(b.read(stateObject)), &state); err != nil || len(state.Resources) != 1 {
				t.Errorf("the state has %d resources, %v", len(state.Resources), err)
			}
			if again := succeeded(t, s.UntilFinished(s.Queue(b.of(planSpec("", ref))))); !again.Finish.Plan.NoOp || string(again.Finish.Outputs["name"].Value) != `"one"` {
				t.Errorf("plan without changes: %+v", again.Finish)
			}

			sp := b.of(planSpec("", ref))
			sp.Operation = "plan-destroy"
			down := succeeded(t, s.UntilFinished(s.Queue(sp)))
			// Another plan replaces the earlier plan.
			succeeded(t, s.UntilFinished(s.Queue(sp)))
			f := s.UntilFinished(s.Queue(b.of(applySpec("destroy", "", ref, down)))).Finish
			if f.Outcome != "failed" || f.Reason != "plan-missing" || f.Mutated {
				t.Errorf("destroy with a replaced plan: %+v", f)
			}
			down = succeeded(t, s.UntilFinished(s.Queue(sp)))
			gone := succeeded(t, s.UntilFinished(s.Queue(b.of(applySpec("destroy", "", ref, down)))))
			if len(gone.Finish.Outputs) != 0 || !gone.Finish.Mutated {
				t.Errorf("destroy: %+v", gone.Finish)
			}

			if s.State("ins_1", "web") != nil {
				t.Error("the control plane has a state")
			}
			s.Until("nothing left on disk", a.empty)
			nowhere(t, a.Data, password, "AKIATHERUNNERSOWN", "the-runners-own-secret")
		})
	}
}

// nowhere asserts that no file below data holds any of the texts.
func nowhere(t *testing.T, data string, texts ...string) {
	t.Helper()
	err := filepath.WalkDir(data, func(path string, d os.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // the agent removed it meanwhile
		}
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		b, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		for _, text := range texts {
			if strings.Contains(string(b), text) {
				t.Errorf("%s contains %s", path, text)
			}
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

// A lock refuses other jobs. Their error names the lock's holder and a command, and the command releases the lock.
func TestLockInABucket(t *testing.T) {
	t.Parallel()
	b := newBucket(t, "locked", true)
	s := plane.New(t, plane.Options{Stack: true})
	startAgent(t, s, "", append(inStack(t, b.endpoint), "FAIRLEAD_TOFU="+tool(t))...)
	wait := filepath.Join(t.TempDir(), "go on")
	ref := s.Push(module("echo working; while [ ! -e '" + wait + "' ]; do sleep 0.05; done"))
	plan := succeeded(t, s.UntilFinished(s.Queue(b.of(spec("plan", "", ref)))))
	working := s.Queue(b.of(applySpec("apply", "", ref, plan)))
	s.UntilLog(working, "working")
	if got := b.keys(); !slices.Contains(got, stateObject+".tflock") {
		t.Fatalf("the bucket has %s, but no lock", got)
	}
	other := spec("plan", "", s.PushOf("of-another-machine", module("true")))
	other.Component = "of-another-machine" // with the same component, it would wait for the folder on this machine
	f := s.UntilFinished(s.Queue(b.of(other))).Finish
	unlock := "`aws s3 rm s3://locked/" + stateObject + ".tflock --endpoint-url " + b.endpoint + "` releases the lock"
	if f.Outcome != "failed" || f.Reason != "state-locked" || f.Mutated || !strings.Contains(f.Message, "the state is locked by ") ||
		!strings.Contains(f.Message, " since 20") || !strings.Contains(f.Message, " for Apply, lock ") || !strings.Contains(f.Message, unlock) {
		t.Errorf("finished as %+v", *f)
	}
	left := b.read(stateObject + ".tflock")
	if err := os.WriteFile(wait, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	succeeded(t, s.UntilFinished(working))
	if got := b.keys(); slices.Contains(got, stateObject+".tflock") {
		t.Errorf("the lock was not removed: %s", got)
	}

	// A killed tool leaves its lock. The test follows the hint.
	b.write(stateObject+".tflock", left)
	if f := s.UntilFinished(s.Queue(b.of(spec("plan", "", ref)))).Finish; f.Reason != "state-locked" || !strings.Contains(f.Message, unlock) {
		t.Errorf("finished as %+v", *f)
	}
	b.remove(stateObject + ".tflock")
	succeeded(t, s.UntilFinished(s.Queue(b.of(spec("plan", "", ref)))))
}

// The first state must not be created in a bucket without versions, where a mistake cannot be undone. An existing state
// only gets a warning.
func TestUnversionedBucketGetsNoFirstState(t *testing.T) {
	t.Parallel()
	b := newBucket(t, "unversioned", false)
	s := plane.New(t, plane.Options{Stack: true})
	startAgent(t, s, "", append(inStack(t, b.endpoint), "FAIRLEAD_TOFU="+tool(t))...)
	ref := s.Push(map[string]string{"main.tf": exampleModule})
	f := s.UntilFinished(s.Queue(b.of(planSpec("", ref)))).Finish
	if f.Outcome != "failed" || f.Reason != "state-unversioned" || f.Mutated || !strings.Contains(f.Message, "aws s3api put-bucket-versioning --bucket unversioned") {
		t.Errorf("finished as %+v", *f)
	}
	b.write(stateObject, `{"version":4,"terraform_version":"1.9.0","serial":1,"lineage":"x","outputs":{},"resources":[]}`)
	if j := succeeded(t, s.UntilFinished(s.Queue(b.of(planSpec("", ref))))); !hasLine(j.Log, "[fairlead: warning: bucket unversioned does not keep versions") {
		t.Errorf("the log has no warning:\n%s", j.Log)
	}
}
