package terraform

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/hashicorp/terraform-exec/tfexec"

	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/runner/internal/confine"
	"github.com/fairlead/fairlead/runner/plugin"
	"github.com/fairlead/fairlead/runner/plugin/planstore"
)

// external is storage in the customer's account. Only the tool can access it, because each backend authenticates in its own
// way. So the tool also stores the saved plans, each in the form of a state.
type external struct {
	job         *job
	conf, plans backend
}

func (s *external) backend() backend { return s.conf }

func (s *external) env() map[string]string {
	return identity(s.conf.kind, s.job.p.env, s.job.spec.Env)
}

func (*external) reach() confine.Own { return confine.Own{} }

func (*external) readState(context.Context) ([]byte, error) { return nil, errThroughTool }

func (*external) synced() error { return nil }

func (s *external) saved() planstore.Store { return s }

// Applied does nothing: the component's next plan replaces this one.
func (*external) Applied(string) {}

// planState is a saved plan in the form of a state: it has no resources, and its outputs are the plan and the plan's job.
type planState struct {
	Version   int               `json:"version"` // 4
	Tool      string            `json:"terraform_version"`
	Serial    int64             `json:"serial"`
	Lineage   string            `json:"lineage"`
	Outputs   map[string]output `json:"outputs"`
	Resources []struct{}        `json:"resources"`
}

type output struct {
	Value     string `json:"value"`
	Type      string `json:"type"` // string
	Sensitive bool   `json:"sensitive,omitempty"`
}

// Put implements planstore.Store.
func (s *external) Put(ctx context.Context, job string, plan []byte) error {
	b, err := json.Marshal(planState{Version: 4, Tool: "1.0.0", Serial: 1, Lineage: "plan", Resources: []struct{}{}, Outputs: map[string]output{
		"job":  {Value: job, Type: "string"},
		"plan": {Value: base64.StdEncoding.EncodeToString(plan), Type: "string", Sensitive: true},
	}})
	if err != nil {
		return fmt.Errorf("save the plan: %w", err)
	}
	slot, err := s.job.openSlot(ctx, "plan", backendOnly{s.plans, s.env()})
	if err == nil {
		// A plan replaces the previous one. The control plane orders the jobs, so no lock is needed.
		err = slot.push(ctx, b, tfexec.Force(true), tfexec.Lock(false))
	}
	if err != nil {
		return s.job.failed(err, fairlead.ReasonPlanUnsaved)
	}
	return nil
}

// Get implements planstore.Store.
func (s *external) Get(ctx context.Context, job string) ([]byte, error) {
	var b []byte
	slot, err := s.job.openSlot(ctx, "plan", backendOnly{s.plans, s.env()})
	if err == nil {
		b, err = slot.pull(ctx)
	}
	if err != nil {
		return nil, s.job.failed(err, fairlead.ReasonPlanMissing)
	}
	var kept planState
	if err := json.Unmarshal(b, &kept); len(b) > 0 && err != nil {
		return nil, &plugin.Error{Reason: fairlead.ReasonPlanMissing, Err: err, Message: fmt.Sprintf("%s should have a saved plan, but does not; plan again", s.plans.where)}
	}
	switch of := kept.Outputs["job"].Value; {
	case of == "":
		return nil, plugin.Errorf(fairlead.ReasonPlanMissing, "there is no saved plan in %s; plan again", s.plans.where)
	case of != job:
		return nil, plugin.Errorf(fairlead.ReasonPlanMissing, "the saved plan of %s was replaced by that of %s; plan again", job, of)
	}
	plan, err := base64.StdEncoding.DecodeString(kept.Outputs["plan"].Value)
	if err != nil {
		return nil, &plugin.Error{Reason: fairlead.ReasonPlanMissing, Err: err, Message: fmt.Sprintf("the saved plan in %s is damaged; plan again", s.plans.where)}
	}
	return plan, nil
}

// backendOnly is a storage in which the tool reads and writes only one object.
type backendOnly struct {
	conf backend
	vars map[string]string
}

func (b backendOnly) backend() backend       { return b.conf }
func (b backendOnly) env() map[string]string { return b.vars }
func (backendOnly) reach() confine.Own       { return confine.Own{} }

// slot is a folder with a backend and no module. In it the tool pulls and pushes the state of that backend.
type slot struct {
	dir  string
	conf backend
	run  *runner
}

// access is what the tool needs to access a storage.
type access interface {
	backend() backend
	env() map[string]string
	reach() confine.Own
}

// openSlot creates the folder slot-<name> in the workspace and initializes it for the tool. The log does not get the tool's
// output there: it may be a state.
func (j *job) openSlot(ctx context.Context, name string, state access) (*slot, error) {
	s := &slot{dir: j.path("slot-" + name), conf: state.backend()}
	if err := os.RemoveAll(s.dir); err != nil {
		return nil, fmt.Errorf("create the workspace: %w", err)
	}
	file, err := state.backend().file()
	if err != nil {
		return nil, fmt.Errorf("set the backend: %w", err)
	}
	if err := errors.Join(os.Mkdir(s.dir, 0o700), os.WriteFile(filepath.Join(s.dir, "backend.tf.json"), file, 0o600)); err != nil {
		return nil, fmt.Errorf("create the workspace: %w", err)
	}
	if s.run, err = j.newRunner(s.dir, state, io.Discard); err != nil {
		return nil, err
	}
	s.run.unlogged.SetStderr(s.run.stderr) // for the message of a failure
	if ready, err := j.readySnapshot(s.dir, state.backend()); ready || err != nil {
		return s, err
	}
	if err := s.run.do(ctx, "init", func() error { return s.run.tf.Init(ctx) }); err != nil {
		return nil, err
	}
	j.keepSnapshot(s.dir, state.backend())
	return s, nil
}

// pull returns the state in the slot's storage, or nil if there is none.
func (s *slot) pull(ctx context.Context) ([]byte, error) {
	var text string
	err := s.run.do(ctx, "state pull", func() (err error) {
		text, err = s.run.unlogged.StatePull(ctx)
		return err
	})
	if text = strings.TrimSpace(text); text == "" || err != nil {
		return nil, err
	}
	return []byte(text), nil
}

// push writes the state to the slot's storage.
func (s *slot) push(ctx context.Context, state []byte, options ...tfexec.StatePushCmdOption) error {
	path := filepath.Join(s.dir, "pushed.tfstate")
	if err := os.WriteFile(path, state, 0o600); err != nil {
		return fmt.Errorf("write a state: %w", err)
	}
	defer os.Remove(path)
	return s.run.do(ctx, "state push", func() error { return s.run.unlogged.StatePush(ctx, path, options...) })
}
